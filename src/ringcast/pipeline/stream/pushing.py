"""Conditions of a query that spare the source work: ``where("group = 'orders'")`` and the like.

Spark evaluates every condition once more, so that only it decides what a condition means. Here it
says what need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ringcast.core.ids import Position
from ringcast.journal.format.selection import LEAST, MOST, Bounds, Selection


def narrowed(wanted: Selection, conditions: Iterable[Filter]) -> Selection:
    """What is still wanted under these conditions too; those of other kinds are left to Spark."""
    for condition in conditions:
        match getattr(condition, "attribute", ()):
            case ("kind",):
                kinds = _among(wanted.kinds, condition)
                wanted = msgspec.structs.replace(wanted, kinds=kinds)
            case ("group",):
                groups = _among(wanted.groups, condition)
                wanted = msgspec.structs.replace(wanted, groups=groups)
            case ("position", str(part)) if part in Position._fields:
                low, high = _between(condition)
                least, most = wanted.places.get(part, (LEAST, MOST))
                places = wanted.places | {part: (max(low, least), min(high, most))}
                wanted = msgspec.structs.replace(wanted, places=places)
    return wanted


def _values(condition: Filter) -> tuple[Any, ...] | None:
    """The values that a condition allows; None if it is of another kind."""
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return (value,)
        case In(value=values):
            return tuple(value for value in values if value is not None)
    return None


def _among(before: tuple[str, ...] | None, condition: Filter) -> tuple[str, ...] | None:
    values = _values(condition)
    if values is None:
        return before
    return tuple(each for each in values if before is None or each in before)


def _between(condition: Filter) -> Bounds:
    """Between which numbers a part of the position lies."""
    match condition:
        case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return value, MOST
        case LessThan(value=value) | LessThanOrEqual(value=value):
            return LEAST, value
    values = _values(condition)
    return (min(values), max(values)) if values else (LEAST, MOST)

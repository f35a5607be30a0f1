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
from ringcast.journal.format.frame import KINDS
from ringcast.journal.format.layout import MESSAGE
from ringcast.journal.format.selection import LEAST, MOST, MOST_GROUPS, Bounds, Selection
from ringcast.replica.contents import COMMAND


def narrowed(wanted: Selection, conditions: Iterable[Filter]) -> Selection:
    """What is still wanted under these conditions too; those of other kinds are left to Spark."""
    for condition in conditions:
        match getattr(condition, "attribute", ()):
            case ("kind",):
                kinds = _among(wanted.kinds, _kinds(_values(condition)))
                wanted = msgspec.structs.replace(wanted, kinds=kinds)
            case ("group",):
                groups = _among(wanted.groups, _values(condition))
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
            values = (value,)
        case In(value=values):
            pass
        case _:
            return None
    return tuple(value for value in dict.fromkeys(values) if value is not None)


def _kinds(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The kinds that a journal has for these: to it a command is a message."""
    if values is None:
        return None
    there = {MESSAGE if each == COMMAND else each for each in values}
    return tuple(each for each in KINDS if each in there)


def _among(
    before: tuple[str, ...] | None, values: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if values is None:
        return before
    among = tuple(each for each in values if before is None or each in before)
    return among if len(among) <= MOST_GROUPS else before  # more than a node takes in a question


def _between(condition: Filter) -> Bounds:
    """Between which numbers a part of the position lies."""
    match condition:
        case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return value, MOST
        case LessThan(value=value) | LessThanOrEqual(value=value):
            return LEAST, value
    values = _values(condition)
    return (min(values), max(values)) if values else (LEAST, MOST)

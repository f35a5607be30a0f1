"""Errors about names and choices, with what there is to choose from."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

WRONG = re.compile(r"(?:unknown field `|Invalid enum value ['`]?)(.*?)['`]?(?: - at `\$(.*)`)?$")
"""What msgspec says of a name or a choice that it does not know, and where it was."""


def known(name: str, names: Iterable[str]) -> str:
    """What could have been meant by ``name``, as the end of an error."""
    spelled = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), spelled, 1)
    question = f"did you mean {spelled[near[0]]}? " if near else ""
    return f"{question}known: {', '.join(spelled.values()) or 'none'}"


def explained(error: msgspec.ValidationError, kind: Any, but: Container[str] = ()) -> str:
    """What is wrong with something that was to become a ``kind``. Fields in ``but`` are not for
    whoever reads it."""
    text = str(error)
    found = WRONG.search(text)
    if not found:
        return text
    name, place = found.groups()
    match _inside(inspect.type_info(kind), place or ""):
        case inspect.StructType(fields=fields):
            names = (field.encode_name for field in fields)
            return f"{text}; {known(name, (each for each in names if each not in but))}"
        case inspect.EnumType(cls=cls):
            return f"{text}; {known(name, (str(each.value) for each in cls))}"
        case inspect.LiteralType(values=values):
            return f"{text}; {known(name, map(str, values))}"
    return text


def _inside(kind: inspect.Type, place: str) -> inspect.Type | None:
    """The type of what is at a place such as ``.ports[0].bind``; None: somewhere else."""
    for step in re.findall(r"[^.[\]]+", place):
        if isinstance(kind, inspect.VarTupleType):
            kind = kind.item_type
            continue
        fields = kind.fields if isinstance(kind, inspect.StructType) else ()
        inner = [field.type for field in fields if field.encode_name == step]
        if not inner:
            return None
        (kind,) = inner
    return kind

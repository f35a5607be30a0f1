"""Copies of what is replaced: ``from time import time``, a default argument, a class attribute.

Whoever has taken such a copy before a world begins would see the real clock in it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, str]
"""Where the original is: its owner and its name there."""

LEFT_ALONE = frozenset(
    {*sys.stdlib_module_names, "_pytest", "pytest", "pluggy", "hypothesis", "xdist", "execnet"}
)
"""Packages whose own copies of a clock stay real: they measure the test, they are not in it."""

ITSELF = "ringcast.testing."


class Copy:
    """One copy, and how to put something else there."""

    __slots__ = ("_key", "_owner", "place")

    def __init__(self, owner: Any, key: Any, place: Place) -> None:
        self._owner, self._key, self.place = owner, key, place

    def put(self, value: Any) -> None:
        """Put the fake or the real thing there."""
        owner, key = self._owner, self._key
        if isinstance(owner, dict):
            owner[key] = value
        elif isinstance(owner, type):
            static = isinstance(vars(owner).get(key), staticmethod)
            setattr(owner, key, staticmethod(value) if static else value)
        else:
            owner.__defaults__ = (*owner.__defaults__[:key], value, *owner.__defaults__[key + 1 :])


_found: dict[str, list[Copy]] = {}
"""By module, each of which is looked through once."""


def copies(places: Mapping[Place, tuple[Any, Any]]) -> list[Copy]:
    """All copies of the real things in ``places``, in modules that are not left alone."""
    new = [name for name in sys.modules if name not in _found]
    if new:
        originals = {id(real): place for place, (real, _) in places.items()}
        for name in new:
            alone = name.startswith(ITSELF) or name.partition(".")[0] in LEFT_ALONE
            module = sys.modules[name]
            looked = isinstance(module, ModuleType) and not alone
            _found[name] = list(in_module(module, originals)) if looked else []
    return [copy for found in _found.values() for copy in found]


def in_module(module: ModuleType, originals: dict[int, Place]) -> Iterator[Copy]:
    """Its names, the attributes of its classes, and the defaults of its functions."""
    for key, value in list(vars(module).items()):
        if (place := originals.get(id(value))) is not None:
            yield Copy(vars(module), key, place)
        elif isinstance(value, FunctionType):
            yield from in_defaults(value, originals)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for name, held in list(vars(value).items()):
                raw = held.__func__ if isinstance(held, staticmethod) else held
                if (place := originals.get(id(raw))) is not None:
                    yield Copy(value, name, place)
                elif isinstance(raw, FunctionType):
                    yield from in_defaults(raw, originals)


def in_defaults(function: FunctionType, originals: dict[int, Place]) -> Iterator[Copy]:
    """``def f(clock=time.monotonic)``."""
    for at, value in enumerate(function.__defaults__ or ()):
        if (place := originals.get(id(value))) is not None:
            yield Copy(function, at, place)
    for key, value in (function.__kwdefaults__ or {}).items():
        if (place := originals.get(id(value))) is not None:
            yield Copy(function.__kwdefaults__, key, place)

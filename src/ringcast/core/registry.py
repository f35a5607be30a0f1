"""Protocols by name: how to make one, how it is configured, what it claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ringcast.core.explain import known
from ringcast.core.ids import NodeId
from ringcast.core.machine import Machine


class Sheet(msgspec.Struct, frozen=True):
    """What the other packages need to know of a protocol."""

    name: str
    source: str
    config: type[msgspec.Struct]
    make: Callable[[NodeId, Any], Machine]
    """Builds a machine for one processor from an instance of ``config``."""
    claims: Callable[[Any], tuple[str, ...]]
    """For a configuration: names of the properties in ``ringcast.checks`` that are promised."""
    profiles: dict[str, msgspec.Struct]
    """Named configurations, the first one the default."""
    messages: tuple[type[msgspec.Struct], ...]
    """Every message type, for the wire's decoder."""
    progress_bound_us: Callable[[Any, int], int]
    """For a configuration and n live processors: time after the last fault until all make
    progress together (totem M5's bound)."""
    turn: type[msgspec.Struct] | None = None
    """The message whose passing marks a turn of the protocol, for what is counted per turn."""
    static: bool = False
    """Whether the members are fixed. Then the configuration names them (``members``) and says how
    many of them may fail (``faults``), and who crashed does not come back."""

    @property
    def default(self) -> msgspec.Struct:
        """The configuration of someone who asks for nothing special."""
        return next(iter(self.profiles.values()))

    def for_group(self, config: Any, ids: Iterable[NodeId]) -> Any:
        """``config`` in a group of these processors; ValueError if it does not suit them."""
        if not self.static:
            return config
        return msgspec.structs.replace(config, members=tuple(sorted(ids)))


_sheets: dict[str, Sheet] = {}


def register(sheet: Sheet) -> Sheet:
    """Make a protocol available by name."""
    _sheets[sheet.name] = sheet
    return sheet


def protocol(name: str) -> Sheet:
    """The protocol called ``name``; the error lists what there is."""
    try:
        return _sheets[name]
    except KeyError:
        raise LookupError(f"no protocol called {name!r}; {known(name, sorted(_sheets))}") from None


def protocols() -> tuple[Sheet, ...]:
    """Every registered protocol, by name."""
    return tuple(_sheets[name] for name in sorted(_sheets))

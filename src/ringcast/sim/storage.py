"""The stable storage of one simulated processor: what survives a crash, and how it fails.

A ``Persist`` effect is a write and a sync in one, so between two effects there is nothing
unsynced to lose. Losing unsynced writes therefore means a crash *inside* an effect list: the
node carries out the effects up to some point and nothing after it (``SimNode.tear``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class StorageFailed(Exception):
    """A write could not be made durable; the processor must not go on."""


class Storage:
    """Durable integers by name."""

    def __init__(self) -> None:
        self._durable: dict[str, int] = {}
        self._failing = False

    def persist(self, key: str, value: int) -> None:
        """Make ``value`` durable, or raise ``StorageFailed`` and keep the old value."""
        if self._failing:
            self._failing = False
            raise StorageFailed(f"stable storage refused to write {key} = {value}")
        self._durable[key] = value

    def fail_next(self) -> None:
        """Let the next write fail; the one after it works again."""
        self._failing = True

    def work(self) -> None:
        """Take back ``fail_next``."""
        self._failing = False

    def wipe(self) -> None:
        """Lose everything, as when a processor comes back with a new disk."""
        self._durable.clear()

    def read(self) -> Mapping[str, int]:
        """What a starting processor finds."""
        return MappingProxyType(dict(self._durable))

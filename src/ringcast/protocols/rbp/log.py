"""The log: entries with their bodies, what is missing, and what was let go (2.0, K5, K7)."""

from __future__ import annotations

from collections.abc import Iterator

from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Data, Entry, Epoch, Ids, Key

OVERHEAD_BYTES = 200
"""What an entry takes in memory besides what is in it, about."""

FAR = 4096
"""Entries this far beyond the log are not filed: they are asked for when their turn comes."""


class Log:
    """log(p): the longest run of held entries, and a side buffer of entries beyond a hole. L2: what
    is received, ordered and kept has an index for each use."""

    def __init__(self) -> None:
        self.floor = 0
        """Everything up to here was let go, or was before our time."""
        self.floor_tag: Epoch = NEVER
        self.held = 0
        """The last number of the log."""
        self.bytes = 0
        self.view: ViewId = NOBODY
        """The view whose bodies are being ordered."""
        self.named: dict[NodeId, int] = {}
        """K6: of each source, the last counter of this view that the log names. Counters are named
        in their order, so this is the whole duplicate filter."""
        self.last_content = 0
        """The last number of the log that names anything."""
        self.pool: dict[Key, None] = {}
        """Bodies of this view without an entry, as they arrived."""
        self._entries: dict[int, Entry] = {}
        self._bodies: dict[Key, Data] = {}
        self._number_of: dict[Key, int] = {}

    # --- reading ------------------------------------------------------------------------------

    @property
    def tail(self) -> Epoch:
        """The tag of the last entry."""
        return self.tag_at(self.held)

    def tag_at(self, number: int) -> Epoch:
        """The tag of an entry of the log; ``NEVER`` before the first."""
        entry = self._entries.get(number)
        return entry.tag if entry else self.floor_tag

    def entry(self, number: int) -> Entry | None:
        """An entry of the log or of the side buffer."""
        return self._entries.get(number)

    def body(self, key: Key) -> Data | None:
        """A body, ordered or not."""
        return self._bodies.get(key)

    def number_of(self, key: Key) -> int | None:
        """The number under which the log names a body."""
        return self._number_of.get(key)

    def read(self, after: int, to: int, most: int) -> tuple[Entry, ...] | None:
        """Held entries after ``after``; None if some were let go."""
        if after < self.floor:
            return None
        last = min(to, self.held, after + most)
        return tuple(self._entries[number] for number in range(after + 1, last + 1))

    def bodies(self, entries: tuple[Entry, ...]) -> tuple[Data, ...]:
        """Every body that held entries name."""
        return tuple(self._bodies[key] for entry in entries for key in entry.names())

    # --- what is missing ----------------------------------------------------------------------

    def missing_numbers(self, to: int) -> tuple[int, int] | None:
        """R9: the first run of numbers up to ``to`` that is neither held nor filed.

        What lies too far ahead to be filed is not looked for: a member may name any number.
        """
        to = min(to, self.held + FAR)
        first = self.held + 1
        while first <= to and first in self._entries:
            first += 1
        if first > to:
            return None
        last = first
        while last < to and last + 1 not in self._entries:
            last += 1
        return first, last

    def missing_bodies(self, most: int) -> Iterator[Key]:
        """R9: bodies that filed entries name and we lack, those needed first in front."""
        number = self.held + 1
        while most > 0 and (entry := self._entries.get(number)):
            for key in entry.names():
                if key not in self._bodies and most > 0:
                    most -= 1
                    yield key
            number += 1

    def wants(self, key: Key) -> bool:
        """Whether an entry beyond the log names this body."""
        number = self._number_of.get(key)
        return number is not None and number > self.held and key not in self._bodies

    # --- growing ------------------------------------------------------------------------------

    def file(self, entry: Entry) -> bool:
        """Take an entry, held or not; False if it is known or far ahead."""
        number = entry.number
        if number <= self.held or number in self._entries or number > self.held + FAR:
            return False
        self._entries[number] = entry
        for key in entry.names():
            self._number_of[key] = number
        return True

    def store(self, data: Data) -> bool:
        """R3: take a body that is new, even if an entry named it first (G8)."""
        key = data.key
        if key in self._bodies:
            return False
        self._bodies[key] = data
        if key not in self._number_of:
            self.pool[key] = None
        return True

    def advance(self) -> bool:
        """Let the log grow by what is filed and whole; whether it did."""
        before = self.held
        while entry := self._entries.get(self.held + 1):
            keys = list(entry.names())
            if any(key not in self._bodies for key in keys):
                break
            self.held += 1
            self.bytes += self._size(entry)
            if keys:
                self.last_content = self.held
            for key in keys:
                self.pool.pop(key, None)
                if key[0] == self.view:
                    self.named[key[1]] = key[2]
        return self.held > before

    def _size(self, entry: Entry) -> int:
        bodies = sum(self._bodies[key].wire_bytes() for key in entry.names())
        return OVERHEAD_BYTES + entry.wire_bytes() + bodies

    def select(self, batch: int) -> tuple[Ids, ...]:
        """R7: bodies without an entry, oldest first, of each source in the order of its counters:
        at most ``batch`` of them."""
        taken: dict[NodeId, int] = {}
        for _, source, _ in self.pool:
            following = taken.get(source, self.named.get(source, 0)) + 1
            if (self.view, source, following) in self.pool:
                taken[source] = following
                batch -= 1
                if not batch:
                    break
        named = self.named
        return tuple(Ids(s, named.get(s, 0) + 1, last) for s, last in taken.items())

    # --- shrinking ----------------------------------------------------------------------------

    def cut(self, number: int) -> None:
        """Entries above ``number`` are void; bodies they named are without an entry again, and the
        filter is as it was before (K6): what it knows of entries that were let go stays."""
        named: dict[NodeId, int] = {}
        for each in sorted(each for each in self._entries if each > number):
            entry = self._entries.pop(each)
            for key in entry.names():
                if self._number_of.get(key) == each:
                    del self._number_of[key]
                if key in self._bodies:
                    self.pool[key] = None
            if each <= self.held:
                self.bytes -= self._size(entry)
                if entry.tag.view == self.view:
                    for ids in entry.ids:
                        named.setdefault(ids.source, ids.first - 1)
        self.named |= named
        self.held = min(self.held, number)

    def begin_view(self, view: ViewId) -> None:
        """G43: what the view before left without an entry is discarded; its sources send it anew.
        Counters begin again."""
        for key in self.pool:
            del self._bodies[key]
        self.pool.clear()
        self.named.clear()
        self.view = view

    def begin_at(self, number: int, tag: Epoch) -> None:
        """A new member's log is empty and begins behind ``number``."""
        view = self.view
        self.__init__()  # type: ignore[misc]
        self.view = view
        self.floor = self.held = self.last_content = number
        self.floor_tag = tag

    def release(self, to: int, history_bytes: int) -> None:
        """K5, K7: let go of the oldest entries up to ``to``, as far as they are too many."""
        while self.bytes > history_bytes and self.floor < min(to, self.held):
            self.floor += 1
            entry = self._entries.pop(self.floor)
            self.floor_tag = entry.tag
            self.bytes -= self._size(entry)
            for key in entry.names():
                del self._bodies[key]
                del self._number_of[key]

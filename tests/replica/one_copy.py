"""One member of three, whose engine and disk a test drives by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringcast.core.ids import ViewId
from ringcast.replica import words
from ringcast.replica.effects import Effect, Halt, Phase, Say, Sync, Write
from ringcast.replica.engine import Engine
from ringcast.replica.log import Adopt, Append, Promise, Record, ReplicaLog
from ringcast.replica.words import Entries, Epoch, LogEntry, Ready, Status, Ticket, Word

OLD, LATER = Epoch(4, 1), Epoch(6, 1)
VIEW, ENDED = ViewId(8, 1), Epoch(8, 1)
VOTERS = (1, 2, 3)


def entry(number: int, epoch: Epoch = OLD, size: int = 4) -> LogEntry:
    return LogEntry(epoch, Ticket(2, 9, number), bytes(size))


FOUNDED: list[Record] = [
    Promise(OLD),
    Adopt(OLD, 7, VOTERS, 0, (), 0),
    Append((entry(1), entry(2), entry(3)), 0),
    Append((), 2),
]
"""A disk of the group: three entries, of which two are green."""


class Copy:
    """Member 1 of three with this disk, which is fast, and what it asked for; what it says is heard
    by itself at once, and what the others say is written by a test."""

    def __init__(self, *disk: Record, largest: int = 1000, **more: Any) -> None:
        members = more.pop("members", frozenset(VOTERS))
        log = ReplicaLog.replay(disk)
        self.engine = Engine(1, 5, members, log, largest=largest, **more)
        self.effects: list[Effect] = []
        self.hangs: list[int] | None = None
        """Syncs that are not over, while the disk hangs."""
        self.engine.start()
        self.run()

    def run(self) -> None:
        while self.engine.pending:
            for effect in self.engine.take():
                self.effects.append(effect)
                if isinstance(effect, Sync) and self.hangs is not None:
                    self.hangs.append(effect.ticket)
                elif isinstance(effect, Sync):
                    self.engine.synced(effect.ticket)
                elif isinstance(effect, Say):
                    self.engine.on_word(1, effect.word)

    def view(self, transitional: bool = False) -> None:
        self.engine.on_view(VIEW, transitional)
        self.run()

    def hear(self, sender: int, *some: Word) -> None:
        for word in some:
            self.engine.on_word(sender, words.decode(words.encode(word)))
            self.run()

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.tick()
            self.run()

    def said(self, kind: type[Any]) -> list[Any]:
        return [e.word for e in self.effects if isinstance(e, Say) and isinstance(e.word, kind)]

    def phase(self) -> Phase:
        return self.engine.phase

    @property
    def halted(self) -> list[str]:
        return [e.reason for e in self.effects if isinstance(e, Halt)]

    def written(self, kind: type[Any]) -> list[Any]:
        return [
            e.record for e in self.effects if isinstance(e, Write) and isinstance(e.record, kind)
        ]


def of_the_group() -> Copy:
    copy = Copy(*FOUNDED)
    copy.view()
    assert copy.phase() is Phase.EXCHANGE
    return copy


def status(**more: Any) -> Status:
    """What a member with the same disk says."""
    log = ReplicaLog.replay(FOUNDED)
    return replace(log.status(ENDED, VOTERS, 3, 6), **more)


def primary() -> Copy:
    copy = of_the_group()
    copy.hear(2, status(), Ready(ENDED))
    assert copy.phase() is Phase.PRIMARY
    return copy


def some(first: int, count: int = 1, size: int = 4, epoch: Epoch = LATER) -> Entries:
    return Entries(ENDED, first, tuple(entry(first + n, epoch, size) for n in range(count)))

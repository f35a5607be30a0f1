"""What a replica remembers: the log in memory, and the records by which it is found on disk again.

A disk holds records in the order in which they were written. Replaying a beginning of them that
was synced gives what the replica had promised by then (RS-3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import TypeAlias

import msgspec

from ringcast.replica.words import (
    MOST_RUNS,
    NEVER,
    Epoch,
    Index,
    LogEntry,
    Run,
    Status,
    Voters,
)


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """RS-4: nothing is appended in an epoch before this one any more."""

    epoch: Epoch


class Image(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """RS-15: the state after entry ``at``; what was before it is not needed any more."""

    at: Index
    state: bytes


class Adopt(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """RS-8: the log goes on in ``epoch``: entries behind ``keep`` give way to ``entries``."""

    epoch: Epoch
    founder: Index
    voters: Voters
    keep: Index
    entries: tuple[LogEntry, ...]
    green: Index
    image: Image | None = None
    """The state at ``keep``, if the log before it did not lead there."""


class Append(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """RS-10: entries at the end of the log."""

    entries: tuple[LogEntry, ...]
    green: Index
    """Known to be on a quorum's disks by then."""


Record: TypeAlias = Promise | Adopt | Append | Image

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


class ReplicaLog:
    """Entries ``trimmed + 1 .. length``; those up to ``green`` are on a quorum's disks."""

    def __init__(self) -> None:
        self.founder = 0
        self.voters: tuple[int, ...] = ()
        self.promised = NEVER
        self.epoch = NEVER
        """The epoch in which this log was last made the one to go on from."""
        self.trimmed = 0
        self.entries: list[LogEntry] = []
        self.green = 0
        self.image: Image | None = None
        """The state at ``trimmed``; None: that of the beginning."""

    @classmethod
    def replay(cls, records: Iterable[Record]) -> ReplicaLog:
        """RS-3: what a disk with these records has promised; ValueError if they contradict each
        other."""
        log = cls()
        for record in records:
            log._check_place(record)
            log.take(record)
            if not log.trimmed <= log.green <= log.length:
                raise ValueError(
                    f"it has entries {log.trimmed + 1} to {log.length}, and is confirmed up to "
                    f"entry {log.green}"
                )
        if not ascend(log.entries, NEVER, log.epoch) or log.epoch > log.promised:
            raise ValueError("its epochs do not ascend")
        return log

    def _check_place(self, record: Record) -> None:
        """Raise if a record does not begin where the log can go on."""
        match record:
            case Adopt(keep=keep, image=None) if self.trimmed <= keep <= self.length:
                pass
            case Adopt(keep=keep, image=Image(at)) if self.trimmed <= keep == at:
                pass
            case Image(at) if self.trimmed <= at:
                pass
            case Promise() | Append():
                pass
            case _:
                at = record.keep if isinstance(record, Adopt) else record.at
                raise ValueError(
                    f"it has entries {self.trimmed + 1} to {self.length}, and goes on from {at}"
                )

    @property
    def length(self) -> int:
        """The number of the last entry."""
        return self.trimmed + len(self.entries)

    @property
    def valid(self) -> bool:
        """RS-2: whether this disk takes part in quorums; a blank one does not."""
        return self.epoch > NEVER

    def take(self, record: Record) -> None:
        """Carry out a record."""
        match record:
            case Promise(epoch):
                self.promised = epoch
            case Adopt(epoch, founder, voters, keep, entries, green, image):
                if image is not None:
                    self._start_at(image)
                del self.entries[keep - self.trimmed :]
                self.entries += entries
                self.founder, self.voters = founder, voters
                self.epoch = self.promised = epoch
                self.green = max(self.green, green)
            case Append(entries, green):
                self.entries += entries
                self.green = max(self.green, green)
            case Image(at, _):
                self._start_at(record)
                self.green = max(self.green, at)

    def _start_at(self, image: Image) -> None:
        """Forget the entries up to the image, or all if the log does not reach it."""
        if image.at <= self.length:
            del self.entries[: image.at - self.trimmed]
        else:
            self.entries.clear()
        self.trimmed = image.at
        self.image = image

    def entry(self, index: int) -> LogEntry:
        """The entry with this number."""
        return self.entries[index - self.trimmed - 1]

    def since(self, index: int) -> list[LogEntry]:
        """The entries behind ``index``."""
        return self.entries[index - self.trimmed :]

    def runs(self) -> tuple[Run, ...]:
        """The log behind ``trimmed``, one run for each epoch. These ascend (RS-5), so that not all
        of a long log is looked at: whoever waits in vain for a quorum is told by a status."""
        found: list[Run] = []
        at = 0
        while at < len(self.entries):
            epoch = self.entries[at].epoch
            end = bisect_right(self.entries, epoch, at, key=attrgetter("epoch"))
            found.append(Run(epoch, self.trimmed + at + 1, self.trimmed + end))
            at = end
        return tuple(found[-MOST_RUNS:])

    def status(self, now: Epoch, named: Voters, count: int, boot: int) -> Status:
        """What this disk holds, said in the attempt ``now``; as long as it is blank, the voters are
        those that its replica was configured with."""
        return Status(
            now,
            self.founder,
            self.voters or named,
            len(self.voters) or count,
            self.epoch,
            self.length,
            self.green,
            self.trimmed,
            self.runs(),
            boot,
        )

    def records(self) -> list[Record]:
        """Records that say all this: what a compacted disk holds."""
        found: list[Record] = [self.image] if self.image else []
        if self.valid:
            entries = tuple(self.entries)
            found.append(
                Adopt(self.epoch, self.founder, self.voters, self.trimmed, entries, self.green)
            )
        return [*found, Promise(self.promised)]


def ascend(entries: Iterable[LogEntry], first: Epoch, last: Epoch) -> bool:
    """RS-5: whether the epochs of entries ascend from ``first`` to ``last``, as in every log."""
    for entry in entries:
        if entry.epoch < first:
            return False
        first = entry.epoch
    return first <= last


def common(mine: Status, base: Status) -> int:
    """RS-7: up to where the log of ``mine`` is that of ``base``.

    Two entries with one number and one epoch are one entry, and so is all before them. What is
    green is in every base.
    """
    found = min(mine.green, base.length)
    theirs = {run.epoch: run for run in base.runs}
    for run in mine.runs:
        other = theirs.get(run.epoch)
        if other is not None and max(run.first, other.first) <= min(run.upto, other.upto):
            found = max(found, min(run.upto, other.upto))
    return found

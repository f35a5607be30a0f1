"""From what members have on disk to the log that all go on from (RS-2, RS-6 to RS-8)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from ringcast.core.ids import NodeId
from ringcast.replica.log import Image, ReplicaLog, ascend, common
from ringcast.replica.words import (
    MOST_RUNS,
    NEVER,
    Entries,
    Epoch,
    LogEntry,
    Run,
    Snapshot,
    Status,
    Word,
)

WRONG = "was a state directory copied, or set back to an older copy?"
"""What leads to histories that contradict each other."""

MOST_BASE = 2**32 - 1
"""Bytes of a base that is taken over: what a state may have on disk. More than that nobody has."""

ENTRY_BYTES = 64
"""What an entry counts for besides its command, and a word besides its entries."""

MOST_ENTRIES = MOST_BASE // ENTRY_BYTES


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Whose log it is, who the voters are, and the name of the group of replicas."""

    holder: NodeId
    base: Status
    voters: tuple[NodeId, ...]
    founder: int


def decide(
    said: Mapping[NodeId, Status], last: Status, named: tuple[NodeId, ...], count: int
) -> Decision | None:
    """RS-6: a quorum of valid disks decides; RS-2: or all voters, if nothing is on any disk.

    ``said`` is in the order of the view, and ``last`` the word that came just now, so all members
    decide at the same word, and alike. Valid disks are of one group with the same voters: no word
    about voters counts alone, unless they are one. ``named`` and ``count`` are the voters as
    configured; those who found a group were configured alike, or each would count by voters of its
    own.
    """
    group = (last.founder, last.voters)
    valid = {n: s for n, s in said.items() if (s.founder, s.voters) == group and n in s.voters}
    founding = tuple(sorted(named or list(said)[:count]))
    if last.founder and len(valid) > len(last.voters) // 2:
        decisive, voters, founder = valid, last.voters, last.founder
    elif (
        len(founding) == count
        and said.keys() >= set(founding)
        and not any(said[node].length for node in founding)
        and all(alike(said[node], named, count) for node in founding)
    ):
        decisive, voters = {node: said[node] for node in founding}, founding
        founder = name_of(last.epoch, [said[node].boot for node in founding])
    else:
        return None
    _, _, holder = max((s.log_epoch, s.length, -node) for node, s in decisive.items())
    return Decision(-holder, decisive[-holder], voters, founder)


def alike(status: Status, named: tuple[NodeId, ...], count: int) -> bool:
    """Whether a disk without entries is of a member that was configured with these voters. One that
    was in a founding that was interrupted tells that one's voters."""
    return status.count == count and (bool(status.founder) or status.voters == named)


def misfit(decision: Decision, log: ReplicaLog, named: tuple[NodeId, ...], count: int) -> str:
    """RS-6: why this replica cannot be of the group that was decided upon; empty if it can."""
    voters = decision.voters
    if len(voters) != count or (named and named != voters):
        return f"members = {list(named) or count}, but the group was founded with {list(voters)}"
    alone = log.founder if len(voters) == 1 else 0  # whoever founded alone has founded
    if (log.length or alone) and log.founder != decision.founder:
        return f"this disk is of another group of replicas than the others'; {WRONG}"
    return ""


def sound(said: Status) -> bool:
    """RS-6: whether a disk can be like this. What is not so would be counted and written by those
    who hear it, and not be read again."""
    count, blank = len(said.voters), not said.founder
    return (
        said.trimmed <= said.green <= said.length <= said.trimmed + MOST_ENTRIES
        and blank == (said.log_epoch == NEVER)
        and not (blank and said.length)
        and said.log_epoch < said.epoch
        and said.voters == tuple(sorted({*said.voters}))
        and (count == said.count or (blank and not count))
        and consecutive(said)
    )


def consecutive(said: Status) -> bool:
    """RS-7: whether the runs of a log follow each other to its end, with epochs that ascend."""
    if not said.runs:
        return said.length == said.trimmed
    before = Run(NEVER, 0, said.runs[0].first - 1)
    if before.upto < said.trimmed or (before.upto > said.trimmed and len(said.runs) < MOST_RUNS):
        return False
    for run in said.runs:
        if run.epoch <= before.epoch or not before.upto + 1 == run.first <= run.upto:
            return False
        before = run
    return before.upto == said.length and before.epoch <= said.log_epoch


def lacking(mine: Status, said: Mapping[NodeId, Status], primary: bool, blocked: str = "") -> str:
    """What stands in the way of a confirmation, for people; ``blocked`` is the group's."""
    here, asked = sorted(said), mine.voters or mine.count
    if primary:
        why = blocked or "some are cut off, or slow"
        return f"a majority of {here} has not written it in time: {why}"
    groups = [s.voters for s in (mine, *said.values()) if s.founder and s.count == mine.count]
    if voters := next((each for each in groups if each == (mine.voters or each)), ()):
        lost = [node for node in here if node in voters and not said[node].founder]
        blank = f", where the disks of {lost} are blank" if lost else ""
        return f"it needs a majority of the members {list(voters)}, and has {here}{blank}"
    others = {s.voters or s.count for s in said.values() if not alike(s, mine.voters, mine.count)}
    if others:
        return f"here members is {asked}, at others {' and '.join(sorted(map(str, others)))}"
    return f"it needs all {mine.count} members at once for the first time, and has {here}"


def name_of(epoch: Epoch, boots: list[int]) -> int:
    """RS-2: names a group of replicas after the moment of its founding and those who were there."""
    text = f"{epoch} {boots}".encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest(), "big") + 1


def pieces(log: ReplicaLog, base: Status, keep: int, epoch: Epoch, size: int) -> list[Word]:
    """RS-8: what somebody who keeps ``keep`` entries lacks of ``base``, in words of about ``size``
    bytes; ``log`` is the one the base tells of."""
    found: list[Word] = []
    if keep < base.trimmed:
        assert log.image is not None and log.image.at == base.trimmed
        state = log.image.state
        for offset in range(0, len(state) or 1, size):
            last = offset + size >= len(state)
            found.append(Snapshot(epoch, base.trimmed, offset, state[offset : offset + size], last))
        keep = base.trimmed
    some: list[LogEntry] = []
    room = size
    for index in range(keep + 1, base.length + 1):
        entry = log.entry(index)
        some.append(entry)
        room -= len(entry.command) + 32
        if room <= 0 or index == base.length:
            found.append(Entries(epoch, index - len(some) + 1, tuple(some)))
            some, room = [], size
    return found


def weight(word: Entries | Snapshot) -> int:
    """Bytes that a piece of a base takes, about."""
    if isinstance(word, Snapshot):
        return ENTRY_BYTES + len(word.body)
    return ENTRY_BYTES + sum(ENTRY_BYTES + len(entry.command) for entry in word.entries)


class IncomingBase:
    """RS-8: a base on its way to a disk whose own log is ``mine``."""

    def __init__(self, mine: Status, base: Status) -> None:
        self.base = base
        self.keep = common(mine, base)
        """Entries of our own that stay; with an image, all before it is void."""
        self._wants_image = self.keep < base.trimmed
        if self._wants_image:
            self.keep = base.trimmed
        self._state: list[bytes] = []
        self._size = 0
        self.image: Image | None = None
        self.entries: list[LogEntry] = []

    def on_snapshot(self, piece: Snapshot) -> None:
        """A piece of the state before the log begins; pieces come in order, perhaps anew."""
        if not self._wants_image or self.image is not None or piece.at != self.base.trimmed:
            return
        if piece.offset == 0:
            self._state, self._size = [], 0
        if piece.offset == self._size:
            self._state.append(piece.body)
            self._size += len(piece.body)
            if piece.last:
                self.image = Image(piece.at, b"".join(self._state))

    def on_entries(self, word: Entries) -> None:
        """Some entries; those that are here already are passed over."""
        following, beyond = self.keep + len(self.entries) + 1, word.first + len(word.entries)
        if word.first <= following < beyond <= self.base.length + 1:
            self.entries += word.entries[following - word.first :]

    def fits(self, log: ReplicaLog, largest: int) -> bool:
        """Whether what came can follow what stays of our log, and be sent on in words."""
        kept = log.trimmed < self.keep and self.image is None
        last = log.entry(self.keep).epoch if kept else NEVER
        return ascend(self.entries, last, self.base.log_epoch) and all(
            len(entry.command) <= largest for entry in self.entries
        )

    @property
    def complete(self) -> bool:
        """Whether all of the base is here."""
        image = not self._wants_image or self.image is not None
        return image and self.keep + len(self.entries) >= self.base.length

"""Who reached what in an epoch: disks that hold the log, and members that saw barriers."""

from __future__ import annotations

from ringcast.core.ids import NodeId
from ringcast.replica.words import Ticket


class Tally:
    """Of one epoch, whose ``voters`` decide by majority."""

    def __init__(self, voters: tuple[NodeId, ...] = ()) -> None:
        self.voters = voters
        self._acks: dict[NodeId, int] = {}
        self._seen: dict[NodeId, int] = {}
        self.ready: set[NodeId] = set()
        self.speaker: NodeId | None = None
        """The smallest of those who were ready when a quorum was: the same at all members, however
        many words they hear at once."""
        self.barriers = 0
        self._waiting: list[tuple[int, int, Ticket]] = []
        """Barriers of ours: their number in the epoch, the length of the log there, the ticket."""
        self.wanted = self._wanted_barriers = 0
        """Up to where others wait for our word."""
        self._said = self._owed = (0, 0)
        """A length and barriers: what we said last, and what we had at the last tick."""
        self._rely = True
        """Whether those who are ready say what they have to."""

    @property
    def quorum(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def enough_ready(self) -> bool:
        """RS-9: whether a quorum has the log that goes on in this epoch on disk."""
        return len(self.ready.intersection(self.voters)) >= self.quorum

    @property
    def on_disk(self) -> int:
        """RS-13: how much of the log a quorum has on disk."""
        return self._reached(self._acks)

    def acknowledge(self, member: NodeId, length: int, barriers: int = 0) -> None:
        """RS-13: a fact about a member's disk, and the barriers it saw."""
        if length > self._acks.get(member, 0):
            self._acks[member] = length
        if barriers > self._seen.get(member, 0):
            self._seen[member] = barriers

    def must_say(self, me: NodeId, length: int) -> bool:
        """RS-12: whether we have to say that our disk holds so much, and how many barriers we saw;
        from now on we have."""
        news = (length, self.barriers)
        if news == self._said or not self.counts(me, *news):
            return False
        asked = self.wanted > self._said[0] or self._wanted_barriers > self._said[1]
        others = self.ready.intersection(self.voters) - {me}
        if not asked and self._rely and len(others) >= self.quorum:
            return False
        self._said = news
        return True

    def relied_in_vain(self, me: NodeId, length: int) -> bool:
        """RS-12: whether the others have not said enough of what we had when we were asked last,
        a tick ago; then we rely on them no more."""
        owed, self._owed = self._owed, (length, self.barriers)
        unsaid = owed[0] > self._said[0] or owed[1] > self._said[1]
        if unsaid and self.counts(me, *owed):
            self._rely = False
        return not self._rely

    def counts(self, me: NodeId, length: int, barriers: int) -> bool:
        """RS-12: whether our word about our disk and the barriers we saw could make a difference:
        we vote, and the others have not said enough without us."""
        enough = sum(
            self._acks.get(node, 0) >= length and self._seen.get(node, 0) >= barriers
            for node in self.voters
            if node != me
        )
        return me in self.voters and enough < self.quorum

    def pass_barrier(self, me: NodeId, ticket: Ticket | None, length: int) -> None:
        """RS-14: a barrier at this length of the log, with its ticket if it is ours."""
        self.barriers += 1
        self._seen[me] = self.barriers
        if ticket is None:
            self._wanted_barriers = self.barriers
        else:
            self._waiting.append((self.barriers, length, ticket))

    def miss_barrier(self) -> None:
        """RS-14: a barrier of somebody else that we see before our own log goes on."""
        self.barriers += 1
        self._wanted_barriers = self.barriers

    def passed(self, green: int) -> list[tuple[Ticket, int]]:
        """RS-14: reads of ours whose barrier a quorum saw, all before it being green."""
        found: list[tuple[Ticket, int]] = []
        if not self._waiting:
            return found
        seen = self._reached(self._seen)
        while self._waiting and self._waiting[0][0] <= seen and self._waiting[0][1] <= green:
            _, length, ticket = self._waiting.pop(0)
            found.append((ticket, length))
        return found

    def drop_reads(self) -> None:
        """The view ends: nobody can tell any more whether they are the latest."""
        self._waiting.clear()

    def _reached(self, by: dict[NodeId, int]) -> int:
        """What at least a quorum of the voters reached."""
        if not self.voters:
            return 0
        return sorted([by.get(node, 0) for node in self.voters])[-self.quorum]

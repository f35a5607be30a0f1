"""Which processor is in which groups, as the order tells it (F6).

Each processor says itself which groups it is in; its word has a place in the order like any
message. With every topology all of that is said anew, since some may have missed what others said
before. One that has not spoken yet counts as being in every group: it gets more than it needs, and
nothing less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ringcast.core.ids import NodeId

INTERESTED, PASSED = "groups", "passed on"
"""Notes that a check reads: who is in which groups, and for whom a message went on."""

EVERYTHING = 0
"""In place of a group: the processor wants the messages of all groups."""


MOST_FOUND = 4096
"""Answers that are remembered; they can be found again."""


class Interests:
    """What one processor knows of the groups of all."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self._said: dict[NodeId, frozenset[int]] = {}
        """In this topology."""
        self._found: dict[tuple[NodeId, int], NodeId | None] = {}
        """What was asked since the last word."""
        self._mine: frozenset[int] | None = None
        """As of the last word of its own that it has delivered; None: there was none."""
        self._asked: deque[frozenset[int]] = deque()
        """Words of its own that are on their way."""
        self.latest: frozenset[int] | None = None
        """The last of all; None: its application has not said anything about groups."""

    def topology_changed(self) -> None:
        """All will speak again."""
        self._said.clear()
        self._found.clear()

    def hear(self, node: NodeId, groups: Iterable[int]) -> None:
        """A word is delivered."""
        self._said[node] = frozenset(groups)
        self._found.clear()
        if node == self._me:
            self._mine = self._said[node]
            if self._asked:
                self._asked.popleft()

    def ask(self, groups: Iterable[int]) -> bool:
        """The application says which groups it is in; whether that is news."""
        before, self.latest = self.latest, frozenset(groups)
        return self.latest != before

    def say(self) -> tuple[int, ...]:
        """This processor's word, which is about to be transmitted."""
        assert self.latest is not None
        self._asked.append(self.latest)
        return tuple(sorted(self.latest))

    def decide(self) -> list[int]:
        """Nobody else has to be told: there are no gateways, hence nothing is withheld."""
        self._mine = self.latest
        return sorted(self.latest or ())

    def wants(self, group: int) -> bool:
        """Whether this processor is in a group, at this place in the order: by its own last word,
        which others have delivered too, or count it as being in all groups."""
        return self._mine is None or is_in(group, self._mine)

    def may_want(self, group: int) -> bool:
        """F9: whether it may be in the group at the place of a message that has just come: a word
        that is transmitted later has a later place."""
        return self.wants(group) or any(is_in(group, each) for each in self._asked)

    def wanted_beyond(self, pid: NodeId, nodes: Iterable[NodeId], group: int) -> NodeId | None:
        """One of these, which are all beyond an interface, that is in the group or has not spoken
        yet; None if there is none."""
        asked = (pid, group)
        if asked not in self._found:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            may = (n for n in sorted(nodes) if n not in self._said or is_in(group, self._said[n]))
            self._found[asked] = next(may, None)
        return self._found[asked]


def is_in(group: int, groups: frozenset[int]) -> bool:
    """Whether a processor in these groups gets what is for that one."""
    return group in groups or EVERYTHING in groups

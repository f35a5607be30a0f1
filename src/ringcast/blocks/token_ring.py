"""TokenRing: how a token without a membership goes round a ring of fixed members.

Places are 0 .. n-1 in ascending order of ids. The token that place i sends in round r has the hop
number r*n + i, so what the source says about rounds are comparisons of plain numbers here. A token
may be taken from the predecessor; while that is suspected, from any of the f+1 places before. So
nobody has to leave for the token to go on, and a wrong suspicion costs no more than votes.

Source: R. Ekwall and A. Schiper, "Revisiting Token-Based Atomic Broadcast Algorithms", report
IC/2003/39, sections II to IV. Rules: TF-5 to TF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ringcast.core.ids import NodeId


def least_members(f: int) -> int:
    """TF-5: so many members always leave f+1 correct ones in a row when f of them crash."""
    return f * (f + 1) + 1


def most_faults(n: int) -> int:
    """The largest f that n members bear (TF-5)."""
    f = 0
    while least_members(f + 1) <= n:
        f += 1
    return f


def check_group(members: tuple[NodeId, ...], f: int) -> None:
    """TF-5: refuse a group that could wait for ever; ValueError says what to change."""
    n, least = len(members), least_members(f)
    if n < least:
        bears = most_faults(n)
        raise ValueError(
            f"f = {f} needs {least} members or more, n >= f(f+1)+1, and there are {n}: "
            f"add members, or set f to {bears} or less"
        )


class FixedRing:
    """The members as one of them sees them."""

    __slots__ = ("f", "ids", "me", "n", "places", "predecessor")

    def __init__(self, ids: tuple[NodeId, ...], me: NodeId, f: int) -> None:
        self.ids = tuple(sorted(ids))
        self.n = len(ids)
        self.f = f
        self.places = {node: place for place, node in enumerate(self.ids)}
        self.me = self.places[me]
        self.predecessor = self.ids[self.me - 1]

    def distance(self, src: int) -> int:
        """Hops from place ``src`` to here: 1 from the predecessor, n from ourselves."""
        return (self.me - src - 1) % self.n + 1

    def after(self, steps: int) -> NodeId:
        """The member so many hops further on; below 0, back."""
        return self.ids[(self.me + steps) % self.n]

    @property
    def successors(self) -> tuple[NodeId, ...]:
        """TF-6: the f+1 members after us; among them is a correct one."""
        return tuple(self.after(steps) for steps in range(1, self.f + 2))

    @property
    def standbys(self) -> tuple[NodeId, ...]:
        """TF-34: whom to ask for a token when the predecessor is suspected, nearest first."""
        return tuple(self.after(-steps) for steps in range(2, self.f + 2))


class Numbered(Protocol):
    """What circulates."""

    @property
    def hop(self) -> int:
        """The number of the hop on which it was sent."""


T = TypeVar("T", bound=Numbered)


class TokenRing(Generic[T]):
    """Which token to take next, and the number of the hop that it becomes here."""

    __slots__ = ("_waiting", "last_hop", "ring", "seen")

    def __init__(self, ring: FixedRing) -> None:
        self.ring = ring
        self.last_hop = ring.me - ring.n
        """Of the token sent last; before the first one, that of the round before (TF-13)."""
        self.seen = [place - 2 * ring.n for place in range(ring.n)]
        """The newest hop that arrived from each place; smaller than any to begin with."""
        self._waiting: dict[int, T] = {}

    def offer(self, src: int, token: T) -> bool:
        """A token arrived: keep it if it is the newest of its sender; whether it is."""
        if token.hop <= self.seen[src]:
            return False
        self.seen[src] = token.hop
        distance = self.ring.distance(src)
        if distance <= self.ring.f + 1 and token.hop + distance > self.last_hop:
            self._waiting[src] = token
        return True

    def waiting(self) -> list[tuple[int, T]]:
        """The tokens kept, by place."""
        return sorted(self._waiting.items(), key=lambda item: item[0])

    def eligible(
        self, suspecting: bool, usable: Callable[[T], bool] | None = None
    ) -> tuple[int, T] | None:
        """TF-7, TF-8: the token to take and its distance, or None.

        The predecessor's, or while that is suspected the one with the largest hop number, of those
        that are ``usable``; none that would not take us further than we have been.
        """
        best: tuple[int, T] | None = None
        for src, token in self._waiting.items():
            distance = self.ring.distance(src)
            better = (distance == 1 or suspecting) and (best is None or token.hop > best[1].hop)
            if better and (usable is None or usable(token)):
                best = distance, token
        return best

    def take(self, distance: int, token: T) -> int:
        """TF-8: the hop that ``token`` becomes here; rounds that went by without us are skipped."""
        hop = token.hop + distance
        assert hop > self.last_hop
        self.last_hop = hop
        for src, other in list(self._waiting.items()):
            if other.hop + self.ring.distance(src) <= hop:
                del self._waiting[src]
        return hop

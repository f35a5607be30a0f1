"""How an attempt gets on: epochs that members lift it beyond, and pieces of a log that come."""

from __future__ import annotations

from ringcast.core.ids import NodeId
from ringcast.replica.exchange import MOST_BASE, weight
from ringcast.replica.words import NEVER, Entries, Epoch, Snapshot

REACH = 2**60
"""How far beyond the number of the view one member alone lifts an attempt. Whoever says the last
number there is would leave no room for later epochs, and all would have it on disk."""

PATIENCE, GRACE = 3, 20
"""Ticks for which nothing of a transfer may come, and in which a piece must come on average; and
those after which the average counts."""

MOST_TIMES = 16
"""How often the patience of a first attempt a later one has in the same view."""


class Lifts:
    """RS-4: what members of a view have promised that attempts in it are not after."""

    def __init__(self, seq: int) -> None:
        self._reach = seq + REACH
        self._promised: dict[NodeId, Epoch] = {}

    def beyond(self, sender: NodeId, promised: Epoch) -> Epoch:
        """A member says its promise: what the next attempt has to be after. A promise that is out
        of reach must be that of two members."""
        self._promised[sender] = max(promised, self._promised.get(sender, NEVER))
        *_, second, first = sorted((NEVER, *self._promised.values()))
        return first if first.seq <= self._reach else second


class TransferProgress:
    """RS-16: whether the attempts of a view get on, with a transfer in pieces of about ``piece``
    bytes."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._times = self._still = self._waited = self._came = 0
        """How patient this attempt is; ticks since a piece came, ticks of all, and the bytes that
        came."""

    def begin(self) -> None:
        """Another attempt. Members may have been given up only because their disks are slow, and
        would be each time: it has twice the patience of the one before."""
        self._times = min(2 * self._times, MOST_TIMES) or 1
        self._still = self._waited = self._came = 0

    def came(self, word: Entries | Snapshot) -> bool:
        """A piece comes; whether all of them are no more than a log may have."""
        self._still = 0
        self._came += weight(word)
        return self._came <= MOST_BASE

    def stalls(self) -> bool:
        """A tick; whether nothing comes any more, or too little. That is said once in a while."""
        self._still += 1
        self._waited += 1
        slow = self._waited > self._times * GRACE + PATIENCE * (self._came // self._piece)
        if not slow and self._still < self._times * PATIENCE:
            return False
        self._still = self._waited = self._came = 0
        return True

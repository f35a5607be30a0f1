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
    """RS-16: whether the transfer of an attempt gets on, in pieces of about ``piece`` bytes."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._still = self._waited = self._came = 0
        """Ticks since a piece came, ticks of all, and the bytes that came."""

    def came(self, word: Entries | Snapshot) -> bool:
        """A piece comes; whether all of them are no more than a log may have."""
        self._still = 0
        self._came += weight(word)
        return self._came <= MOST_BASE

    def stalls(self) -> bool:
        """A tick; whether nothing comes any more, or too little."""
        self._still += 1
        self._waited += 1
        slow = self._waited > GRACE + PATIENCE * (self._came // self._piece)
        return slow or self._still >= PATIENCE

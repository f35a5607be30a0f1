"""P-18: messages to some processors are delivered by these and by nobody else, in the one order.

The dossier counts to P-17. This is ``checks.multicast`` where timestamps order messages, and rings
are not named as topologies are: what gateways withhold (F1 to F5) must not be missed by anybody.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.multicast import Multicast, Place
from ringcast.core.ids import ViewId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Originated

REMEMBERED = 65_536
"""Messages to all whose senders' lives are remembered."""


class ToSome(Multicast):
    """What is for some."""

    tag = "P-18"
    title = "messages to some processors"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._lives: dict[Place, int] = {}

    def place(self, ring: ViewId, seq: int) -> Place:
        """Timestamps first."""
        return seq, ring

    def on_originated(self, event: Originated) -> None:
        """The life in which it was sent, wherever it is delivered later."""
        life = self.history.incarnation(event.node)
        self._lives[self.place(event.ring, event.seq)] = life
        while len(self._lives) > REMEMBERED:
            del self._lives[next(iter(self._lives))]

    def life(self, event: Delivered) -> int:
        """As it was when the message was originated."""
        present = self.history.incarnation(event.sender)
        return self._lives.get(self.place(event.ring, event.seq), present)

    def life_to_some(self, told: DeliveredTo) -> int:
        """The latest that submitted just this."""
        asked = self._asked.get(told.sender, {})
        for life in sorted(asked, reverse=True):
            mine = asked[life].get(told.first)
            if mine is not None and told.digests and mine.digest == told.digests[0]:
                return life
        return self.history.incarnation(told.sender)

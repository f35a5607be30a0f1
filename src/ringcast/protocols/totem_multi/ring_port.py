"""One interface of a processor: the ring there, and where it stands."""

from __future__ import annotations

from ringcast.core.ids import NodeId, ViewId
from ringcast.core.owned import Owned
from ringcast.protocols.totem_multi.clock import ClockRider
from ringcast.protocols.totem_multi.messages import Member
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.protocols.totem_single.messages import RingId


class RingPort:
    """One interface: its ring, its rider, and where the ring stands."""

    def __init__(self, part: Owned[TotemSingle], rider: ClockRider, mine: Member) -> None:
        self.part, self.rider, self.mine = part, rider, mine
        self.ring = RingId(0, mine.pid)  # the last regular configuration that it handed up
        self.members: tuple[Member, ...] = (mine,)
        rider.install(len(self.gateways), True)
        self.highest = 0  # timestamp handed up in it
        self.together: frozenset[NodeId] = frozenset()  # who came along from the one before
        self.admitted: set[NodeId] = set()  # T2: who has delivered the change to it
        self.asked = False  # a Bound of mine is on its way
        self.promised = False  # F3: so is a word on what I withheld

    @property
    def settled(self) -> bool:
        """T2: whether every member takes what all gateways on the ring pass on."""
        return all(m.pid in self.admitted for m in self.members if m != self.mine)

    @property
    def gateways(self) -> list[NodeId]:
        """The gateways on the ring, by their ids there."""
        return sorted(member.pid for member in self.members if member.gateway)

    def deliver_at_once(self, order: NetworkOrder, view: ViewId) -> None:
        """MR-14: if this is the only ring and nothing waits, each of its messages is the least
        candidate when it comes, and the rider may deliver it."""
        if self.ring == order.alone and not self.gateways:
            self.rider.at_once, self.rider.view = self.part.machine.old.ring_id, view
            self.rider.heard = order.last.timestamp

    def take_up(self, order: NetworkOrder) -> None:
        """The core goes on from what the rider has delivered."""
        rider = self.rider
        assert rider.at_once is not None
        self.highest = max(self.highest, rider.heard)
        order.delivered_upto(rider.at_once, rider.heard)
        rider.at_once = None

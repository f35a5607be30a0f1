"""One ring record: what was received on a ring, and how far it was delivered (R14, R18, R21)."""

from __future__ import annotations

from zlib import crc32

from ringcast.blocks.packing import Assembler
from ringcast.blocks.receive_window import MAX_BYTES, ReceiveWindow
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_single.messages import Encapsulated, Regular, RingId
from ringcast.protocols.totem_single.rider import Rider

AHEAD = 2**20
"""How far beyond my_aru messages are kept. Flow control keeps far below."""


class Ring(ReceiveWindow[Regular | Encapsulated]):
    """The messages of one ring. The paper's my_aru is the window's ``got``."""

    __slots__ = (
        "assembler",
        "boots",
        "memb",
        "memb_crc",
        "my_high_delivered",
        "passer",
        "rider",
        "ring_id",
        "safe_bound",
    )

    def __init__(
        self,
        me: NodeId,
        ring_id: RingId,
        boots: dict[NodeId, int],
        max_message: int,
        max_bytes: int = MAX_BYTES,
        rider: Rider | None = None,
    ) -> None:
        super().__init__(AHEAD, max_bytes)
        self.ring_id = ring_id
        self.rider = rider
        self.boots = boots  # G38 ext: the members, ascending, in the lives in which they signed
        self.memb = memb = tuple(boots)
        self.memb_crc = crc32(repr(memb).encode())
        before = memb[memb.index(me) - 1]
        self.passer = (before, boots[before])  # R20: the one processor that passes me the token
        self.my_high_delivered = 0
        self.safe_bound = 0  # R18: known to be held by all members
        self.assembler = Assembler(max_message)

    @property
    def my_aru(self) -> int:
        """R14: the largest number below which nothing is missing."""
        return self.got

    def release_safe(self) -> None:
        """R21: what every member holds and was delivered here is needed by nobody any more."""
        self.release(min(self.safe_bound, self.my_high_delivered))

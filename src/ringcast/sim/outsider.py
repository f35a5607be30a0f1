"""Somebody on the path without the key, and nodes that seal their frames against it.

Usually frames travel by reference here. With an outsider every frame is sealed and opened by the
live nodes' codec, and the outsider sees, keeps, copies, replays, redirects and alters what a
stranger on the network would: bytes. What its frames come to is the codec's decision, so a property
that breaks is a fault of the wire's rules or of a protocol that trusts them too far. It is on every
broadcast domain, and sends in one what it has seen in another; each domain has a key of its own, as
rings should have that gateways join.
"""

from __future__ import annotations

from random import Random

import msgspec

from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message, Received
from ringcast.sim.model import NetworkModel
from ringcast.sim.network import Hearer, Network, wire_bytes
from ringcast.sim.node import Jack, SimNode
from ringcast.sim.record import Counts
from ringcast.sim.scheduler import BROADCAST, Scheduler
from ringcast.wire.codec import EVERYBODY, HEADER, Codec
from ringcast.wire.keys import KeySet
from ringcast.wire.meeting import Hello, Whereabouts
from ringcast.wire.seal import Medium, Realm

BOOT_BITS = 32
"""Boots are drawn here; on the wire the count of lives stands before them, so that they rise."""

MOST_KEPT = 400
"""Frames that the outsider remembers."""

DELAYS_US = (0, 500, 3_000, 300_000)
"""How much later what it sends may arrive: at once, it overtakes what it is a copy of."""


def keys_of(domain: int) -> KeySet | None:
    """What frames of a domain are sealed with."""
    return KeySet({1: bytes(range(domain, domain + 32))})


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """A frame as it travels."""

    data: bytes
    size: int

    def wire_bytes(self) -> int:
        """As if it were not sealed: costs and bandwidth are those of other runs."""
        return self.size


class Gate:
    """The wire's end of a processor in one domain: seals in its present life, and opens."""

    def __init__(self, me: NodeId, port: SimNode | Jack, network: GuardedNetwork) -> None:
        self.me, self._port, self._network = me, port, network
        self._node = port if isinstance(port, SimNode) else port.node
        self._codec: Codec | None = None
        self._life = 0

    @property
    def codec(self) -> Codec:
        """Of the present life."""
        if self._codec is None or self._life != self._node.incarnation:
            self._life = self._node.incarnation
            boot = self._life << BOOT_BITS | self._node.boot
            network = self._network
            self._codec = Codec(network.messages, self.me, boot, network.keys, Realm(Medium.RING))
        return self._codec

    def sealed(self, message: Message, to: NodeId) -> Received:
        """A frame of this processor."""
        frame = Sealed(self.codec.encode(message, to), wire_bytes(message))
        return Received(self.me, self._node.boot, frame)

    def hear(self, frame: Received) -> None:
        """Bytes arrive."""
        if self._node.machine is None:
            self._port.hear(frame)  # which counts it as lost
            return
        codec = self.codec
        codec.rest()  # floods are another matter
        assert isinstance(frame.message, Sealed)
        opened = codec.decode(frame.message.data)
        for src in codec.unmet:
            self._greet(src, True, 0)
        codec.unmet.clear()
        if opened is None:
            return
        src, boot, to, message = opened
        if type(message) is Hello:
            met = codec.met(src, boot)
            if message.wants or not met:
                self._greet(src, not met, message.challenge)
            return
        taken = Received(src, boot & (1 << BOOT_BITS) - 1, message)
        (self._port.hear_unicast if to else self._port.hear)(taken)

    hear_unicast = hear

    def _greet(self, to: NodeId, wants: bool, echo: int) -> None:
        codec = self.codec
        hello = Hello((Whereabouts(self.me, 0, "sim", 1),), wants, codec.challenge, echo)
        self._network.carry(to, self.sealed(hello, EVERYBODY))


class Outsider:
    """Sees every frame and acts upon a share of them."""

    def __init__(self, share: float, rng: Random, scheduler: Scheduler) -> None:
        self.share = share
        self._rng, self._scheduler = rng, scheduler
        self._kept: list[Sealed] = []
        self.gates: dict[NodeId, Gate] = {}

    def see(self, frame: Sealed) -> bool:
        """A frame passes; whether something came of it."""
        rng = self._rng
        if len(self._kept) < MOST_KEPT:
            self._kept.append(frame)
        elif rng.random() < 0.1:
            self._kept[rng.randrange(MOST_KEPT)] = frame
        if rng.random() >= self.share:
            return False
        sent = frame if rng.random() < 0.5 else rng.choice(self._kept)
        if rng.random() < 0.3:
            sent = Sealed(self._altered(sent.data), sent.size)
        at_us = self._scheduler.now_us + rng.randint(0, rng.choice(DELAYS_US))
        to = self.gates[rng.choice(sorted(self.gates))]
        self._scheduler.at(at_us, to.hear, Received(0, 0, sent), BROADCAST)
        return True

    def _altered(self, data: bytes) -> bytes:
        """Another sender, receiver, life or number, or any byte."""
        rng = self._rng
        fields = list(HEADER.unpack_from(data))
        match rng.randrange(5):
            case 0:
                fields[4] = rng.choice(sorted(self.gates))
            case 1:
                fields[6] = rng.choice([EVERYBODY, *sorted(self.gates)])
            case 2:
                fields[5] += rng.choice((-1, 1, 1 << BOOT_BITS))
            case 3:
                fields[7] += rng.randint(1, 5000)
            case 4:
                at = rng.randrange(len(data))
                return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        return HEADER.pack(*fields) + data[HEADER.size :]


class GuardedNetwork(Network):
    """Carries sealed frames, past an outsider."""

    def __init__(
        self,
        model: NetworkModel,
        scheduler: Scheduler,
        rng: Random,
        counts: Counts,
        messages: tuple[type[msgspec.Struct], ...],
        outsider: Outsider,
        domain: int,
    ) -> None:
        super().__init__(model, scheduler, rng, counts)
        self.messages = messages
        self.keys = keys_of(domain)
        self._outsider = outsider
        self._gates: dict[NodeId, Gate] = {}

    def attach(self, ports: dict[NodeId, Hearer]) -> None:
        """Connect the processors, each behind its gate."""
        for me, port in ports.items():
            assert isinstance(port, SimNode | Jack)
            self._gates[me] = Gate(me, port, self)
        self._outsider.gates |= self._gates  # ids are unique over all domains
        super().attach(dict(self._gates))

    def calm(self) -> None:
        """The outsider goes away, too."""
        self._outsider.share = 0.0
        super().calm()

    def broadcast(self, frame: Received) -> None:
        """See ``Network``."""
        sealed = self._gates[frame.src].sealed(frame.message, EVERYBODY)
        super().broadcast(self._seen(sealed))

    def send(self, to: NodeId, frame: Received) -> None:
        """See ``Network``."""
        self.carry(to, self._gates[frame.src].sealed(frame.message, to))

    def carry(self, to: NodeId, sealed: Received) -> None:
        """Send what is sealed already."""
        super().send(to, self._seen(sealed))

    def _seen(self, sealed: Received) -> Received:
        assert isinstance(sealed.message, Sealed)
        if self._outsider.share and self._outsider.see(sealed.message):
            self._counts.faults["outsider"] += 1
        return sealed

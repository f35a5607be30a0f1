"""The simulator's network, carrying datagrams and streams of bytes between hosts."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from random import Random
from typing import TypeAlias

import msgspec

from ringcast.core.inputs import Received
from ringcast.sim.model import Constant, Exponential, LinkModel, Lognormal, NetworkModel, Uniform
from ringcast.sim.network import Hearer, Network, _Link
from ringcast.sim.record import Counts
from ringcast.sim.scheduler import UNICAST, Scheduler

Ways: TypeAlias = tuple[frozenset[int], frozenset[int]]
"""From each host of the first set to each of the second, by number."""

HEADERS = 28
"""Bytes that IP and UDP add."""

RETRY_US = 200_000
"""A segment of a stream that is lost is sent again after so long."""


CUT = 0.25
"""How often a segment of a stream holds a part of what was written."""

GAP_US = 5_000
"""The rest follows within so long."""


class Datagram(msgspec.Struct, frozen=True, gc=False):
    """What a program sends through a UDP socket."""

    source: tuple[str, int]
    """The address and port that it comes from."""
    target: int
    """The port that it goes to."""
    data: bytes

    def wire_bytes(self) -> int:
        """On the wire."""
        return len(self.data) + HEADERS


def every(number: int) -> bool:
    """Of all messages, and of all turns."""
    return True


class SimNetwork(Network):
    """The fate of each message is drawn, unless the message is told to be an ordinary one."""

    def __init__(self, model: NetworkModel, scheduler: Scheduler, rng: Random) -> None:
        super().__init__(model, scheduler, rng, Counts())
        self.hop_us = usual_us(model.link)
        self.messages = 0
        self.odd: Callable[[int], bool] = every
        """Whether the fate of a message is drawn; else it takes ``hop_us``."""
        self.pieces = Random()
        """Decides into which segments streams are cut."""
        self._severed: list[Ways] = []
        self._reroute()

    def add(self, number: int, host: Hearer) -> None:
        """Connect one host more."""
        self._ports[number] = host

    def _reroute(self) -> None:
        """Links are worked out when they are used: of a hundred hosts most never speak to each
        other, and nobody broadcasts here."""
        self._links = {}
        self._declared = {(o.src, o.dst): o.link for o in self.model.links} | self._overrides
        every = [self.model.link, *self._declared.values()]
        self._sized = self.model.shared or any(x.bandwidth_bps or x.mtu_bytes for x in every)

    def sever(self, ways: Ways) -> None:
        """Let nothing through on these ways; a way that is cut twice has to be mended twice."""
        self._severed.append(ways)
        self._reroute()

    def mend_ways(self, ways: Ways) -> None:
        """Undo ``sever`` once for each of these ways that is cut, however they were cut."""
        left = [ways]
        while left:
            mended = left.pop()
            for at, cut in enumerate(self._severed):
                if cut[0] & mended[0] and cut[1] & mended[1]:
                    self._severed[at : at + 1] = without(cut, mended)
                    left += without(mended, cut)
                    break
        self._reroute()

    def reaches(self, src: int, dst: int) -> bool:
        """Whether a frame from ``src`` can arrive at ``dst`` now."""
        cut = any(src in sources and dst in targets for sources, targets in self._severed)
        return not cut and super().reaches(src, dst)

    def _link(self, src: int, dst: int) -> _Link | None:
        """The way from one host to another, if there is one now."""
        link = self._links.get((src, dst))
        if link is None and self.reaches(src, dst):
            model = self._declared.get((src, dst), self.model.link)
            link = self._links[src, dst] = _Link(src, dst, model, self._ports[dst])
        return link

    def datagram(self, src: int, dst: int, datagram: Datagram) -> None:
        """Send from one host to another; it may be lost."""
        self.messages += 1
        link = self._links.get((src, dst)) or self._link(src, dst)
        if self.odd is every and not (link is None or self._sized or self._tampers):
            # As ``send`` does it, without what is not there on most networks.
            rng, scheduler = self._rng, self._scheduler
            if (loss := link.model.unicast_loss) and rng.random() < loss:
                return
            if link.odd:
                self._send_oddly(link, datagram)
                return
            at_us = scheduler.now_us + (link.delay_us or link.sample(rng))
            heappush(scheduler.heap, (at_us, UNICAST, next(scheduler.ticket), link.hear, datagram))
            return
        frame = Received(src, 0, datagram)
        if self.odd(self.messages):
            self.send(dst, frame)
            return
        scheduler, self._scheduler = self._scheduler, Scheduler()
        self.send(dst, frame)  # into the void, so that others are drawn as they were
        self._scheduler = scheduler
        if link is not None:
            scheduler.at(scheduler.now_us + self.hop_us, link.hear_unicast, frame, UNICAST)

    def _send_oddly(self, link: _Link, datagram: Datagram) -> None:
        """Where datagrams are duplicated or overtake each other."""
        model, rng, scheduler = link.model, self._rng, self._scheduler
        copies = 2 if model.duplicate and rng.random() < model.duplicate else 1
        for _ in range(copies):
            at_us = scheduler.now_us + (link.delay_us or link.sample(rng))
            if model.reorder and rng.random() < model.reorder:
                at_us += rng.randint(0, model.reorder_us)
            scheduler.at(at_us, link.hear, datagram, UNICAST)

    def transit_us(self, src: int, dst: int) -> int | None:
        """How long a segment of a stream takes, with all the times it is sent again; None while
        nothing gets through."""
        link = self._link(src, dst)
        if link is None:
            return None
        self.messages += 1
        rng = self._rng
        transit_us = link.delay_us or link.sample(rng)
        while link.loss and rng.random() < link.loss:
            transit_us += RETRY_US
        return transit_us if self.odd(self.messages) else self.hop_us

    def piece(self, length: int) -> tuple[int, int]:
        """How much of what is written goes into the segment that was just sent, and by how many
        microseconds the rest follows it: readers of a stream get any part of it."""
        if length == 1 or self.pieces.random() >= CUT or not self.odd(self.messages):
            return length, 0
        return self.pieces.randrange(1, length), self.pieces.randrange(GAP_US)


def without(ways: Ways, less: Ways) -> list[Ways]:
    """The first ones but for the second ones."""
    (sources, targets), (also, too) = ways, less
    rest = ((sources - also, targets), (sources & also, targets - too))
    return [each for each in rest if each[0] and each[1]]


def usual_us(link: LinkModel) -> int:
    """What a frame takes on a link on an ordinary day."""
    match link.delay:
        case Constant(us=us):
            return us
        case Uniform(low_us=low, high_us=high):
            return (low + high) // 2
        case Exponential(base_us=base, tail_us=tail):
            return base + tail
        case Lognormal(median_us=median):
            return median


def draw_network(rng: Random) -> NetworkModel:
    """A network in a good or a bad state, with hops of four to eight milliseconds.

    They are longer than on a LAN, which makes runs short: a token's rounds are what takes time.
    """
    hop_us = rng.choice((4_000, 6_000, 8_000))
    delay = rng.choice(
        (
            Constant(hop_us),
            Uniform(hop_us // 2, 2 * hop_us),
            Exponential(hop_us // 2, hop_us // 2, 10 * hop_us),
            Lognormal(hop_us, 0.6, 10 * hop_us),
        )
    )
    loss = round(0.1 * rng.random() ** 2, 4) if rng.random() < 0.5 else 0.0
    link = LinkModel(
        delay=delay,
        loss=loss,
        unicast_loss=loss,
        duplicate=round(0.1 * rng.random() ** 2, 4) if rng.random() < 0.3 else 0.0,
        reorder=round(0.2 * rng.random() ** 2, 4) if rng.random() < 0.3 else 0.0,
        reorder_us=8 * hop_us,
    )
    return NetworkModel(link=link)


CALM = NetworkModel(link=LinkModel(delay=Exponential(1_000, 500, 10_000)))
"""A network without faults, where things still take time."""

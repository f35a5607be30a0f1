"""The live network: a model, and what faults have made of it.

The path of a frame is short on purpose. Routes are worked out again when a fault changes them,
which is rare, so that sending looks at nothing but the links that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from random import Random
from typing import Protocol

import msgspec

from ringcast.core.effects import Broadcast, Effect, Send
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message, Received
from ringcast.core.owned import unscoped
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.record import Counts
from ringcast.sim.scheduler import BROADCAST, UNICAST, Scheduler

_encode = msgspec.msgpack.Encoder().encode


def wire_bytes(message: Message) -> int:
    """Bytes of a frame, without what lower layers add."""
    measure = getattr(message, "wire_bytes", None)
    return measure() if measure is not None else len(_encode(message))


class Hearer(Protocol):
    """Where frames for a processor go in: its two lanes."""

    def hear(self, frame: Received) -> None:
        """A broadcast frame arrives."""

    def hear_unicast(self, frame: Received) -> None:
        """A unicast frame arrives."""


class Tamper(msgspec.Struct):
    """Does something to the next ``count`` frames that match; 0 is *any* and *for ever*.

    The default drops them. With ``delay_us`` they come that much later; with ``copy`` besides,
    they come as usual and a second time that much later.
    """

    src: int = 0
    dst: int = 0
    message: str = ""
    """Name of the message type; empty matches all."""
    count: int = 1
    delay_us: int = 0
    copy: bool = False
    after: int = 0
    """So many frames that match pass first."""

    def alike(self, other: Tamper) -> bool:
        """Whether the other does the same kind of thing to the same frames."""
        frames, its = ((rule.src, rule.dst, rule.message) for rule in (self, other))
        drops = not self.copy and not self.delay_us
        its_drops = not other.copy and not other.delay_us
        return frames == its and self.copy == other.copy and drops == its_drops

    def matches(self, src: NodeId, dst: NodeId, message: Message) -> bool:
        """Whether this is one of the frames meant."""
        return (
            self.src in (0, src)
            and self.dst in (0, dst)
            and self.message in ("", type(unscoped(message)).__name__)
        )


class _Link:
    """A directed link, worked out for speed."""

    __slots__ = (
        "delay_us",
        "dst",
        "free_us",
        "hear",
        "hear_unicast",
        "loss",
        "model",
        "odd",
        "queue_us",
        "sample",
        "src",
        "us_per_byte",
    )

    def __init__(self, src: NodeId, dst: NodeId, model: LinkModel, port: Hearer) -> None:
        self.src = src
        self.dst = dst
        self.model = model
        self.hear = port.hear
        self.hear_unicast = port.hear_unicast
        self.free_us = 0
        self.delay_us = model.delay.us if isinstance(model.delay, Constant) else 0
        self.sample = model.delay.sample
        self.loss = model.loss
        self.queue_us = model.queue_us
        self.us_per_byte = 8_000_000 / model.bandwidth_bps if model.bandwidth_bps else 0.0
        self.odd = bool(model.duplicate or model.reorder or model.mtu_bytes)


class Network:
    """Carries frames between the ports of a group."""

    def __init__(
        self, model: NetworkModel, scheduler: Scheduler, rng: Random, counts: Counts
    ) -> None:
        self.model = model
        self._scheduler = scheduler
        self._rng = rng
        self._counts = counts
        self._ports: dict[NodeId, Hearer] = {}
        self._groups: dict[NodeId, int] | None = None
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._overrides: dict[tuple[NodeId, NodeId], LinkModel] = {}
        self._tampers: list[Tamper] = []
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._routes: dict[NodeId, list[_Link]] = {}
        self._unreachable: dict[NodeId, int] = {}
        self._usual = False
        self._sized = False
        self._medium_free_us = 0

    def attach(self, ports: dict[NodeId, Hearer]) -> None:
        """Connect the processors, all of them, once."""
        self._ports = ports
        self._reroute()

    # What faults do.

    def become(self, model: NetworkModel) -> None:
        """Behave like ``model`` from now on; links overridden one by one stay as they are."""
        self.model = model
        self._reroute()

    def forget_overrides(self) -> None:
        """Let every link behave like the model again."""
        self._overrides.clear()
        self._reroute()

    def override(self, src: NodeId, dst: NodeId, link: LinkModel) -> None:
        """Let one directed link behave like ``link``."""
        self._overrides[src, dst] = link
        self._reroute()

    def partition(self, groups: Iterable[Iterable[NodeId]]) -> None:
        """Only processors of one group reach each other; one that is not listed is isolated."""
        self._groups = {node: i for i, group in enumerate(groups, 1) for node in group}
        self._reroute()

    def cut(self, src: NodeId, dst: NodeId) -> None:
        """Nothing from ``src`` reaches ``dst`` any more; the other direction is not touched."""
        self._cuts.add((src, dst))
        self._reroute()

    def mend(self, src: NodeId, dst: NodeId) -> None:
        """Undo a ``cut``."""
        self._cuts.discard((src, dst))
        self._reroute()

    def heal(self) -> None:
        """Undo every partition, cut and tampering."""
        self._groups = None
        self._cuts.clear()
        self._tampers.clear()
        self._reroute()

    def calm(self) -> None:
        """Heal, and be as good as the model allows from now on."""
        self.heal()
        self.forget_overrides()
        self.become(self.model.calm())

    def tamper(self, rule: Tamper) -> None:
        """Do something to particular frames; earlier rules are asked first."""
        self._tampers.append(rule)
        self._weigh()

    def untamper(self, rule: Tamper) -> bool:
        """End the rules that do the same kind of thing to the same frames; False if none does."""
        left = [each for each in self._tampers if not each.alike(rule)]
        found = len(left) < len(self._tampers)
        self._tampers[:] = left
        self._weigh()
        return found

    def reaches(self, src: NodeId, dst: NodeId) -> bool:
        """Whether frames can get from ``src`` to ``dst`` at all."""
        groups = self._groups
        together = groups is None or (src in groups and groups[src] == groups.get(dst))
        return (together or src == dst) and (src, dst) not in self._cuts

    def _reroute(self) -> None:
        """Work out who reaches whom, keeping the backlog of links that stay."""
        declared = {(o.src, o.dst): o.link for o in self.model.links} | self._overrides
        earlier, self._links = self._links, {}
        for src in self._ports:
            reached = []
            for dst, port in self._ports.items():
                if not self.reaches(src, dst):
                    continue
                link = _Link(src, dst, declared.get((src, dst), self.model.link), port)
                if (src, dst) in earlier:
                    link.free_us = earlier[src, dst].free_us
                self._links[src, dst] = link
                if dst != src:
                    reached.append(link)
            self._routes[src] = reached
            self._unreachable[src] = len(self._ports) - 1 - len(reached)
        self._weigh()

    def _weigh(self) -> None:
        """See how much of the model the path of a frame has to look at."""
        links = self._links.values()
        shared = self.model.shared
        self._usual = not (shared or self._tampers or any(link.odd for link in links))
        self._sized = shared or any(x.model.bandwidth_bps or x.model.mtu_bytes for x in links)

    # The path of a frame.

    def broadcast(self, frame: Received) -> None:
        """Send ``frame`` from its source to everybody else."""
        src = frame.src
        counts = self._counts
        counts.sent += 1
        if self._unreachable[src]:
            counts.lost["partition"] += self._unreachable[src]
        size = wire_bytes(frame.message) if self._sized else 0
        if self._usual:
            self._fan_out(frame, size)
            return
        shared = self.model.shared
        start_us = self._take_medium(size) if shared else self._scheduler.now_us
        for link in self._routes[src]:
            self._carry(link, link.hear, BROADCAST, link.loss, frame, size, start_us)

    def _fan_out(self, frame: Received, size: int) -> None:
        """As ``_carry`` for each receiver, without what is not there on the usual network."""
        scheduler, rng, lost = self._scheduler, self._rng, self._counts.lost
        heap, ticket, now_us = scheduler.heap, scheduler.ticket, scheduler.now_us
        length = size + self.model.overhead_bytes
        for link in self._routes[frame.src]:
            at_us = now_us
            if link.us_per_byte:
                if link.free_us > now_us:
                    at_us = link.free_us
                    if at_us - now_us > link.queue_us:
                        lost["queue full"] += 1
                        continue
                at_us = link.free_us = at_us + round(length * link.us_per_byte)
            if link.loss and rng.random() < link.loss:
                lost["loss"] += 1
                continue
            at_us += link.delay_us or link.sample(rng)
            heappush(heap, (at_us, BROADCAST, next(ticket), link.hear, frame))

    def send(self, to: NodeId, frame: Received) -> None:
        """Send ``frame`` from its source to ``to`` alone."""
        self._counts.sent += 1
        link = self._links.get((frame.src, to))
        if link is None:
            self._counts.lost["partition" if to in self._ports else "unknown address"] += 1
            return
        size = wire_bytes(frame.message) if self._sized else 0
        shared = self.model.shared
        start_us = self._take_medium(size) if shared else self._scheduler.now_us
        loss = link.model.unicast_loss
        self._carry(link, link.hear_unicast, UNICAST, loss, frame, size, start_us)

    def trim_burst(self, effects: list[Effect]) -> list[Effect]:
        """Leave out the frames at the end of a burst, where the model's switch drops them."""
        tail = self.model.burst_tail
        if tail is None:
            return effects
        frames = [i for i, e in enumerate(effects) if type(e) is Send or type(e) is Broadcast]
        if len(frames) < 2 or self._rng.random() >= tail.chance:
            return effects
        dropped = set(frames[-min(tail.frames, len(frames) - 1) :])
        self._counts.lost["burst tail"] += len(dropped)
        return [effect for i, effect in enumerate(effects) if i not in dropped]

    def _take_medium(self, size: int) -> int:
        """When a frame handed over now leaves the shared medium; -1 if it waits too long."""
        link, now_us = self.model.link, self._scheduler.now_us
        start_us = max(now_us, self._medium_free_us)
        if start_us - now_us > link.queue_us:
            return -1
        self._medium_free_us = start_us + self._wire_us(link, size)
        return self._medium_free_us

    def _wire_us(self, link: LinkModel, size: int) -> int:
        if not link.bandwidth_bps:
            return 0
        return round((size + self.model.overhead_bytes) * 8_000_000 / link.bandwidth_bps)

    def _carry(
        self,
        link: _Link,
        hear: Callable[[Received], None],
        rank: int,
        loss: float,
        frame: Received,
        size: int,
        start_us: int,
    ) -> None:
        """Take one frame over one link, from the moment it is on the medium."""
        model, rng, scheduler, lost = link.model, self._rng, self._scheduler, self._counts.lost
        faults = self._counts.faults
        rule = self._tampering(link, frame.message) if self._tampers else None
        if rule is not None and not rule.delay_us:
            lost["tampering"] += 1
            return
        if model.mtu_bytes and size > model.mtu_bytes:
            lost["mtu"] += 1
            faults["black hole"] += 1
            return
        if not self.model.shared and model.bandwidth_bps:
            start_us = max(start_us, link.free_us)
            if start_us - scheduler.now_us > model.queue_us:
                start_us = -1
            else:
                start_us = link.free_us = start_us + self._wire_us(model, size)
        if start_us < 0:
            lost["queue full"] += 1
            return
        if loss and rng.random() < loss:
            lost["loss"] += 1
            return
        copies = 1
        if model.duplicate and rng.random() < model.duplicate:
            copies = 2
            faults["duplicate"] += 1
        for _ in range(copies):
            delay_us = link.delay_us or model.delay.sample(rng)
            if model.reorder and rng.random() < model.reorder:
                delay_us += rng.randint(0, model.reorder_us)
                faults["reorder"] += 1
            if rule is not None:
                scheduler.at(start_us + delay_us + rule.delay_us, hear, frame, rank)
                if not rule.copy:
                    continue
            scheduler.at(start_us + delay_us, hear, frame, rank)

    def _tampering(self, link: _Link, message: Message) -> Tamper | None:
        """The first rule that matches, its count taken down by one."""
        for rule in self._tampers:
            if rule.matches(link.src, link.dst, message):
                if rule.after:
                    rule.after -= 1
                    continue
                if rule.count:
                    rule.count -= 1
                    if not rule.count:
                        self._tampers.remove(rule)
                        self._weigh()
                return rule
        return None

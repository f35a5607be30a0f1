"""Cluster: a group of processors in virtual time, and everything that can be done to it.

Each verb says whether it had an effect: crashing a processor that is down has none. That keeps
a fault plan meaningful whatever faults are taken out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from ringcast.core.effects import Broadcast, Deliver, Persist, Send
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Message, Received, Submitted
from ringcast.core.machine import Machine, name
from ringcast.core.registry import Sheet
from ringcast.core.trace import Faulted
from ringcast.sim.model import BurstTail, LinkModel, NetworkModel
from ringcast.sim.network import Hearer, Network, Tamper
from ringcast.sim.node import Jack, SimNode
from ringcast.sim.record import Counts, Observer, Recorder
from ringcast.sim.scheduler import Scheduler

Attached = tuple[tuple[int, NodeId], ...]
"""For each port of a processor, the number of its broadcast domain and the processor's id there."""

TEARS: Mapping[str, type] = {
    "persist": Persist,
    "send": Send,
    "broadcast": Broadcast,
    "deliver": Deliver,
}
"""Effects whose list a torn crash can wait for."""


class Cluster:
    """Machines of one protocol, a network, stable storage, and the trace they leave.

    ``config`` is one configuration for all, or a mapping from processor to configuration. All
    processors are in one broadcast domain, 0, unless ``attached`` says otherwise: for each
    processor, the domain at each of its ports and its id there. With ``outsider`` somebody without
    the key acts upon this share of the frames. Nothing runs before ``start``.
    """

    def __init__(
        self,
        sheet: Sheet,
        config: Any,
        ids: Iterable[NodeId],
        model: NetworkModel,
        seed: int | str = 0,
        observers: Iterable[Observer] = (),
        attached: Mapping[NodeId, Attached] | None = None,
        outsider: float = 0.0,
    ) -> None:
        self.ids = tuple(sorted(ids))
        self.sheet = sheet
        self.scheduler = Scheduler()
        self.recorder = Recorder(observers)
        places = attached or {node: ((0, node),) for node in self.ids}
        medium = self._guarded(str(seed), outsider) if outsider else self._open
        self.networks = [
            medium(model, domain, Random(name))
            for domain, name in enumerate(_streams(str(seed), places))
        ]
        self.network = self.networks[0]
        self.nodes: dict[NodeId, SimNode] = {}
        jacks: list[dict[NodeId, Hearer]] = [{} for _ in self.networks]
        for node in self.ids:
            own = config[node] if isinstance(config, Mapping) else config
            make = self._maker(node, own)
            ports = tuple((self.networks[domain], me) for domain, me in places[node])
            made = SimNode(node, make, str(seed), self.scheduler, self.recorder, ports)
            self.nodes[node] = made
            for port, (domain, me) in enumerate(places[node]):
                jacks[domain][me] = Jack(made, port) if port else made
        for network, domain_jacks in zip(self.networks, jacks, strict=True):
            network.attach(domain_jacks)
        self._faulted = 0
        self._chance = Random(f"{seed}/mistakes")
        self._calm = 0
        """How often the network was calmed: what recurs by itself ends with that."""

    def _open(self, model: NetworkModel, _: int, rng: Random) -> Network:
        return Network(model, self.scheduler, rng, self.recorder.counts)

    def _guarded(self, seed: str, share: float) -> Callable[[NetworkModel, int, Random], Network]:
        from ringcast.sim.outsider import GuardedNetwork, Outsider  # takes cryptography along

        somebody = Outsider(share, Random(f"{seed}/outsider"), self.scheduler)

        def medium(model: NetworkModel, domain: int, rng: Random) -> Network:
            parts = (self.scheduler, rng, self.recorder.counts, self.sheet.messages)
            return GuardedNetwork(model, *parts, somebody, domain)

        return medium

    def _maker(self, node: NodeId, config: Any) -> Any:
        return lambda: self.sheet.make(node, config)

    @property
    def now_us(self) -> int:
        """The present moment."""
        return self.scheduler.now_us

    @property
    def counts(self) -> Counts:
        """Running totals."""
        return self.recorder.counts

    @property
    def visits(self) -> Counter[str]:
        """How often each cell of the dispatch table was reached, over all incarnations."""
        total: Counter[str] = Counter()
        for node in self.nodes.values():
            total += node.visits
            if node.machine is not None:
                for (phase, key), times in node.machine.visits.items():
                    total[f"{phase}/{name(key)}"] += times
        return total

    def machine(self, node: NodeId) -> Machine:
        """The machine of a processor that is up."""
        machine = self.nodes[node].machine
        if machine is None:
            raise LookupError(f"processor {node} is down")
        return machine

    def up(self) -> tuple[NodeId, ...]:
        """The processors that run or are paused."""
        return tuple(n for n in self.ids if self.nodes[n].machine is not None)

    # Time.

    def run_until(self, t_us: int) -> None:
        """Let virtual time pass up to ``t_us``."""
        self.scheduler.run_until(t_us)

    def run_for(self, us: int) -> None:
        """Let virtual time pass."""
        self.scheduler.run_until(self.scheduler.now_us + us)

    def step(self) -> bool:
        """Let the next thing happen; False if nothing ever will."""
        return self.scheduler.step()

    # Processors.

    def start(self, *nodes: NodeId) -> None:
        """Start these processors for the first time; without an argument, all of them."""
        for node in nodes or self.ids:
            self.nodes[node].start()

    def submit(
        self,
        node: NodeId,
        bodies: tuple[bytes, ...],
        level: Level = Level.AGREED,
        to: tuple[NodeId, ...] = (),
        group: int = 0,
    ) -> bool:
        """Broadcast ``bodies`` from ``node``; False if it is down, paused or not ready.

        ``to``: to some processors only, where the protocol can; ``group``: to one group."""
        if to and not self.sheet.multicast:
            raise ValueError(f"{self.sheet.name} sends every message to all")
        machine = self.nodes[node].machine
        group = group if machine is not None and machine.filters else 0
        return self.nodes[node].submit(Submitted(bodies, level, to, group))

    def enter(self, node: NodeId, groups: tuple[int, ...]) -> bool:
        """Let ``node`` say that it is in these groups; False if it is down or paused."""
        return self.nodes[node].submit(Submitted((), wants=groups))

    def crash(self, node: NodeId) -> bool:
        """Take a processor down; its stable storage stays."""
        return self._did(self.nodes[node].crash(), "crash")

    def restart(self, node: NodeId, keep_storage: bool = True) -> bool:
        """Start a processor that is down, with or without its stable storage."""
        kind = "restart" if keep_storage else "restart without storage"
        return self._did(self.nodes[node].start(keep_storage), kind)

    def leave(self, node: NodeId) -> bool:
        """Let a processor leave on purpose."""
        return self._did(self.nodes[node].leave(), "leave")

    def pause(self, node: NodeId) -> bool:
        """Let a processor stand still."""
        return self._tell(self.nodes[node].pause(), "pause", node)

    def resume(self, node: NodeId) -> bool:
        """Let a paused processor go on."""
        return self._tell(self.nodes[node].resume(), "resume", node)

    def drift(self, node: NodeId, ppm: int) -> bool:
        """Let a processor's clock run fast or, below 0, slow."""
        return self._tell(self.nodes[node].drift(ppm), "drift", node, f"{ppm} ppm")

    def fail_storage(self, node: NodeId) -> bool:
        """Let the next write to a processor's stable storage fail, which ends the processor."""
        self.nodes[node].storage.fail_next()
        return self._tell(True, "storage fails", node)

    def tear(self, node: NodeId, within: str) -> bool:
        """Crash a processor inside its next effect list that holds such an effect."""
        return self._tell(self.nodes[node].tear(TEARS[within]), "tear", node, within)

    def stall(self, node: NodeId, for_us: int, every_us: int = 0) -> bool:
        """Let a processor stand still for a while; with ``every_us``, as for ``expire``."""
        one = self._again(node, every_us, lambda: self.stall(node, for_us, every_us))
        self.scheduler.at(self.now_us + for_us, self._resume, one)
        return self.pause(one)

    def _resume(self, node: NodeId) -> None:
        self.resume(node)

    def expire(self, node: NodeId, timer: str, every_us: int = 0) -> bool:
        """Let a timer run out early; with ``every_us`` again and again, so often on average.

        Node 0 is any of them, another one each time.
        """
        one = self._again(node, every_us, lambda: self.expire(node, timer, every_us))
        return self._tell(self.nodes[one].expire(timer), "expire", one, timer)

    def _again(self, node: NodeId, every_us: int, act: Callable[[], object]) -> NodeId:
        """Who is meant now; if it recurs, put ``act`` on the agenda until the network is calm."""
        if every_us:
            calm = self._calm

            def again(_: None) -> None:
                if calm == self._calm:
                    act()

            later_us = self.now_us + int(self._chance.expovariate(1 / every_us)) + 1
            self.scheduler.at(later_us, again)
        return node or self._chance.choice(self.ids)

    # The network. Verbs about links take ids as they are in their ``domain``.

    def partition(self, groups: Iterable[Iterable[NodeId]], domain: int = 0) -> bool:
        """Split a domain; a processor not listed is isolated."""
        sides = [tuple(group) for group in groups]
        self.networks[domain].partition(sides)
        return self._tell(True, "partition", 0, _in(domain) + " ".join(map(str, sides)))

    def heal(self) -> bool:
        """Undo partitions, cuts and tampering, everywhere."""
        for network in self.networks:
            network.heal()
        return self._tell(True, "heal")

    def cut(self, src: NodeId, dst: NodeId, domain: int = 0) -> bool:
        """Let nothing from ``src`` reach ``dst``."""
        self.networks[domain].cut(src, dst)
        return self._tell(True, "cut", 0, f"{_in(domain)}{src} -> {dst}")

    def mend(self, src: NodeId, dst: NodeId, domain: int = 0) -> bool:
        """Undo a cut."""
        self.networks[domain].mend(src, dst)
        return self._tell(True, "mend", 0, f"{_in(domain)}{src} -> {dst}")

    def tamper(self, rule: Tamper, domain: int = 0) -> bool:
        """Drop, delay or copy particular frames."""
        self.networks[domain].tamper(rule)
        what = "copy" if rule.copy else "delay" if rule.delay_us else "drop"
        frames = f"{rule.count or 'all'} {rule.message or 'frames'}"
        link = f"{rule.src or '*'} -> {rule.dst or '*'}"
        return self._tell(True, what, 0, f"{_in(domain)}{frames} {link}")

    def override_link(self, src: NodeId, dst: NodeId, link: LinkModel, domain: int = 0) -> bool:
        """Let one directed link behave differently."""
        self.networks[domain].override(src, dst, link)
        return self._tell(True, "link", 0, f"{_in(domain)}{src} -> {dst}")

    def set_loss(self, loss: float, unicast_loss: float) -> bool:
        """Let every link that has no model of its own lose these shares of its frames."""
        model = self.network.model
        link = replace(model.link, loss=loss, unicast_loss=unicast_loss)
        for network in self.networks:
            network.become(replace(network.model, link=link))
        return self._tell(True, "loss", 0, f"{loss:g} {unicast_loss:g}")

    def set_burst_tail(self, tail: BurstTail | None) -> bool:
        """Let the end of every burst be lost, or no longer."""
        for network in self.networks:
            network.become(replace(network.model, burst_tail=tail))
        return self._tell(True, "burst tail", 0, "ends" if tail is None else f"{tail.frames}")

    def calm(self) -> bool:
        """Heal the network, and let it be as good as its model allows from now on."""
        self._calm += 1
        for network in self.networks:
            network.calm()
        return self._tell(True, "calm")

    def inject(self, dst: NodeId, frame: Received, unicast: bool = False) -> None:
        """Let a frame arrive now, as if it had been on its way."""
        node = self.nodes[dst]
        (node.hear_unicast if unicast else node.hear)(frame)

    def frame(self, src: NodeId, message: Message) -> Received:
        """A frame as ``src`` would send it now."""
        return Received(src, self.nodes[src].boot, message)

    def _did(self, effect: bool, kind: str) -> bool:
        """Count a fault that the trace shows by itself."""
        if effect:
            self.counts.faults[kind] += 1
        return effect

    def _tell(self, effect: bool, kind: str, node: int = 0, text: str = "") -> bool:
        """Count a fault and put it in the trace."""
        if self._did(effect, kind):
            self._faulted += 1
            self.recorder.emit(Faulted(node, self._faulted, self.now_us, kind, text))
        return effect


def _streams(seed: str, places: Mapping[NodeId, Attached]) -> list[str]:
    """Names of the random streams of the domains, in order."""
    last = max(domain for ports in places.values() for domain, _ in ports)
    return [f"{seed}/network", *(f"{seed}/network/{domain}" for domain in range(1, last + 1))]


def _in(domain: int) -> str:
    """Which domain a fault is in, for the trace."""
    return f"domain {domain}: " if domain else ""

"""The measurements of Totem's chapter 4, repeated in the simulator (dossier section 5, E1-E11).

The network is the preset ``sun-ipc-ethernet``, the protocol's profile is ``measured``, and no
messages are packed, as in 1994. Everything is a function of a seed and of how long is simulated,
so ``figures.py`` (the full table) and ``tests/figures`` (a shorter one) share this file.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Any

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input
from ringcast.core.trace import Installed, Noted, Originated, TraceEvent
from ringcast.protocols.totem_single import Config, TotemSingle
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.meter import Measures, Meter
from ringcast.sim.network import Tamper
from ringcast.sim.run import RunSpec, prepare
from ringcast.sim.workload import Poisson, Saturate, Sizes, Workload

WINDOW = 70
WARM_UP_US = 1_000_000
"""The ring has formed and its queues are as they will stay."""

LOAD = Poisson(rate=80, sizes=(Sizes(1024, 1024),))
"""400 messages a second over five processors, for the experiments with a lost token."""

TOKEN_LOSS_US = 100_000
PATIENT: dict[str, Any] = {
    "token_loss_us": 1_000_000,
    "token_retransmit_us": 500_000,
    "join_us": 100_000,
    "consensus_us": 600_000,
}
"""Timers for rings larger than the five processors that ``measured`` is meant for."""


class Latency(msgspec.Struct, frozen=True):
    """Times in milliseconds, averaged over all messages of a run (see ``Meter``)."""

    rotation: float
    """T, the mean rotation time of the token."""
    mean: float
    """From submission to delivery, averaged over the processors, the sender among them."""
    last: float
    """From submission to delivery at the last processor."""


class Outage(msgspec.Struct, frozen=True):
    """How long a ring was silent, in milliseconds since the token or a processor was lost."""

    first: float
    """Until a message gets a number again (on the new ring, if there is one)."""
    token: float
    """Until a processor has the token again, averaged over the processors."""
    views: int
    """Configurations announced meanwhile."""


class Clocked(TotemSingle):
    """A processor that notes when the token visits it."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.visited_us: list[int] = []

    def handle(self, env: Env, event: Input) -> None:
        """As usual; a token passed on was a visit."""
        before = self.my_rotation_count
        super().handle(env, event)
        if self.my_rotation_count > before:
            self.visited_us.append(env.now_us)


class Experiment:
    """A cluster under a load, warmed up, and the events of interest since."""

    def __init__(
        self, load: Workload, nodes: int = 5, seed: int = 0, seconds: float = 0, **config: Any
    ) -> None:
        spec = RunSpec(
            nodes=nodes,
            seed=seed,
            network="sun-ipc-ethernet",
            profile="measured",
            config={"packing": False} | config,
            workload=(load,),
        )
        setup = prepare(spec)
        sheet = msgspec.structs.replace(setup.sheet, make=Clocked)
        parts = (sheet, setup.config, spec.ids, setup.model, spec.seed)
        # A random moment of a rotation, so that seeds are different experiments.
        self.began_us = WARM_UP_US + Random(f"{seed}/moment").randrange(100_000)
        self._ends_us = self.began_us + round(seconds * 1e6)
        self._meter = Meter(self.began_us, self._ends_us)
        self.cluster = Cluster(*parts, [self._meter, self._observe])
        self.events: list[TraceEvent] = []
        self._wanted: tuple[type, ...] = ()
        self.cluster.start()
        workload.start(spec.workload, self.cluster, spec.seed)
        self.cluster.run_until(self.began_us)
        members = {self.machine(node).my_memb for node in spec.ids}
        if members != {spec.ids}:
            raise RuntimeError(f"no ring of {nodes} after the warm-up, but {sorted(members)}")

    def machine(self, node: NodeId) -> Clocked:
        """A processor's machine."""
        machine = self.cluster.machine(node)
        assert isinstance(machine, Clocked)
        return machine

    def measure(self) -> Measures:
        """Let the seconds pass and say what was measured in them."""
        self.cluster.run_until(self._ends_us)
        return self._meter.read()

    def watch(self, *kinds: type) -> None:
        """Keep events of these types from now on."""
        self._wanted = kinds

    def _observe(self, event: TraceEvent) -> None:
        if isinstance(event, self._wanted):
            self.events.append(event)


def throughput(size: int, seconds: float, senders: tuple[NodeId, ...] = ()) -> float:
    """E1-E3: messages of ``size`` bytes ordered in a second, when the queues are never empty."""
    load = Saturate(senders=senders, sizes=(Sizes(size, size),))
    alone = {"each_time": WINDOW} if senders else {}
    return Experiment(load, seconds=seconds, **alone).measure().messages_per_s


def latency(rate: float, seconds: float, nodes: int = 5, safe: bool = False) -> Latency:
    """E5-E7: Poisson arrivals of 1000 bytes, ``rate`` messages a second over all processors."""
    load = Poisson(rate=rate / nodes, sizes=(Sizes(1000, 1000),), safe=float(safe))
    patience = PATIENT if nodes > 5 else {}
    experiment = Experiment(load, nodes, seconds=seconds, **patience)
    measures = experiment.measure()
    found = measures.safe if safe else measures.agreed
    visits = [t for t in experiment.machine(1).visited_us if t >= experiment.began_us]
    rotations = [later - earlier for earlier, later in pairwise(visits)]
    return Latency(fmean(rotations) / 1e3, found.mean_ms, found.last_ms)


def token_loss(seed: int, resend: bool) -> Outage:
    """E8, E9: one token is lost on the wire, under a load of 1024-byte messages."""
    off = {} if resend else {"token_retransmit_us": TOKEN_LOSS_US - 1}
    experiment = Experiment(LOAD, seed=seed, **off)
    cluster = experiment.cluster
    # Without resending, every copy is lost until somebody misses the token.
    cluster.tamper(Tamper(message="Token", count=1 if resend else 0))
    while not cluster.counts.lost["tampering"]:
        cluster.step()
    began_us = cluster.now_us
    experiment.watch(Originated, Installed, Noted)
    if not resend:
        while not any(isinstance(e, Noted) and e.what == "phase" for e in experiment.events):
            cluster.step()
        cluster.heal()
    return _outage(experiment, began_us)


def crash(seed: int) -> Outage:
    """E11: one of five processors crashes, under the load of E8."""
    experiment = Experiment(LOAD, seed=seed)
    cluster = experiment.cluster
    began_us = cluster.now_us
    experiment.watch(Originated, Installed)
    cluster.crash(3)
    return _outage(experiment, began_us)


def _outage(experiment: Experiment, began_us: int) -> Outage:
    """Let a second pass and see when the ring worked again."""
    cluster = experiment.cluster
    cluster.run_for(1_000_000)
    up = [experiment.machine(node) for node in cluster.up()]
    ring = up[0].old.ring_id
    numbered = [e.t_us for e in experiment.events if isinstance(e, Originated) and e.ring == ring]
    served = [min(t for t in machine.visited_us if t >= min(numbered)) for machine in up]
    return Outage(
        first=(min(numbered) - began_us) / 1e3,
        token=(fmean(served) - began_us) / 1e3,
        views=sum(isinstance(e, Installed) for e in experiment.events),
    )


def mean_outage(outages: list[Outage]) -> Outage:
    """The average of several."""
    return Outage(
        first=fmean(o.first for o in outages),
        token=fmean(o.token for o in outages),
        views=max(o.views for o in outages),
    )

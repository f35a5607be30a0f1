"""Pairs of gateways, of which one fails: a plan drawn from a seed, and what must come of it.

By hand: ``python tests/sim/redundant.py 1000`` runs so many seeds and tells what each breaks.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from random import Random

from ringcast.core.ids import NodeId
from ringcast.core.rings import shaped
from ringcast.core.trace import Delivered, Installed, Originated, TraceEvent
from ringcast.sim.faults import Fault, NodeCrash, Restart, Torn
from ringcast.sim.model import Exponential, LinkModel, NetworkModel
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson

MS = 1_000
WHOLE_US = 200 * MS
"""By then the network has come together, at first and after each fault."""

SETTINGS = {
    "token_loss_us": 30 * MS,
    "token_retransmit_us": 2 * MS,
    "join_us": 3 * MS,
    "consensus_us": 30 * MS,
    "announce_us": 20 * MS,
    "hold_us": 0,
    "gv_min_us": 1 * MS,
    "timestamp_interval": 100,
}
"""Short, and long enough that no loss passes for a failure: rings lose whom the plan kills."""


def redundant(seed: int) -> RunSpec:
    """Two or three rings in a chain, two gateways between neighbours. One gateway after another is
    killed, some come back, and of each pair one runs. Each time the rings come to rest first: a
    second failure while one forms anew may part members that both survive."""
    rng = Random(f"{seed}/redundant")
    each = rng.choice((1, 2))
    rings = shaped("chain", rng.choice((2, 2, 3)), each, rng, twice=True)
    nodes = max(node for ring in rings for node in ring)
    gateways = range(len(rings) * each + 1, nodes + 1)
    pairs = list(pairwise(gateways))[::2]
    faults: list[Fault] = []
    down: set[NodeId] = set()
    at_us = 0
    for _ in range(rng.randint(1, 4)):
        at_us += WHOLE_US + rng.randrange(50 * MS)
        pair = rng.choice(pairs)
        if back := down.intersection(pair):
            faults.append(Restart(at_us, back.pop()))
            down.difference_update(pair)
        else:
            node = rng.choice(pair)
            faults.append(_killed(rng, at_us, node))
            down.add(node)
    delay = Exponential(base_us=80, tail_us=100, most_us=5_000)
    loss = rng.choice((0.0, 0.02, 0.1))
    return RunSpec(
        protocol="totem-multi",
        nodes=nodes,
        rings=rings,
        seed=seed,
        duration_us=at_us + WHOLE_US,
        network=NetworkModel(link=LinkModel(delay=delay, loss=loss, unicast_loss=loss)),
        config=SETTINGS,
        workload=(Poisson(rate=rng.choice((50, 150)), safe=0.5),),
        faults=tuple(faults),
        core=tuple(node for node in range(1, nodes + 1) if node not in down),
    )


def _killed(rng: Random, at_us: int, node: NodeId) -> Fault:
    """Between two steps, or in the middle of what one step asks for."""
    if rng.random() < 0.4:
        return NodeCrash(at_us, node)
    return Torn(at_us, node, rng.choice(("send", "broadcast", "deliver")))


class Unbroken:
    """What those see who are never killed, from the topology of all on that is there before the
    first fault: while rings form, one may change again."""

    def __init__(self, spec: RunSpec) -> None:
        killed = {fault.node for fault in spec.faults if isinstance(fault, NodeCrash | Torn)}
        self.all = spec.ids
        self.stay = [node for node in spec.ids if node not in killed]
        self.first_us = min(fault.at_us for fault in spec.faults)
        self.whole: set[NodeId] = set()
        self.sent: dict[NodeId, list[tuple[object, ...]]] = {node: [] for node in spec.ids}
        self.delivered: dict[NodeId, list[tuple[object, ...]]] = {node: [] for node in self.stay}
        self.broken: list[str] = []

    def __call__(self, event: TraceEvent) -> None:
        match event:
            case Installed(node=node, members=members) if node in self.delivered:
                if members == self.all:
                    self.whole.add(node)
                elif node in self.whole and (lost := set(self.stay) - set(members)):
                    if event.t_us < self.first_us:
                        self.whole.discard(node)
                        self.sent[node].clear()
                        self.delivered[node].clear()
                    else:
                        self.broken.append(f"{node} at {event.t_us} us: topology without {lost}")
            case Originated(node=node) if node in self.whole:
                self.sent[node].append((event.ring, event.seq, event.owner, event.first))
            case Delivered(node=node) if node in self.whole and node in self.delivered:
                said = (event.ring, event.seq, event.sender, event.first)
                self.delivered[node].append(said)

    def judge(self) -> list[str]:
        """What was lost, came twice, or came in another order."""
        found = list(self.broken)
        if missing := set(self.stay) - self.whole:
            found.append(f"never in a topology of all: {missing}")
        first = self.delivered[self.stay[0]]
        if len(set(first)) < len(first):
            found.append("a message was delivered twice")
        if lost := {each for sent in self.sent.values() for each in sent} - set(first):
            found.append(f"lost: {sorted(map(str, lost))[:3]}")
        found += [
            f"{node} delivered otherwise than {self.stay[0]}"
            for node in self.stay
            if self.delivered[node] != first
        ]
        return found


def broken(seed: int) -> list[str]:
    """What the run of a seed breaks: properties of the protocol, and what redundancy promises."""
    spec = redundant(seed)
    seen = Unbroken(spec)
    result = run(spec, [seen])
    return [f"{each.property}: {each.explanation}" for each in result.violations] or seen.judge()


if __name__ == "__main__":
    for seed in range(int(sys.argv[1])):
        if found := broken(seed):
            print(seed, *found, sep="\n  ", flush=True)

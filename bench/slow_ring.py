"""How much later do fast rings deliver because one ring is slow?

Fast rings of a simulated LAN without loss in a star, or a chain, and one more ring whose hops take
longer. A processor of a fast ring sends; told is how long its messages take to the processors of
the fast rings, beside the same network with all rings fast, and the bound of
docs/protocols.md#a-slow-ring.
"""

from __future__ import annotations

from random import Random

from record import table, write

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.core.registry import protocol
from ringcast.core.rings import shaped
from ringcast.core.trace import Delivered, Submit, TraceEvent
from ringcast.protocols.totem_multi import Config
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached

FORMED_US = 4_000_000
FAST_US = 100
"""A hop of a fast ring; the preset ``ideal``."""


def bound_us(config: Config, members: int, hop_us: int) -> int:
    """What a ring of so many members adds, whose hops take so long and whose queues are short."""
    return config.gv_min_us + 2 * members * hop_us + hop_us


def delays_us(shape: str, count: int, hop_us: int, config: Config, busy: bool) -> list[int]:
    """Of 60 messages, each to its last processor on a fast ring. The last ring is the slow one;
    ``busy``: it has messages of its own."""
    rings = shaped(shape, count, 2, Random(0))
    places = attached(rings)
    slow = set(rings[-1])
    fast = [node for ring in rings[:-1] for node in ring if node not in slow]
    sent: dict[int, int] = {}
    last: dict[int, int] = {}

    def see(event: TraceEvent) -> None:
        if isinstance(event, Submit) and event.node == 1:
            sent[event.first] = event.t_us
        elif isinstance(event, Delivered) and event.node in fast and event.sender == 1:
            last[event.first] = event.t_us

    cluster = Cluster(protocol("totem-multi"), config, places, preset("ideal"), 1, [see], places)
    cluster.networks[-1].become(NetworkModel(link=LinkModel(delay=Constant(hop_us))))
    cluster.start()
    cluster.run_until(FORMED_US)
    rng, other = Random(1), min(slow & set(range(1, 2 * count + 1)))
    for _ in range(60):
        assert cluster.submit(1, (bytes(100),))
        if busy:
            cluster.submit(other, (bytes(100),))
        cluster.run_for(rng.randint(1_000, 30_000) + hop_us)
    cluster.run_for(50 * hop_us + 100_000)
    assert len(last) == len(sent) == 60
    return sorted(last[first] - sent[first] for first in sent)


def main() -> None:
    """Measure, print, write."""
    shown, found = [], {}
    for shape, count in (("chain", 2), ("star", 4), ("chain", 4)):
        for gv_us in (1_000, 5_000):
            for busy in (False, True):
                config = Config(gv_min_us=gv_us, acyclic=True)
                members = len(shaped(shape, count, 2, Random(0))[-1])
                plain = delays_us(shape, count, FAST_US, config, busy)
                for hop_us in (500, 2_000, 10_000):
                    took = delays_us(shape, count, hop_us, config, busy)
                    name = f"{shape} of {count}, {'busy' if busy else 'silent'}"
                    added = (took[-1] - plain[-1]) / 1e3
                    allowed = bound_us(config, members, hop_us) / 1e3
                    row = (
                        gv_us / 1e3,
                        hop_us / 1e3,
                        took[30] / 1e3,
                        took[-1] / 1e3,
                        added,
                        allowed,
                    )
                    found[f"{name}, {gv_us}, {hop_us}"] = row
                    shown.append((name, *(f"{value:.1f}" for value in row)))
    heads = ("network, slow ring", "gv_min ms", "hop ms", "median ms", "most ms", "added", "bound")
    print(table(heads, shown))
    write("slow_ring", {"cases": found})


if __name__ == "__main__":
    main()

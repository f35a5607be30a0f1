"""What does flow control over several rings do under load: on and off, and by queue length?

Everybody, gateways too, always has messages to send, on a chain, a star and a cycle of rings of a
simulated LAN; on the chain also with one ring on which everything takes longer. Told are the rate,
how long messages take from their timestamp to the last processor, the most that waits at a gateway
to be passed on, how long applications are refused for it, and what gateways and the one that sends
least have of the messages, over an equal share. With ``--loss`` frames get lost as on the preset,
and a lost token is sent again after 4 ms; each figure is the median of ``--seeds`` runs.
"""

from __future__ import annotations

import argparse
from random import Random
from statistics import median
from typing import Any

from msgspec.structs import replace
from record import table, write

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.core.registry import protocol
from ringcast.core.rings import shaped
from ringcast.core.trace import Delivered, Originated, TraceEvent
from ringcast.protocols.totem_multi import Config, TotemMulti
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Exponential
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached
from ringcast.sim.workload import Saturate, Sizes

FORMED_US = 1_200_000
LOOK_US = 500
EACH = 3

CASES = (("chain", 3, 1), ("star", 4, 1), ("cycle", 3, 1), ("chain", 3, 5))
"""Shape, rings, and how many times as long everything takes on the last of them."""

MODES: dict[str, dict[str, Any]] = {
    "on and off": {"adaptive": False},
    "by queue length": {"adaptive": True, "min_window": 50, "max_window": 50},
}
"""The window of each ring is the same, and fixed."""


class Seen:
    """When messages got their place, and when the last processor had them."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.begun: dict[Any, int] = {}
        self.left: dict[Any, int] = {}
        self.took: list[int] = []
        self.of: dict[int, int] = {}
        self.on = False

    def __call__(self, event: TraceEvent) -> None:
        """An event of the trace."""
        if isinstance(event, Originated) and self.on:
            place = (event.ring, event.seq)
            self.begun[place], self.left[place] = event.t_us, self.nodes
            self.of[event.owner] = self.of.get(event.owner, 0) + len(event.digests)
        elif isinstance(event, Delivered) and (place := (event.ring, event.seq)) in self.left:
            self.left[place] -= 1
            if not self.left[place]:
                del self.left[place]
                self.took.append(event.t_us - self.begun.pop(place))


def measure(
    shape: str,
    count: int,
    slow: int,
    settings: dict[str, Any],
    span_us: int,
    seed: int,
    lossy: bool,
) -> dict[str, float]:
    """One case in one mode."""
    rings = shaped(shape, count, EACH, Random(0))
    places = attached(rings)
    between = [node for node, ports in places.items() if len(ports) > 1]
    soon: dict[str, Any] = {"token_retransmit_us": 4_000} if lossy else {}
    config = Config(packing=False, acyclic=shape != "cycle", **settings, **soon)
    seen = Seen(len(places))
    lan = preset("lan")
    link = lan.link if lossy else replace(lan.link, loss=0.0, unicast_loss=0.0)
    cluster = Cluster(
        protocol("totem-multi"), config, places, replace(lan, link=link), seed, [seen], places
    )
    delay = Exponential(base_us=80 * slow, tail_us=20 * slow, most_us=2_000 * slow)
    cluster.networks[-1].become(replace(lan, link=replace(link, delay=delay)))
    cluster.start()
    cluster.run_until(FORMED_US)
    work = Saturate(sizes=(Sizes(1000, 1000),), think_us=100)
    workload.start([work], cluster, seed)
    cluster.run_for(100_000)
    seen.on = True
    most = blocked = looks = 0
    end_us = cluster.now_us + span_us
    while cluster.now_us < end_us:
        cluster.run_for(LOOK_US)
        looks += 1
        stopped = False
        for node in between:
            machine = cluster.machine(node)
            assert isinstance(machine, TotemMulti)
            most = max(most, *(queue.ahead for queue in machine._queues))
            stopped = stopped or machine.brakes.blocked
        blocked += stopped
    took = sorted(seen.took)
    total = sum(seen.of.values())
    fair = len(between) / len(places)
    return {
        "messages_per_s": total / span_us * 1e6,
        "p50_ms": took[len(took) // 2] / 1e3,
        "p99_ms": took[len(took) * 99 // 100] / 1e3,
        "longest": most,
        "blocked": blocked / looks,
        "gateways": sum(seen.of.get(node, 0) for node in between) / total / fair,
        "least": min(seen.of.get(n, 0) for n in places) / (total / len(places)),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ms", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--loss", action="store_true")
    asked = parser.parse_args()
    shown, found = [], {}
    for shape, count, slow in CASES:
        for mode, settings in MODES.items():
            runs = [
                measure(shape, count, slow, settings, asked.ms * 1000, seed, asked.loss)
                for seed in range(1, asked.seeds + 1)
            ]
            got = {name: median(run[name] for run in runs) for name in runs[0]}
            name = f"{shape} of {count}" + (f", one {slow} times as slow" if slow > 1 else "")
            found[f"{name}, {mode}"] = got
            shown.append((name, mode, *(f"{got[k]:,.2f}" for k in got)))
            print(shown[-1], flush=True)
    heads = ("network", "flow control", "messages/s", "p50 ms", "p99 ms", "longest queue",
             "blocked", "gateways' share", "least share")  # fmt: skip
    print(table(heads, shown))
    file = "ring_flow_loss" if asked.loss else "ring_flow"
    write(file, {"ms": asked.ms, "seeds": asked.seeds, "cases": found})


if __name__ == "__main__":
    main()

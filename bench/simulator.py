"""How fast is the simulator, beside SimPy on the same model, and with the real protocol in it?

Times are processor seconds of this one process: wall seconds on an idle core, and steadier than
these on a busy one. The contestants take turns, so that a change of pace hits all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import simpy
from record import spread, table, write
from ring_models import Model, Outcome, TunedStation, run_ringcast, run_simpy

from ringcast.sim import workload
from ringcast.sim.batch import Job
from ringcast.sim.cluster import Cluster
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import Bursts, Sizes

CONTESTANTS: dict[str, Callable[[Model], Outcome]] = {
    "ringcast": run_ringcast,
    "SimPy": run_simpy,
    "SimPy, tuned": lambda model: run_simpy(model, TunedStation),
}

TOTEM = {
    f"{size} B messages": RunSpec(
        duration_us=1_000_000,
        settle=False,
        config={"miss_visits": 1},  # on this network the token overtakes frames; do not resend them
        workload=(Bursts(messages=messages, every_us=2_000, sizes=(Sizes(size, size),)),),
    )
    for messages, size in ((10, 1000), (40, 64))
}
"""Five processors on the network ``lan``; the small messages are packed."""


def compare(model: Model, repeats: int) -> dict[str, list[float]]:
    """Frames received per second, for each contestant and each turn."""
    speeds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    outcomes = set()
    for _ in range(repeats):
        for name, contestant in CONTESTANTS.items():
            began_s = process_time()
            outcome = contestant(model)
            speeds[name].append(outcome.received / (process_time() - began_s))
            outcomes.add(outcome)
    if len(outcomes) != 1:
        raise RuntimeError(f"the contestants did not simulate the same thing: {outcomes}")
    return speeds


def bare(spec: RunSpec) -> tuple[int, int]:
    """The protocol in the simulator with nobody watching: frames received, messages delivered."""
    setup = prepare(spec)
    cluster = Cluster(setup.sheet, setup.config, spec.ids, setup.model, spec.seed)
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    return cluster.counts.handled, cluster.counts.deliveries


def checked(spec: RunSpec) -> tuple[int, int]:
    """The same with every event hashed and every claim checked."""
    result = run(spec)
    if result.violations:
        raise RuntimeError(result.violations[0].explanation)
    return result.handled, result.deliveries


def totem(spec: RunSpec, repeats: int) -> dict[str, Any]:
    """Frames, deliveries and simulated seconds per second, bare and checked."""
    found: dict[str, Any] = {}
    for _ in range(repeats):
        for name, runner in (("bare", bare), ("checked", checked)):
            began_s = process_time()
            frames, deliveries = runner(spec)
            took_s = process_time() - began_s
            lists = found.setdefault(
                name, {"frames_per_s": [], "deliveries_per_s": [], "simulated_s_per_s": []}
            )
            lists["frames_per_s"].append(frames / took_s)
            lists["deliveries_per_s"].append(deliveries / took_s)
            lists["simulated_s_per_s"].append(spec.duration_us / 1e6 / took_s)
    return {
        name: {what: spread(values) for what, values in lists.items()}
        for name, lists in found.items()
    }


def swarm(seeds: int) -> dict[str, float]:
    """What a core gets through in a minute of swarm seeds, checks and second stage included."""
    began_s = process_time()
    results = [run(Job(seed).make()) for seed in range(seeds)]
    minutes = (process_time() - began_s) / 60
    return {
        "seeds": seeds,
        "seeds_per_core_minute": seeds / minutes,
        "events_per_s": sum(r.events for r in results) / minutes / 60,
        "simulated_s_per_s": sum(r.simulated_us for r in results) / 1e6 / minutes / 60,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="turns of each contestant")
    parser.add_argument("--seeds", type=int, default=60, help="of the swarm")
    asked = parser.parse_args()
    model = Model()
    speeds = compare(model, asked.repeats)
    found: dict[str, Any] = {
        "model": {name: getattr(model, name) for name in model.__struct_fields__},
        "repeats": asked.repeats,
        "simpy": simpy.__version__,
        "frames_per_s": {name: spread(values) for name, values in speeds.items()},
        "ratio": {
            name: spread([a / b for a, b in zip(speeds["ringcast"], speeds[name], strict=True)])
            for name in speeds
        },
        "totem": {name: totem(spec, asked.repeats) for name, spec in TOTEM.items()},
        "swarm": swarm(asked.seeds),
    }
    shown = []
    for name, speed in found["frames_per_s"].items():
        least, most = speed["least"], speed["most"]
        shown.append(
            (name, f"{speed['median']:,.0f}", f"{least:,.0f}-{most:,.0f}",
             f"{found['ratio'][name]['median']:.1f}")
        )  # fmt: skip
    print(table(("the light ring in", "frames/s", "spread", "ringcast is faster by"), shown))
    print()
    shown = [
        (f"{load}, {name}", f"{figures['frames_per_s']['median']:,.0f}",
         f"{figures['deliveries_per_s']['median']:,.0f}",
         f"{figures['simulated_s_per_s']['median']:.2f}")
        for load, kinds in found["totem"].items()
        for name, figures in kinds.items()
    ]  # fmt: skip
    print(table(("Totem, five processors", "frames/s", "deliveries/s", "sim s/s"), shown))
    print()
    print(
        f"swarm: {found['swarm']['seeds_per_core_minute']:.0f} seeds a core-minute, "
        f"{found['swarm']['events_per_s']:,.0f} events/s"
    )
    file = write("simulator", found)
    print(f"\nwritten to {file.parent.name}/{file.name}")


if __name__ == "__main__":
    main()

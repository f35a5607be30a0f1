"""Field bug 13: ten percent loss and 350 ms of delay for an hour, and memory stays flat.

The whole simulated hour is run. What is counted are the elements of everything a machine and the
checks hold, so no clock and no allocator decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

import ringcast.protocols  # noqa: F401
from ringcast.checks import suite
from ringcast.core.registry import protocol
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.workload import Poisson, Sizes

MINUTE_US = 60_000_000


def held(thing: object) -> int:
    """Elements of all containers that can be reached from a machine."""
    seen: set[int] = set()
    waiting: list[object] = [thing]
    total = 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, str | bytes | int | float | type | None) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            parts = [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            parts = list(one)
        elif isinstance(one, msgspec.Struct):
            parts = list(msgspec.structs.astuple(one))
        else:
            names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
            parts = [getattr(one, name) for name in names if hasattr(one, name)]
        total += len(parts)
        waiting += parts
    return total


def test_f13_an_hour_of_loss_and_delay_keeps_memory_flat() -> None:
    sheet = protocol("totem")
    config = sheet.profiles["appendix"]
    link = LinkModel(delay=Constant(350_000), loss=0.1, unicast_loss=0.1)
    # D12-graph keeps a record of the order up to a limit: bounded, but not flat.
    checks = suite(claim for claim in sheet.claims(sheet.default) if claim != "D12-graph")
    cluster = Cluster(sheet, config, (1, 2, 3, 4), NetworkModel(link=link), "f13", [checks.feed])
    cluster.start()
    sizes = (Sizes(0, 100), Sizes(5_000, 20_000, weight=0.1))
    load = [Poisson(rate=1.0, safe=0.5, sizes=sizes)]
    workload.start(load, cluster, "f13")
    held_by_machines: list[int] = []
    held_by_checks: list[int] = []
    for _ in range(60):
        cluster.run_for(MINUTE_US)
        held_by_machines.append(sum(held(cluster.machine(node)) for node in cluster.ids))
        held_by_checks.append(held(checks))
    assert not checks.violations
    assert not cluster.recorder.violations
    assert cluster.counts.deliveries > 40_000
    assert len(cluster.scheduler.heap) < 1_000
    early, late = slice(5, 25), slice(40, 60)
    assert max(held_by_machines[late]) < 2 * max(held_by_machines[early])
    assert max(held_by_checks[late]) < 2 * max(held_by_checks[early])

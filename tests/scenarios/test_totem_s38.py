"""Scenario S38: eight processors, partitions, crashes and a tenth of all frames lost; then a heal.

Every predicate holds at every step, and then all eight share one working ring within the bound
of M5 (R82, Th 4.3). ``S38_SEEDS`` sets how many seeds are run.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ringcast.sim.faults import Fault, Heal, NetworkPartition, NodeCrash, Restart
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson

NODES = 8
DURATION_US = 4_000_000
SEEDS = int(os.environ.get("S38_SEEDS", "200"))
BATCH = 25


def story(seed: int) -> RunSpec:
    """What goes wrong in the run of one seed."""
    rng = Random(f"s38/{seed}")
    faults: list[Fault] = []
    for _ in range(rng.randint(3, 10)):
        at_us = rng.randrange(DURATION_US)
        node = rng.randint(1, NODES)
        match rng.choice(("partition", "partition", "heal", "crash", "restart", "restart")):
            case "partition":
                nodes = list(range(1, NODES + 1))
                rng.shuffle(nodes)
                at = rng.randint(1, NODES - 1)
                groups = (tuple(sorted(nodes[:at])), tuple(sorted(nodes[at:])))
                faults.append(NetworkPartition(at_us, groups))
            case "heal":
                faults.append(Heal(at_us))
            case "crash":
                faults.append(NodeCrash(at_us, node))
            case _:
                faults += [NodeCrash(at_us, node), Restart(min(at_us + 100_000, DURATION_US), node)]
    link = LinkModel(delay=Constant(1_000), loss=0.1, unicast_loss=0.1)
    return RunSpec(
        nodes=NODES,
        seed=seed,
        duration_us=DURATION_US,
        network=NetworkModel(link=link),
        workload=(Poisson(rate=20, safe=0.5),),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
        core="all",
    )


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_s38_partitions_crashes_and_loss(first: int) -> None:
    for seed in range(first, min(first + BATCH, SEEDS)):
        result = run(story(seed))
        assert not result.violations, f"seed {seed}: {result.violations[0].explanation}"

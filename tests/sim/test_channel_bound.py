"""C3: what a reliable channel keeps is bounded. When a core of a group has come together, and had
a moment more, nothing is kept for anybody: members have acknowledged it, and others were given up
when a view proved them gone.

``python tests/sim/test_channel_bound.py 3000000..3002000`` looks at more seeds than the suite does.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ringcast.sim import run as runs
from ringcast.sim.cluster import Cluster
from ringcast.sim.settle import Watch, settle
from ringcast.sim.spec import RunSpec, Setup
from ringcast.sim.swarm import draw

SEEDS = range(40)


def kept(cluster: Cluster, setup: Setup, watch: Watch) -> list[str]:
    """What members of the core keep a moment after they came together: twice the longest time
    between two tries."""
    cluster.run_for(2 * setup.config.channel.resend_max_us)
    if watch.common_view() is None:
        return []
    channels = {}
    for node in watch.core:
        machine: Any = cluster.nodes[node].machine
        channels[node] = machine.chooser.channel.machine
    return [f"p{n} keeps {each.waiting} payloads" for n, each in channels.items() if each.waiting]


def look(seed: int, patch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """How many settled in a run, and what they keep."""
    settled, found = 0, list[str]()

    def then(
        cluster: Cluster, setup: Setup, watch: Watch, core: tuple[int, ...], spec: RunSpec
    ) -> Any:
        nonlocal settled
        violations = settle(cluster, setup, watch, core, spec)
        if not violations and watch.core:
            settled = len(watch.core)
            found.extend(kept(cluster, setup, watch))
        return violations

    patch.setattr(runs, "settle", then)
    result = runs.run(draw(seed, "irbp"))
    return settled, found + [str(each) for each in result.violations]


def test_c3_nothing_is_kept_for_those_who_have_it_or_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled = 0
    for seed in SEEDS:
        members, found = look(seed, monkeypatch)
        assert not found, f"seed {seed}: {found}"
        settled += bool(members)
    assert settled > len(SEEDS) // 2


if __name__ == "__main__":
    low, high = map(int, sys.argv[1].split(".."))
    with pytest.MonkeyPatch.context() as patch:
        wrong = {seed: found for seed in range(low, high) if (found := look(seed, patch)[1])}
    sys.exit(f"{len(wrong)} of {high - low}: {wrong}" if wrong else 0)

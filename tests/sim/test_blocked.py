"""A part that cannot go on says so, and says so no more when it can."""

from __future__ import annotations

import pytest

import ringcast.protocols  # noqa: F401  (makes them known by name)
from ringcast.core.registry import protocol
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset

PARTS = [("rbp", {}), ("irbp", {}), ("counter", {}), ("total", {"quorum": 2})]


@pytest.mark.parametrize(("name", "settings"), PARTS, ids=[name for name, _ in PARTS])
def test_a_minority_is_blocked_until_it_is_not_alone(name: str, settings: dict[str, int]) -> None:
    """rbp F7, irbp I7, counter CB-38, total G-5."""
    sheet = protocol(name)
    config = sheet.for_group(type(sheet.default)(**settings), (1, 2, 3))
    cluster = Cluster(sheet, config, (1, 2, 3), preset("lan"), 5)

    def blocked() -> list[bool]:
        machines = [cluster.nodes[node].machine for node in (1, 2, 3)]
        return [bool(machine and machine.blocked) for machine in machines]

    for node in (1, 2, 3):
        cluster.start(node)
    cluster.run_for(3_000_000)
    assert blocked() == [False, False, False]
    cluster.partition([(1,), (2, 3)])
    cluster.run_for(3_000_000)
    assert blocked() == [True, False, False]
    cluster.calm()
    cluster.run_for(10_000_000)
    assert blocked() == [False, False, False]

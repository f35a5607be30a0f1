"""Swarms of the machines that are there to be compared: Table 4, and no more than that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringcast.core.errors import ConfigError
from ringcast.core.machine import name as key_name
from ringcast.core.registry import protocol, register
from ringcast.core.trace import Noted, TraceEvent
from ringcast.runtime.config import NodeConfig
from ringcast.sim.run import run
from ringcast.sim.swarm import draw

NAMES = ("centralised", "two-phase", "optimistic", "fast-message")
SEEDS = range(8)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_break_nothing_and_reach_every_cell(name: str) -> None:
    visits: set[str] = set()
    for seed in SEEDS:
        result = run(draw(seed, name))
        assert not result.violations, result.violations[0]
        visits |= {cell.partition("/")[2] for cell in result.visits}
    table = protocol(name).make(1, protocol(name).default).table
    assert {key_name(key) for key in table.keys} - visits == {"Leaving"}
    assert run(draw(3, name)).digest == run(draw(3, name)).digest


@pytest.mark.parametrize(("name", "safe"), [("centralised", False), ("two-phase", True)])
def test_what_is_only_agreed_is_held_to_safe(name: str, safe: bool) -> None:
    """Table 4 calls both agreed. The site's word says nothing of who holds a message. A final
    priority does, since everybody had to propose one: two-phase would pass for safe while nobody
    fails."""
    sheet = protocol(name)
    register(replace(sheet, name="bold", claims=lambda config: (*sheet.claims(config), "held")))
    specs = [replace(draw(seed, name), protocol="bold", swarm=False) for seed in SEEDS]
    broken = {breach.property for spec in specs for breach in run(spec).violations}
    assert broken == (set() if safe else {"held"})


def test_only_the_optimistic_one_undoes_what_it_delivered() -> None:
    """R2 and R3."""
    undone = dict.fromkeys(NAMES, 0)

    def watch(event: TraceEvent) -> None:
        if isinstance(event, Noted) and event.what == "rollback":
            undone[name] += 1

    for name in NAMES:
        for seed in range(2):
            run(draw(seed, name), [watch])
    assert {name for name in NAMES if undone[name]} == {"optimistic"}


@pytest.mark.parametrize("name", NAMES)
def test_no_node_runs_them(name: str) -> None:
    with pytest.raises(ConfigError, match="there to be compared in simulations; no node runs it"):
        NodeConfig(id=1, state_dir="here", protocol=name).check()

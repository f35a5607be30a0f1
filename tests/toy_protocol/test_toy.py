"""A protocol from outside goes through everything, and no line of ``src`` knows it.

It has one primary part and no transitional views, which no published protocol here has.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopback import joined, ring
from msgspec.structs import replace
from property_table import claims_table

from ringcast.api.events import Message, View
from ringcast.checks import PROPERTIES, Verdict, suite
from ringcast.core.ids import ViewId
from ringcast.core.registry import Sheet, register
from ringcast.core.trace import Ended, Installed, Noted, Restarted, TraceEvent
from ringcast.sim.faults import NetworkPartition, NodeCrash
from ringcast.sim.run import run
from ringcast.sim.scenario.parser import run_text
from ringcast.sim.settle import draw_core
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson

Environment = Callable[[str], dict[str, str]]
SRC = Path(__file__).parent.parent.parent / "src"


def ringcast(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringcast.cli", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_nothing_in_src_knows_it() -> None:
    texts = [path.read_text("utf-8") for path in SRC.rglob("*.py")]
    assert not [text for text in texts if re.search(r"toy.primary", text)]


def test_swarm(toy: Sheet) -> None:
    delivered = 0
    for seed in [*range(20), 100]:  # 100: a coordinator takes an epoch again, its storage lost
        result = run(draw(seed, toy.name))
        assert not result.violations, result.violations
        assert set(result.verdicts) == set(toy.claims(toy.default))
        delivered += result.deliveries
    assert delivered > 5_000


def test_only_a_majority_is_promised_progress(toy: Sheet) -> None:
    """The second stage heals a part that can go on, or promises nothing."""
    spec = RunSpec(protocol=toy.name, nodes=5, faults=(NodeCrash(1, 1),))
    cores = [draw_core(replace(spec, seed=seed)) for seed in range(60)]
    assert {len(core) for core in cores} == {3, 4, 5}
    assert draw_core(replace(spec, core=(1, 2))) == ()
    seen: list[TraceEvent] = []
    apart = replace(
        spec,
        core=(3, 4, 5),
        faults=(NetworkPartition(200_000, ((1, 2), (3, 4, 5))),),
        workload=(Poisson(rate=200),),
    )
    assert not run(apart, [seen.append]).violations
    views = [event for event in seen if isinstance(event, Installed)]
    assert not any(view.transitional for view in views)
    assert {view.members for view in views} == {(1, 2, 3, 4, 5), (3, 4, 5)}


def test_scenario(toy: Sheet) -> None:
    result = run_text(
        f"ring {toy.name} n=3\nlog views deliveries phases\nuntil ring {{1,2,3}}\n----\n"
        "p1 seeking -> forming\n"
        "p2 seeking -> seeking\n"
        "p3 seeking -> seeking\n"
        "p1 forming -> leading\n"
        "p1 reg (3,1){1,2,3}\n"
        "p2 seeking -> following\n"
        "p2 reg (3,1){1,2,3}\n"
        "p3 seeking -> following\n"
        "p3 reg (3,1){1,2,3}\n\n"
        "log views deliveries\ndrop Order 1->3\nsubmit p2 \"a\" safe\nuntil delivered 1\n"
        "crash p1\nuntil ring {2,3}\n----\n"
        'p1 deliver p2:1 "a" safe in (3,1)\n'
        'p2 deliver p2:1 "a" safe in (3,1)\n'
        'p3 deliver p2:1 "a" safe in (3,1)\n'
        "p2 reg (7,2){2,3}\n"
        "p3 reg (7,2){2,3}\n"
    )  # fmt: skip
    assert result.ok, result.diff


def test_its_own_check_sees_a_minority(toy: Sheet) -> None:
    """By a story, and by a machine that is content with too few."""
    view = ViewId(5, 1)

    def story(*members: int) -> Verdict:
        checks = suite([toy.checks[0].tag])
        for event in (
            Restarted(1, 1, 1, 1),
            Noted(1, 2, 2, "toy", "formed", "", view, members, (5,)),
            Installed(1, 3, 3, view, members, False, view, 0, None, None),
            Ended(4),
        ):
            checks.feed(event)
        return checks.verdicts()["majority"]

    assert story(1, 2, 3) is Verdict.VALID
    assert story(1, 2) is Verdict.INVALID

    class Content(toy.make):  # type: ignore[misc, name-defined]
        def offer(self, env: Any) -> None:
            if self.heard_us:
                self.lead(env)
            else:
                super().offer(env)

    register(replace(toy, make=Content))
    broken = {v.property for seed in range(6) for v in run(draw(seed, toy.name, 5)).violations}
    register(toy)
    assert "majority" in broken


def test_a_member_that_goes_without_a_departure_is_seen(toy: Sheet) -> None:
    """By a machine that leaves members out and says nothing of them."""

    class Tacit(toy.make):  # type: ignore[misc, name-defined]
        def install(self, env: Any) -> None:
            self.installed = ()
            super().install(env)

    register(replace(toy, make=Tacit))
    broken = [v for seed in range(6) for v in run(draw(seed, toy.name, 5)).violations]
    register(toy)
    assert {v.property for v in broken} == {"no-crash"}
    assert all("names no departure" in v.explanation for v in broken)


def test_property_table(toy: Sheet) -> None:
    head, _, *rows = claims_table().splitlines()
    column = [cell.strip() for cell in head.split("|")].index(toy.name)
    claimed = {row.split("|")[1].strip() for row in rows if row.split("|")[column].strip() == "yes"}
    assert claimed == set(toy.claims(toy.default))
    assert PROPERTIES["majority"] is toy.checks[0]


def test_groups_of_an_application(toy: Sheet, tmp_path: Path) -> None:
    """Live nodes in this process: one order of messages and views, although no view is
    transitional."""

    async def play() -> list[list[object]]:
        async with ring(tmp_path, 3, protocol=toy.name) as nodes:
            groups = await joined(nodes)
            for group in groups[:2]:
                await group.send(f"from {group.members}".encode())
            seen: list[list[object]] = [[], [], []]

            async def read(at: int, until: int) -> None:
                async for event in groups[at]:
                    seen[at].append(event)
                    messages = sum(isinstance(each, Message) for each in seen[at])
                    if messages == 2 and isinstance(event, View) and len(event.members) == until:
                        return

            readers = [asyncio.create_task(read(at, 2)) for at in (0, 1)]
            await asyncio.sleep(0.2)
            await nodes[2].close()
            async with asyncio.timeout(120):
                await asyncio.gather(*readers)
            return seen[:2]

    first, second = asyncio.run(play())
    messages = [[each for each in seen if isinstance(each, Message)] for seen in (first, second)]
    assert len(messages[0]) == 2
    assert messages[0] == messages[1]
    assert not any(isinstance(each, View) and each.transitional for each in first + second)


def test_commands_of_an_installation(installed: Environment, tmp_path: Path) -> None:
    """The swarm in several processes, traces, and ``verify`` on Spark, by the entry point."""
    env = installed("toy_primary")
    swarm = ("sim", "--protocol", "toy-primary", "--faults", "swarm", "--json")
    done = ringcast(env, *swarm, "--seeds", "0..12", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    done = ringcast(env, *swarm, "--seeds", "0..2", "--trace", str(tmp_path / "traces"))
    assert done.returncode == 0, done.stdout + done.stderr
    done = ringcast(env, "verify", str(tmp_path / "traces"), "--json")
    assert done.returncode in (0, 2), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["properties"]["majority"] == "valid"
    done = ringcast(env | {"PYTHONPATH": str(SRC)}, *swarm, "--seeds", "0..2")
    assert "no protocol called 'toy-primary'" in done.stderr


def test_demo(installed: Environment, tmp_path: Path) -> None:
    """Five live processes through a crash, a pause and a partition."""
    out = str(tmp_path / "out")
    done = ringcast(
        installed("toy_primary"), "demo", "--json", "--protocol", "toy-primary", "--out", out
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert set(found["verdicts"].values()) == {"valid"}
    assert "majority" in found["verdicts"]


def test_an_entry_point_that_cannot_be_loaded_is_named(installed: Environment) -> None:
    """And only those are disturbed who ask for a protocol that is not ringcast's own."""
    env = installed("no_such_module")
    done = ringcast(env, "sim", "--seeds", "0..1", "--protocol", "toy-primary")
    assert done.returncode == 2
    text = " ".join(done.stderr.split())
    assert text.startswith("ringcast: the protocol package 'no_such_module'"), text
    assert "repair or uninstall it" in text
    assert ringcast(env, "sim", "--seeds", "0..1").returncode == 0

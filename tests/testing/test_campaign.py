"""simtest: seeds, stories, and what the test runner is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.testing import (
    Crash,
    Host,
    NeverMet,
    NotDeterministic,
    Pause,
    Request,
    SimFailure,
    World,
    simtest,
)
from ringcast.testing.campaign import OPTIONS
from ringcast.testing.faults import Plan, Swarm, draw_plan


async def server(host: Host) -> None:
    """Forgets what it was told when it crashes."""
    told: list[int] = []

    async def answer(request: Request) -> int:
        await asyncio.sleep(0.01)
        told.append(request.body)
        return len(told)

    host.serve(answer)
    await asyncio.Event().wait()


async def client(host: Host, times: int = 30) -> None:
    for number in range(times):
        try:
            count = await host.call("server", "/tell", number, within=0.5)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        assert count >= host.heard, f"{count} after {host.heard}"  # type: ignore[attr-defined]
        host.heard = count  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)


async def forgetful(world: World) -> None:
    world.host("server", server)
    asking = world.host("client", client, steady=True)
    asking.heard = 0  # type: ignore[attr-defined]
    await world.until(lambda: asking.done, within=100)


def failure(test: Callable[..., None], *args: Any) -> str:
    with pytest.raises(SimFailure) as caught:
        test(*args)
    return str(caught.value)


def test_the_story_of_a_failure() -> None:
    text = failure(simtest(seeds=50, faults="swarm", span=3.0)(forgetful))
    first, *rest = (line for line in text.splitlines() if "PYTHONHASHSEED is" not in line)
    assert first.startswith("seed ")
    assert " after " in first
    seed = int(first.split()[1].rstrip(":"))
    assert " pytest " in rest[0]
    assert rest[0].endswith(f"--simtest-seed {seed}")
    assert ": 1 faults, 0 of" in rest[1], "one crash is all it takes"
    assert "crash of server" in rest[2]
    assert "it passes without: " in text
    assert "server   crashes" in text


def test_a_plan_is_shrunk_to_what_matters() -> None:
    plan: Plan = (
        Pause(at=0.5, host="client"),
        Crash(at=1.0, lasts=0.2, host="server", loss="nothing"),
        Pause(at=2.5, host="server"),
        Pause(at=2.0, lasts=0.1, host="client"),
    )
    text = failure(simtest(seeds=3, faults=plan)(forgetful))
    assert ": 1 faults, 0 of" in text
    assert "1.000 s: crash of server, losing nothing, for 0.200 s" in text


def test_the_order_that_matters_is_found() -> None:
    @simtest(seeds=100)
    async def unlucky(world: World) -> None:
        """Fails if the last of ten tasks overtakes all others, once."""
        for number in range(50):
            order: list[int] = []

            async def step(at: int, order: list[int] = order) -> None:
                order.append(at)

            await asyncio.gather(*(step(at) for at in range(10)))
            assert order[0] != 9, f"round {number}"

    text = failure(unlucky)
    assert ": 0 faults, 1 of" in text
    assert "it passes with tasks in the order in which they became ready" in text


def test_the_message_that_matters_is_found() -> None:
    from ringcast.sim.model import LinkModel, NetworkModel

    async def sender(host: Host) -> None:
        await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()
        address = (host.world["receiver"].address, 7)
        out, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
        for _ in range(100):
            out.sendto(b"x")

    async def receiver(host: Host) -> None:
        class Count(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, place: Any) -> None:
                host.count += 1  # type: ignore[attr-defined]

        host.count = 0  # type: ignore[attr-defined]
        await asyncio.get_running_loop().create_datagram_endpoint(Count, ("0.0.0.0", 7))
        await asyncio.Event().wait()

    @simtest(seeds=10, network=NetworkModel(link=LinkModel(unicast_loss=0.02)))
    async def all_arrive(world: World) -> None:
        one, _ = world.host("receiver", receiver), world.host("sender", sender)
        await world.sleep(2)
        assert one.count == 100, "some are missing"  # type: ignore[attr-defined]

    text = failure(all_arrive)
    assert "1 of 100 messages with a drawn fate" in text
    assert "it passes with every message taking its usual time" in text


def test_what_is_never_met_fails_the_campaign() -> None:
    async def test(world: World) -> None:
        world.host("one", asyncio.sleep, 1)
        await world.sleep(0.5)
        world.sometimes("it is late", lambda: world.now > 100)
        world.sometimes("the seed is even", lambda: world.seed % 2 == 0)

    with pytest.raises(NeverMet, match=r"in 4 seeds never: it is late\. Run more seeds"):
        simtest(seeds=4)(test)()


def test_a_program_that_differs_from_run_to_run_is_told() -> None:
    runs: list[int] = []

    async def test(world: World) -> None:
        runs.append(1)
        world.note(f"run {len(runs)}")

    with pytest.raises(NotDeterministic, match=r"(?s)ran in two ways.*run 1.*and then.*run 2"):
        simtest(seeds=2)(test)()


def test_always_is_checked_at_every_moment() -> None:
    async def test(world: World) -> None:
        values = [0]
        world.always(lambda: values[0] < 5, "stays small")
        for number in range(10):
            values[0] = number if number != 7 else 0
            await world.sleep(0.1)

    text = failure(simtest(seeds=1)(test))
    assert text.startswith("seed 0: stays small does not hold\n")
    assert "it ends at 0.5" in text


def test_what_does_not_come_about_in_time() -> None:
    async def test(world: World) -> None:
        await world.until(lambda: world.restarts > 0, within=5)

    text = failure(simtest(seeds=1)(test))
    assert text.startswith("seed 0: world.restarts > 0: not so within 5 s")


def test_the_error_of_a_program_fails_the_test_or_restarts_the_host() -> None:
    async def fails(host: Host) -> str:
        if host.lives < 3:
            raise KeyError("spoon")
        return "at last"

    async def strict(world: World) -> None:
        host = world.host("one", fails)
        await world.until(lambda: host.done)

    async def lenient(world: World) -> None:
        host = world.host("one", fails, on_error="restart")
        await world.until(lambda: host.done)
        assert (host.result, host.lives, world.restarts) == ("at last", 3, 2)

    assert failure(simtest(seeds=1)(strict)).startswith("seed 0: one: KeyError: 'spoon'")
    simtest(seeds=2)(lenient)()


def test_what_is_logged_and_noted_is_in_the_story() -> None:
    async def program(host: Host) -> None:
        logging.getLogger("shop").warning("no %s left", "seats")
        host.note("goes home")

    async def test(world: World) -> None:
        world.host("one", program)
        await world.sleep(1)
        raise AssertionError("as planned")

    text = failure(simtest(seeds=1)(test))
    assert "one      WARNING: no seats left" in text
    assert "one      goes home" in text


def test_options_of_the_test_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    @simtest(seeds=3)
    async def test(world: World) -> None:
        seen.append(world.seed)

    test()
    assert seen == [0, 0, 1, 2], "the first one twice, to see that nothing differs"
    monkeypatch.setattr(OPTIONS, "seeds", (7,))
    seen.clear()
    test()
    assert seen == [7, 7]


def test_mistakes_in_the_test_itself_are_told() -> None:
    with pytest.raises(TypeError, match="write 'async def'"):
        simtest()(lambda world: None)  # type: ignore[arg-type,return-value]

    async def lonely() -> None: ...

    with pytest.raises(TypeError, match="a parameter called world"):
        simtest()(lonely)
    with pytest.raises(ValueError, match="at least one"):
        simtest(seeds=0)
    with pytest.raises(TypeError, match=r"write @simtest\(\)"):
        simtest(lonely)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="faults = 'swrm'"):
        simtest(faults="swrm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no kind of fault \['crsh'\]; known: crash"):
        Swarm(kinds=("crsh",))  # type: ignore[arg-type]

    async def twice(world: World) -> None:
        world.host("one", asyncio.sleep, 1)
        world.host("one", asyncio.sleep, 1)

    assert "there is a host called 'one' already" in failure(simtest(seeds=1)(twice))


@simtest(seeds=3)  # type: ignore[arg-type]  # given() is declared to return nothing
@settings(max_examples=10, database=None, deadline=None)
@given(delays=st.lists(st.floats(0, 2), max_size=5))
async def test_inputs_come_from_hypothesis(world: World, delays: list[float]) -> None:
    began = world.now
    for delay in delays:
        await world.sleep(delay)
    assert world.now - began >= sum(delays) - 1e-3


def test_hypothesis_shrinks_the_inputs_and_we_the_run() -> None:
    @simtest(seeds=10, faults="swarm", span=3.0)  # type: ignore[arg-type]
    @settings(max_examples=50, database=None, deadline=None, print_blob=False)
    @given(times=st.integers(0, 60))
    async def test(world: World, times: int) -> None:
        world.host("server", server)
        asking = world.host("client", client, times, steady=True)
        asking.heard = 0  # type: ignore[attr-defined]
        await world.until(lambda: asking.done, within=100)

    text = failure(test)
    assert "crash of server" in text
    assert "times=" in text


def test_drawn_faults_are_of_the_kinds_asked_for() -> None:
    hosts = ["a", "b", "c"]
    for seed in range(200):
        plan = draw_plan(Random(seed), Swarm(kinds=("crash", "cut"), most=3), hosts, hosts[:1], 9.0)
        assert len(plan) <= 3
        assert {type(fault).__name__ for fault in plan} <= {"Crash", "Cut"}
        assert all(fault.host == "a" for fault in plan if isinstance(fault, Crash))
        assert all(0 <= fault.at <= 9 for fault in plan)
    assert draw_plan(Random(0), Swarm(), ["a"], [], 9.0) == ()


def test_the_page_for_users_begins_with_a_test_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    example = page.read_text().partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), names)
    monkeypatch.setattr(OPTIONS, "count", 8)
    names["test_everybody_hears_one_order"]()


MODULE = """
import asyncio
from ringcast.testing import simtest

async def program(host):
    await asyncio.sleep(1)

@simtest(seeds=20)
async def test_fails_at_thirteen(world):
    world.host("one", program)
    await world.sleep(2)
    assert world.seed != 13, "unlucky"

@simtest(seeds=20)
async def test_with_a_fixture(world, tmp_path):
    assert tmp_path.exists()
"""


@pytest.mark.parametrize("more", [[], ["-n2"]], ids=["alone", "xdist"])
def test_the_seed_is_in_the_line_and_repeats(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)

    def pytest_says(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ringcast.testing.plugin", *options]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"COLUMNS": "200"},
        )  # fmt: skip
        return done.stdout + done.stderr

    said = pytest_says(*more)
    assert "FAILED test_it.py::test_fails_at_thirteen - " in said
    assert "SimFailure: seed 13: AssertionError: unlucky" in said
    assert "pytest test_it.py::test_fails_at_thirteen --simtest-seed 13" in said
    assert "1 failed, 1 passed" in said
    if not more:
        again = pytest_says("test_it.py::test_fails_at_thirteen", "--simtest-seed", "13")
        assert "seed 13: AssertionError: unlucky" in again
        assert "2 passed" in pytest_says("--simtest-seed", "12")
        assert "not a seed such as 17" in pytest_says("--simtest-seed", "x")


TRACES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from seeded_bugs import CATALOGUE
names = ["check_then_act", "outbox_sent_twice", "served_before_recovery", "not_synced"]
print(json.dumps([CATALOGUE[name].run(3, True).trace for name in names]))
"""


def test_the_same_seed_leaves_the_same_trace_in_every_process() -> None:
    """Byte for byte, whatever hashes the process draws."""

    def traces(hash_seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", TRACES, str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        )
        found: list[str] = json.loads(done.stdout)
        return found

    first = traces("1")
    assert traces("77") == first
    assert all(trace.count("\n") > 5 for trace in first)

"""``ringcast bench live``: what it prints, what it checks, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ringcast.api.events import Batch
from ringcast.bench import bridge
from ringcast.bench.member import BenchMeter, MemberShare, MessagePool, Task
from ringcast.bench.run import Crew, Failed, Figures, Trial, figures, run, settings
from ringcast.cli import bench
from ringcast.cli.app import app
from ringcast.core.ids import Level, Position, ViewId

LIVE = [sys.executable, "-m", "ringcast.cli", "bench", "live"]
SHORT = ["--seconds", "0.5", "--warm", "0.1"]

rooted = pytest.mark.skipif(bool(bridge.obstacle()), reason="namespaces " + bridge.obstacle())


def measured(*options: str) -> dict[str, Any]:
    done = subprocess.run([*LIVE, *SHORT, "--json", *options], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["lost"] == figures["reordered"] == 0
    return figures


def refused(*options: str) -> str:
    done = CliRunner().invoke(app, ["bench", "live", *options])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_the_figures_promised() -> None:
    figures = measured("--nodes", "2", "--size", "64")
    for name in ("messages_per_s", "mb_per_s", "frames_per_s", "cpu_s"):
        assert figures[name] > 0, name
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]


def test_a_rate_safe_delivery_keys_and_one_sender() -> None:
    options = "--rate 200 --level safe --keys --senders 1 --size 5000 --frame 1400"
    assert measured("--nodes", "2", *options.split())["messages_per_s"] > 0


def test_members_with_journals() -> None:
    assert measured("--nodes", "2", "--journal")["messages_per_s"] > 0


def test_an_idle_ring() -> None:
    figures = measured("--nodes", "2", "--senders", "0")
    assert figures["messages_per_s"] == 0
    assert figures["latency_ms"] is None


def test_a_member_is_killed() -> None:
    assert measured("--nodes", "3", "--kill", "--rate", "100", "--seconds", "3")["gap_ms"] > 0


def test_a_member_of_a_fixed_group_is_killed() -> None:
    """The others go on without a change of membership, and lose nothing."""
    figures = measured("--protocol", "token-fd", "--kill", "--rate", "100", "--seconds", "2")
    assert figures["messages_per_s"] > 0
    assert len(figures["members"]) == 2


@rooted
def test_over_a_bridge_with_multicast() -> None:
    assert measured("--nodes", "2", "--namespaces", "--multicast")["messages_per_s"] > 0


CHAIN = ((1, 2, 7), (3, 4, 7, 8), (5, 6, 8))
"""Three rings of two members and a gateway between neighbours."""


def joined(**more: Any) -> Figures:
    """Three rings for a moment: what the members found."""
    found = run(
        Trial(
            nodes=6, rings=CHAIN, protocol="totem-multi", settings={"acyclic": True}, seconds=0.3,
            warm_s=0.1, rate=300, **more,
        )
    )  # fmt: skip
    assert found.lost == found.reordered == 0
    assert found.messages_per_s > 0
    assert sorted(each["id"] for each in found.members) == [1, 2, 3, 4, 5, 6, 7, 8]
    return found


def test_three_rings_and_gateways() -> None:
    """Each member gets the messages of all, in one order; every ring has a key of its own."""
    joined(keys=True)


@rooted
def test_three_rings_on_bridges_of_their_own_with_a_group_each() -> None:
    joined(namespaces=True, multicast=True, local=True)


def test_members_are_on_one_ring_and_gateways_come_after_them() -> None:
    assert Trial(nodes=6, rings=CHAIN, local=True).groups == ((1, 2), (3, 4), (5, 6))
    assert Trial(nodes=2, local=True).groups == ((1, 2),)
    for nodes, rings in ((5, CHAIN), (8, CHAIN), (2, ((1, 4), (2, 4)))):
        with pytest.raises(ValueError, match="gateways"):
            Trial(nodes=nodes, rings=rings)


def test_groups_are_judged_one_by_one() -> None:
    """Rates of several groups add up, and each has an order of its own."""
    trial = Trial(nodes=3, rings=((1, 2, 4), (3, 4)), local=True)
    counts = {1: 10, 2: 8, 3: 5, 4: 0}
    shares = [
        MemberShare(
            id=id, window_s=2.0, messages=count, frames=count, cpu_s=1.0, latencies_ms=[], gap_ms=0,
            sent=0, delivered={}, dropped=0, wrong=0, order=count // 8, metrics={},
        )
        for id, count in counts.items()
    ]  # fmt: skip
    found = figures(trial, shares)
    assert found.messages_per_s == found.frames_per_s == 4 + 2.5
    assert found.cpu_s == 4
    assert found.reordered == 0
    shares[1].order += 1
    assert figures(trial, shares).reordered == 1


def test_bad_options_are_said_before_anything_starts() -> None:
    assert "agreed or safe" in refused("--level", "sure")
    assert "no protocol called 'x'" in refused("--protocol", "x")
    assert "profile" in refused("--profile", "x")
    assert "window_size = 0" in refused("--set", "window_size=0")
    assert "name=value" in refused("--set", "window_size")
    assert "--namespaces" in refused("--multicast")
    assert "--size" in refused("--size", str(2**40))
    assert "f = 2 needs 7 members" in refused("--protocol", "token-fd", "--set", "f=2")


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``, by the kernel's table."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue  # gone meanwhile
            if int(parent) == pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@rooted
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_and_no_namespace(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [*LIVE, "--nodes", "2", "--seconds", "60", "--namespaces"],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 30
    while len(started := children(parent.pid)) < 5 and time.monotonic() < deadline_s:
        time.sleep(0.05)  # three namespaces, two members
    parent.send_signal(number)
    _, said = parent.communicate(timeout=300)
    assert parent.returncode == 130
    assert "Traceback" not in said
    assert len(started) == 5
    deadline_s = time.monotonic() + 30
    while any(map(alive, started)) and time.monotonic() < deadline_s:
        time.sleep(0.05)  # who was just being started ends when it finds its parent gone
    assert not any(map(alive, started))


def test_a_setting_is_read_as_toml() -> None:
    assert bench.setting("window_size=70") == ("window_size", 70)
    assert bench.setting("adaptive = false") == ("adaptive", False)


def task(senders: int = 2, size: int = 9) -> Task:
    return Task(
        node={"settings": {"max_packet": 30}}, processors=2, members=(1, 2), senders=senders,
        size=size, rate=0, flight=1, level=Level.AGREED, warm_s=0, seconds=1,
    )  # fmt: skip


def batch(sender: int, bodies: tuple[bytes, ...], seq: int = 1) -> Batch:
    return Batch(sender, bodies, Position.at(ViewId(8, 1), seq), Level.AGREED)


def check(*batches: Batch) -> BenchMeter:
    meter = BenchMeter(task(), {1: MessagePool(1, 9), 2: MessagePool(2, 9)})
    for each in batches:
        meter.take(each)
    return meter


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64])
def test_a_pool_repeats_after_its_period_only(size: int) -> None:
    pool = MessagePool(3, size)
    assert {len(body) for body in pool(0, pool.period)} == {size}
    assert pool(pool.period - 1, 2) == pool(pool.period - 1, 1) + pool(0, 1)
    if size >= 8:
        assert len(set(pool(0, pool.period))) == pool.period


def test_the_checker_tells_gaps_swaps_and_orders_apart() -> None:
    one, two = MessagePool(1, 9), MessagePool(2, 9)
    right = [batch(1, one(0, 2)), batch(2, two(0, 1)), batch(1, one(2, 3))]
    assert check(*right).wrong == 0
    assert check(batch(1, one(1, 2))).wrong == 2
    assert check(batch(1, one(0, 1)), batch(1, one(2, 1))).wrong == 1
    assert check(batch(1, one(0, 2)[::-1])).wrong == 2
    assert check(batch(1, two(0, 1))).wrong == 1
    assert check(*right).order == check(*right).order
    assert check(*right).order != check(right[1], right[0], right[2]).order


def test_the_window_is_over_before_a_share_is_made() -> None:
    """Whoever was done before the end of the window still reports a whole one."""
    meter = BenchMeter(task(), {})

    async def measure() -> None:
        now_s = time.monotonic()
        await meter.count(now_s + 0.01, now_s + 0.02)

    asyncio.run(measure())
    share = meter.share(1, 0, (), {})
    assert share.window_s > 0  # as long as the machine let it be


def test_frames_are_counted_by_what_they_hold_not_by_places_in_the_order() -> None:
    """Places of counter and totem-multi have gaps."""
    pool = MessagePool(1, 9)
    meter = BenchMeter(task(), {1: pool})

    async def measure() -> MemberShare:
        now_s = time.monotonic()
        counting = asyncio.create_task(meter.count(now_s, now_s + 0.02))
        await asyncio.sleep(0.01)
        meter.take(batch(1, pool(0, 3), seq=5_000))
        meter.take(batch(1, pool(3, 4), seq=9_000_000))
        await counting
        return meter.share(1, 0, (), {})

    assert asyncio.run(measure()).frames == 3


def test_what_a_member_complained_of_is_found_in_a_group_of_errors(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    group = ExceptionGroup("two", [ValueError("one"), OSError("the disk is full")])
    errors.write_text("".join(traceback.format_exception(group)))
    with Crew({1: ["true"]}, errors) as crew, pytest.raises(Failed, match="the disk is full"):
        crew.words(time.monotonic() + 30)


def test_frames_are_as_large_as_the_path_takes() -> None:
    assert settings(Trial())["max_packet"] > 60_000
    assert settings(Trial(namespaces=True))["max_packet"] + 16 + 28 == 1500
    assert settings(Trial(namespaces=True, settings={"each_time": 3}))["each_time"] == 3
    assert settings(Trial(protocol="token-fd")).keys() == {"max_packet", "each_time"}

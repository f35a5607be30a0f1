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
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from ringcast.api.events import Batch
from ringcast.api.group import Group
from ringcast.bench import bridge
from ringcast.bench.member import BenchMeter, BenchSender, MemberShare, MessagePool, Task
from ringcast.bench.run import Crew, Failed, Trial, settings
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
        node={"settings": {"max_packet": 30}}, members=2, senders=senders, size=size, rate=0,
        flight=1, level=Level.AGREED, warm_s=0, seconds=1,
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
    share = meter.share(1, BenchSender(task(), cast(Group, None), (0, 0)), {})
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
        return meter.share(1, BenchSender(task(), cast(Group, None), (0, 0)), {})

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

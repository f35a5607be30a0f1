"""The demonstration as a person runs it: it ends well, and leaves only its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.cli.app import app
from ringcast.core.registry import protocol
from ringcast.demo import shop_stream
from ringcast.demo.play import Play, table
from ringcast.demo.screen import Late, Screen
from ringcast.demo.shop import Shop, ShopOrder
from ringcast.demo.stream import Show, Spark, differing
from ringcast.members.process import Band, MemberProcess
from ringcast.members.words import MemberStatus

COMMAND = [sys.executable, "-m", "ringcast.cli", "demo"]


def processes(folder: Path) -> list[str]:
    """The command lines of this machine that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if any(str(folder).encode() in word for word in words):
            found.append(b" ".join(words).decode())
    return found


STORIES = {
    "totem": ["crash", "restart", "pause", "resume", "partition", "heal"],
    "token-fd": ["pause", "resume", "partition", "heal", "crash"],
    "totem-multi": ["crash", "restart", "partition", "heal"],
}

BRISK = """
import sys
from msgspec.structs import replace
from ringcast.cli.app import app
from ringcast.core.registry import protocol, register
from ringcast.demo import play
play.WORK_S = 0.3
sheet = protocol(sys.argv[3])
if sheet.demo_rings:
    register(replace(sheet, demo_rings=((1, 3, 4), (2, 3, 4))))
sys.argv = ["ringcast", "demo", *sys.argv[1:]]
app()
"""


@pytest.mark.parametrize("name", STORIES)
def test_the_demo_ends_well(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    options = ["--json", "--protocol", name, "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", BRISK, *options],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(work)},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    sheet = protocol(name)
    assert found["verdicts"].keys() == set(sheet.claims(sheet.default))
    assert set(found["verdicts"].values()) == {"valid"}
    assert [fault["kind"] for fault in found["faults"]] == STORIES[name]
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert report.count("<svg") - report.count('aria-label="ring ') == 3
    assert ("Configurations over time" in report) == bool(sheet.demo_rings)
    assert list(work.iterdir()) == []
    assert processes(work) == []


IN_SHORT = """
import sys
from ringcast.demo import stream as demo_stream
from ringcast.cli.app import app
demo_stream.WORK_S = 0.5
sys.argv = ["ringcast", "demo", "--stream", "--json"]
app()
"""


def test_spark_comes_to_the_state_of_the_members(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_SHORT],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["differences"] == []
    assert found["orders"] >= found["acknowledged"] > 0 and found["spark_starts"] >= 2
    assert sum(shelf["orders"] for shelf in found["pieces"].values()) == found["orders"]
    assert list(tmp_path.iterdir()) == []
    assert processes(tmp_path) == []


class ShortLived(Spark):
    """A process in Spark's place, which ends each life with another exit code."""

    def start(self) -> None:
        (self.folder / shop_stream.STARTED).unlink(missing_ok=True)
        code = (1, 2, 0)[self.starts]
        self.starts += 1
        self.process = subprocess.Popen([sys.executable, "-c", LIFE, str(self.folder), str(code)])


LIFE = """
import pathlib, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(int(sys.argv[2])))
pathlib.Path(sys.argv[1], "spark-started").touch()
while True:
    signal.pause()
"""


@pytest.mark.parametrize("lost", [0, 3])
def test_what_readers_lost_ends_the_demonstration(
    lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace ends below the readers, so it is valid all the same."""
    monkeypatch.setattr(MemberProcess, "running", True)
    monkeypatch.setattr(MemberProcess, "signal", lambda *_: None)
    monkeypatch.setattr(Band, "rest", lambda _: None)
    band = Band(3, tmp_path, tmp_path / "traces")
    for member in band.members.values():
        mine = lost if member.id == 2 else 0
        member.status = MemberStatus(0, member.id, "", (), (), 0, 0, 0.0, 0.0, mine, True, {})
    play = Play(band, Screen(lambda: table(band), quiet=True), protocol("totem"))
    with pytest.raises(Late, match=r"readers lost .*\{2: 3\}") if lost else nullcontext():
        play.settle()
    play.close()


def test_a_spark_that_ends_by_itself_has_not_read_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "spark.err").touch()
    with Band(3, tmp_path, tmp_path / "traces") as band:
        show = Show(band, tmp_path, quiet=True)
        show.spark = spark = ShortLived(tmp_path)
        spark.start()
        assert spark.process is not None
        spark.process.kill()
        spark.process.wait()
        show.finishes()
        assert spark.starts == 3 and spark.process.returncode == 0


def test_a_query_that_fails_is_no_end_of_the_stream(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Query:
        def awaitTermination(self, timeout: int) -> bool:
            raise RuntimeError("a batch failed")

    class FakeStreams:
        def __init__(self, *_: object) -> None: ...

        def start(self, **_: object) -> list[Query]:
            return [Query()]

    monkeypatch.setattr(shop_stream, "open_session", lambda *_: nullcontext())
    monkeypatch.setattr(shop_stream, "Streams", FakeStreams)
    with pytest.raises(RuntimeError, match="a batch failed"):
        shop_stream.main(tmp_path)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


LATE = """
import sys
from ringcast.demo import stream as demo_stream
from ringcast.cli.app import app
from ringcast.demo.screen import Late
def act(show):
    raise Late("Spark at its first batch: not within 240 s")
demo_stream.Show.act = act
sys.argv = ["ringcast", "demo", "--stream", *sys.argv[1:]]
app()
"""


def test_a_demo_that_does_not_come_to_its_end_has_compared_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing could be compared: Spark at its first batch" in done.stderr
    words = [sys.executable, "-c", LATE, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout) == {
        "ok": False, "error": "Spark at its first batch: not within 240 s",
    }  # fmt: skip


def test_another_state_is_told_by_name() -> None:
    one, other = Shop(), Shop()
    for item, count in (("pear", 3), ("plum", 2)):
        one.carry_out(msgspec.json.encode(ShopOrder(item, count, 8.5)))
    for item, count in (("pear", 3), ("plum", 1)):
        other.carry_out(msgspec.json.encode(ShopOrder(item, count, 8.5)))
    assert differing({"member 1": one}, one) == []
    stock, asked = differing({"member 1": one, "member 2": other}, one)
    assert stock.startswith("member 2: the stock is") and "left=99" in stock
    assert asked.startswith("member 2: what was asked for is {'8 pear': 3, '8 plum': 1}")
    assert len(differing({"member 3": None}, one)) == 2


def test_the_stream_has_its_own_story() -> None:
    for option in (["--simulated"], ["--seed", "3"], ["--protocol", "total"], ["--out", "x"]):
        done = subprocess.run([*COMMAND, "--stream", *option], capture_output=True, text=True)
        assert done.returncode == 2 and "cannot be combined with --stream" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_demo_ends_every_member(tmp_path: Path, number: signal.Signals) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(work)},
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert any("together" in line for line in demo.stdout)
        assert len(processes(work)) == 5
        demo.send_signal(number)
        demo.stdout.read()
        killed = number is signal.SIGKILL
        assert demo.wait(60) == (-number if killed else 130)
    deadline_s = time.monotonic() + 30
    while killed and processes(work) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert processes(work) == []
    assert killed or list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("centralised", "--protocol: centralised is there to be compared in simulations"),
        ("totm", "--protocol: no protocol called 'totm'; did you mean totem?"),
    ],
)
def test_what_no_member_can_run_is_refused_at_once(name: str, why: str) -> None:
    done = CliRunner().invoke(app, ["demo", "--protocol", name])
    assert done.exit_code == 2 and why in done.stderr

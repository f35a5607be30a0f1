"""The commands as scripts use them: JSON, exit codes, files, the line that repeats a failure."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ringcast
from ringcast.checks import PROPERTIES
from ringcast.cli.app import app
from ringcast.cli.sim import verdicts
from ringcast.core.registry import protocol
from ringcast.protocols.totem_single import CLAIMS
from ringcast.sim import runfile
from ringcast.sim.batch import Summary
from ringcast.sim.swarm import draw
from ringcast.traces import read_trace, runs

ROOT = Path(__file__).resolve().parent.parent.parent

HOPELESS = """
nodes = 3
network = "wan"
duration_us = 50_000

[config]  # far too short for this network, so no ring ever forms
token_loss_us = 2_000
token_retransmit_us = 500
join_us = 500
consensus_us = 1_500
announce_us = 1_000
hold_us = 0

[[faults]]
kind = "crash"
at_us = 1_000
node = 1

[[faults]]
kind = "pause"
at_us = 2_000
node = 2
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line here; returns exit code and output."""

    def run(line: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as caught:
            app(line.split())
        return caught.value.code, capsys.readouterr().out

    return run


def test_version(call: Any) -> None:
    assert call("version") == call("--version") == (0, f"ringcast {ringcast.__version__}\n")


def test_a_swarm_reports_what_scripts_read(call: Any) -> None:
    code, out = call("sim --protocol totem --nodes 5 --seeds 0..8 --faults swarm --json")
    report = json.loads(out)
    assert code == 0
    assert report["runs"] == 8
    assert report["violations"] == []
    assert set(report["verdicts"]) == set(CLAIMS)
    for count in ("events", "deliveries", "views", "simulated_s", "wall_s"):
        assert report[count] > 0
    assert set(report["judged"]) == set(report["verdicts"])
    assert all(sum(counts) == 8 for counts in report["judged"].values())
    assert report["faults"]
    assert all(times > 0 for times in report["faults"].values())


def test_processes_change_nothing_but_the_time(call: Any) -> None:
    def report(jobs: int) -> dict[str, Any]:
        _, out = call(f"sim --seeds 20..26 --jobs {jobs} --json")
        found: dict[str, Any] = json.loads(out)
        return {key: value for key, value in found.items() if key != "wall_s"}

    assert report(1) == report(2)


def test_a_fault_plan_applies_to_every_seed(call: Any) -> None:
    Path("plan.toml").write_text('[[faults]]\nkind = "crash"\nat_us = 300_000\nnode = 2\n')
    Path("events").write_text("partition: 200000 63 (1 2) (3 4)\npartition: 400000 63 (1 2 3 4)\n")
    code, out = call("sim --faults plan.toml --nodes 3 --seeds 0..2 --json --network ideal")
    assert (code, json.loads(out)["faults"]) == (0, {"crash": 2})
    code, out = call("sim --faults events --nodes 4 --seeds 2 --json")
    assert (code, json.loads(out)["faults"]) == (0, {"partition": 2})


SUN = (
    "sim --faults none --network sun-ipc-ethernet --profile measured --set packing=false --seeds 0"
)


@pytest.mark.parametrize(("size", "rate"), [(1024, 810), (600, 918), (4, 1130)])
def test_one_command_shows_the_published_throughput(call: Any, size: int, rate: int) -> None:
    """Totem's E1 and E2: docs/performance.md shows the command."""
    code, out = call(f"{SUN} --load saturate --size {size} --seconds 3 --json")
    report = json.loads(out)
    assert code == 0
    assert report["measured_s"] == 1.5
    assert report["messages_per_s"] == pytest.approx(rate, rel=0.05)
    assert report["bytes_per_s"] == pytest.approx(rate * size, rel=0.05)


def test_one_command_shows_the_published_latency(call: Any) -> None:
    """Totem's E5 and E6 at 400 messages a second, where a rotation takes about 12.7 ms."""
    found = {}
    for level, safe in (("agreed", 0), ("safe", 1)):
        _, out = call(f"{SUN} --load poisson:80 --size 1000 --safe {safe} --seconds 4 --json")
        report = json.loads(out)
        latency, rotation = report["latency_ms"], report["rotation_ms"]
        assert rotation == pytest.approx(12.7, rel=0.08)
        found[level] = latency.pop(level)
        assert list(latency.values()) == [None]  # no message asked for the other level
        found[level] |= {"share": found[level]["mean"] / rotation}
    assert 0.5 < found["agreed"]["share"] < 0.72
    assert 1.9 < found["safe"]["share"] < 2.4
    assert found["agreed"]["mean"] < found["agreed"]["last"] < 12.7
    assert found["safe"]["messages"] > 500


def test_people_are_told_how_fast_it_was(call: Any) -> None:
    code, out = call("sim --faults none --seeds 0..2 --load poisson:100 --size 10")
    assert code == 0
    speed = r"measured over 1 s: \d{3} messages/s \(0\.00\d MB/s\)"
    latency = r"{} in \d+\.\d\d ms, \d+\.\d\d ms to the last"
    rotation = r"a rotation of the token in \d+\.\d\d ms"
    told = "; ".join((speed, latency.format("agreed"), latency.format("safe"), rotation))
    assert re.search(f"{told}\n", out)
    code, out = call("sim --faults none --seeds 0 --load none --seconds 0.3")
    assert "measured over 0.15 s: 0 messages/s (0.000 MB/s); a rotation" in out
    assert "messages/s" not in call("sim --seeds 0")[1]


def test_a_swarm_with_a_setting_of_ones_own(call: Any) -> None:
    """It replaces what is drawn, so that seed and protocol alone do not repeat the run."""
    code, out = call("sim --seeds 0..2 --set packing=false --json")
    assert code == 0 and json.loads(out)["runs"] == 2
    assert draw(3).config["max_queue"] != 7 and draw(3).swarm
    other = draw(3, config={"max_queue": 7})
    assert other.config == draw(3).config | {"max_queue": 7} and not other.swarm


def test_the_line_that_repeats_a_failure_has_every_option(call: Any) -> None:
    short = "--set token_loss_us=2000 --set token_retransmit_us=500 --set join_us=500 "
    short += "--set consensus_us=1500 --set announce_us=1000 --set hold_us=0"
    options = f"--nodes 3 --faults none --network wan --profile lan {short} "
    options += "--load poisson:50 --size 9 --safe 0.5 --seconds 0.05"
    code, out = call(f"sim {options} --seeds 5 --json")
    (violation,) = json.loads(out)["violations"]
    assert code == 1
    assert violation["repeat"] == f"ringcast sim {options} --seeds 5"


def test_coverage_accounts_for_every_cell(call: Any) -> None:
    _, out = call("sim --seeds 0..4 --coverage --json")
    cells = json.loads(out)["coverage"]
    sheet = protocol("totem")
    table = sheet.make(1, next(iter(sheet.profiles.values()))).table
    assert len(cells) == len(table.phases) * len(table.keys)
    assert sum(cell["visits"] for cell in cells) > 1000
    for cell in cells:
        assert (cell["kind"] == "handler") == (cell["reason"] == "")
        assert not (cell["kind"] == "impossible" and cell["visits"])
    _, out = call("sim --seeds 0..4 --coverage")
    assert "cells not reached" in out
    assert "impossible: " in out


def test_a_failure_is_repeated_by_the_line_it_prints(call: Any) -> None:
    Path("hopeless.toml").write_text(HOPELESS)
    code, out = call("sim hopeless.toml --json")
    (violation,) = json.loads(out)["violations"]
    assert code == 1
    assert violation["property"] == "progress"
    assert violation["repeat"] == "ringcast sim hopeless.toml --seeds 0"
    code, again = call(violation["repeat"].removeprefix("ringcast ") + " --json")
    assert code == 1
    assert json.loads(again)["violations"] == [violation]
    code, out = call("sim hopeless.toml")
    assert code == 1
    assert "repeat: ringcast sim hopeless.toml --seeds 0\n" in out


def test_shrinking_writes_a_run_file_that_fails_the_same_way(call: Any) -> None:
    Path("hopeless.toml").write_text(HOPELESS)
    code, out = call("sim hopeless.toml --shrink --json")
    shrunk = json.loads(out)["shrunk"]
    assert (code, shrunk["property"], shrunk["faults"]) == (1, "progress", 0)
    assert runfile.load(Path(shrunk["file"])).faults == ()
    assert call(shrunk["repeat"].removeprefix("ringcast "))[0] == 1
    _, out = call("sim hopeless.toml --shrink --json")  # what is there stays
    assert (shrunk["file"], json.loads(out)["shrunk"]["file"]) == (
        "shrunk-0.toml",
        "shrunk-0-2.toml",
    )
    _, out = call("sim hopeless.toml --shrink --out small.toml")
    assert "ringcast sim small.toml" in out
    assert runfile.load(Path("small.toml")) == runfile.load(Path("shrunk-0.toml"))


def test_a_shrunk_run_that_cannot_be_written_is_an_error(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    Path("hopeless.toml").write_text(HOPELESS)
    monkeypatch.setattr(Path, "open", refuse)
    code, out = call("sim hopeless.toml --shrink --json")
    assert (code, out) == (2, "")


def test_traces_are_written_for_each_seed(call: Any) -> None:
    code, out = call("sim --faults none --nodes 3 --seeds 4..6 --trace out --json")
    assert code == 0
    assert runs("out") == [4, 5]
    assert sum(len(list(read_trace("out", seed))) for seed in (4, 5)) == json.loads(out)["events"]


def test_scenarios(call: Any) -> None:
    Path("story.txt").write_text("ring totem n=1\nlog views\nrun 1s\n----\nok\n")
    code, out = call("sim story.txt")
    assert code == 1
    assert "+p1 reg (8,1){1}" in out
    assert call(f"sim {ROOT}/tests/scenarios/totem/s01_alone.txt")[0] == 0
    assert json.loads(call("sim story.txt --json")[1])["ok"] is False


def test_a_property_is_unknown_only_if_no_run_could_tell() -> None:
    summary = Summary()
    summary.runs = 2
    summary.valid["M3"] = 1
    summary.unknown.update({"M2": 2, "M3": 1})
    found = verdicts(summary)
    assert (found["M2"], found["M3"]) == ("unknown", "valid")


def test_a_network_of_rings_comes_from_a_file(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("network.toml").write_text("rings = [[1, 4], [2, 4, 5], [3, 5]]\n")
    line = "sim --protocol totem-multi --faults none --seeds 0 --seconds 0.3 --json --topology"
    code, out = call(f"{line} network.toml")
    assert code == 0
    chain = call(f"{line} chain --rings 3 --nodes 1")[1]
    wanted, found = json.loads(chain), json.loads(out)
    assert {**found, "wall_s": 0} == {**wanted, "wall_s": 0}


def test_the_simulated_demo_tells_its_story_and_judges_it(call: Any) -> None:
    code, out = call("demo --simulated")
    assert code == 0
    for words in ("member 5 crashes", "restarts", "parts into 1 2 | 3 4 5", "merge"):
        assert words in out
    assert out.count("  valid ") == len(CLAIMS)
    code, out = call("demo --simulated --seed 3 --json")
    report = json.loads(out)
    assert code == 0
    assert report["violations"] == []
    assert set(report["verdicts"]) <= PROPERTIES.keys()
    assert set(report["verdicts"].values()) == {"valid"}
    last = [view for view in report["chapters"][-2]["views"] if not view["transitional"]][-1]
    assert last["members"] == last["at"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_ends_everything(number: signal.Signals) -> None:
    command = [sys.executable, "-c", "from ringcast.cli.app import app; app()"]
    running = subprocess.Popen(
        [*command, "sim", "--seeds", "0..1000000", "--jobs", "2"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    assert running.stderr.readline() == "1 of 1000000 runs\n"
    running.send_signal(number)
    out, err = running.communicate(timeout=300)
    assert running.returncode == (-number if number is signal.SIGKILL else 130)
    assert "Traceback" not in out + err
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # the group is gone once its last process is
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("processes are left")


def test_an_interruption_before_a_command_has_begun_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def building(*words: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.Typer.__call__", building)
    with pytest.raises(SystemExit) as left:
        app([])
    assert left.value.code == 130

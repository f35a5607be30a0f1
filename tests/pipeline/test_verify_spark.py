"""``ringcast verify``: on Spark, here and on a cluster; what it prints; what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringcast.checks import Verdict
from ringcast.cli import demo
from ringcast.cli.app import app
from ringcast.core.trace import Crashed
from ringcast.pipeline.report import write as report
from ringcast.pipeline.verify import job as verifying
from ringcast.pipeline.verify.condense import plan
from ringcast.pipeline.verify.crosscheck import compare as opinion
from ringcast.pipeline.verify.crosscheck.compare import CrossResult
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.protocols.totem_single import CLAIMS
from ringcast.runtime.tracelog import TraceLog
from ringcast.traces import Claims, TraceWriter, read_trace
from ringcast.traces.live import in_order, read_live
from ringcast.traces.synthetic.faults import Fault, FaultKind
from ringcast.traces.synthetic.generate import generate
from ringcast.traces.synthetic.group import Shape
from ringcast.traces.text import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK = VerifyRequest((), Claims(CLAIMS))
RIGHT = "ring(8,1){1,2}\np1: o1-3 d1-3\np2: d1-3\nend{1,2}"
WRONG = "ring(8,1){1,2}\np1: o1-3 d1 d2 d3\np2: d1 d3 d2\nend{1,2}"
OPEN = "ring(8,1){1,2}\np1: o1-3 d1-3\np2: d1\nend"


def story(folder: Path, *stories: str) -> Path:
    for run, text in enumerate(stories):
        with TraceWriter(folder, run, Claims(("D9", "total-order", "D4"))) as writer:
            for event in parse(text):
                writer(event)
    return folder


def test_windows_and_batches_give_what_one_process_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large run in windows, one of them with a fault at its edge, and small ones beside it."""
    large, small = tmp_path / "large", tmp_path / "small"
    shape = Shape(events=400_000, members=4, rings=2, burst=8)
    faults = [Fault(FaultKind.SWAP), Fault(FaultKind.ALTER), Fault(FaultKind.DUPLICATE)]
    generate(large, shape, faults=faults)
    for run in range(3):
        generate(small, Shape(events=3_000, seed=run), run, [Fault(FaultKind.DROP)] if run else [])
    alone = [verify_run(large, 0, ASK), *(verify_run(small, run, ASK) for run in range(3))]
    monkeypatch.setattr(verifying, "LARGE_BYTES", 300_000)
    monkeypatch.setattr(plan, "WINDOW_ROWS", 150_000)
    report = verifying.verify(spark, [large, small], ASK, quiet=True)
    assert list(report.runs) == alone
    assert {v.property for v in alone[0].violations} >= {"total-order", "D1", "D2"}
    assert [bool(each.violations) for each in alone] == [True, False, True, True]
    assert report.properties["D9"] is Verdict.INVALID
    assert report.properties["M2"] is Verdict.VALID
    assert report.events == sum(each.events for each in alone)


def ringcast(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        app([*map(str, words)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("stories", "code", "verdicts"),
    [
        ([RIGHT], 0, "valid valid valid"),
        ([RIGHT, WRONG], 1, "valid invalid invalid"),
        ([OPEN, RIGHT], 2, "unknown valid valid"),
    ],
)
def test_what_a_program_is_told(
    stories: list[str],
    code: int,
    verdicts: str,
    spark: SparkSession,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ringcast("verify", story(here / "t", *stories), "--json") == code
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert printed.err == ""
    assert list(told["properties"]) == ["D4", "D9", "total-order"]
    assert list(told["properties"].values()) == verdicts.split()
    assert told["events"] == sum(
        pq.read_metadata(path).num_rows for path in (here / "t").rglob("*.parquet")
    )
    assert told["seconds"] > 0 and told["runs"] == len(stories) and told["errors"] == []
    assert set(told["unknown"]) == ({"D4"} if "unknown" in verdicts else set())
    broken = [violation["property"] for violation in told["violations"]]
    assert sorted(broken) == (["D9", "total-order"] if code == 1 else [])
    assert (here / "ringcast-violations").exists() == (code == 1)


def test_what_people_are_told(
    spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story(here / "t", RIGHT, WRONG, OPEN)
    assert ringcast("verify", "t", "--violations", "found") == 1
    printed = capsys.readouterr().out
    lines = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert lines["total-order"].split()[-4:] == ["invalid", "1", "2", "0"]
    assert lines["D4"].split()[-3:] == ["unknown", "2", "1"]
    assert "violated D9: run 1: In (8,1) message number 2 is (8,1):2.0 at processor 1" in printed
    assert "unknown D4: something was still owed at the end" in printed
    assert "violations: found/violation.parquet" in printed
    rows = pq.read_table(here / "found" / "violation.parquet").to_pylist()
    assert [(row["run"], row["property"]) for row in rows] == [(1, "D9"), (1, "total-order")]
    first = {name: rows[0][name] for name in ("process", "other", "message", "other_message")}
    assert list(first.values()) == [1, 2, "(8,1):2.0", "(8,1):3.0"]
    assert (rows[0]["ring_seq"], rows[0]["ring_rep"], rows[0]["seq"]) == (8, 1, 2)
    assert rows[0]["t_us"] > 0 and "processor 2" in rows[0]["explanation"]


@pytest.mark.parametrize(("text", "fine"), [(RIGHT, True), (WRONG, False), (OPEN, False)])
def test_the_demo_fails_if_what_its_members_recorded_is_not_in_order(
    text: str, fine: bool, spark: SparkSession, tmp_path: Path
) -> None:
    claims = Claims(("D9", "total-order", "D4"))
    verdicts, violations = demo.judged(story(tmp_path / "t", text), claims)
    assert report.fine(verdicts, violations) is fine
    assert {each.property for each in violations} == (
        {"D9", "total-order"}
        & {tag for tag, verdict in verdicts.items() if verdict is Verdict.INVALID}
    )
    assert bool(violations) is (text == WRONG)


def test_only_some_properties_and_another_protocols_claims(
    spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story(here / "t", WRONG)
    assert ringcast("verify", "t", "--only", "M2,D4", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["properties"]) == ["M2", "D4"]
    assert ringcast("verify", "t", "--protocol", "totem", "--json") == 1
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(CLAIMS)


def test_a_second_opinion(
    spark: SparkSession,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story(here / "t", RIGHT, WRONG)
    assert ringcast("verify", "t", "--cross-check", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["cross_check"] == {"properties": told["properties"], "disagreements": []}
    monkeypatch.setattr(opinion, "cross_check", lambda *_: [CrossResult("D9", 1, "valid")])
    assert ringcast("verify", "t", "--only", "D9", "--cross-check") == 2
    printed = capsys.readouterr()
    assert "by queries" in printed.out
    (line,) = (text for text in printed.err.splitlines() if not text.endswith(" parts"))
    wanted = "the cross-check disagrees: run 1, D9: invalid, but valid by queries"
    assert line == f"ringcast: {wanted}"


def test_logs_of_live_members(
    spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are put together, whatever their clocks say, and judged by what they claim."""
    for folder, claims in (("live", Claims(("D2", "D9"))), ("mute", None)):
        logs = {node: TraceLog(here / folder, node, 1, claims) for node in (1, 2)}
        last: dict[int, Any] = {}
        for event in parse(RIGHT):
            if hasattr(event, "node"):
                logs[event.node](event)
                last[event.node] = event
        for node, log in logs.items():
            log(Crashed(node, last[node].n + 1, last[node].t_us + 1, "closed"))
            log.close()
    assert ringcast("verify", "live", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == {"D2", "D9"}
    assert ringcast("verify", "mute") == 2
    assert "mute: the logs do not say what their protocol claims" in capsys.readouterr().err
    assert ringcast("verify", "mute", "--json", "--protocol", "totem") == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(CLAIMS)


def test_what_must_not_be_taken_for_valid(
    spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that claims nothing beside one that does, or does not say; tables among logs."""
    story(here / "t", RIGHT)
    with TraceWriter(here / "t", 1, Claims(())) as writer:
        for event in parse(WRONG):
            writer(event)
    assert ringcast("verify", "t", "--json") == 2
    printed = capsys.readouterr()
    assert "t/fault/1.parquet: claims no property; --only or --protocol" in printed.err
    assert set(json.loads(printed.out)["properties"].values()) == {"unknown"}
    generate(here / "mute", Shape(events=2000))
    assert ringcast("verify", "mute", "--json") == 2
    lack = "mute/fault/0.parquet: does not say what its protocol claims; --only or --protocol"
    assert lack in capsys.readouterr().err
    assert ringcast("verify", "mute", "--protocol", "totem", "--json") == 0
    capsys.readouterr()
    TraceLog(here / "t", 1, 1).close()
    assert ringcast("verify", "t") == 2
    assert "t: holds logs of live members and tables too" in capsys.readouterr().err


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    """A bit in the middle of the data."""
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).schema_arrow.get_field_index("digest")
    chunk = pq.read_metadata(path).row_group(0).column(column)
    data[chunk.data_page_offset + chunk.total_compressed_size - 8] ^= 1
    path.write_bytes(data)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"run": [0]}), path)


def unfinished(path: Path) -> None:
    path.rename(path.with_suffix(".part"))


def renamed(path: Path) -> None:
    path.rename(path.with_name("mine.parquet"))


def padded(path: Path) -> None:
    path.rename(path.with_name("01.parquet"))


def of_another_run(path: Path) -> None:
    path.write_bytes(path.with_name("0.parquet").read_bytes())


def contradictory(path: Path) -> None:
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows.insert(1, dict(rows[0], digest=1))
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def without_statistics(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, write_statistics=False)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (cut_off, "not a whole Parquet file"),
        (flip, "damaged"),
        (foreign, "not a table 'deliver' of a ringcast trace"),
        (Path.unlink, "no such file; the run is incomplete"),
        (unfinished, "left by a writer that was not finished"),
        (renamed, "is not called <run>.parquet"),
        (padded, "is not called <run>.parquet"),
        (of_another_run, "run is 0 in a row"),
        (contradictory, "its rows contradict each other in "),
        (without_statistics, "has no statistics of its groups of rows"),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_a_bad_file_is_named_and_never_valid(
    damage: Callable[[Path], None],
    complaint: str,
    large: bool,
    spark: SparkSession,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if large:
        monkeypatch.setattr(verifying, "LARGE_BYTES", 0)
        generate(here / "t", Shape(events=40_000, rings=1))
        generate(here / "t", Shape(events=40_000, rings=1), run=1)
    else:
        story(here / "t", RIGHT, RIGHT)
    damage(here / "t" / "deliver" / "1.parquet")
    assert ringcast("verify", "t", "--protocol", "totem", "--json") == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("ringcast: ") and "t/deliver/" in line and complaint in line
    if printed.out:  # the other run was judged
        told = json.loads(printed.out)
        assert set(told["properties"].values()) == {"unknown"} and len(told["errors"]) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("verify", "Missing argument"),
        ("verify none", "none: no such folder"),
        ("verify .", ".: holds no trace; there is no fault/0.parquet"),
        ("verify t --only D99", "--only: no check called 'D99'; known: M1 (announce)"),
        ("verify t --protocol ring", "no protocol called 'ring'; known:"),
        ("verify t --profile lan", "so add --protocol"),
        ("verify t --protocol totem --profile x", "totem has no profile 'x'; known: lan"),
        ("verify t --violations file", "cannot write file/violation.parquet"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: str,
    complaint: str,
    spark: SparkSession,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story(here / "t", RIGHT)
    (here / "file").touch()
    assert ringcast(*words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and complaint in printed.err
    (line,) = (text for text in printed.err.splitlines() if not text.endswith(" parts"))
    assert line.startswith("ringcast: ")


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_a_cluster_that_loses_a_worker_gives_the_same_answer(
    kind: str, cluster: Any, tmp_path: Path
) -> None:
    for run in range(10):
        faults = [Fault(FaultKind.DROP, ring=0)] if run == 7 else []
        generate(tmp_path, Shape(events=18_000, seed=run), run, faults)
    alone = {run: verify_run(tmp_path, run, ASK) for run in (7,)}
    command = [sys.executable, "-m", "ringcast.cli", "verify", str(tmp_path), "--json"]
    command += ["--protocol", "totem"]
    violations = ["--violations", str(tmp_path.with_name("found"))]
    with subprocess.Popen(
        [*command, *violations, *cluster.options[kind]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        cluster.kill_busy_worker(kind)
        out, err = driver.communicate(timeout=600)
    assert driver.returncode == 1, err
    told = json.loads(out)
    assert told["runs"] == 10 and told["errors"] == []
    assert [(v["property"], v["run"]) for v in told["violations"]] == [
        (violation.property, 7) for violation in alone[7].violations
    ]
    assert {tag for tag, verdict in told["properties"].items() if verdict == "invalid"} == {
        violation.property for violation in alone[7].violations
    }


def test_a_trace_is_read_back_in_the_order_it_was_put_together(tmp_path: Path) -> None:
    logs = {node: TraceLog(tmp_path / "live", node, 1) for node in (1, 2)}
    for event in parse(RIGHT):
        if hasattr(event, "node"):  # all at once, so that processor 1 would come first
            logs[event.node](msgspec.structs.replace(event, t_us=7))
    for log in logs.values():
        log.close()
    events = list(in_order(read_live([tmp_path / "live"])))
    with TraceWriter(tmp_path / "t") as writer:
        for event in events:
            writer(event)
    assert list(read_trace(tmp_path / "t")) == events


def test_a_damaged_log_is_an_error_in_the_answer_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = TraceLog(tmp_path, 1, 1)
    log.close()
    (tmp_path / "1-1.trace").write_bytes(b"\0\0\0\2??")
    assert ringcast("verify", tmp_path, "--json") == 2
    printed = capsys.readouterr()
    (error,) = json.loads(printed.out)["errors"]
    assert "1-1.trace is no log of this version of ringcast" in error and error in printed.err
    assert ringcast("verify", tmp_path) == 2
    assert "1-1.trace is no log of this version of ringcast" in capsys.readouterr().err

"""Made traces: valid unless spoilt, the same from the same seed, cut alike for every processor."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ringcast.checks import Verdict, suite
from ringcast.core.ids import Level
from ringcast.core.registry import protocol as registered
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.protocols.totem_single import CLAIMS
from ringcast.traces import read_trace, runs
from ringcast.traces.parquet import TableFile
from ringcast.traces.synthetic import generate as module
from ringcast.traces.synthetic.faults import Fault, FaultKind
from ringcast.traces.synthetic.generate import generate, main
from ringcast.traces.synthetic.group import Shape

SMALL = Shape(events=6000, members=5, rings=6, frame=2, burst=3, safe=0.2)
BASE: dict[str, Any] = {"events": 6000, "members": 5, "rings": 8, "frame": 2, "burst": 3}
MESSAGES = ("submit", "originate", "deliver")


def trace(folder: Path, shape: Shape = SMALL) -> list[TraceEvent]:
    generate(folder, shape)
    return list(read_trace(folder))


@pytest.mark.parametrize(
    "shape",
    [
        *(Shape(events=6000, rings=6, frame=2, burst=3, safe=0.2, seed=seed) for seed in range(6)),
        Shape(events=1500, members=2, rings=3, frame=1, burst=1, safe=0.5),
        Shape(events=6000, members=9, rings=2, frame=5, burst=4, safe=1),
        Shape(events=3000, members=3, rings=1, safe=0),
    ],
    ids=str,
)
def test_it_obeys_every_claim(tmp_path: Path, shape: Shape) -> None:
    checks = suite(CLAIMS)
    for event in trace(tmp_path, shape):
        checks.feed(event)
    assert not checks.violations
    assert set(checks.verdicts().values()) == {Verdict.VALID}


@pytest.mark.parametrize("protocol", ["rbp", "irbp"])
def test_with_epochs_it_obeys_what_rbp_claims(tmp_path: Path, protocol: str) -> None:
    sheet = registered(protocol)
    checks = suite(sheet.claims(next(iter(sheet.profiles.values()))))
    for event in trace(tmp_path, Shape(events=6000, rings=6, frame=2, burst=3, epochs=True)):
        checks.feed(event)
    assert not checks.violations
    assert set(checks.verdicts().values()) == {Verdict.VALID}


def test_everything_that_matters_happens(tmp_path: Path) -> None:
    """Members crash, leave, return and join; messages are left for transitional configurations."""
    events = [event for seed in range(3) for event in trace(tmp_path, Shape(**BASE, seed=seed))]
    kinds = Counter(type(event) for event in events)
    assert {Submit, Originated, Delivered, Installed, Crashed, Restarted, Ended} <= kinds.keys()
    assert {e.reason for e in events if isinstance(e, Crashed)} == {"", "left"}
    assert {e.incarnation for e in events if isinstance(e, Restarted)} > {1, 2}
    late = [e for e in events if isinstance(e, Delivered) and e.view != e.ring]
    assert {e.level for e in late} == set(Level)
    transitional = [e for e in events if isinstance(e, Installed) and e.transitional]
    assert {len(e.members) for e in transitional} > {1, 3}


def test_size_is_what_was_asked_for(tmp_path: Path) -> None:
    made = generate(tmp_path, Shape(events=300_000, rings=3))
    rows = [pq.read_metadata(tmp_path / name / "0.parquet").num_rows for name in MESSAGES]
    assert made.events == sum(rows)
    assert abs(made.events - 300_000) < 0.03 * 300_000


def test_numbers_and_times_of_a_processor_rise_together(tmp_path: Path) -> None:
    own: dict[int, list[TraceEvent]] = {}
    for event in trace(tmp_path):
        if not isinstance(event, Ended):
            own.setdefault(event.node, []).append(event)
    assert sorted(own) == [1, 2, 3, 4, 5]
    for events in own.values():
        events.sort(key=lambda event: event.n)  # type: ignore[union-attr]
        for one, other in pairwise(events):
            assert one.n < other.n and one.t_us <= other.t_us, (one, other)  # type: ignore[union-attr]


def test_the_seed_decides(tmp_path: Path) -> None:
    def files(name: str, seed: int) -> dict[str, bytes]:
        generate(tmp_path / name, Shape(**BASE, seed=seed))
        found = (tmp_path / name).rglob("*.parquet")
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in found}

    first = files("one", 1)
    assert first == files("two", 1)
    assert first != files("three", 2)


def test_parts_are_made_independently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trace(tmp_path / "whole")
    monkeypatch.setattr(module, "GROUP", 24)
    assert trace(tmp_path / "parts") == whole


def test_groups_of_rows_are_cut_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP", 60)
    generate(tmp_path, SMALL)
    file = pq.ParquetFile(tmp_path / "deliver" / "0.parquet")
    starts: dict[tuple[int, int], list[int]] = {}
    for group in range(file.metadata.num_row_groups):
        meta = file.metadata.row_group(group)
        assert meta.num_rows <= 60
        stats = {
            meta.column(at).path_in_schema: meta.column(at).statistics
            for at in range(meta.num_columns)
        }
        for name in ("run", "node", "ring_seq", "ring_rep"):
            assert stats[name].min == stats[name].max
        starts.setdefault((stats["ring_seq"].min, stats["node"].min), []).append(stats["seq"].min)
    for (ring, _), found in starts.items():
        others = [cuts for (other, _), cuts in starts.items() if other == ring]
        longest = max(others, key=len)
        assert len(found) > 1
        assert found == longest[: len(found)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", FaultKind)
def test_a_fault_is_found_where_it_was_put(tmp_path: Path, kind: FaultKind, seed: int) -> None:
    made = generate(tmp_path, Shape(**BASE, seed=seed), 4, [Fault(kind)])
    (injected,) = made.injected
    checks = suite(CLAIMS)
    for event in read_trace(tmp_path, 4):
        checks.feed(event)
    assert checks.verdicts()[injected.breaks] is Verdict.INVALID
    found = next(each for each in checks.violations if each.property == injected.breaks)
    assert injected.node in found.nodes
    assert injected.message in found.messages
    assert injected.run == 4


def test_a_fault_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    clean = trace(tmp_path / "clean")
    made = generate(tmp_path / "spoilt", SMALL, 0, [Fault(FaultKind.ALTER, 2, 1, 20)])
    (injected,) = made.injected
    assert (injected.node, injected.seq) == (2, 20)
    pairs = zip(clean, read_trace(tmp_path / "spoilt"), strict=True)
    ((one, other),) = [(one, other) for one, other in pairs if one != other]
    assert isinstance(one, Delivered) and isinstance(other, Delivered)
    assert (other.node, other.ring, other.seq) == (2, injected.ring, 20)
    assert one.digests[:-1] == other.digests[:-1] and one.digests[-1] != other.digests[-1]


def test_several_faults_keep_clear_of_each_other(tmp_path: Path) -> None:
    kinds = [Fault(kind, 1, 0) for kind in FaultKind]
    made = generate(tmp_path, SMALL, 0, kinds)
    assert [each.kind for each in made.injected] == list(FaultKind)
    places = sorted(each.seq for each in made.injected)
    assert all(other - one > 2 for one, other in pairwise(places))
    with pytest.raises(ValueError, match="no room"):
        generate(tmp_path, SMALL, 0, [Fault(FaultKind.DROP, 1, 0, 12)] * 2)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(tmp_path), "--events", "4000", "--runs", "2", "--frame", "2", "--burst", "2"]
    main([*words, "--fault", "drop@2:1:5"])
    said = capsys.readouterr().out
    assert runs(tmp_path) == [0, 1]
    assert "injected: drop of (12," in said and ":5.0 at processor 2 in run 0" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--members", "1"], "members must be at least 2"),
        (["--safe", "3"], "between 0 and 1"),
        (["--fault", "lose"], "swap, drop, duplicate"),
        (["--fault", "drop@1:99"], "no ring 99"),
        (["--fault", "drop@77"], "processor 77 is not in ring"),
        (["--fault", "drop@1:0:1"], "can be at"),
    ],
)
def test_bad_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--events", "1000", *words])
    assert stopped.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: TableFile, rows: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TableFile, "write", full)
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--events", "1000"])
    assert stopped.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

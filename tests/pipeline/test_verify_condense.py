"""Judging a trace without what is alike gives what judging all of it gives, culprits included."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from published import PUBLISHED
from spoiling import spoil
from tampering import LONG_US
from tampering import spec as tampered

from ringcast.checks import PROPERTIES, Suite, Verdict, suite
from ringcast.checks.property import Reads
from ringcast.core.registry import protocol
from ringcast.core.trace import Delivered, Originated, ReportedUncertain, Submit, TraceEvent
from ringcast.pipeline.verify import run_verifier as judging
from ringcast.pipeline.verify.condense import full, plan
from ringcast.pipeline.verify.condense import runs as pieces
from ringcast.pipeline.verify.condense.align import align
from ringcast.pipeline.verify.condense.window import look
from ringcast.pipeline.verify.run_verifier import Case, VerifyRequest, verify_run
from ringcast.pipeline.verify.verdicts import RunVerdict
from ringcast.sim.faults import NodeCrash
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Bursts, Poisson
from ringcast.traces import (
    Claims,
    TraceError,
    TraceFile,
    TraceWriter,
    parquet,
    read_claims,
    read_trace,
)
from ringcast.traces.schema import TABLES
from ringcast.traces.synthetic.generate import generate
from ringcast.traces.synthetic.group import Shape
from ringcast.traces.text import parse

STORIES = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))
TAGS = tuple(tag for tag, kind in PROPERTIES.items() if kind.reads < Reads.EVERY_EVENT)
CONDENSED = [s.name for s in PUBLISHED if any(tag in TAGS for tag in s.claims(s.default))]
"""Protocols that claim something for which a stretch will do."""
ASK = VerifyRequest(TAGS, Claims(()))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small traces are cut up as if they were large."""
    set_sizes(monkeypatch, group=64, window=120, run=4)


def set_sizes(patch: pytest.MonkeyPatch, group: int, window: int, run: int) -> None:
    patch.setattr(parquet, "BUFFERED", group)
    patch.setattr(plan, "WINDOW_ROWS", window)
    patch.setattr(plan, "LEAST_ROWS", 1)
    patch.setattr(pieces, "LEAST_RUN", run)
    patch.setattr(judging, "SMALL_ROWS", 0)


def write(folder: Path, events: list[TraceEvent]) -> Path:
    with TraceWriter(folder) as writer:
        for event in events:
            writer(event)
    return folder


def culprits(found: Suite | RunVerdict) -> set[tuple[Any, ...]]:
    """A cycle (D12-graph) is shorter without what is left out of it."""
    return {
        (v.property, v.nodes, () if v.property == "D12-graph" else v.messages, v.t_us)
        for v in found.violations
    }


def compare(folder: Path, ask: VerifyRequest = ASK) -> RunVerdict:
    """Both ways lead to the same verdicts and the same culprits."""
    exact = suite(ask.only)
    for event in read_trace(folder):
        exact.feed(event)
    found = verify_run(folder, 0, ask)
    assert not found.error
    assert found.verdicts == exact.verdicts()
    assert culprits(found) == culprits(exact)
    return found


def hidden(folder: Path, ask: VerifyRequest = ASK) -> int:
    """How many frames are not shown to the checks."""
    case = Case(folder, 0, ask)
    while at := case.open_windows():
        for window in at:
            case.take(window, look(case.windows[window]))
    assert case.course is not None
    return sum(p.stretch.frames for f in case.course.found if f for p in f.pieces)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_golden_stories(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST_RUN", 1)
    story = path.read_text().partition("----\n")[0]
    compare(write(tmp_path, list(parse(story))))


def test_causes_from_another_ring_need_every_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ``causal`` alone nothing is left to condense then."""
    monkeypatch.setattr(pieces, "LEAST_RUN", 1)
    (path,) = (each for each in STORIES if each.stem == "causal_across_rings")
    folder = write(tmp_path, list(parse(path.read_text().partition("----\n")[0])))
    found = compare(folder, msgspec.structs.replace(ASK, only=("causal",)))
    assert found.verdicts == {"causal": Verdict.INVALID}


@pytest.mark.parametrize("seed", [0, 3, 12, 20])
def test_swarm_runs(seed: int, tmp_path: Path) -> None:
    with TraceWriter(tmp_path) as writer:
        run(draw(seed), [writer])
    found = compare(tmp_path)
    assert {v.property for v in found.violations} <= {"agreement", "uniform-agreement"}


@pytest.mark.parametrize("window", [120, 300, 1000])
def test_a_stretch_keeps_its_side_of_a_report(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members deliver a message before its sender has reported the one before as uncertain."""
    set_sizes(monkeypatch, group=64, window=window, run=4)
    events: list[TraceEvent] = []
    run(draw(456837, "total", profile="prefix"), [events.append])
    assert any(isinstance(event, ReportedUncertain) for event in events)
    sheet = protocol("total")
    tags = tuple(tag for tag in sheet.claims(sheet.profiles["prefix"]) if tag in TAGS)
    found = compare(write(tmp_path, events), VerifyRequest(tags, Claims(())))
    assert not found.violations


@pytest.mark.parametrize("window", [100, 400])
def test_an_old_message_in_a_new_view(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a lower place than all that its new ring has, and none of them."""
    set_sizes(monkeypatch, group=64, window=window, run=4)
    spec = msgspec.structs.replace(
        tampered("rbp", every_us=LONG_US),
        duration_us=600_000,
        workload=(Bursts(messages=3, every_us=6_000, safe=0.3, start_us=8_000),),
        faults=(NodeCrash(300_000, 4),),
    )
    trace = list[TraceEvent]()
    run(spec, [trace.append])
    own = [e for e in trace if isinstance(e, Delivered) and e.node == 1]
    old, (*_, new) = own[len(own) // 4], (e for e in own if e.ring == own[-1].ring)
    assert old.ring < new.ring
    at = trace.index(new)
    wrong = msgspec.structs.replace(old, view=new.view, ring=new.ring, n=new.n, t_us=new.t_us)
    trace[at] = wrong
    found = compare(write(tmp_path, trace), claims_only("rbp"))
    assert {"one-log", "D9"} <= {v.property for v in found.violations}
    assert found.verdicts["D2"] is Verdict.VALID


@pytest.mark.parametrize("kept", [0, 40])
def test_submissions_without_checksums(kept: int, tmp_path: Path) -> None:
    """Of all messages, or of those behind the first."""
    events: list[TraceEvent] = []
    generate(tmp_path / "right", Shape(events=900, members=3))
    for event in read_trace(tmp_path / "right"):
        bare = isinstance(event, Submit) and event.first > kept
        events.append(msgspec.structs.replace(event, digests=()) if bare else event)
    found = compare(write(tmp_path / "bare", events))
    assert found.verdicts["content"] is Verdict.UNKNOWN


def test_a_calm_run_is_hardly_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, group=500, window=4000, run=8)
    spec = RunSpec(nodes=4, duration_us=400_000, workload=(Poisson(rate=300),))
    with TraceWriter(tmp_path) as writer:
        result = run(spec, [writer])
    assert not compare(tmp_path).violations
    assert hidden(tmp_path) > result.submitted * 0.8


@pytest.mark.parametrize("name", CONDENSED)
def test_a_run_of_every_protocol_can_be_judged(name: str, tmp_path: Path) -> None:
    with TraceWriter(tmp_path) as writer:
        run(RunSpec(protocol=name, nodes=3, duration_us=60_000), [writer])
    assert not compare(tmp_path, claims_only(name)).violations


SHAPES = [
    Shape(events=2500, members=3, rings=2, frame=2, burst=3),
    Shape(events=2500, members=4, rings=3, frame=1, burst=4, seed=1),
    Shape(events=2000, members=2, rings=2, frame=3, burst=2, seed=2),
]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[list[TraceEvent]]:
    """Traces with nothing wrong in them."""
    found = []
    for shape in SHAPES:
        folder = tmp_path_factory.mktemp("right")
        generate(folder, shape)
        found.append(list(read_trace(folder)))
    for spec in (
        draw(2, nodes=3),
        draw(5, nodes=3),
        tampered("total", every_us=LONG_US),
        tampered("token-fd", every_us=LONG_US),
    ):
        events: list[TraceEvent] = []
        run(spec, [events.append])
        found.append(list(read_trace(write(tmp_path_factory.mktemp("right"), events))))
    return found


EDITS = int(os.environ.get("RINGCAST_EDITS", "30"))
"""Random edits of random traces; ten thousand for a long look."""

sizes = st.tuples(st.sampled_from((16, 64, 300)), st.sampled_from((40, 200, 1000)))


BY_CLAIMS = {5: "total", 6: "token-fd"}
"""Traces of other protocols than Totem, judged by what these claim as well."""


@settings(max_examples=EDITS, deadline=None, derandomize=EDITS < 1000)
@given(
    st.integers(0, 10**9),
    st.integers(0, 6),
    st.integers(1, 3),
    sizes,
    st.sampled_from((3, 9)),
    st.booleans(),
)
@example(10041, 6, 1, (300, 200), 3, True)  # a place is first named with what was delivered before
@example(20179, 0, 2, (300, 1000), 9, False)  # one member tells a place much too early, and again
def test_spoilt_traces(
    tmp_path_factory: pytest.TempPathFactory,
    right: list[list[TraceEvent]],
    seed: int,
    which: int,
    mistakes: int,
    sizes: tuple[int, int],
    run: int,
    claimed: bool,
) -> None:
    ask = claims_only(BY_CLAIMS[which]) if claimed and which in BY_CLAIMS else ASK
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, *sizes, run)
        spoilt = spoil(right[which], Random(seed), mistakes)
        compare(write(tmp_path_factory.mktemp("spoilt"), spoilt), ask)


def claims_only(name: str) -> VerifyRequest:
    """What a protocol claims, as far as a stretch will do for it."""
    sheet = protocol(name)
    return VerifyRequest(
        tuple(tag for tag in sheet.claims(sheet.default) if tag in TAGS), Claims(())
    )


@pytest.mark.parametrize("back", [3, 6, 9])
@pytest.mark.parametrize("number", [7, 16])
def test_a_place_named_first_with_what_its_sender_has_delivered(
    number: int,
    back: int,
    tmp_path: Path,
    right: list[list[TraceEvent]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How that was submitted is shown, but not always that its sender has delivered it."""
    set_sizes(monkeypatch, group=16, window=1000, run=3)
    first = [e for e in right[5] if isinstance(e, Originated) and e.first > 12][number]
    spoilt = [e for e in right[5] if e is not first]
    at, told = next(
        (at, e)
        for at, e in enumerate(spoilt)
        if isinstance(e, Delivered) and (e.ring, e.seq) == (first.ring, first.seq)
    )
    spoilt[at] = msgspec.structs.replace(told, first=first.first - back)
    found = compare(write(tmp_path, spoilt))
    assert "content" in {violation.property for violation in found.violations}


def test_what_others_deliver_before_its_sender_knows_the_place(
    tmp_path: Path, right: list[list[TraceEvent]]
) -> None:
    """In token-fd that is the rule. It need not be shown unless D1, D7 or D8 is judged."""
    folder = write(tmp_path, right[6])
    assert hidden(folder) == 0
    assert hidden(folder, claims_only("token-fd")) > 20
    assert not compare(folder, claims_only("token-fd")).violations


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**9), st.integers(0, 4), st.sampled_from((20, 90, 250)))
def test_what_is_too_much_is_unknown_and_never_valid(
    tmp_path_factory: pytest.TempPathFactory,
    right: list[list[TraceEvent]],
    seed: int,
    which: int,
    most: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=400, run=3)
        patch.setattr(full, "MOST_EVENTS", most)
        patch.setattr(judging, "WHOLE_ROWS", 100)
        folder = write(tmp_path_factory.mktemp("much"), spoil(right[which], Random(seed), 6))
        exact, found = suite(TAGS), verify_run(folder, 0, ASK)
    for event in read_trace(folder):
        exact.feed(event)
    for tag, verdict in exact.verdicts().items():
        assert found.verdicts[tag] in (verdict, Verdict.UNKNOWN)
    assert culprits(found) <= culprits(exact)
    if set(found.verdicts.values()) != set(exact.verdicts().values()):
        assert any("events differ" in reason for reason in found.reasons.values())


def test_the_limit_is_told(
    tmp_path: Path, right: list[list[TraceEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "MOST_EVENTS", 10)
    compare(write(tmp_path, right[0]))  # not so large that it could not be fed whole
    monkeypatch.setattr(judging, "WHOLE_ROWS", 100)
    found = verify_run(tmp_path, 0, ASK)
    assert set(found.verdicts.values()) == {Verdict.UNKNOWN}
    assert found.reasons["D9"].startswith("from ")
    assert "more than 65,536 events differ" in found.reasons["D9"]


def test_a_submission_that_is_not_there_though_later_ones_are(
    tmp_path: Path, right: list[list[TraceEvent]]
) -> None:
    own = [e for e in right[1] if isinstance(e, Submit) and e.node == 1]
    lost = next(one for one, other in pairwise(own[len(own) // 2 :]) if other.t_us - one.t_us < 20)
    folder = write(tmp_path, [event for event in right[1] if event is not lost])
    assert "integrity" in {violation.property for violation in compare(folder).violations}


def test_a_message_of_another_ring_is_not_taken_for_one_of_this(
    tmp_path: Path, right: list[list[TraceEvent]]
) -> None:
    """Even if only the order is asked for, and it has the same place there."""
    rings = sorted({e.ring for e in right[0] if isinstance(e, Delivered)})
    own = [e for e in right[0] if isinstance(e, Delivered) and e.node == 2]
    (early,) = (e for e in own if e.ring == rings[0] and e.seq == 40)
    (late,) = (e for e in own if e.ring == rings[1] and e.seq == 40)
    swapped = {id(early): rings[1], id(late): rings[0]}
    events: list[TraceEvent] = [
        msgspec.structs.replace(e, ring=swapped[id(e)]) if id(e) in swapped else e for e in right[0]
    ]
    ask = VerifyRequest(("total-order",), Claims(()))
    compare(write(tmp_path, events), ask)
    shown = [
        (event.node, event.ring, event.seq)
        for window in Case(tmp_path, 0, ask).windows
        for gap in look(window).gaps
        for event in gap
        if isinstance(event, Delivered) and event.ring != window.ring
    ]
    assert {(2, rings[1], 40), (2, rings[0], 40)} <= set(shown)


@pytest.mark.parametrize("stray", ["p3: o{}@(8,1)", "p3: d{}@(8,1)/(8,1)"])
@pytest.mark.parametrize("seq", [31, 62, 120])
def test_a_number_that_was_passed_over_and_turns_up_elsewhere(
    stray: str, seq: int, tmp_path: Path
) -> None:
    """It is left out by whoever delivers the next one, wherever in a window that is."""
    turn = "p1: o{0} d{0}\np2: d{0}\n"
    lines = ["ring(8,1){1,2}\np3: reg(4,3){3}\n"]
    for at in range(1, 160):
        if at == seq - 3:
            lines.append(stray.format(seq) + "\n")
        if at != seq:
            lines.append(turn.format(at))
    folder = write(tmp_path, list(parse("".join(lines) + "end{1,2}")))
    assert "D9" in {violation.property for violation in compare(folder).violations}


def later(events: list[TraceEvent], node: int, kind: type[Any]) -> list[TraceEvent]:
    """A processor's clock is put back for one event in the middle."""
    own = [at for at, e in enumerate(events) if isinstance(e, kind) and e.node == node]
    at = own[len(own) // 2]
    return [*events[:at], msgspec.structs.replace(events[at], t_us=1), *events[at + 1 :]]


@pytest.mark.parametrize("kind", [Delivered, Originated, Submit])
def test_a_clock_that_goes_back(
    kind: type, tmp_path: Path, right: list[list[TraceEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a trace is refused, however large: what came first cannot be told."""
    folder = write(tmp_path, later(right[0], 2, kind))
    with pytest.raises(TraceError, match=r"processor 2's event \d+ \(.* is earlier than its event"):
        list(read_trace(folder))
    for rows in (0, 10**9):  # condensed, and shown to the checks as it is
        monkeypatch.setattr(judging, "SMALL_ROWS", rows)
        found = verify_run(folder, 0, ASK)
        assert "processor 2's event" in found.error and not found.verdicts


@pytest.mark.parametrize("table", [*TABLES][1:])
def test_tables_that_claim_different_properties(table: str, tmp_path: Path) -> None:
    generate(tmp_path, SHAPES[0])
    path = tmp_path / table / "0.parquet"
    found = pq.read_table(path)
    claims = msgspec.json.encode(Claims(("D2",)))
    other = found.replace_schema_metadata({**found.schema.metadata, parquet.CLAIMS: claims})
    pq.write_table(other, path)
    for error in (verify_run(tmp_path, 0, ASK).error, str(refused(tmp_path))):
        assert error.startswith(f"{path}: claims other properties than {tmp_path}/submit/")


def refused(folder: Path) -> TraceError:
    with pytest.raises(TraceError) as error:
        read_claims(folder)
    return error.value


def changed(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Write a file anew, with other rows in groups of as many."""
    table, size = pq.read_table(path), pq.read_metadata(path).row_group(0).num_rows
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path, row_group_size=size)


@pytest.mark.parametrize("name", ["seq", "sender", "level", "sequence", "view_seq", "ring_rep"])
def test_what_a_later_row_of_an_event_says_counts_too(
    name: str, tmp_path: Path, right: list[list[TraceEvent]]
) -> None:
    """Frames are compared by their first rows; the others must say the same."""

    def contradict(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows[len(rows) // 2 :] if row["index"] == 1)
        row[name] += 1

    for table in ("deliver", "originate"):
        if table == "deliver" or name != "view_seq":
            folder = write(tmp_path / table, right[0])
            changed(folder / table / "0.parquet", contradict)
            found = verify_run(folder, 0, ASK)
            assert f"{table}/0.parquet: event " in found.error and not found.verdicts
            assert found.error.endswith(f"its rows contradict each other in {name}")


def test_an_event_with_rows_in_two_groups(
    tmp_path: Path, right: list[list[TraceEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in files that somebody has written anew: ours have whole events in a group."""
    set_sizes(monkeypatch, group=64, window=40, run=3)
    write(tmp_path, right[2])
    for path in tmp_path.glob("*/0.parquet"):
        pq.write_table(pq.read_table(path), path, row_group_size=16)
    assert not compare(tmp_path).violations


def test_no_row_is_lost_between_windows(
    tmp_path: Path, right: list[list[TraceEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery numbered like a configuration is neither before nor behind it."""
    folder = write(tmp_path, right[0])
    views = pq.read_table(folder / "view" / "0.parquet").to_pylist()
    conf = [row for row in views if row["node"] == 2 and not row["transitional"]][-1]

    def again(rows: list[dict[str, Any]]) -> None:
        mine = [
            at
            for at, row in enumerate(rows)
            if (row["node"], row["ring_seq"]) == (2, conf["view_seq"])
        ]
        number = {"n": conf["n"], "t_us": conf["t_us"]}
        rows.insert(mine[0], rows[mine[99]] | number | {"index": 0})

    changed(folder / "deliver" / "0.parquet", again)
    for rows in (0, 10**9):
        monkeypatch.setattr(judging, "SMALL_ROWS", rows)
        told = (
            f"processor 2 has an event {conf['n']} behind its {conf['n']}"
            if rows
            else ("1 messages have the number of a configuration or a crash")
        )
        assert told in verify_run(folder, 0, ASK).error


def columns_read(monkeypatch: pytest.MonkeyPatch, folder: Path, *only: str) -> set[str]:
    seen: set[str] = set()
    read = TraceFile.read

    def note(self: TraceFile, group: int, names: list[str] | None = None) -> Any:
        seen.update(f"{self.path.parent.name}.{name}" for name in names or ["*"])
        return read(self, group, names)

    monkeypatch.setattr(TraceFile, "read", note)
    verify_run(folder, 0, VerifyRequest(only, Claims(TAGS)))
    return {name for name in seen if not name.startswith(("view", "fault", "note"))}


def test_no_more_is_read_than_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, group=1000, window=1 << 20, run=8)
    generate(tmp_path, Shape(events=20_000, members=3, rings=1, frame=2))
    assert columns_read(monkeypatch, tmp_path, "M2", "M8") == set()
    assert columns_read(monkeypatch, tmp_path, "total-order") == {"deliver.seq"}
    assert not any("submit" in name for name in columns_read(monkeypatch, tmp_path, "D1", "D9"))
    everything = columns_read(monkeypatch, tmp_path)
    assert {"deliver.digest", "originate.digest", "submit.digest"} <= everything
    assert not {"deliver.index", "deliver.ring_seq", "deliver.run"} & everything


def test_a_property_that_needs_every_event(
    tmp_path: Path, right: list[list[TraceEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PROPERTIES["D9"], "reads", Reads.EVERY_EVENT)
    folder = write(tmp_path, right[1])
    assert set(
        verify_run(folder, 0, VerifyRequest(("D9", "D12"), Claims(()))).verdicts.values()
    ) == {"valid"}
    monkeypatch.setattr(judging, "WHOLE_ROWS", 100)
    found = verify_run(folder, 0, VerifyRequest(("D9", "D12"), Claims(())))
    assert found.verdicts == {"D9": Verdict.UNKNOWN, "D12": Verdict.VALID}
    assert found.reasons == {"D9": "it needs every event, and the run has too many"}


def test_what_a_file_claims_is_judged(tmp_path: Path, right: list[list[TraceEvent]]) -> None:
    for number, claims in enumerate((None, Claims(("M2", "D9")), Claims(("M2", "nonsense")))):
        with TraceWriter(tmp_path, number, claims) as writer:
            for event in right[0]:
                writer(event)
    ask = VerifyRequest((), Claims(("M3",)))
    assert [list(verify_run(tmp_path, run, ask).verdicts) for run in (0, 1)] == [
        ["M3"],
        ["M2", "D9"],
    ]
    assert "no check called 'nonsense'" in verify_run(tmp_path, 2, ask).error
    assert list(verify_run(tmp_path, 2, VerifyRequest(("D1",), Claims(()))).verdicts) == ["D1"]


@given(st.lists(st.integers(0, 9), max_size=25), st.lists(st.integers(0, 9), max_size=25))
def test_alignment_is_a_common_subsequence(one: list[int], other: list[int]) -> None:
    found = align(np.array(one, np.int64), np.array(other, np.int64)).tolist()
    taken = [at for at in found if at >= 0]
    assert taken == sorted(set(taken))
    assert all(at < 0 or other[at] == value for value, at in zip(one, found, strict=True))
    if one == other:
        assert found == list(range(len(one)))


def test_alignment_finds_its_way_behind_differences() -> None:
    one = np.arange(5000)
    parts = (one[:100], [7, 7], one[100:2000], one[2300:4000], [4001, 4000], one[4002:])
    other = np.concatenate(parts)
    lost = np.flatnonzero(align(one, other) < 0)
    assert 300 <= len(lost) <= 302
    assert set(range(2000, 2300)) <= set(lost.tolist())

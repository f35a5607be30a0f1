"""Judging a trace without what is alike gives what judging all of it gives, culprits included."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiling import spoil

from ringcast.checks import PROPERTIES, Suite, suite
from ringcast.checks.property import Reads
from ringcast.core.trace import TraceEvent
from ringcast.pipeline import judge as judging
from ringcast.pipeline.condense import pieces, plan
from ringcast.pipeline.judge import Ask, Case, judge
from ringcast.pipeline.verdicts import RunVerdict
from ringcast.sim.run import RunSpec, run
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson
from ringcast.traces import Claims, TraceWriter, parquet, read_trace
from ringcast.traces.generate import generate
from ringcast.traces.made import Shape
from ringcast.traces.text import parse

STORIES = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))
TAGS = tuple(tag for tag, kind in PROPERTIES.items() if kind.reads < Reads.EVERY_EVENT)
ASK = Ask(TAGS, Claims(()))


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


def culprits(found: Suite | RunVerdict) -> set[object]:
    """A cycle (D12-graph) is shorter without what is left out of it."""
    return {
        (v.property, v.nodes, () if v.property == "D12-graph" else v.messages, v.t_us)
        for v in found.violations
    }


def compare(folder: Path, ask: Ask = ASK) -> RunVerdict:
    """Both ways lead to the same verdicts and the same culprits."""
    exact = suite(ask.only)
    for event in read_trace(folder):
        exact.feed(event)
    found = judge(folder, 0, ask)
    assert not found.error
    assert found.verdicts == exact.verdicts()
    assert culprits(found) == culprits(exact)
    return found


def hidden(folder: Path, ask: Ask = ASK) -> int:
    """How many frames are not shown to the checks."""
    case = Case(folder, 0, ask)
    while at := case.open_windows():
        for window in at:
            case.take(window, judging.look(case.windows[window]))
    assert case.course is not None
    return sum(p.stretch.frames for f in case.course.found if f for p in f.pieces)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_golden_stories(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST_RUN", 1)
    story = path.read_text().partition("----\n")[0]
    compare(write(tmp_path, list(parse(story))))


@pytest.mark.parametrize("seed", [0, 3, 12, 20])
def test_swarm_runs(seed: int, tmp_path: Path) -> None:
    with TraceWriter(tmp_path) as writer:
        run(draw(seed), [writer])
    found = compare(tmp_path)
    assert {v.property for v in found.violations} <= {"agreement", "uniform-agreement"}


def test_a_calm_run_is_hardly_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, group=500, window=4000, run=8)
    spec = RunSpec(nodes=4, duration_us=400_000, workload=(Poisson(rate=300),))
    with TraceWriter(tmp_path) as writer:
        result = run(spec, [writer])
    assert not compare(tmp_path).violations
    assert hidden(tmp_path) > result.submitted * 0.8


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
    for seed in (2, 5):
        events: list[TraceEvent] = []
        run(draw(seed, nodes=3), [events.append])
        found.append(list(read_trace(write(tmp_path_factory.mktemp("right"), events))))
    return found


sizes = st.tuples(st.sampled_from((16, 64, 300)), st.sampled_from((40, 200, 1000)))


@settings(max_examples=70, deadline=None, derandomize=True)
@given(st.integers(0, 10**9), st.integers(0, 4), st.integers(1, 3), sizes, st.sampled_from((3, 9)))
def test_spoilt_traces(
    tmp_path_factory: pytest.TempPathFactory,
    right: list[list[TraceEvent]],
    seed: int,
    which: int,
    mistakes: int,
    sizes: tuple[int, int],
    run: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, *sizes, run)
        spoilt = spoil(right[which], Random(seed), mistakes)
        compare(write(tmp_path_factory.mktemp("spoilt"), spoilt))

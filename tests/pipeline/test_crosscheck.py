"""The queries against the checks: many small runs in one folder, judged in one pass by each.

The stories and the broken protocols are those of the checks. Where a property is broken, both must
name the same processors, messages and time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import edits
import msgspec
import pytest
from edits import Edited
from tampering import CASES, LOST, Trace, right

from ringcast.checks import PROPERTIES, Suite, Verdict, Violation, suite
from ringcast.core.registry import protocols
from ringcast.core.trace import Crashed, Faulted, Restarted, Submit, TraceEvent
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.verify.crosscheck import (
    NOT_EXPRESSIBLE,
    CrossResult,
    Culprit,
    cross_check,
    disagreements,
)
from ringcast.pipeline.verify.crosscheck.compare import BROKEN, CHECKS, DEFINITIONS, _result
from ringcast.pipeline.verify.crosscheck.relations import Relations, read_tables
from ringcast.sim.run import run
from ringcast.sim.swarm import draw
from ringcast.traces import Claims, TraceWriter, read_claims, read_trace
from ringcast.traces.synthetic.faults import Fault, FaultKind
from ringcast.traces.synthetic.generate import generate
from ringcast.traces.synthetic.group import Shape
from ringcast.traces.text import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "mutants"), str(TESTS / "checks")]

from catalogue import MUTANTS, killers  # noqa: E402
from test_against_naive import story  # noqa: E402

MANY = "content_of_many_that_wait"
"""A golden trace about a bound that queries do not have, as long as all the others together."""

RANDOM_STORIES = 20
SWARM_SEEDS = 4
SHAPE = Shape(events=4000, members=4, rings=4, frame=2, burst=3, safe=0.2)

LINGERING = """
ring(8,1){1,2}
p1: o1 d1
p2: d1
p1: down
p3: +600 reg(4,3){3}
p2: +300 commit(12,2){2} tr(10,2){2} reg(12,2){2}
end{2}
"""
"""Processor 2 stays for 600 us in a ring that has ceased."""

RELAPSE = """
ring(8,1){1,2}
p1: o1 d1
p2: d1
p1: down
p2: commit(12,2){2} tr(10,2){2} reg(12,2){2}
p1: up reg(12,1){1}
ring(16,1){1,2}
p1: sub2 o1#2 d1
p2: d1
end
"""
"""The second message of processor 1's second life comes after the first message of its first."""

BOUND = Claims(tuple(PROPERTIES), bound_us=500)

NOTED = {check.tag for sheet in protocols() for check in sheet.checks}
"""What a protocol checks by itself is beyond queries, mostly."""

BEYOND = {*NOTED, "D12-graph", "D8", "causal"}
"""What queries cannot always tell."""


FORMER = (
    *(27, 33, 40, 69, 102, 181, 245, 345, 650, 1023, 11_073, 11_389, 11_456),
    *(11_223, 11_246, 11_367, 11_390, 11_697, 100_027, 100_192, 200_098, 201_398),
    *(202_004, 202_013, 202_426, 203_026, 400_357, 400_784),
    *(402_632, 403_206, 403_712, 404_756, 405_406, 405_646, 405_650),
    *(404_117, 406_472, 407_455, 408_620, 408_625, 408_638),
)
"""Random edits that engines have disagreed about."""

SEEDS = (*FORMER, *range(1000, 1009), *range(10_000, 10_006))
"""These, and some others."""


class Tampered(NamedTuple):
    """Tampered traces and random edits, in the folder of the others and behind them."""

    first: int
    cases: dict[str, Claims]
    edits: dict[int, Edited]


class Traces:
    """A folder of runs, each with a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def add(self, name: str, events: Iterable[TraceEvent], claims: Claims | None = None) -> None:
        with self.writer(name, claims) as write:
            for event in events:
                write(event)

    def writer(self, name: str, claims: Claims | None = None) -> TraceWriter:
        self.names.append(name)
        return TraceWriter(self.folder, len(self.names) - 1, claims)

    def golden(self, name: str) -> None:
        self.add(name, parse((TESTS / "golden" / f"{name}.txt").read_text().partition("----\n")[0]))

    def made(self, name: str, faults: tuple[Fault, ...]) -> None:
        generate(self.folder, SHAPE, len(self.names), faults)
        self.names.append(name)

    def checks(self, run: int) -> Suite:
        """The answer of the checks."""
        claims = read_claims(self.folder, run)
        checks = suite(PROPERTIES, claims.bound_us if claims else None)
        for event in read_trace(self.folder, run):
            checks.feed(event)
        return checks


def relapse() -> Iterator[TraceEvent]:
    """Its first life calls itself the third incarnation, so what follows goes back in number."""
    first = True
    for event in parse(RELAPSE):
        first = first and not isinstance(event, Crashed)
        if first and isinstance(event, Restarted | Submit) and event.node == 1:
            yield msgspec.structs.replace(event, incarnation=3)
        else:
            yield event


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    found = Traces(tmp_path_factory.mktemp("crosscheck"))
    for path in sorted((TESTS / "golden").glob("*.txt")):
        if path.stem != MANY:
            found.golden(path.stem)
    for seed in range(RANDOM_STORIES):
        found.add(f"random {seed}", parse(story(Random(f"{seed}/story"), 45)))
    lingering = list(parse(LINGERING))
    paused = Faulted(2, 0, lingering[-1].t_us - 800, "pause")
    found.add("lingering", lingering, BOUND)
    found.add("lingering in a pause", [*lingering[:-1], paused, lingering[-1]], BOUND)
    for seed in range(SWARM_SEEDS):
        with found.writer(f"swarm {seed}") as write:
            run(draw(seed), [write])
    seen: set[str] = set()
    for name, killer in killers().items():
        if not seen.issuperset(killer.breaks):
            seen.update(killer.breaks)
            with found.writer(f"mutant {name}") as write, pytest.MonkeyPatch.context() as patch:
                MUTANTS[name].patch(patch)
                run(killer.spec(), [write])
    told = list(parse("ring(8,1){1,2}\np1: sub1 sub1 sub2 o1 o2x2 o3 d1-3\np2: d1-3\nend{1,2}"))
    lost = [event for event in told if isinstance(event, Submit)][1]
    found.add("a submission left out", (event for event in told if event is not lost))
    found.add("a lower incarnation", relapse())
    found.made("made", ())
    for kind in FaultKind:
        found.made(f"made {kind}", (Fault(kind),))
    return found


@pytest.fixture(scope="module")
def tampered(traces: Traces) -> Tampered:
    first, cases = len(traces.names), dict[str, Claims]()
    every = [*((*case, None) for case in CASES), *LOST]
    rights = {(protocol, loser): right(protocol, loser) for _, protocol, loser in every}
    for number, (kind, protocol, loser) in enumerate(every, first):
        events, claims = rights[protocol, loser]
        trace = Trace(events)
        kind.edit(trace)
        edits.write(traces.folder, number, trace.events, claims)
        after = f" after a loss of {loser}" if loser else ""
        cases[f"{kind.name} in {protocol}{after}"] = claims
    random = {seed: edits.edited(seed) for seed in SEEDS}
    for number, case in enumerate(random.values(), first + len(cases)):
        edits.write(traces.folder, number, case.events, case.claims)
    return Tampered(first, cases, random)


@pytest.fixture(scope="module")
def every_answer(
    spark: SparkSession,
    traces: Traces,
    tampered: Tampered,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[CrossResult]:
    """The answers of the queries, once for all runs: planning them takes most of the time."""
    return edits.by_queries(spark, traces.folder, tmp_path_factory.mktemp("together") / "tables")


@pytest.fixture(scope="module")
def answers(traces: Traces, every_answer: list[CrossResult]) -> dict[str, dict[str, CrossResult]]:
    """The answers by name of the run and property."""
    found: dict[str, dict[str, CrossResult]] = {name: {} for name in traces.names}
    for answer in every_answer:
        if answer.run < len(traces.names):
            found[traces.names[answer.run]][answer.property] = answer
    return found


def test_tampering_looks_the_same_to_queries(
    traces: Traces, tampered: Tampered, every_answer: list[CrossResult]
) -> None:
    lines = []
    for number, (name, claims) in enumerate(tampered.cases.items(), tampered.first):
        checks = edits.by_checks(read_trace(traces.folder, number), claims)
        found = disagreements(number, checks.verdicts(), checks.violations, every_answer)
        lines += [f"{name}: {line}" for line in found]
    assert not lines, "\n".join(lines)


def test_random_edits(traces: Traces, tampered: Tampered, every_answer: list[CrossResult]) -> None:
    """All three engines alike; ``edits.py`` looks at ten thousand."""
    first = tampered.first + len(tampered.cases)
    lines = edits.differences(traces.folder, tampered.edits, every_answer, first)
    assert not (found := list(lines)), "\n".join(found)


def test_queries_and_checks_agree(
    traces: Traces, answers: dict[str, dict[str, CrossResult]]
) -> None:
    lines = []
    for number, name in enumerate(traces.names):
        checks = traces.checks(number)
        found = answers[name].values()
        lines += [
            f"{name}: {line}"
            for line in disagreements(number, checks.verdicts(), checks.violations, found)
        ]
    assert not lines, "\n".join(lines)


def test_the_runs_show_everything(answers: dict[str, dict[str, CrossResult]]) -> None:
    """Every property is found valid, invalid and unknown somewhere, by the queries."""
    for tag in CHECKS:
        seen = {found[tag].verdict for found in answers.values()}
        assert seen >= set(Verdict), tag


def test_little_is_beyond_queries(answers: dict[str, dict[str, CrossResult]]) -> None:
    for name, found in answers.items():
        beyond = {tag for tag, answer in found.items() if answer.verdict == NOT_EXPRESSIBLE}
        if name.startswith(("valid", "swarm")) or name == "made":
            assert beyond <= NOTED, name
        assert beyond <= BEYOND, name


def test_a_bound_in_time(answers: dict[str, dict[str, CrossResult]]) -> None:
    lingering = answers["lingering"]["M5"]
    assert [culprit.nodes for culprit in lingering.culprits] == [(2, 1)]
    assert answers["lingering in a pause"]["M5"].verdict == Verdict.VALID


def test_only_what_is_odd_is_looked_at_closely(spark: SparkSession, tmp_path: Path) -> None:
    """What comes before a fault in its ring is not, and of other rings only the ends are."""
    shape = Shape(events=40_000, members=3, rings=2, frame=1)
    made = generate(tmp_path, shape, 0)
    generate(tmp_path, shape, 1, [Fault(FaultKind.SWAP, ring=1, seq=2000)])
    acts = Relations(spark, read_tables(spark, tmp_path, None), DEFINITIONS)["acts"]
    counts = {row["run"]: row["count"] for row in acts.groupBy("run").count().collect()}
    assert counts[0] < made.events / 50
    assert made.events / 10 < counts[1] < made.events / 2


def test_some_runs_and_some_properties(spark: SparkSession, tmp_path: Path) -> None:
    few = Traces(tmp_path)
    for name in ("d2_twice", "d9_hole", "valid_two_members"):
        few.golden(name)
    number = few.names.index("d9_hole")
    found = cross_check(spark, few.folder, ["D9 agreed", "D2"], [number])
    assert [(answer.property, answer.run, answer.verdict) for answer in found] == [
        ("D9", number, Verdict.INVALID),
        ("D2", number, Verdict.VALID),
    ]


def test_what_cannot_be_read_is_told_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    generate(tmp_path, SHAPE)
    path = tmp_path / "deliver" / "0.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PipelineError, match="cross-check") as error:
        cross_check(spark, tmp_path, ["D2"])
    assert "\n" not in str(error.value)


def violation(*messages: str, t_us: int = 7) -> Violation:
    return Violation("D9", "Two orders.", (1, 2), messages, t_us)


def test_culprits_are_told_in_one_order() -> None:
    """However Spark plans the query, the answers are the same."""
    rows = [
        {"nodes": [node], "messages": ["(1,1):2.0"], "moment": {"t_us": 5, "node": node, "n": 1}}
        for node in (3, 1, 2)
    ]
    facts = {"lost": None, "taken": None}
    found = _result("D6", 0, facts, {BROKEN: rows})
    assert [culprit.nodes for culprit in found.culprits] == [(1,), (2,), (3,)]


def test_disagreements_are_told() -> None:
    culprits = (Culprit((1, 2), ("a", "b"), 7), Culprit((1, 2), ("b", "c"), 7))
    cross = [
        CrossResult("D9", 3, Verdict.INVALID, culprits),
        CrossResult("D2", 3, Verdict.VALID),
        CrossResult("D8", 3, NOT_EXPRESSIBLE),
        CrossResult("D2", 4, Verdict.INVALID),
    ]
    invalid, valid = Verdict.INVALID, Verdict.VALID
    same = {"D9": invalid, "D2": valid, "D8": invalid}
    assert disagreements(3, same, [violation("b", "c")], cross) == []
    assert disagreements(3, {}, [], cross) == []
    (other,) = disagreements(3, {"D9": valid}, [], cross)
    assert other == "run 3, D9: valid, but invalid by queries"
    (other,) = disagreements(3, {"D2": Verdict.UNKNOWN}, [], cross)
    assert other == "run 3, D2: unknown, but valid by queries"
    for wrong in (violation("c", "b"), violation("b", "c", t_us=8)):
        (line,) = disagreements(3, same, [wrong], cross)
        assert "Two orders. By queries it is first broken at 7 us" in line

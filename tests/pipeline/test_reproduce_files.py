"""The files of the experiments say what they should, and what is made of them is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.papers import runners as probes
from ringcast.pipeline.papers.availability import Availability
from ringcast.pipeline.papers.experiments import PAPERS, Experiment, Source, names, of_table, read
from ringcast.pipeline.papers.paper_page import NUMBERS, PICTURES, REPORT, Results, publish
from ringcast.pipeline.papers.reproduce import (
    ClaimVerdict,
    Curve,
    Failure,
    Finding,
    Judged,
    Plot,
    verdict,
)
from ringcast.sim.faults import NodeCrash, Stall
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson


def test_experiments_come_in_their_order() -> None:
    assert names() == [
        "totem-throughput",
        "totem-latency",
        "totem-members",
        "totem-model",
        "totem-outages",
        "network-design",
        "detector-or-membership",
        "counter-control",
        "counter-comparison",
        "counter-levels",
        "rbp-costs",
        "rbp-changes",
        "rbp-retention",
        "rbp-details",
        "rings-measured",
        "rings-latency",
        "rings-cut",
        "rings-scaling",
        "rings-failing",
    ]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", names())
def test_an_experiment_is_whole(name: str, quick: bool) -> None:
    """Its tables can be made, and its queries name no others."""
    experiment = read(name, quick)
    for source in experiment.tables.values():
        if source.function:
            assert next(probes.items(source)).parameters
        else:
            assert any(True for _ in source.runs().points())
    lines = [line for picture in experiment.pictures for line in picture.lines]
    assert all(bool(line.query) != bool(line.points) for line in lines)
    queries = [claim.ours for claim in experiment.claims] + [line.query for line in lines]
    asked = {table for query in queries for table in re.findall(r"{(\w*)}", query)}
    assert asked == experiment.tables.keys()
    for claim in experiment.claims:
        assert claim.paper or (claim.low is None and claim.high is None), claim.text


@pytest.mark.parametrize(
    ("points", "alone", "tasks"), [(4, True, 4), (4, False, 1), (90, True, 64), (9, False, 3)]
)
def test_a_small_study_keeps_all_cores_busy(points: int, alone: bool, tasks: int) -> None:
    work = [probes.WorkItem(number, {}, {}) for number in range(points)]
    bundles = probes.bundled(work, alone)
    assert len(bundles) == tasks
    assert sorted(item.number for bundle in bundles for item in bundle) == list(range(points))


@pytest.mark.parametrize("name", names())
def test_a_quick_experiment_has_less_to_do(name: str) -> None:
    assert work(read(name, quick=True)) < work(read(name)) / 3


def work(experiment: Experiment) -> float:
    """In simulated microseconds, or whatever is the unit of a probe."""
    total = 0.0
    for source in experiment.tables.values():
        for item in probes.items(source):
            spec = item.arguments.get("spec")
            total += spec.duration_us if spec else cost(item.arguments)
    return total


def cost(arguments: dict[str, Any]) -> int:
    return next((arguments[unit] for unit in ("orders", "span_us") if unit in arguments), 300)


def test_what_is_recorded_is_what_the_files_ask() -> None:
    """docs/reproduce.md shows the record."""
    record = Path(__file__).parents[2] / "bench" / "results" / "reproduce.json"
    found = msgspec.json.decode(record.read_bytes(), type=Results)
    assert not found.quick
    assert found.experiments
    for each in found.experiments:
        claims = read(each.name).claims
        assert [(c.text, c.paper) for c in each.claims] == [(c.text, c.paper) for c in claims]


def raw(**changes: Any) -> dict[str, Any]:
    text = (PAPERS / "totem-members.toml").read_text("utf-8")
    whole: dict[str, Any] = msgspec.toml.decode(text)
    return whole | changes


def test_a_slip_in_a_file_is_an_error() -> None:
    of_table(raw())
    with pytest.raises(msgspec.ValidationError, match="unknown field `clams`"):
        of_table(raw(clams=[]))
    with pytest.raises(msgspec.ValidationError, match="missing required field `ours`"):
        of_table(raw(claims=[{"text": "of what?"}]))


def test_what_studies_have_in_common_lies_under_each_of_them() -> None:
    common = {"seeds": 3, "run": {"nodes": 4, "duration_us": 7}}
    tables = {
        "short": {"study": {"name": "short"}},
        "long": {"study": {"name": "long", "run": {"duration_us": 9}}},
    }
    found = of_table(raw(common=common, tables=tables, quick={})).tables
    shown = {
        name: (run.seed, run.nodes, run.duration_us)
        for name, source in found.items()
        for run in (source.runs().job(point).make() for point in source.runs().points())
    }
    assert shown == {"short": (3, 4, 7), "long": (3, 4, 9)}


def test_points_that_take_seconds_are_tasks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def bundled(work: object, alone: bool) -> list[Any]:
        asked.append(alone)
        raise InterruptedError

    monkeypatch.setattr(probes, "bundled", bundled)
    for alone in (False, True):
        source = Source(function="poll", grid={"rate": [100]}, alone=alone)
        with pytest.raises(InterruptedError):
            probes.probed(cast(Any, None), source, "tasks", quiet=True)
    assert asked == [False, True]


def test_items_are_all_combinations_with_all_seeds() -> None:
    source = Source(
        function="failures",
        grid={"design": ["random 95", "robust 14 8"]},
        fixed={"orders": 7},
        seeds="3..5",
    )
    found = list(probes.items(source))
    assert [item.number for item in found] == [0, 1, 2, 3]
    assert found[1].parameters == {"design": "random 95", "seed": 4}
    assert found[1].arguments == {"design": "random 95", "seed": 4, "orders": 7}


def test_a_probe_without_seeds_is_called_once_a_point() -> None:
    found = list(probes.items(Source(function="poll", grid={"rate": [100, 400]})))
    assert [item.arguments for item in found] == [{"rate": 100}, {"rate": 400}]


def test_the_columns_of_a_probe_are_those_of_what_it_gives() -> None:
    assert pa.schema(probes.row_type(probes.PROBES["failures"])) == pa.schema(
        [(name, pa.int64()) for name in ("deletions", "part", "orders", "heights")]
    )
    assert pa.schema(probes.row_type(probes.PROBES["outage"])) == pa.schema(
        [("first_ms", pa.float64()), ("turn_ms", pa.float64()), ("views", pa.int64())]
    )
    assert pa.schema(probes.row_type(probes.PROBES["silence"])) == pa.schema(
        [("longest_ms", pa.float64()), ("views", pa.int64()), ("members", pa.int64())]
    )


@pytest.mark.parametrize(("protocol", "views"), [("token-fd", 0), ("totem", 4)])
def test_a_crash_makes_those_who_stay_wait(protocol: str, views: int) -> None:
    """Until it is noticed, and where there is a membership until that has changed."""
    spec = RunSpec(
        protocol=protocol,
        nodes=3,
        network="ideal",
        duration_us=2_000_000,
        workload=(Poisson(rate=50),),
        faults=(NodeCrash(1_000_000, 2),),
    )
    found = probes.PROBES["silence"](spec)
    assert 75 < found.longest_ms < 1_000
    assert (found.views, found.members) == (views, 3)
    with pytest.raises(ValueError, match="nobody crashed"):
        probes.PROBES["silence"](msgspec.structs.replace(spec, faults=()))


def test_what_a_leave_costs_counts_from_the_wish_to_leave() -> None:
    """On a busy processor the leaver of irbp goes last, when the others are in their new view."""
    source = read("rbp-details", quick=True).tables["under_way"]
    spec = next(iter(probes.items(source))).arguments["spec"]
    found = probes.PROBES["silence"](spec)
    assert found.longest_ms > 7
    assert (found.views, found.members) == (4, 5)


def served(protocol: str, *faults: Any, **changes: Any) -> Availability:
    spec = RunSpec(
        protocol=protocol,
        nodes=3,
        network="ideal",
        duration_us=3_000_000,
        measure_from_us=1_000_000,
        workload=(Poisson(rate=50, safe=1.0),),
        faults=faults,
        **changes,
    )
    found = probes.PROBES["service"](spec)
    assert isinstance(found, Availability)
    return found


@pytest.mark.parametrize("protocol", ["token-fd", "totem", "total"])
def test_a_group_that_is_left_alone_serves_everybody(protocol: str) -> None:
    found = served(protocol)
    assert found.messages == pytest.approx(300, rel=0.2)
    assert found.messages_per_s == found.messages / 2
    assert 0.1 < found.mean_ms < found.late_ms < 50
    assert (found.missed, found.views_per_s, found.mistakes_per_s) == (0, 0, 0)


def test_who_is_thrown_out_misses_messages_and_with_a_detector_only_waits() -> None:
    """Two seconds, in which processor 3 stands still for one."""
    stall = Stall(1_500_000, for_us=1_000_000, node=3)
    out, waits = served("totem", stall), served("token-fd", stall)
    assert out.mistakes_per_s == waits.mistakes_per_s == 0.5
    assert out.views_per_s > 0 == waits.views_per_s
    assert out.missed > 2 > waits.missed == 0
    assert out.mean_ms > waits.mean_ms


def test_who_crashes_is_not_served_and_what_it_had_submitted_is_not_owed() -> None:
    found = served("token-fd", NodeCrash(2_000_000, 2))
    assert found.messages == pytest.approx(200, rel=0.2)
    assert found.missed == 0
    with pytest.raises(ValueError, match="no service to speak of"):
        served("token-fd", *(NodeCrash(500_000, node) for node in (1, 2, 3)))


def test_a_weaker_setting_is_held_to_what_the_default_claims() -> None:
    """Whoever is cut off with the token delivers at once what it numbers, if it may, and stops when
    it learns that the others have not got it."""
    source = read("rbp-costs", quick=True).tables["levels"]
    found = {
        item.parameters["config.resiliency"]: probes.PROBES["promises"](**item.arguments)
        for item in probes.items(source)
        if item.parameters["seed"] == 0
    }
    assert {level: (each.broken, each.stopped) for level, each in found.items()} == {
        "total": (0, 0),
        "majority": (0, 0),
        "unsafe": (2, 1),
    }


@pytest.mark.parametrize(
    ("agree", "word"),
    [
        ((True, None, True), ClaimVerdict.REPRODUCED),
        ((True, False), ClaimVerdict.IN_PART),
        ((False, None), ClaimVerdict.NOT_REPRODUCED),
    ],
)
def test_one_word_for_all_claims(agree: tuple[bool | None, ...], word: ClaimVerdict) -> None:
    assert verdict(tuple(Judged("", "", "", (), each) for each in agree)) is word


def finding(name: str = "some-ring", **changes: Any) -> Finding:
    whole: dict[str, Any] = {
        "name": name,
        "title": "Rings & <things>",
        "source": "A. Author",
        "says": "It was so.",
        "comment": "It is not.",
        "verdict": ClaimVerdict.IN_PART,
        "claims": (
            Judged("speed", "about 5", "4.9", (4.9,), True),
            Judged("size", "< 3", "3.5", (3.5,), False),
            Judged("colour", "", "7", (7.0,), None),
        ),
        "plots": (
            Plot(
                "Speed",
                "x",
                "y",
                False,
                (
                    Curve("ours", "ours", 0, (1, 2), (3, 4), (0.1, 0.2)),
                    Curve("paper", "paper", 1, (1,), (3,)),
                ),
            ),
            Plot("Size", "x", "y", True, (Curve("ours", "ours", 0, (1, 2), (3, 0.1)),)),
        ),
        "runs": 7,
    }
    return Finding(**whole | changes)


def test_the_page_needs_nothing_else_and_shows_everything(tmp_path: Path) -> None:
    publish([finding(), finding("other")], True, tmp_path)
    page = (tmp_path / REPORT).read_text("utf-8")
    assert page.count("<svg") == 4
    assert "Rings &amp; &lt;things&gt;" in page
    assert '<a href="#other">' in page
    assert '<section id="other">' in page
    assert "1 of 2" in page
    assert "&lt; 3" in page
    assert "ringcast reproduce other --quick" in page
    assert not re.search(r'(src|href)="(?!#)|url\((?!#)|<script', page), "the page loads something"
    assert not re.search(r"#1f2933(?!; --soft)", page), "a colour that the dark page cannot change"


def test_numbers_and_pictures_stand_beside_the_page(tmp_path: Path) -> None:
    given = publish([finding()], False, tmp_path)
    read_back = msgspec.json.decode((tmp_path / NUMBERS).read_bytes(), type=Results)
    assert read_back == given
    assert read_back.experiments == (finding(),)
    assert {each.name for each in (tmp_path / PICTURES).iterdir()} == {
        "some-ring-1.svg",
        "some-ring-2.svg",
    }


def test_a_failed_run_is_told_with_its_command(tmp_path: Path) -> None:
    failed = finding(
        verdict=ClaimVerdict.FAILED,
        failures=(Failure("D9: p1 & p2", "ringcast sim failed/1.toml"),),
    )
    publish([failed], True, tmp_path)
    page = (tmp_path / REPORT).read_text("utf-8")
    assert "D9: p1 &amp; p2" in page
    assert "ringcast sim failed/1.toml" in page


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match=r"cannot write to .*file"):
        publish([finding()], True, tmp_path / "file")

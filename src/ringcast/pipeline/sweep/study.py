"""Studies: many runs of the simulator, written down as one TOML file.

``[run]`` is what they have in common, in the words of a run file. ``[[cases]]`` are named changes
of it, ``[grid]`` holds lists and ranges of values. Every case is run at every point of the grid
with every seed. Settings are named by their place: ``config.max_packet``, ``workload.0.rate``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import floor, prod
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from ringcast.core.errors import UNREADABLE_TOML
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.sweep.measures import MEASURES
from ringcast.sim.batch import Job
from ringcast.sim.faults import FaultPlan
from ringcast.sim.presets import preset
from ringcast.sim.runfile import load_faults
from ringcast.sim.scenario.syntax import seed_range
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.swarm import FEWEST_FIXED


class StudyError(PipelineError, ValueError):
    """A study that cannot be made; the text names the setting and says what it may be."""


MOST_POINTS = 200_000
"""A larger study is taken for a slip of the pen."""

T = TypeVar("T")
Table: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]
"""Of a setting: the keys that lead to it. In a list of tables, a number from 0 on is a key."""


class ParameterRange(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from"}
):
    """Evenly spaced values of the grid, both ends included."""

    first: int | float
    to: int | float
    step: int | float = 1

    def values(self) -> list[int | float]:
        """All of them."""
        if not (self.step > 0 and self.to >= self.first):
            raise StudyError("a range goes from the smaller to the larger, by a step above 0")
        steps = (self.to - self.first) / self.step
        if steps >= MOST_POINTS:
            raise StudyError(f"a range of more than {MOST_POINTS:,} values")
        # 0.1 is not a tenth, so the last step may fall short of the end by a hair.
        return [self.first + i * self.step for i in range(floor(steps + 1e-9) + 1)]


class StudyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study as it is written."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    seeds: int | str = "0..10"
    """One seed, or a range as of ``ringcast sim --seeds``."""
    measures: tuple[str, ...] | None = None
    """Those wanted in the table of results, in this order; all by default."""
    traces: bool = False
    """Whether the traces of all runs are kept."""
    run: Table = {}
    cases: tuple[Table, ...] = ()
    grid: Table = {}


class Combination(msgspec.Struct, frozen=True):
    """Everything of a run but its seed."""

    parameters: Table
    """What sets it apart from the others of its study: settings by name."""
    job: Job
    """Its run, with some seed."""


class Point(msgspec.Struct, frozen=True):
    """One run of a study."""

    combination: int
    seed: int


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A study in which everything is looked up and checked."""

    name: str
    seeds: range
    measures: tuple[str, ...]
    traces: bool
    combinations: tuple[Combination, ...]
    warnings: tuple[str, ...]
    """What an author should know of the fault plans."""

    def points(self) -> Iterator[Point]:
        """Every run, in the order of the table of results."""
        for combination, seed in product(range(len(self.combinations)), self.seeds):
            yield Point(combination, seed)

    def job(self, point: Point) -> Job:
        """What to run for a point."""
        job = self.combinations[point.combination].job
        return msgspec.structs.replace(job, seed=point.seed)


def load(path: Path, changes: Mapping[str, Any] | None = None) -> Study:
    """Read and check a study file; StudyError says where it is wrong.

    ``changes`` are laid over the file first, as a case is laid over the run.
    """
    try:
        return parse(path.read_text("utf-8"), path.parent, changes)
    except OSError as error:
        reason = error.strerror
        raise StudyError(f"cannot read {str(path)!r} ({reason}); a study is wanted here") from None
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from None


def parse(text: str, folder: Path, changes: Mapping[str, Any] | None = None) -> Study:
    """The study that ``text`` describes; fault plans are looked for in ``folder``."""
    try:
        raw = msgspec.toml.decode(text)
    except UNREADABLE_TOML as error:
        raise StudyError(str(error)) from None
    return of_table(overlay(raw, dict(changes or {})), folder)


def of_table(raw: Table, folder: Path) -> Study:
    """The study that a table describes, as the text of its file would."""
    file = _convert(raw, StudyFile)
    asked = file.measures or ()
    try:
        seeds = seed_range(str(file.seeds))
    except ValueError as error:
        raise StudyError(f"seeds: {error}") from None
    if strange := [name for name in asked if name not in MEASURES]:
        raise StudyError(f"measures: no {strange[0]!r}; known: {', '.join(MEASURES)}")
    cases, axes = _cases(file), _axes(file)
    size = len(cases) * prod(map(len, axes.values())) * len(seeds)
    if size > MOST_POINTS:
        raise StudyError(f"{size:,} runs are more than {MOST_POINTS:,}; make it several studies")

    places = _places(cases, axes)
    combinations: list[Combination] = []
    warnings: dict[str, None] = {}
    for case, *values in product(cases, *axes.values()):
        settings = overlay(file.run, cases[case])
        for place, value in zip(axes, values, strict=True):
            settings = overlay(settings, _nested(place, value))
        varied = {".".join(place): _found(settings, place) for place in places}
        named = {"case": case} if file.cases else {}
        try:
            job, told = _job(settings, folder)
            _check_measures(job, asked)
        except ValueError as error:
            at = ", ".join(f"{name} = {value!r}" for name, value in (named | varied).items())
            raise StudyError(f"{at}: {error}" if at else str(error)) from None
        protocol = {"protocol": job.spec.protocol if job.spec else job.protocol}
        # The number of processors, which a swarm may draw, is known after the run.
        parameters = {k: v for k, v in (named | protocol | varied).items() if k != "nodes"}
        combinations.append(Combination(parameters, job))
        warnings |= dict.fromkeys(told)
    return Study(
        name=file.name,
        seeds=seeds,
        measures=asked or tuple(MEASURES),
        traces=file.traces,
        combinations=tuple(combinations),
        warnings=tuple(warnings),
    )


def overlay(base: Any, change: Any, place: Place = ()) -> Any:
    """``base`` with ``change`` laid over it, table by table; neither of them is altered.

    A table that says its ``kind`` is a thing of its own and replaces what was there.
    """
    if not isinstance(change, dict) or "kind" in change:
        return change
    if isinstance(base, list):
        whole: dict[str, Any] = {str(at): item for at, item in enumerate(base)}
        if strange := [key for key in change if key not in whole]:
            name, last = ".".join(place), len(base) - 1
            raise StudyError(f"{name}.{strange[0]}: {name} is a list with entries 0 .. {last}")
    elif place[-1:] == ("network",) and isinstance(base, str):
        try:
            whole = msgspec.to_builtins(preset(base))
        except LookupError as error:
            raise StudyError(str(error)) from None
    else:
        whole = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        whole[key] = overlay(whole.get(key), value, (*place, key))
    return list(whole.values()) if isinstance(base, list) else whole


def _leaves(table: Table, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The values of nested tables, and where they are."""
    for key, value in table.items():
        if isinstance(value, dict) and not value.keys() & {"kind", "from"}:
            yield from _leaves(value, (*place, key))
        else:
            yield (*place, key), value


def _nested(place: Place, value: Any) -> Table:
    """Tables in which ``value`` is at ``place`` and nothing else."""
    for key in reversed(place):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def _found(settings: Any, place: Place) -> Any:
    """The value at ``place``; None if there is none."""
    for key in place:
        if isinstance(settings, list):
            settings = settings[int(key)]
        else:
            settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _cases(file: StudyFile) -> dict[str, Table]:
    """The changes of each case by its name; without cases, one that changes nothing."""
    cases: dict[str, Table] = {}
    for at, case in enumerate(file.cases):
        name = case.get("name")
        if not isinstance(name, str) or not name or name in cases:
            raise StudyError(f"cases[{at}]: every case has a name, and no two have the same")
        cases[name] = {key: value for key, value in case.items() if key != "name"}
    return cases or {"": {}}


def _axes(file: StudyFile) -> dict[Place, list[Any]]:
    """The values of each setting in the grid."""
    axes: dict[Place, list[Any]] = {}
    for place, given in _leaves(file.grid):
        name = ".".join(place)
        try:
            values = _convert(given, ParameterRange).values() if isinstance(given, dict) else given
        except ValueError as error:
            raise StudyError(f"grid: {name}: {error}") from None
        if not isinstance(values, list) or not values:
            raise StudyError(f"grid: {name} is no list of values; what is fixed belongs to [run]")
        if len({msgspec.json.encode(value) for value in values}) < len(values):
            raise StudyError(f"grid: {name} has a value twice")
        axes[place] = values
    return axes


def _places(cases: Mapping[str, Table], axes: Mapping[Place, list[Any]]) -> list[Place]:
    """The settings that differ between combinations; each is set by the cases or by the grid."""
    by_cases = dict.fromkeys(place for case in cases.values() for place, _ in _leaves(case))
    for one, other in product(by_cases, axes):
        if one[: len(other)] == other[: len(one)]:
            raise StudyError(f"{'.'.join(other)} is in the grid and in a case; choose one of them")
    return [*by_cases, *axes]


def _job(settings: Table, folder: Path) -> tuple[Job, list[str]]:
    """The run that ``settings`` describe, and warnings."""
    for own, instead in (("seed", "seeds"), ("swarm", 'faults = "swarm"')):
        if own in settings:
            raise StudyError(f"{own} is no setting of a study, which has {instead}")
    faults = settings.get("faults")
    bare = {key: value for key, value in settings.items() if key != "faults"}
    if faults == "swarm":
        if drawn := sorted(bare.keys() - {"protocol", "nodes"}):
            raise StudyError(f"{drawn[0]} is drawn by a swarm from the seed; leave it out")
        spec = _convert(bare, RunSpec)
        prepare(spec)
        if spec.nodes < FEWEST_FIXED:
            raise StudyError(f"a swarm needs {FEWEST_FIXED} processors or more")
        return Job(0, spec.protocol, spec.nodes if "nodes" in bare else None), []
    plan: FaultPlan = ()
    warnings: list[str] = []
    if isinstance(faults, str):
        if faults != "none":
            plan, warnings = load_faults(folder / faults, _convert(bare, RunSpec).ids)
        settings = bare | {"faults": msgspec.to_builtins(plan)}
    spec = _convert(settings, RunSpec)
    prepare(spec)
    return Job(0, spec=spec), warnings


def _check_measures(job: Job, asked: tuple[str, ...]) -> None:
    """Refuse what was asked for and cannot be measured."""
    if job.spec is None or job.spec.measure_from_us is None:
        timed = [name for name in asked if MEASURES[name].timed]
        if timed and job.spec is None:
            raise StudyError(f"measures: a swarm has no {timed[0]}")
        if timed:
            raise StudyError(f"measures: {timed[0]} needs a run with measure_from_us")


def _convert(value: Any, kind: type[T]) -> T:
    """``value`` as ``kind``; StudyError says what does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise StudyError(str(error)) from None

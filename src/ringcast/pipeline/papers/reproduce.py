"""Carries out experiments of the papers on Spark and says whether theirs and ours agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.papers.experiments import Claim, Experiment, Picture, PictureLine, read
from ringcast.pipeline.papers.runners import probed
from ringcast.pipeline.sweep.job import command_for, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ClaimVerdict(StrEnum):
    """What came of an experiment."""

    REPRODUCED = "reproduced"
    """Everything that is judged agrees."""
    IN_PART = "in part"
    NOT_REPRODUCED = "not reproduced"
    FAILED = "failed"
    """A run violated a property of its protocol, or broke off; nothing is to be concluded."""


class Judged(msgspec.Struct, frozen=True):
    """A claim and what we found."""

    text: str
    paper: str
    ours: str
    values: tuple[float, ...]
    agrees: bool | None
    """None if the paper gives nothing to judge by."""


class Curve(msgspec.Struct, frozen=True):
    """A line with its points."""

    label: str
    kind: str
    colour: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    half: tuple[float, ...] = ()
    """Half the width of the band around y, if there is one."""


class Plot(msgspec.Struct, frozen=True):
    """A picture with its points."""

    title: str
    x: str
    y: str
    logarithmic: bool
    curves: tuple[Curve, ...]


class Failure(msgspec.Struct, frozen=True):
    """A simulation that did not end well."""

    explanation: str
    repeat: str


class Finding(msgspec.Struct, frozen=True):
    """An experiment, carried out."""

    name: str
    title: str
    source: str
    says: str
    comment: str
    verdict: ClaimVerdict
    claims: tuple[Judged, ...]
    plots: tuple[Plot, ...]
    runs: int
    """Rows of all its tables."""
    failures: tuple[Failure, ...] = ()


def reproduce(
    spark: SparkSession, name: str, folder: Path, *, quick: bool = False, quiet: bool = True
) -> Finding:
    """Carry out one experiment. Simulations are kept in ``folder`` and not run again."""
    experiment = read(name, quick)
    tables: dict[str, pa.Table] = {}
    failures: list[Failure] = []
    for table, source in experiment.tables.items():
        if source.function:
            tables[table] = probed(spark, source, f"tasks of {name}", quiet)
        else:
            outcome = sweep(source.runs(), folder, quiet=quiet)
            tables[table] = outcome.results
            failures += [
                Failure(str(row["explanation"]), command_for(row, folder))
                for row in outcome.failures
            ]
    return found(spark, name, experiment, tables, failures)


def found(
    spark: SparkSession,
    name: str,
    experiment: Experiment,
    tables: Mapping[str, pa.Table],
    failures: list[Failure],
) -> Finding:
    """What the tables of an experiment say."""
    ask = ExperimentTables(spark, tables)
    claims = tuple(judged(ask, claim) for claim in experiment.claims)
    return Finding(
        name=name,
        title=experiment.title,
        source=experiment.source,
        says=experiment.says,
        comment=experiment.comment,
        verdict=ClaimVerdict.FAILED if failures else verdict(claims),
        claims=claims,
        plots=tuple(plotted(ask, picture) for picture in experiment.pictures),
        runs=sum(table.num_rows for table in tables.values()),
        failures=tuple(failures),
    )


def verdict(claims: tuple[Judged, ...]) -> ClaimVerdict:
    """One word for all claims."""
    agree = [claim.agrees for claim in claims if claim.agrees is not None]
    if all(agree):
        return ClaimVerdict.REPRODUCED
    return ClaimVerdict.IN_PART if any(agree) else ClaimVerdict.NOT_REPRODUCED


class ExperimentTables:
    """The tables of an experiment, for queries."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, pa.Table]) -> None:
        self._spark = spark
        self._frames: dict[str, DataFrame] = {
            name: spark.createDataFrame(table) for name, table in tables.items()
        }

    def __call__(self, query: str) -> pa.Table:
        """What a query gives, of those tables that it names."""
        named = {name: each for name, each in self._frames.items() if f"{{{name}}}" in query}
        kept: Any = named  # Spark takes tables by keyword
        return self._spark.sql(query, **kept).toArrow()


def judged(ask: ExperimentTables, claim: Claim) -> Judged:
    """A claim beside what we measured."""
    rows = ask(claim.ours).to_pylist()
    values = [value for row in rows for value in row.values()]
    if len(rows) != 1 or None in values:
        raise PipelineError(f"{claim.text!r} has {len(rows)} rows and not one with all its numbers")
    numbers = tuple(float(value) for value in values)
    agrees = None
    if claim.low is not None or claim.high is not None:
        agrees = all(
            (claim.low is None or number >= claim.low)
            and (claim.high is None or number <= claim.high)
            for number in numbers
        )
    return Judged(claim.text, claim.paper, claim.show.format(*numbers), numbers, agrees)


def plotted(ask: ExperimentTables, picture: Picture) -> Plot:
    """A picture with the points of its lines."""
    curves: list[Curve] = []
    for line in picture.lines:
        curves += curved(ask, line, len(curves))
    return Plot(picture.title, picture.x, picture.y, picture.logarithmic, tuple(curves))


def curved(ask: ExperimentTables, line: PictureLine, colour: int) -> Iterator[Curve]:
    """The points of a line; one for each value of its query's column ``line``, if it has that."""
    colour = colour if line.colour is None else line.colour
    if not line.query:
        x, y = zip(*line.points, strict=True)
        yield Curve(line.label, line.kind, colour, x, y)
        return
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in ask(line.query).to_pylist():
        parts.setdefault(row.get("line", line.label), []).append(row)
    for further, (label, rows) in enumerate(parts.items()):
        columns = [
            tuple(float(row[name]) for row in rows if row.get(name) is not None)
            for name in ("x", "y", "half")
        ]
        yield Curve(label, line.kind, colour + further, *columns)

"""``ringcast sweep``: the simulations of a study, on Spark, with a table of results."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as Grid

from ringcast.console.options import (
    OK,
    UNKNOWN,
    VIOLATED,
    Master,
    Remote,
    fail,
    one_line_errors,
    seed_range,
)
from ringcast.console.output import MOST_SHOWN, as_json, console, say
from ringcast.pipeline.spark.session import Where, require_spark

if TYPE_CHECKING:
    from ringcast.pipeline.sweep.job import SweepOutcome
    from ringcast.pipeline.sweep.simtests import SeedsFound

MOST_MEASURES = 4
"""Shown for people; the table has them all."""


def command(
    study: Annotated[
        Path | None, typer.Argument(help="What to run, as TOML (see docs/pipeline.md).")
    ] = None,
    simtest: Annotated[
        str | None,
        typer.Option(metavar="FILE::TEST", help="Instead of a study: seeds of a simtest."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Of the simtest: 17, or 0..200.")] = "0..1000",
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the results [default: sweep-NAME-OF-THE-FILE here]."),
    ] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="Keep the traces, even if the study does not ask.")
    ] = False,
    master: Master = None,
    remote: Remote = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a study of simulations on Spark, and go on where an earlier sweep was stopped."""
    began_s = perf_counter()
    if (study is None) == (simtest is None):
        fail("name a study, or a test with --simtest FILE::TEST")
    if simtest is not None:
        sweep_seeds(simtest, seed_range(seeds), out, Where(master, remote), json)
    assert study is not None
    with one_line_errors():
        require_spark()
        from ringcast.pipeline.sweep.job import command_for, sweep
        from ringcast.pipeline.sweep.study import load

        try:
            asked = load(study)
        except ValueError as error:
            fail(str(error))
        for warning in asked.warnings:
            typer.echo(f"{study}: {warning}", err=True)
        folder = out or Path(f"sweep-{study.stem}")
        found = sweep(asked, folder, Where(master, remote), traces=traces, quiet=json)

    failures: list[dict[str, Any]] = [
        row | {"repeat": command_for(row, folder)} for row in found.failures
    ]
    if json:
        as_json(
            {
                "study": asked.name,
                "runs": found.results.num_rows,
                "simulated": found.simulated,
                "statuses": found.statuses,
                "seconds": round(perf_counter() - began_s, 3),
                "results": str(folder / "results.parquet"),
                "failures": failures,
            }
        )
    else:
        print_estimates(found)
        print_failures(failures)
        ended = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
        say(
            f"{escape(asked.name)}: {found.results.num_rows} runs ({ended}), {found.simulated} of "
            f"them now, in {perf_counter() - began_s:.1f} s: {escape(str(folder))}/results.parquet"
        )
    statuses = found.statuses
    raise typer.Exit(VIOLATED if "violated" in statuses else UNKNOWN if "error" in statuses else OK)


def sweep_seeds(test: str, seeds: range, out: Path | None, where: Where, json: bool) -> NoReturn:
    """The seeds of a user's test: failures by kind, and how they are spread over the seeds."""
    began_s = perf_counter()
    with one_line_errors():
        require_spark()
        from ringcast.pipeline.sweep.simtests import repeat, sweep_simtest, target

        named = target(test)
        folder = out or Path(f"sweep-{named.name}")
        found = sweep_simtest(named, seeds, folder, where, quiet=json)
    seconds = perf_counter() - began_s
    kinds = [
        {"kind": kind, "failures": times, "first": first, "repeat": repeat(named, first)}
        for kind, times, first in found.kinds
    ]
    if json:
        density = [
            {"from": first, "seeds": size, "failures": failed}
            for first, size, failed in found.density(seeds)
        ]
        as_json(
            {
                "test": named.spelt,
                "runs": found.runs,
                "seconds": round(seconds, 3),
                "kinds": kinds,
                "density": density,
                "never_met": found.never_met,
                "failures": str(folder / "failures.parquet"),
            }
        )
    else:
        print_kinds(found, seeds, kinds)
        say(
            f"{escape(named.name)}: {found.runs} seeds, {len(found.failures)} failed, in "
            f"{seconds:.1f} s: {escape(str(folder))}/failures.parquet"
        )
    raise typer.Exit(VIOLATED if found.failures or found.never_met else OK)


def print_kinds(found: SeedsFound, seeds: range, kinds: list[dict[str, Any]]) -> None:
    """What failed, how often and where among the seeds; what was never seen."""
    for name in found.never_met:
        say(f"[bold red]never met[/]: {escape(name)}")
    if not kinds:
        return
    grid = Grid(title="failures by kind", title_justify="left", box=SIMPLE_HEAD)
    for name in ("kind", "failures", "share"):
        grid.add_column(name, justify="right" if name in ("failures", "share") else "left")
    for row in kinds[:MOST_SHOWN]:
        share = f"{row['failures'] / found.runs:.3%}"
        grid.add_row(escape(row["kind"]), str(row["failures"]), share)
    console().print(grid)
    for row in kinds[:MOST_SHOWN]:
        typer.echo(f"repeat: {row['repeat']}")  # one line, however long, to be copied
    spread = ", ".join(f"{failed}" for _, _, failed in found.density(seeds))
    say(f"over the seeds, in parts of equal size: {spread}")


def print_estimates(found: SweepOutcome) -> None:
    """What was measured, a row for each combination of parameters."""
    from ringcast.pipeline.sweep.measures import MEASURES
    from ringcast.pipeline.sweep.results import estimate, parameters

    results = found.results
    measured = [
        name
        for name in results.schema.names
        if name in MEASURES and results[name].null_count < results.num_rows
    ][:MOST_MEASURES]
    estimates = estimate(results, measured).to_pylist()
    names = [name for name in parameters(results) if len(results[name].unique()) > 1]
    grid = Grid(
        title="means over the seeds, 95 % confidence", title_justify="left", box=SIMPLE_HEAD
    )
    for name in (*names, "runs", *measured):
        grid.add_column(escape(name), justify="right")
    for row in estimates[:MOST_SHOWN]:
        told = ["" if row[name] is None else escape(str(row[name])) for name in (*names, "runs")]
        grid.add_row(*told, *(figure(row[name], row[f"{name}_half"]) for name in measured))
    console().print(grid)
    if len(estimates) > MOST_SHOWN:
        say(f"and {len(estimates) - MOST_SHOWN} more rows")


def figure(mean: float | None, half: float | None) -> str:
    """A mean and how far off it may be."""
    if mean is None:
        return ""
    return f"{mean:,.4g}" if half is None else f"{mean:,.4g} ± {half:.2g}"


def print_failures(failures: list[dict[str, Any]]) -> None:
    """What failed, and the line that repeats it."""
    for row in failures[:MOST_SHOWN]:
        what = f"violated {row['property']}" if row["property"] else row["status"]
        say(f"[bold red]{what}[/]: {escape(str(row['explanation']))}")
        say(f"  repeat: {escape(row['repeat'])}")
    if len(failures) > MOST_SHOWN:
        say(f"  and {len(failures) - MOST_SHOWN} more; --json lists them all")

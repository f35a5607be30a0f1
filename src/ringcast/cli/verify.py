"""``ringcast verify``: the properties a protocol claims, over traces of any size, on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as Grid

from ringcast.checks import PROPERTIES, Verdict, suite
from ringcast.console.options import OK, UNKNOWN, VIOLATED, Master, Remote, fail, one_line_errors
from ringcast.console.output import MOST_SHOWN, STYLE, as_json, console, say
from ringcast.core.registry import protocol as protocol_of
from ringcast.pipeline.spark.session import Where, open_session, require_spark
from ringcast.traces import Claims, TraceError, TraceWriter
from ringcast.traces.live import in_order, live_claims, read_live
from ringcast.traces.whole import Wholeness

if TYPE_CHECKING:
    from ringcast.pipeline.verify.verdicts import Report

VIOLATIONS = Path("ringcast-violations")
"""Where violations go if nobody says."""


def claims_of(protocol: str, profile: str | None) -> Claims:
    """What a protocol claims in a profile of it."""
    try:
        sheet = protocol_of(protocol)
        return Claims(sheet.claims(sheet.profile(profile or "")))
    except LookupError as error:
        fail(str(error.args[0]))


def chosen(only: str) -> tuple[str, ...]:
    """The properties of ``--only``."""
    tags = tuple(tag.strip() for tag in only.split(","))
    try:
        suite(tags)
    except LookupError as error:
        fail(f"--only: {error.args[0]}")
    return tags


@contextmanager
def as_files(paths: list[Path], given: bool) -> Iterator[dict[Path, str]]:
    """Folders of Parquet files, and what they lack; logs of live members are put together in one
    for the time. They must say what they claim, unless that is ``given``."""
    with TemporaryDirectory(prefix="ringcast-verify-") as scratch:
        folders: dict[Path, str] = {}
        for number, path in enumerate(paths):
            if any(path.glob("*.trace")):
                if (path / "fault").exists():
                    fail(f"{path}: holds logs of live members and tables too; part them")
                folder = Path(scratch, str(number))
                claims = live_claims([path])
                if claims is None and not given:
                    fail(f"{path}: the logs do not say what their protocol claims; add --protocol")
                whole = Wholeness()
                with TraceWriter(folder, claims=claims) as writer:
                    for event in in_order(read_live([path], whole=whole)):
                        writer(event)
                lacks = (f"of processor {node}: {what}" for node, what in whole.lacks().items())
                folders[folder.resolve()] = "; ".join(lacks)
            else:
                folders[path] = ""
        yield folders


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders of traces: Parquet files, or the logs of live members."),
    ],
    only: Annotated[
        str | None,
        typer.Option(metavar="<tag,...>", help="These properties instead of all claimed ones."),
    ] = None,
    cross_check: Annotated[
        bool,
        typer.Option("--cross-check", help="Have Spark's SQL judge it as well, and compare."),
    ] = False,
    violations: Annotated[
        Path | None,
        typer.Option(
            help="Write the violations as a Parquet file into this folder "
            f"[default: {VIOLATIONS}, if there are any]."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Judge by what this protocol claims [default: what the files say]."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The protocol's settings, by name [default: the first].")
    ] = None,
    master: Master = None,
    remote: Remote = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every property the protocol claims over traces of any size, on Spark."""
    if profile is not None and protocol is None:
        fail("--profile is a profile of the protocol, so add --protocol")
    usual = claims_of(protocol, profile) if protocol is not None else Claims(())
    tags = chosen(only) if only is not None else usual.tags
    with one_line_errors():
        require_spark()
        from ringcast.pipeline.verify.job import runs_in, second_opinion, verify
        from ringcast.pipeline.verify.run_verifier import VerifyRequest
        from ringcast.pipeline.verify.verdicts import Report, RunVerdict, write_violations

        try:
            with as_files(paths, bool(tags)) as folders:
                lacks = {str(folder): what for folder, what in folders.items() if what}
                for folder in folders:
                    runs_in(folder)  # before anything slow begins
                with open_session(Where(master, remote)) as spark:
                    report = verify(spark, folders, VerifyRequest(tags, usual), quiet=json)
                    if cross_check:
                        second = second_opinion(spark, report, lacks)
                        report = msgspec.structs.replace(report, second=second)
                    runs = [each.in_doubt(lacks.get(each.folder, "")) for each in report.runs]
                    report = msgspec.structs.replace(report, runs=tuple(runs))
        except TraceError as error:  # a log that cannot be put together with the others
            if not json:
                fail(str(error))
            report = Report((RunVerdict(folder="", run=0, error=str(error)),), 0.0)
        written = None
        if report.violations or violations is not None:
            written = write_violations(report, violations or VIOLATIONS)
    if json:
        as_json(summary(report, written))
    else:
        show(report, written)
    differ = report.second.disagreements if report.second else []
    for line in (*report.errors, *(f"the cross-check disagrees: {text}" for text in differ)):
        typer.echo(f"ringcast: {line}", err=True)
    answers = report.properties.values()
    certain = bool(answers) and "unknown" not in answers and not (report.errors or differ)
    broken = bool(report.violations) and not differ
    raise typer.Exit(VIOLATED if broken else OK if certain else UNKNOWN)


def summary(report: Report, written: Path | None) -> dict[str, Any]:
    """What a program wants to know."""
    return {
        "events": report.events,
        "seconds": round(report.seconds, 3),
        "runs": len(report.runs),
        "properties": report.properties,
        "violations": [
            {"trace": each.folder, "run": each.run, **msgspec.to_builtins(violation)}
            for each, violation in report.violations
        ],
        "unknown": reasons(report),
        "errors": report.errors,
        "violation_table": None if written is None else str(written),
        "cross_check": report.second,
    }


def reasons(report: Report) -> dict[str, list[str]]:
    """By property: why it is unknown in some runs, each reason once."""
    found: dict[str, dict[str, None]] = {}
    for each in report.runs:
        for tag, reason in each.reasons.items():
            found.setdefault(tag, {})[reason] = None
    return {tag: list(why) for tag, why in found.items()}


def show(report: Report, written: Path | None) -> None:
    """A table, then what is broken and what is unknown."""
    several = len(report.runs) > 1
    names = ["property", "", "verdict", "violations"]
    names += ["valid in", "unknown in"] if several else []
    names += ["by queries"] if report.second else []
    grid = Grid(box=SIMPLE_HEAD)
    for name in names:
        right = name in ("violations", "valid in", "unknown in")
        grid.add_column(name, justify="right" if right else "left", no_wrap=bool(name))
    broken = [violation.property for _, violation in report.violations]
    for tag, verdict in report.properties.items():
        cells = [escape(PROPERTIES[tag].title), f"[{STYLE[verdict]}]{verdict}[/]"]
        cells.append(str(broken.count(tag) or ""))
        if several:
            given = [each.verdicts.get(tag) for each in report.runs]
            cells += (str(given.count(kind)) for kind in (Verdict.VALID, Verdict.UNKNOWN))
        if report.second:
            cells.append(report.second.properties[tag])
        grid.add_row(tag, *cells)
    console().print(grid)
    runs = f", {len(report.runs)} runs" if several else ""
    rate = report.events / max(report.seconds, 1e-9)
    say(f"{report.events:,} events{runs} in {report.seconds:.1f} s ({rate:,.0f} events/s)")
    for each, violation in report.violations[:MOST_SHOWN]:
        where = f"run {each.run}: " if several else ""
        text = f"{violation.property}: {where}{violation.explanation}"
        say(f"[bold red]violated[/] {escape(text)}")
    if len(report.violations) > MOST_SHOWN:
        say(f"  and {len(report.violations) - MOST_SHOWN} more")
    alike: dict[str, list[str]] = {}
    for tag, why in reasons(report).items():
        for reason in why:
            alike.setdefault(reason, []).append(tag)
    for reason, tags in alike.items():
        say(f"[yellow]unknown[/] {' '.join(tags)}: {escape(reason)}")
    if written is not None:
        say(f"violations: {escape(str(written))}")

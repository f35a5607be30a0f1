"""``ringcast demo``: live members on this machine, load, faults, and the order checked."""

from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from ringcast.checks import Verdict, Violation
from ringcast.console.options import OK, VIOLATED, fail, one_line_errors
from ringcast.console.output import STYLE, as_json, console, say
from ringcast.core.ids import NodeId
from ringcast.core.registry import Sheet, live_protocol
from ringcast.demo import simulated
from ringcast.demo import stream as demo_stream
from ringcast.demo.play import Play, cast, table
from ringcast.demo.screen import Late, Screen
from ringcast.members.process import Band
from ringcast.members.words import wall_us
from ringcast.pipeline.report import write as report
from ringcast.pipeline.report.report_data import ReportData
from ringcast.pipeline.spark.session import Where, open_session, require_spark
from ringcast.protocols import DEFAULT
from ringcast.traces import Claims, TraceWriter
from ringcast.traces.live import in_order, read_live

REPORT = "report.html"
TRACE = "trace"
"""What all members recorded, put together, as Parquet: what ``ringcast verify`` reads."""


def prepare(out: Path) -> Path:
    """The report's directory, without what an earlier demo left there; where traces go."""
    traces = out / "traces"
    try:
        traces.mkdir(parents=True, exist_ok=True)
        for old in (out / REPORT, *traces.glob("*.trace")):
            old.unlink(missing_ok=True)
    except OSError as error:
        fail(f"cannot use --out {out}: {error.strerror}")
    return traces


def put_together(
    traces: Path, folder: Path, claims: Claims, stayed: tuple[NodeId, ...], until_us: int | None
) -> ReportData:
    """One trace of what all members recorded; what the report tells of it."""
    story = ReportData()
    with TraceWriter(folder, claims=claims) as writer:
        for event in in_order(read_live([traces], stayed, until_us)):
            writer(event)
            story.feed(event)
    return story


def judged(folder: Path, claims: Claims) -> tuple[dict[str, Verdict], list[Violation]]:
    """What Spark finds of all that the protocol claims."""
    from ringcast.pipeline.verify.job import verify
    from ringcast.pipeline.verify.run_verifier import VerifyRequest

    with open_session(Where()) as spark:
        found = verify(spark, [folder], VerifyRequest(claims.tags, claims), quiet=True)
    for error in found.errors:
        fail(error)
    return found.properties, [violation for _, violation in found.violations]


def live(sheet: Sheet, out: Path, json: bool) -> NoReturn:
    """The story, the checks, the report; leaves with the exit code."""
    began_s = time.monotonic()
    if missing := [name for name in ("cryptography", "matplotlib") if not find_spec(name)]:
        fail(f"the live demo needs {' and '.join(missing)}: pip install 'ringcast[live,plots]'")
    with one_line_errors():
        require_spark()
    traces = prepare(out)
    late: list[Violation] = []
    until_us = None
    with (
        tempfile.TemporaryDirectory(prefix="ringcast-demo-") as folder,
        Band(cast(sheet), Path(folder), traces, f'protocol = "{sheet.name}"\n') as band,
    ):
        screen = Screen(lambda: table(band), quiet=json)
        play = Play(band, screen, sheet)
        try:
            until_us = play.act()
            band.leave(play.patience_s)
        except Late as error:
            late.append(Violation("progress", str(error), play.all, (), wall_us()))
        finally:
            play.close()
            screen.close()
    if not json:
        say("the traces of all members are put together and checked on Spark …")
    stayed = play.all[:-1] if sheet.fixed else play.all
    claims = Claims(sheet.claims(sheet.default))
    story = put_together(traces, out / TRACE, claims, stayed if until_us else (), until_us)
    with one_line_errors():
        verdicts, found_broken = judged(out / TRACE, claims)
    violations = [*late, *found_broken]
    rings = f" on {len(sheet.demo_rings)} rings" if sheet.demo_rings else ""
    title = f"{len(play.all)} members{rings}, live"
    subtitle = (
        f"Processes of this machine{rings} with the protocol {sheet.name}, over UDP with keys: "
        "load, and faults. What each of them recorded was put together and checked."
    )
    path = out / REPORT
    path.write_text(report.page(title, subtitle, story, verdicts, violations), "utf-8")
    code = OK if report.fine(verdicts, violations) else VIOLATED
    found = report.numbers(story)
    if json:
        as_json(
            {
                "ok": code == OK,
                "wall_s": round(time.monotonic() - began_s, 1),
                "numbers": found,
                "faults": story.marks,
                "verdicts": verdicts,
                "violations": violations,
                "report": str(path),
            }
        )
        raise typer.Exit(code)
    summarize(story, found, verdicts, violations)
    say(f"report: {escape(str(path))} ({time.monotonic() - began_s:.0f} s in all)")
    raise typer.Exit(code)


def summarize(
    story: ReportData,
    found: report.TraceFigures,
    verdicts: dict[str, Verdict],
    violations: list[Violation],
) -> None:
    """One screen that says it all."""
    say("")
    say(
        f"[bold]{found.messages:,}[/] messages ({found.megabytes:.1f} MB), "
        f"[bold]{found.deliveries:,}[/] deliveries in {found.seconds:.0f} s, "
        f"{found.configurations} configurations installed"
    )
    for level, times in found.latency_ms.items():
        half, most = (report.plain_ms(times[share]) for share in ("p50", "p99"))
        say(f"{level:<6} delivery: half within {half}, 99 % within {most}")
    say("")
    grid = Table("fault", "new configurations within", "longest silence of a member not hit")
    for mark in story.marks:
        grid.add_row(mark.text, report.settled(mark), f"{mark.silence_us / 1000:.0f} ms")
    console().print(grid)
    for verdict in Verdict:
        tags = [tag for tag, given in verdicts.items() if given is verdict]
        if tags:
            say(f"[{STYLE[verdict]}]{verdict}[/] ({len(tags)}) {' '.join(tags)}")
    for violation in violations:
        say(f"[bold red]violated[/] {escape(f'{violation.property}: {violation.explanation}')}")


def command(
    out: Annotated[
        Path | None, typer.Option(help="Directory of the report [default: ringcast-demo].")
    ] = None,
    in_simulation: Annotated[
        bool,
        typer.Option("--simulated", help="A simulated group instead, told chapter by chapter."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="With --simulated: another network weather [default: 0].")
    ] = None,
    protocol_name: Annotated[
        str | None, typer.Option("--protocol", help=f"Of live members [default: {DEFAULT}].")
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Three members with journals, and Spark that follows them."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Take live members through a crash and a partition, check it all and report."""
    if stream:
        for name, value in (("--out", out), ("--protocol", protocol_name), ("--seed", seed),
                            ("--simulated", in_simulation or None)):  # fmt: skip
            if value is not None:
                fail(f"{name} cannot be combined with --stream, which has its own story")
        demo_stream.demonstrate(json)
    if in_simulation:
        for name, value in (("--out", out), ("--protocol", protocol_name)):
            if value is not None:
                fail(f"{name} cannot be combined with --simulated, which has its own story")
        simulated.demonstrate(seed or 0, json)
    if seed is not None:
        fail("--seed needs --simulated: live members have no seed")
    try:
        sheet = live_protocol(protocol_name or DEFAULT)
    except LookupError as error:
        fail(f"--protocol: {error}")
    live(sheet, out or Path("ringcast-demo"), json)

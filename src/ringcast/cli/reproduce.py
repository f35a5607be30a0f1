"""``ringcast reproduce``: the experiments of the papers, ours beside theirs, as one page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ringcast.console.options import OK, VIOLATED, Master, Remote, fail, one_line_errors
from ringcast.console.output import as_json, say
from ringcast.pipeline.spark.session import Where, open_session, require_spark

if TYPE_CHECKING:
    from ringcast.pipeline.papers.reproduce import Finding

STYLES = {True: "[green]agrees[/]", False: "[yellow]differs[/]", None: ""}


def command(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(help="Which ones [default: all].", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the report.")] = Path(
        "ringcast-reproduce"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A short version of each.")] = False,
    master: Master = None,
    remote: Remote = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Repeat the papers' experiments on Spark and write a report: their figures and ours."""
    began_s = perf_counter()
    with one_line_errors():
        require_spark()
        if missing := [name for name in ("matplotlib", "networkx") if not find_spec(name)]:
            fail(f"this needs {' and '.join(missing)}: pip install 'ringcast[reproduce]'")
        from ringcast.pipeline.papers.experiments import names
        from ringcast.pipeline.papers.paper_page import NUMBERS, REPORT, publish
        from ringcast.pipeline.papers.reproduce import ClaimVerdict, reproduce

        known = names()
        if strange := [name for name in experiments or () if name not in known]:
            fail(f"no experiment {strange[0]!r}; there are {', '.join(known)}")
        clear(out, REPORT, NUMBERS)
        findings: list[Finding] = []
        with open_session(Where(master, remote), app="ringcast reproduce") as spark:
            for name in known:
                if not experiments or name in experiments:
                    found = reproduce(spark, name, out / "runs", quick=quick, quiet=json)
                    findings.append(found)
                    if not json:
                        tell(found)
        results = publish(findings, quick, out)
    if json:
        as_json(
            {
                "report": str(out / REPORT),
                "seconds": round(perf_counter() - began_s, 1),
                "quick": quick,
                "experiments": results.experiments,
            }
        )
    else:
        say(f"report: {escape(str(out / REPORT))} ({perf_counter() - began_s:.0f} s in all)")
    raise typer.Exit(VIOLATED if any(f.verdict is ClaimVerdict.FAILED for f in findings) else OK)


def clear(out: Path, *names: str) -> None:
    """Make the folder; a report of an earlier run never stands beside new simulations."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        fail(f"cannot use --out {out} ({error.strerror})")


def tell(found: Finding) -> None:
    """One experiment for people."""
    say(f"[bold]{escape(found.title)}[/]: {found.verdict} ({escape(found.source)})")
    for claim in found.claims:
        paper = f"paper {claim.paper}, " if claim.paper else ""
        say(f"  {escape(f'{claim.text}: {paper}ours {claim.ours}')}  {STYLES[claim.agrees]}")
    for failure in found.failures:
        say(f"  [bold red]{escape(failure.explanation)}[/]\n  repeat: {escape(failure.repeat)}")

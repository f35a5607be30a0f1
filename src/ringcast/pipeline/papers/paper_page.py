"""The findings as one page, with their numbers and pictures beside it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

import msgspec

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.papers.charts import drawn
from ringcast.pipeline.papers.reproduce import ClaimVerdict, Finding, Judged
from ringcast.pipeline.report.drawing import INK
from ringcast.pipeline.report.page import badge, document, table

REPORT, NUMBERS, PICTURES = "report.html", "results.json", "pictures"

MOODS = {
    ClaimVerdict.REPRODUCED: "good",
    ClaimVerdict.IN_PART: "fair",
    ClaimVerdict.NOT_REPRODUCED: "bad",
    ClaimVerdict.FAILED: "bad",
}
AGREES = {True: '<span class="good">agrees</span>', False: '<b class="fair">differs</b>', None: ""}


class Results(msgspec.Struct, frozen=True):
    """All numbers of a page, for programs."""

    ringcast: str
    quick: bool
    experiments: tuple[Finding, ...]


def publish(findings: Sequence[Finding], quick: bool, out: Path) -> Results:
    """Write the page, its numbers as JSON and each picture as a file of its own."""
    results = Results(version("ringcast"), quick, tuple(findings))
    pictures = {f.name: [drawn(plot) for plot in f.plots] for f in findings}
    try:
        (out / PICTURES).mkdir(parents=True, exist_ok=True)
        for name, svgs in pictures.items():
            for number, svg in enumerate(svgs, 1):
                (out / PICTURES / f"{name}-{number}.svg").write_text(alone(svg), "utf-8")
        (out / NUMBERS).write_bytes(
            msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n"
        )
        (out / REPORT).write_text(report(results, pictures), "utf-8")
    except OSError as error:
        raise PipelineError(f"cannot write to {out} ({error.strerror})") from error
    return results


def alone(svg: str) -> str:
    """A picture that no page gives its colours to."""
    return svg.replace("<svg ", f'<svg style="background: white; color: {INK}" ', 1)


def report(results: Results, pictures: dict[str, list[str]]) -> str:
    """The whole page."""
    findings = results.experiments
    subtitle = (
        f"ringcast {results.ringcast}, {'a quick' if results.quick else 'the full'} run. Solid "
        "lines are ours, dashed ones formulas or theory, crosses numbers that the papers' text "
        "gives. A number agrees within 5 %, one that is said to be about so much within 10 %."
    )
    parts = [overview(findings)]
    parts += [experiment(each, pictures[each.name], results.quick) for each in findings]
    return document("The papers' experiments, repeated", subtitle, parts)


def overview(findings: Sequence[Finding]) -> str:
    """A table of contents that says how it came out."""
    rows = [
        (
            f'<a href="#{each.name}">{escape(each.title)}</a>',
            badge(each.verdict, MOODS[each.verdict]),
            tally(each.claims),
        )
        for each in findings
    ]
    head = ("experiment", "verdict", "claims that agree")
    return f'<section id="contents"><h2>Contents</h2>{table(head, rows, numbers=(2,))}</section>'


def tally(claims: Sequence[Judged]) -> str:
    """How many of the claims that can be judged agree."""
    judged = [claim for claim in claims if claim.agrees is not None]
    return f"{sum(claim.agrees is True for claim in judged)} of {len(judged)}"


def experiment(found: Finding, pictures: Sequence[str], quick: bool) -> str:
    """One experiment: what the paper says, what we found, how to repeat it."""
    figures = "".join(
        f"<figure><figcaption>{escape(plot.title)}</figcaption>{svg}</figure>"
        for plot, svg in zip(found.plots, pictures, strict=True)
    )
    rows = [
        (escape(claim.text), escape(claim.paper), escape(claim.ours), AGREES[claim.agrees])
        for claim in found.claims
    ]
    failures = "".join(
        f'<p class="bad">{escape(each.explanation)}<br><code>{escape(each.repeat)}</code></p>'
        for each in found.failures
    )
    return (
        f'<section id="{found.name}"><h2>{escape(found.title)}</h2>'
        f"<p>{escape(found.source)}</p>{badge(found.verdict, MOODS[found.verdict])}{failures}"
        f'<div class="pair"><div><h3>The paper</h3><p>{escape(found.says)}</p></div>'
        f"<div><h3>Ours</h3><p>{escape(found.comment)}</p></div></div>"
        f'<div class="pair">{figures}</div>'
        f"{table(('', 'paper', 'ours', ''), rows)}"
        f"<p>Repeat it: <code>{escape(command([found.name], quick))}</code></p></section>"
    )


def command(names: Sequence[str], quick: bool) -> str:
    """What to type for these experiments."""
    return shlex.join(["ringcast", "reproduce", *names, *(["--quick"] if quick else [])])

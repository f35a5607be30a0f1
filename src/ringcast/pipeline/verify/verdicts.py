"""What verifying came to: verdicts by run and over all runs, and violations as rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ringcast.checks import PROPERTIES, Suite, Verdict, Violation, in_order
from ringcast.checks.property import Property
from ringcast.pipeline.errors import PipelineError

MESSAGE = re.compile(r"\((\d+),(\d+)\):(\d+)\.\d+")
"""How a violation names a message: by ring and place."""


class RunVerdict(msgspec.Struct, frozen=True):
    """What is known of one run."""

    folder: str
    run: int
    events: int = 0
    """Rows of the tables that had to be looked at."""
    verdicts: dict[str, Verdict] = {}
    violations: tuple[Violation, ...] = ()
    reasons: dict[str, str] = {}
    """By property: why it is unknown."""
    error: str = ""
    """Why the run could not be read."""

    def in_doubt(self, lacks: str) -> RunVerdict:
        """The same, of logs that lack something: what that could explain is unknown."""
        if not lacks or self.error:
            return self
        seems = {each.property: each.explanation for each in self.violations}
        found = {tag: Verdict(doubted(tag, verdict)) for tag, verdict in self.verdicts.items()}
        return msgspec.structs.replace(
            self,
            verdicts=found,
            violations=tuple(v for v in self.violations if found[v.property] is Verdict.INVALID),
            reasons={
                tag: f"{lacks}; else: {seems[tag]}" if tag in seems else lacks
                for tag, verdict in found.items()
                if verdict is Verdict.UNKNOWN
            },
        )


def doubted(tag: str, verdict: str) -> str:
    """What is known of a property where logs lack something."""
    broken = verdict == Verdict.INVALID and not PROPERTIES[tag].in_part
    return Verdict.UNKNOWN if broken else verdict


class SecondOpinion(msgspec.Struct, frozen=True):
    """What the queries of the cross-check say."""

    properties: dict[str, str]
    """Over all runs; ``not expressible`` if they cannot tell for one."""
    disagreements: list[str]


class Report(msgspec.Struct, frozen=True):
    """What is known of all runs."""

    runs: tuple[RunVerdict, ...]
    seconds: float
    second: SecondOpinion | None = None

    @property
    def events(self) -> int:
        """Rows that were looked at."""
        return sum(each.events for each in self.runs)

    @property
    def errors(self) -> list[str]:
        """What could not be read."""
        return [each.error for each in self.runs if each.error]

    @property
    def properties(self) -> dict[str, Verdict]:
        """Over all runs: invalid if one broke it, valid if all of them kept it."""
        found = together((tag, v) for each in self.runs for tag, v in each.verdicts.items())
        if self.errors:
            valid = [tag for tag, verdict in found.items() if verdict == Verdict.VALID]
            found |= dict.fromkeys(valid, Verdict.UNKNOWN)
        return {tag: Verdict(verdict) for tag, verdict in found.items()}

    @property
    def violations(self) -> list[tuple[RunVerdict, Violation]]:
        """Every violation, with its run."""
        return [(each, violation) for each in self.runs for violation in each.violations]


WORST = (Verdict.INVALID, Verdict.UNKNOWN, "not expressible", Verdict.VALID)


def together(answers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By property, the worst answer of all."""
    found: dict[str, str] = {}
    for tag, answer in answers:
        found[tag] = min(found.get(tag, answer), answer, key=WORST.index)
    return {tag: found[tag] for tag in in_order(found)}


def answers(checks: Suite, cut: str = "") -> tuple[dict[str, Verdict], dict[str, str]]:
    """The verdicts, and why those that are unknown are; ``cut`` says why there was no end."""
    verdicts = checks.verdicts()
    reasons = {
        prop.tag: _reason(prop, checks, cut)
        for prop in checks.properties
        if verdicts[prop.tag] is Verdict.UNKNOWN
    }
    return verdicts, reasons


def _reason(prop: Property, checks: Suite, cut: str) -> str:
    history = checks.history
    if not checks.ended:
        return cut or "the trace has no end, or one of its logs stops before the others"
    if prop.voided:
        return "a processor lost its stable storage, so ring ids may have been used again"
    if prop.about_deliveries and not history.deliveries:
        return "nothing was delivered"
    if not history.configurations:
        return "no configuration was installed"
    return "something was still owed at the end of the trace, or is not told in it"


def rows(report: Report) -> list[dict[str, Any]]:
    """The violations as rows of one table."""
    return [
        {
            "trace": each.folder,
            "run": each.run,
            "property": violation.property,
            "title": PROPERTIES[violation.property].title,
            **dict(zip(("process", "other"), violation.nodes, strict=False)),
            **dict(zip(("message", "other_message"), violation.messages, strict=False)),
            **_place(violation.messages),
            "t_us": violation.t_us,
            "explanation": violation.explanation,
        }
        for each, violation in report.violations
    ]


def _place(messages: Iterable[str]) -> dict[str, int]:
    """Ring and place of the first message that has one."""
    for message in messages:
        if match := MESSAGE.fullmatch(message):
            return dict(zip(("ring_seq", "ring_rep", "seq"), map(int, match.groups()), strict=True))
    return {}


def write_violations(report: Report, folder: Path) -> Path:
    """The violations as a Parquet file in ``folder``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, text = pa.int64(), pa.string()
    schema = pa.schema(
        [
            *(("trace", text), ("run", number), ("property", text), ("title", text)),
            *(("process", number), ("other", number), ("message", text), ("other_message", text)),
            *(("ring_seq", number), ("ring_rep", number), ("seq", number), ("t_us", number)),
            ("explanation", text),
        ]
    )
    path = folder / "violation.parquet"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        pq.write_table(pa.Table.from_pylist(rows(report), schema=schema), part)
        part.replace(path)
    except OSError as error:
        told = f"cannot write {path} ({error.strerror}); --violations names a folder"
        raise PipelineError(told) from None
    return path

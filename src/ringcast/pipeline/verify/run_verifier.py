"""Verifies one run: what is odd by the checks, event by event, and the rest by arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

import ringcast.protocols  # noqa: F401  (some properties are a protocol's own)
from ringcast.checks import Stretch, Suite, Verdict, in_order, suite
from ringcast.checks.property import Reads
from ringcast.core.trace import TraceEvent
from ringcast.pipeline.verify.condense.columns import RunTable, table_of
from ringcast.pipeline.verify.condense.full import MOST_EVENTS
from ringcast.pipeline.verify.condense.plan import Window
from ringcast.pipeline.verify.condense.stitch import Irregular, StitchedRun
from ringcast.pipeline.verify.condense.window import Found, look
from ringcast.pipeline.verify.verdicts import RunVerdict, answers
from ringcast.traces import Claims, TraceError, read_trace
from ringcast.traces.parquet import common_claims
from ringcast.traces.schema import TABLES

SMALL_ROWS = 20_000
"""A run with fewer rows is shown to the checks as it is: comparing would not be faster."""

WHOLE_ROWS = 1_000_000
"""A run with more rows is not shown as it is, even if there is no other way."""

TABLES_READ = {
    Reads.NOTHING: ("view", "fault", "note"),
    Reads.ORDER: ("view", "fault", "deliver"),
    Reads.ORIGINS: ("view", "fault", "note", "deliver", "originate"),
}
"""What has to be read; for all that is not here, every table."""


class VerifyRequest(msgspec.Struct, frozen=True):
    """What is to be judged: these properties, or what a run's files claim, or else the usual."""

    only: tuple[str, ...]
    usual: Claims

    def claims(self, told: Claims | None) -> Claims:
        """For a run whose files say this."""
        told = told or self.usual
        return Claims(self.only or told.tags, told.bound_us)


class Case:
    """A run while it is judged: windows to look at, then a verdict. What cannot be read is told
    in the verdict."""

    def __init__(self, folder: Path, run: int, ask: VerifyRequest) -> None:
        self.folder, self.run = folder, run
        self.course: StitchedRun | None = None
        self._checks: Suite | None = None
        self._done = False
        self._irregular = self._error = ""
        try:
            self._begin(ask)
        except (TraceError, LookupError, OSError) as error:
            self._error = _line(error)

    def _begin(self, ask: VerifyRequest) -> None:
        self._tables: dict[str, RunTable] = {n: table_of(self.folder, n, self.run) for n in TABLES}
        told = common_claims(table.file for table in self._tables.values())
        claims = ask.claims(told)
        if not claims.tags:
            path = self.folder / "fault" / f"{self.run}.parquet"
            lack = "does not say what its protocol claims" if told is None else "claims no property"
            raise TraceError(f"{path}: {lack}; --only or --protocol says what to judge")
        self._bound_us = claims.bound_us
        kinds = {type(prop).tag: type(prop) for prop in suite(claims.tags).properties}
        every = [tag for tag, kind in kinds.items() if kind.reads is Reads.EVERY_EVENT]
        self._whole = every if self._rows() > SMALL_ROWS else list(kinds)
        self._condensed = [tag for tag in kinds if tag not in self._whole]
        self._pasts = [tag for tag in self._condensed if kinds[tag].reads >= Reads.PASTS]
        if self._condensed:
            chosen = [kinds[tag] for tag in self._condensed]
            self.reads = max(kind.reads for kind in chosen)
            notes = sorted({note for kind in chosen for note in kind.notes})
            origin_first = any(kind.origin_first for kind in chosen)
            self.course = StitchedRun(self.folder, self.run, self.reads, notes, origin_first)

    def _rows(self, names: Iterable[str] = TABLES) -> int:
        return sum(len(self._tables[name]) for name in names)

    @property
    def windows(self) -> list[Window]:
        """All windows of the run."""
        return self.course.windows if self.course else []

    def open_windows(self) -> list[int]:
        """Which windows have to be looked at; none if a verdict is possible."""
        if self.course is None or self._done or self._error:
            return []
        try:
            while not self.course.open_windows():
                if self.course.settle():
                    self._checks = self._feed(self._condensed, self.course.items())
                    broken = [violation.t_us for violation in self._checks.violations]
                    self._done = not self.course.look_closely(broken)
                    if self._done:
                        return []
            return self.course.open_windows()
        except Irregular as error:
            self._done, self._irregular = True, "" if self._checks else str(error)
        except TraceError as error:
            self._error = _line(error)
        return []

    def take(self, at: int, found: Found) -> None:
        """A window has been looked at."""
        assert self.course is not None
        self._error = self._error or found.error
        if found.strangers:
            self._judge_whole(self._pasts)
        self.course.take(at, found)

    def _judge_whole(self, tags: list[str]) -> None:
        """Stretches will not do for these properties: they need every event."""
        self._whole += [tag for tag in tags if tag in self._condensed]
        self._condensed = [tag for tag in self._condensed if tag not in tags]
        self._done = self._done or not self._condensed

    def verdict(self) -> RunVerdict:
        """After all windows."""
        if self._error:
            return RunVerdict(str(self.folder), self.run, error=self._error)
        try:
            return self._verdict()
        except TraceError as error:
            return RunVerdict(str(self.folder), self.run, error=_line(error))

    def _verdict(self) -> RunVerdict:
        verdicts: dict[str, Verdict] = {}
        reasons: dict[str, str] = {}
        fed: list[Suite] = []
        rows, whole, condensed = self._rows(), list(self._whole), list(self._condensed)
        if (self._irregular or self._cut()) and rows <= WHOLE_ROWS:
            whole, condensed = whole + condensed, []
        if whole and rows <= WHOLE_ROWS:
            fed.append(self._feed(whole, read_trace(self.folder, self.run)))
        else:
            reasons |= dict.fromkeys(whole, "it needs every event, and the run has too many")
        if self._irregular:
            reasons |= dict.fromkeys(condensed, self._irregular)
        elif condensed and self._checks is not None:
            fed.append(self._checks)
        verdicts |= dict.fromkeys(reasons, Verdict.UNKNOWN)
        for checks in fed:
            found, why = answers(checks, self._cut())
            verdicts |= found
            reasons |= why
        return RunVerdict(
            folder=str(self.folder),
            run=self.run,
            events=rows if whole else self._rows(TABLES_READ.get(self.reads, TABLES)),
            verdicts={tag: verdicts[tag] for tag in in_order(verdicts)},
            violations=tuple(violation for checks in fed for violation in checks.violations),
            reasons=reasons,
        )

    def _feed(self, tags: list[str], items: Iterable[TraceEvent | Stretch]) -> Suite:
        checks = suite(tags, self._bound_us)
        for item in items:
            if isinstance(item, Stretch):
                checks.feed_stretch(item)
            else:
                checks.feed(item)
        return checks

    def _cut(self) -> str:
        if self.course is None or self.course.stop_us is None:
            return ""
        return (
            f"from {self.course.stop_us} us on more than {MOST_EVENTS:,} events differ; "
            f"only what comes before was judged"
        )


def verify_run(folder: Path, run: int, ask: VerifyRequest) -> RunVerdict:
    """All of it, in this process."""
    case = Case(folder, run, ask)
    while at := case.open_windows():
        for window in at:
            case.take(window, look(case.windows[window]))
    return case.verdict()


def _line(error: Exception) -> str:
    """What is wrong with a run's files, in one line."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error.args[0]) if error.args else repr(error)

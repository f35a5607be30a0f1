"""Stitches windows into one sequence of events for the checks.

Some events are shown in full, and stretches stand for the rest. Each window is condensed by itself
and knows nothing of the others. This module finds out whether their stretches fit together. If they
do not, it asks a window to show more, and condenses that again:

- A frame is shown if it occurs anywhere else, by its place or by its numbers, if its submission is
  shown, or if its sender reported its numbers as uncertain.
- Frames are shown that were begun before something odd in an earlier window was over; in a closer
  look, also those delivered after something odd in a later window had begun.
- A stretch stands behind all events that are shown before it in its ring, and before all others. It
  also stands behind the notes that were made before its first event, and on the same side of each
  report of uncertain messages as the first frame of their sender in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from ringcast.checks.property import Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import LIMIT, NodeId, ViewId
from ringcast.core.to_some import SubmittedTo
from ringcast.core.trace import (
    Delivered,
    Ended,
    Faulted,
    Noted,
    Originated,
    ReportedUncertain,
    Submit,
    TraceEvent,
)
from ringcast.pipeline.verify.condense.columns import Rows, table_of
from ringcast.pipeline.verify.condense.event_rows import (
    delivered,
    originated,
    placed,
    submitted,
)
from ringcast.pipeline.verify.condense.full import Make, Part, limit
from ringcast.pipeline.verify.condense.plan import (
    Keep,
    Moment,
    Plan,
    RingPlan,
    Window,
    make_plan,
    moment,
)
from ringcast.pipeline.verify.condense.runs import PlacedStretch
from ringcast.pipeline.verify.condense.window import Found
from ringcast.traces import TraceError
from ringcast.traces.parquet import clock_back


class Irregular(Exception):
    """What is odd cannot be told apart from the rest in a few rounds."""


ROUNDS = 12
"""How often windows may be asked for more."""


Numbers = dict[tuple[NodeId, int], list[tuple[int, int, int]]]
"""By sender and incarnation: first and last number of its messages in a window, and that window."""


class Placed(msgspec.Struct, frozen=True):
    """A stretch and the event that it stands behind."""

    behind: Moment
    window: int
    piece: PlacedStretch


class StitchedRun:
    """One run: windows to look at, then a sequence of events and stretches."""

    def __init__(
        self, folder: Path, run: int, reads: Reads, notes: Iterable[str], origin_first: bool
    ) -> None:
        self.folder, self.run, self.reads = folder, run, reads
        self.plan: Plan = make_plan(folder, run, reads, notes, origin_first)
        self.windows: list[Window] = [w for ring in self.plan.rings for w in ring.windows]
        self.found: list[Found | None] = [None] * len(self.windows)
        ends = accumulate((len(ring.windows) for ring in self.plan.rings), initial=0)
        self._numbers = [range(*pair) for pair in pairwise(ends)]  # of each ring's windows
        self.stop_us: int | None = None
        """From here on nothing is shown any more: there is too much of it."""
        self._rounds = 0
        self._reports: dict[NodeId, list[tuple[Moment, range]]] = {}
        """When and which numbers their senders reported as uncertain: when those are delivered
        matters."""
        self._notes = sorted(moment(e) for e in self.plan.control if isinstance(e, Noted))
        for event in self.plan.control:
            if isinstance(event, ReportedUncertain):
                told = range(event.first, event.first + event.count)
                self._reports.setdefault(event.node, []).append((moment(event), told))
        self._asked: set[tuple[ViewId, int]] = set()
        self._outside: list[TraceEvent] | None = None

    def open_windows(self) -> list[int]:
        """The windows that have to be looked at, again perhaps, by number."""
        return [at for at, found in enumerate(self.found) if found is None]

    def take(self, at: int, found: Found) -> None:
        """A window has been looked at."""
        self.found[at] = found

    def settle(self) -> bool:
        """Whether everything fits together; if not, there are windows to look at again."""
        found = self._found()
        if self._outside is None:
            self._outside = list(self._not_in_windows(found))
        self._check_times(found)
        self._cut_off()
        keeps: dict[int, Keep] = {}
        placed = list(self._placed(keeps))
        self._repeated(placed, keeps)
        for at, keep in keeps.items():
            self.windows[at] = msgspec.structs.replace(self.windows[at], keep=keep)
            self.found[at] = None
        self._rounds += 1
        if keeps and self._rounds == ROUNDS:
            raise Irregular(f"run {self.run}: too much that is odd depends on each other")
        return not keeps

    def look_closely(self, times: Iterable[int]) -> bool:
        """Whether there is more to see of the rings in which something was broken then."""
        moments = list(times)
        for ring, numbers in zip(self.plan.rings, self._numbers, strict=True):
            found = [self._looked(at) for at in numbers]
            last_us = max((e.t_us for f in found for gap in f.gaps for e in gap), default=0)
            if any(ring.opened[0] <= t_us <= last_us for t_us in moments):
                for each in numbers:
                    window = self.windows[each]
                    if not window.closely:
                        reads = max(window.reads, Reads.ORIGINS)
                        closer = msgspec.structs.replace(window, reads=reads, closely=True)
                        self.windows[each], self.found[each] = closer, None
        return bool(self.open_windows())

    def _found(self) -> list[Found]:
        return [self._looked(at) for at in range(len(self.found))]

    def _looked(self, at: int) -> Found:
        found = self.found[at]
        assert found is not None, "not all windows have been looked at"
        return found

    def _ask(self, keeps: dict[int, Keep], at: int, **more: object) -> None:
        """Ask a window to show more."""
        keep = keeps.get(at, self.windows[at].keep)
        values = {
            name: (*getattr(keep, name), *value) if isinstance(value, tuple) else value
            for name, value in more.items()
        }
        keeps[at] = msgspec.structs.replace(keep, **values)

    def _check_times(self, found: list[Found]) -> None:
        """Each processor's numbers and times ascend together, over all windows."""
        marks: dict[NodeId, list[tuple[int, int]]] = {}
        for event in self.plan.control:
            if not isinstance(event, Ended | Faulted):
                marks.setdefault(event.node, []).append((event.n, event.t_us))
        for event in self._outside or ():
            if not isinstance(event, Ended):
                marks.setdefault(event.node, []).append((event.n, event.t_us))
        for each in found:
            for node, n, t_us in each.marks:
                marks.setdefault(node, []).append((n, t_us))
        for node, own in marks.items():
            for last, here in pairwise(sorted(own)):
                if here[1] < last[1]:
                    raise TraceError(f"run {self.run}: {clock_back(node, *here, *last)}")

    def _cut_off(self) -> None:
        """Behind a window that does not show everything nothing of its ring is shown."""
        stopped: set[ViewId] = set()
        for window, found in zip(self.windows, self._found(), strict=True):
            if window.ring in stopped:
                found.cut(-1)
            elif found.stop_us is not None:
                stopped.add(window.ring)

    def _placed(self, keeps: dict[int, Keep]) -> Iterator[Placed]:
        """All stretches, those of a ring in order."""
        for ring, numbers in zip(self.plan.rings, self._numbers, strict=True):
            yield from self._place(ring, numbers, keeps)

    def _place(self, ring: RingPlan, numbers: range, keeps: dict[int, Keep]) -> list[Placed]:
        """The stretches of a ring, each behind what is shown before it."""
        placed: list[Placed] = []
        ends: list[tuple[int, Moment]] = []  # after how many stretches: the earliest event shown
        behind, odd_us = ring.opened, -1
        for at in numbers:
            found = self._looked(at)
            for k, gap in enumerate(found.gaps):
                if gap:
                    moments = [moment(event) for event in gap]
                    ends.append((len(placed), min(moments)))
                    behind = max(behind, *moments)
                if k < len(found.pieces):
                    piece = found.pieces[k]
                    behind = max(behind, self._note_before(piece), *self._reports_of(piece)[0])
                    placed.append(Placed(behind, at, piece))
                    if 0 <= piece.first_us <= odd_us:
                        self._ask(keeps, at, until_us=odd_us)
            odd_us = max(odd_us, found.odd_until_us)
        next_one, odd_us, window = ring.closed, LIMIT, numbers[-1]
        for k in range(len(placed) - 1, -1, -1):
            piece, at = placed[k].piece, placed[k].window
            for later in range(window, at, -1):
                odd_us = min(odd_us, self._looked(later).odd_from_us)
            window = at
            while ends and ends[-1][0] > k:
                next_one = min(next_one, ends.pop()[1])
            if placed[k].behind >= min(next_one, *self._reports_of(piece)[1]):
                self._ask(keeps, at, ranges=((piece.low, piece.stretch.seq),))
            if self.windows[at].closely and piece.last_us >= odd_us:
                self._ask(keeps, at, from_us=odd_us)
        return placed

    def _note_before(self, piece: PlacedStretch) -> Moment:
        """The last note before all that a stretch shows; what no note can be before if there is
        none."""
        heads = piece.stretch.heads
        at = bisect_left(self._notes, moment(heads[0])) if heads else 0
        return self._notes[at - 1] if at else (-1, 0, 0)

    def _reports_of(self, piece: PlacedStretch) -> tuple[list[Moment], list[Moment]]:
        """When senders of a stretch reported something, before and after the first of their own
        frames in it, between two that are no report."""
        before, after = [(-1, 0, 0)], [(LIMIT, 0, 0)]
        for event in piece.stretch.heads if self._reports else ():
            if isinstance(event, Delivered) and event.sender == event.node:
                for at, _ in self._reports.get(event.node, ()):
                    (before if at < moment(event) else after).append(at)
        return before, after

    def _repeated(self, placed: list[Placed], keeps: dict[int, Keep]) -> None:
        """Show frames of stretches whose place or numbers occur elsewhere."""
        by_ring: dict[ViewId, list[Placed]] = {}
        numbers: Numbers = {}
        submitted: Numbers = {}  # the first frames of their senders among them
        lives = {w.ring: {stay.node: stay.incarnation for stay in w.stays} for w in self.windows}
        for each in placed:
            ring = each.piece.stretch.ring
            by_ring.setdefault(ring, []).append(each)
            for share in each.piece.stretch.shares:
                key = share.sender, lives[ring][share.sender]
                numbers.setdefault(key, []).append((share.first, share.last, each.window))
            for event in each.piece.stretch.heads:
                if isinstance(event, Submit):
                    last = event.first + len(event.sizes) - 1
                    key = event.node, event.incarnation
                    submitted.setdefault(key, []).append((event.first, last, each.window))
            if self._reports:
                self._reported(each, keeps)
        lows = {ring: [each.piece.low for each in own] for ring, own in by_ring.items()}
        for event in self._shown():
            place = (event.ring, event.seq)
            if event.ring in lows and place not in self._asked:
                at = bisect_right(lows[event.ring], event.seq) - 1
                if at >= 0 and event.seq <= by_ring[event.ring][at].piece.stretch.seq:
                    self._ask(keeps, by_ring[event.ring][at].window, seqs=(event.seq,))
                    self._asked.add(place)
        for (sender, _), own in numbers.items():
            own.sort()
            for (_, last, _), (next_first, next_last, window) in pairwise(own):
                if next_first <= last:
                    shared = (sender, next_first, min(last, next_last))
                    self._ask(keeps, window, numbers=(shared,))
        for event in self._shown():
            sender = event.sender if isinstance(event, Delivered) else event.owner
            life = lives.get(event.ring, {}).get(sender, 1)
            last = event.first + len(event.digests) - 1
            self._numbered(sender, event.first, last, numbers.get((sender, life), []), keeps)
        for key, own in numbers.items():
            submitted[key] = sorted([*submitted.get(key, ()), *own])
        for key, first, last in self._submissions():
            self._numbered(key[0], first, last, submitted.get(key, []), keeps)

    def _submissions(self) -> Iterator[tuple[tuple[NodeId, int], int, int]]:
        """Submissions that are shown: sender and incarnation, first and last number."""
        for each in self._found():
            for event in each.submits:
                last = event.first + len(event.sizes) - 1
                yield (event.node, event.incarnation), event.first, last
        for note in self.plan.control:
            if isinstance(note, Noted) and (asked := SubmittedTo.read(note)) is not None:
                last = asked.first + len(asked.digests) - 1
                yield (note.node, asked.incarnation), asked.first, last

    def _numbered(
        self,
        sender: NodeId,
        first: int,
        last: int,
        own: list[tuple[int, int, int]],
        keeps: dict[int, Keep],
    ) -> None:
        """Show frames of stretches with these numbers of their sender."""
        for at in range(bisect_right(own, (last, LIMIT, 0)) - 1, -1, -1):
            low, high, window = own[at]
            if high < first:
                return
            shared = (sender, max(low, first), min(high, last))
            self._ask(keeps, window, numbers=(shared,))

    def _reported(self, placed: Placed, keeps: dict[int, Keep]) -> None:
        """Show frames of a stretch, its heads among them, that were reported as uncertain."""
        stretch = placed.piece.stretch
        parts = [(share.sender, share.first, share.last) for share in stretch.shares]
        for event in stretch.heads:
            if isinstance(event, Delivered):
                last = event.first + len(event.digests) - 1
                parts.append((event.sender, event.first, last))
        for sender, first, last in parts:
            for _, report in self._reports.get(sender, ()):
                low, high = max(first, report.start), min(last, report.stop - 1)
                if low <= high:
                    self._ask(keeps, placed.window, numbers=((sender, low, high),))

    def _shown(self) -> Iterator[Originated | Delivered]:
        for each in self._found():
            for gap in each.gaps:
                yield from gap
        for event in self._outside or ():
            if isinstance(event, Originated | Delivered):
                yield event

    def _not_in_windows(self, found: list[Found]) -> Iterator[TraceEvent]:
        """What happened before the first window of each processor, and what was left over."""
        if self.reads is Reads.NOTHING:
            return
        parts: list[Part] = []
        missed = -sum(each.rows for each in found)
        tables: dict[str, Make] = {"deliver": placed}
        if self.reads >= Reads.ORIGINS:
            tables = {"deliver": delivered, "originate": originated}
        for name, make in tables.items():
            table = table_of(self.folder, name, self.run)
            missed += len(table)
            for node in table.nodes():
                rows = table.between(node, -1, self.plan.before.get(node, LIMIT))
                parts.append(Part.of(0, make, node, rows))
                missed -= len(rows)
        if missed:
            raise TraceError(
                f"run {self.run}: {missed} messages have the number of a configuration or a crash"
            )
        if self.reads >= Reads.SUBMISSIONS:
            table = table_of(self.folder, "submit", self.run)
            covered = sorted(pair for each in found for pair in each.covered)
            for node in table.nodes():
                rest = _rest(table.of(node), covered)
                parts += (Part.of(0, submitted, node, rows) for rows in rest)
        self.stop_us = limit(parts)
        for part in parts:
            yield from part.events(self.stop_us)

    def items(self) -> Iterator[TraceEvent | Stretch]:
        """Events and stretches in order; without the end if not everything is shown."""
        found = self._found()
        stops = [each.stop_us for each in found if each.stop_us is not None]
        if self.stop_us is not None:
            stops.append(self.stop_us)
        self.stop_us = min(stops, default=None)
        outside = self._outside or ()
        asked = [e for e in outside if isinstance(e, Submit)]
        asked += (event for each in found for event in each.submits)
        submits = sorted(dict(one for event in asked for one in _single(event)).items())
        others = (event for event in outside if not isinstance(event, Submit))
        shown = (event for each in found for gap in each.gaps for event in gap)
        events = (*self.plan.control, *others, *shown, *(event for _, event in submits))
        places: list[tuple[Moment, int, TraceEvent | Stretch]] = [
            (moment(event), isinstance(event, Faulted), event) for event in events
        ]
        for rank, each in enumerate(self._placed({}), start=2):
            places.append((each.behind, rank, each.piece.stretch))
        places.sort(key=lambda place: place[:2])
        for at, _, item in places:
            if self.stop_us is not None and at[0] >= self.stop_us:
                return
            yield item


def _single(event: Submit) -> Iterator[tuple[tuple[NodeId, int, int], Submit]]:
    """Its messages one by one: parts of a submission may be shown twice, and overlap."""
    for at, size in enumerate(event.sizes):
        part = msgspec.structs.replace(
            event, first=event.first + at, sizes=(size,), digests=event.digests[at : at + 1]
        )
        yield (event.node, event.n, part.first), part


def _rest(rows: Rows, covered: list[tuple[int, int]]) -> Iterator[Rows]:
    """The rows that lie in none of these ranges of the file, which ascend."""
    at = rows.first
    for first, last in covered[bisect_right(covered, (rows.first, 0)) :]:
        if first >= rows.last:
            break
        if at < first:
            yield Rows(rows.table, at, first)
        at = max(at, last)
    if at < rows.last:
        yield Rows(rows.table, at, rows.last)

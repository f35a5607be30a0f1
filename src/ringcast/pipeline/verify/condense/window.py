"""One window: what all members delivered alike in it, and everything else in full.

Frames that pass all of this are *alike*, and a stretch will stand for them:

- every member delivered them in the ring itself (D5, M1), in the same order, once, with ascending
  places (D2, D6, D9, D12, total-order), under the same sender, number, level and checksums;
- each was originated once, in the ring, with those contents (D1), before its originator delivered
  it and, if a property that is judged asks for that, before every delivery of it in the order of
  the trace; the originator delivered it too (D3, D4, D10), and so did everybody who
  could lack it (D7, agreement);
- what a sender delivered before an origination has lower places, so causes come first (D7, D8);
- numbers of a sender follow each other (fifo, integrity), and each message was submitted before
  with these contents and this level (content, integrity, validity); for ``causal``, after its
  sender had come to the ring, so that its past is that of its originations;
- where one processor numbers for others, it numbers in ascending order (one-sequencer).

What fails is *odd*, and so is what has no counterpart. Frames that were begun before the last event
of something odd are shown as well: their originators may not have known of it. If something
is broken, a closer look shows what was delivered after the first event of something odd, too: what
had been delivered by then can decide which message is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ringcast.checks.property import Reads
from ringcast.core.ids import LIMIT, NodeId
from ringcast.core.trace import Delivered, Originated, Submit
from ringcast.pipeline.verify.condense.align import align
from ringcast.pipeline.verify.condense.columns import Flags, Ints, Rows, RunTable, table_of
from ringcast.pipeline.verify.condense.event_rows import (
    EventRows,
    delivered,
    originated,
    placed,
)
from ringcast.pipeline.verify.condense.full import Make, Part, limit
from ringcast.pipeline.verify.condense.origins import Origins, Submissions
from ringcast.pipeline.verify.condense.plan import Stay, Window
from ringcast.pipeline.verify.condense.runs import Frames, PlacedStretch, Runs
from ringcast.traces import TraceError


class Found(msgspec.Struct):
    """What a window came to: stretches in order, and what stands before, between and after them."""

    pieces: list[PlacedStretch] = []
    gaps: list[list[Originated | Delivered]] = []
    """One more than pieces."""
    submits: list[Submit] = []
    covered: list[tuple[int, int]] = []
    """Rows of the table of submissions that were looked at."""
    odd_from_us: int = LIMIT
    odd_until_us: int = -1
    """When the first odd thing began, and when the last one was over."""
    marks: list[tuple[NodeId, int, int]] = []
    """Processor, number and time of some events, to be compared with those of other windows."""
    rows: int = 0
    """How many it is about: of deliveries and, if they are read, of originations."""
    stop_us: int | None = None
    """From here on not everything is shown: there is too much of it."""
    strangers: bool = False
    """Whether somebody who is no member submitted a message of it: its past is another ring's."""
    error: str = ""
    """Why it cannot be read."""

    def cut(self, gap: int) -> None:
        """Leave out what stands behind this gap (-1: everything), and so all from its time on."""
        shown = [event.t_us for each in self.gaps[gap + 1 :] for event in each]
        unseen = [piece.first_us for piece in self.pieces[max(gap, 0) :] if piece.first_us >= 0]
        self.stop_us = min(*shown, *unseen, LIMIT if self.stop_us is None else self.stop_us, LIMIT)
        del self.pieces[max(gap, 0) :], self.gaps[gap + 1 :]


def look(window: Window) -> Found:
    """Compare the members in a window."""
    try:
        return _Look(window).found()
    except TraceError as error:
        return Found(error=str(error))


class _Look:
    def __init__(self, window: Window) -> None:
        self.window = window
        folder = Path(window.folder)
        self._deliver = table_of(folder, "deliver", window.run)
        self._full = window.reads >= Reads.ORIGINS
        self._originate = table_of(folder, "originate", window.run) if self._full else None
        places = None if self._full else window.ring
        self.told = {
            stay.node: EventRows(stay.node, self._rows(self._deliver, stay), places)
            for stay in window.stays
        }
        self.ref = max(self.told.values(), key=len)
        self.seq = self.ref.first("seq")
        frames = self.frames = len(self.ref)
        self.at: dict[NodeId, Ints] = {}
        self.odd: Flags = np.zeros(frames + 1, np.bool_)  # the last one: behind all frames
        self.shown: Flags = np.zeros(frames + 1, np.bool_)  # not odd, but shown all the same
        self.odd_from_us: Ints = np.full(frames + 1, LIMIT, np.int64)  # when it began
        self.odd_until_us: Ints = np.full(frames + 1, -1, np.int64)  # and was over
        self.strays: list[int] = []  # places of events without a counterpart
        self.origins: Origins | None = None
        self.submissions: Submissions | None = None

    def _rows(self, table: RunTable, stay: Stay) -> Rows:
        """A member's rows of a table in this window."""
        rows, window = table.between(stay.node, stay.start_n, stay.end_n), self.window
        first = 0 if window.first else rows.before(window.low)
        return rows.part(first, len(rows) if window.last else rows.before(window.high))

    def found(self) -> Found:
        """Everything, put together."""
        for told in self.told.values():
            self._compare(told)
        self._places()
        if self._full:
            self._originated()
            self._senders()
            if self.window.reads >= Reads.SUBMISSIONS:
                self._submitted()
            self._extend()
        self._asked()
        frames = Frames(self.window.ring, self.seq, None, None, None, self.told, self.at)
        if self._full:
            frames.sender, frames.number = self.ref.first("sender"), self.ref.first("sequence")
            frames.size, frames.origins, frames.origin = self.ref.sizes, self.origins, self.origin
            frames.submissions = self.submissions
        found = self._show(Runs(frames, self.odd | self.shown))
        found.strangers = self._full and self._strangers()
        return found

    # deliveries

    def _compare(self, told: EventRows) -> None:
        """Lay a member's deliveries beside those of the member taken for reference."""
        ref, frames = self.ref, self.frames
        same = told is ref
        at = np.arange(frames) if same else align(self.seq, told.first("seq"))
        self.at[told.node] = at
        matched = np.flatnonzero(at >= 0)
        self.odd[:frames] |= at < 0
        if len(matched) < len(told):
            self._unmatched(told, at[matched], matched)
        right = told.in_ring(self.window.ring, "ring", *(["view"] if self._full else []))
        if right is not None:
            self.odd[matched[~right[at[matched]]]] = True
        if same or not self._full:
            return
        alike = np.ones(len(matched), np.bool_)
        whole = len(matched) == frames == len(told)
        for name in ("sender", "level", "sequence"):
            mine, its = ref.first(name), told.first(name)
            alike &= mine == its if whole else mine[matched] == its[at[matched]]
        alike &= ref.sizes[matched] == told.sizes[at[matched]]
        self.odd[matched[~alike]] = True
        matched = matched[alike]
        breaks = np.flatnonzero((np.diff(matched) != 1) | (np.diff(at[matched]) != 1)) + 1
        mine, its = ref.rows.column("digest"), told.rows.column("digest")
        for block in np.split(matched, breaks) if len(matched) else ():
            first, last = ref.starts[block[0]], ref.starts[block[-1] + 1]
            start = told.starts[at[block[0]]]
            differ = np.flatnonzero(mine[first:last] != its[start : start + last - first])
            self.odd[np.searchsorted(ref.starts, first + differ, "right") - 1] = True

    def _unmatched(self, told: EventRows, taken: Ints, matched: Ints) -> None:
        """Events of a member without a counterpart make the frame after them odd."""
        free = np.ones(len(told), np.bool_)
        free[taken] = False
        events = np.flatnonzero(free)
        follows = np.append(matched, self.frames)[np.searchsorted(taken, events)]
        self.odd[follows] = True
        seqs = told.first("seq")[events]
        self.strays += seqs.tolist()
        if self._full:
            t_us = told.first("t_us")[events]
            self._is_odd(follows, t_us)
            self._is_odd(self._after_place(seqs), t_us)  # it is told there, too, and too early

    def _is_odd(self, frames: Ints, t_us: Ints) -> None:
        """Something odd happened to these frames, or just before them, at these times."""
        np.minimum.at(self.odd_from_us, frames, t_us)
        np.maximum.at(self.odd_until_us, frames, t_us)

    def _places(self) -> None:
        """Places ascend, and are those of this window."""
        seq = self.seq
        falls = np.flatnonzero(seq[1:] <= seq[:-1])
        self.odd[falls] = self.odd[falls + 1] = True
        self.odd[:-1] |= (seq < self.window.low) | (seq >= self.window.high)

    def _after_place(self, seqs: Ints) -> Ints:
        """The first frames that have these places or higher ones."""
        return np.searchsorted(np.maximum.accumulate(self.seq), seqs)

    # originations and submissions

    def _originated(self) -> None:
        """Each frame was originated once, before, with the same contents."""
        window, ref, frames, table = self.window, self.ref, self.frames, self._originate
        assert table is not None
        tolds = [EventRows(stay.node, self._rows(table, stay)) for stay in window.stays]
        origins = self.origins = Origins(tolds, window.ring)
        origins.check_times(self.told)
        self.origin = origin = origins.match(self.seq)
        self.odd[:frames] |= origin < 0
        self._unmatched_origins(origins)
        self.odd[origins.disordered()] = True
        mine = np.flatnonzero(origin >= 0)
        its = origin[mine]
        for told in self.told.values():
            self._delivered_later(told, origins)
        alike = origins.sender[its] == ref.first("sender")[mine]
        alike &= origins.level[its] == ref.first("level")[mine]
        alike &= origins.number[its] == ref.first("sequence")[mine]
        alike &= origins.size[its] == ref.sizes[mine]
        self.odd[mine[~alike]] = True
        mine = mine[alike]
        sums = ref.rows.column("digest")
        if len(mine) < frames:
            good = np.zeros(frames, np.bool_)
            good[mine] = True
            sums = sums[np.repeat(good, ref.sizes)]
        differ = np.flatnonzero(sums != origins.digest[origins.rows(origin[mine])])
        ends = np.cumsum(ref.sizes[mine])
        self.odd[mine[np.searchsorted(ends, differ, "right")]] = True

    def _delivered_later(self, told: EventRows, origins: Origins) -> None:
        """What a member delivered before it was originated, in the order of the trace, is odd if
        it is its own or if that makes a difference."""
        at = self.at[told.node]
        both = np.flatnonzero((at >= 0) & (self.origin >= 0))
        at, its = at[both], self.origin[both]
        t_us, sent_us, node = told.first("t_us")[at], origins.t_us[its], origins.node[its]
        later = (t_us > sent_us) | ((t_us == sent_us) & (told.node > node))
        own = node == told.node
        later = np.where(own, told.first("n")[at] > origins.n[its], later)
        origins.ahead[its] &= later
        origins.begun_us[its] = np.minimum(origins.begun_us[its], t_us)
        self.odd[both[~later & (own | self.window.origin_first)]] = True

    def _unmatched_origins(self, origins: Origins) -> None:
        """One that nobody delivered: odd are the frame that follows it and its member's next."""
        events = np.flatnonzero(origins.frame < 0)
        if len(events) == 0:
            return
        place = self._after_place(origins.seq[events])
        next_own = origins.next_matched(events, self.frames)
        again = np.isin(origins.seq[events], self.seq) | (origins.seq[events] < 0)
        self.odd[place[~again]] = self.odd[next_own] = True
        follows = np.where(again, next_own, place)
        self._is_odd(follows, origins.t_us[events])
        origins.follows[events] = follows
        self.strays += origins.seq[events].tolist()

    def _senders(self) -> None:
        """Senders are members, and each one's numbers follow each other."""
        assert self.origins is not None
        sender, number, size = self.ref.first("sender"), self.ref.first("sequence"), self.ref.sizes
        self.odd[:-1] |= ~np.isin(sender, list(self.told))
        for node in self.told:
            mine = np.flatnonzero((sender == node) & ~self.odd[:-1])
            follow = number[mine][1:] == (number[mine] + size[mine])[:-1]
            ends = np.maximum.accumulate(number[mine] + size[mine])
            self.shown[mine[1:][~follow]] = True
            self.shown[mine[1:][number[mine][1:] < ends[:-1]]] = True
        numbered = self.origin >= 0
        origin = self.origin[numbered]
        if np.any(self.origins.sender[origin] != self.origins.node[origin]):
            t_us = self.origins.t_us[origin]
            self.odd[np.flatnonzero(numbered)[1:][t_us[1:] < t_us[:-1]]] = True

    def _submitted(self) -> None:
        """Each message was submitted before, once, with the same contents."""
        assert self.origins is not None
        window = self.window
        table = table_of(Path(window.folder), "submit", window.run)
        self.submissions = Submissions(table, window.stays, self.origins)
        self.submissions.check_times(self.told)
        sender, said = self.ref.first("sender"), self._said()
        for stay in window.stays:
            mine = np.flatnonzero((sender == stay.node) & ~self.odd[:-1])
            events = self.origin[mine]
            doubtful = self.submissions.doubtful(stay, events, window.reads >= Reads.PASTS)
            self.shown[mine[doubtful]] = True
            self.submissions.show(stay, said[1][said[0] == stay.node])
            self._beside(stay.node)

    def _beside(self, node: NodeId) -> None:
        """Show the frames whose submissions are shown."""
        assert self.submissions is not None
        numbers = self.submissions.besides(node)
        if len(numbers):
            mine = np.flatnonzero(self.ref.first("sender") == node)
            first = self.ref.first("sequence")[mine]
            low, high = (
                np.searchsorted(numbers, at) for at in (first, first + self.ref.sizes[mine])
            )
            self.shown[mine[low < high]] = True

    def _strangers(self) -> bool:
        """Whether a sender is no member of the ring."""
        members = [stay.node for stay in self.window.stays]
        return not bool(np.isin(self.ref.first("sender"), members).all())

    def _said(self) -> tuple[Ints, Ints]:
        """Senders and numbers that deliveries name of what was not originated so."""
        assert self.origins is not None
        senders, numbers = [], []
        for node, told in self.told.items():
            sender, number, size = told.first("sender"), told.first("sequence"), told.sizes
            both = np.flatnonzero((self.at[node] >= 0) & (self.origin >= 0))
            at, its = self.at[node][both], self.origin[both]
            right = self.origins.sender[its] == sender[at]
            right &= self.origins.number[its] == number[at]
            right &= self.origins.size[its] == size[at]
            wrong = np.ones(len(told), np.bool_)
            wrong[at[right]] = False
            first, many = number[wrong], size[wrong]
            after = np.cumsum(many) - many  # of those before
            senders.append(np.repeat(sender[wrong], many))
            numbers.append(np.repeat(first - after, many) + np.arange(many.sum()))
        return np.concatenate(senders), np.concatenate(numbers)

    # what else is shown

    def _extend(self) -> None:
        """Show what was under way when something odd happened."""
        assert self.origins is not None
        if self.frames == 0:
            return
        late = np.full(self.frames, -1, np.int64)
        for node, told in self.told.items():
            there = np.flatnonzero(self.at[node] >= 0)
            t_us = told.first("t_us")[self.at[node][there]]
            late[there] = np.maximum(late[there], t_us)
            chosen = self.odd[there]
            self._is_odd(there[chosen], t_us[chosen])
        known = np.flatnonzero(self.origin >= 0)
        sent_us = self.origins.t_us[self.origin[known]]
        begun_us = self.origins.begun_us[self.origin[known]]
        self._is_odd(known[self.odd[known]], sent_us[self.odd[known]])
        keep = self.window.keep
        before = np.maximum.accumulate(np.append(keep.until_us, self.odd_until_us[:-1]))
        self.shown[known[begun_us <= before[known]]] = True
        if self.window.closely:
            after = np.minimum.accumulate(np.append(self.odd_from_us[1:], keep.from_us)[::-1])
            self.shown[:-1] |= late >= after[::-1][:-1]

    def _asked(self) -> None:
        """Show what others want to see, and what stands at or after the place of a stray event."""
        keep, seq = self.window.keep, self.seq
        places = np.array([*self.strays, *keep.seqs], np.int64)
        shown = np.isin(seq, places)
        self.shown[self._after_place(places)] = True
        for low, high in keep.ranges:
            shown |= (seq >= low) & (seq <= high)
        if keep.numbers:
            sender, number = self.ref.first("sender"), self.ref.first("sequence")
            for node, low, high in keep.numbers:
                inside = (number + self.ref.sizes > low) & (number <= high)
                shown |= (sender == node) & inside
        self.shown[:-1] |= shown

    def _show(self, runs: Runs) -> Found:
        """The stretches, and the events of all the rest."""
        parts = [
            self._part(gap, told, first, last)
            for node, told in self.told.items()
            for gap, first, last in runs.between(node)
        ]
        parts += (
            Part(gap, originated, told, first, last) for told, gap, first, last in runs.originated()
        )
        rows = sum(len(told.rows) for told in self.told.values())
        rows += sum(len(told.rows) for told in self.origins.tolds) if self.origins else 0
        if self.window.last:
            for make, stay, left in self._after():
                parts.append(Part.of(len(runs), make, stay.node, left))
                rows += len(left)
        stop_us = limit(parts)
        gaps: list[list[Originated | Delivered]] = [[] for _ in range(len(runs) + 1)]
        cut = len(runs)
        for part in parts:
            gaps[part.gap] += part.events(stop_us)
            if not part.whole(stop_us):
                cut = min(cut, part.gap)
        found = Found(
            pieces=runs.pieces(),
            gaps=gaps,
            odd_from_us=int(self.odd_from_us.min()),
            odd_until_us=int(self.odd_until_us[:-1].max(initial=-1)),
            rows=rows,
            stop_us=stop_us,
        )
        if stop_us is not None:
            found.cut(cut)
        if self.origins is not None:
            for told in (*self.told.values(), *self.origins.tolds):
                for at in (0, -1) if len(told) else ():
                    n, t_us = told.first("n")[at], told.first("t_us")[at]
                    found.marks.append((told.node, int(n), int(t_us)))
        if self.submissions is not None:
            found.submits = runs.submitted(found.stop_us)
            found.covered = self.submissions.covered()
        return found

    def _part(self, gap: int, told: EventRows, first: int, last: int) -> Part:
        """Deliveries of a member; if only places were read, the rest is read for these."""
        if self._full:
            return Part(gap, delivered, told, first, last)
        rows = told.rows.part(int(told.starts[first]), int(told.starts[last]))
        return Part.of(gap, placed, told.node, rows)

    def _after(self) -> Iterator[tuple[Make, Stay, Rows]]:
        """What the members did after they left the ring and before the next one."""
        for stay in self.window.stays:
            ends = (stay.node, stay.end_n, stay.next_n)
            yield delivered if self._full else placed, stay, self._deliver.between(*ends)
            if self._originate is not None:
                yield originated, stay, self._originate.between(*ends)

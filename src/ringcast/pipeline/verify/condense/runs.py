"""Runs of frames that are alike, and the stretches that stand for them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from ringcast.checks.stretch import Share, Stretch
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Originated, Submit
from ringcast.pipeline.verify.condense.columns import Flags, Ints
from ringcast.pipeline.verify.condense.event_rows import EventRows, delivered, originated
from ringcast.pipeline.verify.condense.origins import Origins, Submissions

LEAST_RUN = 32
"""Fewer frames in a row are shown in full."""

NEVER = np.iinfo(np.int64).max


class PlacedStretch(msgspec.Struct, frozen=True):
    """A stretch, and what must be known to put it into the trace."""

    stretch: Stretch
    low: int
    """Its first place."""
    first_us: int = -1
    """When the first of its frames was originated or delivered, if looked at; else -1."""
    last_us: int = -1
    """When the last of them was delivered, likewise."""


class Frames(msgspec.Struct):
    """The frames of a window, as far as they have been made out."""

    ring: ViewId
    seq: Ints
    sender: Ints | None
    number: Ints | None
    size: Ints | None
    told: dict[NodeId, EventRows]
    at: dict[NodeId, Ints]
    """By member: for each frame its event, or -1."""
    origins: Origins | None = None
    origin: Ints | None = None
    """For each frame its origination, or -1."""
    submissions: Submissions | None = None


class Runs:
    """The runs of frames that need not be shown: frames ``starts[k] .. ends[k] - 1`` each."""

    def __init__(self, frames: Frames, shown: Flags) -> None:
        self.frames = frames
        self._shown = shown[:-1]
        self.starts: list[int] = []
        self.ends: list[int] = []
        while True:
            self._find()
            wrong = self._overlapping()
            if wrong is None:
                break
            self._shown[self.starts[wrong] : self.ends[wrong]] = True
        self.heads = [self._heads(k) for k in range(len(self))]

    def __len__(self) -> int:
        return len(self.starts)

    def _find(self) -> None:
        """Runs that are long enough and go on ascending from each other."""
        change = np.diff(np.concatenate(([1], self._shown.astype(np.int8), [1])))
        pairs = zip(np.flatnonzero(change < 0), np.flatnonzero(change > 0), strict=True)
        self.starts, self.ends = [], []
        highest = -1
        for start, end in pairs:
            if end - start >= LEAST_RUN and self.frames.seq[start] > highest:
                highest = int(self.frames.seq[end - 1])
                self.starts.append(int(start))
                self.ends.append(int(end))

    def _overlapping(self) -> int | None:
        """A run after which something shown begins before all that is shown before it has ended."""
        if self.frames.origins is None:
            return None
        first_us, last_us = np.full(len(self) + 1, NEVER), np.full(len(self) + 1, -1)
        for node, told in self.frames.told.items():
            t_us = told.first("t_us")
            for gap, first, last in self.between(node):
                first_us[gap] = min(first_us[gap], t_us[first])
                last_us[gap] = max(last_us[gap], t_us[last - 1])
        for told, gap, first, last in self.originated():
            t_us = told.first("t_us")
            first_us[gap] = min(first_us[gap], t_us[first])
            last_us[gap] = max(last_us[gap], t_us[last - 1])
        before = np.maximum.accumulate(last_us)[:-1]
        after = np.minimum.accumulate(first_us[::-1])[::-1][1:]
        wrong = np.flatnonzero(before >= after)
        return int(wrong[0]) if len(wrong) else None

    def between(self, node: NodeId) -> Iterator[tuple[int, int, int]]:
        """The events of a member outside the runs: gap, first, last (excluded)."""
        at, last = self.frames.at[node], 0
        for gap, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            if last < at[start]:
                yield gap, last, int(at[start])
            last = int(at[end - 1]) + 1
        if last < len(self.frames.told[node]):
            yield len(self), last, len(self.frames.told[node])

    def originated(self) -> Iterator[tuple[EventRows, int, int, int]]:
        """The originations outside the runs: whose, gap, first, last (excluded)."""
        origins = self.frames.origins
        if origins is None:
            return
        place = np.where(origins.frame >= 0, origins.frame, origins.follows)
        gap = np.searchsorted(self.starts, place, "right")
        inside = (origins.frame >= 0) & (gap > 0)
        inside &= place < np.append(self.ends, 0)[gap - 1]
        begin = 0
        for told, end in zip(origins.tolds, origins.ends.tolist(), strict=True):
            mine = np.flatnonzero(~inside[begin:end])
            breaks = np.flatnonzero((np.diff(mine) != 1) | (np.diff(gap[begin + mine]) != 0)) + 1
            for part in np.split(mine, breaks) if len(mine) else ():
                yield told, int(gap[begin + part[0]]), int(part[0]), int(part[-1]) + 1
            begin = end

    def _heads(self, k: int) -> Ints:
        """The first frame of each sender and originator in a run."""
        frames = self.frames
        if frames.origins is None or frames.origin is None or frames.sender is None:
            return np.empty(0, np.int64)
        inside = slice(self.starts[k], self.ends[k])
        pair = frames.sender[inside] << 32 | frames.origins.node[frames.origin[inside]]
        return np.sort(np.unique(pair, return_index=True)[1]) + self.starts[k]

    def submitted(self, stop_us: int | None) -> list[Submit]:
        """The submissions of all that is outside the runs, before that time."""
        frames = self.frames
        if frames.submissions is None or frames.origin is None:
            return []
        inside = np.zeros(len(frames.seq), np.bool_)
        for start, end in zip(self.starts, self.ends, strict=True):
            inside[start:end] = True
        found = frames.submissions.of(frames.origin[inside], others=True)
        return [each for each in found if stop_us is None or each.t_us < stop_us]

    def pieces(self) -> list[PlacedStretch]:
        """What stands for the runs."""
        return [self._piece(k) for k in range(len(self))]

    def _piece(self, k: int) -> PlacedStretch:
        frames, start, end, heads = self.frames, self.starts[k], self.ends[k], self.heads[k]
        first_us = last_us = -1
        by = 0
        shown: list[Submit | Originated | Delivered] = []
        shares: list[Share] = []
        if frames.origins is not None and frames.origin is not None:
            first_us = int(frames.origins.begun_us[frames.origin[start:end]].min())
            last = {n: t.first("t_us")[frames.at[n][end - 1]] for n, t in frames.told.items()}
            last_us = int(max(last.values()))
            by = min(last, key=lambda node: (last[node], node))
            for frame in heads.tolist():
                shown += self._events(frame)
            if frames.submissions is not None:
                shown += frames.submissions.of(frames.origin[heads])
            shares = list(self._shares(start, end, heads))
        shown.sort(key=lambda event: (event.t_us, event.node, event.n))
        seq, count = int(frames.seq[end - 1]), end - start - len(heads)
        stretch = Stretch(frames.ring, count, seq, tuple(shown), tuple(shares), by)
        return PlacedStretch(stretch, int(frames.seq[start]), first_us, last_us)

    def _events(self, frame: int) -> Iterator[Originated | Delivered]:
        """All events of a frame."""
        frames = self.frames
        for node, told in frames.told.items():
            at = int(frames.at[node][frame])
            yield from delivered(told, at, at + 1)
        assert frames.origins is not None and frames.origin is not None
        told, at = frames.origins.whose(int(frames.origin[frame]))
        yield from originated(told, at, at + 1)

    def _shares(self, start: int, end: int, heads: Ints) -> Iterator[Share]:
        frames = self.frames
        assert frames.sender is not None and frames.number is not None and frames.size is not None
        for node in frames.told:
            mine = np.flatnonzero(frames.sender[start:end] == node) + start
            rest = mine[~np.isin(mine, heads)]
            if len(rest):
                last = int(frames.number[mine[-1]] + frames.size[mine[-1]]) - 1
                first = int(frames.number[rest[0]])
                yield Share(node, len(rest), first, last, int(frames.seq[mine[-1]]))

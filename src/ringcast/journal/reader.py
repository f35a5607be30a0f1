"""A journal as everybody but its node sees it: which records there are, and reading them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from ringcast.core.ids import GAP_BRANCH, START, Position, ViewId
from ringcast.journal.durable import durable_bytes, torn, was_cut
from ringcast.journal.format.frame import Frame, Range
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.segment import INDEX, Head, Heads, SegmentFile, read_index
from ringcast.journal.format.selection import EVERYTHING, Selection
from ringcast.journal.writer import read_trimmed, segment_names


class SegmentReader:
    """One segment of a journal. Sealed or growing, its frames are found without reading them.

    Their heads stay in the files, for their number has no bound: in the index of a sealed segment,
    and in a growing one at offsets that are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.stem)
        """Of its first record."""
        self.ends: Sequence[Head] = ()
        """The first and the last head, if there are any."""
        self._sealed = False
        self._offsets = array("Q")
        """Of the frames, where no index tells them."""
        self._heads: Heads | None = None
        self._file: SegmentFile | None = None

    def refresh(self) -> None:
        """See what was written since. What was seen of a growing segment is not looked at again."""
        if self._sealed:
            return
        self.close()
        index = read_index(self.path)
        if index is not None:
            self.ends, self._sealed = index[:1] + index[-1:], True
            self._offsets = array("Q")
            return
        self._sealed = self.path.with_suffix(INDEX).exists()  # asked first: then this is all of it
        file = self.file
        upto = durable_bytes(self.path, file.size)
        most = file.size if upto is None else upto
        self.ends = self.ends if self._offsets else ()
        end = self.ends[-1].end if self.ends else 0
        for head in takewhile(lambda head: head.end <= most, file.heads(end)):
            if not file.known(head):
                break
            self.ends = (self.ends[0] if self.ends else head, head)
            self._offsets.append(head.offset)
            end = head.end
        if (end < most <= file.size and not torn(file, end)) or was_cut(self.path):
            raise JournalError(
                f"{self.path}: damaged at byte {end}; restore the file, or read another member's "
                "journal"
            )

    @property
    def file(self) -> SegmentFile:
        """Where the frames are."""
        if self._file is None:
            self._file = SegmentFile(self.path)
        return self._file

    @property
    def heads(self) -> Heads:
        """Of all frames that were there at the last refresh."""
        if self._heads is None:
            data = self.file.data  # if it was trimmed meanwhile, this says so
            offsets = self._offsets
            found = Heads(self.path, data, offsets) if offsets else read_index(self.path)
            if found is None:
                self._sealed = False
                raise JournalError(
                    f"{self.path}: its index was lost meanwhile; read the journal again"
                )
            self._heads = found
        return self._heads

    def read(self, head: Head, check: bool = True) -> Frame:
        """The entries of a frame."""
        return self.file.read(head, check)

    def close(self) -> None:
        """Leave the files. Whoever needs them again opens them again."""
        self._heads = self._file = None


def last_of(head: Head) -> Position:
    """Where a frame ends."""
    return head.last


class JournalReader:
    """One journal, as its files are when it is opened or refreshed."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._known: dict[Path, SegmentReader] = {}
        self._used: SegmentReader | None = None
        self.refresh()

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        known = {}
        for path in segment_names(self.folder):
            segment = self._known.get(path) or SegmentReader(path)
            try:
                self._use(segment).refresh()
            except JournalError:
                if path.exists():
                    raise
                continue  # it has just been trimmed
            known[path] = segment
        self._known = known
        self.gone = read_trimmed(self.folder)
        """What was trimmed."""
        self._segments = [
            segment
            for segment in known.values()
            if segment.ends and segment.ends[-1].after > self.gone.number
        ]
        for one, other in pairwise(self._segments):
            if other.number != one.ends[-1].after:
                raise JournalError(
                    f"{other.path}: begins with record {other.number}, but "
                    f"{one.ends[-1].after} comes next; what is between is missing or damaged"
                )
        before = self.trimmed = self.gone.place
        """Everything behind this place is here, up to the last record."""
        self.gaps: list[Range] = []
        """Where records are missing, because their node was away and nobody had them any more."""
        for segment in self._segments:
            first, last = segment.ends[0].first, segment.ends[-1].last
            if first.branch == GAP_BRANCH:
                self.gaps.append(Range(before, first))
                self.trimmed = first
            before = last

    @property
    def end(self) -> Head | None:
        """The last frame."""
        return self._segments[-1].ends[-1] if self._segments else None

    @property
    def last(self) -> Position:
        """The place of the last record, or of the last one that was trimmed."""
        return self.end.last if self.end else self.trimmed

    @property
    def first(self) -> Position | None:
        """The place of the first record that is left."""
        return self._segments[0].ends[0].first if self._segments else None

    def _use(self, segment: SegmentReader) -> SegmentReader:
        """A segment, to look into it. The one before is left: there may be thousands, and each
        that is open keeps two descriptors. After a refresh it is the last one, which grows: what
        was seen of it can be read even if it is removed meanwhile, as when a node has caught up."""
        if self._used is not segment:
            if self._used is not None:
                self._used.close()
            self._used = segment
        return segment

    def heads_after(self, after: Position = START) -> Iterator[tuple[Path, Head]]:
        """All frames from the one with the first record after ``after`` on."""
        return ((segment.path, head) for segment, head in self._from(after))

    def _from(self, after: Position) -> Iterator[tuple[SegmentReader, Head]]:
        start = bisect_right(self._segments, after, key=lambda each: each.ends[-1].last)
        for segment in self._segments[start:]:
            heads = self._use(segment).heads
            for number in range(bisect_right(heads, after, key=last_of), len(heads)):
                yield segment, heads[number]

    def holds(self, view: ViewId, place: Position) -> bool:
        """Whether a record of this configuration lies at the place."""
        just = Range(place.before, place)
        return any(view in frame.views() for frame in self.frames(just, check=False))

    def digest(self, place: Position) -> int | None:
        """Of the entry with the record at a place; None if there is none."""
        just = Range(place.before, place)
        return next(
            (int(frame.table[0]["digest"]) for frame in self.frames(just, check=False)), None
        )

    def has(self, span: Range) -> bool:
        """Whether any record lies in the range, its end not counted."""
        first = self.next_after(span.after)
        return first is not None and first < span.upto

    def next_after(self, place: Position) -> Position | None:
        """The first record after ``place``; None if there is none yet."""
        for segment, head in self._from(place):
            if head.first > place:
                return head.first
            frame = self._use(segment).read(head, check=False)
            return frame.place(frame.upto(place))
        return None

    def count(self, span: Range) -> int:
        """How many records lie in a range."""
        return self._number(span.upto) - self._number(span.after)

    def _number(self, place: Position) -> int:
        """How many records came up to ``place``, with those that were trimmed."""
        for segment, head in self._from(place):
            if head.first > place:
                return head.number
            return head.number + self._use(segment).read(head, check=False).upto(place)
        return self.end.after if self.end else 0

    def after_rows(self, after: Position, rows: int) -> Position:
        """The place so many records after ``after``, or the last one."""
        number = self._number(after) + rows
        at = bisect_left(self._segments, number, key=lambda each: each.ends[-1].after)
        if at == len(self._segments):
            return self.last
        segment = self._use(self._segments[at])
        heads = segment.heads
        head = heads[bisect_left(heads, number, key=lambda each: each.after)]
        if head.after == number:
            return head.last
        return segment.read(head, check=False).place(number - head.number - 1)

    def frames(
        self, span: Range, check: bool = True, wanted: Selection = EVERYTHING
    ) -> Iterator[Frame]:
        """The entries that have records in a range, as they lie in the files; frames that have
        nothing wanted are not looked at."""
        for segment, head in self._from(span.after):
            if head.first > span.upto:
                return
            if not wanted.meets(head.first, head.last):
                continue
            frame = self._use(segment).read(head, check)
            if head.first <= span.after or head.last > span.upto:
                frame = frame.within(span)
            if len(frame):
                yield frame

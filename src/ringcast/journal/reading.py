"""A journal as everybody but its node sees it: which records there are, and reading them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ringcast.core.ids import ViewId
from ringcast.journal.layout import GAP_INDEX, LAST_INDEX, START, JournalError, Place, schema
from ringcast.journal.log import durable_bytes, read_trimmed, segment_names
from ringcast.journal.segment import INDEX, Head, SegmentFile, read_index


class Range(NamedTuple):
    """Records after ``after`` up to and including ``upto``."""

    after: Place
    upto: Place


class Volume:
    """One segment of a journal. Sealed or growing, its frames are found without reading them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.stem)
        """Of its first record."""
        self._grown: list[Head] = []
        self.heads: Sequence[Head] = self._grown
        self._sealed = False
        self._file: SegmentFile | None = None

    def refresh(self) -> None:
        """See what was written since. What was seen of a growing segment is not looked at again."""
        if self._sealed:
            return
        index = None if self._grown else read_index(self.path)
        if index is not None:
            self.heads, self._sealed = index, True
            return
        self._sealed = self.path.with_suffix(INDEX).exists()  # asked first: then this is all of it
        self._file = file = SegmentFile(self.path)
        upto = durable_bytes(self.path.parent, self.path, file.size)
        end = self._grown[-1].end if self._grown else 0
        self._grown.extend(takewhile(lambda head: head.end <= upto, file.heads(end)))

    def read(self, head: Head, check: bool) -> Any:
        """The records of a frame."""
        if self._file is None:
            self._file = SegmentFile(self.path)
        return self._file.read(head, check)

    def rows(self, head: Head) -> list[Place]:
        """The places of the records of a frame."""
        columns = self.read(head, check=False).column("position").flatten()
        return [Place(*each) for each in zip(*(c.to_pylist() for c in columns), strict=True)]


def last_of(head: Head) -> Place:
    """Where a frame ends."""
    return head.last


class Shelf:
    """One journal, as its files are when it is opened or refreshed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, Volume] = {}
        self.refresh()

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        known = {}
        for path in segment_names(self.folder):
            volume = self._known.get(path) or Volume(path)
            try:
                volume.refresh()
            except JournalError:
                if path.exists():
                    raise
                continue  # it has just been trimmed
            known[path] = volume
        self._known = known
        self._volumes = [volume for volume in known.values() if volume.heads]
        self.gone = read_trimmed(self.folder)
        """What was trimmed."""
        before = self.trimmed = self.gone.place
        """Everything behind this place is here, up to the last record."""
        self.gaps: list[Range] = []
        """Where records are missing, because their node was away and nobody had them any more."""
        for volume in self._volumes:
            first, last = volume.heads[0].first, volume.heads[-1].last
            if first.index == GAP_INDEX:
                self.gaps.append(Range(before, first))
                self.trimmed = first
            before = last

    @property
    def end(self) -> Head | None:
        """The last frame."""
        return self._volumes[-1].heads[-1] if self._volumes else None

    @property
    def last(self) -> Place:
        """The place of the last record, or of the last one that was trimmed."""
        return self.end.last if self.end else self.trimmed

    @property
    def first(self) -> Place | None:
        """The place of the first record that is left."""
        return self._volumes[0].heads[0].first if self._volumes else None

    def frames(self, after: Place = START) -> Iterator[tuple[Path, Head]]:
        """All frames from the one with the first record after ``after`` on."""
        return ((volume.path, head) for volume, head in self._from(after))

    def _from(self, after: Place) -> Iterator[tuple[Volume, Head]]:
        start = bisect_right(self._volumes, after, key=lambda each: each.heads[-1].last)
        for volume in self._volumes[start:]:
            at = bisect_right(volume.heads, after, key=last_of)
            for number in range(at, len(volume.heads)):
                yield volume, volume.heads[number]

    def holds(self, view: ViewId, place: Place) -> bool:
        """Whether a record of this configuration lies at the place."""
        just = Range(place._replace(index=place.index - 1), place)
        found = [batch.column("view")[0].as_py() for batch in self.batches(just, check=False)]
        return {"seq": view.seq, "rep": view.rep} in found

    def has(self, span: Range) -> bool:
        """Whether any record lies in the range, its end not counted."""
        first = self.next_after(span.after)
        return first is not None and first < span.upto

    def next_after(self, place: Place) -> Place | None:
        """The first record after ``place``; None if there is none yet."""
        for volume, head in self._from(place):
            if head.first > place:
                return head.first
            rows = volume.rows(head)
            return rows[bisect_right(rows, place)]
        return None

    def count(self, span: Range) -> int:
        """How many records lie in a range."""
        return self._number(span.upto) - self._number(span.after)

    def _number(self, place: Place) -> int:
        """How many records came up to ``place``, with those that were trimmed."""
        for volume, head in self._from(place):
            return head.number + (
                bisect_right(volume.rows(head), place) if head.first <= place else 0
            )
        return self.end.after if self.end else 0

    def after_rows(self, after: Place, rows: int) -> Place:
        """The place so many records after ``after``, or the last one."""
        number = self._number(after) + rows
        at = bisect_left(self._volumes, number, key=lambda each: each.heads[-1].after)
        if at == len(self._volumes):
            return self.last
        volume = self._volumes[at]
        head = volume.heads[bisect_left(volume.heads, number, key=lambda each: each.after)]
        return head.last if head.after == number else volume.rows(head)[number - head.number - 1]

    def keys(self, span: Range) -> list[Any]:
        """What tells the records of a range apart, as columns of numbers: their places, and of
        transitional configurations which one it is, for members that part have one each there."""
        import pyarrow as pa

        names = [schema().field(name) for name in ("position", "view")]
        try:
            found = [each.select(["position", "view"]) for each in self.batches(span, check=False)]
        except (OSError, pa.ArrowException):  # damaged, and nothing was checked: say where
            for _ in self.batches(span):
                pass
            raise
        table = pa.Table.from_batches(found, pa.schema(names))
        return keys_of(table)

    def batches(self, span: Range, check: bool = True) -> Iterator[Any]:
        """The records of a range as Arrow batches that lie in the files."""
        for volume, head in self._from(span.after):
            if head.first > span.upto:
                return
            batch = volume.read(head, check)
            if head.first <= span.after or head.last > span.upto:
                rows = volume.rows(head)
                start = bisect_right(rows, span.after)
                batch = batch.slice(start, bisect_right(rows, span.upto) - start)
            yield batch


def keys_of(records: Any) -> list[Any]:
    """What tells records apart, see ``Shelf.keys``."""
    import numpy as np

    place, view = (
        [each.to_numpy() for each in records.column(name).combine_chunks().flatten()]
        for name in ("position", "view")
    )
    parted = place[-1] == LAST_INDEX
    return [*place, *(np.where(parted, column, 0) for column in view)]

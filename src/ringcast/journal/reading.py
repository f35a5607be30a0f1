"""Journals as everybody but their node sees them: which records there are, and reading them.

Several journals of one group are read as one: replicas hold the same records at the same places,
and what one of them lacks is taken from another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ringcast.journal.layout import START, JournalError, Place, schema
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
        self.trimmed = read_trimmed(self.folder).place

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

    def places(self, span: Range) -> list[Any]:
        """The places of the records of a range, as columns of numbers."""
        import pyarrow as pa

        found = [batch.column("position") for batch in self.batches(span, check=False)]
        column = pa.chunked_array(found, schema().field("position").type).combine_chunks()
        return [each.to_numpy() for each in column.flatten()]

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


class Shelves:
    """Several journals of one group, read as one."""

    def __init__(self, folders: Sequence[Path]) -> None:
        if not folders:
            raise JournalError("no journal is named")
        self.shelves = [Shelf(folder) for folder in folders]

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        for shelf in self.shelves:
            shelf.refresh()

    @property
    def trimmed(self) -> Place:
        """What no journal has any more ends here."""
        return min(shelf.trimmed for shelf in self.shelves)

    @property
    def last(self) -> Place:
        """The last record that any of them has."""
        return max(shelf.last for shelf in self.shelves)

    def check(self, after: Place) -> None:
        """Raise if records after ``after`` are gone everywhere."""
        if after < self.trimmed:
            raise JournalError(
                f"the records after {after} were trimmed, up to {self.trimmed}: a reader that "
                "stops there is not told of them; start it anew, or keep the journal longer"
            )

    def pieces(self, span: Range) -> Iterator[tuple[Shelf, Range]]:
        """The range cut into pieces, each with the journal that has the next record, up to the
        end of its frame: there another one may have records in between."""
        if len(self.shelves) == 1:
            yield self.shelves[0], span
            return
        place = span.after
        while place < span.upto:
            found = [(at, s) for s in self.shelves if (at := s.next_after(place)) is not None]
            found = [(at, s) for at, s in found if at <= span.upto]
            if not found:
                return
            _, shelf = min(found, key=lambda each: each[0])
            _, head = next(shelf.frames(place))
            end = min(head.last, span.upto)
            yield shelf, Range(place, end)
            place = end

    def after_rows(self, span: Range, rows: int) -> Place:
        """The place so many records into a range; its end if there are fewer.

        What the journal at hand lacks there and another has comes on top.
        """
        for shelf, piece in self.pieces(span):
            count = shelf.count(piece)
            if count >= rows:
                return shelf.after_rows(piece.after, rows)
            rows -= count
        return span.upto

    def split(self, span: Range, size: int) -> list[Range]:
        """A range in parts of about so many bytes, as equal as frames allow: a smaller one at the
        end would keep a task waiting, or a core idle."""
        ends: list[tuple[Place, int]] = []
        for shelf, piece in self.pieces(span):
            for _, head in shelf.frames(piece.after):
                if head.first > piece.upto:
                    break
                ends.append((min(head.last, piece.upto), head.length))
        total = sum(length for _, length in ends)
        parts = max(1, round(total / size))
        found: list[Range] = []
        start, held = span.after, 0
        for end, length in ends:
            held += length
            if held * parts >= total * (len(found) + 1):
                found.append(Range(start, span.upto if held == total else end))
                start = end
        return found

    def batches(self, span: Range) -> Iterator[Any]:
        """All records of a range, each once, in order."""
        for shelf, piece in self.pieces(span):
            own = shelf.places(piece) if len(self.shelves) > 1 else None
            others = (other.places(piece) for other in self.shelves if other is not shelf)
            if all(len(each[0]) == 0 or same(own, each) for each in others):
                yield from shelf.batches(piece)
            else:
                yield self._merge(piece)

    def _merge(self, span: Range) -> Any:
        """What any of them has in a range, each place once."""
        import numpy as np
        import pyarrow as pa

        found = [batch for shelf in self.shelves for batch in shelf.batches(span)]
        table = pa.Table.from_batches(found, schema()).combine_chunks()
        columns = [each.to_numpy() for each in table.column("position").combine_chunks().flatten()]
        order = np.lexsort(columns[::-1])
        ordered = [column[order] for column in columns]
        fresh = np.ones(len(order), bool)
        fresh[1:] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
        return table.take(order[fresh]).combine_chunks().to_batches()[0]


def same(one: Any, other: Any) -> bool:
    """Whether two columns of places are equal."""
    import numpy as np

    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def whole(folders: Sequence[Path]) -> Iterator[Any]:
    """Everything that journals hold, each record once, in order."""
    shelves = Shelves(folders)
    yield from shelves.batches(Range(START, shelves.last))

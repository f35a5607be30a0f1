"""Journals as everybody but their node sees them: which records there are, and reading them.

Several journals of one group are read as one: replicas hold the same records at the same places,
and what one of them lacks is taken from another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringcast.journal.layout import START, JournalError, Place, schema
from ringcast.journal.log import durable_bytes, read_trimmed, segment_names
from ringcast.journal.segment import Head, SegmentFile, read_index

KEYS = ("ring_seq", "ring_rep", "seq", "index")


class Range(NamedTuple):
    """Records after ``after`` up to and including ``upto``."""

    after: Place
    upto: Place


class Shelf:
    """One journal, as its files are when it is opened or refreshed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sealed: dict[Path, list[Head]] = {}
        self._files: dict[Path, SegmentFile] = {}
        self.refresh()

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        names = segment_names(self.folder)
        self.trimmed = read_trimmed(self.folder).place
        frames: list[tuple[Path, Head]] = []
        for path in names:
            if path not in self._sealed:
                heads = read_index(path)
                if heads is not None:
                    self._sealed[path] = heads
                    self._files.pop(path, None)
            if path in self._sealed:
                frames += [(path, head) for head in self._sealed[path]]
            else:
                file = self._files[path] = SegmentFile(path)  # it has grown: look anew
                upto = durable_bytes(self.folder, path, file.size)
                frames += [(path, head) for head in file.heads() if head.end <= upto]
        self._frames = frames
        self._firsts = [head.first for _, head in frames]
        self._lasts = [head.last for _, head in frames]

    @property
    def last(self) -> Place:
        """The place of the last record, or of the last one that was trimmed."""
        return self._lasts[-1] if self._lasts else self.trimmed

    @property
    def first(self) -> Place | None:
        """The place of the first record that is left."""
        return self._firsts[0] if self._firsts else None

    @property
    def heads(self) -> list[tuple[Path, Head]]:
        """All frames, in order."""
        return self._frames

    def next_after(self, place: Place) -> Place | None:
        """The first record after ``place``; None if there is none yet."""
        at = bisect_right(self._lasts, place)
        if at == len(self._frames):
            return None
        if self._firsts[at] > place:
            return self._firsts[at]
        rows = self._rows(at)
        return rows[bisect_right(rows, place)]

    def frame_end(self, place: Place) -> Place:
        """Where the frame with the first record after ``place`` ends."""
        return self._lasts[bisect_right(self._lasts, place)]

    def frame_bytes(self, place: Place) -> int:
        """How large that frame is."""
        return self._frames[bisect_right(self._lasts, place)][1].length

    def count(self, span: Range) -> int:
        """How many records lie in a range."""
        return self._number(span.upto) - self._number(span.after)

    def _number(self, place: Place) -> int:
        """How many records, of those that are left, lie up to ``place``."""
        at = bisect_right(self._lasts, place)
        base = self._frames[0][1].number if self._frames else 0
        if at == len(self._frames):
            return self._frames[-1][1].after - base if self._frames else 0
        head = self._frames[at][1]
        inside = bisect_right(self._rows(at), place) if head.first <= place else 0
        return head.number - base + inside

    def after_rows(self, after: Place, rows: int) -> Place:
        """The place so many records after ``after``, or the last one."""
        number = self._number(after) + rows
        if not self._frames:
            return after
        base = self._frames[0][1].number
        numbers = [head.after - base for _, head in self._frames]
        at = bisect_left(numbers, number)
        if at == len(numbers):
            return self.last
        head = self._frames[at][1]
        if numbers[at] == number:
            return head.last
        return self._rows(at)[number - (head.number - base) - 1] if number else after

    def places(self, span: Range) -> list[Any]:
        """The places of the records of a range, as columns of numbers."""
        import pyarrow as pa

        found = [batch.column("position") for batch in self.batches(span, check=False)]
        column = pa.chunked_array(found, schema().field("position").type).combine_chunks()
        return [each.to_numpy() for each in column.flatten()]

    def batches(self, span: Range, check: bool = True) -> Iterator[Any]:
        """The records of a range as Arrow batches that lie in the files."""
        at = bisect_right(self._lasts, span.after)
        while at < len(self._frames) and self._firsts[at] <= span.upto:
            head = self._frames[at][1]
            batch = self._read(at, check)
            if head.first <= span.after or head.last > span.upto:
                rows = self._rows(at)
                start = bisect_right(rows, span.after)
                batch = batch.slice(start, bisect_right(rows, span.upto) - start)
            yield batch
            at += 1

    def _read(self, at: int, check: bool = False) -> Any:
        path, head = self._frames[at]
        if path not in self._files:
            self._files[path] = SegmentFile(path)
        return self._files[path].read(head, check)

    def _rows(self, at: int) -> list[Place]:
        """The places of all records of a frame."""
        columns = self._read(at).column("position").flatten()
        return [Place(*each) for each in zip(*(c.to_pylist() for c in columns), strict=True)]


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
        end of its frame."""
        place = span.after
        while place < span.upto:
            found = [(at, s) for s in self.shelves if (at := s.next_after(place)) is not None]
            found = [(at, s) for at, s in found if at <= span.upto]
            if not found:
                return
            _, shelf = min(found, key=lambda each: each[0])
            end = min(shelf.frame_end(place), span.upto)
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
        """A range in parts of about so many bytes, each at least a frame."""
        found: list[Range] = []
        start, held = span.after, 0
        for shelf, piece in self.pieces(span):
            held += shelf.frame_bytes(piece.after)
            if held >= size:
                found.append(Range(start, piece.upto))
                start, held = piece.upto, 0
        if held:
            found.append(Range(start, span.upto))
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

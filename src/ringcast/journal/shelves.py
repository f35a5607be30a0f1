"""Several journals of one group, read as one.

Replicas hold the same records at the same places, and what one of them lacks is taken from
another. When the group parts, each side writes its own history: what one side appends may lie
before what was already read of the other. So how far a reader has come is a place in each
journal (``Marks``), for a journal itself only grows at its end. What was read up to some marks is
all that any journal has up to its own; what is new between two marks is what the later ones have
and the earlier ones had not. Nothing is left out and nothing comes twice, however the journals
interleave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, NamedTuple

from ringcast.core.ids import ViewId
from ringcast.journal.layout import GAP_INDEX, START, JournalError, Place, schema
from ringcast.journal.reading import Range, Shelf, keys_of

Marks = tuple[Place, ...]
"""How far each of the journals was read."""


class Span(NamedTuple):
    """What is new between two marks."""

    start: Marks
    end: Marks

    def part(self, span: Range) -> Span:
        """The records of it that lie in a range of places."""
        start = tuple(max(mark, span.after) for mark in self.start)
        pairs = zip(start, self.end, strict=True)
        return Span(start, tuple(max(a, min(b, span.upto)) for a, b in pairs))


class Section(NamedTuple):
    """A range of places in which each journal is new, or was read before, or is left alone."""

    span: Range
    new: list[Shelf]
    old: list[Shelf]


class Shelves:
    """Journals of one group."""

    def __init__(self, folders: Sequence[Path]) -> None:
        if not folders:
            raise JournalError("no journal is named")
        self.shelves = [Shelf(folder) for folder in folders]

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        for shelf in self.shelves:
            shelf.refresh()

    @property
    def begins(self) -> Marks:
        """Behind these everything is there, in each of them."""
        return tuple(shelf.trimmed for shelf in self.shelves)

    @property
    def ends(self) -> Marks:
        """The last record of each."""
        return tuple(shelf.last for shelf in self.shelves)

    @property
    def trimmed(self) -> Place:
        """What no journal has any more ends here."""
        return min(self.begins)

    @property
    def last(self) -> Place:
        """The last record that any of them has."""
        return max(self.ends)

    def marks(self, place: Place) -> Marks:
        """The same place in all of them."""
        return (place,) * len(self.shelves)

    # --- what is gone ----------------------------------------------------------------------

    def check(self, start: Marks) -> None:
        """Raise if records behind the marks are gone, and no other journal has them or was read
        so far."""
        for mark, shelf in zip(start, self.shelves, strict=True):
            if mark < shelf.trimmed and not self._others_have(start, mark, shelf):
                raise JournalError(
                    f"{shelf.folder}: the records after {mark} are gone, up to {shelf.trimmed}: "
                    "they were trimmed, or the node was away for longer than others keep them; "
                    "start the reader anew, or name another member's journal that has them"
                )

    def _others_have(self, start: Marks, mark: Place, shelf: Shelf) -> bool:
        """Whether what one of them lost behind a mark is known from others.

        Of a gap its node lived through nothing: another one that has none there is enough. Of what
        it trimmed, another one must have been in the same configurations.
        """
        others = [(its, s) for its, s in zip(start, self.shelves, strict=True) if s is not shelf]
        for gap in shelf.gaps:
            low, high = max(gap.after, mark), gap.upto
            if low < high and not any(
                min(other.trimmed, high) <= max(its, low) for its, other in others
            ):
                return False
        if mark < shelf.gone.unknown:
            return False
        return all(
            any(
                other.holds(view, last) or (last <= its and other.gone.had(view, last))
                for its, other in others
            )
            for view, last in shelf.gone.past
            if last > mark
        )

    # --- what is new -----------------------------------------------------------------------

    def sections(self, span: Span) -> Iterator[Section]:
        """What is new, cut where some journal begins or ends to be so."""
        from_here = [max(mark, s.trimmed) for mark, s in zip(span.start, self.shelves, strict=True)]
        for low, high in pairwise(sorted({*span.start, *from_here, *span.end})):
            ends = zip(self.shelves, from_here, span.end, strict=True)
            new = [shelf for shelf, a, b in ends if a <= low and high <= b]
            old = [s for s, mark in zip(self.shelves, span.start, strict=True) if high <= mark]
            if new:
                yield Section(Range(low, high), new, old)

    def within(self, span: Range) -> Iterator[Any]:
        """All records of a range of places, each once, in order."""
        yield from batches(span, self.shelves)

    def batches(self, span: Span) -> Iterator[Any]:
        """All new records, each once, in the order of their places."""
        for section in self.sections(span):
            yield from batches(*section)

    def after_rows(self, span: Span, rows: int) -> Marks:
        """The marks so many new records further; the end if there are fewer.

        What the journal at hand lacks there and another has comes on top.
        """
        for section in self.sections(span):
            for shelf, piece in pieces(*section):
                if section.old:
                    count = sum(batch.num_rows for batch in batches(piece, *section[1:]))
                else:
                    count = shelf.count(piece)
                if count >= rows:
                    upto = piece.upto if section.old else shelf.after_rows(piece.after, rows)
                    return span.part(Range(START, upto)).end
                rows -= count
        return span.end

    def split(self, span: Span, size: int) -> list[Span]:
        """What is new in parts of about so many bytes, as equal as frames allow: a smaller one at
        the end would keep a task waiting, or a core idle."""
        ends: list[tuple[Place, int]] = []
        for section in self.sections(span):
            for shelf, piece in pieces(*section):
                for _, head in shelf.frames(piece.after):
                    if head.first > piece.upto:
                        break
                    ends.append((min(head.last, piece.upto), head.length))
        total = sum(length for _, length in ends)
        parts = max(1, round(total / size))
        found: list[Span] = []
        start, held = min(span.start), 0
        for end, length in ends:
            held += length
            if held * parts >= total * (len(found) + 1):
                found.append(span.part(Range(start, max(span.end) if held == total else end)))
                start = end
        return found


def pieces(
    span: Range, new: Sequence[Shelf], old: Sequence[Shelf] = ()
) -> Iterator[tuple[Shelf, Range]]:
    """The range cut into pieces, each with the new journal that has the next record, up to the end
    of its frame: there another one may have records in between. One by itself needs no cuts."""
    if len(new) == 1 and not old:
        yield new[0], span
        return
    place = span.after
    while place < span.upto:
        found = [(at, s) for s in new if (at := s.next_after(place)) is not None]
        found = [(at, s) for at, s in found if at <= span.upto]
        if not found:
            return
        _, shelf = min(found, key=lambda each: each[0])
        _, head = next(shelf.frames(place))
        end = min(head.last, span.upto)
        yield shelf, Range(place, end)
        place = end


def batches(span: Range, new: Sequence[Shelf], old: Sequence[Shelf] = ()) -> Iterator[Any]:
    """The records of a range that any of the new journals has and none of the old, each once."""
    if len(new) == 1 and not old:
        yield from new[0].batches(span)
        return
    filled = {gap.upto for shelf in new for gap in shelf.gaps if any(s.has(gap) for s in new)}
    for shelf, piece in pieces(span, new, old):
        own = shelf.keys(piece)
        others = [other.keys(piece) for other in new if other is not shelf]
        alike = all(len(each[0]) == 0 or same(own, each) for each in others)
        if alike and not old and not filled:
            yield from shelf.batches(piece)
        elif not (alike and any(same(own, each.keys(piece)) for each in old)):
            yield from merged(piece, new, old, filled)


def merged(
    span: Range, new: Sequence[Shelf], old: Sequence[Shelf], filled: set[Place]
) -> Iterator[Any]:
    """The same for a range in which they differ, without gaps that another one fills."""
    import numpy as np
    import pyarrow as pa

    found = [batch for shelf in new for batch in shelf.batches(span)]
    table = pa.Table.from_batches(found, schema()).combine_chunks()
    columns = keys_of(table)
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
    for shelf in old:
        fresh &= ~np.isin(words(ordered), words(shelf.keys(span)))
    for at in np.flatnonzero(ordered[3] == GAP_INDEX):
        fresh[at] &= Place(*(int(column[at]) for column in ordered[:4])) not in filled
    left = table.take(order[fresh])
    if left.num_rows:
        (batch,) = left.combine_chunks().to_batches()
        yield from without(batch, old) if any(span.after < s.gone.place for s in old) else (batch,)


def without(batch: Any, old: Sequence[Shelf]) -> Iterator[Any]:
    """Records that none of these journals had before it trimmed them."""
    import pyarrow as pa

    places, views = (
        list(zip(*(each.to_pylist() for each in batch.column(name).flatten()), strict=True))
        for name in ("position", "view")
    )
    keep = []
    for place, view in zip(starmap(Place, places), starmap(ViewId, views), strict=True):
        had = [shelf.gone.had(view, place) for shelf in old if place <= shelf.gone.place]
        if None in had and True not in had:
            raise JournalError(
                f"the record at {place} may have been read before: a journal that had it, perhaps, "
                "has trimmed it; start the reader anew, and give it a name (reader), so that "
                "nothing is trimmed that it has not read"
            )
        keep.append(True not in had)
    yield batch.filter(pa.array(keep))


def words(columns: list[Any]) -> Any:
    """Keys as single values, to be looked up."""
    import numpy as np

    rows = np.stack(columns, axis=1).astype(np.int64)
    return np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").ravel()


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two journals have the same records."""
    import numpy as np

    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def whole(folders: Sequence[Path]) -> Iterator[Any]:
    """Everything that journals hold, each record once, in order."""
    shelves = Shelves(folders)
    yield from shelves.within(Range(START, shelves.last))

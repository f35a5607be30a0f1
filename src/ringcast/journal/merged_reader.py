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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ringcast.core.ids import GAP_BRANCH, START, Position
from ringcast.journal.format import records
from ringcast.journal.format.frame import Keys, Leaf, Range
from ringcast.journal.format.layout import JournalError
from ringcast.journal.reader import Shelf

Marks = tuple[Position, ...]
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
    def trimmed(self) -> Position:
        """What no journal has any more ends here."""
        return min(self.begins)

    @property
    def last(self) -> Position:
        """The last record that any of them has."""
        return max(self.ends)

    def marks(self, place: Position) -> Marks:
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

    def _others_have(self, start: Marks, mark: Position, shelf: Shelf) -> bool:
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

    def leaves(self, span: Range) -> Iterator[Leaf]:
        """All entries that have records in a range of places, each once, in order."""
        return (leaf for _, leaf in gathered(span, self.shelves))

    def within(self, span: Range) -> Iterator[Any]:
        """All records of a range of places, each once, in order."""
        yield from records.batches(gathered(span, self.shelves))

    def batches(self, span: Span) -> Iterator[Any]:
        """All new records, each once, in the order of their places."""
        for section in self.sections(span):
            yield from records.batches(gathered(*section))

    def after_rows(self, span: Span, rows: int) -> Marks:
        """The marks so many new records further; the end if there are fewer.

        What the journal at hand lacks there and another has comes on top.
        """
        for section in self.sections(span):
            for shelf, piece in pieces(*section):
                if section.old:
                    found = records.batches(gathered(piece, *section[1:]))
                    count = sum(batch.num_rows for batch in found)
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
        ends: list[tuple[Position, int]] = []
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


def gathered(
    span: Range, new: Sequence[Shelf], old: Sequence[Shelf] = ()
) -> Iterator[tuple[Range, Leaf]]:
    """The entries of a range that any of the new journals has and none of the old, each once, with
    the piece of the range whose records are meant."""
    if len(new) == 1 and not old:
        yield from ((span, leaf) for leaf in new[0].leaves(span))
        return
    filled = {gap.upto for shelf in new for gap in shelf.gaps if any(s.has(gap) for s in new)}
    for shelf, piece in pieces(span, new, old):
        (own, *_), known = keys(shelf, piece), [keys(s, piece) for s in old]
        others = [other for s in new if s is not shelf for other in keys(s, piece)]
        alike = all(same(own, each) for each in others)
        if alike and not old and not filled:
            yield from ((piece, leaf) for leaf in shelf.leaves(piece))
        elif not (alike and any(same(own, each) for some in known for each in some)):
            yield from ((piece, leaf) for leaf in merged(piece, new, old, filled))


def keys(shelf: Shelf, span: Range) -> list[Keys]:
    """What tells the entries of a range apart: one, or none if there are no entries."""
    import numpy as np

    found = [leaf.keys for leaf in shelf.leaves(span, check=False)]
    columns = zip(*(each.places for each in found), strict=True)
    join = np.concatenate
    return [Keys(list(map(join, columns)), join([k.digests for k in found]))] if found else []


def merged(
    span: Range, new: Sequence[Shelf], old: Sequence[Shelf], filled: set[Position]
) -> Iterator[Leaf]:
    """The same for a range in which they differ, without gaps that another one fills: entries in
    runs that lie one behind the other in a journal."""
    import numpy as np

    leaves = [leaf for shelf in new for leaf in shelf.leaves(span)]
    columns = list(map(np.concatenate, zip(*(leaf.keys.places for leaf in leaves), strict=True)))
    digests = np.concatenate([leaf.keys.digests for leaf in leaves])
    home = np.repeat(np.arange(len(leaves)), list(map(len, leaves)))
    number = np.concatenate([np.arange(len(leaf)) for leaf in leaves])
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
    places = list(map(Position._make, zip(*(each.tolist() for each in ordered), strict=True)))
    for at in np.flatnonzero(~fresh[1:] & (digests[order][1:] != digests[order][:-1])):
        raise JournalError(
            f"{', '.join(str(shelf.folder) for shelf in new)}: at {places[at]} they have different "
            "records; name journals of one group"
        )
    for each in (each for shelf in old for each in keys(shelf, span)):
        fresh &= ~np.isin(words(ordered), words(each.places))
    for at in np.flatnonzero(ordered[5] == GAP_BRANCH):
        fresh[at] &= places[at] not in filled
    order = order[fresh]
    if not len(order):
        return
    breaks = (np.diff(home[order]) != 0) | (np.diff(number[order]) != 1)
    for start, end in pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), len(order)]):
        first = int(number[order[start]])
        run = leaves[home[order[start]]].part(first, first + end - start)
        yield from without(run, old) if any(span.after < s.gone.place for s in old) else (run,)


def without(leaf: Leaf, old: Sequence[Shelf]) -> Iterator[Leaf]:
    """Entries that none of these journals had before it trimmed them."""
    for at, (place, view) in enumerate(zip(leaf.firsts, leaf.views(), strict=True)):
        had = [shelf.gone.had(view, place) for shelf in old if place <= shelf.gone.place]
        if None in had and True not in had:
            raise JournalError(
                f"the record at {place} may have been read before: a journal that had it, perhaps, "
                "has trimmed it; start the reader anew, and give it a name (reader), so that "
                "nothing is trimmed that it has not read"
            )
        if True not in had:
            yield leaf.part(at, at + 1)


def words(columns: list[Any]) -> Any:
    """Keys as single values, to be looked up."""
    import numpy as np

    rows = np.stack(columns, axis=1).astype(np.int64)
    return np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").ravel()


def same(one: Keys, other: Keys) -> bool:
    """Whether two journals have the same entries."""
    import numpy as np

    pairs = zip([*one.places, one.digests], [*other.places, other.digests], strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def whole(folders: Sequence[Path]) -> Iterator[Any]:
    """Everything that journals hold, each record once, in order."""
    shelves = Shelves(folders)
    yield from shelves.within(Range(START, shelves.last))

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
from ringcast.journal.format.frame import Frame, Keys, Range
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.selection import EVERYTHING, Selection
from ringcast.journal.reader import JournalReader

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
    new: list[JournalReader]
    old: list[JournalReader]


class MergedReader:
    """Journals of one group."""

    def __init__(self, folders: Sequence[Path | str]) -> None:
        if not folders:
            raise JournalError("no journal is named")
        self.journals = [JournalReader(folder) for folder in folders]

    def refresh(self) -> None:
        """See what was written or trimmed since."""
        for journal in self.journals:
            journal.refresh()

    @property
    def begins(self) -> Marks:
        """Behind these everything is there, in each of them."""
        return tuple(journal.trimmed for journal in self.journals)

    @property
    def ends(self) -> Marks:
        """The last record of each."""
        return tuple(journal.last for journal in self.journals)

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
        return (place,) * len(self.journals)

    # --- what is gone ----------------------------------------------------------------------

    def check(self, start: Marks) -> None:
        """Raise if records behind the marks are gone, and no other journal has them or was read
        so far."""
        for mark, journal in zip(start, self.journals, strict=True):
            if mark < journal.trimmed and not self._others_have(start, mark, journal):
                raise JournalError(
                    f"{journal.folder}: the records after {mark} are gone, up to "
                    f"{journal.trimmed}: they were trimmed, or the node was away for longer than "
                    "others keep them; "
                    "start the reader anew, or name another member's journal that has them"
                )

    def _others_have(self, start: Marks, mark: Position, journal: JournalReader) -> bool:
        """Whether what one of them lost behind a mark is known from others.

        Of a gap its node lived through nothing: another one that has none there is enough. Of what
        it trimmed, another one must have been in the same configurations.
        """
        others = [(its, s) for its, s in zip(start, self.journals, strict=True) if s is not journal]
        for gap in journal.gaps:
            low, high = max(gap.after, mark), gap.upto
            if low < high and not any(
                min(other.trimmed, high) <= max(its, low) for its, other in others
            ):
                return False
        if mark < journal.gone.unknown:
            return False
        return all(
            any(
                other.holds(view, last) or (last <= its and other.gone.had(view, last))
                for its, other in others
            )
            for view, last in journal.gone.past
            if last > mark
        )

    # --- what is new -----------------------------------------------------------------------

    def sections(self, span: Span) -> Iterator[Section]:
        """What is new, cut where some journal begins or ends to be so."""
        from_here = [
            max(mark, s.trimmed) for mark, s in zip(span.start, self.journals, strict=True)
        ]
        for low, high in pairwise(sorted({*span.start, *from_here, *span.end})):
            ends = zip(self.journals, from_here, span.end, strict=True)
            new = [journal for journal, a, b in ends if a <= low and high <= b]
            old = [s for s, mark in zip(self.journals, span.start, strict=True) if high <= mark]
            if new:
                yield Section(Range(low, high), new, old)

    def frames(self, span: Range) -> Iterator[Frame]:
        """All entries that have records in a range of places, each once, in order."""
        return (frame for _, frame in gathered(span, self.journals))

    def within(self, span: Range) -> Iterator[Any]:
        """All records of a range of places, each once, in order."""
        yield from records.batches(gathered(span, self.journals))

    def batches(self, span: Span, wanted: Selection = EVERYTHING) -> Iterator[Any]:
        """All new records, each once, in the order of their places."""
        for section in self.sections(span):
            found = gathered(*section, wanted)
            chosen = ((piece, wanted.of(frame)) for piece, frame in found)
            yield from records.batches((piece, frame) for piece, frame in chosen if len(frame))

    def behind(self, marks: Marks) -> int:
        """How many records were not read yet, in the journal that has most of them."""
        pairs = zip(marks, self.journals, strict=True)
        return max(max(0, each.count(Range(mark, each.last))) for mark, each in pairs)

    def after_rows(self, span: Span, rows: int, wanted: Selection = EVERYTHING) -> Marks:
        """Advance the span's marks by ``rows`` new records, or to the end if there are fewer.

        Records that another journal has, and the one being read lacks, are added to these.
        """
        if wanted != EVERYTHING:
            return self._after_wanted(span, rows, wanted)
        for section in self.sections(span):
            for journal, piece in pieces(*section):
                if section.old:
                    found = records.batches(gathered(piece, *section[1:]))
                    count = sum(batch.num_rows for batch in found)
                else:
                    count = journal.count(piece)
                if count >= rows:
                    upto = piece.upto if section.old else journal.after_rows(piece.after, rows)
                    return span.part(Range(START, upto)).end
                rows -= count
        return span.end

    def _after_wanted(self, span: Span, rows: int, wanted: Selection) -> Marks:
        """The same for some of the records: heads do not tell how many those are, tables do."""
        for section in self.sections(span):
            for piece, frame in gathered(*section, wanted, check=False):
                chosen = wanted.of(frame)
                before = chosen.upto(piece.after)
                count = chosen.upto(piece.upto) - before
                if count >= rows:
                    return span.part(Range(START, chosen.place(before + rows - 1))).end
                rows -= count
        return span.end

    def split(self, span: Span, size: int) -> list[Span]:
        """What is new in parts of about so many bytes, as equal as frames allow: a smaller one at
        the end would keep a task waiting, or a core idle."""
        ends: list[tuple[Position, int]] = []
        for section in self.sections(span):
            for journal, piece in pieces(*section):
                for _, head in journal.heads_after(piece.after):
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
    span: Range, new: Sequence[JournalReader], old: Sequence[JournalReader] = ()
) -> Iterator[tuple[JournalReader, Range]]:
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
        _, journal = min(found, key=lambda each: each[0])
        _, head = next(journal.heads_after(place))
        end = min(head.last, span.upto)
        yield journal, Range(place, end)
        place = end


def gathered(
    span: Range,
    new: Sequence[JournalReader],
    old: Sequence[JournalReader] = (),
    wanted: Selection = EVERYTHING,
    check: bool = True,
) -> Iterator[tuple[Range, Frame]]:
    """The entries of a range that any of the new journals has and none of the old, each once, with
    the piece of the range whose records are meant; frames without anything wanted may be left
    out."""
    if len(new) == 1 and not old:
        yield from ((span, frame) for frame in new[0].frames(span, check, wanted))
        return
    filled = {gap.upto for journal in new for gap in journal.gaps if any(s.has(gap) for s in new)}
    for journal, piece in pieces(span, new, old):
        if not wanted.meets(piece.after, piece.upto):
            continue
        (own, *_), known = keys(journal, piece), [keys(s, piece) for s in old]
        others = [other for s in new if s is not journal for other in keys(s, piece)]
        alike = all(same(own, each) for each in others)
        if alike and not old and not filled:
            yield from ((piece, frame) for frame in journal.frames(piece, check))
        elif not (alike and any(same(own, each) for some in known for each in some)):
            yield from ((piece, frame) for frame in merged(piece, new, old, filled))


def keys(journal: JournalReader, span: Range) -> list[Keys]:
    """What tells the entries of a range apart: one, or none if there are no entries."""
    import numpy as np

    found = [frame.keys for frame in journal.frames(span, check=False)]
    columns = zip(*(each.places for each in found), strict=True)
    join = np.concatenate
    return [Keys(list(map(join, columns)), join([k.digests for k in found]))] if found else []


def merged(
    span: Range,
    new: Sequence[JournalReader],
    old: Sequence[JournalReader],
    filled: set[Position],
) -> Iterator[Frame]:
    """The same for a range in which they differ, without gaps that another one fills: entries in
    runs that lie one behind the other in a journal."""
    import numpy as np

    frames = [frame for journal in new for frame in journal.frames(span)]
    columns = list(map(np.concatenate, zip(*(frame.keys.places for frame in frames), strict=True)))
    digests = np.concatenate([frame.keys.digests for frame in frames])
    home = np.repeat(np.arange(len(frames)), list(map(len, frames)))
    number = np.concatenate([np.arange(len(frame)) for frame in frames])
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
    places = list(map(Position._make, zip(*(each.tolist() for each in ordered), strict=True)))
    for at in np.flatnonzero(~fresh[1:] & (digests[order][1:] != digests[order][:-1])):
        raise JournalError(
            f"{', '.join(str(journal.folder) for journal in new)}: at {places[at]} they have "
            "different records; name journals of one group"
        )
    for each in (each for journal in old for each in keys(journal, span)):
        fresh &= ~np.isin(words(ordered), words(each.places))
    for at in np.flatnonzero(ordered[5] == GAP_BRANCH):
        fresh[at] &= places[at] not in filled
    order = order[fresh]
    if not len(order):
        return
    breaks = (np.diff(home[order]) != 0) | (np.diff(number[order]) != 1)
    for start, end in pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), len(order)]):
        first = int(number[order[start]])
        run = frames[home[order[start]]].part(first, first + end - start)
        yield from without(run, old) if any(span.after < s.gone.place for s in old) else (run,)


def without(frame: Frame, old: Sequence[JournalReader]) -> Iterator[Frame]:
    """Entries that none of these journals had before it trimmed them."""
    for at, (place, view) in enumerate(zip(frame.firsts, frame.views(), strict=True)):
        had = [journal.gone.had(view, place) for journal in old if place <= journal.gone.place]
        if None in had and True not in had:
            raise JournalError(
                f"the record at {place} may have been read before: a journal that had it, perhaps, "
                "has trimmed it; start the reader anew, and give it a name (reader), so that "
                "nothing is trimmed that it has not read"
            )
        if True not in had:
            yield frame.part(at, at + 1)


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


def whole(folders: Sequence[Path | str]) -> Iterator[Any]:
    """Everything that journals hold, each record once, in order."""
    reader = MergedReader(folders)
    yield from reader.within(Range(START, reader.last))

"""Made-up histories for tests of journals."""

from __future__ import annotations

from pathlib import Path

from ringcast.core.ids import Level, Position, ViewId
from ringcast.journal.format import layout
from ringcast.journal.format.frame import Frame, read_frame
from ringcast.journal.format.frame_writer import FrameContent, frame_content
from ringcast.journal.format.layout import Entry, view_entry
from ringcast.journal.writer import Journal, Limits

RING = ViewId(8, 1)


def entry(seq: int, *bodies: bytes, index: int = 0, level: Level = Level.AGREED) -> Entry:
    place = Position(0, 8, 1, seq, index)
    return layout.entry(place, RING, layout.MESSAGE, 2, level, "orders", (), bodies, 1_000 + seq)


def entries(upto: int) -> list[Entry]:
    start = view_entry(Position.at(RING, 0), RING, (1, 2, 3), False, 5)
    return [start, *(entry(seq, b"a%d" % seq, b"b" * seq) for seq in range(1, upto + 1))]


def written(some: list[Entry]) -> FrameContent:
    """Records on their way into a frame."""
    return frame_content(some)


def kept(some: list[Entry]) -> Frame:
    """Entries as a journal keeps them."""
    ready = written(some)
    data = memoryview(b"".join(ready.pieces))
    return read_frame(memoryview(ready.section), len(some), ready.rows, data)


SMALL = Limits(segment_bytes=2000)
"""Several segments for a few records."""


def history() -> list[Entry]:
    """A ring, then two components beside each other, then one ring again."""
    found = []
    for ring, members, count in (
        (ViewId(8, 1), (1, 2, 3), 12),
        (ViewId(12, 1), (1,), 4),
        (ViewId(12, 2), (2, 3), 6),
        (ViewId(16, 1), (1, 2, 3), 8),
    ):
        found.append(view_entry(Position.at(ring, 0), ring, members, False, 0))
        for seq in range(1, count + 1):
            place = Position(0, ring.seq, ring.rep, seq, 0)
            bodies = tuple(b"%d/%d" % (seq, part) for part in range(1 + seq % 3))
            found.append(
                layout.entry(place, ring, layout.MESSAGE, 2, Level.AGREED, "g", (), bodies, seq)
            )
    return found


HISTORY = history()
PLACES = [each.first._replace(index=i) for each in HISTORY for i in range(len(each.lengths))]


def write(folder: Path, entries: list[Entry], cuts: list[int], limits: Limits = SMALL) -> None:
    journal = Journal(folder, limits)
    batch: list[Entry] = []
    for at, each in enumerate(entries):
        batch.append(each)
        if at in cuts:
            journal.append(batch)
            batch = []
    if batch:
        journal.append(batch)
    journal.close()


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)

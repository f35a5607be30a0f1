"""How much of a journal is on disk: a mark beside the segments, written after every sync."""

from __future__ import annotations

import os
from pathlib import Path

from ringcast.journal.format.segment import SegmentFile

DURABLE = "durable"
"""Which segment is being written and how much of it is on disk: what others may read."""

PART_BYTES = 2**20


def mark(path: Path, size: int) -> bytes:
    """The contents of DURABLE, always of the same length."""
    return f"{path.stem} {size:020}\n".encode()


def durable_bytes(path: Path, size: int) -> int | None:
    """How much of a segment that is not sealed is on disk, and may be read; None if nobody says
    so: a copy of the segments alone, which nobody writes."""
    try:
        name, digits = path.with_name(DURABLE).read_text("ascii").split()
        upto = max(0, int(digits))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return 0
    if name == path.stem:
        return upto
    return size if name > path.stem else 0  # a later one was begun: this one was synced before


def was_cut(path: Path) -> bool:
    """Whether a segment has less than was on disk. No crash does that, and no loss of power: the
    mark is written after the sync, and looked at here before the file."""
    upto = durable_bytes(path, 0) or 0
    try:
        return path.stat().st_size < upto
    except FileNotFoundError:
        return False  # it was trimmed meanwhile


def torn(file: SegmentFile, end: int) -> bool:
    """Whether what follows in the last segment was being written when the node died. Damage is
    what lies before a whole frame, or was on disk, and so is a file that was cut."""
    upto = durable_bytes(file.path, file.size) or 0
    return not end < upto <= file.size and not file.sound_after(end) and not was_cut(file.path)


def write_again(path: Path, size: int) -> None:
    """Write what lies behind the mark once more, so that the next sync takes it to disk: after one
    that failed it may be in the kernel's memory alone, where another sync does not find it."""
    file = os.open(path, os.O_RDWR)
    try:
        for at in range(durable_bytes(path, size) or 0, size, PART_BYTES):
            os.pwrite(file, os.pread(file, min(PART_BYTES, size - at), at), at)
    finally:
        os.close(file)

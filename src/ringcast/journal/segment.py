"""A segment: one append-only file of frames, each a batch of records with a checksum.

A frame is a head of fixed size, then the batch: its columns as an Arrow IPC message, and the
bodies, which are not copied into it. The head says how long both are, which records they hold and
what the chain is after them; the checksum covers the rest of the head and the batch. Heads alone
are the index of positions: a sealed segment has a copy of them beside it, with a checksum too, so
that opening a journal reads no records.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from ringcast.journal.layout import JournalError, Place, stored
from ringcast.journal.sheet import Piece, Sheet, link, whole

MAGIC = b"RcJ2"
HEAD = struct.Struct("<4sQQIQIQqqqiqqqi16s")
HEAD_BYTES = 128
"""Heads are padded, so that batches are aligned for reading in place."""

LONGEST = 2**31
"""A batch that claims to be longer is damage."""

SEGMENT, INDEX = ".segment", ".index"


class Head(NamedTuple):
    """What is known of a frame without reading its batch."""

    offset: int
    """Where the frame begins in its file."""
    length: int
    """Bytes of the batch."""
    columns: int
    """Bytes of its columns; the bodies begin at the next multiple of 64."""
    checksum: int
    number: int
    """Of the first record, counted from the journal's beginning."""
    rows: int
    first: Place
    last: Place
    chain: bytes
    """After the last record."""

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + HEAD_BYTES + padded(self.length)

    @property
    def after(self) -> int:
        """The number of the next record."""
        return self.number + self.rows

    def pack(self, checksum: int) -> bytes:
        """The head as bytes."""
        fixed = (self.length, self.columns, self.number, self.rows, self.offset)
        packed = HEAD.pack(MAGIC, checksum, *fixed, *self.first, *self.last, self.chain)
        return packed.ljust(HEAD_BYTES, b"\0")


def padded(length: int) -> int:
    """The room that so many bytes take, with every frame at a multiple of 64."""
    return -(-length // 64) * 64


def unpack(data: bytes | memoryview) -> Head | None:
    """The head at the beginning of ``data``; None if there is none."""
    if len(data) < HEAD_BYTES:
        return None
    magic, checksum, length, columns, number, rows, offset, *rest = HEAD.unpack_from(data)
    if magic != MAGIC or not padded(columns) <= length <= LONGEST or not rows:
        return None
    first, last = Place(*rest[:4]), Place(*rest[4:8])
    return Head(offset, length, columns, checksum, number, rows, first, last, rest[8])


def checksum(head: Head, *pieces: Piece) -> int:
    """Of a frame with this head; XXH3 takes a fifth of the time of CRC-32."""
    from xxhash import xxh3_64

    found = xxh3_64(head.pack(0))
    for piece in pieces:
        found.update(piece)
    return found.intdigest()


def encode(written: Sheet, number: int, before: bytes, offset: int) -> tuple[Head, list[Piece]]:
    """A frame with these records, for this place in its file, in pieces that are not copied."""
    columns = memoryview(written.columns.serialize())
    gap = bytes(padded(len(columns)) - len(columns))
    length = len(columns) + len(gap) + sum(map(len, written.pieces))
    rows, chain = len(written.values), link(before, written.values)
    places = (written.first, written.last)
    head = Head(offset, length, len(columns), 0, number, rows, *places, chain)
    content = [columns, gap, *written.pieces]
    head = head._replace(checksum=checksum(head, *content))
    return head, [head.pack(head.checksum), *content, bytes(padded(length) - length)]


class SegmentFile:
    """A segment to read. Frames that do not match their checksum are refused by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
                self.data = memoryview(self._map)
        except FileNotFoundError:
            raise JournalError(
                f"{path}: it is gone, perhaps trimmed meanwhile; read again"
            ) from None
        except OSError as error:
            raise JournalError(f"{path}: cannot be read ({error.strerror})") from None

    def heads(self, offset: int = 0) -> Iterator[Head]:
        """The heads of whole frames from there on, as far as they follow each other."""
        while (head := unpack(self.data[offset : offset + HEAD_BYTES])) is not None:
            if head.offset != offset or head.end > len(self.data):
                return
            yield head
            offset = head.end

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return len(self.data)

    def sound_after(self, offset: int) -> bool:
        """Whether a whole frame lies beyond ``offset``: what is there is damage, no torn end."""
        at = self._map.find(MAGIC, offset + 1)
        while at >= 0:
            head = unpack(self.data[at : at + HEAD_BYTES])
            if head and head.offset == at and head.end <= self.size and self.sound(head):
                return True
            at = self._map.find(MAGIC, at + 1)
        return False

    def sound(self, head: Head) -> bool:
        """Whether the frame is what was written."""
        start = head.offset + HEAD_BYTES
        packed = bytes(self.data[head.offset : start])
        written = self.data[start : start + head.length]
        return head.pack(head.checksum) == packed and checksum(head, written) == head.checksum

    def read(self, head: Head, check: bool = True) -> Any:
        """The records of a frame as an Arrow batch that lies in the file."""
        import pyarrow as pa

        if check and not self.sound(head):
            raise JournalError(
                f"{self.path}: the records from {head.first} on are damaged; restore the file, or "
                "read another member's journal"
            )
        start = head.offset + HEAD_BYTES
        columns = self.data[start : start + head.columns]
        data = self.data[start + padded(head.columns) : start + head.length]
        found = pa.ipc.read_record_batch(pa.py_buffer(columns), stored())
        return whole(found, data)


def write_index(path: Path, heads: Sequence[Head]) -> None:
    """Seal a segment: its heads beside it, whole or not at all."""
    from xxhash import xxh3_64_digest

    packed = b"".join(head.pack(head.checksum) for head in heads)
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.write(MAGIC + xxh3_64_digest(packed) + packed)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path.with_suffix(INDEX))


class Heads(Sequence[Head]):
    """The heads of a sealed segment, unpacked one by one when they are asked for: there may be a
    million, and whoever looks for a place needs twenty."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed) // HEAD_BYTES

    @overload
    def __getitem__(self, at: int) -> Head: ...
    @overload
    def __getitem__(self, at: slice) -> list[Head]: ...
    def __getitem__(self, at: int | slice) -> Head | list[Head]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        start = range(len(self))[at] * HEAD_BYTES
        head = unpack(self._packed[start : start + HEAD_BYTES])
        assert head is not None, "the checksum of the index was right"
        return head


def read_index(path: Path) -> Heads | None:
    """The heads of a sealed segment; None if it is not sealed."""
    from xxhash import xxh3_64_digest

    try:
        data = path.with_suffix(INDEX).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path.with_suffix(INDEX)}: cannot be read ({error})") from None
    packed = data[12:]
    if data[:12] != MAGIC + xxh3_64_digest(packed):
        return None  # it can be made again from the segment
    return Heads(packed)

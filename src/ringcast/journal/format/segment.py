"""A segment: one append-only file of frames, each some entries with a checksum.

A frame is a head of fixed size, then what is known of each entry, then their messages (``frame``).
The head says how long both are, which records they hold and what the chain is after them; the
checksum covers the rest of the head and what is known, and a digest of each message is part of
that. Heads alone are the index of positions: a sealed segment has a copy of them beside it, with a
checksum too, so that opening a journal reads no records.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, overload

from ringcast.core.ids import Position
from ringcast.files.disk import Disk
from ringcast.journal.format.frame import Frame, read_frame
from ringcast.journal.format.frame_writer import FrameContent, Piece, link
from ringcast.journal.format.layout import JournalError

MAGIC = b"RcJ4"
HEAD = struct.Struct("<4sQQIQIIQqqqqiqqqqqiq16s?")
HEAD_BYTES = 192
"""Heads are padded, so that what follows is aligned for reading in place."""

LONGEST = 2**31 - 1
"""A frame that claims to be longer is damage."""

SEGMENT, INDEX = ".segment", ".index"

INDEX_START = 12
"""Bytes in an index before its heads: the format and a checksum."""

PIECE_BYTES = 2**16
"""An index is checked in pieces of this size: there may be 100 MB of it."""


class Head(NamedTuple):
    """What is known of a frame without reading it."""

    offset: int
    """Where the frame begins in its file."""
    length: int
    """Bytes behind the head."""
    section: int
    """Bytes of what is known; the messages begin at the next multiple of 64."""
    checksum: int
    number: int
    """Of the first record, counted from the journal's beginning."""
    rows: int
    """Records."""
    entries: int
    first: Position
    last: Position
    chain: bytes
    """After the last record."""
    told: bool
    """Whether its node was away when the records were delivered, and has them from others. What
    came first of a configuration may lie below the end that the journal had then."""

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
        fixed = (self.length, self.section, self.number, self.rows, self.entries, self.offset)
        packed = HEAD.pack(MAGIC, checksum, *fixed, *self.first, *self.last, self.chain, self.told)
        return packed.ljust(HEAD_BYTES, b"\0")


def padded(length: int) -> int:
    """The room that so many bytes take, with every frame at a multiple of 64."""
    return -(-length // 64) * 64


def unpack(data: bytes | memoryview) -> Head | None:
    """The head at the beginning of ``data``; None if there is none."""
    if len(data) < HEAD_BYTES:
        return None
    magic, checksum, length, section, number, rows, entries, offset, *rest = HEAD.unpack_from(data)
    if magic != MAGIC or not padded(section) <= length <= LONGEST or not rows:
        return None
    places = Position(*rest[:6]), Position(*rest[6:12])
    return Head(offset, length, section, checksum, number, rows, entries, *places, *rest[12:])


def checksum(head: Head, section: Piece) -> int:
    """Of a frame with this head; XXH3 takes a quarter of CRC-32's time."""
    from xxhash import xxh3_64

    found = xxh3_64(head.pack(0))
    found.update(section)
    return found.intdigest()


def encode(
    written: FrameContent, number: int, before: bytes, offset: int
) -> tuple[Head, list[Piece]]:
    """A frame with these records, for this place in its file, in pieces that are not copied."""
    section = written.section
    gap = bytes(padded(len(section)) - len(section))
    length = len(section) + len(gap) + sum(map(len, written.pieces))
    many = (written.rows, len(written.values))
    places = (written.first, written.last)
    chain = link(before, written.values)
    head = Head(offset, length, len(section), 0, number, *many, *places, chain, written.told)
    head = head._replace(checksum=checksum(head, section))
    content = [section, gap, *written.pieces, bytes(padded(length) - length)]
    return head, [head.pack(head.checksum), *content]


class SegmentFile:
    """A segment to read. Frames that do not match their checksum are refused by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mapped(file)
                self.data = memoryview(self._map)
        except FileNotFoundError:
            raise JournalError(
                f"{path}: it is gone, perhaps trimmed meanwhile; read again"
            ) from None
        except OSError as error:
            raise JournalError(f"{path}: cannot be read ({error.strerror})") from None
        if re.fullmatch(rb"RcJ[0-9]", self.data[:4]) and self.data[:4] != MAGIC:
            raise JournalError(
                f"{path}: written by another version of ringcast, which can read and export it; "
                "remove the journal's folder to have it filled from the other members"
            )

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

    def known(self, head: Head) -> bool:
        """Whether the head and what is known of the entries are what was written."""
        start = head.offset + HEAD_BYTES
        packed = bytes(self.data[head.offset : start])
        section = self.data[start : start + head.section]
        return head.pack(head.checksum) == packed and checksum(head, section) == head.checksum

    def sound(self, head: Head) -> bool:
        """Whether the whole frame is."""
        return self.known(head) and self._frame(head).whole

    def read(self, head: Head, check: bool = True) -> Frame:
        """The entries of a frame, as they lie in the file. Without ``check`` their messages are
        not looked at: for who wants to know of them, not to have them."""
        found = self._frame(head) if self.known(head) else None
        if found is None or (check and not found.whole):
            raise JournalError(
                f"{self.path}: the records from {head.first} on are damaged; restore the file, or "
                "read another member's journal"
            )
        return found

    def _frame(self, head: Head) -> Frame:
        start = head.offset + HEAD_BYTES
        section = self.data[start : start + head.section]
        messages = start + padded(head.section)
        return read_frame(section, head.entries, head.rows, self.data, messages)


def mapped(file: BinaryIO) -> mmap.mmap | bytes:
    """What is in a file, without a copy of it. It keeps a descriptor."""
    size = os.fstat(file.fileno()).st_size
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


class Heads(Sequence[Head]):
    """Heads where they lie in a file, unpacked one by one when they are asked for: there may be a
    million, and whoever looks for a place needs twenty."""

    def __init__(self, path: Path, data: memoryview, offsets: Sequence[int]) -> None:
        self._path, self._data = path, data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> Head: ...
    @overload
    def __getitem__(self, at: slice) -> list[Head]: ...
    def __getitem__(self, at: int | slice) -> Head | list[Head]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        offset = self._offsets[at]
        head = unpack(self._data[offset : offset + HEAD_BYTES])
        if head is None:
            raise JournalError(
                f"{self._path}: damaged at byte {offset}; restore the file, or delete it if it is "
                "an index"
            )
        return head

    def pack(self, before: bytes) -> bytearray:
        """All of them behind other bytes, in one copy."""
        packed = bytearray(before)
        for at in self._offsets:
            packed += self._data[at : at + HEAD_BYTES]
        return packed


def write_index(path: Path, heads: Heads, disk: Disk) -> None:
    """Seal a segment: its heads beside it, whole or not at all."""
    from xxhash import xxh3_64_digest

    packed = heads.pack(before=bytes(INDEX_START))
    packed[:INDEX_START] = MAGIC + xxh3_64_digest(memoryview(packed)[INDEX_START:])
    disk.replace(path.with_suffix(INDEX), memoryview(packed))


def read_index(path: Path) -> Heads | None:
    """The heads of a sealed segment; None if it is not sealed."""
    from xxhash import xxh3_64

    index, found = path.with_suffix(INDEX), xxh3_64()
    try:
        with index.open("rb", buffering=0) as file:
            written = file.read(INDEX_START)
            while piece := file.read(PIECE_BYTES):
                found.update(piece)
            if written != MAGIC + found.digest():
                return None  # it can be made again from the segment
            data = memoryview(mapped(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{index}: cannot be read ({error})") from None
    return Heads(index, data, range(INDEX_START, len(data) - HEAD_BYTES + 1, HEAD_BYTES))

"""The frames of a replica's log, in a form that tells a torn end from damage.

A frame holds what one sync made durable, and the next one is written only after that sync, so a
crash can leave no more than the last frame torn: the file ends before it does, or a sector of it
was never written and reads as zeros. What a frame writes is never a sector of zeros: ``GUARD``
stands in front of it, and at the beginning of each sector that it goes on in. So whatever bytes a
body has, a frame that is not whole was torn, or was whole once, perhaps acknowledged, and is
damaged since.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from ringcast.core.errors import StorageError

HEAD = Struct("<QIQI")
"""Length and checksum of the body, where the frame begins, checksum of these three."""
SECTOR = 512
"""What a disk writes whole or not at all."""
GUARD = b"\xff"
"""Not zero, and no flipped bit makes it so."""


class DamagedFrame(StorageError):
    """A frame that was synced is not what was written."""


def frame(body: bytes, at: int) -> bytes:
    """What is written at this place of a file."""
    fields = HEAD.pack(len(body), crc32(body), at, 0)[:-4]
    plain = fields + crc32(fields).to_bytes(4, "little") + body
    room = _room(at)
    parts = [plain[:room]]
    parts += [plain[i : i + SECTOR - 1] for i in range(room, len(plain), SECTOR - 1)]
    return GUARD + GUARD.join(parts)


def frames(data: bytes) -> tuple[list[bytes], int]:
    """The bodies of all whole frames of a file, and where a torn one begins, or the file ends."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        end = _end(at, HEAD.size)
        head = _head(data, at, end)
        if head is not None:
            length, checksum = head
            end = _end(at, HEAD.size + length)
        if end > len(data):
            break  # torn: the file ends in it
        if head is not None:
            plain = _plain(data, at, end)
            if plain is not None and crc32(body := plain[HEAD.size :]) == checksum:
                found.append(body)
                at = end
                continue
            last = end == len(data)
        else:  # nobody knows where it ends
            last = not _followed(data, at)
        if not (last and _unwritten(data, at, end)):
            raise DamagedFrame(f"the frame at {at} has a wrong checksum")
        break
    return found, at


def _room(at: int) -> int:
    """Bytes of a frame in its first sector, behind the guard."""
    return SECTOR - 1 - at % SECTOR


def _end(at: int, size: int) -> int:
    """Where a frame with so many bytes, head and body, ends."""
    beyond = max(0, size - _room(at))
    return at + 1 + size + -(-beyond // (SECTOR - 1))


def _plain(data: bytes, at: int, end: int) -> bytes | None:
    """A part of a frame, from its beginning, without guards; None if one of these is wrong."""
    if data[at] != GUARD[0]:
        return None
    second = (at // SECTOR + 1) * SECTOR
    if second >= end:
        return data[at + 1 : end]
    if data[second:end:SECTOR].strip(GUARD):
        return None
    part = bytearray(data[at:end])
    del part[second - at :: SECTOR]
    return bytes(part[1:])


def _head(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Length and checksum of the body; None if there is no whole head."""
    if end > len(data) or (plain := _plain(data, at, end)) is None:
        return None
    length, checksum, place, own = HEAD.unpack(plain)
    return (length, checksum) if place == at and own == crc32(plain[:-4]) else None


def _followed(data: bytes, at: int) -> bool:
    """Whether a frame begins behind this place: then all before it was synced."""
    while (at := data.find(GUARD, at + 1)) >= 0:
        if _head(data, at, _end(at, HEAD.size)) is not None:
            return True
    return False


def _unwritten(data: bytes, begin: int, end: int) -> bool:
    """Whether some sector of this part reads as zeros, to its end or to the part's."""
    while begin < end:
        last = min(end, (begin // SECTOR + 1) * SECTOR)
        if not any(data[begin:last]):
            return True
        begin = last
    return False

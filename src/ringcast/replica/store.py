"""A replica's records on disk: a folder with a log, and the state that the log begins from.

``log`` is a head and frames. A frame holds what one sync made durable, and the next is written
only after that sync, so a crash can leave no more than the last frame torn. A torn frame is cut at
opening: the file ends before it does, or a sector of it was never written. Any other frame with a
wrong checksum was whole once, perhaps acknowledged, and is damage: the store refuses to open.

``state-N`` is the state after entry N. It is written beside the log while the log goes on; then a
new log, which names it, replaces the old one in one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import TypeAlias
from zlib import crc32

import msgspec

from ringcast.core.errors import StorageError
from ringcast.core.ids import NodeId
from ringcast.files.disk import DISK, Disk, hold_folder
from ringcast.replica.log import Adopt, Append, Image, Promise, Record, ReplicaLog

VERSION = "ringcast replica 1"
FRAME = Struct("<QIQI")
"""Length and checksum of the body, where the frame begins, checksum of these three."""
SECTOR = 512
"""What a disk writes whole or not at all."""

HELP = "remove the folder only if a majority of the other members still has its own"


class FolderOwner(msgspec.Struct, frozen=True, array_like=True):
    """Whose folder it is. A copy at another member would be counted twice in a quorum."""

    version: str
    node: NodeId
    group: str


class Kept(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Stands for an Image whose state is in a file of its own."""

    at: int
    size: int
    checksum: int


Stored: TypeAlias = Promise | Adopt | Append | Image | Kept

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Stored]).decode
_decode_head = msgspec.msgpack.Decoder(FolderOwner).decode


class ReplicaStore:
    """The folder of one replica. Methods block; one thread at a time may write records."""

    def __init__(self, folder: Path, node: NodeId, group: str, disk: Disk = DISK) -> None:
        self.folder, self._disk = folder, disk
        self._head = FolderOwner(VERSION, node, group)
        self._path = folder / "log"
        self._failed = ""
        self._states: dict[int, int] = {}
        """Checksums of the states that are on disk, by entry."""
        self.size = 0
        """Bytes of the log."""
        self.cut = 0
        """Bytes of a torn frame that were cut off at opening."""
        try:
            self._lock = hold_folder(folder, "lock", disk)
        except BlockingIOError:
            raise StorageError(
                f"another replica uses the folder {folder}; give each its own"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot use the replica's folder {folder}: {error}") from None
        try:
            for unfinished in folder.glob("state-*.new"):
                unfinished.unlink()
            self.records = self._load()
            """What the log held at opening."""
            self._file = disk.open(self._path)
            disk.sync(self._file)  # a process that was killed may have written without syncing
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise StorageError(f"cannot use the replica's folder {folder}: {error}") from None
            raise

    def close(self) -> None:
        """Let another process use the folder."""
        os.close(self._file)
        os.close(self._lock)

    def replay(self) -> ReplicaLog:
        """RS-3: what the log said at opening; its records are not kept any longer."""
        records, self.records = self.records, []
        try:
            return ReplicaLog.replay(records)
        except ValueError as error:
            raise self._damaged(f"{error}") from None

    # --- writing ---------------------------------------------------------------------------

    def append(self, records: Iterable[Record]) -> None:
        """Durable when this returns. After a failure nothing is taken any more: nobody knows what
        of it is on disk, and what would follow it could not be found again."""
        self._check()
        try:
            data = frame(_encode(list(records)), self.size)
            self._disk.write(self._file, [data])
            self._disk.sync(self._file)
        except OSError as error:
            raise self._fail(error) from None
        self.size += len(data)

    def keep(self, image: Image) -> None:
        """Write a state beside the log; it counts when ``rewrite`` names it."""
        try:
            self._disk.replace(self._state(image.at), image.state)
        except OSError as error:
            raise self._fail(error) from None
        self._states[image.at] = crc32(image.state)

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace all records by these, which say the same in less, in one step."""
        self._check()
        stored: list[Stored] = []
        kept = None
        for record in records:
            if isinstance(record, Image):
                kept = self._state(record.at)
                checksum = crc32(record.state)
                if self._states.get(record.at) != checksum:
                    self.keep(record)
                stored.append(Kept(record.at, len(record.state), checksum))
            else:
                stored.append(record)
        try:
            data = frame(_encode(self._head), 0)
            data += frame(_encode(stored), len(data))
            self._disk.replace(self._path, data)
            os.close(self._file)
            self._file = self._disk.open(self._path)
            for old in self.folder.glob("state-*"):
                if kept is not None and 0 <= _at(old) < _at(kept):  # another may be on its way
                    old.unlink()
                    self._states.pop(_at(old), None)
        except OSError as error:
            raise self._fail(error) from None
        self.size = len(data)

    def _state(self, at: int) -> Path:
        return self.folder / f"state-{at}"

    def _check(self) -> None:
        if self._failed:
            raise StorageError(self._failed)

    def _fail(self, error: OSError) -> StorageError:
        self._failed = f"cannot write the replica's folder {self.folder}: {error}"
        return StorageError(self._failed)

    # --- opening ---------------------------------------------------------------------------

    def _load(self) -> list[Record]:
        """Everything that was durable."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        bodies, good = self._frames(data)
        if not bodies:  # new, or the process ended while it made the file
            data = frame(_encode(self._head), 0)
            self._disk.replace(self._path, data)
            self.size = len(data)
            return []
        if good < len(data):
            self._disk.cut(self._path, good)
        self.cut, self.size = len(data) - good, good
        try:
            head = _decode_head(bodies[0])
            stored = [record for body in bodies[1:] for record in _decode(body)]
        except msgspec.MsgspecError as error:
            raise self._damaged(f"its records are of another version ({error})") from None
        if head != self._head:
            raise StorageError(
                f"{self._path} is of {head.version!r}, member {head.node}, group {head.group!r}, "
                f"not of {VERSION!r}, member {self._head.node}, group {self._head.group!r}; "
                "give each replica its own folder"
            )
        return [self._image(each) if isinstance(each, Kept) else each for each in stored]

    def _image(self, kept: Kept) -> Image:
        path = self._state(kept.at)
        try:
            state = path.read_bytes()
        except OSError as error:
            raise self._damaged(f"its state cannot be read ({error})") from None
        if len(state) != kept.size or crc32(state) != kept.checksum:
            raise self._damaged(f"{path.name} has a wrong checksum")
        self._states[kept.at] = kept.checksum
        return Image(kept.at, state)

    def _frames(self, data: bytes) -> tuple[list[bytes], int]:
        """The bodies of all whole frames, and where they end."""
        found: list[bytes] = []
        at = 0
        while at < len(data):
            begin = at + FRAME.size
            if begin > len(data):
                break
            length, checksum, place, own = FRAME.unpack_from(data, at)
            end = begin + length
            if own != crc32(data[at : begin - 4]) or place != at:
                if unwritten(data, at, len(data)):
                    break
                raise self._damaged(f"the frame at {at} has a wrong head")
            if end > len(data):
                break
            body = data[begin:end]
            if crc32(body) != checksum:
                if end == len(data) and unwritten(data, at, end):
                    break
                raise self._damaged(f"the frame at {at} has a wrong checksum")
            found.append(body)
            at = end
        return found, at

    def _damaged(self, what: str) -> StorageError:
        return StorageError(f"{self._path} is damaged: {what}; restore it, or {HELP}")


def frame(body: bytes, at: int) -> bytes:
    """A body with its head, to be written at this place."""
    fields = FRAME.pack(len(body), crc32(body), at, 0)[:-4]
    return fields + crc32(fields).to_bytes(4, "little") + body


def unwritten(data: bytes, begin: int, end: int) -> bool:
    """Whether some sector of this part was never written: it reads as zeros, to its end or to the
    part's."""
    first = begin
    while first < end:
        last = min(end, (first // SECTOR + 1) * SECTOR)
        if not any(data[first:last]):
            return True
        first = last
    return False


def _at(path: Path) -> int:
    number = path.name.removeprefix("state-")
    return int(number) if number.isdigit() else -1

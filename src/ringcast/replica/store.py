"""A replica's records on disk: a folder with a log, and the state that the log begins from.

``log`` is frames (frames.py), the first with a head. A torn last frame is left out at opening; at
any other one with a wrong checksum, which was whole once and perhaps acknowledged, the store
refuses to open. Then the log is written anew: after a sync that failed, or a process that was
killed before its sync, what is read may be in the memory of the kernel alone, and another sync of
the same file need not write it.

``state-N`` is the state after entry N. It is written beside the log while the log goes on; then a
new log, which names it, replaces the old one in one step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import msgspec

from ringcast.core.errors import UNREADABLE, StorageError
from ringcast.core.ids import NodeId
from ringcast.files.disk import DISK, Disk, hold_folder
from ringcast.replica.frames import DamagedFrame, frame, frames
from ringcast.replica.log import Adopt, Append, Image, Promise, Record, ReplicaLog

VERSION = "ringcast replica 2"
FORMER = b"ringcast replica 1"
"""In the first bytes of a log whose frames were others."""

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
        """Everything that was durable, and is again."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = frame(_encode(self._head), 0)
        try:
            bodies, self.size = frames(data)
        except DamagedFrame as error:
            if FORMER in data[:64]:
                raise self._of_another(FORMER.decode()) from None
            raise self._damaged(str(error)) from None
        if not bodies:  # no log is there before its head is
            raise self._damaged("it has no head")
        records = self._records(bodies)
        self.cut = len(data) - self.size
        self._disk.replace(self._path, data[: self.size])
        return records

    def _records(self, bodies: list[bytes]) -> list[Record]:
        try:
            head = _decode_head(bodies[0])
            if head.version != VERSION:
                raise self._of_another(head.version)
            stored = [record for body in bodies[1:] for record in _decode(body)]
        except UNREADABLE as error:
            raise self._damaged(f"its records are of another version ({error})") from None
        if head != self._head:
            raise StorageError(
                f"{self._path} is of member {head.node}, group {head.group!r}, not of member "
                f"{self._head.node}, group {self._head.group!r}; give each replica its own folder"
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

    def _of_another(self, version: str) -> StorageError:
        return StorageError(
            f"{self._path} is of version {version!r}, and this program reads {VERSION!r}; use the "
            "program that wrote it, or a new folder for a new group of replicas"
        )

    def _damaged(self, what: str) -> StorageError:
        return StorageError(f"{self._path} is damaged: {what}; restore it, or {HELP}")


def _at(path: Path) -> int:
    number = path.name.removeprefix("state-")
    return int(number) if number.isdigit() else -1

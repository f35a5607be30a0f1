"""What is done to a disk, in one place so that a test can lose power."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path


def private(path: str, flags: int) -> int:
    """For ``open``: a file that only its owner reads."""
    return os.open(path, flags, 0o600)


class Disk:
    """The real one. What was written is safe after ``sync``, a name after ``sync_folder``."""

    def open(self, path: Path) -> int:
        """A file to append to, made if there is none."""
        return private(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, file: int, pieces: Sequence[bytes | memoryview]) -> None:
        """Append everything; OSError if that is not possible."""
        done = os.writev(file, pieces)
        if done == sum(map(len, pieces)):
            return
        rest = [memoryview(piece) for piece in pieces]
        while rest:
            while rest and done >= len(rest[0]):
                done -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][done:]
                done = os.writev(file, rest)

    def sync(self, file: int) -> None:
        """Return when what was written would survive a loss of power."""
        os.fdatasync(file)

    def sync_folder(self, folder: Path) -> None:
        """The same for names in a folder."""
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def cut(self, path: Path, size: int) -> None:
        """Shorten a file."""
        file = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(file, size)
            os.fsync(file)
        finally:
            os.close(file)

    def make_folder(self, folder: Path) -> None:
        """A folder that is there after a loss of power too: its name is on disk."""
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            self.sync_folder(each.parent)

    def replace(self, path: Path, data: bytes | memoryview, mode: int = 0o600) -> None:
        """Write a small file, whole or not at all; it is durable when this returns."""
        beside = path.with_name(path.name + ".new")
        beside.unlink(missing_ok=True)  # others may hold it open, or be allowed to read it
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            self.write(file, [data])
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(path)
        self.sync_folder(path.parent)


DISK = Disk()


def hold_folder(folder: Path, lock: str, disk: Disk = DISK) -> int:
    """A folder for this process alone until it closes the file that is returned.

    The folder is made if there is none. BlockingIOError: another process holds it.
    """
    disk.make_folder(folder)
    file = os.open(folder / lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file

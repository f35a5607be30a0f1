"""The few things a journal does to a disk, in one place so that a test can lose power."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class Disk:
    """The real one. What was written is safe after ``sync``, a name after ``sync_folder``."""

    def open(self, path: Path) -> int:
        """A file to append to, made if there is none."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, file: int, pieces: Sequence[bytes | memoryview]) -> None:
        """Append everything; OSError if that is not possible."""
        rest = [memoryview(piece) for piece in pieces]
        while rest:
            done = os.writev(file, rest)
            while rest and done >= len(rest[0]):
                done -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][done:]

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

    def replace(self, path: Path, data: bytes) -> None:
        """A small file, whole or as it was before."""
        beside = path.with_name(path.name + ".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.write(file, [data])
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(path)
        self.sync_folder(path.parent)


DISK = Disk()

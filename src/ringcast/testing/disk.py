"""Disk: files of hosts that a crash takes back to what was synced.

The files are real, in a folder of the world, so a program uses them as it always does. Only
``os.fsync`` and ``os.fdatasync`` are replaced: they note what a file holds, or which names a folder
has, at that moment. A crash puts that back, or some of what came later, or all of it. Of some, an
append is cut off anywhere, so is a file that was emptied and written anew, pages that were written
in place are new or old, and a rename was done or was not.

SQLite syncs in C, past them. It does so at every commit, so a crash leaves its files as they are,
and SQLite rolls back what was not committed when they are opened again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias, get_args

Loss: TypeAlias = Literal["unsynced", "torn", "nothing"]
"""What a crash takes: all that was not synced (the power fails), some of it, or nothing (only the
process dies)."""


def checked_loss(loss: Loss) -> Loss:
    """As it is, or ValueError."""
    if loss not in get_args(Loss):
        raise ValueError(f"loss = {loss!r}: give one of {', '.join(map(repr, get_args(Loss)))}")
    return loss


SHARED_MEMORY = Path("/dev/shm")
"""Where there is one: nothing has to reach a real disk."""
BASE = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir()).resolve()
"""Found out now: within a world, hosts have temporary folders of their own."""

PREFIX = "ringcast-world-"
ABANDONED_S = 600
"""A folder that nobody has held for so long is removed; a new one is held a moment later."""

_open, _close, _now = os.open, os.close, time.time

PAGE = 4096
"""What is written in place reaches the disk in pieces of this size."""

SQLITE = b"SQLite format 3\0"
"""How a database begins."""
SQLITE_BESIDE = ("-journal", "-wal", "-shm")
"""Files that SQLite has beside a database, by how their names end."""


class WorldDisk:
    """All files of a world, a folder for each host."""

    def __init__(self) -> None:
        remove_abandoned()
        self._root, self._held = made()
        self._contents: dict[int, bytes] = {}
        """By inode: what a file held when it was synced last."""
        self._names: dict[int, dict[str, int]] = {}
        """By inode of a folder: its names when it was synced last."""
        self._links: dict[int, str] = {}
        """By inode: where a symbolic link leads to that its folder's last sync found."""
        self._emptied: set[int] = set()
        """Inodes of files that were emptied since they were synced."""
        self._coins: dict[int, bool] = {}
        """By inode: whether this crash loses what became of its names. A rename is one change."""
        self._retired = 0
        self.failing: set[str] = set()
        """Hosts whose next sync fails."""

    def folder(self, host: str) -> Path:
        """A host's folder, which is there from the beginning. One with a name that no host has is
        for what hosts share, and no crash touches it."""
        folder = self._root / host
        if not folder.exists():
            folder.mkdir()
            self._names[folder.stat().st_ino] = {}
        return folder

    def sync(self, file: int, host: str) -> None:
        """What ``os.fsync`` does."""
        if host in self.failing:
            self.failing.discard(host)
            raise OSError(errno.EIO, "the disk does not answer (a simulated fault)")
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = names = {}
            for name in os.listdir(file):
                entry = os.stat(name, dir_fd=file, follow_symlinks=False)
                names[name] = entry.st_ino
                if stat.S_ISLNK(entry.st_mode):
                    self._links[entry.st_ino] = os.readlink(name, dir_fd=file)
                if stat.S_ISDIR(entry.st_mode):
                    self._names.setdefault(entry.st_ino, {})
        elif stat.S_ISREG(found.st_mode):
            self._contents[found.st_ino] = read(file, found.st_size)
            self._emptied.discard(found.st_ino)

    def emptied(self, ino: int) -> None:
        """A file was opened to be written anew: until it is synced, any part may be missing."""
        self._emptied.add(ino)

    def crash(self, host: str, loss: Loss, rng: Random) -> None:
        """Lose what was not synced. Files that the dead process holds open are others from now
        on: nothing that it still does reaches the disk."""
        folder = self._root / host
        if not folder.exists():
            return
        self._retired += 1
        retired = self._root / f"{host}.{self._retired}"
        folder.rename(retired)
        self._coins.clear()
        self._rebuild(retired, folder, loss, rng)

    def _rebuild(self, old: Path, new: Path, loss: Loss, rng: Random) -> None:
        """Make ``new`` from what a crash leaves of ``old``."""
        new.mkdir()
        present = {each.name: each for each in sorted(old.iterdir())}
        known = self._names.get(old.stat().st_ino, {})
        kept: dict[str, int] = {}
        databases = sqlite_files(present)
        for name in sorted({*present, *known}):
            path = present.get(name)
            synced = known.get(name)
            ino = path.lstat().st_ino if path else None
            if name in databases:
                if path is None:
                    continue
                self._write(new / name, path.read_bytes())
            elif ino != synced and self._loses_name(ino or synced, loss, rng):
                if synced is None:
                    continue
                self._restore(synced, new / name)
            elif path is None:
                continue
            elif path.is_symlink():
                (new / name).symlink_to(os.readlink(path))
            elif path.is_dir():
                self._rebuild(path, new / name, loss, rng)
            elif not path.is_file():
                continue  # a pipe, or another thing that holds nothing
            else:
                assert ino is not None
                self._write(new / name, self._left_of(path, ino, loss, rng))
            kept[name] = (new / name).lstat().st_ino
            if path is not None and not path.is_symlink():
                shutil.copymode(path, new / name, follow_symlinks=False)
        self._names[new.stat().st_ino] = kept  # all that is there after a crash is on the disk

    def _loses_name(self, ino: int | None, loss: Loss, rng: Random) -> bool:
        """Whether a change of a name is lost: for all names of a file, or of a folder, at once."""
        assert ino is not None
        if ino not in self._coins:
            self._coins[ino] = loss == "unsynced" or (loss == "torn" and rng.random() < 0.5)
        return self._coins[ino]

    def _restore(self, ino: int, path: Path) -> None:
        """What was synced of a file or a folder that is not there any more."""
        names = self._names.get(ino)
        if ino in self._links:
            path.symlink_to(self._links[ino])
            return
        if names is None:
            self._write(path, self._contents.get(ino, b""))
            return
        path.mkdir()
        for name, inside in names.items():
            self._restore(inside, path / name)
        self._names[path.stat().st_ino] = {name: (path / name).lstat().st_ino for name in names}

    def _left_of(self, path: Path, ino: int, loss: Loss, rng: Random) -> bytes:
        """What a file holds after a crash."""
        now = path.read_bytes()
        synced = self._contents.get(ino, b"")
        if loss == "nothing" or now == synced:
            return now
        if loss == "unsynced":
            return synced
        if now.startswith(synced):
            return now[: rng.randint(len(synced), len(now))]  # a torn end
        if ino in self._emptied:
            return rng.choice((now[: rng.randint(0, len(now))], synced))
        length = len(rng.choice((now, synced)))
        pages = range(0, length, PAGE)
        mixed = (rng.choice((now, synced))[at : at + PAGE].ljust(PAGE, b"\0") for at in pages)
        return b"".join(mixed)[:length]

    def _write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self._contents[path.stat().st_ino] = data

    def remove(self) -> None:
        """The world has ended."""
        shutil.rmtree(self._root, ignore_errors=True)
        _close(self._held)

    @property
    def root(self) -> str:
        """The world's folder, whose name differs from run to run."""
        return str(self._root)


def made() -> tuple[Path, int]:
    """A folder for a world, and the descriptor that says that a process uses it. Its name may be
    taken by a run that was killed: that must not change what the program's files are called."""
    names = tempfile._name_sequence  # type: ignore[attr-defined]
    tempfile._name_sequence = None  # type: ignore[attr-defined]
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=BASE))
    tempfile._name_sequence = names  # type: ignore[attr-defined]
    held = _open(root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    return root, held


@cache
def remove_abandoned() -> None:
    """Once in a process: the folders of worlds whose process was killed, which take memory."""
    for folder in BASE.glob(f"{PREFIX}*"):
        try:
            held = _open(folder, os.O_RDONLY)
        except OSError:
            continue  # it has just gone, or is another user's
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _now() - os.fstat(held).st_mtime > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            _close(held)


def sqlite_files(present: dict[str, Path]) -> set[str]:
    """Names of databases in a folder, and of what SQLite may have beside them."""
    found = set()
    for name, path in present.items():
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(len(SQLITE)) == SQLITE:
                    found |= {name, *(name + end for end in SQLITE_BESIDE)}
    return found


def read(file: int, size: int) -> bytes:
    """All of an open file, also of one that was opened to be written only."""
    try:
        return os.pread(file, size, 0)
    except OSError:
        with open(f"/proc/self/fd/{file}", "rb") as again:
            return again.read()

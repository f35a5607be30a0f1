"""Files within a simulated world: what programs open, and where they may write."""

from __future__ import annotations

import builtins
import io
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ringcast.testing.process import PROCESS
from ringcast.testing.replaced import replaces

if TYPE_CHECKING:
    from ringcast.testing.world import World

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_open, _close, _fsync = os.open, os.close, os.fsync


@replaces(os, "fsync", "fdatasync")
def _sync(world: World, file: Any) -> None:
    process = PROCESS.get()
    if process is None:
        _fsync(file)
    else:
        world.disk.sync(file if isinstance(file, int) else file.fileno(), process.host.name)


@replaces(os, "open")
def _opened(world: World, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
    if flags & WRITES and kwargs.get("dir_fd") is None:
        refuse_outside(world, path)
    if flags & os.O_WRONLY and PROCESS.get() is not None:
        flags += os.O_RDWR - os.O_WRONLY  # so that a sync can read what was written
    file = _open(path, flags, *args, **kwargs)
    world.files[file] = ino = os.fstat(file).st_ino
    if flags & os.O_TRUNC:
        emptied(world, ino)
    return file


@replaces(os, "close")
def _closed(world: World, file: int) -> None:
    _close(file)
    world.files.pop(file, None)


def close_files(files: dict[int, int]) -> None:
    """Close what crashed processes have left open; a number may be another file's by now."""
    for file, ino in sorted(files.items()):
        try:
            if os.fstat(file).st_ino == ino:
                _close(file)
        except OSError:
            continue
    files.clear()


# --- what is in a folder -------------------------------------------------------------------

_listdir, _scandir = os.listdir, os.scandir


def in_order(world: World, name: str | bytes) -> tuple[int, str | bytes]:
    """Where a name is listed: nowhere certain, but the same on all file systems."""
    return crc32(os.fsencode(name), world.seed & 0xFFFF_FFFF), name


@replaces(os, "listdir")
def _listed(world: World, path: Any = ".") -> list[Any]:
    return sorted(_listdir(path), key=partial(in_order, world))


class _Entries:
    """What ``os.scandir`` gives."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self._entries

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def close(self) -> None:
        """No more of them."""
        self._entries = iter(())

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@replaces(os, "scandir")
def _scanned(world: World, path: Any = ".") -> _Entries:
    with _scandir(path) as entries:
        return _Entries(sorted(entries, key=lambda entry: in_order(world, entry.name)))


# --- where they may write ------------------------------------------------------------------


def emptied(world: World, ino: int) -> None:
    """A host's file was made shorter."""
    if PROCESS.get() is not None:
        world.disk.emptied(ino)


_open_file, _connect = builtins.open, sqlite3.connect


def refuse_outside(world: World, path: Any) -> None:
    """Raise Escape where a host's program would write to a real file that is on no host's disk: no
    crash would take that back, and the next seed would find it. Devices and pipes are no files."""
    if PROCESS.get() is None or isinstance(path, int):
        return
    real = os.path.realpath(os.fsdecode(path))
    if real.startswith(world.disk.root + os.sep):
        return
    try:
        if not stat.S_ISREG(os.stat(real).st_mode):
            return
    except OSError:
        pass  # it is not there yet
    world.escapes.escape(
        f"writing to {path}",
        "no crash takes that back, and the next seed finds it; write below host.folder, or below "
        "world.disk.folder(name) what hosts share",
    )


@replaces(builtins, "open")
@replaces(io, "open")
def _opened_file(world: World, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if not {*mode}.isdisjoint("wax+") and kwargs.get("opener") is None:
        refuse_outside(world, file)
    opened = _open_file(file, mode, *args, **kwargs)
    if "w" in mode and not isinstance(file, int):
        emptied(world, os.fstat(opened.fileno()).st_ino)
    return opened


_truncate = os.truncate


@replaces(os, "truncate")
def _truncated(world: World, path: Any, length: int) -> None:
    refuse_outside(world, path)
    _truncate(path, length)
    emptied(world, os.stat(path).st_ino)


@replaces(sqlite3, "connect")
def _connected(world: World, database: Any, *args: Any, **kwargs: Any) -> Any:
    in_memory = os.fsdecode(database) in ("", ":memory:")
    if not in_memory and not kwargs.get("uri"):
        refuse_outside(world, database)
    return _connect(database, *args, **kwargs)


_gettempdir = tempfile.gettempdir


@replaces(tempfile, "gettempdir")
def _temporary(world: World) -> str:
    """On the host's own disk."""
    process = PROCESS.get()
    if process is None:
        return _gettempdir()
    folder = process.host.folder / "tmp"
    folder.mkdir(exist_ok=True)
    return str(folder)

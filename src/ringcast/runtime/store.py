"""Stable storage: a few integers that survive a crash, on disk before anything depends on them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ringcast.core.errors import UNREADABLE, StorageError
from ringcast.files.disk import DISK, hold_folder


class Store:
    """One small file, replaced as a whole: written, synced, renamed, directory synced."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "stable.json"
        try:
            self._lock = hold_folder(directory, "lock")
        except BlockingIOError:
            raise StorageError(
                f"another node uses the state directory {directory}; give each its own"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot use the state directory {directory}: {error}") from None
        try:
            self.values = self._load()
        except StorageError:
            os.close(self._lock)
            raise

    def _load(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except (OSError, *UNREADABLE) as error:
            raise StorageError(
                f"{self._path} cannot be read ({error}); restore it, or remove it if this "
                "processor may be taken for a new one"
            ) from None

    def persist(self, key: str, value: int) -> None:
        """Durable when this returns; StorageError, and nothing changed, if it cannot be."""
        values = {**self.values, key: value}
        try:
            DISK.replace(self._path, msgspec.json.encode(values))
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error}") from None
        self.values = values

    def close(self) -> None:
        """Let another process use the directory."""
        os.close(self._lock)

"""Stable storage: what persist promised is there after a restart, or it said that it is not."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringcast.core.errors import StorageError
from ringcast.runtime.store import Store


def test_values_survive_reopening(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "state")
    assert store.values == {}
    store.persist("ring_seq", 4)
    store.persist("ring_seq", 2**62)
    store.persist("boot", 1)
    store.close()
    again = Store(tmp_path / "deep" / "state")
    assert again.values == {"ring_seq": 2**62, "boot": 1}
    again.close()


def test_a_new_directory_is_on_disk_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}"))
    )
    Store(tmp_path / "a" / "b").close()
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)
    synced.clear()
    Store(tmp_path / "a" / "b").close()
    assert not synced


def test_a_directory_has_one_user(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StorageError, match="another node uses the state directory"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": "b"}', b"[1]", b"\xff"])
def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "stable.json").write_bytes(content)
    for _ in range(2):  # the second time shows that the lock was given back
        with pytest.raises(StorageError, match=r"stable.json cannot be read .* restore it"):
            Store(tmp_path)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the state directory"):
        Store(tmp_path / "file" / "state")


def test_a_failed_sync_is_an_error_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.persist("ring_seq", 4)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"cannot write .*No space left"):
            store.persist("ring_seq", 8)
    assert store.values == {"ring_seq": 4}
    store.persist("other", 1)
    store.close()
    again = Store(tmp_path)
    assert again.values == {"ring_seq": 4, "other": 1}
    again.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page, where mounting is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(tiny_disk: Path) -> None:
    store = Store(tiny_disk)
    store.persist("ring_seq", 4)
    with pytest.raises(OSError, match="No space"):
        (tiny_disk / "filler").write_bytes(bytes(100_000))
    with pytest.raises(StorageError, match="No space left"):
        store.persist("ring_seq", 8)
    (tiny_disk / "filler").unlink()
    store.persist("ring_seq", 12)
    store.close()


def test_a_read_only_directory(tiny_disk: Path) -> None:
    Store(tiny_disk).close()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(StorageError, match="cannot use the state directory"):
        Store(tiny_disk)

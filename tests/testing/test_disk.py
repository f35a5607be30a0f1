"""Files of hosts: a crash leaves what was synced, and what else it leaves is drawn."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ringcast.runtime.store import Store
from ringcast.testing import disk as disks
from ringcast.testing.disk import Loss, WorldDisk
from ringcast.testing.host import Host
from ringcast.testing.run import RunSetup, run
from ringcast.testing.world import World


def sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def after_crash(write: Callable[[Path], None], loss: Loss, seed: int = 0) -> dict[str, bytes]:
    """The files that a host finds after a crash, by their path."""
    found: dict[str, bytes] = {}

    async def program(host) -> None:  # type: ignore[no-untyped-def]
        if host.lives == 1:
            write(host.folder)
        else:
            for path in sorted(host.folder.rglob("*")):
                if path.is_file():
                    found[str(path.relative_to(host.folder))] = path.read_bytes()

    async def test(world: World) -> None:
        host = world.host("one", program)
        await world.until(lambda: host.done)
        host.crash(loss)
        host.start()
        host.done = False
        await world.until(lambda: host.done)

    outcome = run(test, RunSetup(seed=seed))
    assert outcome.error is None, outcome.error
    return found


def appended(folder: Path) -> None:
    with (folder / "log").open("wb") as file:
        file.write(b"synced")
        file.flush()
        os.fsync(file.fileno())
        sync(folder)
        file.write(b", not synced")


def renamed(folder: Path) -> None:
    (folder / "state").write_bytes(b"old")
    sync(folder / "state")
    sync(folder)
    (folder / "new").write_bytes(b"new")
    sync(folder / "new")
    (folder / "new").replace(folder / "state")


def test_what_was_appended_and_not_synced_goes() -> None:
    assert after_crash(appended, "unsynced") == {"log": b"synced"}
    assert after_crash(appended, "nothing") == {"log": b"synced, not synced"}
    torn = {after_crash(appended, "torn", seed)["log"] for seed in range(30)}
    assert len(torn) > 5
    assert all(b"synced, not synced".startswith(each) for each in torn)
    assert min(torn, key=len) >= b"synced"


def test_a_name_is_there_when_its_folder_was_synced() -> None:
    assert after_crash(renamed, "unsynced") == {"state": b"old"}
    assert after_crash(renamed, "nothing") == {"state": b"new"}
    torn = [after_crash(renamed, "torn", seed)["state"] for seed in range(20)]
    assert set(torn) == {b"old", b"new"}


def test_a_file_nobody_synced_is_gone() -> None:
    def write(folder: Path) -> None:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_bytes(b"c")

    assert after_crash(write, "unsynced") == {}
    assert after_crash(write, "nothing") == {"a/b": b"c"}


def test_a_file_whose_name_alone_was_synced_is_empty() -> None:
    def write(folder: Path) -> None:
        (folder / "a").write_bytes(b"c")
        sync(folder)

    assert after_crash(write, "unsynced") == {"a": b""}


def test_a_file_that_was_removed_comes_back_unless_the_folder_was_synced() -> None:
    def write(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).write_bytes(name.encode())
            sync(folder / name)
        sync(folder)
        (folder / "a").unlink()

    assert after_crash(write, "unsynced") == {"a": b"a", "b": b"b"}
    assert after_crash(write, "nothing") == {"b": b"b"}


def test_so_does_a_folder_with_what_was_synced_in_it() -> None:
    def write(folder: Path) -> None:
        (folder / "a").mkdir()
        sync(folder)
        for name in ("b", "c"):
            (folder / "a" / name).write_bytes(name.encode())
            sync(folder / "a" / name)
            if name == "b":
                sync(folder / "a")
        shutil.rmtree(folder / "a")

    assert after_crash(write, "unsynced") == {"a/b": b"b"}
    assert after_crash(write, "nothing") == {}


@pytest.mark.parametrize("loss", ["unsynced", "torn"])
def test_stable_storage_of_a_node_survives(loss: Loss) -> None:
    """The node's own store keeps its promise: durable when ``persist`` returns."""

    def write(folder: Path) -> None:
        store = Store(folder / "state")  # its lock is never given back
        for value in range(5):
            store.persist("ring", value)

    for seed in range(10):
        assert after_crash(write, loss, seed)["state/stable.json"] == b'{"ring":4}'


def test_nothing_is_left_over_when_a_world_has_ended() -> None:
    """Neither files nor descriptors, though the dead have closed nothing."""

    def write(folder: Path) -> None:
        folders.append(folder)
        Store(folder / "state")
        os.open(folder / "state" / "lock", os.O_RDONLY)

    folders: list[Path] = []
    before = os.listdir("/proc/self/fd")
    for seed in range(3):
        after_crash(write, "torn", seed)
    assert os.listdir("/proc/self/fd") == before
    assert len(folders) == 3
    assert not any(folder.parent.exists() for folder in folders)


@pytest.fixture
def disk() -> Iterator[WorldDisk]:
    made = WorldDisk()
    yield made
    made.remove()


def test_the_dead_cannot_write(disk: WorldDisk) -> None:
    folder = disk.folder("one")
    with (folder / "a").open("wb") as file:
        disk.crash("one", "nothing", Random(0))
        file.write(b"from beyond")
        file.flush()
        assert (folder / "a").read_bytes() == b""


def test_what_a_crash_left_is_on_the_disk(disk: WorldDisk) -> None:
    path = disk.folder("one") / "a"
    path.write_bytes(b"x")
    disk.crash("one", "nothing", Random(0))
    disk.crash("one", "unsynced", Random(0))
    assert path.read_bytes() == b"x"


def test_a_bad_disk_fails_a_sync_once(disk: WorldDisk) -> None:
    path = disk.folder("one") / "a"
    path.write_bytes(b"x")
    disk.failing.add("one")
    file = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="the disk does not answer"):
        disk.sync(file, "one")
    disk.sync(file, "one")
    os.close(file)
    disk.crash("one", "unsynced", Random(0))
    assert not path.exists(), "its name was never synced"


def test_what_a_killed_run_left_is_removed_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name of a world's folder is drawn in it, so the same seed finds the same one taken."""
    monkeypatch.setattr(disks, "BASE", tmp_path)
    names = []

    async def program(host: Host) -> str:
        names.append(host.folder.parent)
        with tempfile.NamedTemporaryFile() as file:
            return Path(file.name).name

    def temporary() -> str:
        results = []

        async def test(world: World) -> None:
            host = world.host("one", program)
            await world.until(lambda: host.done)
            results.append(host.result)

        assert run(test, RunSetup(seed=0)).error is None
        return str(results[0])

    before = temporary()
    (names[0] / "one").mkdir(parents=True)
    assert temporary() == before
    assert names[1] != names[0]
    assert [*tmp_path.iterdir()] == [names[0]]
    held = WorldDisk()
    for folder in (names[0], Path(held.root)):
        os.utime(folder, (0, 0))
    (tmp_path / "ringcast-world-new").mkdir()
    disks.remove_abandoned.cache_clear()
    disks.remove_abandoned()
    assert {*tmp_path.iterdir()} == {Path(held.root), tmp_path / "ringcast-world-new"}
    held.remove()


def kept(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sync(path)
    sync(path.parent)


def moved(folder: Path) -> None:
    kept(folder / "before", b"x")
    (folder / "before").rename(folder / "after")


def moved_away(folder: Path) -> None:
    (folder / "below").mkdir()
    kept(folder / "before", b"x")
    (folder / "before").rename(folder / "below" / "after")


@pytest.mark.parametrize("move", [moved, moved_away])
def test_a_rename_is_one_change(move: Callable[[Path], None]) -> None:
    """It was done or it was not: no file system that people use has both names, or none."""
    found = [after_crash(move, "torn", seed) for seed in range(30)]
    assert {len(files) for files in found} == {1}
    assert len({name for files in found for name in files}) == 2


def test_what_is_written_in_place_is_torn_at_pages() -> None:
    def in_place(folder: Path) -> None:
        kept(folder / "base", b"0" * 10_000)
        with (folder / "base").open("r+b") as file:
            file.write(b"1" * 10_000)

    found = {after_crash(in_place, "torn", seed)["base"] for seed in range(30)}
    mixed = [data for data in found if len({*data}) == 2]
    assert mixed
    assert {len(data) for data in found} == {10_000}
    for data in found:
        assert all(len({*data[at : at + 4096]}) == 1 for at in range(0, 10_000, 4096))


@pytest.mark.parametrize("how", ["open", "os", "truncate"])
def test_what_is_written_anew_may_be_empty_or_cut_off(how: str) -> None:
    def anew(folder: Path) -> None:
        kept(folder / "settings", b"old")
        path = folder / "settings"
        if how == "open":
            path.write_bytes(b"newer")
            return
        if how == "truncate":
            os.truncate(path, 0)
        file = os.open(path, os.O_WRONLY | (os.O_TRUNC if how == "os" else 0))
        os.write(file, b"newer")
        os.close(file)

    found = {after_crash(anew, "torn", seed)["settings"] for seed in range(80)}
    assert found == {b"old", b"", b"n", b"ne", b"new", b"newe", b"newer"}
    assert after_crash(anew, "unsynced")["settings"] == b"old"


@pytest.mark.parametrize("loss", ["unsynced", "torn", "nothing"])
def test_links_and_modes_are_as_they_were(loss: Loss) -> None:
    found: dict[str, object] = {}

    async def program(host: Host) -> None:
        if host.lives == 1:
            kept(host.folder / "version1", b"x")
            (host.folder / "version1").chmod(0o600)
            for name, target in (("now", "version1"), ("gone", "version0"), ("removed", "away")):
                (host.folder / name).symlink_to(target)
            (host.folder / "absolute").symlink_to(host.folder / "version1")
            os.mkfifo(host.folder / "pipe")
            sync(host.folder)
            (host.folder / "removed").unlink()
        else:
            found["mode"] = (host.folder / "version1").stat().st_mode & 0o777
            found.update({x.name: x.readlink() for x in host.folder.iterdir() if x.is_symlink()})
            found["text"] = (host.folder / "absolute").read_text()

    async def test(world: World) -> None:
        host = world.host("one", program)
        await world.until(lambda: host.done)
        host.crash(loss)
        host.start()
        await world.until(lambda: host.done)
        found.pop("absolute")

    outcome = run(test, RunSetup(seed=0))
    assert outcome.error is None, outcome.error
    expected = {"mode": 0o600, "now": Path("version1"), "gone": Path("version0"), "text": "x"}
    assert found == expected | ({"removed": Path("away")} if "removed" in found else {})
    assert ("removed" in found) == (loss == "unsynced") or loss == "torn"

"""Where programs may write: on the disks of hosts, and nowhere else."""

from __future__ import annotations

import io
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ringcast.testing import Host, Outcome, World
from ringcast.testing.run import RunSetup, run


def on_host(write: Callable[[Host], object]) -> Outcome:
    async def program(host: Host) -> None:
        write(host)

    async def test(world: World) -> None:
        host = world.host("shop", program)
        await world.until(lambda: host.done)

    return run(test, RunSetup(seed=0))


def writes() -> dict[str, Callable[[Path], object]]:
    return {
        "open": lambda path: open(path, "w").close(),
        "append": lambda path: open(str(path), "ab").close(),
        "pathlib": lambda path: path.write_text("x"),
        "io": lambda path: io.open(path, "r+").close(),  # noqa: UP020
        "os": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)),
        "truncate": lambda path: os.truncate(path, 0),
        "sqlite": lambda path: sqlite3.connect(path).close(),
        "temporary": lambda path: tempfile.NamedTemporaryFile(dir=path.parent).close(),
    }


@pytest.mark.parametrize("how", writes())
def test_a_file_outside_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    outcome = on_host(lambda host: writes()[how](path))
    assert "would leave the simulated world: no crash takes that back" in str(outcome.error)
    assert "write below host.folder" in str(outcome.error)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"


@pytest.mark.parametrize("how", writes())
def test_one_of_a_host_is_not(how: str) -> None:
    def write(host: Host) -> None:
        (host.folder / "file").touch()
        writes()[how](host.folder / "file")

    outcome = on_host(write)
    assert outcome.error is None, outcome.error


def test_neither_is_what_is_no_file_or_only_read() -> None:
    def write(host: Host) -> None:
        with open(os.devnull, "w") as nothing, open(__file__) as read:
            nothing.write(read.read())
        sqlite3.connect(":memory:").execute("select 1")
        (host.world.disk.folder("shared") / "file").write_text("x")

    outcome = on_host(write)
    assert outcome.error is None, outcome.error


def test_the_test_itself_may_write(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        (tmp_path / "file").write_text("x")

    assert run(test, RunSetup(seed=0)).error is None


def test_a_folder_is_listed_in_an_order_of_the_seed() -> None:
    """Not in that of the file system, which differs between kernels."""
    names = [f"file{number}" for number in range(20)]

    def listed(seed: int, backwards: bool) -> list[str]:
        found: list[str] = []

        async def program(host: Host) -> None:
            for name in reversed(names) if backwards else names:
                (host.folder / name).touch()
            found.extend(os.listdir(host.folder))
            with os.scandir(host.folder) as entries:
                assert [entry.name for entry in entries] == found
            assert [path.name for path in host.folder.iterdir()] == found
            assert [files for _, _, files in os.walk(host.folder)] == [found]
            assert sorted(path.name for path in host.folder.glob("*")) == sorted(names)

        async def test(world: World) -> None:
            host = world.host("shop", program)
            await world.until(lambda: host.done)

        outcome = run(test, RunSetup(seed=seed))
        assert outcome.error is None, outcome.error
        return found

    assert listed(1, True) == listed(1, False) != listed(2, False)


def test_temporary_files_are_on_the_disk_of_their_host() -> None:
    def write(host: Host) -> None:
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
            for name in (folder, file.name):
                assert Path(name).parent == host.folder / "tmp"

    outcome = on_host(write)
    assert outcome.error is None, outcome.error
    assert not tempfile.gettempdir().endswith("shop/tmp")

"""Disks, ports and ids that are not what a node needs: it says so, and the others go on."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from trial import Trial

from ringcast.core.trace import Crashed
from ringcast.runtime.loopback import LOOPBACK, free_ports

Make = Callable[..., Trial]


def rewrite(group: Trial, node: int, old: str, new: str) -> None:
    """Change a line of a member's configuration."""
    path = group[node].config
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 64 KiB at this folder."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "ringcast-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_the_node_before_it_can_do_harm(trial: Make) -> None:
    group = trial(3)
    state = group.folder / "state-3"
    with small_disk(state):
        group.start()
        group.together()
        group.work()
        filler = state / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        group[2].kill()  # a new ring has a number that must be stored first
        assert group.ended(3) == 1
        assert "No space left on device" in group[3].errors
        group.together(1)
        filler.unlink()
        group.start(2, 3)
        group.together()
        group.work()
        events = group.judge()
    ends = [e.reason for e in events if isinstance(e, Crashed) and e.node == 3]
    assert ["No space left on device" in reason for reason in ends] == [True]


def read_only(folder: Path) -> Path:
    """A directory in which nothing can be made, not even by root."""
    if os.geteuid() == 0:
        return Path("/sys/ringcast")
    folder.mkdir(mode=0o500)
    return folder / "state"


def test_a_read_only_directory_is_named(trial: Make, tmp_path: Path) -> None:
    group = trial(3)
    place = read_only(tmp_path / "ro")
    rewrite(group, 3, '"state-3"', f'"{place}"')
    group.start()
    assert group.ended(3) == 1
    assert f"cannot use the state directory {place}" in group[3].errors
    group.together(1, 2)
    rewrite(group, 3, f'"{place}"', '"state-3"')
    group.start(3)
    group.together()
    group.work()
    group.judge()


def test_two_nodes_do_not_share_a_state_directory(trial: Make) -> None:
    group = trial(3)
    group.start(1, 2)
    group.together(1, 2)
    rewrite(group, 3, '"state-3"', '"state-2"')
    group.start(3)
    assert group.ended(3) == 1
    assert "another node uses the state directory" in group[3].errors
    group.work(1, 2)
    group.judge(1, 2)


def test_a_port_in_use_is_named(trial: Make) -> None:
    group = trial(3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((LOOPBACK, group.band.ports[3]))
        group.start()
        assert group.ended(3) == 1
        assert f"cannot listen on {LOOPBACK}:{group.band.ports[3]}" in group[3].errors
        group.together(1, 2)
    group.start(3)
    group.together()
    group.work()
    group.judge()


def test_a_file_copied_with_its_id_is_refused(trial: Make) -> None:
    group = trial(2)
    port = free_ports(3)[2]
    rewrite(group, 2, "id = 2", "id = 1")
    rewrite(group, 2, f'bind = "{LOOPBACK}:{group.band.ports[2]}"', f'bind = "{LOOPBACK}:{port}"')
    group.start(2)
    assert group.ended(2) == 2
    assert f"id 1 at {LOOPBACK}:{group.band.ports[1]}, but bind is" in group[2].errors


def two_with_one_id(group: Trial, keys: bool, *lines: str) -> None:
    """Nodes 2 and 3 have the id 2."""
    for node, member in group.band.members.items():
        own = [
            f"id = {min(node, 2)}",
            f'bind = "{LOOPBACK}:{group.band.ports[node]}"',
            f'state_dir = "state-{node}"',
        ]
        own += [f'key_file = "{group.band.key.name}"'] if keys else []
        member.config.write_text("\n".join((*own, *lines)) + "\n", "utf-8")


@pytest.mark.parametrize(
    ("keys", "seeds"), [(True, False), (False, False), (True, True), (False, True)]
)
def test_of_two_nodes_with_one_id_the_earlier_stops(trial: Make, keys: bool, seeds: bool) -> None:
    """totem R2. What the later one hears of the earlier could be an echo of its own past. With
    seeds they do not hear each other, but the seed tells."""
    group = trial(3)
    multicast = (
        f'multicast = "239.255.77.3:{group.band.ports[1]}"',
        f'interface = "{LOOPBACK}"',
    )
    seed = f'seeds = ["{LOOPBACK}:{group.band.ports[1]}"]'
    two_with_one_id(group, keys, *((seed,) if seeds else multicast))
    group.start(1, 2)
    group.together(1, 2)
    group.start(3)
    assert group.ended(2) == 1
    assert "another processor uses the id 2" in group[2].errors
    group.eventually(
        "the later one is with 1",
        lambda: group[3].view is not None and group[3].view.members == (1, 2),
    )


@pytest.mark.parametrize("keys", [True, False])
def test_a_node_with_the_id_of_a_listed_one_is_told_so(trial: Make, keys: bool) -> None:
    """The others send to the address that their peers have, and go on with whoever is there."""
    group = trial(3)
    ports = group.band.ports
    peers = f'peers = ["1@{LOOPBACK}:{ports[1]}", "2@{LOOPBACK}:{ports[2]}"]'
    two_with_one_id(group, keys, peers)
    rewrite(group, 3, f', "2@{LOOPBACK}:{ports[2]}"', "")
    group.start()
    group.together(1, 2)
    said = f"has the id of this node, 2, at {LOOPBACK}:{ports[2]}"
    group.eventually("the other one is told", lambda: said in group[3].errors)
    group.work(1, 2)

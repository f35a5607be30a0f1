"""Disks that fail under a live node."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from loopback import configs, run

from ringcast.api.node import Node
from ringcast.cli.app import app
from ringcast.core.ids import Level
from ringcast.files.disk import Disk
from ringcast.runtime.loopback import free_ports


def test_all_files_of_a_node_are_its_user_s_alone(tmp_path: Path) -> None:
    """Journal, state and trace hold what the key keeps from others on the way."""

    async def story() -> None:
        made = {"journal": "j", "state_dir": "s", "trace_dir": "t"}
        given = {name: str(tmp_path / folder) for name, folder in made.items()}
        (settings,) = configs(tmp_path, 1, **given)
        async with Node.open(settings) as node, node.join("g") as group:
            await group.send(b"x", level=Level.SAFE)

    before = os.umask(0)
    try:
        run(story)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} == {"j", "s", "t"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.parametrize("way", ["sync", "write", "sync_folder", "replace"])
@pytest.mark.parametrize("after", [4, 20])
def test_a_node_whose_disk_fails_ends_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
    after: int,
) -> None:
    """With ``--json`` its last word is a line of JSON and no traceback."""
    real, calls = getattr(Disk, way), [0]

    def fails(disk: Disk, *words: object) -> object:
        calls[0] += 1
        if calls[0] > after:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(disk, *words)

    monkeypatch.setattr(Disk, way, fails)
    file = tmp_path / "node.toml"
    (port,) = free_ports(1)
    file.write_text(
        f'id = 1\nbind = "127.0.0.1:{port}"\npeers = ["2@127.0.0.1:9"]\nstate_dir = "s"\n'
        'journal = "j"\njournal_patience_s = 0.1\njournal_limits = {segment_bytes = 20000}\n'
    )
    limit = ["--deliver-limit", "1000"]
    with pytest.raises(SystemExit) as caught:
        app(["node", "-c", str(file), "--drive", "1000", "--size", "1000", "--json", *limit])
    said = capsys.readouterr()
    last = json.loads(said.out.splitlines()[-1])
    assert last["event"] == "stopped"
    if caught.value.code:
        assert os.strerror(errno.EIO) in last["reason"]
    assert "Traceback" not in said.err

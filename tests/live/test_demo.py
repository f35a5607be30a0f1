"""The demonstration as a person runs it: it ends well, and leaves only its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.core.registry import protocol

COMMAND = [sys.executable, "-m", "ringcast.cli", "demo"]


def processes(folder: Path) -> list[str]:
    """The command lines of this machine that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if any(str(folder).encode() in word for word in words):
            found.append(b" ".join(words).decode())
    return found


STORIES = {
    "totem": ["crash", "restart", "pause", "resume", "partition", "heal"],
    "token-fd": ["pause", "resume", "partition", "heal", "crash"],
}


@pytest.mark.parametrize("name", STORIES)
def test_the_demo_ends_well(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [*COMMAND, "--json", "--protocol", name, "--out", str(tmp_path / "out")],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(work)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    sheet = protocol(name)
    assert found["verdicts"].keys() == set(sheet.claims(sheet.default))
    assert set(found["verdicts"].values()) == {"valid"}
    assert [fault["kind"] for fault in found["faults"]] == STORIES[name]
    assert (tmp_path / "out" / "report.html").read_text("utf-8").count("<svg") == 3
    assert list(work.iterdir()) == []
    assert processes(work) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_demo_ends_every_member(tmp_path: Path, number: signal.Signals) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(work)},
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert any("together" in line for line in demo.stdout)
        assert len(processes(work)) == 5
        demo.send_signal(number)
        demo.stdout.read()
        killed = number is signal.SIGKILL
        assert demo.wait(60) == (-number if killed else 130)
    deadline_s = time.monotonic() + 30
    while killed and processes(work) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert processes(work) == []
    assert killed or list(work.iterdir()) == []

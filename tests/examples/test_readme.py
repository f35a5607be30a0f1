"""What README.md shows can be run as it stands."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def block(language: str, holding: str) -> str:
    """The one block of code in README.md that holds these words."""
    (found,) = [
        text
        for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
        if holding in text
    ]
    return str(found)


def free_port() -> int:
    """A UDP port that nobody uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_the_program_under_using_it(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "node.toml").write_text(block("toml", "state_dir").replace("5401", str(port)))
    program = block("python", "Node.open")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as member:
        assert member.stdout is not None
        told = [member.stdout.readline() for _ in range(3)]
        member.kill()
    first, *events = told
    place = first.removeprefix("every member has it; its place in the order is ").strip()
    assert events == ["members are 1\n", f"{place} from 1: hello\n"]
    assert len(program.splitlines()) <= 20


def test_the_simulation_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python", "RunSpec"), "README.md", "exec"), {})
    assert " valid ()" in capsys.readouterr().out

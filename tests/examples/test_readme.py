"""What README.md shows can be run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringcast.runtime.loopback import free_ports

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


SENT = "all who are in the view have it; its place in the order is "


def block(language: str, holding: str) -> str:
    """The one block of code in README.md that holds these words."""
    (found,) = [
        text
        for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
        if holding in text
    ]
    return str(found)


def test_the_program_under_using_it(tmp_path: Path) -> None:
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    settings, program = block("toml", "state_dir"), block("python", "Node.open")
    members = {}
    for me, other in ((1, 2), (2, 1)):
        (tmp_path / str(me)).mkdir()
        mine = settings
        for old, new in (
            ("id = 1", f"id = {me}"),
            ("127.0.0.1:5401", f"127.0.0.1:{ports[me]}"),
            ("2@127.0.0.1:5402", f"{other}@127.0.0.1:{ports[other]}"),
        ):
            assert old in settings
            mine = mine.replace(old, new)
        (tmp_path / str(me) / "node.toml").write_text(mine)
    with ExitStack() as stack:
        for me in ports:
            members[me] = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-u", "-c", program],
                    cwd=tmp_path / str(me),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(members[me].kill)
        for me, member in members.items():
            assert member.stdout is not None
            told = [member.stdout.readline()]
            place = told[0].removeprefix(SENT).strip()
            awaited = {f"{place} from {me}: hello\n", "members are 1 2\n"}  # in either order
            while not awaited <= set(told):
                told.append(member.stdout.readline())
                assert told[-1], told
    assert len(program.splitlines()) <= 24


def test_the_simulation_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python", "RunSpec"), "README.md", "exec"), {})
    assert " valid ()" in capsys.readouterr().out

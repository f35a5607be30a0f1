"""Scenarios: stories about a group that can be read aloud, and that are tests.

A file is a sequence of blocks: commands, a line ``----``, and what is to be seen while they are
carried out (``ok`` for nothing). A blank line ends a block. ``#`` begins a comment. Behind a line
``---- in any order`` the lines may come in any order.

    ring PROTOCOL n=3
    until operational
    log views
    ----
    ok

    crash p3
    until ring {1,2}
    ----
    p1 tr (10,1){1,2}
    ...

The commands are those of ``scene.COMMANDS``. Every trace event goes to the checks as well, so a
scenario that shows what it should still fails if a property is violated.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import msgspec

from ringcast.checks import Violation
from ringcast.core.errors import RingcastError
from ringcast.sim.scenario.commands import ScenarioCommands

RULE = "----"
ANY_ORDER = "---- in any order"
NOTHING = "ok"


class ScenarioError(RingcastError, ValueError):
    """A scenario file that cannot be carried out; says where and why."""


class Block(msgspec.Struct, frozen=True):
    """Commands, and what they are expected to show."""

    head: tuple[str, ...]
    """Everything above the rule, as written."""
    line: int
    """Number of the first line of ``head``."""
    expected: tuple[str, ...]
    rule: str
    """What separates the two, as written."""


class ScenarioResult(msgspec.Struct, frozen=True):
    """What came of a scenario."""

    ok: bool
    diff: str
    """Expected against seen, as a unified diff; empty if they are equal."""
    violations: tuple[Violation, ...]
    text: str
    """The file with what was seen in place of what was expected."""


def run_file(path: Path | str) -> ScenarioResult:
    """Carry out the scenario in a file."""
    path = Path(path)
    return run_text(path.read_text("utf-8"), path.name)


def rewrite_file(path: Path | str) -> ScenarioResult:
    """Carry out a scenario and put what was seen into the file. Then read the difference."""
    path = Path(path)
    result = run_file(path)
    if result.diff:
        path.write_text(result.text, "utf-8")
    return result


def run_text(text: str, name: str = "scenario") -> ScenarioResult:
    """Carry out a scenario; ``ScenarioError`` if it cannot be."""
    scene = ScenarioCommands()
    seen: list[str] = []
    blocks = parse(text, name)
    for block in blocks:
        perform(scene, block, name)
        lines, scene.tap.lines = tuple(scene.tap.lines), []
        if block.rule == ANY_ORDER and sorted(lines) == sorted(block.expected):
            lines = block.expected
        seen.append(show(block, lines))
        if scene.violations:
            seen += [show(block, block.expected) for block in blocks[len(seen) :]]
            break
    else:
        scene.end()
    wanted = "\n".join(show(block, block.expected) for block in blocks)
    found = "\n".join(seen)
    sides = (wanted.splitlines(), found.splitlines(), f"{name} expected", f"{name} seen")
    diff = "\n".join(unified_diff(*sides, lineterm=""))
    return ScenarioResult(not diff and not scene.violations, diff, tuple(scene.violations), found)


def perform(scene: ScenarioCommands, block: Block, name: str) -> None:
    """Carry out the commands of a block."""
    for number, line in enumerate(block.head, block.line):
        command = line.partition(" #")[0].strip()
        if not command or command.startswith("#"):
            continue
        try:
            scene.do(command)
        except (ValueError, LookupError, msgspec.MsgspecError) as error:
            raise ScenarioError(f"{name}, line {number}: {command}: {error}") from error


def show(block: Block, lines: tuple[str, ...]) -> str:
    """A block as it stands in a file, with these lines as what was seen."""
    return "\n".join([*block.head, block.rule, *(lines or [NOTHING]), ""])


def parse(text: str, name: str) -> list[Block]:
    """Split a file into blocks; blank lines above a rule belong to the commands."""
    blocks: list[Block] = []
    head: list[str] = []
    expected: list[str] | None = None
    first, rule = 1, RULE
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = line.rstrip()
        if expected is None and line in (RULE, ANY_ORDER):
            expected, rule = [], line
        elif expected is None:
            head.append(line)
        elif line:
            expected.append(line)
        else:
            found = () if expected == [NOTHING] else tuple(expected)
            blocks.append(Block(tuple(head), first, found, rule))
            head, expected, first = [], None, number + 1
    if any(line and not line.startswith("#") for line in head):
        raise ScenarioError(f"{name}, line {first}: commands without a line {RULE!r} after them")
    if not blocks:
        raise ScenarioError(f"{name}: nothing to do; a scenario is commands, {RULE!r}, output")
    return blocks

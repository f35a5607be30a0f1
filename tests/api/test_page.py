"""docs/api.md speaks of names that exist, docs/quickstart.md of what can be typed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ringcast.api import events, group, inbox, node, objects, replica
from ringcast.core import errors, ids
from ringcast.runtime import config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text()
START = (DOCS / "quickstart.md").read_text()
MODULES = (node, group, inbox, events, replica, objects, config, errors, ids)
CLASSES = {
    name: thing
    for module in MODULES
    for name, thing in vars(module).items()
    if isinstance(thing, type) and thing.__module__.startswith("ringcast.")
}
OWNERS = {"node": node.Node, "group": group.Group, "replica": replica.Replica}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z][a-z]\w+)", PAGE))))
def test_classes(name: str) -> None:
    assert name in CLASSES
    assert CLASSES[name].__doc__


@pytest.mark.parametrize(
    "call",
    sorted(set(re.findall(r"`(?:await )?((?:node|group|replica|Node|StateMachine)\.\w+)", PAGE))),
)
def test_members(call: str) -> None:
    owner, _, name = call.partition(".")
    kind = OWNERS.get(owner) or CLASSES[owner]
    source = Path(str(__import__(kind.__module__, fromlist=["x"]).__file__)).read_text()
    assert hasattr(kind, name) or f"self.{name}" in source


def test_every_error_is_in_the_table() -> None:
    raised = {n for n, c in CLASSES.items() if issubclass(c, errors.RingcastError)}
    assert raised - {"RingcastError"} <= set(re.findall(r"\| `(\w+)` \|", PAGE))


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", START, re.DOTALL))
def test_configurations_of_the_quickstart(block: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(block)
    assert config.load(tmp_path / "node.toml").id == 1


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", START, re.DOTALL))
def test_programs_of_the_quickstart(block: str) -> None:
    compile(block, "quickstart.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for name in re.findall(r"ringcast\.(\w+)", block):
        assert name in CLASSES


def test_commands_of_the_quickstart_can_be_typed_in_a_checkout() -> None:
    """There is no release, and no environment needs to be active."""
    assert "pip install '.[live]'" in START
    plain = re.sub(r"(?ms)^```\w+$.*?^```$", "", START)
    blocks = re.findall(r"(?ms)^```\n(.*?)^```$", plain)
    commands = "".join(blocks).splitlines()
    assert len(commands) > 5
    for command in commands:
        assert re.match(r"\.venv/bin/(python|ringcast) ", command)


def test_the_quickstart_counts_right() -> None:
    chat = (DOCS.parent / "examples" / "chat.py").read_text()
    assert f"The whole program is {len(chat.splitlines())} lines" in START

"""docs/operations.md explains every reason to stop and every text of ``group.blocked``."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import ringcast.protocols
from ringcast.core.registry import Sheet, protocols

SOURCE = Path(ringcast.__file__).parent
PAGE = (SOURCE.parents[1] / "docs" / "operations.md").read_text("utf-8")

STOPS_ITSELF = {"left", "…"}
"""A node that its program ended; and a reason of somebody else, handed on."""

TELLS = {"blocked", "too_few", "waiting"}
"""Functions that return what ``group.blocked`` says."""


def spelled(node: ast.expr, names: dict[str, object]) -> Iterator[str]:
    """The texts an expression may be, with ``…`` for what is not known before."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            texts = [""]
            for part in parts:
                ends = ["…"]
                if isinstance(part, ast.Constant):
                    ends = [str(part.value)]
                elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                    ends = list(spelled(part.value, names))
                texts = [text + end for text in texts for end in ends]
            yield from texts
        case ast.Name(id=name):
            known = names.get(name)
            yield known if isinstance(known, str) else "…"
        case ast.IfExp(body=one, orelse=other):
            yield from spelled(one, names)
            yield from spelled(other, names)
        case _:
            yield "…"


def parsed() -> Iterator[tuple[ast.Module, dict[str, object]]]:
    """The modules of every protocol that a node may run, and of the kernel."""
    folders = [SOURCE / "core", *{_folder(sheet.make.__module__) for sheet in live()}]
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            # ``package.__init__`` would be a second copy, which registers its protocol once more.
            name = ".".join(part for part in parts if part != "__init__")
            yield ast.parse(path.read_text("utf-8")), vars(importlib.import_module(name))


def live() -> list[Sheet]:
    return [s for s in protocols() if s.live and s.make.__module__.startswith("ringcast.")]


def _folder(module: str) -> Path:
    return SOURCE.parent.joinpath(*module.split(".")[:3])


def short(text: str) -> str:
    """Without the rule at its end; a broken invariant is one, whichever it is."""
    bare = re.sub(r" \([^()]*\)$", "", text)
    return "broken invariant: …" if bare.startswith("broken invariant: ") else bare


def stops() -> set[str]:
    """Every reason with which a machine of a node may stop."""
    found: set[str] = set()
    for tree, names in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "env.stop":
                found.update(spelled(node.args[0], names))
    return {short(text) for text in found - STOPS_ITSELF}


def waits() -> set[str]:
    """Everything that ``blocked`` of a machine may say."""
    found: set[str] = set()
    for tree, names in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in TELLS:
                found.update(
                    text
                    for each in ast.walk(node)
                    if isinstance(each, ast.Return) and each.value is not None
                    for text in spelled(each.value, names)
                )
    return {short(text) for text in found if text.strip("…")}


def explained(title: str) -> set[str]:
    """The first column of the table below a title."""
    section = PAGE.partition(f"### {title}\n")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `(.+?)` \| \S", section, re.MULTILINE))


def test_every_reason_of_a_protocol_to_stop_is_explained() -> None:
    assert explained("Why a protocol stops") == stops()


def test_every_text_of_blocked_is_explained() -> None:
    assert explained("What `group.blocked` says") == waits()

"""Finds rule tags (``R12``, ``G7``, ranges such as ``R37-R41``) in code, tests and scenarios.

A tag ties a rule of the dossier to the handler that carries it out and to the tests that show it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_RANGE = re.compile(
    r"\b([RG])(\d{1,3})(?:`|\*)*\s*(?:-|\u2013|\.\.|\u2026|to|through)\s*(?:`|\*)*\1?(\d{1,3})\b"
)
_ONE = re.compile(r"\b([RG])(\d{1,3})\b")
_TEST_NAME = re.compile(r"(?<=_)([rg])(\d{1,3})(?=_|\b)")


def tags(text: str) -> set[str]:
    """Every tag that ``text`` names, alone or within a range."""
    found = {letter + number for letter, number in _ONE.findall(text)}
    for letter, low, high in _RANGE.findall(text):
        found |= {f"{letter}{number}" for number in range(int(low), int(high) + 1)}
    return found


def test_tags(text: str) -> set[str]:
    """As ``tags``; in tests a name such as ``test_r12_resends`` counts too."""
    return tags(text) | {f"{letter.upper()}{number}" for letter, number in _TEST_NAME.findall(text)}


def number(tag: str) -> tuple[str, int]:
    """Sorts tags as people count."""
    return tag[0], int(tag[1:])


def functions(source: str) -> Iterator[tuple[str, int, int]]:
    """(qualified name, first line, last line) of each function, inner ones after outer ones."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child.lineno, child.end_lineno or child.lineno
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    return walk(ast.parse(source), "")


def places(path: Path) -> dict[str, list[str]]:
    """Tag to the functions of a Python file that name it; ``""`` is the module itself."""
    source = path.read_text(encoding="utf-8")
    spans = list(functions(source))
    read = test_tags if path.name.startswith("test_") else tags
    found: dict[str, list[str]] = defaultdict(list)
    for line_number, line in enumerate(source.splitlines(), start=1):
        inside = [name for name, first, last in spans if first <= line_number <= last]
        where = inside[-1] if inside else ""
        for tag in read(line):
            if where not in found[tag]:
                found[tag].append(where)
    return found


def handlers(package: Path) -> dict[str, list[str]]:
    """Tag to ``module:function`` over a protocol package; the module alone if no function does.

    The package's own docstring names all rules at once, which says nothing of any of them.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.glob("[!_]*.py")):
        for tag, names in places(path).items():
            inner = [name for name in names if name]
            found[tag] += [f"{path.stem}:{name}" for name in inner] or [path.stem]
    return {tag: [name for name in names if ":" in name] or names for tag, names in found.items()}


def tests(*folders: Path) -> dict[str, list[str]]:
    """Tag to the tests (``file:function``) and text scenarios that name it."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("test_*.py")):
            name = path.relative_to(ROOT / "tests").as_posix()
            for tag, where in places(path).items():
                shown = [inner for inner in where if "test" in inner]
                found[tag] += [f"{name}:{inner}" for inner in shown] or [name]
        for path in sorted(folder.rglob("*.txt")):
            name = path.relative_to(ROOT / "tests").as_posix()
            for tag in tags(path.read_text(encoding="utf-8")):
                found[tag].append(name)
    return found

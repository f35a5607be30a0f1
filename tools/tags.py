"""Finds rule tags (``R12``, ``TF-7``, ranges such as ``R37-R41``) in code, tests and scenarios.

Each protocol has its own kinds of tags: its rule book names those of its rules and of the gaps of
its source.

A tag ties a rule of the dossier to the handler that carries it out and to the tests that show it.
A module's docstring says what the module is about, so tags in it tie nothing; nor does a range at
a handler, which names a step as a whole: each rule of it must have a place of its own.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


def _patterns(kinds: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """A range of tags, one tag, and a tag in the name of a test (``test_tf_7_...``).

    Kinds are what is written in front of the number.
    """
    kind = "|".join(map(re.escape, kinds))
    in_names = "|".join(re.escape(each.lower().replace("-", "_")) for each in kinds)
    return (
        re.compile(
            rf"\b({kind})(\d{{1,3}})(?:`|\*)*\s*(?:-|\u2013|\.\.|\u2026|to|through)\s*(?:`|\*)*"
            rf"(?:\1)?(\d{{1,3}})\b"
        ),
        re.compile(rf"\b({kind})(\d{{1,3}})\b"),
        re.compile(rf"(?<=_)({in_names})(\d{{1,3}})(?=_|\b)"),
    )


def tags(text: str, kinds: tuple[str, ...]) -> set[str]:
    """Every tag that ``text`` names, alone or within a range."""
    ranges, one, _ = _patterns(kinds)
    found = {kind + number for kind, number in one.findall(text)}
    for kind, low, high in ranges.findall(text):
        found |= {f"{kind}{number}" for number in range(int(low), int(high) + 1)}
    return found


def single_tags(text: str, kinds: tuple[str, ...]) -> set[str]:
    """Every tag that ``text`` names alone."""
    ranges, one, _ = _patterns(kinds)
    return {kind + number for kind, number in one.findall(ranges.sub("", text))}


def test_tags(text: str, kinds: tuple[str, ...]) -> set[str]:
    """As ``tags``; in tests a name such as ``test_r12_resends`` counts too."""
    named = _patterns(kinds)[2].findall(text)
    written = {kind.lower().replace("-", "_"): kind for kind in kinds}
    return tags(text, kinds) | {f"{written[kind]}{number}" for kind, number in named}


def number(tag: str) -> tuple[str, int]:
    """Sorts tags as people count."""
    kind = tag.rstrip("0123456789")
    return kind, int(tag[len(kind) :])


class Place(NamedTuple):
    """A function, a class or, with an empty name, the module itself."""

    name: str
    function: bool
    first: int
    last: int


def scopes(tree: ast.Module) -> Iterator[Place]:
    """Each class and function with its lines and decorators, inner ones after outer ones."""

    def walk(node: ast.AST, prefix: str) -> Iterator[Place]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                first = min([child.lineno, *(above.lineno for above in child.decorator_list)])
                function = not isinstance(child, ast.ClassDef)
                yield Place(name, function, first, child.end_lineno or first)
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    yield Place("", False, 1, 2**31)
    yield from walk(tree, "")


def places(
    path: Path, read: Callable[[str, tuple[str, ...]], set[str]], kinds: tuple[str, ...]
) -> dict[str, list[Place]]:
    """Tag to the innermost places of a Python file that name it, its docstring left out."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    all_scopes = list(scopes(tree))
    docstring = tree.body[0].end_lineno or 0 if ast.get_docstring(tree) else 0
    found: dict[str, list[Place]] = defaultdict(list)
    for at, line in enumerate(source.splitlines(), start=1):
        if at <= docstring:
            continue
        inner = [place for place in all_scopes if place.first <= at <= place.last][-1]
        for tag in read(line, kinds):
            if inner not in found[tag]:
                found[tag].append(inner)
    return found


def handlers(*files: Path, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Tag to ``module:function``; to a class, or a module's table, only if no function has it."""
    found: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for path in files:
        for tag, named in places(path, single_tags, kinds).items():
            found[tag] += [
                (f"{path.stem}:{place.name}" if place.name else path.stem, place.function)
                for place in named
            ]
    return {
        tag: [name for name, function in named if function] or [name for name, _ in named]
        for tag, named in found.items()
    }


def tests(*where: Path, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Tag to the tests (``file:function``) that name it and the text scenarios that begin so.

    ``where`` are files, or folders with all their files.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for place in where:
        top = ROOT / "tests" if place.is_relative_to(ROOT / "tests") else place.parent
        for path in sorted(place.rglob("test_*.py")) if place.is_dir() else [place]:
            name = path.relative_to(top).as_posix()
            for tag, named in places(path, test_tags, kinds).items():
                shown = [scope.name for scope in named if scope.name.startswith("test_")]
                if shown:
                    found[tag] += [f"{name}:{test}" for test in shown]
        for path in sorted(place.rglob("*.txt")):
            name = path.relative_to(top).as_posix()
            for tag in tags(header(path), kinds):
                found[tag].append(name)
    return found


def header(path: Path) -> str:
    """The comment at the top of a scenario."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))

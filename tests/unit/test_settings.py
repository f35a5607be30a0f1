"""What a setting of any protocol must have: a text, a bound, and somebody who reads it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import msgspec
import pytest
import settings_page
from published import PUBLISHED

import ringcast.protocols
from ringcast.core.registry import Sheet

SOURCE = Path(ringcast.protocols.__file__).parents[1]
SHEETS = [pytest.param(sheet, id=sheet.name) for sheet in PUBLISHED]


@pytest.mark.parametrize("sheet", SHEETS)
def test_every_setting_says_what_it_does(sheet: Sheet) -> None:
    silent = [name for name, text in settings_page.settings(sheet.config).items() if not text]
    assert not silent, "write a text below each in config.py; docs/settings.md shows it"


@pytest.mark.parametrize("sheet", SHEETS)
def test_no_setting_takes_any_number(sheet: Sheet) -> None:
    """One below all that make sense is refused, by its type or by ``relations``."""
    taken = []
    for name in settings_page.settings(sheet.config):
        if type(getattr(sheet.default, name)) is int:
            wrong = {**msgspec.to_builtins(sheet.default), name: -(2**40)}
            try:
                msgspec.convert(wrong, sheet.config)
            except (ValueError, msgspec.ValidationError):
                continue
            taken.append(name)
    assert not taken, "add what must hold to relations()"


@cache
def read() -> set[str]:
    """Attributes that any module reads, but for the relations that only judge settings."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            if not (isinstance(node, ast.FunctionDef) and node.name == "relations"):
                waiting += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("sheet", SHEETS)
def test_somebody_reads_every_setting(sheet: Sheet) -> None:
    unread = sorted(settings_page.settings(sheet.config).keys() - read())
    assert not unread, f"nobody reads these settings: {', '.join(unread)}"

"""What reports call things without a name of their own: checks that are lambdas, tasks, places."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any


def first_line(text: str) -> str:
    """What fits into a line of a story."""
    return text.partition("\n")[0]


def name_of(check: Callable[..., object]) -> str:
    """What a check is called in a report: its name, or what a lambda says."""
    name: str = getattr(check, "__name__", type(check).__name__)
    code: CodeType | None = getattr(check, "__code__", None)
    return (name == "<lambda>" and code is not None and lambda_of(code)) or name


@lru_cache
def lambda_of(code: CodeType) -> str:
    """The body of a lambda, as it is written; empty if its source is not there."""
    lines = linecache.getlines(code.co_filename)
    places = [at for at in code.co_positions() if None not in at and at[2:] != (0, 0)]
    if not lines or not places:
        return ""
    source = "".join(lines)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    first: Any = min(at[0::2] for at in places)
    around = [
        node.body
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and (node.body.lineno, node.body.col_offset)
        <= first
        < (node.body.end_lineno, node.body.end_col_offset)
    ]
    if not around:
        return ""
    found = ast.get_source_segment(source, around[-1]) or ""  # the innermost comes last
    return " ".join(found.split())


def task_name(coro: Any) -> str:
    """What a task runs; of a host's, its program, which a coroutine of ours awaits."""
    inner = getattr(coro, "cr_await", None)
    if inspect.iscoroutine(inner) and "/ringcast/testing/" in coro.cr_code.co_filename:
        coro = inner
    return str(getattr(coro, "__qualname__", type(coro).__name__))


def where(coro: Any) -> str:
    """The line at which a coroutine waits."""
    frame = getattr(coro, "cr_frame", None)
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"

"""What a test runner is told of runs that fail or differ, besides their story."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from ringcast.testing.errors import NotDeterministic, origin_of
from ringcast.testing.run import Outcome, not_the_users


def same(one: Outcome, other: Outcome) -> None:
    """Raise if two runs of a seed differ."""
    __tracebackhide__ = True
    if one.events == other.events and one.kind == other.kind:
        return
    mine, theirs = one.trace.splitlines(), other.trace.splitlines()
    at = next(
        (at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    once, again = ("\n".join(trace[at : at + 3]) or "(the end)" for trace in (mine, theirs))
    raise NotDeterministic(
        f"seed {one.setup.seed} ran in two ways. Line {at + 1} was once\n{once}\n"
        f"and then\n{again}\n"
        "Does the program go through a set of objects, keep state in a module from run to run, "
        "or use something that is not simulated?"
        + (f" Once it failed: {one.kind}." if one.error is not None else "")
    )


def this_test() -> str:
    """The test that runs, as pytest names it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def own_frames(error: BaseException, test: Callable[..., Any]) -> TracebackType | None:
    """The user's frames of an error; where it has none, the line of the test."""
    found: TracebackType | None = None
    frames = []
    trace = origin_of(error).__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    for each in reversed(frames):
        if not not_the_users(each.tb_frame.f_code.co_filename):
            found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found or at_line(test.__code__)


def at_line(code: CodeType) -> TracebackType | None:
    """A traceback of one frame, at the beginning of a function."""
    fails = compile("raise ValueError", code.co_filename, "exec")
    try:
        exec(fails.replace(co_firstlineno=code.co_firstlineno, co_name=code.co_name))
    except ValueError as error:
        assert error.__traceback__ is not None
        return error.__traceback__.tb_next
    return None

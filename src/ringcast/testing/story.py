"""The story of a failure, for people: what happened, beside a run that passes."""

from __future__ import annotations

import os
import shlex
from difflib import SequenceMatcher
from shutil import get_terminal_size

from ringcast.testing.errors import headline
from ringcast.testing.faults import told
from ringcast.testing.process import MILLION
from ringcast.testing.run import Outcome
from ringcast.testing.shrink import ShrunkTest, size

FOLD = 6
"""So many lines in a row that are the same in both runs are folded."""

MOST_ROWS = 80
NO_HASH_SEED = (
    "PYTHONHASHSEED is not set: if this line passes, the order of a set of strings mattered; with "
    "PYTHONHASHSEED=0 before pytest, what fails repeats"
)
"""A process draws its hashes when it starts and tells nobody."""
LEAST_WIDTH = 62
"""Of the column on the left; half the terminal if that is more."""


def hash_seed() -> str:
    """What decides the order of sets of strings; empty if only this process knows."""
    given = os.environ.get("PYTHONHASHSEED", "")
    return given if given.isdecimal() else ""


def repeat(test: str, seed: int, hashes: str | None = None) -> str:
    """The command that runs this seed again, with the same hashes as far as they are known."""
    hashes = hash_seed() if hashes is None else hashes
    before = f"PYTHONHASHSEED={hashes} " if hashes else ""
    return f"{before}pytest {shlex.quote(test) if test else '...'} --simtest-seed {seed}"


def story(shrunk: ShrunkTest, seed: int, repeat: str) -> str:
    """All of it; the first line says which seed and what."""
    best = shrunk.best
    assert best.error is not None
    first, *more = headline(best.error).splitlines()
    lines = [f"seed {seed}: {first}", f"repeat: {repeat}"]
    lines += [*([] if hash_seed() else [NO_HASH_SEED]), *found(shrunk)]
    left, width = spoken(best), max(LEAST_WIDTH, (get_terminal_size().columns - 16) // 2)
    if shrunk.passing is None:
        lines += ["", "what happened:", *(told_alone(row) for row in shortened(left))]
    else:
        lines += ["", f"{'it fails:':{width}} | it passes {shrunk.differs}:"]
        lines += shortened(side_by_side(left, spoken(shrunk.passing), width))
    return "\n".join([*lines, "", *more] if more else lines)


def found(shrunk: ShrunkTest) -> list[str]:
    """How small the run is."""
    best = shrunk.best
    turns = size(best.setup.mixed, best.turns)
    messages = size(best.setup.odd, best.messages)
    return [
        f"it ends at {best.ended_us / MILLION:.6f} s; smallest of {shrunk.runs + 1} runs: "
        f"{len(best.plan)} faults, {turns} of {best.turns} turns in a drawn order, "
        f"{messages} of {best.messages} messages with a drawn fate",
        *(f"  {told(fault)}" for fault in best.plan),
    ]


def spoken(outcome: Outcome) -> list[tuple[str, str]]:
    """When, and what, of everything but datagrams."""
    return [
        (f"{event[0] / MILLION:10.6f}", f"{event[1]:8} {event[2]}")
        for event in outcome.events
        if len(event) == 3
    ]


def told_alone(row: tuple[str, str] | str) -> str:
    """A line without another one beside it."""
    return row if isinstance(row, str) else f"{row[0]} {row[1]}"


def cut_off(text: str, width: int) -> str:
    """Padded or shortened to ``width``."""
    return f"{text:{width}}" if len(text) <= width else f"{text[: width - 1]}…"


def side_by_side(
    left: list[tuple[str, str]], right: list[tuple[str, str]], width: int
) -> list[str]:
    """Two stories, line by line, the same things at the same height."""
    rows: list[str] = []
    matcher = SequenceMatcher(None, [what for _, what in left], [what for _, what in right], False)
    for kind, a, b, c, d in matcher.get_opcodes():
        one, other = left[a:b], right[c:d]
        if kind == "equal":
            same = [f"{cut_off(told_alone(row), width)} | {at}  the same"
                    for row, (at, _) in zip(one, other, strict=True)]  # fmt: skip
            if len(same) > FOLD:
                hidden = len(same) - 4
                same = [*same[:2], f"{'':10} … {hidden} lines that are the same …", *same[-2:]]
            rows += same
            continue
        if b == len(left) and len(other) > len(one) + FOLD:  # how it goes on does not matter
            other = [*other[: len(one) + FOLD], ("", "         …")]
        for at in range(max(len(one), len(other))):
            mine = told_alone(one[at]) if at < len(one) else ""
            theirs = told_alone(other[at]) if at < len(other) else ""
            rows.append(f"{cut_off(mine, width)} | {theirs}".rstrip())
    return rows


def shortened(rows: list[str] | list[tuple[str, str]]) -> list[str]:
    """The beginning and, above all, the end."""
    told = [told_alone(row) for row in rows]
    if len(told) <= MOST_ROWS:
        return told
    kept = MOST_ROWS - 10
    return [*told[:10], f"{'':10} … {len(told) - MOST_ROWS} lines left out …", *told[-kept:]]

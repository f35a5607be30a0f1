"""Reading what the user typed, and saying in one line what was wrong with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import typer

T = TypeVar("T")

OK, VIOLATED, UNKNOWN = 0, 1, 2
"""Exit codes: fine; a property was violated; unknown or bad usage."""

MOST_SEEDS = 10_000_000
"""A longer range is taken for a slip of the pen."""


def fail(message: str) -> NoReturn:
    """One line on the error stream, and the exit code for bad usage."""
    typer.echo(f"ringcast: {message}", err=True)
    raise typer.Exit(UNKNOWN)


def seed_range(text: str) -> range:
    """``17`` is one seed; ``0..200`` are 200, the end excluded as in Python."""
    match = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text.strip())
    if match is None:
        fail(f"--seeds {text!r} is not a seed such as 17 or a range such as 0..200")
    low = int(match[1])
    high = int(match[2]) if match[2] else low + 1
    if not low < high:
        fail(f"--seeds {text} is an empty range: the end is excluded, so {low}..{low + 1} is one")
    if high - low > MOST_SEEDS:
        fail(f"--seeds {text} are more than {MOST_SEEDS:,} runs; use a shorter range")
    return range(low, high)


def check_within(option: str, value: float, low: float, high: float) -> None:
    """Refuse a number out of its range; ``nan`` is in none."""
    if not low <= value <= high:
        fail(f"{option} {value:g} is not within {low:g} .. {high:g}")


def read_text(file: Path, wanted: str) -> str:
    """The text of ``file``; ``wanted`` says what it should have been."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        fail(f"cannot read {str(file)!r} ({reason}); {wanted}")


def read_toml(file: Path, kind: type[T]) -> T:
    """A TOML file as ``kind``; the error names the file and the place in it."""
    text = read_text(file, "a TOML file is wanted here")
    try:
        return msgspec.toml.decode(text, type=kind)
    except msgspec.DecodeError as error:
        fail(f"{file}: {error}")

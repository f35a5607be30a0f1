"""Reading what the user typed, and saying in one line what was wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import typer

from ringcast.sim import words

OK, VIOLATED, UNKNOWN = 0, 1, 2
"""Exit codes: fine; a property was violated; unknown or bad usage."""


def fail(message: str) -> NoReturn:
    """One line on the error stream, and the exit code for bad usage."""
    typer.echo(f"ringcast: {message}", err=True)
    raise typer.Exit(UNKNOWN)


def seed_range(text: str) -> range:
    """The seeds of ``--seeds``."""
    try:
        return words.seed_range(text)
    except ValueError as error:
        fail(f"--seeds {error}")


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

"""Reading what the user typed, and saying in one line what was wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ringcast.pipeline.errors import PipelineError
from ringcast.sim.scenario import syntax as words

OK, VIOLATED, UNKNOWN, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: fine; a property was violated; unknown or bad usage."""

Master = Annotated[
    str | None,
    typer.Option(
        help="Run on this Spark: local[2], spark://host:7077, yarn, k8s://... "
        "[default: $SPARK_MASTER, else all cores of this machine].",
        show_default=False,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        help="Run through this Spark Connect server: sc://host:15002 [default: $SPARK_REMOTE].",
        show_default=False,
    ),
]


def fail(message: str) -> NoReturn:
    """One line on the error stream, and the exit code for bad usage."""
    typer.echo(f"ringcast: {message}", err=True)
    raise typer.Exit(UNKNOWN)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What goes wrong in the pipeline and can be mended by the user becomes one line."""
    try:
        yield
    except PipelineError as error:
        fail(str(error))


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

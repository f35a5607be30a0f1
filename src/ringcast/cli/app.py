"""The ``ringcast`` command: its options, and the commands it is made of."""

from __future__ import annotations

from typing import Annotated

import typer

import ringcast

app = typer.Typer(
    name="ringcast",
    help="Totally ordered group communication: simulate it, break it, check it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def show_version(wanted: bool) -> None:
    """Print the version and leave, for ``--version``."""
    if wanted:
        typer.echo(f"ringcast {ringcast.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Totally ordered group communication: simulate it, break it, check it."""


@app.command("version")
def version_command() -> None:
    """Print the version."""
    show_version(True)

"""The ``ringcast`` command: its options, and the commands it is made of."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

import ringcast
from ringcast.cli import (
    bench,
    cluster,
    demo,
    journal,
    keygen,
    node,
    reproduce,
    sim,
    sweep,
    verify,
)
from ringcast.console.options import INTERRUPTED, UNKNOWN


class App(typer.Typer):
    """Says in one line what is wrong with the options, and how to learn more."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line of this process and leave with its exit code."""
        before = signal.signal(signal.SIGTERM, interrupt)
        try:
            code = super().__call__(*args, standalone_mode=False, **kwargs)
        except Exception as error:
            message = getattr(error, "format_message", None)  # a usage error, in every Typer
            if message is None:
                raise
            typer.echo(f"ringcast: {message().rstrip('.')}; see ringcast --help", err=True)
            code = UNKNOWN
        except KeyboardInterrupt:  # before a command had begun
            code = INTERRUPTED
        finally:
            signal.signal(signal.SIGTERM, before)
        sys.exit(code)


def interrupt(number: int, frame: object) -> NoReturn:
    """SIGTERM is like Ctrl-C: clean up, end all processes of ours, then go."""
    raise KeyboardInterrupt


app = App(
    name="ringcast",
    help="Totally ordered group communication: simulate it, break it, check it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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


app.command("sim")(sim.command)
app.command("verify")(verify.command)
app.command("sweep")(sweep.command)
app.command("reproduce")(reproduce.command)
app.command("demo")(demo.command)
app.command("node")(node.command)
app.command("keygen")(keygen.command)
app.add_typer(bench.app, name="bench")
app.add_typer(cluster.app, name="cluster")
app.add_typer(journal.app, name="journal")


@app.command("version")
def version_command() -> None:
    """Print the version."""
    show_version(True)

"""``ringcast cluster``: a small Spark cluster on this machine, to try and test jobs on."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ringcast.console.options import UNKNOWN, one_line_errors
from ringcast.console.output import as_json, say
from ringcast.pipeline.spark import cluster
from ringcast.pipeline.spark.cluster import LocalSpark

MOST_WORKERS = 16

app = typer.Typer(help="A Spark cluster on this machine: master, workers, Connect server.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def described(found: LocalSpark) -> dict[str, object]:
    """The cluster for programs."""
    return {
        "master": found.master,
        "remote": found.remote,
        "page": found.page,
        "parts": [
            {"name": name, "pid": part.pid, "running": found.alive(name), "log": part.log}
            for name, part in found.parts.items()
        ],
    }


@app.command("up")
def up(
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Workers.")] = 2,
    json: Json = False,
) -> None:
    """Start a master, workers and a Connect server on loopback, and wait until they answer."""
    with one_line_errors():
        found = cluster.up(cluster.state_folder(os.environ), workers)
    if json:
        as_json(described(found))
        return
    say(f"{found.master}  for --master")
    say(f"{found.remote}  for --remote")
    say("'ringcast cluster down' ends it")


@app.command("down")
def down(json: Json = False) -> None:
    """End the cluster that 'up' started, and nothing else."""
    with one_line_errors():
        found = cluster.down(cluster.state_folder(os.environ))
    if json:
        as_json({"ended": list(found.parts) if found else []})
    else:
        say(f"ended {', '.join(found.parts)}" if found else "no cluster is up")


@app.command("status")
def status(json: Json = False) -> None:
    """Say what of the cluster runs; the exit code is 0 if all of it does, else 2."""
    with one_line_errors():
        found = cluster.load(cluster.state_folder(os.environ))
    running = found is not None and all(found.alive(name) for name in found.parts)
    if json:
        as_json(described(found) if found else {"parts": []})
    elif found is None:
        say("no cluster is up")
    else:
        say(f"{found.master}  {found.remote}  {found.page}")
        for name, part in found.parts.items():
            state = "running" if found.alive(name) else "[bold red]gone[/]"
            say(f"  {name:<10} {state:<8} process {part.pid}, log {part.log}")
    if not running:
        raise typer.Exit(UNKNOWN)

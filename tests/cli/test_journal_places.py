"""A transitional configuration stands at ``.end``, in what is printed and in what is asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.core.ids import Position, ViewId
from ringcast.journal.format.layout import Entry, view_entry
from ringcast.journal.writer import Journal, commit

VIEWS = [
    view_entry(Position.at(ViewId(4, 1), 0), ViewId(4, 1), (1,), False, 0),
    view_entry(Position(0, 4, 1, 0, 0).end(1), ViewId(8, 1), (1,), True, 0),
    view_entry(Position.at(ViewId(8, 1), 0), ViewId(8, 1), (1, 2), False, 0),
]


def journal(folder: Path, views: list[Entry]) -> str:
    log = Journal(folder)
    log.append(views)
    log.close()
    return str(folder)


def said(*words: str) -> str:
    done = CliRunner().invoke(app, ["journal", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_place_of_a_transitional_configuration(tmp_path: Path) -> None:
    folder = journal(tmp_path / "a", VIEWS)
    assert [line.split()[0] for line in said("cat", folder).splitlines()] == [
        "(4,1):0.0", "(4,1):0.end.1", "(8,1):0.0",
    ]  # fmt: skip
    assert (
        said("cat", folder, "--from", "(4,1):0.end.1").splitlines()[0].startswith("(4,1):0.end.1")
    )
    (upto,) = said("cat", folder, "--json", "--from", "4,1:0.1", "--to", "4,1:0.end.1").splitlines()
    assert msgspec.json.decode(upto)["position"] == "(4,1):0.end.1"


def test_a_segment_and_a_reader_that_end_there(tmp_path: Path) -> None:
    folder = journal(tmp_path / "a", VIEWS[:2])
    commit(tmp_path / "a", "billing", VIEWS[1].last)
    shown = said("ls", folder)
    assert "(4,1):0.0 .. (4,1):0.end.1" in shown
    assert "reader billing has committed (4,1):0.end.1" in shown
    found = msgspec.json.decode(said("ls", folder, "--json"))
    assert found["last"] == "(4,1):0.end.1"

"""What users type: seeds, bad options, files that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ringcast.cli.app import app
from ringcast.cli.options import seed_range


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("17", range(17, 18)), ("0..200", range(0, 200)), (" 3..4 ", range(3, 4))],
)
def test_a_range_of_seeds_excludes_its_end(text: str, seeds: range) -> None:
    assert seed_range(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "3..", "..3", "3..3", "5..2", "0..99999999999", "1.5"]
)
def test_bad_seeds_are_refused(text: str) -> None:
    with pytest.raises(typer.Exit) as caught:
        seed_range(text)
    assert caught.value.exit_code == 2


BAD_FAULTS = '[[faults]]\nkind = "crash"\nat_us = 5\nnode = 9\n'


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Missing command"),
        ("dance", "No such command 'dance'"),
        ("sim --bogus", "No such option: --bogus"),
        ("sim --nodes many", "--nodes"),
        ("sim --nodes 0", "--nodes"),
        ("sim --nodes 1", "too few for --faults swarm"),
        ("sim --jobs 0", "--jobs"),
        ("sim --seeds five", "not a seed"),
        ("sim --seeds 5..5", "empty range"),
        ("sim --protocol tokem", "no protocol called 'tokem'"),
        ("sim --faults none --network mars", "no network called 'mars'"),
        ("sim --network lan", "which draws the network"),
        ("sim --faults missing.toml", "cannot read 'missing.toml'"),
        ("sim --faults missing", "--faults takes swarm, none"),
        ("sim --faults bad_faults.toml", "faults[0]: no such processors: [9]"),
        ("sim --faults events", "events file, line 1"),
        ("sim --faults broken.toml", "broken.toml"),
        ("sim missing.toml", "missing.toml"),
        ("sim missing.txt", "missing.txt"),
        ("sim broken.toml", "broken.toml"),
        ("sim broken.txt", "broken.txt, line 1"),
        ("sim run.toml --nodes 3", "--nodes cannot be combined with a file"),
        ("sim broken.txt --seeds 3", "--seeds cannot be combined with a file"),
        ("sim --trace out --jobs 2", "--jobs cannot be combined with --trace"),
        ("sim --seeds 0 --trace run.toml", "run.toml"),
        ("demo --seed x", "--seed"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    line: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad_faults.toml").write_text(BAD_FAULTS)
    Path("broken.toml").write_text("nodes = = 3\n")
    Path("broken.txt").write_text("jump\n----\nok\n")
    Path("events").write_text("earthquake: 5\n")
    Path("run.toml").write_text("nodes = 3\n")
    with pytest.raises(SystemExit) as caught:
        app(line.split())
    printed = capsys.readouterr()
    assert caught.value.code == 2
    assert printed.out == ""
    assert complaint in printed.err
    assert printed.err.startswith("ringcast: ")
    assert printed.err.count("\n") == 1

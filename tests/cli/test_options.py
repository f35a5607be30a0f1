"""What users type: seeds, bad options, files that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ringcast.cli.app import app
from ringcast.console.options import seed_range


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
        ("sim --network lan", "--network is drawn by a swarm from the seed; to choose it, add"),
        ("sim --load saturate --faults swarm", "--load is drawn by a swarm"),
        ("sim --set packing=0", "--set does not suit what seed 0 draws: config: Expected `bool`"),
        ("sim --set token_loss_us=9", "--set does not suit what seed 0 draws: config: token_retr"),
        ("sim --nodes 101", "101 members are more than the 100 that totem has room for"),
        (
            "sim --nodes 101 --faults none --protocol total",
            "101 members are more than the 100 that",
        ),
        (
            "sim --nodes 65 --faults none --protocol token-fd",
            "65 members are more than the 64 that",
        ),
        ("sim --seconds 3", "--seconds is drawn by a swarm"),
        ("sim run.toml --load none", "--load cannot be combined with a file"),
        ("sim --faults none --profile fast", "totem has no profile 'fast'; known: lan, measured"),
        ("sim --faults none --load heavy", "--load 'heavy' is not none, saturate or a rate"),
        ("sim --faults none --load poisson", "--load 'poisson' is not"),
        ("sim --faults none --load poisson:0", "--load 'poisson:0' is not"),
        ("sim --faults none --load poisson:nan", "--load 'poisson:nan' is not"),
        ("sim --faults none --load poisson:inf", "--load 'poisson:inf' is not"),
        ("sim --faults none --load none --size 5", "leave out --size and --safe"),
        ("sim --faults none --size -1", "--size"),
        ("sim --faults none --size big", "--size"),
        ("sim --faults none --safe 1.5", "--safe 1.5 is not within 0 .. 1"),
        ("sim --faults none --safe nan", "--safe nan is not within"),
        ("sim --faults none --seconds 0", "--seconds 0 is not within 0.001 .. 1e+06"),
        ("sim --faults none --seconds nan", "--seconds nan is not within"),
        ("sim --faults plan.toml --seconds 0.1", "at_us 300000 is after the end (100000 us)"),
        ("sim --faults none --set packing", "--set 'packing' is not of the form key=value"),
        ("sim --faults none --set speed=3", "totem has no setting speed"),
        ("sim --faults none --set packing=often", "config: Expected `bool`, got `str`"),
        ("sim --faults none --set join_us=900000", "join_us = 900000 must be below consensus_us"),
        ("sim --set announce_us=200", "announce_us = 200 must not be below join_us"),
        ("sim --set merge_backoff_us=10000000", "merge_backoff_us = 10000000 doubles up to 64"),
        ("sim --faults missing.toml", "cannot read 'missing.toml'"),
        ("sim --faults missing", "faults are swarm, none, a .toml fault plan"),
        ("sim --faults bad_faults.toml", "faults[0]: no such processors: [9]"),
        ("sim --faults events", "events file, line 1"),
        ("sim --faults broken.toml", "broken.toml"),
        ("sim missing.toml", "missing.toml"),
        ("sim missing.txt", "missing.txt"),
        ("sim broken.toml", "broken.toml"),
        ("sim broken.txt", "broken.txt, line 1"),
        ("sim run.toml --nodes 3", "--nodes cannot be combined with a file"),
        ("sim broken.txt --shrink", "--shrink cannot be combined with a file"),
        ("sim broken.txt --seeds 3", "--seeds cannot be combined with a file"),
        ("sim --out small.toml", "--out is where --shrink puts its run file, so add --shrink"),
        ("sim --shrink --out run.toml", "--out run.toml is there already; name a new file"),
        ("sim --shrink --out no/small.toml", "--out no/small.toml needs a directory 'no'"),
        ("sim --trace out --jobs 2", "--jobs cannot be combined with --trace"),
        ("sim --seeds 0 --trace run.toml", "run.toml"),
        ("sim --faults none --topology star", "add --rings COUNT, or name a .toml file"),
        ("sim --faults none --rings 3 --topology moon", "tree; or name a .toml file"),
        ("sim --faults none --rings 3 --topology run.toml", "leave --rings and --nodes out"),
        (
            "sim --faults none --topology run.toml",
            "run.toml: Object missing required field `rings`",
        ),
        ("sim --faults none --topology no.toml", "--topology: cannot read 'no.toml' (No such file"),
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
    Path("plan.toml").write_text('[[faults]]\nkind = "heal"\nat_us = 300_000\n')
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

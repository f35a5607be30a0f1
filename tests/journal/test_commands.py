"""``ringcast journal`` as a stranger uses it: wrong folders, damage, pipes that end, full disks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from histories import HISTORY, PLACES, damage, entry, write
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.journal.durable import DURABLE
from ringcast.journal.format import layout
from ringcast.journal.format.message import digest, message
from ringcast.journal.format.segment import HEAD_BYTES
from ringcast.journal.writer import Journal, segment_names
from ringcast.replica.contents import Command, Started, encode
from ringcast.replica.words import Ack, Action, Epoch, Ticket
from ringcast.replica.words import encode as said_by
from ringcast.runtime.store import Store

RINGCAST = [sys.executable, "-m", "ringcast.cli", "journal"]
COMMANDS = ("ls", "cat", "check", "export")


def call(command: str, *folders: object, **environment: str) -> tuple[int, str]:
    out = [] if command != "export" else ["--out", f"{folders[0]}-out"]
    done = CliRunner().invoke(app, ["journal", command, *map(str, folders), *out])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a", HISTORY, list(range(0, 40, 3)))
    return tmp_path / "a"


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_journal(tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    Store(tmp_path / "state").close()
    (tmp_path / "file").write_text("text")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.segment").write_text("")
    for name, words in (
        ("nowhere", "No such file or directory"),
        ("empty", "there is no journal in it"),
        ("state", "there is no journal in it"),
        ("file", "Not a directory"),
    ):
        code, said = call(command, tmp_path / name)
        assert code == 2 and words in said and "configuration calls journal" in said
        assert len(said.splitlines()) == 1 and str(tmp_path / name) in said
    assert "x.segment: not the name of a segment" in call(command, tmp_path / "other")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_journal_is_one(tmp_path: Path, folder: Path, command: str) -> None:
    Journal(tmp_path / "new").close()
    code, _ = call(command, tmp_path / "new")
    assert code == 0
    if command != "ls":
        assert call(command, folder, tmp_path / "new")[0] == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_torn_end_is_read_up_to_it(folder: Path, command: str) -> None:
    with segment_names(folder)[-1].open("ab") as file:
        file.write(b"RcJ4" + bytes(90))
    code, said = call(command, folder)
    assert code == 0
    if command == "check":
        assert "bytes unfinished at its end" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_damage_is_named_and_not_read_past(folder: Path, command: str) -> None:
    path = segment_names(folder)[0]
    damage(path, HEAD_BYTES + 200)
    code, said = call(command, folder)
    if command != "ls":  # which reads no records
        assert code == (1 if command == "check" else 2) and path.name in said
        assert not Path(f"{folder}-out").exists()


@pytest.mark.parametrize("at", range(HEAD_BYTES, HEAD_BYTES + 320, 4))
def test_damage_of_one_journal_of_several_is_named_or_does_not_matter(
    folder: Path, at: int
) -> None:
    """Wherever it is: what Arrow says to it is of no use to anybody."""
    sound = Path(f"{folder}-sound")
    shutil.copytree(folder, sound)
    path = segment_names(folder)[0]
    damage(path, at)
    for folders in ((folder, sound), (sound, folder)):
        code, said = call("cat", *folders)
        if code == 0:
            assert len(said.splitlines()) == len(PLACES)
        else:
            assert code == 2 and str(path) in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_permission(folder: Path, command: str) -> None:
    for mode in (0o000, 0o400):
        folder.chmod(mode)
        code, said = call(command, folder)
        folder.chmod(0o700)
        assert code == 2 and "Permission denied" in said and len(said.splitlines()) == 1


def test_segments_that_were_copied_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for path in segment_names(folder):
        shutil.copy(path, tmp_path / "b")
    assert not (tmp_path / "b" / DURABLE).exists()
    assert f"{len(PLACES)} records" in call("ls", tmp_path / "b")[1]
    assert len(call("cat", tmp_path / "b")[1].splitlines()) == len(PLACES)


def test_names_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.append([entry(1, b"\x1b[2J")._replace(group="g\x1b]0;x\x07")])
    journal.close()
    said = call("cat", tmp_path / "a")[1]
    assert "\x1b" not in said and r"\x1b]0;x" in said


@pytest.mark.parametrize("reason", [b"\x1b[2J\nERROR", b"\xff"])
def test_what_a_gap_says_does_not_reach_the_terminal_as_it_is(
    tmp_path: Path, reason: bytes
) -> None:
    """A member can tell a node that catches up of a gap, in its own words."""
    journal = Journal(tmp_path / "a")
    gap = layout.gap_entry(entry(1, b"").first, "", 0)
    journal.append([gap._replace(**said(reason)), entry(1, b"x")])
    journal.close()
    shown = call("cat", tmp_path / "a")[1]
    assert len(shown.splitlines()) == 2 and "\x1b" not in shown


def said(body: bytes) -> dict[str, Any]:
    """What an entry has of its only body."""
    made = message("", (body,))
    return {"lengths": array("i", [len(body)]), "data": made, "digest": digest(made)}


def test_commands_of_a_replica_are_shown_without_what_is_around_them(tmp_path: Path) -> None:
    """`cat` showed the words in which replicas speak, and the programs' commands inside of them."""
    epoch, ticket = Epoch(4, 1), Ticket(1, 7, 3)
    bodies = [
        said_by(Action(ticket, encode(Command(b"sell 4", "c17", 5)))),
        said_by(Action(ticket, encode(Started()))),
        said_by(Ack(epoch, 3, 0)),
        b"no word at all",
        said_by(Action(ticket, encode(Command(b"sell 5")))),
    ]
    journal = Journal(tmp_path / "a")
    journal.append([entry(1, *bodies), entry(2, bodies[0])._replace(group="other")])
    journal.close()
    some = ("--no-views", "--group", "orders", "--commands")
    assert [line.split(" orders ")[1] for line in shown(tmp_path / "a", *some)] == [
        "from 2, 'c17' request 5: sell 4",
        "from 2: sell 5",
    ]
    first, second = map(msgspec.json.decode, shown(tmp_path / "a", *some, "--json"))
    assert first["kind"] == "command" and first["body"] == {"text": "sell 4"}
    assert (first["member"], first["boot"], first["number"]) == (1, 7, 3)
    assert (first["client"], first["request"], second["client"]) == ("c17", 5, None)
    assert shown(tmp_path / "a", "--commands")[0].startswith("ringcast: --commands needs --group")


def shown(folder: Path, *options: str) -> list[str]:
    return CliRunner().invoke(app, ["journal", "cat", str(folder), *options]).output.splitlines()


def test_export_on_a_full_disk_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = " ".join([*RINGCAST, "export", str(folder), "--out", str(out)])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 1; trap '' XFSZ; exec {command}"], capture_output=True, text=True
    )
    assert done.returncode == 2 and f"cannot write {out}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("words", [["cat"], ["cat", "--json"], ["ls"]])
def test_who_reads_may_stop(folder: Path, words: list[str]) -> None:
    """As in ``| head -1``."""
    line = " ".join([*RINGCAST, *words, str(folder)])
    done = subprocess.run(["bash", "-c", f"{line} | true"], capture_output=True, text=True)
    assert done.stderr == ""


def test_following_ends_with_ctrl_c(folder: Path) -> None:
    command = [*RINGCAST, "cat", str(folder), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in PLACES]
        assert lines[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""

"""``keygen``, ``node`` and ``demo``: what is refused, what is written, what is said to do next."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ringcast.cli.app import app
from ringcast.cli.demo import prepare
from ringcast.runtime.loopback import LOOPBACK, free_ports
from ringcast.wire.keys import KeyFile

NODE = """
id = 1
bind = "127.0.0.1:0"
peers = ["2@127.0.0.1:9"]
state_dir = "state"
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line here; returns exit code and all it printed."""

    def run(line: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as caught:
            app(line.split())
        said = capsys.readouterr()
        return caught.value.code, said.out + said.err

    return run


def test_a_key_is_made_once_and_taken_through_a_rotation(call: Any) -> None:
    file = Path("group.key")
    code, said = call("keygen group.key")
    assert not code
    assert "copy it to every member" in said
    assert file.stat().st_mode & 0o777 == 0o600
    first = KeyFile(file).keys
    code, said = call("keygen group.key")
    assert (code, KeyFile(file).keys) == (2, first)
    assert "--add begins a rotation" in said
    assert "--promote" in call("keygen group.key --add")[1]
    assert list(KeyFile(file).keys) == [1, 2]
    assert "--retire" in call("keygen group.key --promote")[1]
    assert list(KeyFile(file).keys) == [2, 1]
    call("keygen group.key --retire")
    assert list(KeyFile(file).keys) == [2]
    call("keygen group.key --force")
    assert list(KeyFile(file).keys) == [1]
    assert KeyFile(file).keys != first


def test_a_step_of_a_rotation_out_of_turn_changes_nothing(call: Any) -> None:
    file = Path("group.key")

    def refused(step: str, words: str) -> None:
        before = file.read_text()
        code, said = call(f"keygen group.key {step}")
        assert (code, file.read_text()) == (2, before)
        assert words in said

    call("keygen group.key")
    for _ in range(2):
        refused("--promote", "--add makes a new one")
        refused("--retire", "it holds one key only")
        call("keygen group.key --add")
        refused("--add", "waiting already; the next step is --promote")
        call("keygen group.key --promote")
        refused("--promote", "the next step is --retire")
        call("keygen group.key --retire")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((f"keygen guest.key {step}", "is a guest's") for step in ("--add", "--promote")),
        ("keygen guest.key --retire", "is a guest's"),
        ("keygen new.key --read guest.key --name b", "is a guest's"),
        ("keygen group.key --read group.key --name b --force", "is the group's key file"),
        ("keygen link.key --write group.key --name b --force", "is the group's key file"),
    ],
)
def test_no_key_file_of_a_guest_passes_for_a_group_s(call: Any, line: str, words: str) -> None:
    """Members with it would seal with what the guest has, who could join them."""
    call("keygen group.key")
    call("keygen group.key --add")
    assert not call("keygen guest.key --read group.key --name a")[0]
    Path("link.key").symlink_to("group.key")
    before = [Path(name).read_text() for name in ("group.key", "guest.key")]
    code, said = call(line)
    assert code == 2 and words in said
    assert [Path(name).read_text() for name in ("group.key", "guest.key")] == before
    assert Path("link.key").is_symlink() and not Path("new.key").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("keygen .", "is a directory"),
        ("keygen . --force", "is a directory"),
        ("keygen none.key --add", "cannot read the key file"),
        ("keygen nowhere/none.key", "cannot write"),
        ("keygen x.key --add --retire", "one step at a time"),
        ("keygen x.key --name dash", "add --read or --write"),
        ("keygen x.key --network north", "add --read or --write"),
        ("node -c none.toml", "cannot read none.toml"),
        ("node -c broken.toml", "broken.toml"),
        ("node -c node.toml --drive often", "--drive 'often': give messages per second"),
        ("node -c node.toml --drive -1", "--drive '-1'"),
        ("node -c node.toml --drive 10 --size big", "--size 'big': give bytes"),
        ("node -c node.toml --drive 10 --size 9..3", "must be larger"),
        ("node -c node.toml --safe 2", "--safe"),
        ("node -c keyed.toml", "cannot read the key file"),
        ("node -c copied.toml", "is the id another node's?"),
        (f"node -c node.toml --group {'x' * 65}", "1 to 64 characters"),
        ("demo --seed 3", "--seed needs --simulated"),
        ("demo --simulated --out x", "--out cannot be combined"),
        ("demo --out node.toml", "cannot use --out node.toml"),
    ],
)
def test_bad_usage_is_said_in_one_line(call: Any, line: str, words: str) -> None:
    Path("node.toml").write_text(NODE)
    Path("broken.toml").write_text("id = ")
    Path("keyed.toml").write_text(NODE + 'key_file = "none.key"\n')
    copied = NODE.replace(":0", ":9999").replace('"2@', '"1@127.0.0.1:8888", "2@')
    Path("copied.toml").write_text(copied)
    code, said = call(line)
    assert code == 2
    assert words in said
    assert said.count("\n") == 1


def test_a_demo_begins_without_what_an_earlier_one_left() -> None:
    Path("out/traces").mkdir(parents=True)
    for old in ("report.html", "mine.txt", "traces/1-1.trace"):
        Path("out", old).touch()
    assert prepare(Path("out")) == Path("out/traces")
    assert [path.name for path in sorted(Path("out").rglob("*"))] == ["mine.txt", "traces"]


def test_a_node_leaves_after_so_many_messages(call: Any) -> None:
    Path("node.toml").write_text(NODE)
    code, said = call("node -c node.toml --drive saturate --deliver-limit 500")
    assert code == 0
    assert said.splitlines()[-1].endswith("stopped: left")
    assert " members 1\n" in said


def test_a_node_whose_lines_nobody_reads_ends() -> None:
    """As in ``ringcast node ... --json | head -1``: no view comes that would show it."""
    Path("node.toml").write_text(NODE)
    command = [sys.executable, "-m", "ringcast.cli", "node", "-c", "node.toml", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as node:
        assert node.stdout is not None and node.stderr is not None
        node.stdout.readline()
        node.stdout.close()
        assert node.wait(timeout=300) == 1
        assert node.stderr.read() == b""


def test_why_a_node_cannot_start_is_said_once(call: Any) -> None:
    (port,) = free_ports(1)
    Path("node.toml").write_text(NODE.replace(":0", f":{port}"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, port))
        code, said = call("node -c node.toml")
        assert (code, said.count("\n")) == (1, 1)
        assert f":{port}" in said
        _, said = call("node -c node.toml --json")
    assert '"event":"stopped"' in said


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        ("a", "b", "of another group: its key or its network is not this node's"),
        ("a", "", "sealed with no key of this group"),
        ("", "b", "this node has no key (set key_file)"),
    ],
)
def test_another_key_is_told_once(call: Any, one: str, two: str, words: str) -> None:
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    for id, key in ((1, one), (2, two)):
        bind, peer = ports[id], f"{3 - id}@{LOOPBACK}:{ports[3 - id]}"
        text = f'id = {id}\nbind = "{LOOPBACK}:{bind}"\npeers = ["{peer}"]\n'
        text += f'state_dir = "state{id}"\n'
        if key:
            call(f"keygen {key}.key")
            text += f'key_file = "{key}.key"\n'
        Path(f"{id}.toml").write_text(text)
    command = [sys.executable, "-m", "ringcast.cli", "node", "-c"]
    with (
        subprocess.Popen([*command, "2.toml"], stdout=subprocess.DEVNULL) as other,
        subprocess.Popen([*command, "1.toml"], stdout=subprocess.PIPE, text=True) as node,
    ):
        assert node.stdout is not None
        told = 0
        said = []
        for line in islice(node.stdout, 60):
            said.append(line)
            told += "frames refused" in "".join(said)
            if told == 3:  # two more lines
                break
        other.terminate()
        node.terminate()
    (refused,) = [line for line in said if "refused" in line]
    assert words in refused


def test_a_message_the_ring_does_not_take_is_refused(call: Any) -> None:
    Path("node.toml").write_text(NODE + "[settings]\nmax_message = 100000\n")
    code, said = call("node -c node.toml --drive 1 --size 50000")
    assert code == 2
    assert "--size 50000: the ring takes 34464 bytes at most" in said


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("version", 0, "ringcast"),
        ("keygen group.key", 0, "a new key"),
        ("node -c keyed.toml", 2, "pip install 'ringcast[live]'"),
        ("demo", 2, "needs cryptography and matplotlib: pip install 'ringcast[live,plots]'"),
    ],
)
def test_extras_are_asked_for_where_they_are_needed(line: str, code: int, words: str) -> None:
    Path("keyed.toml").write_text(NODE + 'key_file = "group.key"\n')
    program = f"""
import importlib.util
import sys
absent = ("cryptography", "matplotlib")
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Bare())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in absent else real(name)
from ringcast.cli.app import app
app({line.split()!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_a_guest_gets_a_key_of_its_own(call: Any) -> None:
    call("keygen group.key")
    code, said = call("keygen dash.key --read group.key --name dash")
    assert (code or 0, "may read as dash" in said) == (0, True)
    assert KeyFile(Path("dash.key")).grant == ("read", "dash")
    for line, complaint in {
        "keygen dash.key --read group.key --name dash": "--force replaces it",
        "keygen x.key --read group.key": "--name: name the reader",
        "keygen x.key --read group.key --write group.key --name x": "cannot be combined",
        "keygen x.key --write dash.key --name x": "is a guest's",
    }.items():
        code, said = call(line)
        assert (code, complaint in " ".join(said.split())) == (2, True), said
    Path("node.toml").write_text(NODE + 'key_file = "dash.key"\n')
    code, said = call("node -c node.toml")
    assert (code, "is a guest's: a node needs" in " ".join(said.split())) == (2, True), said

"""The examples as people run them: real processes, typed lines, crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from random import Random
from threading import Thread
from typing import IO

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["chat", "replicated_dict", "lock", "leader", "cache_invalidation", "whiteboard"]
PIPELINE = {"orders": "shop", "orders_spark": "shop"}
"""Programs that run to their end, and the word behind their name."""
DEADLINE_S = 240


def tries() -> Iterator[None]:
    """Again and again, with a pause that leaves the processor to the programs, until it is late."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        yield
        time.sleep(0.02)


class Program:
    """An example running as one node; what it prints can be waited for."""

    def __init__(self, name: str, node: int, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / f"{name}.py"), str(node)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self._lines: Queue[str] = Queue()
        self.seen: list[str] = []
        Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def type(self, *lines: str) -> None:
        assert self._process.stdin is not None
        for line in lines:
            self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def expect(self, start: str, end: str = "") -> str:
        """The next line that starts and ends so; lines before it are kept in ``seen``."""
        while True:
            try:
                line = self._lines.get(timeout=DEADLINE_S)
            except Empty:
                raise AssertionError(f"no {start!r} after {self.seen}") from None
            self.seen.append(line)
            if line.startswith(start) and line.endswith(end):
                return line

    def ask(self, question: str, start: str, fits: Callable[[str], bool]) -> str:
        """Ask again until the answer fits: what others did may be on its way."""
        for _ in tries():
            self.type(question)
            if fits(line := self.expect(start)):
                return line
        raise AssertionError(f"{question!r} is never answered so: {self.seen[-3:]}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self, how: signal.Signals | None = None) -> int:
        """Close the input, or send a signal; the exit code."""
        assert self._process.stdin is not None
        if how is None:
            self._process.stdin.close()
        else:
            self._process.send_signal(how)
        return self._process.wait(timeout=DEADLINE_S)

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


Start = Callable[[str, int], Program]


def free_base(seed: str) -> int:
    """A port with three free ones behind it."""
    rng = Random(seed)
    while True:
        base = rng.randrange(20_000, 30_000)
        held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
        try:
            for n, each in enumerate(held, 1):
                each.bind(("127.0.0.1", base + n))
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return base


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(EXAMPLES.parent / "src"),
        "RINGCAST_PORT": str(free_base(str(tmp_path))),
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def start(env: dict[str, str]) -> Iterator[Start]:
    programs: list[Program] = []

    def begin(name: str, node: int) -> Program:
        programs.append(Program(name, node, env))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def test_chat(start: Start) -> None:
    rooms = [start("chat", n) for n in (1, 2, 3)]
    for room in rooms:
        room.expect("* here are: 1 2 3")
    for n, room in enumerate(rooms, 1):
        room.type(f"hello from {n}")
    for room in rooms:
        for _ in rooms:
            room.expect("<")
    said = [[line for line in room.seen if line.startswith("<")] for room in rooms]
    assert said[0] == said[1] == said[2]
    assert sorted(said[0]) == [f"<{n}> hello from {n}" for n in (1, 2, 3)]
    assert rooms[2].end() == 0
    rooms[0].expect("* here are:", " 1 2")
    rooms[1].kill()
    rooms[0].expect("* here are:", ": 1")
    rooms[0].type("anybody?")
    rooms[0].expect("<1> anybody?")
    assert rooms[0].end(signal.SIGINT) == 0


def test_replicated_dict(start: Start) -> None:
    one, two, three = (start("replicated_dict", n) for n in (1, 2, 3))
    one.expect("ready")
    one.type("set colour red", "add visits 1", "nonsense")
    one.expect("visits = 1")
    one.expect("error: set KEY VALUE")
    for program in (two, three):
        program.type("get colour")
        program.expect("colour = red")
    for program in (one, two, three):
        program.type(*["add visits 1"] * 20)
    for program in (one, two, three):
        program.ask("get visits", "visits", lambda line: line == "visits = 61")
    two.kill()
    three.type("set colour blue")
    three.expect("colour = blue")
    again = start("replicated_dict", 2)
    again.expect("ready")
    whole = '{"colour": "blue", "visits": 61}'
    again.type("all")
    again.expect(whole)
    for program in (one, three, again):
        program.kill()
    for program in [start("replicated_dict", n) for n in (1, 3)]:
        program.type("all")
        program.expect(whole)


def test_lock(start: Start) -> None:
    def token(line: str) -> int:
        return int(line.partition("token ")[2])

    one, two, three = (start("lock", n) for n in (1, 2, 3))
    one.type("acquire")
    tokens = [token(one.expect("held by me"))]
    three.type("acquire", "who")
    three.expect("held by 1")
    one.type("release")
    tokens.append(token(three.expect("held by me")))
    two.type("who")
    two.expect("held by 3")
    two.type("acquire")
    three.kill()
    tokens.append(token(two.expect("held by me")))
    two.type("release", "who")
    two.expect("free")
    assert tokens == sorted(set(tokens))


def test_leader(start: Start) -> None:
    programs = {n: start("leader", n) for n in (1, 2, 3)}
    answer = programs[2].ask("", "", lambda line: line.startswith("leader"))
    leader, term = int(answer.split()[1].strip(",")), int(answer.split()[-1])
    programs.pop(leader).kill()
    one, other = programs.values()
    answer = one.ask("", "", lambda line: line[:6] == "leader" and line[7] != str(leader))
    assert int(answer.split()[-1]) > term
    other.kill()
    one.ask("", "", lambda line: line.startswith("nobody leads"))


def test_cache_invalidation(start: Start) -> None:
    one, two = start("cache_invalidation", 1), start("cache_invalidation", 2)
    for program in (one, two):
        program.expect("forgot everything")
    one.type("put colour red")
    one.expect("wrote colour")
    two.expect("forgot colour")
    two.type("get colour", "get colour")
    two.expect("colour = red (from store)")
    two.expect("colour = red (from cache)")
    three = start("cache_invalidation", 3)
    three.expect("forgot everything")
    two.expect("forgot everything")  # 3 may have written while it was apart
    three.ask("get colour", "colour", lambda line: line == "colour = red (from store)")
    three.type("put colour blue")
    two.expect("forgot colour")
    two.type("get colour")
    two.expect("colour = blue (from store)")


def test_whiteboard(start: Start) -> None:
    def pictures(*programs: Program) -> list[list[str]]:
        for program in programs:
            program.type("show")
        return [[program.expect("") for _ in range(6)] for program in programs]

    one, two = start("whiteboard", 1), start("whiteboard", 2)
    one.expect("ready")
    two.expect("ready")
    one.type("draw 2 1 10 a", "draw a b c d", "draw 0 5 99 z")
    one.expect("error: invalid literal")
    three = start("whiteboard", 3)
    for n, program in enumerate((one, two), 1):
        program.type(*[f"draw {i} 2 5 {n}" for i in range(20)])
    three.expect("ready")
    for _ in tries():
        first, *others = pictures(one, two, three)
        if all(other == first for other in others) and first[2][-1] != ".":
            break
    else:
        raise AssertionError(f"the pictures differ: {first} {others}")
    assert first[1] == "..aaaaaaaaaa............"
    assert first[5] == "z" * 24
    two.kill()
    again = start("whiteboard", 2)
    again.expect("ready")
    for _ in tries():
        if pictures(again) == [first]:
            break
    else:
        raise AssertionError("the picture did not come back")


@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_has_ended_means_leave(
    tmp_path: Path, env: dict[str, str], name: str
) -> None:
    file = tmp_path / "typed"
    file.write_text("one\ntwo")
    for path in (Path(os.devnull), file):
        with path.open() as stdin:
            done = run(name, env, stdin)
        assert (done.returncode, done.stderr) == (0, "")
    assert name != "chat" or done.stdout.endswith("<1> one\n<1> two\n")


def test_what_keeps_an_example_from_starting_is_said_in_one_line(env: dict[str, str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", int(env["RINGCAST_PORT"]) + 1))
        done = run("chat", env, subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def run(name: str, env: dict[str, str], stdin: IO[str] | int) -> subprocess.CompletedProcess[str]:
    """An example from its beginning to its end, as node 1."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "1"],
        stdin=stdin,
        capture_output=True,
        text=True,
        env=env,
        timeout=DEADLINE_S,
        check=False,
    )


def test_orders(tmp_path: Path, env: dict[str, str]) -> None:
    """The members have the same stock, and Spark has it too."""
    told = []
    for name, folder in PIPELINE.items():
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), folder]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        told += done.stdout.splitlines()
    *members, spark = (line.partition(": ")[2] for line in told)
    assert len(members) == 3 and len(set(members)) == 1
    assert spark.strip().startswith(members[0].replace("(", "[").replace(")", "]"))
    assert all(f"{item}'" in spark for item in ("apple", "pear", "plum"))


@pytest.mark.parametrize("name", [*NAMES, *PIPELINE])
def test_examples_are_short_and_say_how_to_run_them(name: str) -> None:
    source = (EXAMPLES / f"{name}.py").read_text()
    assert source.count("\n") < 80
    assert f"python examples/{name}.py {PIPELINE.get(name, 1)}" in source


def test_no_example_is_left_out() -> None:
    tried = {*NAMES, *PIPELINE, "local", "tickets"}  # test_tickets.py has the last one
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tried

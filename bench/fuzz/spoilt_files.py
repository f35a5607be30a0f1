"""Spoilt bytes for everything that reads some: a peer's records, questions, envelopes, files.

Each reader may refuse what it is given with the errors it promises, and with no other.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from altered import altered, spoilt
from steps import Steps

from ringcast.core.errors import UNREADABLE, RingcastError
from ringcast.core.ids import START, Level, Position, ViewId
from ringcast.journal.check import compare, examine
from ringcast.journal.format import layout
from ringcast.journal.format.frame import Frame, read_frame
from ringcast.journal.format.frame_writer import frame_content
from ringcast.journal.format.layout import Entry, view_entry
from ringcast.journal.format.selection import Selection
from ringcast.journal.merged_reader import whole
from ringcast.journal.node_journal import NodeJournal
from ringcast.journal.service import (
    MESSAGES,
    Ask,
    Commit,
    Look,
    Publish,
    Records,
    Seek,
    from_records,
    to_records,
)
from ringcast.journal.writer import Journal, Limits, read_small
from ringcast.pipeline.stream.sink import read_manifest
from ringcast.runtime.store import Store
from ringcast.wire import envelope, keys
from ringcast.wire.line import CallerOpens, NodeOpens
from ringcast.wire.seal import VERSION

RING = ViewId(8, 1)
END = Position(0, 8, 1, 30, 0)
SMALL = Limits(segment_bytes=2000)
MOST_WAITING_S = 0.002
"""A node lets whoever asks for what is not there yet wait for ten seconds."""
SERVED = 0.01
"""Share of the pieces that are questions which a node answers."""
BLOCK = 20
MEMORY = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""Where the files are, if there is such a place: a disk would take most of the time."""
WHOLE_JOURNALS = 0.003
"""Share of the pieces that are whole journals on disk, which cost a hundred times the others."""


def history() -> list[Entry]:
    """Records of a small group, in three segments."""
    found = [view_entry(Position.at(RING, 0), RING, (1, 2, 3), False, 5)]
    for seq in range(1, 25):
        place = Position(0, 8, 1, seq, 0)
        bodies = (b"a%d" % seq, b"b" * seq)
        source = ("sink", 1, 2 * seq) if seq % 3 == 0 else None
        made = layout.entry(
            place, RING, layout.MESSAGE, 2, Level.AGREED, "g", (), bodies, seq, source
        )
        found.append(made)
    return found


def kept(some: list[Entry]) -> Frame:
    """Entries as a journal keeps them."""
    ready = frame_content(some)
    data = memoryview(b"".join(ready.pieces))
    return read_frame(memoryview(ready.section), len(some), ready.rows, data)


encode = msgspec.msgpack.encode
RECORDS = to_records(1, kept(history()))
WORDS = [
    envelope.Data("g", (b"x", b"yy")),
    envelope.NumberedRows(RING, "g", "s", 1, 2, (b"x",)),
    envelope.Groups(RING, ("g", "h"), (envelope.Known("g", "s", 1, 2),)),
    envelope.Enter("g"),
]
WANTED = Selection("g", False, ("message",), ("g", ""), {"seq": (1, 9), "ring_seq": (8, 8)})
ASKED = [
    Ask(1, START, Position(0, 8, 1, 20, 0)),
    Ask(1, START, Position(0, 8, 1, 20, 0), waiting=True),
    Look(1, Position(0, 8, 1, 5, 1)),
    Seek(1, START, Position(0, 8, 1, 20, 0), 7),
    Seek(1, START, Position(0, 8, 1, 20, 0), 7, WANTED),
]
"""Questions about what a journal holds."""
QUESTIONS = [*ASKED, Commit(1, "r", START), Publish(1, "g", "s", 0, 0, (b"x",))]
OPENINGS = [
    NodeOpens(VERSION, 1, "", bytes(16)),
    CallerOpens(VERSION, 1, 1, bytes(16), ("read", "dash")),
]


def records(rng: Random, place: Path) -> None:
    """What a member tells a node that catches up."""
    entries, rows = (
        rng.choice((n, n, n + 1, 0, 2**31 - 1)) for n in (RECORDS.entries, RECORDS.rows)
    )
    section, data = RECORDS.section, RECORDS.data
    if rng.random() < 0.9:
        section = spoilt(rng.random, section)
    if rng.random() < 0.3:
        data = spoilt(rng.random, data)
    taken = from_records(Records(1, entries, rows, section, data))
    for _ in taken.sources():
        pass


def words(rng: Random, place: Path) -> None:
    """A message of the ring."""
    envelope.decode(spoilt(rng.random, encode(rng.choice(WORDS))))


QUESTION, NODE, CALLER = (
    msgspec.msgpack.Decoder(each).decode for each in (MESSAGES, NodeOpens, CallerOpens)
)


def questions(rng: Random, place: Path) -> None:
    """A frame on TCP."""
    draw = rng.random()
    if draw < 0.6:
        QUESTION(spoilt(rng.random, encode(rng.choice(QUESTIONS))))
    else:
        (NODE if draw < 0.8 else CALLER)(spoilt(rng.random, encode(rng.choice(OPENINGS))))


class Served:
    """A journal as a node serves it to whoever asks."""

    def __init__(self, folder: Path) -> None:
        async def publish(*_: object) -> Position:
            raise AssertionError("nobody publishes here")

        self._runner = asyncio.Runner()
        self._journal = NodeJournal(1, folder, SMALL, 0.1, (), lambda why: None, publish)
        self._runner.run(self._read())

    async def _read(self) -> None:
        await self._journal._commits.settle([], END)

    def questions(self, rng: Random, place: Path) -> None:
        """One that a guest may ask, altered in its parts: refused where it is decoded, or
        answered."""
        plain = msgspec.to_builtins(rng.choice(ASKED))
        for _ in range(rng.choice((0, 1, 1, 2))):
            plain = altered(rng.random, plain, [0, 1, 8, 20])
        try:
            asked = encode(plain)
        except OverflowError:
            return  # nobody can send it
        question = QUESTION(asked)
        if isinstance(question, Ask | Look | Seek):
            self._runner.run(self._answered(question))

    async def _answered(self, question: Ask | Look | Seek) -> None:
        try:
            async with asyncio.timeout(MOST_WAITING_S):
                async for _ in self._journal._serve(question):
                    pass
        except (RingcastError, TimeoutError):
            pass
        except Exception as error:
            raise AssertionError(f"{question} raised {error!r}") from error

    def close(self) -> None:
        """No more."""
        self._runner.run(self._journal.close())
        self._runner.close()


def key_files(rng: Random, place: Path) -> None:
    """Text of a key file."""
    text = "guest read dash\n1 " + "A" * 43 + "=\n2 " + "B" * 43 + "=\n"
    given = spoilt(rng.random, text.encode()).decode("latin-1")
    keys.parse(given, place)
    keys.parse_grant(given, place)


def small_files(rng: Random, place: Path) -> None:
    """What lies beside a journal, a node's state, and a sink's decision."""
    file = place / "stable.json"
    file.write_bytes(
        spoilt(
            rng.random,
            rng.choice(
                (b'{"boot": 17}', b'[{"name":"a","rows":1,"content":2}]', b'[["g","s",1,2]]')
            ),
        )
    )
    match rng.randrange(3):
        case 0:
            read_small(file, list[tuple[str, str, int, int]])
        case 1:
            Store(place).close()
        case _:
            read_manifest(file)


def journals(rng: Random, place: Path) -> None:
    """A whole journal, spoilt in one file."""
    files = sorted(path for path in (place / "journal").iterdir() if path.is_file())
    target = rng.choice(files)
    sound = target.read_bytes()
    try:
        target.write_bytes(spoilt(rng.random, sound))
        for look in (look_at, examine_all, read_all):
            try:
                look(place / "journal")
            except RingcastError:
                continue
    finally:
        target.write_bytes(sound)


def examine_all(folder: Path) -> None:
    """As ``journal check`` does."""
    for _ in examine(folder):
        pass


def look_at(folder: Path) -> None:
    """As ``journal check`` does with two."""
    for _ in compare([folder, folder.parent / "other"]):
        pass


def read_all(folder: Path) -> None:
    """As a reader does."""
    for _ in whole([folder]):
        pass


READERS: list[Callable[[Random, Path], None]] = [
    *(records,) * 6,
    *(words,) * 6,
    *(questions,) * 6,
    *(key_files,) * 2,
    small_files,
]


def round_of(seed: int, count: int) -> dict[str, Any]:
    """So many spoilt pieces."""
    rng = Random(f"{seed}/fuzz/bytes")
    refused, steps = 0, Steps()
    with tempfile.TemporaryDirectory(dir=MEMORY) as made, ExitStack() as stack:
        place = Path(made)
        for name in ("journal", "other", "served"):
            journal = Journal(place / name, SMALL)
            for one in history():
                journal.put(frame_content([one]))
            journal.sync()
            journal.close()
        served = Served(place / "served")
        stack.callback(served.close)
        for number in range(count):
            draw = rng.random()
            reader = journals if draw < WHOLE_JOURNALS else rng.choice(READERS)
            if WHOLE_JOURNALS <= draw < WHOLE_JOURNALS + SERVED:
                reader = served.questions
            alone = reader in (journals, small_files, served.questions)
            if number % BLOCK == 0:
                steps.begin_block()
            begun = time.perf_counter_ns()
            try:
                reader(rng, place)
            except (RingcastError, *UNREADABLE):
                refused += 1
            if alone:
                steps.begin_block()
            else:
                steps.note(begun, reader.__name__)
    return {
        "done": count,
        "refused": refused,
        "stops": 0,
        "longest_us": steps.longest_ns // 1000,
        "slowest": steps.slowest,
        "objects": 0,
        "bytes": 0,
    }

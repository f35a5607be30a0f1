"""Nodes with journals: durable sends, identical records, catching up, a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from journals import bodies, caught_up, folder, opened, rows, with_journals
from loopback import configs, eventually, joined, run
from typer.testing import CliRunner

from ringcast.api.node import Node
from ringcast.cli.app import app
from ringcast.core.errors import ConfigError, NodeStopped, RingcastError
from ringcast.core.ids import START, Level, Position, ViewId
from ringcast.journal.durable import DURABLE, mark
from ringcast.journal.format import layout
from ringcast.journal.format.layout import MESSAGE, Entry, JournalError
from ringcast.journal.format.records import records
from ringcast.journal.format.segment import SegmentFile
from ringcast.journal.node_journal import NodeJournal, holes
from ringcast.journal.reader import JournalReader
from ringcast.journal.service import (
    GUEST,
    Ask,
    Extent,
    Look,
    UntoldRecords,
    answers,
    call,
    from_records,
    token,
)
from ringcast.journal.writer import Journal, segment_names
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.loopback import free_ports
from ringcast.wire import keys
from ringcast.wire.address import Address
from ringcast.wire.keys import KeyFile


def test_journals_of_the_same_configurations_are_identical(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(with_journals(tmp_path, 3)) as nodes:
            groups = await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            for n in range(30):
                position = await groups[n % 3].send(b"%d" % n, durable=True)
                last = on_disk(folder(tmp_path, 1 + n % 3))
                assert last >= Position(0, position.ring.seq, position.ring.rep, position.seq, 0)
            await asyncio.gather(*(g.send_many([b"x" * 100] * 500, durable=True) for g in groups))

    run(story)
    one, two, three = (shared(tmp_path, id) for id in (1, 2, 3))
    assert one == two == three
    assert len(bodies(tmp_path, 1)) == 1530


def on_disk(path: Path) -> Position:
    """What is on disk now, for somebody else."""
    files = [SegmentFile(name) for name in segment_names(path)]
    return max(head.last for file in files for head in file.heads())


def shared(tmp_path: Path, id: int) -> list[dict[str, Any]]:
    """The records of configurations with everybody."""
    found = rows(tmp_path, id)
    full = [row["view"] for row in found if row["kind"] == "view" and len(row["members"]) > 2]
    return [row for row in found if row["view"] in full]


def test_who_was_away_catches_up(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            async with opened(settings[2:]) as (third,):
                groups = await joined([*nodes, third])
                await groups[2].send(b"before", durable=True)
            for n in range(200):
                await groups[n % 2].send(b"meanwhile %d" % n, durable=n % 50 == 0)
            async with opened(settings[2:]) as (third,), third.join("g") as group:
                await eventually(lambda: caught_up([third]))
                await group.send(b"after", durable=True)
            await groups[0].send(b"last", durable=True)
            await groups[1].send(b"", durable=True)
            await eventually(lambda: caught_up(nodes))

    run(story)
    wanted = [b"before", *(b"meanwhile %d" % n for n in range(200)), b"after"]
    assert bodies(tmp_path, 3) == wanted
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == [*wanted, b"last", b""]


LITTLE = {"segment_bytes": 2000, "keep_bytes": 20_000}


@pytest.mark.parametrize("known", [True, False])
def test_away_for_longer_than_the_others_keep_it_leaves_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """What they still have is taken, and what they have not is said to be missing."""
    monkeypatch.setattr("ringcast.journal.node_journal.TRIM_S", 0.02)
    settings = with_journals(tmp_path, 3)
    for each in settings[:2]:
        each["journal_limits"] = LITTLE
    sent = [b"meanwhile %d" % n for n in range(200)]

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            if known:
                async with opened(settings[2:]) as (third,):
                    groups = await joined([*nodes, third])
                    await eventually(lambda: caught_up([third]))
                    await groups[2].send(b"before", durable=True)
            groups = await joined(nodes, "more")
            for body in sent:
                await groups[0].send(body, durable=True)
            await eventually(lambda: all(forgotten(tmp_path, id, sent[0]) for id in (1, 2)))
            async with opened(settings[2:]) as (third,), third.join("more") as group:
                await eventually(lambda: caught_up([third]))
                await group.send(b"after", durable=True)

    run(story)
    found = bodies(tmp_path, 3)
    left = found[known:-1]
    assert found == [*([b"before"] if known else []), *sent[-len(left) :], b"after"]
    assert 0 < len(left) < len(sent)
    (gap,) = JournalReader(folder(tmp_path, 3)).gaps
    kinds = [row["kind"] for row in rows(tmp_path, 3)]
    assert kinds.count("gap") == 1
    for command, words in (
        ("check", f"missing: {gap.after} .. {gap.upto}"),
        ("ls", f"missing: what was between {gap.after} and {gap.upto}"),
        ("cat", "gap: the node was away, and no member could tell"),
    ):
        done = CliRunner().invoke(app, ["journal", command, str(folder(tmp_path, 3))])
        assert done.exit_code == 0 and words in done.output


def forgotten(tmp_path: Path, id: int, body: bytes) -> bool:
    """Whether a journal has been trimmed behind this; it may be while it is read."""
    try:
        return body not in bodies(tmp_path, id)
    except JournalError as error:
        assert "trimmed meanwhile" in str(error)
        return False


def told_of(begin: int, end: int) -> Extent:
    return Extent(token(), Position(0, 8, 1, end, 0), Position(0, 8, 1, begin, 0))


@pytest.mark.parametrize(
    ("told", "silent", "wanted"),
    [
        ([], False, []),
        ([], True, [(5, 90)]),
        ([(0, 99)], True, []),
        ([(5, 99)], False, []),
        ([(20, 99)], False, [(5, 20)]),
        ([(20, 99), (0, 30)], False, []),
        ([(20, 99), (0, 12)], False, [(12, 20)]),
        ([(20, 40), (60, 99), (0, 7)], False, [(7, 20), (40, 60)]),
        ([(95, 99)], False, [(5, 90)]),
        ([(0, 40)], True, [(40, 90)]),
    ],
)
def test_holes(told: list[tuple[int, int]], silent: bool, wanted: list[tuple[int, int]]) -> None:
    """Who was away as well tells a part, and who keeps little another one."""
    after, upto = Position(0, 8, 1, 5, 0), Position(0, 8, 1, 90, 0)
    found = holes(after, upto, [told_of(*each) for each in told], silent)
    assert [(hole.after.seq, hole.upto.seq) for hole in found] == wanted


def test_a_node_that_cannot_catch_up_stops_and_says_why(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 2)

    async def story() -> None:
        async with opened(settings) as nodes:
            await eventually(lambda: caught_up(nodes))
        (folder(tmp_path, 2) / "companions.json").write_text("")
        async with opened(settings[:1]):
            node = Node.open(settings[1])
            with pytest.raises(NodeStopped, match=r"companions\.json: cannot be read"):
                async with node, node.join("g") as group:
                    await group.send(b"x", durable=True)
                    await asyncio.sleep(60)

    run(story)


def test_a_late_member_gets_the_whole_history(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            groups = await joined(nodes)
            await groups[0].send_many([b"%d" % n for n in range(1000)], durable=True)
            async with opened(settings[2:]) as (third,):
                await eventually(lambda: caught_up([third]))

    run(story)
    assert bodies(tmp_path, 3) == [b"%d" % n for n in range(1000)]


def test_what_only_one_had_on_disk_is_in_all_journals_after_all_died(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def before() -> None:
        nodes = [Node.open(each) for each in settings]
        for node in nodes:
            await node.start()
        groups = await joined(nodes)
        await eventually(lambda: caught_up(nodes))
        await groups[0].send_many([b"%d" % n for n in range(100)], "safe", durable=True)
        await groups[1].send(b"acknowledged by 2", durable=True)
        for node in nodes:  # as by SIGKILL: nobody says goodbye
            assert node._host is not None and node._journal is not None
            node._host.close("killed")
            await node._journal.close()

    run(before)
    for id in (1, 3):  # and these had not synced the end
        path = segment_names(folder(tmp_path, id))[-1]
        heads = list(SegmentFile(path).heads())
        keep = next(h for h in reversed(heads) if h.last < last_message(tmp_path, 2))
        os.truncate(path, keep.end)
        (folder(tmp_path, id) / DURABLE).write_bytes(mark(path, keep.end))

    async def after() -> None:
        async with opened([settings[0], settings[2]]) as early:
            await asyncio.sleep(0.8)  # they have a ring, and wait for the third
            assert not caught_up(early)
            async with opened([settings[1]]) as late:
                await eventually(lambda: caught_up([*early, *late]))

    run(after)
    wanted = [*(b"%d" % n for n in range(100)), b"acknowledged by 2"]
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == bodies(tmp_path, 3) == wanted


def test_caught_up_is_waited_for_by_an_event(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 2)

    async def story() -> None:
        node = Node.open(settings[0])
        with pytest.raises(RingcastError, match="not running"):
            await node.caught_up()
        async with opened(settings) as nodes:
            await asyncio.gather(*(each.caught_up() for each in nodes))
            assert caught_up(nodes)
        async with opened([settings[0]]) as (alone,):  # it waits for its companion
            assert alone._host is not None
            waits = asyncio.create_task(alone.caught_up())
            await asyncio.sleep(0)
            assert not waits.done()
            alone._host.fail("a test")
            with pytest.raises(NodeStopped, match="a test"):
                await waits
            with pytest.raises(NodeStopped):
                await alone.caught_up()

    run(story)
    (without,) = configs(tmp_path, 1)

    async def nothing_to_wait_for() -> None:
        async with opened([without]) as (node,):
            await node.caught_up()

    run(nothing_to_wait_for)


def last_message(tmp_path: Path, id: int) -> Position:
    found = [row for row in rows(tmp_path, id) if row["kind"] == "message"]
    return Position(**found[-1]["position"])


def test_alone_it_goes_on_after_its_patience(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 2, journal_patience_s=0.3)

    async def story() -> None:
        async with opened(settings[:1]) as nodes, nodes[0].join("g") as group:
            await group.send(b"waiting", durable=True)
            await eventually(lambda: caught_up(nodes))
            await group.send(b"alone", durable=True)

    run(story)
    assert bodies(tmp_path, 1) == [b"waiting", b"alone"]


def test_durable_needs_a_journal(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(configs(tmp_path, 1)) as (node,), node.join("g") as group:
            with pytest.raises(ConfigError, match="needs a journal"):
                await group.send(b"x", durable=True)

    run(story)


@pytest.mark.parametrize(
    "where",
    ["ringcast.journal.group_commit.frame_content", "ringcast.journal.node_journal.from_records"],
)
def test_an_unforeseen_error_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """While it writes, or catches up: it must not go on as if it had."""
    settings = with_journals(tmp_path, 2)

    async def story() -> None:
        async with opened(settings[:1]) as nodes:
            (group,) = await joined(nodes)
            await group.send(b"before", durable=True)
            monkeypatch.setattr(where, lambda _: 1 / 0)
            async with opened(settings[1:] if "from_records" in where else []) as late:
                node = (late or nodes)[0]
                if not late:
                    with pytest.raises(NodeStopped, match="division by zero"):
                        await group.send(b"after", durable=True)
                await eventually(lambda: not node.running)

    run(story)


def test_a_full_disk_stops_the_node_and_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_journals(tmp_path, 1, journal_patience_s=0.1)
    room = 60_000

    def write(self: object, file: int, pieces: list[bytes]) -> None:
        nonlocal room
        data = b"".join(pieces)
        took = data[:room]
        room -= len(took)
        os.write(file, took)
        if len(took) < len(data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("ringcast.files.disk.Disk.write", write)
    acknowledged: list[bytes] = []

    async def story() -> None:
        async with opened(settings) as (node,), node.join("g") as group:
            await eventually(lambda: caught_up([node]))
            with pytest.raises(NodeStopped, match="No space left on device"):
                for n in range(1000):
                    body = b"%d" % n * 100
                    await group.send(body, durable=True)
                    acknowledged.append(body)

    run(story)
    assert acknowledged
    Journal(folder(tmp_path, 1)).close()
    assert bodies(tmp_path, 1)[: len(acknowledged)] == acknowledged


def message(seq: int) -> Entry:
    return layout.entry(Position(0, 8, 1, seq, 0), ViewId(8, 1), MESSAGE, 1, Level.AGREED, "g", (),
                 (b"%d" % seq,), seq)  # fmt: skip


async def told(node_journal: NodeJournal, upto: Position, waiting: bool) -> list[bytes]:
    """What a node answers to somebody who asks for all it has up to a place."""
    found: list[bytes] = []
    async for answer in node_journal._serve(Ask(token(), START, upto, waiting)):
        if isinstance(answer, UntoldRecords):
            found += records(from_records(answer.records())).column("body").to_pylist()
    return found


class Neighbours(NamedTuple):
    """A domain without a network."""

    id: int
    keys: KeyFile
    address: Address
    network: str = ""

    def addresses(self) -> dict[int, Address]:
        return {}

    def hosts(self) -> set[str]:
        return set()


@contextlib.asynccontextmanager
async def recording(tmp_path: Path, *domains: Neighbours) -> AsyncIterator[NodeJournal]:
    """A node's journal without a node."""
    (settings,) = with_journals(tmp_path, 1)
    config = msgspec.convert(settings, NodeConfig)
    node_journal = NodeJournal(
        config.id,
        Path(config.journal),
        config.journal_limits,
        config.journal_patience_s,
        domains,
        lambda why: None,
        lambda *what: asyncio.sleep(0),  # type: ignore[arg-type]
    )
    yield node_journal
    await node_journal.close()


def test_a_journal_is_served_in_each_domain_to_those_who_have_its_keys(tmp_path: Path) -> None:
    ports = free_ports(2)
    files = [tmp_path / name for name in ("north.key", "south.key")]
    for file in files:
        keys.write(file, keys.add({}))
    domains = [
        Neighbours(9 + 10 * at, KeyFile(file), Address("127.0.0.1", ports[at]))
        for at, file in enumerate(files)
    ]

    async def story() -> None:
        async with recording(tmp_path, *domains) as node_journal:
            await node_journal.start()
            for domain in domains:
                line = await call(domain.address, GUEST, domain.keys)
                answer = [each async for each in answers(line, Look(token(), START))]
                assert isinstance(answer[0], Extent)
                line.close()
            with pytest.raises(RingcastError):
                await call(domains[0].address, GUEST, domains[1].keys)
            await eventually(lambda: node_journal.metrics()["conversations_refused"] == 1)

    run(story)


def test_who_is_asked_tells_what_it_is_just_putting_into_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes catch up at the same time, and one has what the other lacks."""

    async def story() -> None:
        async with recording(tmp_path) as node_journal:
            commits, end = node_journal._commits, Position(0, 8, 1, 5, 0)
            for seq in range(1, 6):
                commits.add(message(seq))
            await commits.until(end)
            refresh = JournalReader.refresh

            def meanwhile(journal: JournalReader) -> None:
                """It is put there when nothing but the first place has been looked at."""
                refresh(journal)
                monkeypatch.setattr(JournalReader, "refresh", refresh)
                commits._merge([], START, ())

            def half(folder: Path, **_: object) -> None:
                for path in segment_names(folder) if folder.is_dir() else ():
                    path.unlink()

            monkeypatch.setattr("ringcast.journal.group_commit.shutil.rmtree", half)
            monkeypatch.setattr(JournalReader, "refresh", meanwhile)
            assert await told(node_journal, end, waiting=True) == [b"%d" % n for n in range(1, 6)]

    run(story)


def test_who_is_asked_waits_until_it_has_delivered_and_written_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with recording(tmp_path) as node_journal:
            node_journal._commits.add(message(1))
            answer = asyncio.ensure_future(
                told(node_journal, Position(0, 8, 1, 3, 0), waiting=True)
            )
            await asyncio.sleep(0.1)
            node_journal._commits.add(message(2))
            node_journal._commits.add(message(3))
            assert await answer == [b"1", b"2", b"3"]

    run(story)


def test_a_reader_is_not_told_what_is_behind_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.journal.node_journal.ANSWER_S", 0.1)

    async def story() -> None:
        async with recording(tmp_path) as node_journal:
            node_journal._commits.add(message(3))
            await node_journal._commits.until(Position(0, 8, 1, 3, 0))
            assert await told(node_journal, START, waiting=False) == []
            with pytest.raises(JournalError, match="may still be catching up"):
                await told(node_journal, Position(0, 8, 1, 3, 0), waiting=False)

    run(story)

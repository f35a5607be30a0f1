"""Members that have the key and are wrong, by mistake or on purpose, against live nodes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from adversary import keyed
from journals import caught_up
from loopback import eventually, joined, messages, run
from msgspec.structs import replace

from ringcast.api.events import EventsLost, Message
from ringcast.api.node import Node
from ringcast.api.outgoing import Item
from ringcast.blocks.packing import GIVEN_UP
from ringcast.core.effects import PackedMessages
from ringcast.core.errors import RingcastError
from ringcast.core.ids import Level, ViewId
from ringcast.core.registry import protocol as find
from ringcast.journal.check import examine
from ringcast.journal.format.layout import JournalError
from ringcast.journal.merged_reader import whole
from ringcast.journal.service import GUEST, Done, Publish, answers, call
from ringcast.runtime.port import compared_values
from ringcast.wire import keys
from ringcast.wire.address import parse
from ringcast.wire.envelope import Enter, Exit, Known, encode
from ringcast.wire.keys import KeyFile
from ringcast.wire.meeting import Hello, Whereabouts, disagreement


def test_members_with_other_settings_do_not_meet_and_say_why(tmp_path: Path) -> None:
    """A smaller ``max_message`` at one member lost it an acknowledged message, without a word."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        settings[2]["settings"] = {"max_message": 2**20}
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes[:2]:
                await node.wait_for_ring(2)
            wanted = {
                0: f"max_message is 1048576 at node 3 ({settings[2]['bind']}) and 67108864 at this",
                2: f"max_message is 67108864 at node 1 ({settings[0]['bind']}) and 1048576 at this",
            }
            for index, text in wanted.items():
                await eventually(
                    lambda index=index, text=text: (  # type: ignore[misc]
                        text in str(nodes[index].metrics()["frames_refused"])
                    )
                )
            assert [node.ring for node in nodes] == [(1, 2), (1, 2), (3,)]

    run(story)


SHOULD = "it should be the same at all members"
ANYBODY = "(by frames that anybody could have sent)"


@pytest.mark.parametrize(
    ("change", "meet", "here", "there"),
    [
        (
            {"settings": {"token_loss_us": 600_000}},
            True,
            f"token_loss_us is 600000 at node 2 ({{1}}) and 300000 at this node: {SHOULD}",
            f"token_loss_us is 300000 at node 1 ({{0}}) and 600000 at this node: {SHOULD}",
        ),
        (
            {"settings": {"max_packet": 1400}},
            True,
            f"max_packet is 1400 at node 2 ({{1}}) and 1460 at this node: {SHOULD}",
            f"max_packet is 1460 at node 1 ({{0}}) and 1400 at this node: {SHOULD}",
        ),
        (
            {"protocol": "total"},
            False,
            f"node 2 ({{1}}) speaks total, this node totem {ANYBODY}",
            f"node 1 ({{0}}) speaks totem, this node total {ANYBODY}",
        ),
        (
            {"key_file": ""},
            False,
            f"node 2 ({{1}}) has no key, this node has 1 {ANYBODY}",
            f"node 1 ({{0}}) seals with key 1, this node has none {ANYBODY}",
        ),
    ],
    ids=["token_loss_us", "max_packet", "protocol", "key"],
)
def test_members_that_do_not_fit_are_named_on_both_sides(
    change: dict[str, Any],
    meet: bool,
    here: str,
    there: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With both values and the address, in metrics and in the log."""

    async def story() -> None:
        settings = keyed(tmp_path, 2)
        settings[1] |= change
        texts = [each.format(*(each["bind"] for each in settings)) for each in (here, there)]
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node, other, text in zip(nodes, ("2", "1"), texts, strict=True):
                await eventually(
                    lambda node=node, other=other, text=text: (  # type: ignore[misc]
                        node.metrics()["misfits"].get(other) == text
                    )
                )
            if meet:
                for node in nodes:
                    await node.wait_for_ring(2)
            for number, text in enumerate(texts, 1):
                await eventually(lambda said=f"node {number}: {text}": said in caplog.messages)  # type: ignore[misc]

    run(story)


@pytest.mark.parametrize("protocol", ["rbp", "irbp"])
def test_another_window_is_named(tmp_path: Path, protocol: str) -> None:
    """Bodies beyond four windows of the receiver are dropped, and come again later (rbp K6)."""

    async def story() -> None:
        settings = keyed(tmp_path, 2, protocol=protocol)
        settings[1] |= {"settings": {"window": 4}}
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            text = f"window is 4 at node 2 ({settings[1]['bind']}) and 64 at this node: {SHOULD}"
            await eventually(lambda: nodes[0].metrics()["misfits"].get("2") == text)  # type: ignore[attr-defined]
            for node in nodes:
                await node.wait_for_ring(2)

    run(story)


def test_a_node_that_waits_says_for_whom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.runtime.port.PATIENT_LOOKS", 1)

    async def story() -> None:
        one, other = keyed(tmp_path, 2, protocol="token-fd")
        async with Node.open(one):
            said = f"node 1 has heard nothing of node 2 ({other['bind']}) since its start"
            await eventually(lambda: any(line.startswith(said) for line in caplog.messages))

    run(story)


@pytest.mark.parametrize("found_by", ["peers", "seeds"])
def test_a_node_with_another_key_says_that_frames_do_not_open(
    found_by: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said that it had heard nothing of the other one, and so led away from the cause."""
    monkeypatch.setattr("ringcast.runtime.port.PATIENT_LOOKS", 3)

    async def story() -> None:
        settings = keyed(tmp_path, 2)
        keys.write(tmp_path / "other.key", keys.add({}))
        settings[1]["key_file"] = str(tmp_path / "other.key")
        if found_by == "seeds":
            for each in settings:
                each["seeds"] = [other["bind"] for other in settings]
                del each["peers"]
        other = settings[1]["bind"]
        whom = f"anybody at the seeds {other}" if found_by == "seeds" else f"node 2 ({other})"
        async with AsyncExitStack() as stack:
            for each in settings:
                await stack.enter_async_context(Node.open(each))
            said = f"node 1 could open no frame of {whom} since its start, 3 s ago, though some "
            said += "come in that name: give all nodes of a ring one key file"
            await eventually(lambda: any(line.startswith(said) for line in caplog.messages))
        assert "heard nothing of" not in caplog.text
        assert "has another key 1, or another network than ''" in caplog.text

    run(story)


def test_one_member_s_word_ends_no_node_that_has_just_started(tmp_path: Path) -> None:
    """In its first ten seconds a node believed any member that it was an old one, and stopped."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes:
                await node.wait_for_ring(3)
            liar, victim = (nodes[index]._host for index in (1, 2))
            assert liar is not None and victim is not None
            at = parse(settings[2]["bind"], "bind")
            book = liar.ports[0]._meetings.book
            lie = Hello((book.mine, Whereabouts(3, victim.boot + 1, *at)), False)
            looks = victim.ports[0]._meetings
            while looks.looks < 5:
                liar.ports[0]._transport.send_to(at, liar.ports[0]._codec.encode(lie, 0))
                await asyncio.sleep(0.05)
            assert nodes[2].running and nodes[2].ring == (1, 2, 3)
            misfits = nodes[2].metrics()["misfits"]
            assert isinstance(misfits, dict)
            assert "says: others know a later start" in misfits["2"]

    run(story)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"max_message": 2**20}}, "max_message is 1048576 at node 2 ("),
        ({"protocol": "total"}, "node 2 speaks total, this node totem (by frames"),
    ],
    ids=["settings", "protocol"],
)
def test_who_is_found_by_seeds_and_does_not_fit_is_in_the_log(
    change: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        settings = keyed(tmp_path, 2)
        for each in settings:
            del each["peers"]
            each["seeds"] = [other["bind"] for other in settings]
        settings[1] |= change
        async with AsyncExitStack() as stack:
            for each in settings:
                await stack.enter_async_context(Node.open(each))
            begin = f"node 1: {said}"
            await eventually(lambda: any(line.startswith(begin) for line in caplog.messages))

    run(story)


def test_a_node_with_seeds_says_that_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.runtime.port.PATIENT_LOOKS", 1)

    async def story() -> None:
        one, other = keyed(tmp_path, 2)
        del one["peers"]
        one["seeds"] = [one["bind"], other["bind"]]
        async with Node.open(one):
            said = f"node 1 has heard nothing of anybody at the seeds {other['bind']} since its"
            await eventually(lambda: any(line.startswith(said) for line in caplog.messages))

    run(story)


def test_a_node_that_the_others_do_not_list_is_told_so(tmp_path: Path) -> None:
    """Of a protocol whose members never change."""

    async def story() -> None:
        settings = keyed(tmp_path, 3, protocol="token-fd")
        for each in settings[:2]:
            each["peers"] = each["peers"][:2]
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            at = settings[0]["bind"]
            text = f"members is 1 2 at node 1 ({at}) and 1 2 3 at this node: it must be the same"
            await eventually(
                lambda: str(nodes[2].metrics()["misfits"].get("1", "")).startswith(text)  # type: ignore[attr-defined]
            )
            text = f"members is 1 2 3 at node 3 ({settings[2]['bind']}) and 1 2 at this node"
            await eventually(
                lambda: str(nodes[0].metrics()["misfits"].get("3", "")).startswith(text)  # type: ignore[attr-defined]
            )

    run(story)


OTHER: dict[str, dict[str, object]] = {
    "counter": {
        "order": "rotating",
        "first_sender": 3,
        "counting": "counter",
        "window": 8,
        "max_packet": 900,
    },
    "token-fd": {"epoch": 2, "copies": 3, "f": 1, "max_packet": 900},
    "total": {"mode": "uniform"},
    "totem": {"mutual": False},
}
"""What a member that has it cannot work with the others."""


@pytest.mark.parametrize("protocol", OTHER)
def test_settings_that_matter_are_agreed(protocol: str) -> None:
    """counter and token-fd never formed a group, and nobody said why."""
    sheet = find(protocol)
    mine = compared_values(sheet.default, sheet.agreed)
    for name, value in OTHER[protocol].items():
        said = disagreement(mine, mine | {name: str(value)}, Whereabouts(3, 1, "there", 5))
        assert said.startswith(f"{name} is {value} at node 3 (there:5) and {mine[name]} at this")


def test_a_message_that_nobody_can_read_is_counted_and_told(tmp_path: Path) -> None:
    """It was skipped without a word, and so was one larger than max_message."""

    async def story() -> None:
        settings = keyed(tmp_path, 2)
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes:
                await node.wait_for_ring(2)
            groups = await joined(nodes)
            victim = nodes[1]
            assert victim._ring is not None
            for body in (b"\xc1 no sense", GIVEN_UP):
                batch = PackedMessages(victim._ring.view, 99, 1, Level.AGREED, 2**40, (body,))
                victim.on_deliver(batch.ring, batch)
            await groups[0].send(b"after")
            lost = 0
            async for event in groups[1]:
                lost += event.count if isinstance(event, EventsLost) else 0
                if isinstance(event, Message):
                    break
            assert lost == 2
            assert victim.metrics()["messages_unreadable"] == {"1": 2}

    run(story)


def test_rows_without_end_destroy_no_journal(tmp_path: Path) -> None:
    """Two calls of a guest wrote what no journal could read, at every member."""

    async def story() -> None:
        settings = [
            each | {"journal": str(tmp_path / f"j{each['id']}"), "journal_patience_s": 0.2}
            for each in keyed(tmp_path, 2)
        ]
        file = KeyFile(tmp_path / "group.key")
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes:
                await node.wait_for_ring(2)
            address = parse(settings[0]["bind"], "bind")
            for bodies in ([b"a"], [b"a", b"b"]):
                for first in (2**62, 2**62 - 1):
                    line = await call(address, GUEST, file)
                    word = [5, 7, "g", "sink", 0, first, bodies]
                    await line.send(word)  # type: ignore[arg-type]
                    with suppress(RingcastError):
                        await line.receive()
                    line.close()
            await nodes[1].publish("g", "other", 0, 0, (b"fine",))
            await eventually(lambda: caught_up(nodes))
        for number in (1, 2):
            *_, report = examine(tmp_path / f"j{number}")
            assert (report.findings, report.records > 1) == ([], True)
            assert b"fine" in [
                row["body"]
                for batch in whole([tmp_path / f"j{number}"])
                for row in batch.to_pylist()
            ]

    run(story)


class UncheckedRows(msgspec.Struct, array_like=True, tag=5):
    """``NumberedRows`` of somebody who leaves the check out."""

    ring: ViewId
    group: str
    stream: str
    batch: int
    first: int
    bodies: tuple[bytes, ...]


def test_rows_without_end_of_a_member_are_for_nobody(tmp_path: Path) -> None:
    """A guest's are refused by the node that it calls; a member asks none."""

    async def story() -> None:
        settings = [
            each | {"journal": str(tmp_path / f"j{each['id']}"), "journal_patience_s": 0.2}
            for each in keyed(tmp_path, 2)
        ]
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes:
                await node.wait_for_ring(2)
            await nodes[0].publish("g", "other", 0, 0, (b"fine",))
            ring = nodes[0]._ring
            assert ring is not None
            for first in (2**62 - 1, 2**62, 2**63 - 1):
                word: Any = UncheckedRows(ring.view, "g", "sink", 0, first, (b"a", b"b"))
                nodes[0].outgoing.put(Item("g", Level.SAFE, (), word=word))
            counted = ({"1": 3}, {"1": 3})
            await eventually(
                lambda: tuple(n.metrics()["messages_unreadable"] for n in nodes) == counted
            )
            await nodes[1].publish("g", "other", 1, 0, (b"fine",))
            await eventually(lambda: caught_up(nodes))
        for number in (1, 2):
            *_, report = examine(tmp_path / f"j{number}")
            assert (report.findings, report.records > 1) == ([], True)

    run(story)


def test_a_writer_s_future_that_a_member_makes_up_is_no_confirmation(tmp_path: Path) -> None:
    """Its word outlived it: rows of a guest were confirmed, and in no journal."""

    async def story() -> None:
        settings = [
            each | {"journal": str(tmp_path / f"j{each['id']}"), "journal_patience_s": 0.2}
            for each in keyed(tmp_path, 2)
        ]
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node.open(settings[0]))
            await node.publish("g", "sink", 0, 0, (b"0",))
            liar = Node.open(settings[1])
            directory: Any = liar._directory
            said, future = directory.word, (Known("g", "sink", 2**62, 2**62),)
            directory.word = lambda most: replace(said(most), known=future)
            await liar.start()
            await node.wait_for_ring(2)
            await eventually(lambda: node._directory.open)
            await liar.close()
            await node.wait_for_ring(1)
            at, file = parse(settings[0]["bind"], "bind"), KeyFile(tmp_path / "group.key")
            line = await call(at, GUEST, file)
            with pytest.raises(JournalError, match="batch 1 of writer 'sink' is not published"):
                [each async for each in answers(line, Publish(1, "g", "sink", 1, 0, (b"1",)))]
            for stream, batch in (("sink", 0), ("another", 1)):
                question = Publish(2, "g", stream, batch, 0, (b"%d" % batch,))
                (done,) = [each async for each in answers(line, question)]
                assert isinstance(done, Done)
            line.close()
        found = [row["body"] for b in whole([tmp_path / "j1"]) for row in b.to_pylist()]
        assert [body for body in found if body] == [b"0", b"1"]

    run(story)


def test_words_in_a_member_s_name_do_not_end_it(tmp_path: Path) -> None:
    """A member put another's id on an Enter: a KeyError ended that one."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Node.open(each)) for each in keyed(tmp_path, 2)
            ]
            for node in nodes:
                await node.wait_for_ring(2)
            groups = await joined(nodes)
            victim = nodes[0]
            for word in (Enter("unknown"), Enter("g"), Exit("unknown")):
                assert victim._ring is not None
                ring = victim._ring.view
                batch = PackedMessages(ring, 99, 1, Level.AGREED, 2**40, (encode(word),))
                victim.on_deliver(batch.ring, batch)
            assert victim.running
            await groups[1].send(b"x")
            assert [m.body for m in await messages(groups[0], 1)] == [b"x"]
            await groups[0].send(b"y")
            await eventually(lambda: victim.outgoing.idle)

    run(story)

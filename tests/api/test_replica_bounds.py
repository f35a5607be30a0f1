"""What a copy keeps of words, and what it says of histories, has bounds; what contradicts itself on
disk is damage. No network: groups that hold what was sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ringcast.api import available
from ringcast.api.available import (
    LAST_COMMAND,
    AskAgain,
    AvailableCopy,
    Have,
    NumberedCommand,
    StatePiece,
    Version,
    later,
)
from ringcast.api.events import Batch, Message, View
from ringcast.api.group import WouldBlock
from ringcast.api.quorum import QuorumCopy
from ringcast.api.state_machine import StateMachine
from ringcast.core.errors import StorageError
from ringcast.core.ids import LIMIT, Level, Position, ViewId
from ringcast.replica import contents, words
from ringcast.replica.effects import BarrierPassed, Phase, Restore, Write
from ringcast.replica.log import Adopt, Append, Promise, Record
from ringcast.replica.store import ReplicaStore
from ringcast.replica.tally import Tally
from ringcast.replica.words import Ack, Epoch, Lift, Ticket

RING = ViewId(4, 1)
PLACE = Position.at(RING, 1)


class Nothing(StateMachine[None]):
    """No state."""

    def apply(self, command: Message) -> None:
        pass

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        assert not state


class Kept:
    """As much of a group as a copy uses."""

    me, name, max_message = 1, "g", 2**20
    replicated = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def join(self) -> None:
        pass

    async def leave(self) -> None:
        pass

    async def send(self, body: bytes) -> Position:
        return await asyncio.Future()

    async def send_many(self, bodies: Iterable[bytes]) -> Position:
        self.sent += bodies
        return PLACE

    def send_many_nowait(self, bodies: Iterable[bytes]) -> None:
        raise WouldBlock("full")

    def batches(self) -> Any:
        return self

    def __aiter__(self) -> Kept:
        return self

    async def __anext__(self) -> Any:
        return await asyncio.Future()


def of_three(folder: Path) -> QuorumCopy[None]:
    return QuorumCopy(Kept(), Nothing(), frozenset({1, 2, 3}), folder)  # type: ignore[arg-type]


def view(*members: int, transitional: bool = False) -> View:
    return View(members, transitional, RING, PLACE)


def batch(sender: int, *some: words.Word) -> Batch:
    return Batch(sender, tuple(map(words.encode, some)), PLACE, Level.AGREED)


def test_words_of_those_who_are_not_in_the_group_are_refused(tmp_path: Path) -> None:
    """In a transitional view, those of the view before it count: they were ordered in it."""

    async def story() -> None:
        copy = of_three(tmp_path)
        await copy.open()
        heard: list[int] = []
        copy._engine.on_word = lambda sender, word: heard.append(sender)  # type: ignore[method-assign]
        word = Ack(Epoch(4, 1), 1)
        copy._on_event(batch(2, word))
        copy._on_event(view(1, 2))
        copy._on_event(batch(2, word))
        copy._on_event(batch(4, word, word))
        copy._on_event(Batch(2, (b"no word",), PLACE, Level.AGREED))
        copy._on_event(view(1, transitional=True))
        copy._on_event(batch(2, word))
        copy._on_event(view(1))
        copy._on_event(batch(2, word))
        assert heard == [2, 2]
        assert copy.refused == {2: 3, 4: 2}
        await copy.close()

    asyncio.run(story())


def test_words_of_attempts_that_are_over_are_not_said(tmp_path: Path) -> None:
    """Whoever asked for another attempt all the time had the holder keep its log for each."""

    async def story() -> None:
        copy = of_three(tmp_path)
        await copy.open()
        copy._words._words.extend([b"a", b"b"])
        copy._became(Phase.APART)
        assert len(copy._words._words) == 2
        copy._became(Phase.EXCHANGE)
        assert not copy._words._words
        copy._engine.log.promised = Epoch(9, 1)  # the word of the new attempt is said
        copy._on_event(view(1, 2, 3))
        copy._step()
        assert [words.decode(each) for each in copy._words._words] == [Lift(Epoch(9, 1))]
        await copy.close()

    asyncio.run(story())


def test_a_barrier_that_nobody_asked_for_ends_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        copy = of_three(tmp_path)
        await copy.open()
        copy._act(BarrierPassed(Ticket(1, 5, 2**40), 1))
        await copy.close()

    asyncio.run(story())


def test_a_primary_component_in_which_nobody_is_ready_announces_nothing(tmp_path: Path) -> None:
    """An attempt that begins anew while the last one's end is still told."""

    async def story() -> None:
        copy = of_three(tmp_path)
        await copy.open()
        copy._on_event(view(1, 2, 3))
        copy._engine.tally = Tally()
        copy._became(Phase.PRIMARY)
        assert copy._announced is None
        await copy.close()

    asyncio.run(story())


class Said(Kept):
    """A group that takes all words, for somebody to deliver."""

    def __init__(self, me: int) -> None:
        super().__init__()
        self.me = me

    def send_many_nowait(self, bodies: Iterable[bytes]) -> None:
        self.sent += bodies


def test_all_agree_on_who_says_who_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 and 3 heard that 1 was ready in one step with the word that completed the quorum, and left
    it to 1; for 1 it was completed without its own word, so it left it to 2. A lock stayed with a
    member that had crashed."""
    disk = threading.Event()
    append = ReplicaStore.append

    def slow(self: ReplicaStore, records: list[Record]) -> None:
        if self.folder.name == "1" and any(isinstance(each, Adopt) for each in records):
            disk.wait(10)
        append(self, records)

    monkeypatch.setattr(ReplicaStore, "append", slow)

    async def story() -> None:
        groups = [Said(n) for n in (1, 2, 3)]
        copies = [
            QuorumCopy(group, Nothing(), frozenset({1, 2, 3}), tmp_path / str(group.me))  # type: ignore[arg-type]
            for group in groups
        ]

        async def said(kind: type[words.Status | words.Ready], *by: int) -> list[Batch]:
            """The words of this kind, once these members have said them."""
            async with asyncio.timeout(5):
                while True:
                    found = [
                        batch(group.me, word)
                        for group in groups
                        for word in map(words.decode, group.sent)
                        if isinstance(word, kind)
                    ]
                    if {each.sender for each in found} >= {*by}:
                        return found
                    await asyncio.sleep(0.01)

        def hears(copy: QuorumCopy[None], *events: Batch | View) -> None:
            for event in events:
                copy._on_event(event)
            copy._step()

        for copy in copies:
            await copy.open()
            hears(copy, view(1, 2, 3))
        statuses = await said(words.Status, 1, 2, 3)
        for copy in copies:
            hears(copy, *statuses)
        two_and_three = await said(words.Ready, 2, 3)
        hears(copies[0], *two_and_three)
        disk.set()
        (first,) = (each for each in await said(words.Ready, 1) if each.sender == 1)
        for copy in copies[1:]:
            hears(copy, *two_and_three, first)
        assert [copy.primary for copy in copies] == [True] * 3
        present = [
            group.me
            for group in groups
            for word in map(words.decode, group.sent)
            if isinstance(word, words.Action)
            and isinstance(contents.decode(word.command), contents.Present)
        ]
        assert present == [2]
        for copy in copies:
            await copy.close()

    asyncio.run(story())


def test_nothing_of_a_state_that_cannot_be_taken_over_comes_to_the_disk(tmp_path: Path) -> None:
    async def story() -> None:
        copy = of_three(tmp_path)
        await copy.open()
        engine = copy._engine
        engine._do(Write(Adopt(Epoch(4, 1), 7, (1, 2, 3), 0, (), 0)))
        engine._do(Restore(3, b"no state"))
        engine._sync("adopt")
        copy._step()
        copy._disk.rewrite()  # whatever else was to be written
        copy._step()
        with pytest.raises(Exception, match="cannot take over the state after entry 3"):
            await copy.wait()
        await copy.close()
        again = ReplicaStore(tmp_path, 1, "g")
        assert again.records == []
        again.close()

    asyncio.run(story())


def test_a_log_that_contradicts_itself_is_damaged(tmp_path: Path) -> None:
    """It was an IndexError."""
    store = ReplicaStore(tmp_path, 1, "g")
    founded = Adopt(Epoch(4, 1), 7, (1, 2, 3), 0, (), 0)
    store.append([Promise(Epoch(4, 1)), founded, Append((), LIMIT)])
    store.close()
    text = "log is damaged: it has entries 1 to 0, and is confirmed up to entry 9223372036854775807"
    for _ in range(2):  # the folder is let go of
        with pytest.raises(StorageError, match=text):
            asyncio.run(of_three(tmp_path).open())


# --- copies that are always available ------------------------------------------------------


def test_histories_have_a_longest() -> None:
    """The next command of one with the largest number ended all copies."""
    most = Version(LAST_COMMAND, PLACE, 1)
    command = Message(1, b"", PLACE, Level.AGREED), NumberedCommand(1, b"")
    assert later(most, PLACE, command).commands == LAST_COMMAND
    have = Have(PLACE, later(most, PLACE, command), None, False)
    assert available._decode(available._encode(have)) == have
    for version in (Version(LAST_COMMAND + 1, PLACE, 1), Version(1, PLACE, 2**56)):
        with pytest.raises(ValueError, match="Expected `int` <"):
            available._decode(available._encode(Have(PLACE, version, None, False)))


def in_a_round(group: Kept) -> AvailableCopy[None]:
    """Of two, whose other member has said nothing yet."""
    copy: AvailableCopy[None] = AvailableCopy(group, Nothing(), max)  # type: ignore[arg-type]
    copy._on_event(view(1, 2))
    return copy


def said(sender: int, word: available.Word) -> Message:
    return Message(sender, available._encode(word), PLACE, Level.AGREED)


def test_available_copies_take_the_words_of_their_group_alone() -> None:
    async def story() -> None:
        copy = in_a_round(Kept())
        round = copy._round
        assert round is not None
        have = Have(round, Version(1, PLACE, 1), None, False)
        for word in (have, AskAgain(1), NumberedCommand(1, b"x"), have):
            copy._on_event(said(3, word))
        assert (copy._round, copy._heard, len(copy._held)) == (round, {}, 1)
        copy._on_event(said(2, have))
        assert copy._heard.keys() == {2}
        assert copy.refused == {3: 4}

    asyncio.run(story())


def test_what_is_held_back_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that does not say what it has, and goes on submitting."""
    monkeypatch.setattr(available, "MOST_HELD", 10_000)

    async def story() -> None:
        group = Kept()
        copy = in_a_round(group)
        for number in range(1000):
            copy._on_event(said(2, NumberedCommand(number, b"")))
            assert len(copy._held) < 200
        await asyncio.sleep(0)
        asked = [available._decode(each) for each in group.sent]
        assert AskAgain(copy._asked) in asked and copy._behind
        assert copy._held_bytes == 0

    asyncio.run(story())


def test_states_that_come_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "MOST_STATE", 10_000)

    async def story() -> None:
        copy = in_a_round(Kept())
        copy._await(PLACE, [2])
        for _ in range(1000):
            copy._on_event(said(2, StatePiece(PLACE, None, b"", False)))
            assert sum(map(len, copy._pieces.values())) < 200
        assert copy._asked and copy._awaited is None

    asyncio.run(story())

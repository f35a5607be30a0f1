"""Replica: a state machine kept the same at all members of a group.

Commands are applied in the group's order. On every regular view, and whenever a member has lost
events, all members say which state they are in (``Have``). When all have spoken, at one place in
the order, the state with the longest history wins; the smallest of its holders sends it to those
that have another one: members that are new, come from the other side of a partition, or fell
behind. Until the decision commands are held back, so a result never comes from a losing state.

After a partition heals, what was done on the losing side is forgotten. Who cannot accept that
refuses to submit while fewer than a majority of the members are in the view.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from hashlib import blake2b
from types import TracebackType
from typing import Generic, TypeAlias, TypeVar

import msgspec

from ringcast.api.events import Event, EventsLost, Message, View
from ringcast.api.group import Bytes, Group, NotJoined, all_bytes
from ringcast.core.errors import DeliveryUncertain, RingcastError
from ringcast.core.ids import Level, NodeId, Position
from ringcast.wire.codec import UNREADABLE

R = TypeVar("R")


class ResultLost(RingcastError):
    """The command was sent, but its result went by unseen here; look at the state instead."""


class StateMachine(ABC, Generic[R]):
    """What is replicated. Everything must depend on the calls alone: no clock, no chance."""

    @abstractmethod
    def apply(self, command: Message) -> R:
        """Carry out a command; the result goes to its submitter, as does an exception."""

    def on_view(self, view: View) -> None:
        """The members are others now: the place to free what a lost member held."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Take over a state; what was there before is void."""


class Version(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """Names a state by its history: a longer one is larger.

    Commands count, views do not: a member that was alone for a while after its start has nothing
    to offer to a group that has been working. ``lineage`` is a hash over all events.
    """

    commands: int
    position: Position
    lineage: int


class Command(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Something to apply; ``number`` lets the submitter find its result."""

    number: int
    body: bytes


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The sender has lost events: everybody is to say again what it has."""

    number: int


class Have(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The sender's state when ``round`` began, and what it held back at that time."""

    round: Position
    version: Version | None
    held: Version | None


class State(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A piece of the state at ``at``, for those who have another one."""

    at: Position
    version: Version | None
    body: bytes
    last: bool


Word: TypeAlias = Command | Ask | Have | State
Item: TypeAlias = View | tuple[Message, Command]
"""What changes a state, at its position."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Word).decode


PIECE, AROUND = 2**18, 2**10
"""Bytes of a state in one message, at most, and what may go around them."""


def later(version: Version | None, position: Position, item: Item) -> Version:
    """The version after one more event."""
    commands, lineage = (version.commands, version.lineage) if version else (0, 0)
    digest = blake2b(f"{lineage}/{position}".encode(), digest_size=7).digest()
    more = 0 if isinstance(item, View) else 1
    return Version(commands + more, position, int.from_bytes(digest, "big"))


def rank(have: Have) -> tuple[tuple[Version, ...], ...]:
    """For comparing what members have; no history at all is the least."""
    return tuple((version,) if version else () for version in (have.version, have.held))


class Replica(Generic[R]):
    """One member's copy. Use ``async with Replica(node.join(name), machine) as replica``.

    Every member of the group must be a replica of the same kind of machine.
    """

    def __init__(self, group: Group, machine: StateMachine[R]) -> None:
        self.group = group
        self.machine = machine
        self._version: Version | None = None
        self._members: tuple[NodeId, ...] = ()
        self._round: Position | None = None
        self._heard: dict[NodeId, Have] = {}
        self._held: list[tuple[Position, Item]] = []
        """Not applied yet. Nobody submits during a round and a state travels in the same order,
        so what is under way bounds it."""
        self._awaited: Position | None = None
        self._pieces: list[bytes] = []
        """Of the state that is awaited."""
        self._asked = 0
        self._unseen: View | None = None
        self._number = 0
        self._results: dict[int, asyncio.Future[R]] = {}
        self._sending: set[asyncio.Task[Position]] = set()
        self._live = asyncio.Event()
        self._error: BaseException | None = None
        self._reader: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Replica[R]:
        """Join the group; the state is the group's when this returns."""
        await self.group.join()
        self._reader = asyncio.ensure_future(self._read())
        try:
            await self._ready()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in (self._reader, *self._sending):
            if task is not None:
                task.cancel()
        await self.group.leave()
        await asyncio.gather(*filter(None, (self._reader, *self._sending)), return_exceptions=True)

    async def submit(self, command: Bytes, level: Level | str = Level.AGREED) -> R:
        """Have a command applied everywhere; its result here.

        When cancelled, the command may still be applied.
        """
        (body,) = all_bytes((command,))
        await self._ready()
        self._number += 1
        number = self._number
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._results[number] = result
        try:
            await self.group.send(_encode(Command(number, body)), level)
            return await result
        finally:
            self._results.pop(number, None)

    async def wait(self) -> None:
        """Wait until the node or the replica ends; raises what ended it."""
        assert self._reader is not None, "use 'async with'"
        await asyncio.shield(self._reader)

    async def _ready(self) -> None:
        while not self._live.is_set():  # it may be over again before the waiting task runs
            await self._live.wait()
        if self._error is not None:
            raise self._error

    async def _read(self) -> None:
        """The replica's only reader of the group."""
        error: BaseException = NotJoined("the replica has been closed")
        try:
            async for event in self.group:
                self._on_event(event)
        except asyncio.CancelledError:
            if self._error is None:
                raise
            error = self._error
        except Exception as failure:
            error = failure
        finally:
            self._error = error
            self._live.set()
            self._lose(self._results, error)
        raise error

    # --- events ----------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Message):
            try:
                word = _decode(event.body)
            except UNREADABLE:
                return  # not from a replica
            self._on_word(event, word)
        elif isinstance(event, EventsLost):
            self._on_loss()
        elif not event.transitional:
            self._members = event.members
            if self._asked:
                self._unseen = event  # of all we missed, the members are known
            else:
                self._begin(event.position)
                self._held.append((event.position, event))

    def _on_word(self, message: Message, word: Word) -> None:
        if isinstance(word, Ask):
            if message.sender == self.group.me and word.number == self._asked:
                self._asked = 0
            if not self._asked:
                self._begin(message.position)
            if not self._asked and self._unseen is not None:
                self._held.append((self._unseen.position, self._unseen))
                self._unseen = None
        elif self._asked:
            pass  # there is a gap before this; a state will cover it
        elif isinstance(word, Command):
            if self._live.is_set():
                self._apply(message.position, (message, word))
            else:
                self._held.append((message.position, (message, word)))
        elif isinstance(word, Have):
            if word.round == self._round:
                self._heard[message.sender] = word
                if self._heard.keys() >= set(self._members):
                    self._decide(message.position)
        elif word.at == self._awaited:
            self._pieces.append(word.body)
            if word.last:
                self.machine.restore(b"".join(self._pieces))
                self._version = word.version
                self._go_on()

    def _on_loss(self) -> None:
        """Our state is a beginning of the others' at best: drop what is held and ask."""
        self._live.clear()
        self._round = None
        self._await(None)
        self._held.clear()
        self._lose(list(self._results), ResultLost("events were lost before the result came"))
        self._number += 1
        self._asked = self._number
        self._send(Ask(self._asked))

    # --- rounds ----------------------------------------------------------------------------

    def _begin(self, round: Position) -> None:
        """Everybody says what it has, as of this place in the order."""
        self._live.clear()
        self._round = round
        self._await(None)
        self._heard = {}
        held: Version | None = None
        for position, item in self._held:
            held = later(held, position, item)
        self._send(Have(round, self._version, held))

    def _decide(self, at: Position) -> None:
        """All have spoken: the best state goes on, who has another one waits for it."""
        self._round = None
        best = max(self._heard.values(), key=rank)
        holders = sorted(q for q, have in self._heard.items() if rank(have) == rank(best))
        if best.version is None:
            holders = holders[:1]  # nobody has a state yet: one begins, the others follow it
        if self.group.me in holders:
            self._go_on()
            if holders[0] == self.group.me and len(holders) < len(self._heard):
                self._send(*self._state(at))
        else:
            mine = [
                item[1].number
                for _, item in self._held
                if not isinstance(item, View) and item[0].sender == self.group.me
            ]
            self._lose(mine, ResultLost("another state was taken over before the result came"))
            self._held.clear()
            self._await(at)

    def _await(self, state: Position | None) -> None:
        """From here on the state of this place is awaited, or none."""
        self._awaited = state
        self._pieces.clear()

    def _state(self, at: Position) -> list[Word]:
        """Our state, in pieces that the group takes, so that it may be of any size."""
        whole = self.machine.snapshot()
        size = max(1, min(PIECE, self.group.max_message - AROUND))
        starts = range(0, len(whole) or 1, size)
        return [
            State(at, self._version, whole[start : start + size], start == starts[-1])
            for start in starts
        ]

    def _go_on(self) -> None:
        """The state is right: apply what was held back and everything that comes."""
        self._await(None)
        held, self._held = self._held, []
        for position, item in held:
            self._apply(position, item)
        self._live.set()

    def _apply(self, position: Position, item: Item) -> None:
        self._version = later(self._version, position, item)
        if isinstance(item, View):
            self.machine.on_view(item)
            return
        message, command = item
        waiting = self._results.get(command.number) if message.sender == self.group.me else None
        try:
            result = self.machine.apply(msgspec.structs.replace(message, body=command.body))
        except Exception as error:
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)
        else:
            if waiting is not None and not waiting.done():
                waiting.set_result(result)

    # --- small things ----------------------------------------------------------------------

    def _lose(self, numbers: Iterable[int], error: BaseException) -> None:
        for number in numbers:
            result = self._results.get(number)
            if result is not None and not result.done():
                result.set_exception(error)
                result.exception()  # a submitter that was cancelled does not ask

    def _send(self, *words: Word) -> None:
        """Send without holding up the reader."""
        task = asyncio.ensure_future(self.group.send_many(map(_encode, words)))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[Position]) -> None:
        self._sending.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DeliveryUncertain):  # a view asks anew
            self._error = error  # the node has stopped
            if self._reader is not None:
                self._reader.cancel()

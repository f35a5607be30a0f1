"""A copy that is always available: every part of a partition goes on, and what they did is merged.

Commands are applied in the group's order. On every regular view, and whenever a member has lost
events, all members say which state they are in (``Have``). When all have spoken, at one place in
the order, it is known which different states there are; the smallest holder of each sends it if
somebody has another one. With several, all members take over what the user's ``merge`` makes of
them. Meanwhile commands are held back.

Nothing is on disk, and a result may be contradicted by the merge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Generic, TypeAlias

import msgspec

from ringcast.api.applied import ended_by
from ringcast.api.events import Event, EventsLost, Message, View
from ringcast.api.group import Bytes, Group, NotJoined, all_bytes
from ringcast.api.state_machine import R, ResultLost, StateMachine
from ringcast.core.errors import UNREADABLE, DeliveryUncertain
from ringcast.core.ids import NodeId, Position, Seq
from ringcast.replica.words import ExactWord

LAST_COMMAND = 2**62
"""No history counts further: a member that says it has the longest there is ends no other."""


class Version(ExactWord, frozen=True, order=True):
    """Names a state by its history: a longer one is larger.

    Commands count, views do not: a member that was alone for a while after its start has nothing
    to offer to a group that has been working. ``lineage`` is a hash over all events.
    """

    commands: Annotated[int, msgspec.Meta(ge=0, le=LAST_COMMAND)]
    position: Position
    lineage: Annotated[int, msgspec.Meta(ge=0, lt=2**56)]


class NumberedCommand(ExactWord, frozen=True, tag=1):
    """Something to apply; ``number`` lets the submitter find its result."""

    number: Seq
    body: bytes


class AskAgain(ExactWord, frozen=True, tag=2):
    """The sender has lost events: everybody is to say again what it has."""

    number: Seq


class Have(ExactWord, frozen=True, tag=3):
    """The sender's state when ``round`` began, and what it held back at that time."""

    round: Position
    version: Version | None
    held: Version | None
    behind: bool
    """Whether the sender lacks what others did: it lost events, or waited for a state."""

    @property
    def offers(self) -> bool:
        """Whether something was done in this state that may be in no other."""
        if self.behind or self.version is None:
            return False
        return self.version.commands > 0 or (self.held is not None and self.held.commands > 0)


class StatePiece(ExactWord, frozen=True, tag=4):
    """A piece of the state at ``at``, for those who have another one."""

    at: Position
    version: Version | None
    body: bytes
    last: bool


Word: TypeAlias = NumberedCommand | AskAgain | Have | StatePiece
Item: TypeAlias = View | tuple[Message, NumberedCommand]
"""What changes a state, at its position."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Word).decode


PIECE, AROUND = 2**18, 2**10
"""Bytes of a state in one message, at most, and what may go around them."""

MOST_HELD, MOST_STATE = 256 * 2**20, 2**32
"""Bytes of commands that are held back, and of the states of a round. Members have less under way;
with more, a copy drops what it has and asks again, as one that has lost events."""

ITEM_BYTES = 64
"""What a command or a piece counts for besides its body."""


def later(version: Version | None, position: Position, item: Item) -> Version:
    """The version after one more event."""
    commands, lineage = (version.commands, version.lineage) if version else (0, 0)
    digest = blake2b(f"{lineage}/{position}".encode(), digest_size=7).digest()
    more = 0 if isinstance(item, View) else 1
    counted = min(commands + more, LAST_COMMAND)
    return Version(counted, position, int.from_bytes(digest, "big"))


def merged(versions: Iterable[Version | None], commands: int, at: Position) -> Version:
    """The version of what was made of several states."""
    digest = blake2b(f"{[*versions]}/{at}".encode(), digest_size=7).digest()
    return Version(commands, at, int.from_bytes(digest, "big"))


def rank(have: Have) -> tuple[tuple[Version, ...], ...]:
    """For comparing what members have; no history at all is the least."""
    return tuple((version,) if version else () for version in (have.version, have.held))


Merge: TypeAlias = Callable[[Sequence[bytes]], bytes]
"""From the snapshots of two or more states to one. All members call it with the same states in the
same order. States share what happened before a partition, and one may be an earlier state of
another, so it must be a join: of a state and a later one it makes the later one."""


class AvailableCopy(Generic[R]):
    """One member's copy, which goes on in every part of a partition."""

    def __init__(self, group: Group, machine: StateMachine[R], merge: Merge) -> None:
        self.group = group
        group.replicated = True
        self.machine = machine
        self._merge = merge
        self._version: Version | None = None
        self._members: tuple[NodeId, ...] = ()
        self._round: Position | None = None
        self._heard: dict[NodeId, Have] = {}
        self._held: list[tuple[Position, Item]] = []
        """Not applied yet. Nobody submits during a round and a state travels in the same order,
        so what is under way bounds it; and MOST_HELD, should somebody submit all the same."""
        self._held_bytes = self._pieces_bytes = 0
        self.refused: Counter[NodeId] = Counter()
        """Words of others that were refused, by sender."""
        self._awaited: Position | None = None
        self._pieces: dict[NodeId, list[bytes]] = {}
        """Of the states that are awaited, by sender, in the order in which they are merged."""
        self._came: dict[NodeId, Version | None] = {}
        """Senders whose state is complete."""
        self._asked = 0
        self._behind = False
        self._unseen: View | None = None
        self._number = 0
        self._results: dict[int, asyncio.Future[R]] = {}
        self._sending: set[asyncio.Task[Position]] = set()
        self._live = asyncio.Event()
        self._error: BaseException | None = None
        self._reader: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Join the group; the state is the group's when this returns."""
        await self.group.join()
        self._reader = asyncio.ensure_future(self._read())
        self._reader.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave the group."""
        for task in (self._reader, *self._sending):
            if task is not None:
                task.cancel()
        await self.group.leave()
        await asyncio.gather(*filter(None, (self._reader, *self._sending)), return_exceptions=True)

    async def submit(self, command: Bytes) -> R:
        """Have a command applied everywhere; its result here.

        When cancelled, the command may still be applied.
        """
        (body,) = all_bytes((command,))
        await self.ready()
        self._number += 1
        number = self._number
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._results[number] = result
        try:
            await self.group.send(_encode(NumberedCommand(number, body)))
            return await result
        finally:
            self._results.pop(number, None)

    async def wait(self) -> None:
        """Wait until the node or the replica ends; raises what ended it."""
        assert self._reader is not None, "use 'async with'"
        await asyncio.shield(self._reader)

    async def ready(self) -> None:
        """Wait until the members agree on a state."""
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
            error = ended_by(failure)
        finally:
            self._error = error
            self._live.set()
            self._lose(self._results, error)
        raise error

    # --- events ----------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Message):
            if event.writer or event.to:
                return  # whoever publishes into the group, or to some of it, is no replica
            try:
                word = _decode(event.body)
            except UNREADABLE:  # not from a replica
                word = None
            if word is None or event.sender not in self._members:
                self.refused[event.sender] += 1
            else:
                self._on_word(event, word)
        elif isinstance(event, EventsLost):
            self._on_loss()
        elif not event.transitional:
            self._members = event.members
            if self._asked:
                self._unseen = event  # of all we missed, the members are known
            else:
                # Members that come from different views may have it on different branches.
                place = event.position._replace(branch=0)
                self._begin(place)
                self._held.append((place, event))

    def _on_word(self, message: Message, word: Word) -> None:
        if isinstance(word, AskAgain):
            if message.sender == self.group.me and word.number == self._asked:
                self._asked = 0
            if not self._asked:
                self._begin(message.position)
            if not self._asked and self._unseen is not None:
                self._held.append((self._unseen.position, self._unseen))
                self._unseen = None
        elif self._asked:
            pass  # there is a gap before this; a state will cover it
        elif isinstance(word, NumberedCommand):
            if self._live.is_set():
                self._apply(message.position, (message, word))
            else:
                self._hold(message, word)
        elif isinstance(word, Have):
            if word.round == self._round:
                self._heard[message.sender] = word
                if self._heard.keys() >= set(self._members):
                    self._decide(message.position)
        elif word.at == self._awaited and message.sender in self._pieces:
            self._pieces[message.sender].append(word.body)
            self._pieces_bytes += len(word.body) + ITEM_BYTES
            if self._pieces_bytes > MOST_STATE:
                self._on_loss()
            elif word.last:
                self._came[message.sender] = word.version
                if self._came.keys() == self._pieces.keys():
                    self._take_over(word.at)

    def _hold(self, message: Message, command: NumberedCommand) -> None:
        self._held.append((message.position, (message, command)))
        self._held_bytes += len(command.body) + ITEM_BYTES
        if self._held_bytes > MOST_HELD:
            self._on_loss()

    def _on_loss(self) -> None:
        """Our state is a beginning of the others' at best: drop what is held and ask."""
        self._live.clear()
        self._round = None
        self._await(None)
        self._drop_held()
        self._lose(list(self._results), ResultLost("events were lost before the result came"))
        self._number += 1
        self._asked = self._number
        self._behind = True
        self._send(AskAgain(self._asked))

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
        self._send(Have(round, self._version, held, self._behind))

    def _decide(self, at: Position) -> None:
        """All have spoken: of each state that differs, the smallest holder sends it."""
        self._round = None
        heard = sorted(self._heard.items())
        states = {rank(have): node for node, have in reversed(heard) if have.offers}
        best = max(heard, key=lambda each: (rank(each[1]), -each[0]))[0]
        senders = [states[each] for each in sorted(states)] or [best]
        mine = rank(self._heard[self.group.me])
        if len(senders) == 1 and (mine in states or self.group.me in senders):
            self._go_on()
            agreeing = sum(rank(have) == mine for _, have in heard) if states else 1
            if senders == [self.group.me] and agreeing < len(heard):
                self._send(*self._state(at))
            return
        if mine in states:  # commands that were held back belong to the state that is sent
            self._apply_held()
            if self.group.me in senders:
                self._send(*self._state(at))
        self._lose(
            [i[1].number for _, i in self._held if not isinstance(i, View) and self._is_mine(i[0])],
            ResultLost("another state was taken over before the result came"),
        )
        self._drop_held()
        self._behind = mine not in states
        self._await(at, senders)

    def _is_mine(self, message: Message) -> bool:
        return message.sender == self.group.me

    def _take_over(self, at: Position) -> None:
        """One state, or what is made of several, is everybody's."""
        states = [b"".join(pieces) for pieces in self._pieces.values()]
        versions = [self._came[node] for node in self._pieces]
        if len(states) == 1:
            self.machine.restore(states[0])
            self._version = versions[0]
        else:
            self.machine.restore(self._merge(states))
            commands = max((version.commands for version in versions if version), default=0)
            self._version = merged(versions, commands, at)
        self._go_on()

    def _await(self, state: Position | None, senders: Iterable[NodeId] = ()) -> None:
        """From here on the states of this place are awaited, or none."""
        self._awaited = state
        self._pieces = {node: [] for node in senders}
        self._pieces_bytes = 0
        self._came = {}

    def _state(self, at: Position) -> list[Word]:
        """Our state, in pieces that the group takes, so that it may be of any size."""
        whole = self.machine.snapshot()
        size = max(1, min(PIECE, self.group.max_message - AROUND))
        starts = range(0, len(whole) or 1, size)
        return [
            StatePiece(at, self._version, whole[start : start + size], start == starts[-1])
            for start in starts
        ]

    def _go_on(self) -> None:
        """The state is right: apply what was held back and everything that comes."""
        self._await(None)
        self._apply_held()
        self._behind = False
        self._live.set()

    def _apply_held(self) -> None:
        held = self._held
        self._drop_held()
        for position, item in held:
            self._apply(position, item)

    def _drop_held(self) -> None:
        self._held, self._held_bytes = [], 0

    def _apply(self, position: Position, item: Item) -> None:
        self._version = later(self._version, position, item)
        if isinstance(item, View):
            self.machine.on_view(item)
            return
        message, command = item
        waiting = self._results.get(command.number) if message.sender == self.group.me else None
        try:
            result = self.machine.apply(msgspec.structs.replace(message, body=command.body))
        except (RecursionError, MemoryError):  # others may have had more room: this copy ends
            raise
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

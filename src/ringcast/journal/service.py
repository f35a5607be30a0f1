"""Journals over TCP: a node serves its own to nodes that were away, and to readers elsewhere.

The node listens on its own port number, on TCP. A conversation (``wire.line``) is one question at
a time; every answer carries the question's token.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from ringcast.core.errors import UNREADABLE, RingcastError, TransportError
from ringcast.core.ids import NodeId, Position
from ringcast.journal.format.frame import Frame, read_frame
from ringcast.journal.format.layout import NAME, JournalError
from ringcast.journal.format.selection import EVERYTHING, Selection
from ringcast.wire import line
from ringcast.wire.address import Address
from ringcast.wire.envelope import Bodies, RowNumber, check_rows
from ringcast.wire.keys import Grant, KeyFile
from ringcast.wire.line import LONGEST, Line
from ringcast.wire.tcp_listener import TcpListener
from ringcast.wire.turns import FrameTurns

GUEST: NodeId = 2**32 - 1
"""The id of whoever is no node: a reader or a writer elsewhere. No node should have it."""

PART_BYTES = 256 * 2**10
"""Records that are sent at once, about: what is at hand takes the interpreter from the ring."""

MOST_SECTION = 4 * PART_BYTES
"""Bytes of records besides their messages, at most: whoever is told them makes all of the names in
there at once, while the ring waits."""

SHORT_QUESTION = 4096
"""Bytes in a question of somebody who does not publish, at most."""

MOST_WHY = 1024
"""Characters of a reason that are handed on."""

READ_AHEAD = 2**18
"""Bytes of a caller that are read before they are asked for: twice as many, at most."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\Z")]


class Word(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A question or an answer. Nothing may stand behind its fields: whatever does is looked through
    in the ring's loop, and before it is known who may ask what."""


class Ask(Word, frozen=True, tag=1):
    """Which records do you have after ``after``, up to ``upto``?

    Nobody answers before it has all that it will ever have up to there.
    """

    token: int
    after: Position
    upto: Position
    waiting: bool = False
    """Also those that are not in the journal yet because something before them is still missing:
    for nodes that catch up, never for readers."""


class Records(Word, frozen=True, tag=2):
    """The entries that have some of them, as in a frame of a journal (``Frame``)."""

    token: int
    entries: Count
    rows: Count
    section: bytes
    data: bytes


def to_records(token: int, frame: Frame) -> Records:
    """The entries of a frame as an answer."""
    return Records(token, len(frame), len(frame.lengths), frame.section(), bytes(frame.messages))


class UntoldRecords(NamedTuple):
    """Records to be told, which are copied when it is their turn."""

    token: int
    frame: Frame

    def records(self) -> Records:
        """The answer."""
        return to_records(*self)


def from_records(answer: Records) -> Frame:
    """The frame of such an answer; JournalError if it holds none."""
    if len(answer.section) > MOST_SECTION:
        raise JournalError(f"records with {len(answer.section)} bytes besides their messages")
    try:
        found = read_frame(
            memoryview(answer.section), answer.entries, answer.rows, memoryview(answer.data)
        )
    except (ValueError, OverflowError, *UNREADABLE) as error:
        raise JournalError(f"not records of a journal ({error})") from None
    try:
        return found.check()
    except (ValueError, IndexError, OverflowError) as error:  # numbers that fit no column
        raise JournalError(f"not records of a journal ({error})") from None


class Extent(Word, frozen=True, tag=3):
    """That was all. The journal has everything after ``trimmed``, up to ``last``."""

    token: int
    last: Position
    trimmed: Position
    digest: int | None = None
    """To a Look: of what lies at the place; None if nothing does."""
    behind: int = 0
    """To a Look: how many records lie behind the place."""


class Look(Word, frozen=True, tag=10):
    """Where does your journal begin and end, what lies at this place, and how much behind it?"""

    token: int
    place: Position


class Seek(Word, frozen=True, tag=9):
    """Where is the record ``rows`` after ``after``, or the last one up to ``upto``?"""

    token: int
    after: Position
    upto: Position
    rows: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    wanted: Selection = EVERYTHING
    """Only such records count."""


class Commit(Word, frozen=True, tag=4):
    """The reader of this name needs nothing up to ``place`` any more."""

    token: int
    reader: Name
    place: Position


class Publish(Word, frozen=True, tag=5):
    """Broadcast these bodies in a group, unless rows of this batch were before.

    ``stream`` names the writer, ``batch`` and ``first`` number its rows: what was delivered
    already is dropped by all receivers.
    """

    token: int
    group: Name
    stream: Name
    batch: RowNumber
    first: RowNumber
    bodies: Bodies

    def __post_init__(self) -> None:
        """Refused here, and not by whoever reads what was written."""
        check_rows(self.first, len(self.bodies))


class Done(Word, frozen=True, tag=6):
    """A Seek, Commit or Publish was carried out; ``place`` is the last one it concerns."""

    token: int
    place: Position


class Refused(Word, frozen=True, tag=7):
    """It was not, and why."""

    token: int
    why: str


Question = Ask | Look | Seek | Commit | Publish
Answer = Records | Extent | Done | Refused
MESSAGES = Question | Answer


async def call(
    address: Address,
    me: NodeId,
    keys: KeyFile | None,
    network: str | None = None,
    node: NodeId | None = None,
) -> Line:
    """A connection to a node's journal; OSError if nobody listens there."""
    return await line.call(address, me, keys, network, MESSAGES, node)


async def answers(line: Line, question: Question) -> AsyncIterator[Answer]:
    """Ask, and hear everything up to the last answer."""
    await line.send(question)
    while True:
        message = await line.receive()
        if message is None:
            raise RingcastError("the other side hung up")
        if not isinstance(message, Answer) or message.token != question.token:
            raise RingcastError("the other side answers another question")
        if isinstance(message, Refused):
            raise JournalError(on_a_line(message.why[:MOST_WHY]))
        yield message
        if not isinstance(message, Records):
            return


def on_a_line(text: str) -> str:
    """Somebody else's words, which come onto a terminal or into a log."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def token() -> int:
    """A number that marks a question and its answers."""
    return secrets.randbits(62)


def check_right(grant: Grant | None, question: Question) -> None:
    """A guest does what its key is for, as nobody but itself; JournalError otherwise."""
    if grant is None:
        return
    match question:
        case Look() | Seek():
            needed = Grant("read", grant.name)
        case Ask(waiting=waiting):
            needed = Grant("join" if waiting else "read", grant.name)
        case Commit(reader=name):
            needed = Grant("read", name)
        case Publish(stream=name):
            needed = Grant("write", name)
    if grant != needed:
        raise JournalError(
            f"the key is a guest's, to {grant.right} as {grant.name}, and this takes one to "
            f"{needed.right} as {needed.name}"
        )


Caller = TypeVar("Caller", str, Grant)


def of_most(tasks: dict[asyncio.Task[None], Caller]) -> asyncio.Task[None]:
    """The first conversation of the caller that has most of them."""
    held = Counter(tasks.values())
    most = max(held.values())
    return next(task for task, caller in tasks.items() if held[caller] == most)


Serve = Callable[[Question], AsyncIterator[Answer | UntoldRecords]]


class Tellers(NamedTuple):
    """A thread that reads, packs and seals for members, and one for guests, a piece after the
    other. The ring does not wait for them, shares the interpreter with two threads however many
    ask, and no guest keeps a member waiting. None: it is done in the loop."""

    members: Executor | None
    guests: Executor | None


class Server:
    """Listens for questions at one port of a node; each is answered by ``serve``.

    Strangers, guests and members have places of their own, so that none of them can keep
    another kind out: what keeps members out makes holes in their journals. Among strangers and
    members the host that calls most makes room, and among guests the one that does.
    """

    MOST = 32
    """Conversations of each kind at once."""
    PER_GUEST = 8
    """Of which one guest has so many at most."""

    def __init__(
        self,
        me: NodeId,
        keys: KeyFile | None,
        serve: Serve,
        network: str = "",
        tellers: Tellers = Tellers(None, None),  # noqa: B008
        longest: int = LONGEST,
        hosts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """``tellers`` pack and seal what is answered; a question has ``longest`` bytes at most;
        ``hosts`` are the members'."""
        self._me, self._keys, self._serve, self._network = me, keys, serve, network
        self._tellers = tellers
        self._longest = longest
        self.listener = TcpListener(self._on_call, hosts)
        self._turns = FrameTurns()
        self._told = FrameTurns(), FrameTurns()
        """What members are told, and guests."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], str] = {}
        """Those that have not greeted yet, oldest first, and the hosts they call from."""
        self._members: dict[asyncio.Task[None], str] = {}
        """And the hosts they call from: whom they say to be, others with the key can say, too."""
        self._guests: dict[asyncio.Task[None], Grant] = {}
        """Oldest first, as all of these."""
        self.refused = 0
        """Conversations that ended because the other side was not of the group or made no sense, or
        had no place."""

    def start(self, address: Address) -> int:
        """Listen; the port, which is another one if 0 was asked for."""
        try:
            return self.listener.open(address)
        except OSError as error:
            raise TransportError(
                f"cannot serve the journal on TCP port {address.port} of {address.host}: "
                f"{error.strerror}; choose another port in bind"
            ) from None

    def _on_call(self, call: socket.socket, host: str) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._talk(call, host)))

    async def _talk(self, call: socket.socket, host: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._strangers) >= self.MOST:
            self._end(of_most(self._strangers))
        self._strangers[task] = host
        line: Line | None = None
        try:
            line = Line(*await asyncio.open_connection(sock=call, limit=READ_AHEAD), MESSAGES)
            line.longest = self._longest
            await line.greet(self._me, self._keys, self._network)
            self._strangers.pop(task, None)
            self._seat(task, line, host)
            await self._converse(line)
        except (RingcastError, OSError, msgspec.MsgspecError):
            self.refused += 1
        except asyncio.CancelledError:
            pass  # the node ends, or somebody else needs the place
        finally:
            self._leave(task)
            self._tasks.discard(task)
            if line is not None:
                line.close()

    def _seat(self, task: asyncio.Task[None], line: Line, host: str) -> None:
        """A place for somebody who has greeted."""
        line.turns, line.tells = self._turns, self._told[line.grant is not None]
        line.caller = line.grant or host
        line.thread = self._tellers.guests if line.grant else self._tellers.members
        if line.grant is None:
            self._take_place(self._members, task, host)
            return
        if line.grant.right == "read":
            line.longest = SHORT_QUESTION
        if Counter(self._guests.values())[line.grant] >= self.PER_GUEST:
            raise RingcastError("too many conversations")
        self._take_place(self._guests, task, line.grant)

    def _take_place(
        self, places: dict[asyncio.Task[None], Caller], task: asyncio.Task[None], caller: Caller
    ) -> None:
        """If there is none left, of whoever has most."""
        if len(places) >= self.MOST:
            held = Counter(places.values())
            if max(held.values()) <= held[caller] + 1:
                raise RingcastError("too many conversations")
            self._end(of_most(places))
        places[task] = caller

    def _end(self, task: asyncio.Task[None]) -> None:
        """Its place is free at once: many may call before it has ended."""
        self._leave(task)
        task.cancel()

    def _leave(self, task: asyncio.Task[None]) -> None:
        self._strangers.pop(task, None)
        self._guests.pop(task, None)
        self._members.pop(task, None)

    async def _converse(self, line: Line) -> None:
        while (question := await line.receive()) is not None:
            if not isinstance(question, Question):
                raise RingcastError("no question")
            try:
                check_right(line.grant, question)
                async for answer in self._serve(question):
                    if isinstance(answer, UntoldRecords):
                        await line.tell(answer.records, answer.frame.size)
                    else:
                        await line.send(answer)
            except RingcastError as error:
                await line.send(Refused(question.token, str(error)))
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:
                # A question of the right form that still makes no sense: whoever asks gets to know.
                self.refused += 1
                await line.send(Refused(question.token, f"this cannot be answered: {error!r}"))

    async def close(self) -> None:
        """End all conversations."""
        self.listener.close()
        await asyncio.sleep(0)  # calls just taken begin, and so hang up when they are cancelled
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

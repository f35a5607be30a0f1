"""Journals over TCP: a node serves its own to nodes that were away, and to readers elsewhere.

The node listens on its own port number, on TCP. A conversation is one question at a time, each
frame sealed with the group's key as on UDP: a connection has an incarnation of its own on both
sides, so nonces never repeat, and every answer carries the question's token, so an old answer
is no answer. The node greets whoever calls with a number that must come back first: a recorded
conversation is no caller, and who has no key gets no room for a long frame. Without keys the same
frames go in the clear, where the node itself may.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec

from ringcast.core.errors import RingcastError, TransportError
from ringcast.core.ids import NodeId, Position
from ringcast.journal.format.frame import Frame, read_frame
from ringcast.journal.format.layout import NAME, JournalError
from ringcast.wire.address import Address
from ringcast.wire.codec import Codec, Lane
from ringcast.wire.envelope import RowNumber
from ringcast.wire.keys import KeyFile

GUEST: NodeId = 2**32 - 1
"""The id of whoever is no node: a reader or a writer elsewhere. No node should have it."""

LONGEST = 256 * 2**20
"""Bytes in a frame, at most: a message of the largest size and what goes with it."""

SHORT = 256
"""Bytes in a greeting, at most."""

PART_BYTES = 4 * 2**20
"""Records that are sent at once, about."""

PATIENCE_S = 20.0
"""Longest silence in a conversation."""

Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\Z")]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Which records do you have after ``after``, up to ``upto``?

    Nobody answers before it has all that it will ever have up to there.
    """

    token: int
    after: Position
    upto: Position
    waiting: bool = False
    """Also those that are not in the journal yet because something before them is still missing:
    for nodes that catch up, never for readers."""


class Records(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The entries that have some of them, as in a frame of a journal (``Frame``)."""

    token: int
    entries: int
    rows: int
    section: bytes
    data: bytes


def to_records(token: int, frame: Frame) -> Records:
    """The entries of a frame as an answer."""
    return Records(token, len(frame), len(frame.lengths), frame.section(), bytes(frame.messages))


def from_records(answer: Records) -> Frame:
    """The frame of such an answer; JournalError if it holds none."""
    try:
        found = read_frame(
            memoryview(answer.section), answer.entries, answer.rows, memoryview(answer.data)
        )
    except (ValueError, msgspec.MsgspecError) as error:
        raise JournalError(f"not records of a journal ({error})") from None
    return found.check()


class Extent(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """That was all. The journal has everything after ``trimmed``, up to ``last``."""

    token: int
    last: Position
    trimmed: Position
    digest: int | None = None
    """To a Look: of what lies at the place; None if nothing does."""


class Look(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Where does your journal begin and end, and what lies at this place?"""

    token: int
    place: Position


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Where is the record ``rows`` after ``after``, or the last one up to ``upto``?"""

    token: int
    after: Position
    upto: Position
    rows: int


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The reader of this name needs nothing up to ``place`` any more."""

    token: int
    reader: Name
    place: Position


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Broadcast these bodies in a group, unless rows of this batch were before.

    ``stream`` names the writer, ``batch`` and ``first`` number its rows: what was delivered
    already is dropped by all receivers.
    """

    token: int
    group: Name
    stream: Name
    batch: RowNumber
    first: RowNumber
    bodies: tuple[bytes, ...]


class Done(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A Seek, Commit or Publish was carried out; ``place`` is the last one it concerns."""

    token: int
    place: Position


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """It was not, and why."""

    token: int
    why: str


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The first word of the node, and of whoever calls it: the same number."""

    token: int


Question = Ask | Look | Seek | Commit | Publish
Answer = Records | Extent | Done | Refused
MESSAGES = (Ask, Records, Extent, Commit, Publish, Done, Refused, Greeting, Seek, Look)


class Line:
    """One side of a connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        me: NodeId,
        keys: KeyFile | None,
    ) -> None:
        self._reader, self._writer = reader, writer
        boot = 2**63 | secrets.randbits(62)  # never one of a node's own, which count microseconds
        self._codec = Codec(MESSAGES, me, boot, keys)
        self._other: tuple[NodeId, int] | None = None
        """Who is at the other end, and in which incarnation: nobody else may cut in."""

    async def greet(self) -> None:
        """The node's side: only who has the key, now, is heard."""
        greeting = Greeting(token())
        await self.send(greeting)
        if await self.receive(SHORT) != greeting:
            raise RingcastError("no greeting")

    async def answer(self) -> None:
        """The caller's side of it."""
        greeting = await self.receive(SHORT)
        if not isinstance(greeting, Greeting):
            raise RingcastError("the other side hung up" if greeting is None else "no greeting")
        await self.send(greeting)

    async def send(self, message: msgspec.Struct) -> None:
        """One frame."""
        frame = self._codec.encode(message, Lane.UNICAST)
        self._writer.write(len(frame).to_bytes(4, "big"))
        self._writer.write(frame)
        await self._writer.drain()

    async def receive(self, longest: int = LONGEST) -> msgspec.Struct | None:
        """The next frame; None at the end. Who is not of the group is not answered."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                if length > longest:
                    raise RingcastError("a frame that is too long; is the other side ringcast?")
                frame = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except TimeoutError:
            raise RingcastError(f"the other side was silent for {PATIENCE_S:.0f} s") from None
        found = self._codec.decode(frame)
        if found is None:
            (why,) = self._codec.refused or ("a frame of our own",)
            raise RingcastError(f"the other side's frame was refused: {why}")
        src, boot, _, message = found
        self._other = self._other or (src, boot)
        if self._other != (src, boot):
            raise RingcastError("a frame of another conversation")
        return message

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def call(address: Address, me: NodeId, keys: KeyFile | None) -> Line:
    """A connection to a node's journal; OSError if nobody listens there."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=2**22)
    line = Line(reader, writer, me, keys)
    try:
        await line.answer()
    except BaseException:
        line.close()
        raise
    return line


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
            raise JournalError(message.why)
        yield message
        if not isinstance(message, Records):
            return


def token() -> int:
    """A number that marks a question and its answers."""
    return secrets.randbits(62)


Serve = Callable[[Question], AsyncIterator[Answer]]


class Server:
    """Listens for questions; each is answered by ``serve``."""

    MOST = 64
    """Conversations at once; more are turned away, strangers first."""

    def __init__(self, me: NodeId, keys: KeyFile | None, serve: Serve) -> None:
        self._me, self._keys, self._serve = me, keys, serve
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        """Those that have not greeted yet, oldest first."""
        self.refused = 0
        """Conversations that ended because the other side was not of the group or made no sense."""

    async def start(self, address: Address) -> int:
        """Listen; the port, which is another one if 0 was asked for."""
        try:
            self._server = await asyncio.start_server(
                self._talk, address.host, address.port, limit=2**22, start_serving=False
            )
            await self._server.start_serving()  # apart, so that a cancellation here leaks nothing
        except OSError as error:
            raise TransportError(
                f"cannot serve the journal on TCP port {address.port} of {address.host}: "
                f"{error.strerror}; choose another port in bind"
            ) from None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        line = Line(reader, writer, self._me, self._keys)
        if len(self._talks) >= self.MOST:
            if not self._strangers:
                line.close()
                return
            next(iter(self._strangers)).cancel()
        self._talks.add(task)
        self._strangers[task] = None
        try:
            await line.greet()
            del self._strangers[task]
            await self._converse(line)
        except (RingcastError, OSError, msgspec.MsgspecError):
            self.refused += 1
        except asyncio.CancelledError:
            pass  # the node ends, or somebody else needs the place
        finally:
            self._talks.discard(task)
            self._strangers.pop(task, None)
            line.close()

    async def _converse(self, line: Line) -> None:
        while (question := await line.receive()) is not None:
            if not isinstance(question, Question):
                raise RingcastError("no question")
            try:
                async for answer in self._serve(question):
                    await line.send(answer)
            except (JournalError, RingcastError) as error:
                await line.send(Refused(question.token, str(error)))

    async def close(self) -> None:
        """End all conversations."""
        if self._server is not None:
            self._server.close()
        for task in list(self._talks):
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

"""What a replica has applied: the machine, and what makes repetitions harmless."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Generic

import msgspec

from ringcast.api.events import Message, View
from ringcast.api.state_machine import R, ResultLost, StateMachine
from ringcast.core.errors import UNREADABLE, RingcastError
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.replica.contents import Present, Started, decode, encode
from ringcast.replica.sessions import CommandFailed, RequestOutcome, Sessions
from ringcast.replica.words import NEVER, LogEntry, Ticket


class AppliedState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A snapshot: the machine's, and what makes repetitions harmless."""

    machine: bytes
    sessions: Sessions
    present: Present
    lives: dict[NodeId, int]


_decode_state = msgspec.msgpack.Decoder(AppliedState).decode


class Applied(Generic[R]):
    """The state after a number of entries of the log: a function of them alone."""

    def __init__(self, machine: StateMachine[R]) -> None:
        self.machine = machine
        self.sessions = Sessions()
        self._present = Present(NEVER, ())
        """The newest primary component whose members were announced."""
        self._lives: dict[NodeId, int] = {}
        """The last incarnation of each member's replica."""

    async def state(self) -> bytes:
        """Everything as it is now, for the disk or another member; commands go on meanwhile."""
        pieces = self.machine.pieces()
        rest = msgspec.Raw(encode(self.sessions)), self._present, dict(self._lives)
        parts = []
        for piece in pieces:
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                kind = type(self.machine).__name__
                raise TypeError(f"a snapshot of {kind} is bytes, not {type(piece).__name__}")
            parts.append(piece)
            await asyncio.sleep(0)
        return encode((b"".join(parts), *rest))  # an AppliedState

    def restore(self, state: bytes) -> None:
        """Take over a state."""
        taken = _decode_state(state)
        self.sessions, self._present, self._lives = taken.sessions, taken.present, taken.lives
        self.machine.restore(taken.machine)

    def apply(self, index: int, entry: LogEntry, waiting: asyncio.Future[Any] | None) -> None:
        """RS-13: in the order of the log, the same at all members."""
        ticket, epoch = entry.ticket, entry.epoch
        place = Position(0, epoch.seq, epoch.rep, index, 0)
        fresh = self.sessions.fresh(ticket)
        try:
            content = decode(entry.command)
        except UNREADABLE as error:  # of a member that runs another version
            settle(waiting, RingcastError(f"the command cannot be read: {error}"))
            return
        if type(content) is Present:
            if fresh and self._present.epoch < content.epoch <= epoch:  # none of a later one
                self._present = content
                self._tell(content.members, place)
            return
        if type(content) is Started:
            if fresh:
                self._start(ticket, place)
            return
        client = content.client
        known = self.sessions.recall(client, content.request) if client else None
        if known is not None:
            recalled(waiting, known)
        elif not fresh:
            settle(waiting, ResultLost("a state with the command in it was taken over"))
        else:
            message = Message(ticket.node, content.body, place, Level.SAFE)
            outcome = self._carry_out(message, waiting, bool(client))
            if outcome is not None:
                self.sessions.record(client, content.request, outcome)

    def _start(self, ticket: Ticket, place: Position) -> None:
        """A member that was started anew may be present all the time: the machine is told that it
        went, since all that its former life held is nobody's, and that it is there again."""
        former = self._lives.get(ticket.node)
        self._lives[ticket.node] = ticket.boot
        if former is not None:
            members = self._present.members
            others = tuple(member for member in members if member != ticket.node)
            self._tell(others, place)
            if others != members:
                self._tell(members, place)

    def _tell(self, members: tuple[NodeId, ...], place: Position) -> None:
        epoch = self._present.epoch
        try:
            self.machine.on_view(View(members, False, ViewId(epoch.seq, epoch.rep), place))
        except Exception as error:
            raise RingcastError(
                f"the replica has stopped: on_view of {type(self.machine).__name__} raised "
                f"{error!r}. Every member fails alike, and again at each start: correct on_view"
            ) from error

    def _carry_out(
        self, message: Message, waiting: asyncio.Future[Any] | None, kept: bool
    ) -> RequestOutcome | None:
        """Apply a command, and tell who waits; what is to be kept for repetitions, if so."""
        try:
            result = self.machine.apply(message)
            outcome = RequestOutcome.of(result) if kept else None
        except (RecursionError, MemoryError) as error:  # others may have had more room
            raise RingcastError(
                f"the replica has stopped: {error!r} while it applied command "
                f"{message.position.seq}. That depends on the process, so its state may differ "
                "from the others' now; start it again, with more memory or a flatter `apply`"
            ) from error
        except Exception as error:
            settle(waiting, error)
            return RequestOutcome.failed(error) if kept else None
        if outcome is not None and outcome.error:
            recalled(waiting, outcome)
        elif waiting is not None:
            give(waiting, result)
        return outcome


def ended_by(error: Exception) -> RingcastError:
    """The error that users of a replica get when another one has ended it. If ``submit`` raised an
    error of the machine's own code as it is, callers would take it for the outcome of ``apply``."""
    if isinstance(error, RingcastError):
        return error
    ended = RingcastError(f"the replica has stopped: {error!r}")
    ended.__cause__ = error
    return ended


def settle(future: asyncio.Future[Any] | None, error: BaseException) -> None:
    """Give an error to who waits; one who does not any more is not asked."""
    if future is not None and not future.done():
        if isinstance(error, StopIteration):  # asyncio refuses to carry it
            error = CommandFailed(f"StopIteration: {error}")
        future.set_exception(error)
        future.exception()


def give(future: asyncio.Future[Any] | None, result: object) -> None:
    """Give a result to who waits."""
    if future is not None and not future.done():
        future.set_result(result)


def recalled(future: asyncio.Future[Any] | None, outcome: RequestOutcome) -> None:
    """Give a recorded outcome to who waits."""
    try:
        give(future, outcome.get())
    except Exception as error:
        settle(future, error)


def deadline_after(timeout: float | None) -> float:
    """By the loop's clock."""
    return math.inf if timeout is None else asyncio.get_running_loop().time() + timeout

"""What a replica has applied: the machine, and what makes repetitions harmless."""

from __future__ import annotations

import asyncio
from typing import Any, Generic

import msgspec

from ringcast.api.events import Message, View
from ringcast.api.state_machine import R, ResultLost, StateMachine
from ringcast.core.errors import UNREADABLE, RingcastError
from ringcast.core.ids import Level, Position, ViewId
from ringcast.replica.contents import Command, Present, decode, encode
from ringcast.replica.sessions import CommandFailed, RequestOutcome, Sessions
from ringcast.replica.words import NEVER, Epoch, LogEntry


class AppliedState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A snapshot: the machine's, and what makes repetitions harmless."""

    machine: bytes
    sessions: Sessions
    present: Epoch


_decode_state = msgspec.msgpack.Decoder(AppliedState).decode


class Applied(Generic[R]):
    """The state after a number of entries of the log: a function of them alone."""

    def __init__(self, machine: StateMachine[R]) -> None:
        self.machine = machine
        self.sessions = Sessions()
        self._present = NEVER
        """The newest primary component whose members were announced."""

    async def state(self) -> bytes:
        """Everything as it is now, for the disk or another member; commands go on meanwhile."""
        pieces = self.machine.pieces()
        sessions, present = msgspec.Raw(encode(self.sessions)), self._present
        parts = []
        for piece in pieces:
            parts.append(piece)
            await asyncio.sleep(0)
        return encode((b"".join(parts), sessions, present))  # an AppliedState

    def restore(self, state: bytes) -> None:
        """Take over a state."""
        taken = _decode_state(state)
        self.sessions, self._present = taken.sessions, taken.present
        self.machine.restore(taken.machine)

    def apply(self, index: int, entry: LogEntry, waiting: asyncio.Future[Any] | None) -> None:
        """RS-13: in the order of the log, the same at all members."""
        ticket, epoch = entry.ticket, entry.epoch
        place = Position.at(ViewId(epoch.seq, epoch.rep), index)
        fresh = self.sessions.fresh(ticket)
        try:
            content = decode(entry.command)
        except UNREADABLE as error:  # of a member that runs another version
            settle(waiting, RingcastError(f"the command cannot be read: {error}"))
            return
        match content:
            case Present(component, members):
                if fresh and component > self._present:
                    self._present = component
                    ring = ViewId(component.seq, component.rep)
                    self.machine.on_view(View(members, False, ring, place))
            case Command(body, client, request):
                known = self.sessions.recall(client, request) if client else None
                if known is not None:
                    recalled(waiting, known)
                elif not fresh:
                    settle(waiting, ResultLost("a state with the command in it was taken over"))
                else:
                    message = Message(ticket.node, body, place, Level.SAFE)
                    self._carry_out(message, client, request, waiting)

    def _carry_out(
        self, message: Message, client: str, request: int, waiting: asyncio.Future[Any] | None
    ) -> None:
        try:
            result = self.machine.apply(message)
        except Exception as error:
            outcome = RequestOutcome.failed(error)
            settle(waiting, error)
        else:
            outcome = RequestOutcome.of(result) if client else RequestOutcome()
            if outcome.error:
                recalled(waiting, outcome)
            else:
                give(waiting, result)
        if client:
            self.sessions.record(client, request, outcome)


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

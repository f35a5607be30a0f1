"""A copy by quorum: the live host of a replica's engine (docs/replication.md).

The engine decides; this module gives it the group's events, and does what it asks for.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

from ringcast.api.applied import Applied, deadline_after, ended_by, give, settle
from ringcast.api.events import Batch, EventsLost, View
from ringcast.api.group import Bytes, Group, NotJoined, all_bytes, check_size
from ringcast.api.log_writer import LogWriter, open_store
from ringcast.api.state_machine import Local, NoQuorum, R, StateMachine
from ringcast.api.word_queue import WordQueue
from ringcast.core.errors import UNREADABLE, NodeStopped, RingcastError
from ringcast.core.ids import NodeId, ViewId
from ringcast.replica import words
from ringcast.replica.contents import Present, Started, command_of, encode
from ringcast.replica.effects import (
    Apply,
    BarrierPassed,
    Became,
    Effect,
    Halt,
    Phase,
    Restore,
    Say,
    Sync,
    Write,
)
from ringcast.replica.engine import PIECE, Engine
from ringcast.replica.exchange import lacking
from ringcast.replica.log import Image
from ringcast.replica.sessions import WINDOW
from ringcast.replica.words import Ticket, attempt_at

T = TypeVar("T")

TICK_S = 0.5
"""How often the engine looks whether it gets on, and the log whether it is too long."""
SILENCE_S = 3 * TICK_S
"""If a barrier is not answered for so long, no majority goes on with this copy."""
AROUND = 2**10
"""Bytes around a command in a word."""
MOST_WAITING = 64 * 2**20
"""Bytes of commands that wait to be confirmed; beyond this, submitters wait before."""


class QuorumCopy(Generic[R]):
    """One member's copy, confirmed by a majority of the members' disks."""

    def __init__(
        self,
        group: Group,
        machine: StateMachine[R],
        members: int | frozenset[NodeId],
        folder: Path,
    ) -> None:
        self.group = group
        group.replicated = True
        self._applied = Applied(machine)
        self._members, self._folder = members, folder
        self._engine: Engine
        self._disk: LogWriter
        self._me = group.me
        self._view: View | None = None
        self._here: frozenset[NodeId] = frozenset()
        """The members of the last regular view; in a transitional one their words count, too."""
        self.refused: Counter[NodeId] = Counter()
        """Words of others that were refused, by sender."""
        self._announced: Ticket | None = None
        self._results: dict[int, tuple[asyncio.Future[Any], float]] = {}
        """Of commands that wait to be confirmed, by number, with the time of their submission."""
        self._number = self._waiting_bytes = 0
        self._reads: dict[Ticket, tuple[asyncio.Future[bool] | None, float]] = {}
        """Barriers under way, with the time at which they were sent."""
        self._fresh_at = -math.inf
        self._silent = False
        """Whether a barrier waits too long: some protocols keep a view with too few to order."""
        self._words = WordQueue(lambda: self.group)
        self._scheduled = False
        """Whether a step comes at the end of this turn of the loop."""
        self._callers: list[asyncio.Future[None]] = []
        """Who waits for a change: of the phase, of room, or the end."""
        self._ended = asyncio.Event()
        self._error: BaseException | None = NotJoined(
            "the replica has not been opened: use it in `async with`"
        )
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the disk and join the group."""
        async with AsyncExitStack() as undo:
            store = await open_store(self._folder, self._me, self.group.name)
            undo.callback(store.close)
            piece = min(PIECE, self.group.max_message // 4)
            largest = self.group.max_message - 2 * piece  # with others, it still fits one word
            self._most = largest - AROUND
            log = store.replay()
            boot = secrets.randbits(60) + 1
            self._engine = Engine(self._me, boot, self._members, log, piece, largest)
            self.refused = self._engine.refused
            self._disk = LogWriter(store, log.records, self._synced, self._stop)
            undo.pop_all()
            undo.push_async_callback(self._disk.close)
            self._error = None
            self._engine.start()
            self._engine.submit(encode(Started()))  # before all others
            self._step()
            await self.group.join()
            undo.pop_all()  # all is well: nothing to undo
        for part in (self._read, self._words.run, self._tick, self._leave):
            self._tasks.append(asyncio.ensure_future(self._guarded(part)))

    async def close(self) -> None:
        """Leave the group, also when cancelled; what was confirmed is on disk."""
        self._stop(NotJoined("the replica has been closed; what was submitted may yet be applied"))
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            await self.group.leave()
            await self._disk.close()

    async def wait(self) -> None:
        """Wait until the replica ends; raises what ended it."""
        await self._ended.wait()
        assert self._error is not None
        raise self._error

    async def _guarded(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A part of the replica's life. It is called here and not before: a task that is cancelled
        before its first step would leave a coroutine that nobody awaited."""
        try:
            await part()
        except Exception as error:
            self._stop(ended_by(error))

    async def _leave(self) -> None:
        """The others go on without a copy that does not."""
        await self._ended.wait()
        await self.group.leave()

    def _stop(self, error: BaseException) -> None:
        """Nothing is confirmed here any more."""
        if self._error is not None:
            return
        self._error = error
        for future, _ in self._results.values():
            settle(future, error)
        for read, _ in self._reads.values():
            settle(read, error)
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        if not self._callers:
            return
        callers, self._callers = self._callers, []
        for caller in callers:
            if not caller.done():
                caller.set_result(None)

    # --- the application -------------------------------------------------------------------

    async def submit(
        self, command: Bytes, client: str | None, request: int | None, timeout: float | None
    ) -> R:
        """Have a command applied; its result, once a majority has it on disk."""
        self._check()
        body = command if type(command) is bytes else all_bytes((command,))[0]
        content = command_of(body, client, request)
        if client and (known := self._applied.sessions.recall(client, content.request)) is not None:
            return known.get()  # type: ignore[no-any-return]
        check_size(len(body), self._most, "a command's part of max_message is")
        deadline = deadline_after(timeout)
        if not self._has_room():
            await self._until(self._has_room, deadline, timeout)
        ticket = self._engine.submit(encode(content))
        self._number = ticket.number
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._results[ticket.number] = (result, loop.time())
        self._waiting_bytes += len(body)
        self._step_soon()
        try:
            return await (result if timeout is None else self._within(result, deadline, timeout))
        finally:
            if self._results.pop(ticket.number, None):
                self._engine.withdraw(ticket)
            self._waiting_bytes -= len(body)
            self._wake()

    async def read(self, look: Callable[[Any], T], timeout: float | None) -> T:
        """``look(machine)``, at a state with everything in it that was confirmed before."""
        deadline = deadline_after(timeout)
        while True:
            await self._until(lambda: self._in_primary, deadline, timeout)
            passed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._barrier(passed)
            if await self._within(passed, deadline, timeout):
                return look(self._applied.machine)

    def local(self, look: Callable[[Any], T]) -> Local[T]:
        """``look(machine)`` at once, and how old it may be."""
        return Local(
            look(self._applied.machine), asyncio.get_running_loop().time() - self._fresh_at
        )

    async def ready(self, timeout: float | None) -> None:
        """Wait until this copy is up to date and a majority goes on."""
        await self._until(lambda: self.primary, deadline_after(timeout), timeout)

    async def until(self, met: Callable[[Any], bool]) -> None:
        """Wait until ``met(machine)`` here; looked at after each change of state or quorum."""
        await self._until(lambda: met(self._applied.machine), math.inf, None)

    @property
    def primary(self) -> bool:
        """Whether this copy is up to date and a majority goes on."""
        return self._in_primary and not self._silent

    @property
    def _in_primary(self) -> bool:
        return self._error is None and self._engine.phase is Phase.PRIMARY

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _has_room(self) -> bool:
        """So few commands wait that a repetition of each is told from a new one (sessions.py)."""
        oldest = next(iter(self._results), self._number + 1)
        return self._number + 1 - oldest < WINDOW and self._waiting_bytes < MOST_WAITING

    async def _until(self, met: Callable[[], bool], deadline: float, timeout: float | None) -> None:
        while True:
            self._check()
            if met():
                return
            caller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._callers.append(caller)
            await self._within(caller, deadline, timeout)

    async def _within(self, future: asyncio.Future[T], deadline: float, timeout: float | None) -> T:
        if timeout is None:
            return await future
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            await asyncio.wait((future,), timeout=left)
            if future.done():
                return future.result()
            status, blocked = self._engine.status(), self.group.blocked
            lacks = lacking(status, self._engine.statuses, self._in_primary, blocked)
            raise NoQuorum(
                f"no majority of the members confirmed this within {timeout} s: {lacks}; a command "
                "may still be applied: if that must happen once, submit it again with the same "
                "client and request"
            )
        finally:
            if not future.done():
                future.cancel()

    def _barrier(self, passed: asyncio.Future[bool] | None = None) -> None:
        """Order a read; False if the primary component ends before it is passed."""
        ticket = self._engine.read()
        assert ticket is not None
        self._reads[ticket] = (passed, asyncio.get_running_loop().time())
        self._step()

    # --- what the engine asks for ----------------------------------------------------------

    def _step_soon(self) -> None:
        """What is submitted in one turn of the loop is said together, and synced together."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        """Carry out what the engine asks for, until it asks for nothing more."""
        self._scheduled = False
        if self._error is not None:
            return  # what it could not carry out must not come to the disk
        try:
            while self._error is None and (effects := self._engine.take()):
                for effect in effects:
                    self._act(effect)
            self._disk.turn()
            self._words.flush()
        except Exception as error:
            self._stop(ended_by(error))

    def _act(self, effect: Effect) -> None:
        match effect:
            case Apply():
                self._apply(effect)
            case Say(word):
                self._words.put(word)
            case Write(record):
                self._disk.write(record)
            case Sync(ticket):
                self._disk.sync(ticket)
            case Restore(at, state):
                self._restore(at, state)
            case BarrierPassed(ticket, _) if ticket in self._reads:
                passed, sent_at = self._reads.pop(ticket)
                self._fresh_at = max(self._fresh_at, sent_at)
                if self._silent:
                    self._silent = False
                    self._wake()
                give(passed, True)
            case Became(phase, _):
                self._became(phase)
            case Halt(reason):
                self._stop(RingcastError(f"the replica has stopped: {reason}"))

    def _restore(self, at: int, state: bytes) -> None:
        try:
            self._applied.restore(state)
        except Exception as error:
            why = f"the machine cannot take over the state after entry {at}; the disk is as before"
            raise RingcastError(f"{why}: {error!r}") from error
        self._wake()

    def _apply(self, green: Apply) -> None:
        """A command of ours that waits is newer than all that was confirmed before (RS-14)."""
        ticket, waiting = green.entry.ticket, None
        mine = ticket.node == self._me and ticket.boot == self._engine.boot
        if mine and (asked := self._results.get(ticket.number)) is not None:
            waiting, submitted_at = asked
            self._fresh_at = max(self._fresh_at, submitted_at)
        self._applied.apply(green.index, green.entry, waiting)
        self._wake()

    def _became(self, phase: Phase) -> None:
        self._wake()
        if phase is Phase.EXCHANGE:
            self._words.clear()  # of attempts that are over: nobody would take them
        if phase is not Phase.PRIMARY:
            for passed, _ in self._reads.values():
                give(passed, False)
            self._reads.clear()
            self._silent = False
        elif self._view is not None and self._me == self._engine.tally.speaker:
            if self._announced is not None:
                self._engine.withdraw(self._announced)
            present = Present(self._engine.epoch, self._view.members)
            self._announced = self._engine.submit(encode(present))

    # --- the group -------------------------------------------------------------------------

    async def _read(self) -> None:
        """The only reader of the group."""
        while True:
            async for events in self.group.batches():
                lost = False
                for event in events:
                    if lost := isinstance(event, EventsLost):
                        break
                    self._on_event(event)
                self._step()
                if lost:
                    await self._rejoin()
                    break
            else:
                raise NodeStopped("the node or the group was closed")

    def _on_event(self, event: Batch | View) -> None:
        engine = self._engine
        if isinstance(event, View):
            self._view = None if event.transitional else event
            if not event.transitional:
                self._here = frozenset(event.members)
            engine.on_view(event.ring, event.transitional, attempt_at(event.position))
            return
        if event.writer or event.to:
            return  # whoever publishes into the group, or to some of it, is no replica
        sender = event.sender
        if sender not in self._here:
            self.refused[sender] += len(event.bodies)
            return
        for body in event.bodies:
            try:
                word = words.decode(body)
            except UNREADABLE:  # not from a replica
                self.refused[sender] += 1
                continue
            engine.on_word(sender, word)

    async def _rejoin(self) -> None:
        """Words went by unheard: this copy leaves the component, and comes back as a new member
        of the group, which makes all exchange what they have."""
        self._view, self._here = None, frozenset()
        self._engine.on_view(ViewId(0, self._me), True)
        self._step()
        self._words.clear()
        await self.group.leave()
        self.group = self.group.anew()
        await self.group.join()

    # --- the disk --------------------------------------------------------------------------

    def _synced(self, tickets: list[int]) -> None:
        try:
            for ticket in tickets:
                self._engine.synced(ticket)
        except Exception as error:
            self._stop(ended_by(error))
        self._step()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._check()
            self._engine.tick()
            now = asyncio.get_running_loop().time()
            _, asked_at = next(iter(self._reads.values()), (None, now))
            if now - asked_at > SILENCE_S:
                self._silent = True
                self._wake()
            if self._in_primary and not self._reads and now - self._fresh_at > 2 * TICK_S:
                self._barrier()
            self._step()
            if self._disk.too_long:
                await self._compact()

    async def _compact(self) -> None:
        """RS-15: the state is written beside the log, which goes on meanwhile."""
        at = self._engine.applied
        if at > self._engine.log.trimmed:
            image = Image(at, await self._applied.state())
            await self._disk.keep(image)
            self._engine.compact(image)
            self._step()
        else:
            self._disk.rewrite()
            self._disk.turn()

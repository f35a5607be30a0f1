"""Replica: a state machine kept the same at all members of a group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from ringcast.api.available import AvailableCopy, Merge
from ringcast.api.group import Bytes, Group
from ringcast.api.quorum import QuorumCopy
from ringcast.api.state_machine import Local, NoQuorum, R, ResultLost, StateMachine
from ringcast.core.ids import NodeId
from ringcast.replica.sessions import CommandFailed, RequestTooOld

__all__ = [
    "CommandFailed",
    "Local",
    "NoQuorum",
    "Replica",
    "RequestTooOld",
    "ResultLost",
    "StateMachine",
]

T = TypeVar("T")


def _check_machine(machine: object) -> None:
    """What cannot be a machine is refused before its first command is in the log of all."""
    if not isinstance(machine, StateMachine):
        raise TypeError(f"a machine is an object of a subclass of StateMachine, not {machine!r}")
    for name in ("apply", "on_view", "snapshot", "pieces", "restore"):
        if inspect.iscoroutinefunction(getattr(machine, name)):
            raise TypeError(f"{type(machine).__name__}.{name} cannot be async: nobody awaits it")


class Replica(Generic[R]):
    """One member's copy. Use ``async with Replica(node.join(name), machine, members=3, dir=...)``.

    Every member of the group must be a replica of the same kind of machine. ``members`` are the
    voters: how many, or their ids; ``dir`` is this replica's own folder. With
    ``consistency="available"`` there are neither: every part of a partition goes on, and ``merge``
    makes one state of several.
    """

    def __init__(
        self,
        group: Group,
        machine: StateMachine[R],
        members: int | Iterable[NodeId] | None = None,
        dir: str | Path | None = None,
        consistency: Literal["quorum", "available"] = "quorum",
        merge: Merge | None = None,
    ) -> None:
        _check_machine(machine)
        self._copy: QuorumCopy[R] | AvailableCopy[R]
        if consistency == "available":
            if merge is None or members is not None or dir is not None:
                raise ValueError(
                    'consistency="available" takes merge=, and neither members nor dir'
                )
            self._copy = AvailableCopy(group, machine, merge)
        elif consistency == "quorum":
            if members is None or not dir or merge is not None:  # "" would be where we run
                raise ValueError(
                    "a quorum needs members= (how many there are, or their ids) and dir= (a folder "
                    'of this replica\'s own); or say consistency="available" and give merge='
                )
            if isinstance(members, str):
                raise ValueError(f"members = {members!r}: a number, or the ids of the members")
            listed = () if isinstance(members, int) else tuple(members)
            voters = members if isinstance(members, int) else frozenset(listed)
            if len(set(listed)) < len(listed) or not all(1 <= node < 2**32 for node in listed):
                raise ValueError(f"members = {members}: ids are 1 to 2^32 - 1, each named once")
            if not 1 <= (voters if isinstance(voters, int) else len(voters)) <= 100:
                raise ValueError(f"members = {members}: there are 1 to 100")
            if isinstance(voters, int) and len(group.listed) > voters:
                raise ValueError(
                    f"members = {voters}, and peers lists {len(group.listed)} nodes: by number, "
                    f"any {voters} with empty folders would found a state of their own; name the "
                    f"voters, such as members={sorted(group.listed)[:voters]}"
                )
            self._copy = QuorumCopy(group, machine, voters, Path(dir))
        else:
            raise ValueError(f"consistency {consistency!r}: it is 'quorum' or 'available'")
        self.machine = machine

    @property
    def group(self) -> Group:
        """The group, for its members and its name; another one after events were lost."""
        return self._copy.group

    async def __aenter__(self) -> Replica[R]:
        """Join the group. With a quorum the state is that of the disk when this returns."""
        await self._copy.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._copy.close()

    async def submit(
        self,
        command: Bytes,
        *,
        client: str | None = None,
        request: int | None = None,
        timeout: float | None = None,
    ) -> R:
        """Have a command applied everywhere; its result, once it is confirmed.

        A request of a client that was applied before gives what it gave then. ``NoQuorum`` after
        ``timeout`` seconds; without one this waits. When cancelled, the command may still be
        applied.
        """
        if isinstance(self._copy, AvailableCopy):
            if (client, request, timeout) != (None, None, None):
                raise ValueError("client, request and timeout need a quorum")
            return await self._copy.submit(command)
        return await self._copy.submit(command, client, request, timeout)

    async def read(self, look: Callable[[Any], T], timeout: float | None = None) -> T:
        """``look(machine)``, with all in it that was confirmed before this call, by anybody."""
        return await self._quorum("read").read(look, timeout)

    def local(self, look: Callable[[Any], T]) -> Local[T]:
        """``look(machine)`` at once, with its age in seconds."""
        return self._quorum("local").local(look)

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until this copy is up to date: with a quorum, until a majority goes on."""
        if isinstance(self._copy, AvailableCopy):
            await self._copy.ready()
        else:
            await self._copy.ready(timeout)

    @property
    def primary(self) -> bool:
        """Whether this copy is up to date and goes on with a majority."""
        return self._quorum("primary").primary

    @property
    def refused(self) -> dict[NodeId, int]:
        """How many messages of its group this copy has refused, by sender: of those that are not in
        the group, and what no copy says."""
        return dict(self._copy.refused)

    async def until(self, met: Callable[[Any], bool]) -> None:
        """Wait until ``met(machine)`` here, which is looked at after each change of the state and
        of the quorum; raises what ends the replica."""
        await self._quorum("until").until(met)

    async def wait(self) -> None:
        """Wait until the node or the replica ends; raises what ended it."""
        await self._copy.wait()

    def _quorum(self, name: str) -> QuorumCopy[R]:
        if isinstance(self._copy, AvailableCopy):
            raise ValueError(f"replica.{name} needs a quorum; look at replica.machine")
        return self._copy

"""Reliable broadcast: what one correct member hands up, all correct members hand up.

The sender sends to every member, and so does each member at its first sight of a message, before
it hands it up: if the sender crashes halfway, whoever has the message passes it on. A message has
a key, and is handed up once, whoever sent it: two members that ask for the same thing under one
key ask once.

It is not uniform: a member that crashes may have handed up what no other ever sees. Frames must
not be lost, so an owner lets a reliable channel carry them (``Owned``, ``over``).

Source: Chandra and Toueg, JACM 43(2), 1996. Rules: B1 to B4.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted
from ringcast.core.machine import Impossible, Machine, Table

T = TypeVar("T")

MOST_KEYS = 4096
"""Keys of one view; a member that makes more of them is not following a protocol."""

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Phase(StrEnum):
    """There is but one."""

    RELAYING = "Relaying"


class Relay(msgspec.Struct, Generic[T], frozen=True, array_like=True, tag=35, gc=False):
    """``origin`` broadcasts ``payload`` under ``key``; the sender passes it on."""

    origin: NodeId
    key: Key
    payload: T


class HandedUp(msgspec.Struct, frozen=True, gc=False):
    """To the owner: this was broadcast, by ``origin`` and perhaps by others."""

    origin: NodeId
    key: str
    payload: Message


class ReliableBroadcast(Machine):
    """One member's part."""

    def __init__(self, me: NodeId, members: tuple[NodeId, ...] = ()) -> None:
        super().__init__()
        self.me = me
        self.phase: Phase = Phase.RELAYING
        self.members = members
        self._seen: set[str] = set()
        self._seen_before: set[str] = set()

    def start(self, env: Env, event: Started) -> None:
        """Nothing is under way yet."""

    @property
    def ready(self) -> bool:
        """It takes no submissions."""
        return False

    def admit(self, env: Env, event: Received) -> bool:
        """Members only."""
        if event.src in self.members and event.src != self.me:
            return True
        env.drop("B1", "a relay of somebody who is no member")
        return False

    def among(self, env: Env, members: tuple[NodeId, ...]) -> None:
        """B3: broadcast among these from now on; keys are remembered for one more view."""
        self.members = members
        self._seen_before, self._seen = self._seen, set()

    def broadcast(self, env: Env, key: str, payload: Message) -> None:
        """B1: let all members hand up ``payload``, unless ``key`` was seen here before."""
        self._first(env, self.me, Relay(self.me, key, payload))

    def on_relay(self, env: Env, event: Received) -> None:
        """B1: at first sight, pass it on to all and then hand it up."""
        assert isinstance(event.message, Relay)
        self._first(env, event.src, event.message)

    def _first(self, env: Env, src: NodeId, relay: Relay[Message]) -> None:
        """B2: passed on before it is handed up: whoever acts upon it has told the others."""
        if relay.key in self._seen or relay.key in self._seen_before:
            return
        if len(self._seen) >= MOST_KEYS:
            env.drop("B3", "a key over the bound")
            return
        self._seen.add(relay.key)
        for node in self.members:
            if node not in (self.me, src, relay.origin):  # B4: these have it
                env.send(node, relay)
        env.up(HandedUp(relay.origin, relay.key, relay.payload))

    def snapshot(self) -> dict[str, object]:
        """How many keys are remembered."""
        return {"keys": len(self._seen) + len(self._seen_before)}

    table: ClassVar[Table] = Table(
        Phase,
        (Relay,),
        (),
        {
            (Phase.RELAYING, Submitted): Impossible("the owner calls broadcast"),
            (Phase.RELAYING, Leaving): Impossible("the owner leaves, not its part"),
            (Phase.RELAYING, Relay): on_relay,
        },
    )

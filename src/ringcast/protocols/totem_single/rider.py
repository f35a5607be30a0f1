"""A rider: what a protocol above the ring has to say inside it (totem-multiple-ring 2.3).

Totem multiple-ring stamps messages at the moment they are transmitted and adds fields to token,
Commit token and Join. It gives the ring a rider: the ring calls it at these points, and carries
its payload in these frames: a ``stamp`` of three numbers in messages, a ``ride`` in the others.
What they mean only the rider knows. All methods get the ring's ``env``, so what a rider persists is
durable before the frame leaves (MR-6).

Without a rider nothing is called, and the frames carry a nil.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.protocols.totem_single.messages import (
    CommitToken,
    Join,
    Regular,
    RingId,
    Stamp,
    Token,
)

if TYPE_CHECKING:
    from ringcast.protocols.totem_single.ring import Ring


class Rider(Protocol):
    """What a ring calls, at the points where it does what the name says."""

    def malformed(self, frame: Token | CommitToken | Join) -> str | None:
        """Why the ride of a frame that arrived is not acceptable, as a fixed phrase, or None.

        The ring drops and counts such a frame before it looks at anything else in it.
        """

    margins: Mapping[int, int]
    """Bytes that frames of some sorts leave free, so that they can be passed on in a frame."""

    @property
    def window(self) -> int:
        """Frames of these sorts that may leave in one visit (W2)."""

    services: tuple[Level, ...]
    """By sort: the level at which its frames travel on the ring (G-15)."""

    def message_transmitted(
        self,
        env: Env,
        ring_id: RingId,
        seq: int,
        sort: int,
        whole: tuple[bytes, ...],
    ) -> Stamp:
        """A frame gets its number on the ring (MR-5, MR-9): its stamp.

        ``sort`` is what its messages were submitted with, ``whole`` the messages that end in it: a
        large one comes part by part, and has its stamp in the last. What is originated with it the
        rider tells ``env``.
        """

    def message_ready(self, env: Env, ring: Ring, view: RingId, message: Regular) -> None:
        """A frame is next in the ring's order, in configuration ``view`` (MR-12): the rider hands
        it up (``delivery.hand_up``), or delivers what is in it."""

    def token_received(self, env: Env, token: Token) -> None:
        """The ring accepts a token (MR-4, MR-42, MR-43)."""

    def token_released(self, env: Env, token: Token) -> bytes | None:
        """The ring passes the token on: the ride it leaves with (MR-5, MR-44).

        If it has to be sent again, it is sent with the same ride.
        """

    def messages_held(self, messages: Iterable[Regular]) -> None:
        """Frames of the ring that is given up, received and not next in its order yet: before the
        Commit token passes for the first time (MR-4)."""

    def commit_token_passed(self, env: Env, token: CommitToken, rotation: int) -> bytes | None:
        """The Commit token passes, in rotation 1 or 2, with my entry in it: its ride from here on.

        Its ride is what the member before me made of it; the representative begins the first
        rotation with None. In the second one everybody sees what the first collected (MR-3). A
        ring of one has both at once.
        """

    def join_built(self, env: Env) -> bytes | None:
        """A Join is sent: its ride (G-7)."""

    def join_received(self, env: Env, join: Join) -> None:
        """A well-formed Join arrived, in whatever phase (R32)."""

    def ring_seq(self) -> int:
        """The largest ring number known from elsewhere: a new ring's is above it (MR-8)."""

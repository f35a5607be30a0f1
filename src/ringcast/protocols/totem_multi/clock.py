"""One clock for all rings of a processor, and the rider that carries it on each (MR-1 to MR-9).

A Lamport clock: a message is stamped once, when its ring transmits it. The clock rises with all
that is received, and survives a crash in steps of ``timestamp_interval`` (G-2). The rider takes it
along in the token, lets the Commit token collect the clocks of the members, and tells
in its second rotation when the new ring begins and who on it is a gateway.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from ringcast.blocks.packing import Contents
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.protocols.totem_multi.flow import Blocks, Brakes
from ringcast.protocols.totem_multi.messages import Member, stamped, wants_stamp
from ringcast.protocols.totem_single.messages import (
    LAST,
    MAX_MEMBERS,
    CommitToken,
    Join,
    RingId,
    Token,
)

CLOCK = "clock"
"""Stable storage: no stamp reaches this value plus the interval (MR-6)."""

LAST_TIMESTAMP = 2**40
"""Largest timestamp accepted from others: views have room for it, and for a ring's number."""

BAD_RIDE = "a ride that is none of multiple-ring's"


class LamportClock:
    """MR-1: ``my_timestamp``, its stable bound, and the largest ring number seen anywhere."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.my_timestamp = 0
        self.my_stable_timestamp = 0
        self.my_future_ring_seq = 0

    def start(self, env: Env, stable: int) -> None:
        """MR-1, G-2: begin an interval above what is stable."""
        self.my_stable_timestamp = self.my_timestamp = stable + self.interval
        env.persist(CLOCK, self.my_stable_timestamp)

    def see(self, timestamp: int) -> None:
        """MR-4: something that was stamped elsewhere is received."""
        if timestamp > self.my_timestamp:
            self.my_timestamp = timestamp

    def see_ring(self, ring: RingId) -> None:
        """MR-7: new rings get numbers above it. Only what a node has told counts after a restart,
        and T of the ring is above all that its members have seen: it need not be stable."""
        if ring.seq > self.my_future_ring_seq:
            self.my_future_ring_seq = ring.seq

    def tick(self, env: Env) -> int:
        """MR-5, G-1: increment, then stamp."""
        self.my_timestamp += 1
        self.keep(env)
        return self.my_timestamp

    def keep(self, env: Env) -> None:
        """MR-6: every timestamp that leaves is below the stable one plus the interval."""
        if self.my_timestamp >= self.my_stable_timestamp + self.interval:
            self.my_stable_timestamp = self.my_timestamp
            env.persist(CLOCK, self.my_stable_timestamp)


Stamp = Annotated[int, msgspec.Meta(ge=0, le=LAST_TIMESTAMP)]


class TokenRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On the regular token: the clock, and who is congested."""

    timestamp: Stamp
    blocks: Blocks = ()


class CommitRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On the Commit token: the clock, and the members that have signed."""

    timestamp: Stamp
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=MAX_MEMBERS)]


class JoinRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On a Join, G-7: the largest ring number seen, apart from that of the ring given up."""

    future_ring_seq: Annotated[int, msgspec.Meta(ge=0, le=LAST)]


_encode = msgspec.msgpack.Encoder().encode
_token = msgspec.msgpack.Decoder(TokenRide).decode
_commit = msgspec.msgpack.Decoder(CommitRide).decode
_join = msgspec.msgpack.Decoder(JoinRide).decode
RIDES: dict[type, Any] = {Token: _token, CommitToken: _commit, Join: _join}


class Beginning(msgspec.Struct, frozen=True):
    """What the Commit token told of a ring: its first timestamp, and its members."""

    timestamp: int
    members: tuple[Member, ...]


class ClockRider:
    """What the clock does on one ring of a processor (``totem_single.rider``)."""

    def __init__(self, clock: LamportClock, mine: Member, brakes: Brakes) -> None:
        self.clock, self.mine, self.brakes = clock, mine, brakes
        self.begins: dict[RingId, Beginning] = {}
        self.held_back = False
        """G-15: what is originated here goes up when all members of the ring have it."""

    def malformed(self, frame: Token | CommitToken | Join) -> str | None:
        """Rides are decoded with all their bounds, before anything else is done with a frame."""
        try:
            ride = RIDES[type(frame)](frame.ride or b"")
        except msgspec.MsgspecError:
            return BAD_RIDE
        if isinstance(ride, CommitRide) and isinstance(frame, CommitToken):
            signed = tuple(member.pid for member in ride.members)
            return BAD_RIDE if signed != frame.memb[: frame.memb_index] else None
        return None

    def service(self, level: Level) -> Level:
        """G-15, A2: the level at which a message travels on this ring."""
        return Level.SAFE if self.held_back else level

    def message_transmitted(self, env: Env, ring_id: RingId, contents: Contents) -> Contents:
        """MR-5, MR-9: each message of the frame gets a timestamp of its own; one that was cut up
        gets it with its last piece."""
        if not contents.last:
            return contents
        tick = self.clock.tick
        bodies = tuple(
            stamped(body, tick(env)) if wants_stamp(body) else body for body in contents.bodies
        )
        return replace(contents, bodies=bodies)

    def token_received(self, env: Env, token: Token) -> None:
        """MR-4."""
        ride = _token(token.ride or b"")
        self.clock.see(ride.timestamp)
        self.brakes.hear(ride.blocks)

    def token_released(self, env: Env, token: Token) -> bytes | None:
        """MR-5."""
        self.clock.keep(env)
        return _encode(TokenRide(self.clock.my_timestamp, self.brakes.told()))

    def commit_token_passed(self, env: Env, token: CommitToken, rotation: int) -> bytes | None:
        """MR-3: collect, then show. G-7: the representative adds 1, so that the ring begins above
        all that its members have seen."""
        clock = self.clock
        ride = _commit(token.ride) if token.ride else CommitRide(0, ())
        clock.see(ride.timestamp)
        if rotation == 1:
            clock.keep(env)
            return _encode(CommitRide(clock.my_timestamp, (*ride.members, self.mine)))
        if self.mine.pid == token.ring_id.rep:
            ride = CommitRide(clock.my_timestamp + 1, ride.members)
            clock.see(ride.timestamp)
        clock.keep(env)
        self.begins = {token.ring_id: Beginning(ride.timestamp, ride.members)}
        return _encode(ride)

    def join_built(self, env: Env) -> bytes | None:
        """G-7."""
        return _encode(JoinRide(self.clock.my_future_ring_seq))

    def join_received(self, env: Env, join: Join) -> None:
        """G-7: MR-8 wants the largest of all members."""
        ride = _join(join.ride or b"")
        self.clock.my_future_ring_seq = max(self.clock.my_future_ring_seq, ride.future_ring_seq)

    def ring_seq(self) -> int:
        """MR-8."""
        return self.clock.my_future_ring_seq

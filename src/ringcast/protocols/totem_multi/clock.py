"""One clock for all rings of a processor, and the rider that carries it on each (MR-1 to MR-9).

A Lamport clock: a message is stamped once, when its ring transmits it. The clock rises with all
that is received, and survives a crash in steps of ``timestamp_interval`` (G-2). The rider takes it
along in the token, lets the Commit token collect the clocks of the members, and tells
in its second rotation when the new ring begins and who on it is a gateway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from ringcast.core.effects import Deliver, Originate, PackedMessages
from ringcast.core.env import Env
from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import Level, ViewId
from ringcast.protocols.totem_multi.flow import FREE, Blocks, Brakes
from ringcast.protocols.totem_multi.messages import (
    FORWARDED_BYTES,
    LAST_TIMESTAMP,
    LEVELS,
    Member,
    Sort,
    fresh,
    legible,
)
from ringcast.protocols.totem_single.messages import (
    LAST,
    MAX_MEMBERS,
    REACH,
    CommitToken,
    Join,
    Regular,
    RingId,
    Stamp,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring

CLOCK = "clock"
"""Stable storage: no stamp reaches this value plus the interval (MR-6)."""

BAD_RIDE = "a ride that is none of multiple-ring's"
OUT_OF_REACH = "a timestamp that is out of reach"

CLOCK_REACH = 2**36
"""MR-4 ext: how much one frame may raise the clock. A hundred thousand messages a second take eight
days for that; a processor further behind catches up with the frames that follow."""

STARTS, SPREAD = 2**19, 0x9E3779B1
"""MR-8 ext: how many numbers there are to begin at, few enough for those of views to rise with
those of rings (``messages.RING_BITS``); and what keeps starts apart that follow each other."""


class LamportClock:
    """MR-1: ``my_timestamp``, its stable bound, and the largest ring number seen anywhere."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.my_timestamp = 0
        self.my_stable_timestamp = 0
        self.limit = interval  # stamps below it may leave
        self.my_future_ring_seq = 0

    def start(self, env: Env, stable: int | None, boot: int = 0) -> None:
        """MR-1, G-2: begin an interval above what is stable.

        MR-8 ext, G-5: if nothing is, there may have been rings that this processor has forgotten,
        and others may still be on them. Its own begin at a number drawn from the second in which it
        started: two messages would have one place otherwise."""
        if stable is None:
            self.my_future_ring_seq = 4 * ((boot >> 20) * SPREAD % STARTS)
        self.my_timestamp = (stable or 0) + self.interval
        self._write(env)

    def see(self, timestamp: int) -> None:
        """MR-4: something that was stamped elsewhere is received, and in reach."""
        if timestamp > self.my_timestamp:
            self.my_timestamp = timestamp

    def reaches(self, timestamp: int) -> bool:
        """MR-4 ext: whether a frame with this timestamp may be taken. One with the last that there
        is would be the end of the network."""
        reach = self.my_timestamp + CLOCK_REACH
        if timestamp > min(reach, LAST_TIMESTAMP):
            self.my_timestamp = min(reach, LAST_TIMESTAMP)
            return False
        return True

    def see_ring(self, ring: RingId) -> None:
        """MR-7: new rings get numbers above it. Only what a node has told counts after a restart,
        and T of the ring is above all that its members have seen: it need not be stable."""
        if ring.seq > self.my_future_ring_seq:
            self.my_future_ring_seq = min(ring.seq, self.my_future_ring_seq + REACH)

    def tick(self, env: Env, times: int = 1) -> int:
        """MR-5, G-1: increment, then stamp; the first of so many timestamps."""
        first = self.my_timestamp + 1
        self.my_timestamp += times
        self.keep(env)
        return first

    def keep(self, env: Env) -> None:
        """MR-6: every timestamp that leaves is below the stable one plus the interval."""
        if self.my_timestamp >= self.limit:
            self._write(env)

    def _write(self, env: Env) -> None:
        if self.my_timestamp + self.interval > LAST_TIMESTAMP:
            env.stop(
                "the timestamps of this network are used up; start it anew, all members with "
                "an empty state_dir"
            )
            return
        self.my_stable_timestamp = self.my_timestamp
        self.limit = self.my_timestamp + self.interval
        env.persist(CLOCK, self.my_stable_timestamp)


Timestamp = Annotated[int, msgspec.Meta(ge=0, le=LAST_TIMESTAMP)]


class TokenRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On the regular token: the clock, and who is congested."""

    timestamp: Timestamp
    blocks: Blocks = ()


class CommitRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On the Commit token: the clock, and the members that have signed."""

    timestamp: Timestamp
    members: Annotated[tuple[Member, ...], msgspec.Meta(max_length=MAX_MEMBERS)]


class JoinRide(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """On a Join, G-7: the largest ring number seen, apart from that of the ring given up."""

    future_ring_seq: Annotated[int, msgspec.Meta(ge=0, le=LAST)]


_encode = msgspec.msgpack.Encoder().encode
_token = msgspec.msgpack.Decoder(TokenRide).decode
_commit = msgspec.msgpack.Decoder(CommitRide).decode
_join = msgspec.msgpack.Decoder(JoinRide).decode
RIDES: dict[type, Any] = {CommitToken: _commit, Join: _join}


SAID = Sort.SAID
SERVICES = (Level.AGREED, Level.SAFE, Level.AGREED, Level.AGREED)
"""By sort, on a ring without gateways."""


class Beginning(msgspec.Struct, frozen=True):
    """What the Commit token told of a ring: its first timestamp, and its members."""

    timestamp: int
    members: tuple[Member, ...]


class RingFrame(msgspec.Struct, frozen=True, gc=False):
    """What a ring has for the core: messages that are whole with a frame, in configuration
    ``view``."""

    view: RingId
    message: Regular
    bodies: tuple[bytes, ...]


class ClockRider:
    """What the clock does on one ring of a processor (``totem_single.rider``)."""

    def __init__(self, clock: LamportClock, mine: Member, brakes: Brakes) -> None:
        self.clock, self.mine, self.brakes = clock, mine, brakes
        self._node = mine.node
        self.begins: dict[RingId, Beginning] = {}
        self.margins: Mapping[int, int] = {}
        self.services: tuple[Level, ...] = SERVICES
        """G-15, A2: the level at which messages of each sort travel on this ring."""
        self.at_once: RingId | None = None
        """The ring, if it is the only one and nothing waits: what it hands up is delivered."""
        self.view = ViewId(0, mine.node)  # in this topology
        self.heard = 0  # the last timestamp of what was
        self._next = 1  # the number of the next of my application's messages
        self._read: tuple[object, TokenRide] | None = None

    def install(self, gateways: int, acyclic: bool) -> None:
        """A ring with so many gateways is installed. Without any, nobody but its members gets what
        it orders, and it delivers safe messages by itself. G-15: with several, what is originated
        there goes up when all members have it."""
        of_applications = (Sort.AGREED, Sort.SAFE, Sort.SOME)
        self.margins = dict.fromkeys(of_applications, FORWARDED_BYTES) if gateways else {}
        held_back = gateways > 1 and not acyclic
        self.services = SERVICES
        if gateways:
            self.services = (Level.SAFE if held_back else Level.AGREED,) * len(SERVICES)

    @property
    def window(self) -> int:
        """W2."""
        return self.brakes.window

    def malformed(self, frame: Token | CommitToken | Join) -> str | None:
        """Rides are decoded with all their bounds, before anything else is done with a frame."""
        if type(frame) is Token:
            try:
                ride = _token(frame.ride or b"")
            except UNREADABLE:
                return BAD_RIDE
            self._read = (frame, ride)
            return None if self.clock.reaches(ride.timestamp) else OUT_OF_REACH
        try:
            ride = RIDES[type(frame)](frame.ride or b"")
        except UNREADABLE:
            return BAD_RIDE
        if isinstance(ride, CommitRide) and isinstance(frame, CommitToken):
            signed = tuple(member.pid for member in ride.members)
            if signed != frame.memb[: frame.memb_index]:
                return BAD_RIDE
            return None if self.clock.reaches(ride.timestamp) else OUT_OF_REACH
        return None

    def message_transmitted(
        self,
        env: Env,
        ring_id: RingId,
        seq: int,
        sort: int,
        whole: tuple[bytes, ...],
    ) -> Stamp:
        """MR-5, MR-9: the messages of a frame get their timestamp; one that was cut up gets it with
        its last piece."""
        clock, first = self.clock, self._next
        if sort >= SAID:
            if sort == SAID:
                return sort, clock.tick(env, fresh(whole)), 0
            self._next = first + len(whole)
            return sort, clock.tick(env, len(whole)), first  # F1: no trace tells of their origin
        self._next = first + len(whole)
        clock.my_timestamp = at = clock.my_timestamp + 1  # ``tick``, written out for every frame
        if at >= clock.limit:
            clock.keep(env)
        level = LEVELS[sort]
        batch = PackedMessages(ring_id, at, self._node, level, first, whole, at)
        env.effects.append(Originate(batch))
        return sort, at, first

    def message_ready(self, env: Env, ring: Ring, view: RingId, message: Regular) -> None:
        """MR-14: on the only ring, what comes next is next. Everything else is the core's."""
        contents, sender, stamp = message.contents, message.sender_id, message.stamp
        bodies = contents.bodies
        if contents.part or not contents.last or ring.assembler.begun:
            if (whole := ring.assembler.add(sender, contents)) is None:
                return
            bodies = whole
        if view is self.at_once and stamp:
            sort, at, first = stamp
            level = message.service
            clock = self.clock
            reach = clock.my_timestamp + CLOCK_REACH  # as ``reaches``, without the call
            if sort == level and self.heard < at <= LAST_TIMESTAMP and at <= reach:
                self.heard = at
                if at > clock.my_timestamp:
                    clock.my_timestamp = at
                    if at >= clock.limit:
                        clock.keep(env)
                batch = PackedMessages(view, at, sender, level, first, bodies, at)
                env.effects.append(Deliver(self.view, batch))
                return
        env.up(RingFrame(view, message, bodies))

    def token_received(self, env: Env, token: Token) -> None:
        """MR-4, MR-42; W2: an application's messages originate at the first interface (G-4)."""
        read, self._read = self._read, None
        ride = read[1] if read and read[0] is token else _token(token.ride or b"")
        clock = self.clock
        if ride.timestamp > clock.my_timestamp:
            clock.my_timestamp = ride.timestamp
        brakes = self.brakes
        if ride.blocks:
            brakes.hear(ride.blocks)
        if (brakes.table or brakes.window < FREE) and self.mine.pid == self.mine.node:
            brakes.rotate()

    def token_released(self, env: Env, token: Token) -> bytes | None:
        """MR-5, MR-44; MR-40: what left the queues in this visit may have ended a block."""
        clock, brakes = self.clock, self.brakes
        at = clock.my_timestamp
        if at >= clock.limit:
            clock.keep(env)
        if brakes.mine:
            brakes.look()
        return _encode(TokenRide(at, brakes.told()))

    def messages_held(self, messages: Iterable[Regular]) -> None:
        """MR-4, G-7: what was received counts as seen, although a stamp is read when its frame is
        next: a ring must begin above it."""
        for message in messages:
            if message.stamp is not None and legible(message.stamp):
                last = message.stamp[1] + len(message.contents.bodies)
                if self.clock.reaches(last):
                    self.clock.see(last)

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
        self.clock.see_ring(RingId(ride.future_ring_seq, 0))

    def ring_seq(self) -> int:
        """MR-8."""
        return self.clock.my_future_ring_seq

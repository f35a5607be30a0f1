"""A reliable channel over fair-lossy links: each peer gets what was sent to it, once, in order.

Frames may be lost, come twice or out of order. A packet is sent again, with doubling intervals,
until a cumulative acknowledgement covers it; at most ``window`` are under way to a peer and at
most ``queue`` wait, so ``send`` can be refused. A peer that never answers costs a packet now and
then until the owner says ``reset``, which gives up what is queued.

A payload that does not fit a frame travels in pieces, if the owner says how large one may be and
what types payloads have; it is whole again before it goes up.

What is delivered comes to the owner as ``Arrived``. Nothing survives a restart of either side:
packets name a stream, acknowledgements the incarnation they are meant for. A peer that starts
again may get what its earlier incarnation did not acknowledge; who cannot bear that names views
or attempts in its messages, as ``membership`` does.

Rules: C1 to C6.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ringcast.core.env import Env
from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import NodeId, Seq
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Impossible, Machine, Table

T = TypeVar("T")

MOST_PEERS = 256
"""Incarnations of peers whose packets are told apart; beyond it, the oldest is forgotten."""

AGAIN = 8
"""Packets sent again at one timeout: the receiver keeps what it has, so few are missing."""


class Phase(StrEnum):
    """There is but one."""

    OPEN = "Open"


class Timer(StrEnum):
    """One timer for all peers, at the earliest of their timeouts."""

    RESEND = "channel resend"


class Packet(msgspec.Struct, Generic[T], frozen=True, array_like=True, tag=20, gc=False):
    """``payload`` is number ``seq`` of a stream; everything below ``base`` is acknowledged."""

    stream: Seq
    seq: Seq
    base: Seq
    payload: T

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        measure = getattr(self.payload, "wire_bytes", None)
        return PACKET_BYTES + (measure() if measure else len(_encode(self.payload)))


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """Everything up to ``upto`` of a stream of incarnation ``boot`` has arrived."""

    boot: Seq
    stream: Seq
    upto: Seq


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=34, gc=False):
    """C5: number ``at`` of the pieces of a payload that is too large for one packet."""

    at: Seq
    last: bool
    data: bytes


PACKET_BYTES = 28
"""What a packet adds to its payload."""

MOST_BYTES = 64 * 2**20
"""C5: of payloads that are not whole yet, of all peers together: a peer that sends more is not
following a protocol, and whoever has most of it loses its own."""

_encode = msgspec.msgpack.Encoder().encode


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the next payload of a peer's incarnation."""

    src: NodeId
    boot: int
    payload: Message


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and times of a channel."""

    resend_us: int = 20_000
    """First timeout of a packet, and the least …"""
    resend_max_us: int = 500_000
    """… and the most, after doubling."""
    window: int = 32
    queue: int = 4096
    piece_bytes: int = 0
    """C5: most bytes of a payload in one packet; 0: every payload fits."""


class Outgoing:
    """One peer's packets: under way from ``base`` on, then waiting."""

    __slots__ = ("base", "deadline_us", "stream", "timed", "timeout_us", "trip_us", "under_way",
                 "waiting")  # fmt: skip

    def __init__(self, stream: int, timeout_us: int) -> None:
        self.stream = stream
        self.base = 1
        self.under_way: deque[Message] = deque()
        self.waiting: deque[Message] = deque()
        self.timeout_us = timeout_us
        self.deadline_us = 0  # 0: nothing is under way
        self.trip_us = 0  # smoothed round-trip time, 0 until one was measured
        self.timed = (0, 0)  # the packet that is being timed, and since when


class Incoming:
    """What came of one stream: the number expected next, and what came before its turn."""

    __slots__ = ("bytes", "early", "expected", "pieces", "stream")

    def __init__(self, stream: int, expected: int) -> None:
        self.stream = stream
        self.expected = expected
        self.early: dict[int, Message] = {}
        self.pieces: list[bytes] = []  # of a payload that is not whole yet
        self.bytes = 0  # in them


class Channel(Machine):
    """One processor's channels to all others. ``payloads`` is the type of what may need pieces."""

    def __init__(self, me: NodeId, settings: Settings, payloads: Any = msgspec.Struct) -> None:
        super().__init__()
        self.me = me
        self.settings = settings
        self.phase: Phase = Phase.OPEN
        self._boot = 0
        self._out: dict[NodeId, Outgoing] = {}
        self._in: dict[tuple[NodeId, int], Incoming] = {}
        self._joining = 0  # bytes of payloads that are not whole yet
        self._armed_us = 0
        self._decode = msgspec.msgpack.Decoder(payloads).decode if settings.piece_bytes else None

    def start(self, env: Env, event: Started) -> None:
        """Acknowledgements of an earlier life must not count."""
        self._boot = event.boot

    def admit(self, env: Env, event: Received) -> bool:
        """Malformed packets go no further."""
        message = event.message
        if type(message) is Packet and not 1 <= message.base <= message.seq:
            env.drop("channel", "malformed packet")
            return False
        return True

    @property
    def ready(self) -> bool:
        """Whether every peer's queue has room."""
        return all(self.room(peer) for peer in self._out)

    def room(self, peer: NodeId) -> bool:
        """C6: whether ``send`` would be accepted. What is for the owner itself it keeps."""
        out = self._out.get(peer)
        return out is None or len(out.waiting) < self.settings.queue

    @property
    def waiting(self) -> int:
        """Payloads that have not arrived, as far as is known."""
        return sum(len(out.under_way) + len(out.waiting) for out in self._out.values())

    def owes(self, peer: NodeId) -> bool:
        """Whether something has not arrived there, as far as is known."""
        out = self._out.get(peer)
        return out is not None and bool(out.under_way or out.waiting)

    # --- sending ------------------------------------------------------------------------------

    def send(self, env: Env, to: NodeId, payload: Message) -> None:
        """C1: let ``payload`` arrive at ``to``, after everything sent there before."""
        out = self._out.get(to)
        if out is None:
            out = self._out[to] = Outgoing(1, self.settings.resend_us)
        pieces = self._pieces(payload) if self._decode else (payload,)
        if len(out.waiting) + len(pieces) > self.settings.queue:
            env.drop("channel", "a payload over the bound")
            return
        out.waiting.extend(pieces)
        self._transmit(env, to, out)
        self._arm(env)

    def _pieces(self, payload: Message) -> tuple[Message, ...]:
        """C5: what is too large for one packet, in pieces."""
        data, most = _encode(payload), self.settings.piece_bytes
        if len(data) <= most:
            return (payload,)
        chunks = [data[at : at + most] for at in range(0, len(data), most)]
        last = len(chunks) - 1
        return tuple(Piece(at, at == last, chunk) for at, chunk in enumerate(chunks))

    def reset(self, env: Env, peer: NodeId) -> None:
        """C3: give up what has not arrived at ``peer``; the next payload begins a new stream."""
        if self.owes(peer):
            out = self._out[peer]
            self._out[peer] = Outgoing(out.stream + 1, self.settings.resend_us)
            self._arm(env)

    def _transmit(self, env: Env, to: NodeId, out: Outgoing) -> None:
        """Send what the window lets through."""
        while out.waiting and len(out.under_way) < self.settings.window:
            payload = out.waiting.popleft()
            seq = out.base + len(out.under_way)
            out.under_way.append(payload)
            env.send(to, Packet(out.stream, seq, out.base, payload))
            if not out.timed[0]:
                out.timed = (seq, env.now_us)
            if not out.deadline_us:
                out.deadline_us = env.now_us + self._timeout_us(env, out)

    def _timeout_us(self, env: Env, out: Outgoing) -> int:
        """With some jitter, so that peers that lost touch together do not return together."""
        return out.timeout_us + env.rng.randrange(out.timeout_us // 4 + 1)

    def on_ack(self, env: Env, event: Received) -> None:
        """C2: what is covered has arrived; the window moves."""
        ack = event.message
        assert isinstance(ack, Ack)
        out = self._out.get(event.src)
        if out is None or ack.boot != self._boot or ack.stream != out.stream:
            env.drop("channel", "an acknowledgement of another stream")
            return
        covered = min(ack.upto - out.base + 1, len(out.under_way))
        if covered <= 0:
            return
        for _ in range(covered):
            out.under_way.popleft()
        out.base += covered
        if 0 < out.timed[0] < out.base:
            self._measure(env, out)
        out.deadline_us = env.now_us + self._timeout_us(env, out) if out.under_way else 0
        self._transmit(env, event.src, out)
        self._arm(env)

    def _measure(self, env: Env, out: Outgoing) -> None:
        """The timeout follows the round-trip time; a packet that was sent again tells nothing."""
        trip_us = env.now_us - out.timed[1]
        out.trip_us = (7 * out.trip_us + trip_us) // 8 if out.trip_us else trip_us
        least, most = self.settings.resend_us, self.settings.resend_max_us
        out.timeout_us = min(max(2 * out.trip_us, least), most)
        out.timed = (0, 0)

    def on_resend(self, env: Env, event: TimerFired) -> None:
        """C1: timeouts: the lowest packets go again, and the next timeout is longer."""
        now_us = max(env.now_us, self._armed_us)  # a timer may fire a little early
        self._armed_us = 0
        for peer, out in sorted(self._out.items()):
            if 0 < out.deadline_us <= now_us:
                for i in range(min(AGAIN, len(out.under_way))):
                    env.send(peer, Packet(out.stream, out.base + i, out.base, out.under_way[i]))
                out.timed = (0, 0)
                out.timeout_us = min(2 * out.timeout_us, self.settings.resend_max_us)
                out.deadline_us = env.now_us + self._timeout_us(env, out)
        self._arm(env)

    def _arm(self, env: Env) -> None:
        """The timer is set for the earliest timeout."""
        deadlines = [out.deadline_us for out in self._out.values() if out.deadline_us]
        earliest_us = min(deadlines, default=0)
        if earliest_us == self._armed_us:
            return
        self._armed_us = earliest_us
        if earliest_us:
            env.set_timer(Timer.RESEND, max(1, earliest_us - env.now_us))
        else:
            env.cancel_timer(Timer.RESEND)

    # --- receiving ----------------------------------------------------------------------------

    def on_packet(self, env: Env, event: Received) -> None:
        """C2: in its turn it goes up, and with it what waited for it; a copy is acknowledged
        again."""
        packet = event.message
        assert isinstance(packet, Packet)
        stream = self._incoming(event, packet)
        if packet.stream < stream.stream:
            env.drop("channel", "a packet of an earlier stream")
            return
        if packet.base > stream.expected:
            # An earlier life of mine acknowledged what lies between, and it is not sent again.
            stream.expected = packet.base
            stream.early = {at: it for at, it in stream.early.items() if at >= packet.base}
        if packet.seq >= stream.expected + self.settings.window:
            env.drop("channel", "a packet beyond the window")
            return
        if packet.seq >= stream.expected:
            stream.early[packet.seq] = packet.payload
        ready: list[Message] = []
        while stream.expected in stream.early:
            ready.append(stream.early.pop(stream.expected))
            stream.expected += 1
        env.send(event.src, Ack(event.boot, stream.stream, stream.expected - 1))
        for payload in ready:
            whole = payload if type(payload) is not Piece else self._joined(env, stream, payload)
            if whole is not None:
                env.up(Arrived(event.src, event.boot, whole))

    def _joined(self, env: Env, stream: Incoming, piece: Piece) -> Message | None:
        """C5: the payload that this piece completes. Of one whose first pieces an earlier life of
        mine has had, nothing goes up."""
        pieces = stream.pieces
        if piece.at == 0:
            self._forget_pieces(stream)
        if piece.at != len(pieces) or self._decode is None:
            env.drop("channel", "a piece without those before it")
            return None
        pieces.append(piece.data)
        stream.bytes += len(piece.data)
        self._joining += len(piece.data)
        if self._joining > MOST_BYTES:
            self._forget_pieces(max(self._in.values(), key=lambda each: each.bytes))
            env.drop("channel", "a payload that is too large")
        if piece.last and pieces:
            data = b"".join(pieces)
            self._forget_pieces(stream)
            try:
                whole: Message = self._decode(data)
                return whole
            except UNREADABLE:
                env.drop("channel", "pieces that make no payload")
        return None

    def _forget_pieces(self, stream: Incoming | None) -> None:
        if stream is not None:
            self._joining -= stream.bytes
            stream.bytes = 0
            stream.pieces.clear()

    def _incoming(self, event: Received, packet: Packet[Message]) -> Incoming:
        """The stream that a packet belongs to; a new one begins with what its sender still has."""
        key = (event.src, event.boot)
        stream = self._in.get(key)
        if stream is None or packet.stream > stream.stream:
            self._forget_pieces(self._in.pop(key, None))  # the newest is last
            if len(self._in) >= MOST_PEERS:
                self._forget_pieces(self._in.pop(next(iter(self._in))))
            stream = self._in[key] = Incoming(packet.stream, packet.base)
        return stream

    def snapshot(self) -> dict[str, object]:
        """How much has not arrived, and from how many incarnations something came."""
        return {"waiting": self.waiting, "streams": len(self._in)}

    table: ClassVar[Table] = Table(
        Phase,
        (Packet, Ack),
        Timer,
        {
            (Phase.OPEN, Submitted): Impossible("the owner calls send"),
            (Phase.OPEN, Leaving): Impossible("the owner leaves, not its channel"),
            (Phase.OPEN, Packet): on_packet,
            (Phase.OPEN, Ack): on_ack,
            (Phase.OPEN, Timer.RESEND): on_resend,
        },
    )

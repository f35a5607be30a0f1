"""A rider on the ring: stamps at transmission, rides in token, Commit token and Join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from driver import Bench, Phase, Timer, drops, entry, only, only_dropped, sent

from ringcast.blocks.packing import Contents
from ringcast.checks import suite
from ringcast.core.effects import Originate, PackedMessages, Persist, Send
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.registry import protocol
from ringcast.core.trace import Installed, TraceEvent
from ringcast.protocols.totem_single import Config, TotemSingle
from ringcast.protocols.totem_single.delivery import hand_up
from ringcast.protocols.totem_single.messages import (
    ENCAPSULATION_BYTES,
    LAST,
    STAMP_BYTES,
    CommitToken,
    Frame,
    Join,
    Regular,
    RingId,
    Stamp,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset

BAD = "a clock that cannot be read"


class Clock:
    """A rider with a logical clock: MR-3, MR-4 and MR-5, and a count of what was called."""

    def __init__(self, node: NodeId = 0) -> None:
        self.node = node
        self.now = 0
        self.numbered = 0
        self.margins: Mapping[int, int] = {}
        self.window = 0
        self.services: tuple[Level, ...] = (Level.AGREED, Level.SAFE)
        self.called: Counter[str] = Counter()
        self.stamps: list[tuple[RingId, int]] = []
        self.ready: list[Stamp] = []
        self.held: list[tuple[int, ...]] = []
        self.shown: list[tuple[RingId, int, tuple[NodeId, ...]]] = []  # by the second rotation

    def advance(self, ride: bytes | None) -> None:
        if ride is not None:
            self.now = max(self.now, int.from_bytes(ride[:8]))

    def malformed(self, frame: Token | CommitToken | Join) -> str | None:
        self.called["malformed"] += 1
        return BAD if frame.ride is None or len(frame.ride) % 8 else None

    def message_transmitted(
        self,
        env: Env,
        ring_id: RingId,
        seq: int,
        sort: int,
        whole: tuple[bytes, ...],
    ) -> Stamp:
        self.called["message"] += 1
        self.now += 1
        self.stamps.append((ring_id, self.now))
        env.persist("clock", self.now)
        first, level = self.numbered + 1, self.services[sort]
        self.numbered += len(whole)
        env.originate(PackedMessages(ring_id, seq, self.node, level, first, whole))
        return self.now, first, sort

    def message_ready(self, env: Env, ring: Ring, view: RingId, message: Regular) -> None:
        self.called["ready"] += 1
        self.ready.append(message.stamp)
        hand_up(env, ring, view, message)

    def token_received(self, env: Env, token: Token) -> None:
        self.called["received"] += 1
        self.advance(token.ride)

    def token_released(self, env: Env, token: Token) -> bytes | None:
        self.called["released"] += 1
        return self.now.to_bytes(8)

    def messages_held(self, messages: Iterable[Regular]) -> None:
        self.held.append(tuple(message.seq for message in messages))

    def commit_token_passed(self, env: Env, token: CommitToken, rotation: int) -> bytes | None:
        """Rotation 1: raise the clock and sign; rotation 2: read the clock and who signed."""
        self.called[f"rotation {rotation}"] += 1
        ride = token.ride or bytes(8)
        if rotation == 1:
            now = max(self.now, int.from_bytes(ride[:8])) + 1
            return now.to_bytes(8) + ride[8:] + self.node.to_bytes(8)
        self.advance(ride)
        signed = tuple(int.from_bytes(ride[at : at + 8]) for at in range(8, len(ride), 8))
        self.shown.append((token.ring_id, int.from_bytes(ride[:8]), signed))
        return ride

    def join_built(self, env: Env) -> bytes | None:
        self.called["join built"] += 1
        return self.now.to_bytes(8)

    def join_received(self, env: Env, join: Join) -> None:
        self.called["join received"] += 1
        self.advance(join.ride)

    def ring_seq(self) -> int:
        return 0


class Ridden(Bench):
    """Processors that each have a clock on their ring."""

    def __init__(self, n: int = 3, **settings: Any) -> None:
        super().__init__(n, **settings)
        self.clocks = {node: Clock(node) for node in self.ids}
        self.make = lambda node: TotemSingle(node, self.config, self.clocks[node])


def test_mr_5_a_message_is_stamped_when_it_is_transmitted() -> None:
    """MR-5, MR-6, MR-9: on the ring that transmits it, before it is broadcast."""
    bench = Ridden()
    for node in bench.ids:
        bench.start(node)
    bench.submit(2, b"a")  # while there is no ring yet
    bench.until_operational()
    bench.rotate()
    ring, stamp = bench.clocks[2].stamps[-1]
    assert ring == bench[2].my_ring_id == ViewId(8, 1)
    (numbered,) = sent(bench.log[2], Regular)
    assert numbered.stamp == (stamp, 1, 0) and numbered.contents.bodies == (b"a",)
    log = bench.log[2]
    frame = next(at for at, e in enumerate(log) if getattr(e, "message", None) is numbered)
    assert log.index(Persist("clock", stamp)) < frame
    assert [e.batch.bodies for e in only(log, Originate)] == [(b"a",)]
    for node in bench.ids:
        assert bench.clocks[node].ready == [numbered.stamp]


def test_g_15_a_message_travels_at_the_level_that_the_rider_says() -> None:
    bench = Ridden().to_ring()
    bench.clocks[1].services = (Level.SAFE, Level.SAFE)
    bench.submit(1, b"a")
    bench.rotate(3)
    (numbered,) = sent(bench.log[1], Regular)
    assert numbered.service is Level.SAFE


def test_mr_9_the_last_piece_of_a_large_message_is_stamped() -> None:
    bench = Ridden(max_packet=600).to_ring()
    bench.submit(1, bytes(1500))
    bench.rotate(3)
    (originated,) = only(bench.log[1], Originate)
    (stamp,) = [stamp for _, stamp in bench.clocks[1].stamps]
    assert originated.batch.bodies == (bytes(1500),)
    stamps = [frame.stamp for frame in sent(bench.log[1], Regular)]
    assert len(stamps) > 2 and stamps == [None] * (len(stamps) - 1) + [(stamp, 1, 0)]
    for node in bench.ids:
        assert bench.clocks[node].ready == stamps


def test_r83_a_stamp_has_its_room_in_the_frame() -> None:
    """However large its numbers are."""
    bench = Ridden(max_packet=600).to_ring()
    bench.submit(1, bytes(5000))
    bench.rotate(3)
    frames = sent(bench.log[1], Regular)
    for frame in frames:
        stamped = msgspec.structs.replace(frame, stamp=(LAST, LAST, 1))
        grown = len(msgspec.msgpack.encode(stamped)) - len(msgspec.msgpack.encode(frame))
        assert frame.stamp is not None or grown == STAMP_BYTES
        assert stamped.wire_bytes() + ENCAPSULATION_BYTES <= bench.config.max_packet


def test_mr_5_the_token_leaves_with_the_clock_and_is_sent_again_with_it() -> None:
    bench = Ridden().to_ring()
    bench.lose()
    clock = bench.clocks[2]
    token = bench.token(2, ride=(900).to_bytes(8))
    (passed_on,) = sent(bench.receive(2, token, src=1), Token)
    assert passed_on.ride == (900).to_bytes(8) and clock.now == 900
    released = clock.called["released"]
    clock.now = 950
    assert only(bench.fire(2, Timer.TOKEN_RETRANSMIT), Send) == [Send(3, passed_on)]
    assert clock.called["released"] == released


def test_mr_4_the_rider_is_told_what_waits_when_a_ring_is_given_up() -> None:
    """A frame behind a gap was received, and its stamp was not read."""
    bench = Ridden().to_ring()
    bench.lose()
    bench.receive(2, bench.message(5, sender=1), src=1)
    bench.to_gather().to_phase(2, Phase.RECOVER)
    assert bench.clocks[2].held[-1] == (5,)
    assert bench.clocks[1].held[-1] == bench.clocks[3].held[-1] == ()


def test_mr_3_the_commit_token_collects_in_one_rotation_and_shows_in_the_next() -> None:
    bench = Ridden()
    for node, now in ((1, 5), (2, 70), (3, 9)):
        bench.clocks[node].now = now
    bench.to_ring()
    shown = {tuple(bench.clocks[node].shown) for node in bench.ids}
    assert shown == {((ViewId(8, 1), 73, (1, 2, 3)),)}  # the Joins told 70, and each adds one
    for node in bench.ids:
        assert bench.clocks[node].called["rotation 1"] == 1
        assert bench.clocks[node].called["rotation 2"] == 1


def test_mr_3_ext_what_comes_after_the_clocks_were_collected_is_too_late() -> None:
    """A processor that was paused with the token sends once more on the ring that the others give
    up. What one of them held then was not below the ring that it formed with the rest."""
    bench = Ridden().to_ring()
    old = bench[2].my_ring_id
    bench.to_gather().to_phase(2, Phase.COMMIT)
    late = bench.receive(2, bench.message(5, sender=3, ring=old), src=3)
    assert drops(late) == ["of the old ring, after the clocks were collected"]
    bench.to_phase(2, Phase.RECOVER)
    assert 5 not in bench[2].old.store


def test_mr_3_a_ring_of_one_has_both_rotations_at_once() -> None:
    bench = Ridden(1)
    bench.start(1)
    bench.clocks[1].now = 7
    bench.fire(1, Timer.CONSENSUS)
    assert bench.clocks[1].shown == [(ViewId(8, 1), 8, (1,))]


def test_mr_8_a_ring_number_is_above_those_known_elsewhere() -> None:
    bench = Ridden()
    bench.clocks[1].ring_seq = lambda: 1000  # type: ignore[method-assign]
    bench.to_ring()
    assert bench[3].my_ring_id == ViewId(1004, 1)


@pytest.mark.parametrize("ride", [None, b"123"])
def test_r4_a_bad_ride_refuses_the_frame(ride: bytes | None) -> None:
    """R4: the rider says so, of a ride that it cannot read and of none at all."""
    bench = Ridden().to_ring()
    bench.lose()
    now = bench.clocks[2].now
    frames = (
        bench.token(2, ride=ride),
        msgspec.structs.replace(bench.join(1, (1, 2, 3)), ride=ride),
        CommitToken(ViewId(12, 1), 0, (1, 2, 3), (entry(),), ride),
    )
    for frame in frames:
        effects = bench.receive(2, frame, src=1)
        assert drops(effects) == [BAD] and only_dropped(effects)
    assert bench.envs[2].dropped[BAD] == 3
    assert bench.clocks[2].now == now and bench[2].phase is Phase.OPERATIONAL


def test_r4_a_ring_without_a_rider_takes_no_ride() -> None:
    """Else the token would lose it on its way, and who added it would not know."""
    bench = Bench().to_ring()
    bench.lose()
    effects = bench.receive(2, bench.token(2, ride=bytes(8)), src=1)
    assert drops(effects) == ["a ride on a ring without a rider"] and only_dropped(effects)


def test_without_a_rider_frames_carry_a_nil() -> None:
    bench = Bench().to_ring()
    kinds: tuple[type[Any], ...] = (Token, CommitToken, Join)
    frames = [f for kind in kinds for f in sent(bench.log[1], kind)]
    assert frames and {frame.ride for frame in frames} == {None}
    token = Token(ViewId(8, 1), 5, 0, 0, None, (), 0, False)
    plain = Regular(1, ViewId(8, 1), 1, Level.SAFE, Contents(1, (b"x",)))
    for frame in (token, plain):
        assert msgspec.msgpack.encode(frame)[-1:] == b"\xc0"
    ridden = msgspec.structs.replace(token, ride=bytes(8))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ridden), type=Frame) == ridden
    assert ridden.wire_bytes() == token.wire_bytes() + 8


# --- through a crash and a merge ----------------------------------------------------------------


class Story:
    """Three simulated processors with clocks, and all that they deliver and install."""

    def __init__(self) -> None:
        self.clocks: dict[NodeId, list[Clock]] = {node: [] for node in (1, 2, 3)}
        self.views: dict[NodeId, list[ViewId]] = {node: [] for node in (1, 2, 3)}
        sheet = protocol("totem")
        self.checks = suite(sheet.claims(sheet.default))
        self.cluster = Cluster(
            msgspec.structs.replace(sheet, make=self.make),
            sheet.default,
            (1, 2, 3),
            preset("lan"),
            observers=[self.see],
        )

    def make(self, node: NodeId, config: Config) -> TotemSingle:
        clock = Clock(node)
        if self.clocks[node]:
            clock.now = self.clocks[node][-1].now + 1000  # MR-1
        self.clocks[node].append(clock)
        return TotemSingle(node, config, clock)

    def see(self, event: TraceEvent) -> None:
        """Views, and all for the checks."""
        if isinstance(event, Installed) and not event.transitional:
            self.views[event.node].append(event.view)
        self.checks.feed(event)

    def load(self, *nodes: NodeId) -> None:
        for k in range(20):
            for node in nodes:
                self.cluster.submit(node, (b"%d %d" % (node, k),))
            self.cluster.run_for(2_000)
        self.cluster.run_for(100_000)

    def together(self, *nodes: NodeId) -> ViewId:
        """Run until these share a ring, and no other does."""
        for _ in range(100):
            self.cluster.run_for(50_000)
            last = {self.views[node][-1] for node in nodes}
            machine = self.cluster.machine(nodes[0])
            assert isinstance(machine, TotemSingle)
            if len(last) == 1 and machine.my_memb == nodes:
                return last.pop()
        raise AssertionError(f"{nodes} did not come together: {self.views}")


def test_a_rider_goes_through_a_crash_and_a_merge() -> None:
    """Stamps on each ring increase; each ring starts above all that its members had seen."""
    story = Story()
    cluster = story.cluster
    cluster.start()
    rings = [story.together(1, 2, 3)]
    story.load(1, 2, 3)
    cluster.crash(3)
    rings.append(story.together(1, 2))
    story.load(1, 2)
    cluster.restart(3)
    rings.append(story.together(1, 2, 3))
    story.load(1, 2, 3)
    cluster.partition([(1,), (2, 3)])
    story.together(2, 3)
    story.together(1)
    story.load(1, 2, 3)
    cluster.heal()
    rings.append(story.together(1, 2, 3))
    story.load(1, 2, 3)
    assert not story.checks.violations and not cluster.recorder.violations

    stamps: dict[RingId, set[int]] = {}
    for node, lives in story.clocks.items():
        for clock in lives:
            own = [stamp for _, stamp in clock.stamps]
            assert own == sorted(set(own)), f"stamps of {node} do not increase"
            for ring, stamp in clock.stamps:
                assert stamp not in stamps.setdefault(ring, set())
                stamps[ring].add(stamp)
    for earlier, later in pairwise(rings):
        assert max(stamps[earlier]) < min(stamps[later]), "a ring began below the one before"

    for ring in rings:  # what the second rotation showed is the same at all, and from all
        shown = {
            s for lives in story.clocks.values() for c in lives for s in c.shown if s[0] == ring
        }
        ((_, _, signed),) = shown
        assert signed == ((1, 2) if ring == rings[1] else (1, 2, 3))
    for lives in story.clocks.values():
        for clock in lives:
            assert {"malformed", "received", "released", "join built", "join received"} <= (
                clock.called.keys()
            )

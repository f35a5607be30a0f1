"""Clock, identity, forwarding and flow of a multiple-ring processor."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from multi_driver import pair

from ringcast.blocks.packing import MOST_AT_ONCE, Contents
from ringcast.core.effects import InstallView, Originate, Persist, Stop
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.core.inputs import Started, Submitted, TimerFired
from ringcast.core.rings import SHAPES, shaped
from ringcast.core.trace import Crashed, Delivered, Installed, TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config, TotemMulti
from ringcast.protocols.totem_multi.clock import (
    BAD_RIDE,
    CLOCK_REACH,
    OUT_OF_REACH,
    ClockRider,
    CommitRide,
    LamportClock,
    TokenRide,
)
from ringcast.protocols.totem_multi.flow import FULL, STEPS, Brakes
from ringcast.protocols.totem_multi.messages import (
    LAST_TIMESTAMP,
    RING_BITS,
    Ack,
    Bound,
    Change,
    Data,
    Forwarded,
    Key,
    Member,
    NetworkGraph,
    Rank,
    Sort,
    TopologyChange,
    Wants,
    legible,
    read,
    written,
)
from ringcast.protocols.totem_multi.state import ITEM_BYTES
from ringcast.protocols.totem_single.messages import (
    LAST,
    REACH,
    CommitToken,
    Entry,
    Join,
    Regular,
    RingId,
    Stamp,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached

RING = RingId(8, 1)
SECOND = 1_000_000


def brakes(me: int) -> Brakes:
    """Of a processor whose queues have room."""
    return Brakes(me, lambda: 0)


def rider(now: int = 50, pid: int = 1) -> tuple[ClockRider, Env]:
    clock, env = LamportClock(100), Env(pid, Random(0))
    clock.start(env, 0)
    clock.my_timestamp = clock.my_stable_timestamp + now
    env.take()
    return ClockRider(clock, Member(pid, pid, False), brakes(pid)), env


def test_mr_1_a_restart_begins_an_interval_higher() -> None:
    """S-31, G-2: interval 100, stable 1000, crash at 1099."""
    clock, env = LamportClock(100), Env(1, Random(0))
    clock.start(env, 1000)
    assert clock.my_timestamp == 1100 and env.take() == [Persist("clock", 1100)]
    assert clock.tick(env) == 1101


def test_mr_4_ext_one_frame_raises_the_clock_by_a_bounded_step() -> None:
    """Whoever is further behind catches up with the frames that follow."""
    mine, _ = rider(50)
    start = mine.clock.my_timestamp

    def token(timestamp: int) -> Token:
        ride = msgspec.msgpack.encode(TokenRide(timestamp))
        return msgspec.structs.replace(Token(RING, 1, 0, 0, None, (), 0, False), ride=ride)

    for times in range(1, 4):
        assert mine.malformed(token(LAST_TIMESTAMP)) == OUT_OF_REACH
        assert mine.clock.my_timestamp == start + times * CLOCK_REACH
    near = mine.clock.my_timestamp + CLOCK_REACH
    assert mine.malformed(token(near)) is None
    assert mine.clock.my_timestamp < near, "nothing changes before the token is taken"
    mine.clock.see_ring(RingId(LAST, 9))
    assert mine.ring_seq() == REACH


def test_mr_6_timestamps_that_are_used_up_stop_the_processor() -> None:
    machine, env = TotemMulti(9, Config()), Env(9, Random(0))
    last = LAST_TIMESTAMP - Config().timestamp_interval
    machine.handle(env, Started(1, {"clock": last}, (9,)))
    assert any(isinstance(e, Stop) and "used up" in e.reason for e in env.take())


@pytest.mark.parametrize("timestamp", [LAST_TIMESTAMP, LAST_TIMESTAMP + 5, LAST])
def test_mr_4_ext_no_member_ends_the_others_with_one_frame(timestamp: int) -> None:
    """A processor says what only gateways say, with the last timestamp there is, and goes."""
    cluster, events = pair()
    liar = cluster.machine(2)
    assert isinstance(liar, TotemMulti)
    ring = liar.ports[2].ring
    liar._to_say.append((2, Forwarded(timestamp, ring, None, Bound(ring, ()))))
    liar._stirred = True
    cluster.run_for(200_000)
    cluster.crash(2)
    cluster.run_for(2 * SECOND)
    events.clear()
    cluster.submit(1, (b"after",))
    cluster.run_for(SECOND)
    assert {e.node for e in events if isinstance(e, Delivered)} == {1, 3, 4, 5}


def test_two_ports_on_one_network_stop_the_gateway_with_a_sentence() -> None:
    places = {1: ((0, 1),), 5: ((0, 5), (0, 1005))}
    events: list[TraceEvent] = []
    cluster = Cluster(SHEET, Config(), places, preset("ideal"), 1, [events.append], places)
    cluster.start()
    cluster.run_for(SECOND)
    (crash,) = [e for e in events if isinstance(e, Crashed)]
    assert crash.node == 5 and "[5, 1005] are on one ring" in crash.reason


def test_mr_2_a_gateway_starts_with_a_ring_of_one_at_each_port() -> None:
    machine, env = TotemMulti(9, Config()), Env(9, Random(0))
    machine.handle(env, Started(1, {"ring-1/clock": 700, "clock": 5}, (9, 1009)))
    (view,) = [e for e in env.take() if isinstance(e, InstallView)]
    assert view.members == (9,) and view.sets == (("ring (4,9)", (9,)), ("ring (4,1009)", (9,)))
    assert machine.clock.my_timestamp == 700 + Config().timestamp_interval, "G-3: one clock"


def test_g_5_ids_that_do_not_fit_stop_the_processor() -> None:
    machine, env = TotemMulti(9, Config()), Env(9, Random(0))
    machine.handle(env, Started(1, {}, (3, 9)))
    (stop,) = [e for e in env.take() if isinstance(e, Stop)]
    assert "the first has the processor's own id 9" in stop.reason


def test_mr_3_the_commit_token_collects_clocks_and_gateways() -> None:
    """G-7: the representative adds one, so T exceeds all that the members have seen."""
    first, env = rider(50, 1)
    other, _ = rider(70, 2)
    entry = Entry(RingId(4, 1), 0, 0, False, 0, None, 1)
    token = CommitToken(RING, 0, (1, 2), (entry,))
    ride = first.commit_token_passed(env, token, 1)
    ride = other.commit_token_passed(env, CommitToken(RING, 1, (1, 2), (entry,), ride), 1)
    ride = first.commit_token_passed(env, CommitToken(RING, 2, (1, 2), (entry, entry), ride), 2)
    other.commit_token_passed(env, CommitToken(RING, 3, (1, 2), (entry, entry), ride), 2)
    assert first.begins == other.begins
    assert first.begins[RING].timestamp == 171
    assert [member.pid for member in first.begins[RING].members] == [1, 2]


def test_mr_4_what_waits_in_a_ring_that_is_given_up_counts_as_seen() -> None:
    """G-7: so that the new ring begins above it."""
    mine, _ = rider(50)
    held = Regular(2, RING, 9, Level.AGREED, Contents(0, (b"a", b"b")), (Sort.SAID, 298, 0))
    torn = msgspec.structs.replace(held, stamp=None)
    unreadable = msgspec.structs.replace(held, stamp=(9, 400, 0))
    mine.messages_held([held, torn, unreadable])
    assert mine.clock.my_timestamp == 300


def test_mr_4_the_clock_follows_the_token_and_mr_5_goes_ahead_of_it() -> None:
    """G-1: increment, then stamp; G-45: at receipt, before delivery."""
    mine, env = rider(50)
    other, _ = rider(90)
    token = Token(RING, 1, 0, 0, None, (), 0, False)
    ride = other.token_released(env, token)
    mine.token_received(env, Token(RING, 1, 0, 0, None, (), 0, False, ride))
    assert mine.clock.my_timestamp == 190
    for number, timestamp in ((1, 191), (2, 192)):
        stamp = mine.message_transmitted(env, RING, 5, Sort.AGREED, (b"x",))
        assert stamp == (Sort.AGREED, timestamp, number)
        (told,) = [e for e in env.take() if isinstance(e, Originate)]
        assert (told.batch.timestamp, told.batch.first, told.batch.bodies) == (
            timestamp,
            number,
            (b"x",),
        )


def test_mr_5_each_acknowledgement_of_a_frame_has_a_timestamp_of_its_own() -> None:
    """And what a gateway passes on keeps the one it has."""
    mine, env = rider(50)
    ack = written(Ack(((5, RING),)))
    passed = written(Forwarded(5, RING, None, Data(1, Level.AGREED, 1, (b"x",))))
    for some, timestamp in (((ack, passed, ack), 151), ((passed,), 153), ((ack,), 153)):
        stamp = mine.message_transmitted(env, RING, 5, Sort.SAID, some)
        assert stamp == (Sort.SAID, timestamp, 0)


def test_mr_6_the_clock_is_stable_before_a_stamp_of_the_next_interval_leaves() -> None:
    """G-41: and only once an interval."""
    mine, env = rider(98)
    for _ in range(3):
        mine.clock.tick(env)
    assert env.take() == [Persist("clock", 200)]
    assert mine.clock.my_timestamp < 200 + 100


@pytest.mark.parametrize("shape", ["alone", "chain"])
def test_mr_6_it_is_stable_before_a_message_of_the_next_interval_is_delivered(shape: str) -> None:
    """P-16: or a processor that crashes before it has sent anything comes back with stamps below
    what it has delivered."""
    rings = ((1, 2, 3),) if shape == "alone" else shaped("chain", 2, 2, Random(0))
    places = attached(rings)
    behind: list[Delivered] = []

    def look(event: TraceEvent) -> None:
        if isinstance(event, Delivered):
            stable = cluster.nodes[event.node].storage.read()
            clock = max(v for key, v in stable.items() if key.endswith("clock"))
            if event.seq >= clock + 2:
                behind.append(event)

    config = Config(timestamp_interval=2, acyclic=True)
    cluster = Cluster(SHEET, config, places, preset("ideal"), 1, [look], places)
    cluster.start()
    cluster.run_for(3 * SECOND)
    for _ in range(20):
        cluster.submit(1, (b"x",))
        cluster.submit(2, (b"y",))
        cluster.run_for(2_000)
    assert not behind


def test_mr_7_ring_numbers_seen_elsewhere_raise_those_of_new_rings() -> None:
    """MR-8, G-7: by forwarded messages, and by Joins."""
    mine, env = rider()
    mine.clock.see_ring(RingId(400, 3))
    assert mine.ring_seq() == 400
    other, _ = rider(pid=2)
    other.join_received(env, Join(1, 4, (1,), (), 0, ride=mine.join_built(env)))
    assert other.ring_seq() == 400


def test_mr_8_ext_whoever_forgot_its_rings_gives_them_other_numbers() -> None:
    """G-5: starts within an hour begin a hundred rings apart, if not in the same second. One that
    has its storage goes on from that."""
    begun: list[int] = []
    for second in range(3600):
        clock = LamportClock(100)
        clock.start(Env(1, Random(1)), None, second * 2**20 + 1)
        begun.append(clock.my_future_ring_seq)
    begun.sort()
    assert all(b - a > 4 * 100 for a, b in pairwise(begun))
    assert begun[0] == 0 and begun[-1] < 2 ** (RING_BITS - 1)
    kept, lost = (TotemMulti(1, SHEET.default) for _ in range(2))
    kept.start(Env(1, Random(1)), Started(2**50 + 2**20, {"ring-0/clock": 1000}))
    lost.start(Env(1, Random(1)), Started(2**50 + 2**20, {}))
    assert kept.clock.my_future_ring_seq == 0 < lost.clock.my_future_ring_seq


def test_mr_9_a_large_message_is_stamped_with_its_last_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And has its place in the order with it, at others and at its sender."""
    stamps: dict[int, list[Stamp]] = {1: [], 2: []}
    whole = ClockRider.message_ready

    def ready(self: ClockRider, env: Env, ring: Ring, view: RingId, message: Regular) -> None:
        stamps[self.mine.pid].append(message.stamp)
        whole(self, env, ring, view, message)

    monkeypatch.setattr(ClockRider, "message_ready", ready)
    told: list[TraceEvent] = []
    config = msgspec.structs.replace(SHEET.default, max_packet=600)
    cluster = Cluster(SHEET, config, (1, 2), preset("ideal"), observers=[told.append])
    cluster.start()
    cluster.run_for(SECOND)
    cluster.submit(1, (bytes(1500),))
    cluster.run_for(SECOND)
    *pieces, last = stamps[2]
    assert len(pieces) > 1 and set(pieces) == {None} and stamps[1] == stamps[2]
    assert last is not None
    delivered = [event for event in told if isinstance(event, Delivered)]
    assert [(e.node, e.seq, e.first) for e in delivered] == [(1, *last[1:]), (2, *last[1:])]


def test_bad_rides_refuse_the_frame() -> None:
    mine, _ = rider()
    bad = CommitToken(RING, 0, (1, 2), (Entry(RingId(4, 1), 0, 0, False, 0, None, 1),), b"?")
    assert mine.malformed(bad) == BAD_RIDE
    assert mine.malformed(Token(RING, 1, 0, 0, None, (), 0, False)) == BAD_RIDE
    deep = b"\x91" * 100_000  # behind the fields, where it is skipped level by level
    ride = b"\x93\x05\x90" + deep
    for frame in (bad, Join(2, 4, (1, 2), (), 0, 50), Token(RING, 1, 0, 0, None, (), 0, False)):
        assert mine.malformed(msgspec.structs.replace(frame, ride=ride)) == BAD_RIDE
    head, rest = written(Wants(9, ()))[:1], written(Wants(9, ()))[1:]
    assert read(bytes([head[0] + 1]) + rest + deep) is None
    strange = msgspec.msgpack.encode(CommitRide(5, (Member(3, 3, False),)))
    assert mine.malformed(msgspec.structs.replace(bad, ride=strange)) == BAD_RIDE


def test_what_cannot_be_read_is_none() -> None:
    good = written(Ack(((5, RING),)))
    assert read(good) == Ack(((5, RING),))
    assert read(good[:-1]) is None and read(b"") is None
    assert legible((Sort.SAID, 5, 0))
    no_time, no_sort = (Sort.SAID, 0, 0), (4, 5, 0)
    late, many = (Sort.SAFE, LAST_TIMESTAMP + 1, 0), (Sort.SAFE, 5, LAST + 1)
    for wrong in (no_time, no_sort, late, many):
        assert not legible(wrong)


def test_keys_are_ordered_as_the_dossier_says() -> None:
    """Dossier 1.4: timestamp, ring, type, old ring."""
    one, two = RingId(8, 1), RingId(8, 2)
    keys = [
        Key(5, one, Rank.SHRINK), Key(5, one), Key(5, one, Rank.CHANGE, one),
        Key(5, one, Rank.CHANGE, two), Key(5, one, Rank.UNHEARD, one), Key(5, two), Key(6, one),
    ]  # fmt: skip
    assert keys == sorted(keys)


def test_mr_39_to_mr_44_a_block_spreads_and_only_its_origin_ends_it() -> None:
    """G-38, G-39, MR-39, MR-40, MR-42, MR-43, S-36: whatever way it takes."""
    x, g, h = brakes(1), brakes(2), brakes(3)
    for each in (x, g, h):
        each.keep((1, 2, 3))
    x.congested(FULL)
    g.hear(x.told())
    h.hear(g.told())
    assert g.blocked and h.blocked
    x.congested(0)
    h.hear(g.told())
    assert h.blocked, "nobody but x knows that it is over"
    h.hear(x.told())
    g.hear(h.told())
    x.hear(g.told())
    assert not (x.blocked or g.blocked or h.blocked)


def test_g_39_the_block_of_one_that_is_gone_ends_with_the_topology() -> None:
    x, g = brakes(1), brakes(2)
    x.keep((1, 2))
    g.keep((1, 2))
    x.congested(FULL)
    g.hear(x.told())
    g.keep((2,))
    g.hear(x.told())
    assert not g.blocked


def test_g_39_a_processor_that_restarted_ends_what_its_earlier_life_began() -> None:
    g, again = brakes(2), brakes(1)
    g.keep((1, 2))
    again.keep((1, 2))
    g.hear(((1, 3 * STEPS + FULL),))
    again.hear(g.told())
    g.hear(again.told())
    assert not again.blocked and not g.blocked


def test_mr_40_a_queue_that_emptied_without_a_token_is_noticed() -> None:
    """A ring of one passes no token on, at which it would look."""
    machine, env = started(1, max_queue=4, min_queue=2)
    machine.handle(env, Submitted((b"1", b"2", b"3", b"4")))
    assert not machine.ready
    while machine._queues[0].take(1000):
        pass
    machine.handle(env, TimerFired("none of ours"))
    assert machine.ready


# --- whole networks, simulated ---------------------------------------------------------------


class Network:
    """Simulated rings, and what their processors deliver."""

    def __init__(self, shape: str, count: int, twice: bool = False, **settings: object) -> None:
        self.rings = shaped(shape, count, 2, Random(0), twice)
        places = attached(self.rings)
        self.events: list[TraceEvent] = []
        config = Config(**settings)  # type: ignore[arg-type]
        self.cluster = Cluster(
            SHEET, config, places, preset("lan"), 1, [self.events.append], places
        )
        self.nodes = tuple(places)
        self.cluster.start()
        self.run(3 * SECOND)

    def run(self, us: int) -> None:
        self.cluster.run_for(us)
        assert not self.cluster.recorder.violations

    def submit(self, count: int, *nodes: int, level: Level = Level.AGREED) -> None:
        for at in range(count):
            for node in nodes:
                assert self.cluster.submit(node, (b"%d.%d" % (node, at),), level)
            self.cluster.run_for(2_000)

    def delivered(self, node: int) -> list[tuple[int, int, int, int]]:
        """The places of all messages."""
        return [
            (e.seq, e.ring.seq, e.ring.rep, index)
            for e in self.events
            if isinstance(e, Delivered) and e.node == node
            for index in range(len(e.digests))
        ]

    def members(self, node: int) -> tuple[int, ...]:
        return [e.members for e in self.events if isinstance(e, Installed) and e.node == node][-1]

    def machine(self, node: int) -> TotemMulti:
        machine = self.cluster.machine(node)
        assert isinstance(machine, TotemMulti)
        return machine


def test_mr_45_a_gateway_may_send_as_much_as_those_for_which_it_sends() -> None:
    """Two processors on each of three rings; and when a ring is lost, its share is too."""
    network = Network("star", 3, each_time=7)

    def shares(node: int) -> dict[frozenset[int], int]:
        """By the processors of a ring."""
        return {
            frozenset(m.node for m in at.members): at.part.machine.config.each_time // 7
            for at in network.machine(node).ports.values()
        }

    first, second = (n for n in network.nodes if len(network.machine(n).ports) > 1)
    middle, outer, lost = (frozenset(ring) for ring in network.rings)
    assert first in outer and second in lost
    assert shares(first) == {middle: 2, outer: len(middle | lost) - 1}
    assert {*shares(1).values()} == {1}
    network.cluster.crash(second)
    network.run(3 * SECOND)
    assert shares(first) == {middle - {second}: 2, outer: 2}


def test_s_1_one_ring_needs_no_bounds() -> None:
    """Delivery is that of the ring, in a topology of one; nothing is said that Totem would not."""
    network = Network("chain", 1)
    sent = network.cluster.counts.sent
    network.submit(20, 1, 2)
    network.run(SECOND)
    assert len(network.delivered(1)) == 40 and network.delivered(1) == network.delivered(2)
    assert network.machine(1).order.topology == {network.machine(2).ports[2].ring}
    assert network.cluster.counts.sent > sent


def test_s_2_a_silent_ring_is_spoken_for_once() -> None:
    """MR-16, G-33: then there is silence."""
    network = Network("chain", 2)
    network.submit(1, 1)
    network.run(SECOND)
    assert [len(network.delivered(node)) for node in network.nodes] == [1] * 5
    waiting = {node: network.machine(node).snapshot()["waiting"] for node in network.nodes}
    assert set(waiting.values()) == {0}
    (gateway,) = (node for node in network.nodes if len(network.machine(node).ports) > 1)
    assert not network.machine(gateway)._timed


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_mr_10_all_rings_deliver_one_sequence(shape: str) -> None:
    """S-13, S-26, MR-13: whatever the shape, agreed and safe, each once."""
    network = Network(shape, 3)
    network.submit(5, *network.nodes)
    network.submit(5, *network.nodes, level=Level.SAFE)
    network.run(2 * SECOND)
    first = network.delivered(1)
    assert len(first) == 10 * len(network.nodes) and first == sorted(set(first))
    assert all(network.delivered(node) == first for node in network.nodes)


def started(me: int, *more: int, **settings: object) -> tuple[TotemMulti, Env]:
    """A processor whose rings are not there yet, so that all it says waits."""
    machine, env = TotemMulti(me, Config(**settings)), Env(me, Random(0))  # type: ignore[arg-type]
    machine.handle(env, Started(1, {}, (me, *more)))
    return machine, env


def test_g_4_a_gateways_own_messages_originate_at_its_first_port() -> None:
    """On both rings they would be two messages."""
    machine, env = started(9, 1009, 2009)
    machine.handle(env, Submitted((b"own",)))
    machine.handle(env, Submitted((b"to some",), to=(4, 9)))
    queues = [each.part.machine.new_message_queue._queue for each in machine.ports.values()]
    assert [len(queue) for queue in queues] == [2, 0, 0]


def test_mr_10_ext_what_a_gateway_passes_on_goes_ahead_of_its_own_messages() -> None:
    """They are stamped when they leave; what it has delivered by then is their cause (P-12)."""
    machine, env = started(9, 1009)
    queue = machine.ports[9].part.machine.new_message_queue
    cause = Forwarded(7, RING, None, Data(3, Level.AGREED, 1, (b"cause",)))
    machine.handle(env, Submitted((b"own",)))
    machine.interests.ask((1,))
    wants = Wants(9, machine.interests.say())
    machine._say(env, 9, wants)
    machine._say(env, 9, cause)
    machine._say(env, 9, Ack(((7, RING),)))
    first, second, own, last = queue._queue
    assert [read(first[0]), own[0], read(last[0])] == [cause, b"own", wants]
    assert isinstance(read(second[0]), Ack)


def test_mr_10_ext_a_gateway_delivers_nothing_while_a_large_message_delays_a_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The large one is stamped with its last piece."""
    machine, env = started(9, 1009, max_packet=600)
    queue = machine.ports[9].part.machine.new_message_queue
    looked: list[int] = []
    monkeypatch.setattr(machine.order, "advance", lambda env: looked.append(len(queue)))
    machine.handle(env, Submitted((bytes(1500),)))
    queue.take(500)
    cause = Forwarded(7, RING, None, Data(3, Level.AGREED, 1, (b"cause",)))
    machine._to_say.append((9, cause))
    for left in (2, 1):
        machine._stirred = True
        machine.handle(env, Submitted(()))
        assert len(queue) == left and (looked != []) == (left == 1)
        assert machine._stirred == (left == 2), "it looks again"
        while queue.delays_first:
            queue.take(500)


@pytest.mark.parametrize("acyclic", [False, True])
def test_a8_ext_a_change_does_not_overtake_what_lost_gateways_had_brought(acyclic: bool) -> None:
    """Those beyond may know them another way, and then do not wait for the TC. On a tree there is
    no other way."""
    machine, _ = started(9, 1009, acyclic=acyclic)
    at, order = machine.ports[9], machine.order
    at.members = tuple(Member(pid, pid, True) for pid in (4, 5, 6, 9))
    at.together = frozenset({6, 9})
    begun = Change(148, RingId(24, 1), RingId(22, 9), at.members, False)
    order.pending[begun.ring, begun.conf] = begun
    order.network.gateways |= {4: {4: RING}, 6: {6: RING}}
    brought = {
        pid: Forwarded(stamp, RING, None, Data(3, Level.AGREED, 1, (b"x",)))
        for pid, stamp in ((4, 228), (5, 229), (6, 230))
    }
    later = Change(231, RingId(26, 1), RING, (), True, (), (200, RING))
    told = TopologyChange(231, RingId(26, 1), RING, NetworkGraph((), ()))
    older = Change(147, RingId(14, 1), RingId(12, 1), (), True)  # A11 ext
    waiting = [(9, pid, said) for pid, said in brought.items()]
    waits = machine._buffers.setdefault((begun.ring, begun.conf), [])
    waits += [(9, 4, older), *waiting, (9, 4, later), (9, 4, told)]
    machine._pass_on_buffered(at)
    late, first = (
        msgspec.structs.replace(each, since=(148, RingId(24, 1))) for each in (older, brought[4])
    )
    said = [] if acyclic else [(1009, late), (1009, first), (1009, later), (1009, told)]
    assert list(machine._to_say) == said, "5 is unknown, 6 is still there"
    assert len(waits) == 6, "they wait here as before"


def test_s_12_one_of_two_gateways_is_killed_and_nothing_is_lost_or_doubled() -> None:
    """G-15, G-35."""
    network = Network("chain", 2, twice=True)
    assert network.rings == ((1, 2, 5, 6), (3, 4, 5, 6))
    network.submit(50, 1, 3)
    network.cluster.crash(5)
    network.submit(50, 1, 3)
    network.run(3 * SECOND)
    first = network.delivered(1)
    assert len(first) == 200 and first == sorted(set(first))
    assert network.delivered(2) == network.delivered(3) == network.delivered(4) == first
    assert {network.members(node) for node in (1, 2, 3, 4, 6)} == {(1, 2, 3, 4, 6)}


def test_s_15_a_chain_that_loses_its_middle_goes_on_in_two_parts_and_comes_together() -> None:
    """S-32, G-36: gateway 8 of A-7-B-8-C crashes and restarts under load."""
    network = Network("chain", 3)
    network.submit(20, 1, 5)
    network.cluster.crash(8)
    network.submit(20, 1, 5)
    network.run(3 * SECOND)
    assert network.members(1) == (1, 2, 3, 4, 7) and network.members(5) == (5, 6)
    network.cluster.restart(8)
    network.submit(20, 1, 5)
    network.run(3 * SECOND)
    assert network.members(1) == network.members(8) == tuple(range(1, 9))
    network.submit(20, 1, 5)
    network.run(2 * SECOND)
    tail = network.delivered(1)[-40:]
    assert tail == network.delivered(5)[-40:] == network.delivered(8)[-40:]


def test_mr_41_the_queue_is_bounded_in_bytes() -> None:
    """301 submissions of 9,000 bytes were taken with a bound of 10,000."""
    machine, env = (
        TotemMulti(1, Config(max_message=9_000, max_queue_bytes=10_000)),
        Env(1, Random(0)),
    )
    machine.handle(env, Started(1, {}))
    taken = 0
    while machine.ready:
        machine.handle(env, Submitted((bytes(9_000),)))
        taken += 1
    assert taken == 2, "the first leaves room"
    fresh = TotemMulti(1, Config(max_message=9_000, max_queue_bytes=10_000))
    fresh.handle(env, Started(1, {}))
    fresh.handle(env, Submitted((bytes(6_000), bytes(6_000))))
    fresh.handle(env, Submitted((b"",) * (MOST_AT_ONCE + 1)))
    assert env.dropped == {"a submission over the bounds": 2}


def test_mr_41_a_full_queue_makes_all_applications_wait() -> None:
    """S-33, G-40: on both rings, until it has drained; what is forwarded is not refused."""
    network = Network("chain", 2, max_queue=20, min_queue=10, window_size=2, adaptive=False)
    refused: set[int] = set()
    for _ in range(400):
        for node in (1, 3):
            refused |= set() if network.cluster.submit(node, (bytes(900),)) else {node}
    network.cluster.run_for(3_000)
    refused |= {node for node in (2, 4) if not network.machine(node).ready}
    assert refused >= {1, 2, 3, 4}
    network.run(3 * SECOND)
    assert all(network.machine(node).ready for node in network.nodes)
    assert network.delivered(1) == network.delivered(4)


def test_mr_19_neighbours_remember_the_change_that_showed_them() -> None:
    """MR-19, MR-33, G-20: a gateway that restarts is another neighbour than before."""
    network = Network("chain", 2)
    before = network.machine(1).order.neighbours[1][5]
    network.cluster.crash(5)
    network.run(2 * SECOND)
    assert network.machine(1).order.neighbours[1] == {}
    network.cluster.restart(5)
    network.run(3 * SECOND)
    assert network.machine(1).order.neighbours[1][5] > before


def test_mr_25_a_processor_says_whose_word_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateway 5 does not say what it can reach, and the rings wait."""
    monkeypatch.setattr(TotemMulti, "exchange", lambda *_: None)
    cluster, _ = pair()
    said = {cluster.machine(node).blocked.partition(";")[2] for node in range(1, 5)}
    assert said == {" waiting to hear from 5"}
    assert cluster.machine(5).blocked == ""


def test_mr_31_nothing_counts_that_no_longer_waits() -> None:
    """While the rings merge, what the gateway forwards waits for the change that joins it."""
    cluster, _ = pair()
    for node in range(1, 6):
        machine = cluster.machine(node)
        assert isinstance(machine, TotemMulti)
        assert machine._buffered_bytes == machine.order._unplaced_bytes == 0


def test_mr_31_what_waits_for_a_gateway_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TotemMulti, "exchange", lambda *_: None)
    cluster, _ = pair()
    machine, env = cluster.machine(1), Env(1, Random(0))
    assert isinstance(machine, TotemMulti)
    most = machine._buffered_bytes + 2 * ITEM_BYTES
    monkeypatch.setattr("ringcast.protocols.totem_multi.state.MOST_WAITING", most)
    late = max(change.timestamp for change in machine.order.pending.values())
    for n in range(3):
        assert not [each for each in env.take() if isinstance(each, Stop)]
        machine._hand_up_forwarded(
            env, 1, 5, Forwarded(late + 1 + n, RingId(7, 9), None, Wants(9, ()))
        )
    assert [each.reason for each in env.take() if isinstance(each, Stop)]

"""Flow control by queue length (W1 to W5): levels, windows, and a gateway's own share."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ringcast.core.effects import Broadcast, Effect
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.core.inputs import Started, Submitted
from ringcast.core.rings import shaped
from ringcast.core.trace import Originated, TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config, TotemMulti
from ringcast.protocols.totem_multi.clock import BAD_RIDE, TokenRide
from ringcast.protocols.totem_multi.flow import (
    FREE,
    FULL,
    LAST_VERSION,
    STEPS,
    Blocks,
    Brakes,
)
from ringcast.protocols.totem_multi.messages import Ack, Data, Forwarded, Sort, read
from ringcast.protocols.totem_single.messages import Regular, RingId, Token
from ringcast.protocols.totem_single.sending import number_new
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached
from ringcast.sim.workload import Saturate, Sizes

RING = RingId(8, 1)
SHORT = {"max_queue": 14, "min_queue": 7, "packing": False}


def started(me: int, *more: int, **settings: object) -> tuple[TotemMulti, Env]:
    """A processor whose rings are not there yet, so that all it says waits."""
    config = Config(**SHORT | settings)  # type: ignore[arg-type]
    machine, env = TotemMulti(me, config), Env(me, Random(0))
    machine.handle(env, Started(1, {}, (me, *more)))
    return machine, env


def forwarded(number: int, size: int = 1) -> Forwarded:
    return Forwarded(number, RING, None, Data(3, Level.AGREED, number, (bytes(size),)))


def passes_on(machine: TotemMulti, env: Env, count: int, size: int = 1) -> None:
    """So much more waits at the first interface of a gateway."""
    for number in range(count):
        machine._say(env, machine.me, forwarded(number + 1, size))
    machine.brakes.look()


# --- W1: levels -------------------------------------------------------------------------------


def test_w1_a_gateway_tells_its_queue_in_steps_and_is_full_until_the_lower_mark() -> None:
    machine, env = started(9, 1009)
    seen = []
    for _ in range(15):
        passes_on(machine, env, 1)
        seen.append(machine.brakes.mine)
    assert seen == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, FULL, FULL]
    assert not machine.ready
    left = []
    while machine._queues[0].take(1000):
        machine.brakes.look()
        left.append(machine.brakes.mine)
    assert left == [FULL] * 7 + [3, 3, 2, 2, 1, 1, 0, 0]
    assert machine.ready


def test_w1_what_waits_in_bytes_counts_as_well() -> None:
    machine, env = started(9, 1009, max_message=4_000, max_queue_bytes=10_000)
    passes_on(machine, env, 2, 3_000)
    assert machine.brakes.mine == 4, "more than half of the bytes"
    passes_on(machine, env, 2, 3_000)
    assert machine.brakes.mine == FULL


def test_w1_own_messages_keep_nobody_waiting_but_their_application() -> None:
    machine, env = started(9, 1009)
    machine.handle(env, Submitted((b"own",) * 14))
    assert not machine.ready and not machine.brakes.blocked
    assert machine.brakes.told() == ()
    printed, env = started(9, 1009, adaptive=False)
    printed.handle(env, Submitted((b"own",) * 14))
    assert printed.brakes.blocked and printed.brakes.told(), "MR-39"


def test_w1_what_is_passed_on_leaves_room_for_own_messages() -> None:
    machine, env = started(9, 1009)
    passes_on(machine, env, 13)
    machine.handle(env, Submitted((b"own",) * 13))
    assert machine.ready, "the queue is longer than the upper mark, and neither part of it is"


def test_w1_a_table_from_the_wire_is_bounded() -> None:
    machine, _ = started(1)
    rider = machine.ports[1].rider
    encode = msgspec.msgpack.encode
    token = Token(RING, 1, 0, 0, None, (), 0, False)
    for bad in ([0, [[1, LAST_VERSION + 1]]], [0, [[1, -1]]], [0, [[1, 1]] * 1025]):
        assert rider.malformed(msgspec.structs.replace(token, ride=encode(bad))) == BAD_RIDE
    mine = Brakes(1, lambda: 0)
    mine.keep((1, 2))
    mine.hear(((1, LAST_VERSION), (2, LAST_VERSION), (7, STEPS + FULL)))
    assert not mine.blocked
    mine.congested(FULL)
    mine.congested(0)
    again = encode(TokenRide(1, mine.told()))
    assert rider.malformed(msgspec.structs.replace(token, ride=again)) is None


# --- W2, W3: windows --------------------------------------------------------------------------


def test_w2_the_window_falls_by_eighths_of_the_worst_level_and_w3_rises_by_one() -> None:
    mine = Brakes(1, lambda: 0, most=10)
    mine.keep((1, 2, 3))
    mine.rotate()
    assert mine.window == FREE, "nobody is congested"
    mine.hear(((2, STEPS + 1), (3, STEPS + 4)))
    seen = []
    for _ in range(5):
        mine.rotate()
        seen.append(mine.window)
    assert seen == [5, 2, 1, 1, 1]
    mine.hear(((2, 2 * STEPS), (3, 2 * STEPS)))
    seen = []
    for _ in range(10):
        mine.rotate()
        seen.append(mine.window)
    assert seen == [2, 3, 4, 5, 6, 7, 8, 9, 10, FREE]


def test_w2_without_adaptive_there_are_two_levels_and_no_window() -> None:
    machine, env = started(9, 1009, adaptive=False)
    passes_on(machine, env, 13)
    assert machine.brakes.mine == 0
    passes_on(machine, env, 1)
    assert machine.brakes.mine == FULL
    machine.brakes.rotate()
    assert machine.brakes.window == FREE


def frames_of(effects: list[Effect]) -> list[int]:
    """The sorts of the frames that were sent."""
    return [
        effect.message.stamp[0]
        for effect in effects
        if isinstance(effect, Broadcast)
        and isinstance(effect.message, Regular)
        and effect.message.stamp
    ]


def test_w2_a_visit_sends_no_more_of_its_own_than_the_window_and_g_40_acknowledges() -> None:
    events: list[TraceEvent] = []
    places = attached(shaped("chain", 2, 2, Random(0)))
    config = Config(packing=False)
    cluster = Cluster(SHEET, config, places, preset("ideal"), 1, [events.append], places)
    cluster.start()
    cluster.run_until(2_000_000)
    machine = cluster.machine(1)
    assert isinstance(machine, TotemMulti)
    part = machine.ports[1].part
    ring, env = part.machine, Env(1, Random(0))
    machine.brakes.window = 2
    ring.new_message_queue.put((b"own",) * 5, Sort.AGREED)
    ring.token.held_token, ring.token.idle_visits = None, 0
    machine._say(env, 1, Ack(((7, RING),)))
    env.take()
    part.at_port.within(env)
    sent = number_new(ring, part.at_port, ring.old.my_aru, 10)
    assert frames_of(env.take()) == [Sort.SAID, Sort.AGREED, Sort.AGREED]
    assert sent == 3 and len(ring.new_message_queue) == 3


@pytest.mark.parametrize("seed", range(200))
def test_w3_s_36_whatever_happens_all_is_clear_within_bounded_rotations(seed: int) -> None:
    """Rings A [x, g, h] and B [g, h, y]: levels rise and fall while tokens go round in any order.
    When the queues have drained, four rotations of each token end every block, two to bring a word
    to the gateways and two beyond, and as many more as a window has frames free it."""
    rng, most = Random(seed), 10
    rings = {"A": "xgh", "B": "ghy"}
    brakes = {name: Brakes(at, lambda: 0, most) for at, name in enumerate("xghy", 1)}
    home = {"x": "A", "g": "A", "h": "B", "y": "B"}
    for each in brakes.values():
        each.keep((1, 2, 3, 4))
    tokens: dict[str, Blocks] = dict.fromkeys(rings, ())
    at = dict.fromkeys(rings, 0)

    def visit(ring: str) -> None:
        name = rings[ring][at[ring] % 3]
        at[ring] += 1
        brakes[name].hear(tokens[ring])
        if home[name] == ring:
            brakes[name].rotate()
        tokens[ring] = brakes[name].told()

    for _ in range(rng.randint(10, 200)):
        if rng.random() < 0.6:
            visit(rng.choice("AB"))
        else:
            brakes[rng.choice("xghy")].congested(rng.randrange(STEPS))
    for each in brakes.values():
        each.congested(0)
    for _ in range(4):
        for ring in rng.sample(("A", "A", "A", "B", "B", "B"), 6):
            visit(ring)
    assert not any(told % STEPS for each in brakes.values() for told in each.table.values())
    for _ in range(most + 1):
        for ring in rng.sample(("A", "A", "A", "B", "B", "B"), 6):
            visit(ring)
    assert [each.window for each in brakes.values()] == [FREE] * 4


# --- W4, W5: gateways -------------------------------------------------------------------------


def test_w4_what_a_gateway_may_send_follows_its_queue() -> None:
    machine, env = started(9, 1009, each_time=10)
    ring = machine.ports[9].part.machine
    at_first = ring.config.each_time
    passes_on(machine, env, 8)
    machine.look_again()
    assert machine.brakes.mine == 4 and ring.config.each_time == at_first + 40
    while ring.new_message_queue.take(1000):
        pass
    machine.look_again()
    assert ring.config.each_time == at_first


def test_w5_a_share_of_own_messages_is_overtaken_no_more() -> None:
    """Of own messages one for each ``yields`` that go before it; P-12: while what goes first waits
    for those, nothing is delivered here, for it would be their cause."""
    machine, env = started(9, 1009)
    queue = machine._queues[0]
    queue.yields = 2
    machine.handle(env, Submitted((b"a", b"b", b"c")))
    for number in (1, 2, 3):
        machine._say(env, 9, forwarded(number))
    queue.hold()
    assert not queue.delays_first
    machine._say(env, 9, forwarded(4))
    assert queue.delays_first and queue.ahead == 4
    machine._stirred = True
    calls: list[Env] = []
    machine.order.advance = calls.append
    machine._settle(env)
    assert not calls and machine._stirred
    left = []
    while taken := queue.take(1000):
        level, _, (body,) = taken
        said = read(body) if level == Sort.SAID else body
        left.append(said.timestamp if isinstance(said, Forwarded) else said)
    assert left == [1, 2, 3, b"a", b"b", 4, b"c"]
    machine._settle(env)
    assert len(calls) == 1


def test_w5_a_ring_that_breaks_lets_what_goes_first_go_first_again() -> None:
    machine, env = started(9, 1009)
    queue = machine._queues[0]
    queue.yields = 1
    machine.handle(env, Submitted((b"a", b"b", b"c")))
    machine._say(env, 9, forwarded(1))
    queue.hold()
    machine._say(env, 9, forwarded(2))
    queue.rewind()
    assert not queue.delays_first and queue.ahead == 2
    assert [level for _, level in queue._queue] == [Sort.SAID] * 2 + [Sort.AGREED] * 3


@pytest.mark.parametrize("adaptive", [True, False])
def test_w5_everybody_has_much_to_send_and_a_gateway_gets_its_share(adaptive: bool) -> None:
    """With levels nobody is refused for what a gateway passes on, and all send about the same; on
    and off, somebody has next to nothing."""
    events: list[TraceEvent] = []
    places = attached(shaped("chain", 2, 2, Random(0)))
    config = Config(packing=False, acyclic=True, adaptive=adaptive, min_window=50, max_window=50)
    cluster = Cluster(SHEET, config, places, preset("ideal"), 1, [events.append], places)
    cluster.start()
    cluster.run_until(1_200_000)
    workload.start([Saturate(sizes=(Sizes(1000, 1000),), think_us=100)], cluster, 1)
    cluster.run_for(30_000)
    events.clear()
    longest, blocked = 0, False
    machines = [cluster.machine(node) for node in places]
    for _ in range(30):
        cluster.run_for(1_000)
        for machine in machines:
            assert isinstance(machine, TotemMulti)
            longest = max(longest, *(queue.ahead for queue in machine._queues))
            blocked = blocked or machine.brakes.blocked
    sent = dict.fromkeys(places, 0)
    for event in events:
        if isinstance(event, Originated):
            sent[event.owner] += len(event.digests)
    fair = sum(sent.values()) / len(sent)
    shares = {node: count / fair for node, count in sent.items()}
    if adaptive:
        assert not blocked and longest < config.max_queue
        assert min(shares.values()) > 0.7, shares
    else:
        assert blocked
        assert min(shares.values()) < 0.3, shares

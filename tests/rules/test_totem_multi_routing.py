"""T1 to T5: where there are several ways, messages go along one tree, and the other gateways keep
what they would pass on until they hear it.

Two gateways between the same rings: A with 1, gateways 101 and 102 (201 and 202 on B), B with 3.
"""

from __future__ import annotations

from random import Random

import pytest
from multi_driver import Core, ring

from ringcast.core.ids import Level, NodeId
from ringcast.core.rings import Rings, shaped
from ringcast.core.trace import Delivered, TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config, TotemMulti
from ringcast.protocols.totem_multi.messages import Data, Forwarded, Key
from ringcast.protocols.totem_multi.routing import TreeRouting, tree
from ringcast.protocols.totem_single.messages import RingId
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import Tamper
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached

PAIR: dict[str, tuple[NodeId, ...]] = {"A": (1, 101, 102), "B": (3, 201, 202)}


def second(acyclic: bool = False) -> tuple[Core, TreeRouting]:
    """102, which the tree does not need."""
    return Core(102, {102: "A", 202: "B"}, PAIR), TreeRouting(102, acyclic)


def message(timestamp: int) -> Forwarded:
    """Of ring A."""
    return Forwarded(timestamp, ring("A"), None, Data(1, Level.AGREED, 1, (b"x",)))


def heard(
    core: Core, routing: TreeRouting, pid: NodeId, timestamp: int
) -> list[tuple[NodeId, Forwarded]]:
    """A message of ring A is heard at an interface."""
    return routing.heard(pid, ring("A"), Key(timestamp, ring("A")), core.order)


def graph(rings: Rings) -> dict[NodeId, dict[NodeId, RingId]]:
    """Gateways of a network, as they are delivered."""
    ports = attached(rings)
    return {
        node: {pid: RingId(8 + domain, 1) for domain, pid in some}
        for node, some in ports.items()
        if len(some) > 1
    }


@pytest.mark.parametrize("kind", ["chain", "star", "cycle", "tree", "random"])
@pytest.mark.parametrize("twice", [False, True])
def test_t1_the_tree_leads_everywhere_by_one_way(kind: str, twice: bool) -> None:
    """Each interface it uses beyond the first of its gateway adds a ring."""
    for seed in range(10):
        gateways = graph(shaped(kind, 6, 1, Random(seed), twice))
        found = tree(gateways)
        rings = {at for ends in gateways.values() for at in ends.values()}
        assert sum(len(pids) - 1 for pids in found.values()) == len(rings) - 1
        seen = {min(rings)}
        while (
            more := {
                gateways[node][pid]
                for node, pids in found.items()
                if any(gateways[node][pid] in seen for pid in pids)
                for pid in pids
            }
            - seen
        ):
            seen |= more
        assert seen == rings


def test_t1_of_parallel_gateways_it_is_the_lowest() -> None:
    assert tree({5: {5: ring("A"), 15: ring("B")}, 4: {4: ring("A"), 14: ring("B")}}) == {
        4: frozenset({4, 14})
    }


def test_t1_a_graph_in_parts_has_a_tree_in_each() -> None:
    parts = {4: {4: ring("A"), 14: ring("B")}, 5: {5: ring("C"), 15: ring("D")}}
    assert set(tree(parts)) == {4, 5}


def test_t2_a_gateway_that_the_tree_does_not_use_keeps_what_it_would_pass_on() -> None:
    core, routing = second()
    assert routing.keeps(202, 102, message(9), core.order) and routing.keeping
    first = Core(101, {101: "A", 201: "B"}, PAIR)
    assert not TreeRouting(101, False).keeps(201, 101, message(9), first.order)


def test_t2_until_it_hears_it() -> None:
    core, routing = second()
    routing.keeps(202, 102, message(9), core.order)
    heard(core, routing, 102, 9)
    assert routing.keeping, "it was heard elsewhere"
    heard(core, routing, 202, 9)
    assert not routing.keeping and routing.release(202) == []


def test_t2_what_came_first_beside_the_tree_goes_on_along_it() -> None:
    """102 leads to A, B and C; the tree uses it for A and B, and to C it leads by 101."""
    rings = {"A": (1, 101, 102), "B": (3, 202), "C": (4, 201, 302)}
    core = Core(102, {102: "A", 202: "B", 302: "C"}, rings)
    routing, said = TreeRouting(102, False), message(9)
    assert tree(core.order.network.gateways)[102] == {102, 202}
    assert routing.keeps(102, 302, said, core.order) and routing.keeps(202, 302, said, core.order)
    routing.topology_changed()
    assert heard(core, routing, 102, 9) == [(202, said)], "it waited for a whole turn"
    assert not routing.keeping and heard(core, routing, 102, 9) == []


def test_t2_what_is_due_takes_along_what_precedes_it_in_its_stream() -> None:
    """A was not settled when 9 came by C, so 9 went out there and was kept for B alone. 10 was kept
    for both, and is heard at A: whoever is on B would take 9 for a copy after it."""
    rings = {"A": (1, 101, 102), "B": (3, 202), "C": (4, 201, 302)}
    core = Core(102, {102: "A", 202: "B", 302: "C"}, rings)
    routing = TreeRouting(102, False)
    first, second = message(9), message(10)
    other = Forwarded(8, ring("C"), None, first.message)
    for pid, said in ((202, first), (202, other), (102, second), (202, second)):
        assert routing.keeps(pid, 302, said, core.order)
    assert heard(core, routing, 102, 10) == [(202, first), (202, second)]
    assert routing.release(202) == [other], "of another stream"


def test_t2_where_there_is_one_way_nothing_is_kept() -> None:
    core, routing = second(acyclic=True)
    assert not routing.keeps(202, 102, message(9), core.order)


def test_t3_while_a_ring_changes_all_pass_everything_on() -> None:
    core, routing = second()
    core.change("Bt", "B", 12, 3, 201, 202)
    assert not routing.keeps(202, 102, message(9), core.order)


def test_t3_what_is_kept_goes_ahead_of_a_change() -> None:
    core, routing = second()
    for at in (9, 11):
        routing.keeps(202, 102, message(at), core.order)
    assert routing.release(202) == [message(9), message(11)]
    assert not routing.keeping


def test_t4_what_nobody_passes_on_goes_out_after_a_turn() -> None:
    core, routing = second()
    routing.keeps(202, 102, message(9), core.order)
    assert routing.overdue() == []
    routing.keeps(202, 102, message(10), core.order)
    assert routing.overdue() == [(202, message(9))]
    assert routing.overdue() == [(202, message(10))]
    assert not routing.keeping


def test_t5_what_is_kept_for_the_own_ring_is_not_delivered_before_it_is_heard() -> None:
    """P-12: an own message would leave ahead of what it follows from."""
    core, routing = second()
    routing.keeps(102, 202, message(9), core.order)
    routing.keeps(202, 102, message(10), core.order)
    assert routing.waits(Key(9, ring("A"))) and not routing.waits(Key(10, ring("A")))
    heard(core, routing, 102, 9)
    assert not routing.waits(Key(9, ring("A")))


def test_t5_the_order_waits_for_it() -> None:
    core, _ = second()
    core.kept.add(Key(9, ring("A")))
    core.message("A9")
    core.bound("B", 20)
    assert core.delivered == []
    core.kept.clear()
    core.order.advance(core.env)
    assert core.delivered == ["A9"]


def test_t2_what_is_kept_goes_ahead_of_what_follows_it_in_its_stream() -> None:
    """Whoever got the later one first would take the earlier one for a copy."""
    core, routing = second()
    for at in (9, 10, 12):
        routing.keeps(202, 102, message(at), core.order)
    other = Forwarded(11, ring("B"), None, Data(3, Level.AGREED, 1, (b"x",)))
    assert routing.kept_before(202, other) == [] == routing.kept_before(102, message(11))
    assert routing.kept_before(202, message(11)) == [message(9), message(10)]
    assert routing.release(202) == [message(12)]


def test_t4_waits_for_a_slow_gateway_that_is_still_passing_on_what_comes_before() -> None:
    """A ring that is overloaded is not sent everything twice."""
    core, routing = second()
    for at in (9, 10, 11):
        routing.keeps(202, 102, message(at), core.order)
    assert routing.overdue() == []
    heard(core, routing, 202, 9)
    assert routing.overdue() == [], "10 and 11 are on their way"
    assert routing.overdue() == [(202, message(10)), (202, message(11))]


def test_t4_does_not_wait_for_what_was_passed_over() -> None:
    core, routing = second()
    for at in (9, 10):
        routing.keeps(202, 102, message(at), core.order)
    assert routing.overdue() == []
    heard(core, routing, 202, 10)
    assert routing.overdue() == [(202, message(9))]


@pytest.mark.parametrize("without", ["", "what precedes", "what is heard"])
@pytest.mark.parametrize("level", [Level.AGREED, Level.SAFE])
def test_t2_a_gateway_of_three_rings_loses_nothing(
    level: Level, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of ring A comes to 7 by C first, since A's token is late there. It is kept for
    whoever passes it on, and goes with what its sender says later, or when 7 hears it itself:
    either is enough."""
    hear = TotemMulti._heard

    def hear_forwarded(self: TotemMulti, pid: NodeId, stream: RingId, key: Key) -> None:
        if stream != self.ports[pid].ring:
            hear(self, pid, stream, key)

    if without == "what precedes":
        monkeypatch.setattr(TreeRouting, "kept_before", lambda *_: [])
    elif without == "what is heard":
        monkeypatch.setattr(TotemMulti, "_heard", hear_forwarded)
    network = Network(((1, 2, 6, 7), (3, 4, 7, 8), (5, 6, 7, 8)))
    cluster = network.cluster
    for at in range(60):
        cluster.submit(1, (b"a%d" % at,), level)
        cluster.submit(5, (b"c%d" % at,), level)
        if at % 20 == 5:
            late = Tamper(src=6, dst=7, message="Token", count=1, delay_us=20_000)
            cluster.tamper(late, 0)
        cluster.run_for(1000)
    cluster.run_for(2_000_000)
    assert set(network.delivered().values()) == {120}


def test_t1_another_topology_has_another_tree() -> None:
    core, routing = second()
    assert routing.keeps(202, 102, message(9), core.order)
    del core.order.network.gateways[101]
    routing.topology_changed()
    assert not routing.keeps(202, 102, message(10), core.order)


class Network:
    """A network of rings in the simulator, that has formed."""

    def __init__(self, rings: Rings) -> None:
        places = attached(rings)
        self.events: list[TraceEvent] = []
        record = self.events.append
        self.cluster = Cluster(SHEET, Config(), places, preset("ideal"), 1, [record], places)
        self.passed: dict[NodeId, int] = {}
        self.cluster.start()
        self.cluster.run_for(5_000_000)
        self.events.clear()
        for node, some in places.items():
            if len(some) > 1:
                self._watch(node)

    def _watch(self, node: NodeId) -> None:
        machine = self.cluster.machine(node)
        assert isinstance(machine, TotemMulti)
        say = machine._say

        def spy(env: object, pid: NodeId, said: object) -> None:
            if isinstance(said, Forwarded) and isinstance(said.message, Data):
                self.passed[node] = self.passed.get(node, 0) + 1
            say(env, pid, said)  # type: ignore[arg-type]

        machine._say = spy  # type: ignore[method-assign]

    def delivered(self) -> dict[NodeId, int]:
        got: dict[NodeId, int] = {}
        for event in self.events:
            if isinstance(event, Delivered):
                got[event.node] = got.get(event.node, 0) + len(event.digests)
        return got


@pytest.mark.parametrize(("kind", "count", "twice"), [("chain", 2, True), ("cycle", 4, False)])
def test_t1_to_t4_each_ring_gets_one_copy(kind: str, count: int, twice: bool) -> None:
    """As many as there are further rings; without the tree, one for each way in."""
    network = Network(shaped(kind, count, 2, Random(0), twice))
    for _ in range(50):
        assert network.cluster.submit(1, (b"x",))
        network.cluster.run_for(2_000)
    network.cluster.run_for(500_000)
    assert set(network.delivered().values()) == {50}
    assert sum(network.passed.values()) == 50 * (count - 1)


def test_t4_a_gateway_of_the_tree_that_passes_nothing_on_is_stood_in_for() -> None:
    """It is there, and does not do its work: no change tells the other one."""
    network = Network(shaped("chain", 2, 2, Random(0), True))
    lazy = network.cluster.machine(5)
    assert isinstance(lazy, TotemMulti)
    forward = lazy.forward
    lazy.forward = (  # type: ignore[method-assign]
        lambda said, came: None if isinstance(said, Forwarded) else forward(said, came)
    )
    for _ in range(10):
        assert network.cluster.submit(1, (b"x",))
    network.cluster.run_for(5_000_000)
    assert set(network.delivered().values()) == {10}

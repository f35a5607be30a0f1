"""What is under way when a ring changes: S-19, S-22, S-23, S-30 and S-34, in simulated networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ringcast.checks import suite
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.rings import Rings
from ringcast.core.trace import Delivered, Ended, Installed, Noted, Originated, TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config, TotemMulti
from ringcast.protocols.totem_multi.clock import ClockRider
from ringcast.protocols.totem_multi.flow import FULL, STEPS
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Data,
    Forwarded,
    Sort,
    read,
)
from ringcast.protocols.totem_multi.state import Streamed
from ringcast.protocols.totem_single.messages import RingId, Token
from ringcast.protocols.totem_single.state import Phase
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import Tamper
from ringcast.sim.presets import preset
from ringcast.sim.rings import PORT, attached

SECOND = 1_000_000
HOP = 100
"""Microseconds that a frame takes."""


class Network:
    """Simulated rings with all checks, up for two seconds; ``apart``: the parts of domain 1."""

    def __init__(
        self, rings: Rings, apart: tuple[tuple[NodeId, ...], ...] = (), **settings: object
    ) -> None:
        places = attached(rings)
        config = Config(**settings)  # type: ignore[arg-type]
        self.checks = suite(SHEET.claims(config), SHEET.progress_bound_us(config, len(places)))
        self.events: list[TraceEvent] = []
        see = [self.checks.feed, self.events.append]
        self.cluster = Cluster(SHEET, config, places, preset("ideal"), 1, see, places)
        self.nodes = tuple(places)
        self.cluster.start()
        self.cluster.run_for(2 * SECOND)
        if apart:
            self.cluster.partition(apart, 1)
            self.cluster.run_for(2 * SECOND)
        self.events.clear()

    def machine(self, node: NodeId) -> TotemMulti:
        machine = self.cluster.machine(node)
        assert isinstance(machine, TotemMulti)
        return machine

    def ring(self, node: NodeId, pid: NodeId = 0) -> RingId:
        """The last regular ring at an interface."""
        return self.machine(node).ports[pid or node].ring

    def until(self, so: Callable[[], bool]) -> None:
        """Let time pass until something is so, at most a second."""
        end_us = self.cluster.now_us + SECOND
        while not so():
            assert self.cluster.now_us < end_us, "it never is"
            self.cluster.run_for(HOP // 4)

    def bodies(self, node: NodeId) -> list[tuple[NodeId, int]]:
        """Sender and number of each message that a processor delivered."""
        return [
            (e.sender, number)
            for e in self.events
            if isinstance(e, Delivered) and e.node == node
            for number in range(e.first, e.first + len(e.digests))
        ]

    def end(self) -> None:
        """Nothing is left waiting, and no property is violated."""
        self.cluster.run_for(2 * SECOND)
        for node in self.cluster.up():
            machine = self.machine(node)
            order = machine.order
            assert not (order.pending or order.late or order.unplaced or order.denied)
            assert not machine._buffers and machine.blocked == ""
            assert machine.snapshot()["waiting"] == 0
        self.cluster.recorder.emit(Ended(self.cluster.now_us))
        assert not self.checks.violations and not self.cluster.recorder.violations


@pytest.fixture
def handed_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodeId, RingId, Streamed]]:
    """What gateways had passed on: at whom it was handed up, in which ring, and what it is."""
    seen: list[tuple[NodeId, RingId, Streamed]] = []
    hand_up = TotemMulti._hand_up_forwarded

    def see(self: TotemMulti, env: Env, pid: NodeId, sender: NodeId, said: Streamed) -> None:
        seen.append((self.me, self.ports[pid].ring, said))
        hand_up(self, env, pid, sender, said)

    monkeypatch.setattr(TotemMulti, "_hand_up_forwarded", see)
    return seen


# --- S-19: a merge that is cut short ----------------------------------------------------------

SIDES = ((1, 2, 4), (3, 5))
"""1 and gateway 4 on A, 2, 4 and gateway 5 on the middle ring, 5 and 3 on C."""


@pytest.mark.parametrize("wait_us", [0, 50_000])
def test_s_19_a_ring_that_merged_splits_before_anybody_is_told_of_the_rest(
    wait_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-19: {A, B} and {C, D} merge on the LAN of B and C, here the middle one of a chain, on which
    5 was alone. No Network Topology is heard before it splits again, at once or after a while in
    which each gateway passes on what the other side must not deliver (MR-31). Each side ends in its
    own component, was never in the union, and delivers its own messages, from before the merge,
    from within it, and later."""
    network = Network(((1, 4), (2, 4, 5), (3, 5)), ((2, 4 + PORT), (5,)))
    cluster = network.cluster

    def submit() -> None:
        assert all(cluster.submit(node, (b"x",)) for node in (1, 3))

    with monkeypatch.context() as silent:
        silent.setattr(TotemMulti, "exchange", lambda *_: None)
        cluster.heal()
        submit()
        network.until(lambda: network.ring(2) == network.ring(4, 4 + PORT) == network.ring(5))
        submit()
        cluster.run_for(wait_us)
        assert all(network.machine(node).order.pending for node in (2, 4, 5))
        assert all(network.machine(node)._buffers for node in (2, 4, 5)) == bool(wait_us)
    cluster.partition(((2, 4 + PORT), (5,)), 1)
    cluster.run_for(3 * SECOND)
    submit()
    network.end()
    for side in SIDES:
        near, far = (1, 3) if 1 in side else (3, 1)
        for node in side:
            assert network.machine(node).nodes == side
            assert network.bodies(node) == [(near, 1), (near, 2), (near, 3)]
        seen = [e.members for e in network.events if isinstance(e, Installed) and e.node in side]
        assert seen and not any(far in members for members in seen)


# --- S-22 and S-23: what waits in a queue when its ring changes ---------------------------------


def test_s_22_forwarded_messages_that_waited_go_out_on_the_new_ring_with_old_stamps(
    handed_up: list[tuple[NodeId, RingId, Streamed]],
) -> None:
    """S-22, G-36: 2 stands still with the token of B, so 50 messages of 1 wait at gateway 6; B goes
    on without 2, and with 5, which was alone. 3 and 4 deliver all of them, 5 drops all of them."""
    parts, settings = ((2, 3, 4, 6 + PORT), (5,)), {"packing": False, "hold_us": 0}
    network = Network(((1, 6), (2, 3, 4, 5, 6)), parts, **settings)
    cluster, old = network.cluster, network.ring(6, 6 + PORT)
    source = network.ring(1)
    cluster.pause(2)
    cluster.run_for(10_000)
    assert cluster.submit(1, (b"x",) * 50)
    cluster.run_for(20_000)
    queue = network.machine(6).ports[6 + PORT].part.machine.new_message_queue
    words = [read(body) for body, sort in queue._queue if sort == Sort.SAID]
    waiting = [each for each in words if isinstance(each, Forwarded)]
    stamps = [each.timestamp for each in waiting if isinstance(each.message, Data)]
    assert len(stamps) == 50 and network.ring(6, 6 + PORT) == old
    handed_up.clear()
    cluster.heal()
    network.until(lambda: network.ring(5) == network.ring(3) != old)
    new = network.ring(5)
    begins = network.machine(5).ports[5].rider.begins[new].timestamp
    assert max(stamps) < begins
    cluster.run_for(100_000)

    def passed(node: NodeId) -> list[tuple[RingId, RingId, int]]:
        return [
            (ring, said.ring, said.timestamp)
            for at, ring, said in handed_up
            if at == node and isinstance(said, Forwarded) and isinstance(said.message, Data)
        ]

    assert passed(3) == passed(4) == passed(5) == [(new, source, stamp) for stamp in stamps]
    for node in (1, 3, 4, 6):
        assert network.bodies(node) == [(1, number) for number in range(1, 51)]
    assert network.bodies(5) == []
    cluster.resume(2)
    cluster.run_for(SECOND)
    assert cluster.submit(1, (b"all",))
    network.end()
    assert network.bodies(5) == network.bodies(2) == [(1, 51)]


def test_s_23_a_message_of_before_a_ring_change_that_is_sent_after_it_is_of_the_new_ring() -> None:
    """S-23, MR-9: 2 stands still with the token of A, and goes; what 1 submitted meanwhile gets its
    ring and its timestamp when it is transmitted."""
    network = Network(((1, 2, 4), (3, 4)), hold_us=0)
    cluster, old = network.cluster, network.ring(1)
    cluster.pause(2)
    cluster.run_for(10_000)
    before = network.machine(1).clock.my_timestamp
    assert cluster.submit(1, (b"early",))
    cluster.run_for(10_000)
    assert len(network.machine(1)._queues[0]) == 1 and network.ring(1) == old
    network.until(lambda: network.ring(1) != old)
    new = network.ring(1)
    begins = network.machine(1).ports[1].rider.begins[new].timestamp
    cluster.run_for(100_000)
    (told,) = [e for e in network.events if isinstance(e, Originated) and e.node == 1]
    assert told.ring == new and told.seq > begins > before
    for node in (1, 3, 4):
        (got,) = [e for e in network.events if isinstance(e, Delivered) and e.node == node]
        assert (got.ring, got.seq) == (told.ring, told.seq)
    cluster.resume(2)
    cluster.run_for(SECOND)
    network.end()
    assert network.bodies(2) == []


# --- S-30: a safe message, and the far gateway crashes ------------------------------------------

NEAR = (1, 2, 3, 5)
"""Ring A with 1, 2 and gateway 5; B with 3, 5 and gateway 6; C with 6 and 4."""

ALL: tuple[NodeId, ...] = (1, 2, 3, 4, 5, 6)


class Outcome(NamedTuple):
    """What became of a safe message at the near processors, the same at all of them."""

    word: bool
    """Whether the word of 4 on it came to 5."""
    shrunk: bool
    """Whether it was delivered after a Transitional Topology Change."""
    members: tuple[NodeId, ...]
    """The topology that it was delivered in."""


def far_gateway_crashes(us: int, words: list[tuple[NodeId, RingId, Streamed]]) -> Outcome:
    """1 sends a safe message, then 4 an agreed one, and 6 crashes at a certain time."""
    network = Network(((1, 2, 5), (3, 5, 6), (4, 6)))
    cluster, far, start_us = network.cluster, network.ring(4), network.cluster.now_us
    words.clear()
    assert cluster.submit(1, (b"safe",), Level.SAFE)
    for at_us in sorted((us, 1_500)):
        cluster.run_until(start_us + at_us)
        if at_us == us:
            cluster.crash(6)
        else:
            cluster.submit(4, (b"later",))
    network.end()
    told = {
        pid
        for at, _, said in words
        if at == 5 and isinstance(said, Forwarded) and isinstance(said.message, Bound)
        if said.message.speaks_for == far
        for pid, keys, _ in said.message.receipts
        if keys
    }
    seen: dict[NodeId, list[object]] = {node: [] for node in NEAR}
    found: set[Outcome] = set()
    shrunk, members = dict.fromkeys(NEAR, False), dict.fromkeys(NEAR, ALL)
    for e in network.events:
        if isinstance(e, Ended) or e.node not in NEAR:
            continue
        if isinstance(e, Noted) and (e.rule, e.what) == ("multi A4", "shrink"):
            shrunk[e.node] = True
        elif isinstance(e, Installed):
            seen[e.node].append((e.view, e.members))
            members[e.node] = e.members
        elif isinstance(e, Delivered):
            seen[e.node].append((e.view, e.sender, e.first))
            if e.sender == 1:
                found.add(Outcome(4 in told, shrunk[e.node], members[e.node]))
    assert all(each == seen[1] for each in seen.values())
    (outcome,) = found
    return outcome


def test_s_30_near_processors_decide_alike_about_a_safe_message_when_the_far_gateway_crashes(
    handed_up: list[tuple[NodeId, RingId, Streamed]],
) -> None:
    """S-30, A3, A4: 6 crashes at any moment. If the word of C on the message, which is in the Bound
    that 6 sends for C, came to the near ones, they deliver it in the full topology, else in a
    smaller one. If they knew that C is past the message's place, a Transitional Topology Change
    goes before it (A5); else C is deleted at an earlier place (MR-30), for the Bound is what would
    have brought C past that. As the errata have it, acknowledgements (A1) replace guarantees."""
    found = [far_gateway_crashes(us, handed_up) for us in range(0, 8_000, 200)]
    for word, shrunk, members in found:
        assert (members == ALL) == word
        assert 4 not in members or word
        assert not (shrunk and word)
    assert {(word, shrunk) for word, shrunk, _ in found} == {
        (True, False),
        (False, True),
        (False, False),
    }


# --- S-34: the token of a ring whose applications wait is lost ----------------------------------


def test_s_34_a_block_survives_the_token_by_the_word_of_its_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S-34: the queue of 1 is full, which blocks both rings, and A's token is lost. As the errata
    have it (G-39), the token has a table in place of one bit, and every site remembers it; so the
    new token is not unblocked, as G-38 wants it for the bit. What is on it is the word of 1 and of
    nobody else. All others wait on while 1 is full, and no longer: only 1 ends it, with a higher
    version."""
    told: list[tuple[NodeId, RingId, dict[NodeId, int]]] = []
    released = ClockRider.token_released

    def see(self: ClockRider, env: Env, token: Token) -> bytes | None:
        ride = released(self, env, token)
        told.append((self.mine.node, token.ring_id, dict(self.brakes.told())))
        return ride

    monkeypatch.setattr(ClockRider, "token_released", see)
    settings = {"adaptive": False, "packing": False, "hold_us": 0, "each_time": 1}
    network = Network(((1, 2, 5), (3, 4, 5)), (), **settings, max_queue=60, min_queue=5)
    cluster, old = network.cluster, network.ring(1)
    others = (2, 3, 4, 5)

    def blocked(*nodes: NodeId) -> set[bool]:
        return {network.machine(node).brakes.blocked for node in nodes}

    def drained() -> bool:
        full = network.machine(1).brakes.mine == FULL
        assert not full or blocked(*others) == {True}
        return not full

    taken = sum(cluster.submit(1, (bytes(900),)) for _ in range(100))
    assert taken == 60, "then its queue is full"
    network.until(lambda: blocked(*others) == {True})
    assert cluster.tamper(Tamper(message="Token", count=0))
    cluster.run_for(5_000)
    waits = len(network.machine(1)._queues[0])
    network.until(lambda: network.machine(1).ports[1].part.machine.phase == Phase.GATHER)
    assert waits == len(network.machine(1)._queues[0]) > 5, "nothing left while there was no token"
    cluster.heal()
    told.clear()
    network.until(lambda: network.ring(1) != old)
    network.until(drained)
    network.until(lambda: blocked(*network.nodes) == {False})
    first = next(at for at, (node, _, table) in enumerate(told) if table[1] % STEPS == 0)
    assert told[first][0] == 1, "nobody but 1 ends it"
    assert {tuple(table) for _, _, table in told} == {(1,)}, "nor has anybody else said anything"
    assert len({table[1] for _, _, table in told}) == 2
    rotations = [node for node, ring, _ in told[first:] if ring == network.ring(1)].count(1)
    assert rotations <= 3
    network.end()
    assert network.bodies(4) == network.bodies(1) != []

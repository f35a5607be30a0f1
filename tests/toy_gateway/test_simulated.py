"""Two rings joined by a gateway that owns a Totem ring at each of its ports, simulated."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from gateway import SHEET, Config, Gateway

from ringcast.core.effects import Broadcast, CancelTimer, Persist, SetTimer
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.core.inputs import Started
from ringcast.core.owned import ScopedTimer
from ringcast.core.trace import Delivered, Installed, Noted, TraceEvent, digests
from ringcast.protocols.totem_single.messages import Join
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset

GATE = 9
PLACES = {1: ((0, 1),), 2: ((0, 2),), 3: ((1, 3),), 4: ((1, 4),), GATE: ((0, 9), (1, 19))}
SECOND = 1_000_000


class Story:
    """A cluster of two rings, and what its members were told."""

    def __init__(self, network: str = "lan", seed: int = 0) -> None:
        plain = Config()
        configs = {node: plain for node in PLACES} | {
            GATE: msgspec.structs.replace(plain, gateway=True)
        }
        self.events: list[TraceEvent] = []
        self.cluster = Cluster(
            SHEET, configs, PLACES, preset(network), seed, [self.events.append], PLACES
        )
        self.cluster.start()
        self.cluster.run_for(5 * SECOND)

    def delivered(self, node: int) -> list[int]:
        """Checksums of what ``node`` delivered, in order."""
        return [
            one
            for event in self.events
            if isinstance(event, Delivered) and event.node == node
            for one in event.digests
        ]

    def members(self, node: int) -> tuple[int, ...]:
        """The last regular configuration of ``node``."""
        return [
            event.members
            for event in self.events
            if isinstance(event, Installed) and event.node == node and not event.transitional
        ][-1]

    def gateway(self) -> Gateway:
        machine = self.cluster.machine(GATE)
        assert isinstance(machine, Gateway)
        return machine


def test_a_gateway_is_a_member_of_both_rings_under_an_id_in_each() -> None:
    story = Story()
    assert story.members(1) == story.members(2) == (1, 2, 9)
    assert story.members(3) == story.members(4) == (3, 4, 19)


@pytest.mark.parametrize("network", ["lan", "lossy"])
def test_what_one_ring_orders_is_ordered_on_the_other(network: str) -> None:
    story = Story(network)
    bodies = [b"%d" % i for i in range(200)]
    for i, body in enumerate(bodies):
        story.cluster.submit(1 + i % 4, (body,), Level(i % 2))
        story.cluster.run_for(5_000)
    story.cluster.run_for(2 * SECOND)
    near, far = story.delivered(1), story.delivered(3)
    assert near == story.delivered(2)
    assert far == story.delivered(4)
    assert sorted(near) == sorted(far) == sorted(digests(bodies))


def test_parts_keep_timers_storage_and_notes_apart() -> None:
    story = Story()
    ring_seq = dict(story.cluster.nodes[GATE].storage.read())
    assert ring_seq.keys() == {"ring-0/ring_seq", "ring-1/ring_seq"}
    notes = {e.what for e in story.events if isinstance(e, Noted) and e.node == GATE}
    assert {"ring-0/commit", "ring-1/commit"} <= notes
    assert all("/" in what for what in notes)


def test_a_restarted_gateway_takes_up_each_ring_where_its_storage_left_it() -> None:
    story = Story()
    before = dict(story.cluster.nodes[GATE].storage.read())
    story.cluster.crash(GATE)
    story.cluster.run_for(3 * SECOND)
    assert story.members(1) == (1, 2)
    assert story.members(3) == (3, 4)
    story.cluster.restart(GATE)
    story.cluster.run_for(5 * SECOND)
    assert story.members(1) == (1, 2, 9)
    assert story.members(3) == (3, 4, 19)
    after = dict(story.cluster.nodes[GATE].storage.read())
    assert all(after[key] > before[key] for key in before)


def test_a_fault_in_one_domain_leaves_the_other_alone() -> None:
    story = Story()
    quiet = len([e for e in story.events if isinstance(e, Installed) and e.node == 1])
    story.cluster.partition(((3,), (4, 19)), domain=1)
    story.cluster.run_for(3 * SECOND)
    assert story.members(3) == (3,)
    assert story.members(4) == (4, 19)
    assert len([e for e in story.events if isinstance(e, Installed) and e.node == 1]) == quiet
    story.cluster.heal()
    story.cluster.run_for(5 * SECOND)
    assert story.members(3) == (3, 4, 19)


def test_the_same_seed_gives_the_same_trace() -> None:
    def told(seed: int) -> list[TraceEvent]:
        story = Story("lossy", seed)
        for i in range(20):
            story.cluster.submit(1 + i % 4, (b"%d" % i,))
            story.cluster.run_for(10_000)
        return story.events

    assert told(3) == told(3)
    assert told(3) != told(4)


def test_frames_of_a_part_with_a_port_are_plain() -> None:
    """So a plain Totem member and a gateway's ring understand each other."""
    gateway = Gateway(9, Config(gateway=True))
    env = Env(9, Random(0))
    gateway.handle(env, Started(1, {"ring-1/ring_seq": 40}, (9, 19)))
    effects = env.take()
    joins = [e for e in effects if isinstance(e, Broadcast) and isinstance(e.message, Join)]
    assert [(e.port, e.message.sender_id) for e in joins] == [(0, 9), (1, 19)]  # type: ignore[attr-defined]
    persisted = {e.key: e.value for e in effects if isinstance(e, Persist)}
    assert persisted == {"ring-0/ring_seq": 4, "ring-1/ring_seq": 44}
    timers = [e.timer for e in effects if isinstance(e, SetTimer)]
    assert {timer.part for timer in timers if isinstance(timer, ScopedTimer)} == {
        "ring-0",
        "ring-1",
    }
    gateway.parts.drop(env, "ring-1")
    gone = {e.timer for e in env.take() if isinstance(e, CancelTimer)}
    assert gone == {timer for timer in timers if timer.startswith("ring-1/")}

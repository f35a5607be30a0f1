"""The network carries, loses, delays and cuts as its model and its faults say."""

from __future__ import annotations

from random import Random

import pytest
from toy import Flood, Nudge

from ringcast.core.effects import Broadcast, Effect, Note, Send
from ringcast.core.inputs import Received
from ringcast.sim.model import (
    BurstTail,
    Constant,
    Delay,
    Exponential,
    LinkModel,
    LinkOverride,
    Lognormal,
    NetworkModel,
    Uniform,
)
from ringcast.sim.network import Network, Tamper, wire_bytes
from ringcast.sim.record import Counts
from ringcast.sim.scheduler import Scheduler


class Ear:
    """A port that writes down what it hears, and when."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.heard: list[tuple[int, str, int]] = []

    def hear(self, frame: Received) -> None:
        self.heard.append((self.scheduler.now_us, "broadcast", frame.src))

    def hear_unicast(self, frame: Received) -> None:
        self.heard.append((self.scheduler.now_us, "unicast", frame.src))


class Lab:
    """Four ears on a network."""

    def __init__(self, model: NetworkModel) -> None:
        self.scheduler = Scheduler()
        self.counts = Counts()
        self.network = Network(model, self.scheduler, Random("lab"), self.counts)
        self.ears = {node: Ear(self.scheduler) for node in (1, 2, 3, 4)}
        self.network.attach(dict(self.ears))

    def broadcast(self, src: int, size: int = 0, times: int = 1) -> None:
        for _ in range(times):
            self.network.broadcast(Received(src, 0, Flood(src, 1, bytes(size))))

    def send(self, src: int, to: int, times: int = 1) -> None:
        for _ in range(times):
            self.network.send(to, Received(src, 0, Nudge(1)))

    def settle(self) -> None:
        self.scheduler.run_until(self.scheduler.now_us + 10_000_000)

    def reached(self) -> set[int]:
        self.settle()
        return {node for node, ear in self.ears.items() if ear.heard}


def fixed(us: int = 100, **more: object) -> LinkModel:
    return LinkModel(delay=Constant(us), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("link", [fixed(), fixed(reorder=0.0001), fixed(mtu_bytes=5000)])
def test_a_broadcast_reaches_all_others_and_a_unicast_one(link: LinkModel) -> None:
    lab = Lab(NetworkModel(link=link))
    lab.broadcast(1)
    lab.send(2, 3)
    lab.settle()
    assert {node: ear.heard for node, ear in lab.ears.items()} == {
        1: [],
        2: [(100, "broadcast", 1)],
        3: [(100, "broadcast", 1), (100, "unicast", 2)],
        4: [(100, "broadcast", 1)],
    }
    assert lab.counts.sent == 2


def test_a_broadcast_of_the_same_moment_comes_before_a_unicast() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.send(2, 3)
    lab.broadcast(1)
    lab.settle()
    assert [kind for _, kind, _ in lab.ears[3].heard] == ["broadcast", "unicast"]


@pytest.mark.parametrize(
    "delay",
    [Constant(70), Uniform(50, 90), Exponential(50, 30, 90), Lognormal(60, 0.5, 90)],
)
def test_delays_stay_within_their_bounds(delay: Delay) -> None:
    drawn = [delay.sample(Random(i)) for i in range(200)]
    assert all(0 <= us <= 90 for us in drawn)
    assert isinstance(delay, Constant) or len(set(drawn)) > 10


def test_loss_is_drawn_for_each_receiver_and_kind() -> None:
    lab = Lab(NetworkModel(link=fixed(loss=0.5)))
    lab.broadcast(1, times=400)
    lab.send(1, 2, times=100)
    lab.settle()
    heard = [len(ear.heard) for ear in lab.ears.values()]
    assert heard[0] == 0
    assert all(150 < count < 250 for count in heard[2:])
    assert len(set(heard[2:])) > 1 or heard[1] - 100 != heard[2]
    assert lab.ears[2].heard.count((100, "unicast", 1)) == 100
    assert lab.counts.lost["loss"] == 1300 - sum(heard)


def test_duplicates_and_overtaking() -> None:
    lab = Lab(NetworkModel(link=fixed(duplicate=1.0, reorder=0.5, reorder_us=50)))
    lab.send(1, 2, times=20)
    lab.settle()
    times = [t_us for t_us, _, _ in lab.ears[2].heard]
    assert len(times) == 40
    assert 100 in times and 100 < max(times) <= 150


def test_a_frame_above_the_mtu_vanishes_on_that_link_only() -> None:
    hole = LinkOverride(1, 2, fixed(mtu_bytes=100))
    lab = Lab(NetworkModel(link=fixed(), links=(hole,)))
    lab.broadcast(1, size=200)
    assert lab.reached() == {3, 4}
    lab.broadcast(1, size=50)
    assert lab.reached() == {2, 3, 4}
    assert lab.counts.lost["mtu"] == 1


def test_bandwidth_makes_frames_wait_for_each_other_per_link() -> None:
    # 20 + 80 bytes and 25 of overhead at 1 Mb/s are one millisecond on the wire.
    lab = Lab(NetworkModel(link=fixed(bandwidth_bps=1_000_000), overhead_bytes=25))
    lab.broadcast(1, size=80, times=2)
    lab.broadcast(2, size=80)
    lab.settle()
    assert [t_us for t_us, _, _ in lab.ears[3].heard] == [1100, 1100, 2100]


def test_a_shared_medium_carries_one_frame_at_a_time() -> None:
    link = fixed(bandwidth_bps=1_000_000)
    lab = Lab(NetworkModel(link=link, overhead_bytes=25, shared=True))
    lab.broadcast(1, size=80)
    lab.broadcast(2, size=80)
    lab.settle()
    assert [t_us for t_us, _, _ in lab.ears[3].heard] == [1100, 2100]


@pytest.mark.parametrize("shared", [False, True])
def test_a_wire_queues_only_so_much(shared: bool) -> None:
    link = fixed(bandwidth_bps=1_000_000, queue_us=2500)
    lab = Lab(NetworkModel(link=link, shared=shared))
    lab.broadcast(1, size=105, times=10)
    lab.settle()
    assert len(lab.ears[2].heard) == 3
    assert lab.counts.lost["queue full"] == 7 * 3


def test_partitions_isolate_whom_they_do_not_list() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.network.partition([(1, 2), (3,)])
    lab.broadcast(1)
    assert lab.reached() == {2}
    lab.send(4, 3)
    lab.send(3, 4)
    assert lab.reached() == {2}
    assert lab.counts.lost["partition"] == 4
    lab.network.heal()
    lab.broadcast(1)
    assert lab.reached() == {2, 3, 4}


def test_a_cut_has_one_direction() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.network.cut(1, 2)
    lab.broadcast(1)
    assert lab.reached() == {3, 4}
    lab.send(2, 1)
    assert lab.reached() == {1, 3, 4}
    lab.network.mend(1, 2)
    lab.send(1, 2)
    assert lab.reached() == {1, 2, 3, 4}


def test_an_unknown_address_is_counted() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.send(1, 99)
    assert lab.counts.lost == {"unknown address": 1}


def test_tampering_drops_delays_and_copies_the_next_matching_frames() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.network.tamper(Tamper(src=1, dst=2, message="Flood", count=2))
    lab.broadcast(1, times=3)
    lab.send(1, 2)
    lab.settle()
    assert lab.ears[2].heard == [(100, "broadcast", 1), (100, "unicast", 1)]
    assert len(lab.ears[3].heard) == 3
    lab.network.tamper(Tamper(dst=4, delay_us=900))
    lab.network.tamper(Tamper(dst=3, delay_us=400, copy=True))
    start_us = lab.scheduler.now_us
    for ear in lab.ears.values():
        ear.heard.clear()
    lab.broadcast(2)
    lab.scheduler.run_until(start_us + 10_000)
    assert [t - start_us for t, _, _ in lab.ears[4].heard] == [1000]
    assert [t - start_us for t, _, _ in lab.ears[3].heard] == [100, 500]
    assert [t - start_us for t, _, _ in lab.ears[1].heard] == [100]


def test_tampering_without_count_lasts_until_the_heal() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.network.tamper(Tamper(dst=2, count=0))
    lab.broadcast(1, times=50)
    assert lab.reached() == {3, 4}
    lab.network.heal()
    lab.broadcast(1)
    assert lab.reached() == {2, 3, 4}


def test_overrides_last_until_forgotten() -> None:
    lab = Lab(NetworkModel(link=fixed()))
    lab.network.override(1, 2, fixed(loss=1.0))
    lab.network.become(NetworkModel(link=fixed(200)))
    lab.broadcast(1)
    assert lab.reached() == {3, 4}
    lab.network.forget_overrides()
    lab.broadcast(1)
    assert lab.reached() == {2, 3, 4}


def test_the_tail_of_a_burst_is_lost_but_never_a_lone_frame() -> None:
    lab = Lab(NetworkModel(link=fixed(), burst_tail=BurstTail(frames=2)))
    note = Note("toy", "note")
    a, b, c = (Broadcast(Flood(1, k, b"")) for k in (1, 2, 3))
    token = Send(2, Nudge(1))
    burst: list[Effect] = [a, note, b, c, token]
    assert lab.network.trim_burst(burst) == [a, note, b]
    assert lab.network.trim_burst([a, token]) == [a]
    assert lab.network.trim_burst([note, token]) == [note, token]
    assert lab.counts.lost["burst tail"] == 3


def test_a_calm_network_loses_nothing() -> None:
    bad = fixed(loss=0.5, unicast_loss=0.5, duplicate=0.5, reorder=0.5, mtu_bytes=10)
    model = NetworkModel(link=bad, links=(LinkOverride(1, 2, bad),), burst_tail=BurstTail())
    calm = model.calm()
    assert calm == NetworkModel(link=fixed(), links=(LinkOverride(1, 2, fixed()),))


def test_the_size_of_a_frame_that_does_not_say_it_is_its_encoding() -> None:
    assert wire_bytes(Flood(1, 1, b"abc")) == 23
    assert wire_bytes(Nudge(1)) == 3


def test_bad_models_are_refused() -> None:
    with pytest.raises(ValueError, match="above high_us"):
        Uniform(9, 1)

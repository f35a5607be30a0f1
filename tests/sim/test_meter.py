"""Meter: rates and latencies by hand, and against the arithmetic that keeps every event."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringcast.core.ids import Level, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.sim import meter as module
from ringcast.sim.meter import Latency, Measures, Meter
from ringcast.sim.model import Constant, CpuModel, LinkModel, NetworkModel, Uniform
from ringcast.sim.presets import preset
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import Bursts, Poisson, Sizes

RING = ViewId(4, 1)
AGREED, SAFE = Level.AGREED, Level.SAFE


def measured(*events: TraceEvent, from_us: int = 0, until_us: int = 1_000_000) -> Measures:
    meter = Meter(from_us, until_us)
    for event in events:
        meter(event)
    return meter.read()


def together(*nodes: int, t_us: int = 0) -> list[TraceEvent]:
    return [Installed(n, 1, t_us, RING, nodes, False, RING, 0, None, None) for n in nodes]


def submit(node: int, t_us: int, first: int, *sizes: int, level: Level = AGREED) -> Submit:
    return Submit(node, 0, t_us, 1, first, level, sizes)


def originated(node: int, t_us: int, seq: int, first: int, count: int = 1) -> Originated:
    return Originated(node, 0, t_us, RING, seq, AGREED, first, (7,) * count)


def delivered(
    node: int, t_us: int, seq: int, first: int, count: int = 1, level: Level = AGREED
) -> Delivered:
    return Delivered(node, 0, t_us, RING, RING, seq, 1, level, first, (7,) * count)


def test_a_frame_of_two_messages() -> None:
    found = measured(
        *together(1, 2),
        submit(1, 1_000, 1, 100),
        submit(1, 2_000, 2, 50),
        originated(1, 4_000, 1, 1, count=2),
        delivered(1, 4_000, 1, 1, count=2),
        delivered(2, 6_000, 1, 1, count=2),
        until_us=500_000,
    )
    assert (found.messages, found.bytes, found.views) == (2, 150, 2)
    assert (found.messages_per_s, found.bytes_per_s) == (4, 300)
    assert found.agreed == Latency(2, 4_000 + 3_000, 5_000 + 4_000, 3_000 + 2_000)
    assert (found.agreed.mean_ms, found.agreed.last_ms) == (3.5, 4.5)
    assert found.agreed.first_ms == 2.5
    assert found.safe == Latency()
    assert found.safe.mean_ms == found.safe.last_ms == 0


def test_the_last_receiver_is_the_latest_not_the_one_told_of_last() -> None:
    """A processor whose work takes time tells of deliveries that lie ahead."""
    found = measured(
        *together(1, 2),
        submit(1, 0, 1, 10, level=SAFE),
        originated(1, 0, 1, 1),
        delivered(2, 9_000, 1, 1, level=SAFE),
        delivered(1, 5_000, 1, 1, level=SAFE),
    )
    assert found.safe == Latency(1, 7_000, 9_000, 5_000)


def test_only_what_is_submitted_and_done_within_the_time_counts() -> None:
    found = measured(
        *together(1, t_us=50),
        submit(1, 50, 1, 10),  # submitted too early: ordered in time, but its latency is not ours
        originated(1, 150, 1, 1),
        delivered(1, 150, 1, 1),
        submit(1, 100, 2, 20),
        originated(1, 160, 2, 2),
        delivered(1, 170, 2, 2),
        submit(1, 180, 3, 30),  # delivered too late
        originated(1, 199, 3, 3),
        delivered(1, 200, 3, 3),
        submit(1, 190, 4, 40),  # ordered too late
        originated(1, 200, 4, 4),
        delivered(1, 201, 4, 4),
        from_us=100,
        until_us=200,
    )
    assert (found.messages, found.bytes, found.views) == (3, 60, 0)
    assert found.agreed == Latency(1, 70, 70, 70)


def test_what_not_all_members_deliver_has_no_latency() -> None:
    found = measured(
        *together(1, 2, 3),
        submit(1, 0, 1, 10),
        originated(1, 0, 1, 1),
        delivered(1, 10, 1, 1),
        delivered(2, 20, 1, 1),
    )
    assert (found.messages, found.agreed) == (1, Latency())


def test_a_place_may_be_known_elsewhere_before_the_sender_knows_it() -> None:
    found = measured(
        *together(1, 2, 3),
        submit(1, 1_000, 1, 100),
        delivered(3, 3_000, 1, 1),
        originated(1, 4_000, 1, 1),
        delivered(1, 4_000, 1, 1),
        delivered(2, 5_000, 1, 1),
    )
    assert (found.messages, found.bytes) == (1, 100)
    assert found.agreed == Latency(1, 3_000, 4_000, 2_000)


def test_who_is_down_is_not_waited_for() -> None:
    crashed = Crashed(3, 0, 5)
    events = [*together(1, 2, 3), submit(1, 10, 1, 8), originated(1, 10, 1, 1)]
    told = [delivered(1, 20, 1, 1), delivered(2, 30, 1, 1)]
    assert measured(*events, *told).agreed == Latency()
    assert measured(*events, crashed, *told).agreed == Latency(1, 15, 20, 10)
    back = Restarted(3, 0, 6, 2)
    assert measured(*events, crashed, back, *told).agreed == Latency()


def test_another_incarnation_counts_anew() -> None:
    found = measured(
        *together(1),
        submit(1, 0, 1, 10),
        Crashed(1, 0, 5),
        Restarted(1, 0, 6, 2),
        submit(1, 1_000, 1, 30),
        originated(1, 1_100, 1, 1),
        delivered(1, 1_200, 1, 1),
    )
    assert found.bytes == 30
    assert found.agreed == Latency(1, 200, 200, 200)


def test_what_is_never_delivered_by_all_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    meter = Meter(0, 1_000)
    for event in together(1, 2):
        meter(event)
    for seq in range(1, 6):
        meter(submit(1, seq, seq, 1))
        meter(originated(1, seq, seq, seq))
    for seq in range(1, 6):
        meter(delivered(1, 10, seq, seq))
        meter(delivered(2, 10, seq, seq))
    assert meter.read().agreed.messages == 3
    assert meter.read().messages == 5


def test_runs_add_up() -> None:
    one = Measures(1_000_000, 10, 100, 3, Latency(2, 10.0, 30, 8), Latency(1, 5.0, 5))
    both = one + Measures(3_000_000, 30, 500, 1, Latency(3, 20.0, 70, 9), Latency())
    assert both == Measures(4_000_000, 40, 600, 4, Latency(5, 30.0, 100, 17), Latency(1, 5.0, 5))
    assert both.messages_per_s == 10
    assert Measures().messages_per_s == Measures().bytes_per_s == 0


LOADS = (
    Poisson(rate=150, safe=0.4, sizes=(Sizes(0, 3_000),)),
    Bursts(messages=5, every_us=20_000, sizes=(Sizes(10, 10),)),
)


BUSY = NetworkModel(link=LinkModel(delay=Uniform(50, 400)), cpu=CpuModel(20, 0.01, 10))
"""Frames overtake each other, and processors tell of deliveries that lie ahead."""


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1_000), st.integers(2, 4), st.sampled_from([preset("ideal"), BUSY]))
def test_against_the_arithmetic_that_keeps_everything(
    seed: int, nodes: int, network: NetworkModel
) -> None:
    """A group without faults: what has time to be delivered is delivered by all."""
    spec = RunSpec(
        nodes=nodes,
        seed=seed,
        network=network,
        duration_us=400_000,
        measure_from_us=150_000,
        workload=LOADS,
        settle=False,
    )
    events: list[TraceEvent] = []
    found = run(spec, [events.append]).measures
    began, ends = spec.measure_from_us, spec.duration_us
    assert began is not None
    submitted: dict[tuple[int, int], tuple[int, int]] = {}
    took: dict[tuple[int, int], list[int]] = {}
    levels: dict[tuple[int, int], Level] = {}
    placed = size = 0
    for event in events:
        match event:
            case Submit():
                for i, length in enumerate(event.sizes):
                    submitted[event.node, event.first + i] = (event.t_us, length)
            case Originated() if began <= event.t_us < ends:
                placed += len(event.digests)
                for i in range(len(event.digests)):
                    size += submitted[event.node, event.first + i][1]
            case Delivered() if event.t_us < ends:
                for i in range(len(event.digests)):
                    message = (event.sender, event.first + i)
                    levels[message] = event.level
                    if submitted[message][0] >= began:
                        times = took.setdefault(message, [])
                        times.append(event.t_us - submitted[message][0])
    assert (found.messages, found.bytes) == (placed, size)
    assert placed > 0
    for level, latency in ((AGREED, found.agreed), (SAFE, found.safe)):
        whole = [t for m, t in took.items() if levels[m] is level and len(t) == nodes]
        assert latency.messages == len(whole) > 0
        assert latency.mean_ms == pytest.approx(fmean(map(fmean, whole)) / 1e3)
        assert latency.last_ms == pytest.approx(fmean(map(max, whole)) / 1e3)
        assert latency.first_ms == pytest.approx(fmean(map(min, whole)) / 1e3)


def test_a_run_is_measured_only_if_asked() -> None:
    """It would cost a swarm three hundredths of its time, and say nothing."""
    spec = RunSpec(nodes=2, duration_us=200_000, workload=LOADS, settle=False)
    assert run(spec).measures == Measures()
    assert run(replace(spec, measure_from_us=0)).measures.messages > 0


def test_a_run_cannot_be_measured_after_its_end() -> None:
    with pytest.raises(ValueError, match="measure_from_us 2000000 is after the end"):
        prepare(replace(RunSpec(), measure_from_us=2_000_000))


def test_rotations_are_measured_within_a_configuration() -> None:
    meter = Meter(100, 1_000)
    for t_us in (90, 100, 130, 180):
        meter.turn(1, t_us)
    for event in together(1, t_us=200):
        meter(event)
    for t_us in (300, 340, 1_000):
        meter.turn(1, t_us)
    found = meter.read()
    assert (found.rotations, found.rotations_us) == (3, 30 + 50 + 40)
    assert found.rotation_ms == 0.04
    assert (found + found).rotation_ms == 0.04
    assert Measures().rotation_ms == 0


def test_the_rotation_of_a_ring_is_a_hop_for_each_member() -> None:
    network = NetworkModel(link=LinkModel(delay=Constant(100)))
    usual = RunSpec(nodes=5, network=network, config={"hold_us": 0}, settle=False)
    result = run(replace(usual, measure_from_us=500_000))
    assert result.measures.rotation_ms == pytest.approx(0.5, rel=0.001)
    assert result.digest == run(usual).digest  # who looks changes nothing

"""What the probes measure of networks of rings whose numbers can be told beforehand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ringcast.core.ids import Level
from ringcast.pipeline.papers import ring_networks as module
from ringcast.pipeline.papers.experiments import read
from ringcast.pipeline.papers.ring_networks import (
    SpokenWords,
    astray,
    gateway_share,
    is_word,
    network_of,
    ring_cut,
    ring_delay,
)
from ringcast.pipeline.papers.runners import items
from ringcast.pipeline.sweep.study import StudyError
from ringcast.protocols.totem_multi.messages import Ack, Bound, Data, Forwarded, Said, written
from ringcast.protocols.totem_single.messages import RingId
from ringcast.sim.run import Breach, RunResult
from ringcast.sim.run import run as simulate
from ringcast.sim.spec import RunSpec

RING = RingId(4, 1)
CHAIN: dict[str, Any] = {
    "protocol": "totem-multi",
    "shape": "chain",
    "each": 1,
    "rate": 100,
    "span_us": 200_000,
    "config": {"acyclic": True},
    "seed": 0,
}


def test_one_ring_has_a_silent_processor_in_the_gateways_place() -> None:
    assert network_of("star", 1, 4) == ((1, 2, 3, 4, 5),)
    assert network_of("chain", 3, 1) == ((1, 4), (2, 4, 5), (3, 5))


def test_words_are_what_machines_say_and_not_what_they_pass_on() -> None:
    body = b"12.3|".ljust(100, b".")
    data = Data(3, Level.AGREED, 12, (body,))
    said: list[Said] = [
        Ack(((7, RING),)),
        Bound(RING, ()),
        Forwarded(7, RING, None, Bound(RING, ())),
    ]
    assert all(is_word(written(each)) for each in said)
    assert not is_word(written(Forwarded(7, RING, None, data)))
    assert not any(map(is_word, (body, b"", b"\x02" + bytes(16))))


def test_one_ring_says_nothing_besides_and_several_rings_more_of_safe_messages() -> None:
    alone = ring_delay(rings=1, senders="one", safe=0.0, **CHAIN)
    agreed = ring_delay(rings=2, senders="all", safe=0.0, **CHAIN)
    safe = ring_delay(rings=2, senders="all", safe=1.0, **CHAIN)
    assert alone.words == 0 < agreed.words < safe.words / 4
    assert alone.messages == pytest.approx(agreed.messages, rel=0.8)
    assert alone.mean_ms < agreed.mean_ms < agreed.last_ms


def test_words_count_from_a_moment_on() -> None:
    spec = RunSpec(
        protocol="totem-multi", nodes=3, rings=((1, 3), (2, 3)), duration_us=500_000, settle=False
    )
    early, late = SpokenWords(0), SpokenWords(500_001)
    simulate(spec, taps=[early, late])
    assert early.bytes > 100 and not late.bytes


def test_without_messages_there_is_no_latency() -> None:
    with pytest.raises(StudyError, match="nothing was delivered"):
        ring_delay(rings=1, senders="one", safe=0.0, **CHAIN | {"rate": 0.01})


def test_a_chain_that_loses_its_middle_gateway_and_gets_it_back() -> None:
    (shortest, *_) = items(read("rings-cut", quick=True).tables["cuts"])
    found = ring_cut(**shortest.arguments)
    assert 300 < found.first_ms <= found.last_ms < 1_000
    assert found.first_ms - 200 < found.silent_least_ms <= found.silent_ms < 1_000
    assert 0 < found.whole_last_ms < 100
    assert found.changes >= 1 and found.whole_changes >= 1
    assert not found.astray
    early = ring_cut(**shortest.arguments | {"apart_us": 670_000, "whole_us": 3_000})
    assert early.astray == 3, "nobody knows of the others again so soon"


def test_who_has_not_seen_the_topology_is_astray() -> None:
    assert astray([], {1, 2}) == 2


def test_a_gateway_with_a_smaller_share_has_a_queue_that_blocks() -> None:
    few = {"max_queue": 60, "min_queue": 50}
    for item in items(read("rings-measured", quick=True).tables["shares"]):
        spec = item.arguments["spec"]
        load = replace(spec.workload[0], outstanding=50, start_us=500_000)
        times = {"measure_from_us": 1_500_000, "duration_us": 3_500_000}
        spec = replace(spec, config=spec.config | few, workload=(load,), **times)
        found = gateway_share(spec)
        assert 500 < found.messages_per_s < 800
        if spec.gateways["each_time"] == 20:
            assert (found.blocked, found.blocks_per_s, found.idle) == (0, 0, 0)
            assert found.longest < 60
        else:
            assert found.blocked > 0.2 and found.blocks_per_s > 0 and found.idle > 0
            assert found.longest >= 60


def test_a_violation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: RunSpec, *_: Any, **__: Any) -> RunResult:
        breach = Breach("P-7", spec.seed, "p1 delivered 2 before 1", "")
        return replace(
            simulate(replace(spec, duration_us=1, measure_from_us=0)), violations=(breach,)
        )

    monkeypatch.setattr(module, "simulate", broken)
    with pytest.raises(StudyError, match="seed 0: p1 delivered 2 before 1"):
        ring_delay(rings=2, senders="one", safe=0.0, **CHAIN)

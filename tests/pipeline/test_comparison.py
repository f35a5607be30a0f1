"""What ``compare`` measures of a run, of protocols whose costs are known."""

from __future__ import annotations

from typing import Any

import pytest
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.pipeline.papers.comparison import compare
from ringcast.pipeline.sweep.study import StudyError
from ringcast.protocols.compared.two_phase import TwoPhase
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson, Sizes

N = 5
T_US, P_US = 10_000, 500
RING = {"token_us": T_US, "repair_us": 20_000}
COUNTER = {"token_us": T_US, "idle_us": 0, "reissue_us": 30_000, "window": 1000}


def spec(protocol: str, config: dict[str, Any], **more: Any) -> RunSpec:
    """Everybody sends three messages in a token period."""
    common = {"packing": False, "max_queue": 20, "min_queue": 15}
    return RunSpec(
        protocol=protocol,
        nodes=N,
        duration_us=600_000,
        measure_from_us=100_000,
        network=NetworkModel(link=LinkModel(delay=Uniform(0, 2 * P_US), **more)),
        config=common | config,
        workload=(Poisson(rate=300.0, sizes=(Sizes(8, 8),)),),
        settle=False,
    )


@pytest.mark.parametrize(
    ("protocol", "config", "total", "links"),
    [
        ("centralised", {"repair_us": 20_000}, 2, 2 * (N - 1)),
        ("centralised", {"repair_us": 20_000, "relay": True}, 2 - 1 / N, N - 1 / N),
        ("two-phase", {"repair_us": 20_000}, N + 1, 3 * (N - 1)),
        ("optimistic", RING, 1 + 1 / N, (N - 1) * (1 + 1 / N)),
        ("fast-message", RING, 2, 2 * (N - 1)),
        ("counter", COUNTER, 1 + 1 / (3 * N * 1.05), (N - 1) * (1 + 1 / (3 * N * 1.05))),
    ],
)
def test_what_a_message_costs(
    protocol: str, config: dict[str, Any], total: float, links: float
) -> None:
    found = compare(spec(protocol, config))
    assert found.total == pytest.approx(total, rel=0.02)
    assert found.total_links == pytest.approx(links, rel=0.02)
    assert found.one_order and not found.asked and not found.resent
    assert found.turns % N == 0


def test_latency_is_that_of_whole_rotations() -> None:
    """(2N - 1/2)(T + P) with counter, N(T + P) with a token that confirms."""
    found = compare(spec("counter", COUNTER))
    assert found.latency_us == pytest.approx((2 * N - 0.5) * (T_US + P_US), rel=0.03)
    found = compare(spec("fast-message", RING))
    assert found.latency_us == pytest.approx(N * (T_US + P_US), rel=0.03)
    assert found.interval_us == pytest.approx(T_US + P_US, rel=0.03)


def test_who_holds_what_and_what_is_undone() -> None:
    lossy = {"loss": 0.2, "unicast_loss": 0.2}
    sites = {"repair_us": 4_000}
    assert compare(spec("centralised", sites, **lossy)).unheld
    assert not compare(spec("two-phase", sites, **lossy)).unheld
    found = compare(spec("optimistic", RING, **lossy))
    assert found.undone > 0.1 and not found.unheld
    found = compare(spec("counter", COUNTER | {"request_us": 10_000}, **lossy))
    assert not found.undone and not found.unheld
    assert found.asked > found.tokens and found.resent > 0.1


def test_two_orders_are_seen(monkeypatch: MonkeyPatch) -> None:
    def conclude(self: TwoPhase, env: Env, sender: int, k: int, priority: int) -> None:
        if (sender, k) in self.data and k > self.done[sender]:
            self.priority.pop((sender, k), None)
            self.hand_up(env, priority, self.data.pop((sender, k)))

    monkeypatch.setattr(TwoPhase, "conclude", conclude)
    assert not compare(spec("two-phase", {"repair_us": 20_000})).one_order


def test_without_messages_there_is_nothing_to_compare() -> None:
    quiet = RunSpec(protocol="counter", nodes=3, duration_us=10_000, settle=False)
    with pytest.raises(ValueError, match="nobody sent anything"):
        compare(quiet)


def test_only_protocols_that_say_how_their_frames_count_are_compared() -> None:
    with pytest.raises(StudyError, match="totem: its sheet does not say how its frames are"):
        compare(spec("totem", {}))

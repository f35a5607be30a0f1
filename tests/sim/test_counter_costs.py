"""What the counter-based protocol costs without losses, beside the formulas of its source.

The source's D = 2/(A·N) is an interval between commits, not a delay. With all members busy a
message is delivered after (2N - 1/2)(T + P) on average, and costs 1/(A·N·(T + P)) tokens.
"""

from __future__ import annotations

import pytest

from ringcast.core.trace import Delivered, Noted, Submit, TraceEvent
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson, Sizes

SECOND_US = 10_000
"""The source's second, a hundred times shorter."""


@pytest.mark.parametrize(("n", "t", "rate"), [(10, 1, 4), (10, 5, 1), (20, 1, 1), (20, 5, 0.25)])
def test_cb_t30_latency_and_control_cost(n: int, t: int, rate: float) -> None:
    """CB-T30: within 3 % and 5 %; each member sends A messages a second."""
    hop_s = t + 0.05
    rotations = 8
    settings = {
        "token_us": t * SECOND_US,
        "idle_us": 0,
        "reissue_us": 100 * SECOND_US,
        "window": 4096,
        "packing": False,
        "max_queue": 10_000,
        "min_queue": 9_000,
    }
    spec = RunSpec(
        protocol="counter",
        nodes=n,
        seed=1,
        duration_us=int(rotations * n * hop_s * SECOND_US),
        network=NetworkModel(link=LinkModel(delay=Uniform(0, SECOND_US // 10))),
        config=settings,
        workload=(Poisson(rate=rate * 1_000_000 / SECOND_US, sizes=(Sizes(8, 8),)),),
        settle=False,
    )
    sent: dict[tuple[int, int], int] = {}
    delays: list[int] = []
    passed: list[int] = []

    def watch(event: TraceEvent) -> None:
        match event:
            case Submit():
                for k in range(event.first, event.first + len(event.sizes)):
                    sent[event.node, k] = event.t_us
            case Delivered():
                delays.extend(event.t_us - sent[event.sender, event.first] for _ in event.digests)
            case Noted(what="pass"):
                passed.append(event.t_us)

    warm_us = spec.duration_us * 3 // rotations
    result = run(spec, [watch])
    assert not result.violations
    mean_s = sum(delays) / len(delays) / SECOND_US
    assert mean_s == pytest.approx((2 * n - 0.5) * hop_s, rel=0.03)
    count = sum(at >= warm_us for at in sent.values())
    cost = sum(at >= warm_us for at in passed) / count
    assert cost == pytest.approx(1 / (rate * n * hop_s), rel=0.05)

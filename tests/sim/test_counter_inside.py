"""P9, P11 and P12 of the counter-based protocol, seen from inside; CB-T30: loss, no crashes."""

from __future__ import annotations

from random import Random

import pytest
from counter_watch import CounterWatch
from msgspec.structs import replace
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.registry import protocol, register
from ringcast.protocols.counter import losses, tokens
from ringcast.protocols.counter.messages import Token
from ringcast.protocols.counter.state import Processor
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.run import RunResult, run
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson

WATCHED = "counter watched"
HOP_US = 400


def lossy(seed: int) -> RunSpec:
    """CB-T30: 2 to 7 members, loss up to one half, frames up to ten token periods late, some
    members silent; and no reason to suspect anybody."""
    rng = Random(f"{seed}/lossy")
    n = rng.randint(2, 7)
    loss = rng.choice((0.0, 0.1, 0.3, 0.5))
    senders = tuple(sorted(rng.sample(range(1, n + 1), rng.randint(1, n))))
    return RunSpec(
        protocol=WATCHED,
        nodes=n,
        seed=seed,
        duration_us=60 * n * HOP_US,
        network=NetworkModel(
            link=LinkModel(
                delay=Uniform(HOP_US // 4, HOP_US),
                loss=loss,
                unicast_loss=loss,
                duplicate=rng.choice((0.0, 0.1)),
                reorder=rng.choice((0.0, 0.2)),
                reorder_us=10 * HOP_US,
            )
        ),
        config={
            "order": rng.choice(("fixed", "rotating")),
            "counting": rng.choice(("set", "counter")),
            "token_us": rng.choice((0, HOP_US)),
            "idle_us": 0,
            "reissue_us": 12 * HOP_US,
            "reissues": 100,
            "request_us": 6 * HOP_US,
        },
        workload=(Poisson(rate=rng.choice((20.0, 200.0, 1000.0)), senders=senders),),
    )


def watched(spec: RunSpec, prompt: bool) -> tuple[CounterWatch, RunResult]:
    """A run, and what was seen from inside."""
    watch = CounterWatch(prompt)
    register(replace(watch.over(protocol("counter")), name=WATCHED))
    return watch, run(replace(spec, protocol=WATCHED, swarm=False))


def test_cb_t30_lossy_runs_keep_everything() -> None:
    """CB-T30, CB-9: and P11, since nothing crashes."""
    asked = delivered = 0
    for seed in range(12):
        watch, result = watched(lossy(seed), prompt=True)
        assert not result.violations, result.violations[0]
        assert not watch.found, (seed, watch.found[:3])
        asked += watch.asked
        delivered += result.deliveries
    assert asked > 200 and delivered > 2000


def test_swarms_hold_what_they_count_and_drop_nothing_early() -> None:
    """CB-8, CB-22: P9 and P12 with crashes, joins and reformations."""
    for seed in range(20):
        watch, result = watched(draw(seed, "counter"), prompt=False)
        assert not result.violations, result.violations[0]
        assert not watch.found, (seed, watch.found[:3])


def broken(patch: MonkeyPatch, rule: str) -> None:
    """Break one of the properties."""
    if rule == "P9":
        patch.setattr(tokens, "holds", lambda p, entry, token: entry.sender != p.me)
    elif rule == "P11":
        whole = losses.look

        def late(p: Processor, env: Env, token: Token) -> None:
            old = tuple(entry for entry in token.S if entry.cycle < token.t - 1)
            whole(p, env, replace(token, S=old))

        patch.setattr(losses, "look", late)
    else:
        forget = losses.forget
        patch.setattr(losses, "forget", lambda p, cycle: forget(p, cycle + 1))


@pytest.mark.parametrize("rule", ["P9", "P11", "P12"])
def test_the_watch_sees_what_is_broken(rule: str, monkeypatch: MonkeyPatch) -> None:
    """CB-12, CB-9, CB-8: counts what is not there; asks a cycle late; drops a cycle early."""
    broken(monkeypatch, rule)
    specs = [replace(lossy(seed), settle=False) for seed in range(4)]
    found = [text for spec in specs for text in watched(spec, prompt=True)[0].found]
    assert any(text.startswith(f"{rule}:") for text in found), found[:3]

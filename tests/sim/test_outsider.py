"""Somebody on the path without the key: every property holds, and the wire's rules are why."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace
from published import PUBLISHED

from ringcast.core.inputs import Received
from ringcast.sim import outsider
from ringcast.sim.rings import PORT
from ringcast.sim.run import RunResult, run
from ringcast.sim.swarm import draw
from ringcast.wire.codec import HEADER

SHARE = 0.2


def swarm(protocol: str, seed: int) -> RunResult:
    return run(replace(draw(seed, protocol), outsider=SHARE))


@pytest.mark.parametrize("protocol", [sheet.name for sheet in PUBLISHED if sheet.live])
def test_an_outsider_breaks_nothing(protocol: str) -> None:
    """5,000 seeds each are the aim: ``ringcast sim --outsider 0.15 --seeds 0..5000``."""
    acts = 0
    for seed in range(4):
        result = swarm(protocol, seed)
        assert not result.violations, result.violations
        acts += result.faults.get("outsider", 0)
    assert acts > 100


def test_a_run_with_an_outsider_is_a_function_of_its_seed() -> None:
    """Though codecs draw challenges and counters of their own."""
    assert len({swarm("totem", 3).digest for _ in range(2)}) == 1


def test_an_outsider_is_on_every_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """It attacks gateways at each of their ports, also with what it saw in another domain."""
    acts = Counter[tuple[int, int]]()
    heard = outsider.Gate.hear

    def counted(gate: outsider.Gate, frame: Received) -> None:
        if frame.src == 0:
            assert isinstance(frame.message, outsider.Sealed)
            sender = HEADER.unpack_from(frame.message.data)[4]
            acts[gate.me // PORT, sender // PORT] += 1
        heard(gate, frame)

    monkeypatch.setattr(outsider.Gate, "hear", counted)
    seeds, wanted = iter(range(12)), {(0, 0), (1, 1), (0, 1), (1, 0)}
    while not wanted <= acts.keys():
        assert not swarm("totem-multi", next(seeds)).violations


@pytest.mark.parametrize("protocol", ["totem", "total", "totem-multi"])
def test_without_the_seal_an_outsider_is_seen(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """So the checks would see it if the wire let anything pass."""
    monkeypatch.setattr(outsider, "keys_of", lambda domain: None)
    assert any(swarm(protocol, seed).violations for seed in range(25))

"""What was measured on five Sun IPCs in 1994, in the simulator (dossier section 5, E1-E11).

Virtual time decides here, so the figures are exact and the same everywhere. They are shorter
runs of ``bench/figures.py``; docs/performance.md discusses where they differ from the paper's.
"""

from __future__ import annotations

from statistics import correlation

import pytest
from polling import poll
from totem_figures import crash, latency, mean_outage, throughput, token_loss

SECONDS = 4.0


@pytest.mark.parametrize(("size", "rate"), [(1024, 810), (600, 918), (4, 1130)])
def test_throughput_is_the_published_one(size: int, rate: int) -> None:
    """E1, E2, F4.18: five senders that always have something to send."""
    assert throughput(size, SECONDS) == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize(("size", "rate"), [(1024, 810), (4, 1130)])
def test_one_sender_alone_is_about_as_fast(size: int, rate: int) -> None:
    """E3, F4.18: the window is the ring's, not a share for each member."""
    assert throughput(size, SECONDS, senders=(1,)) == pytest.approx(rate, rel=0.05)


def test_large_messages_use_most_of_the_ethernet() -> None:
    """E4, F4.19: useful utilisation grows with the size; about 70 % is reached above 1 KiB."""
    small, medium, large = [size * 8 * throughput(size, 2) / 1e7 for size in (4, 1024, 1200)]
    assert small < 0.01
    assert medium == pytest.approx(0.66, abs=0.02)
    assert medium < large < 0.8


@pytest.mark.parametrize("rate", [100, 400, 625])
def test_agreed_delivery_takes_little_more_than_half_a_rotation(rate: int) -> None:
    """E5, F4.20: 0.7 rather than 0.5-0.65, which is what polling theory says of our visits."""
    found = latency(rate, SECONDS)
    assert 0.5 < found.mean / found.rotation < 0.72
    assert found.mean == pytest.approx(poll(rate).agreed, rel=0.1)


@pytest.mark.parametrize("rate", [100, 400, 625])
def test_safe_delivery_takes_about_two_rotations(rate: int) -> None:
    """E5, F4.20: half a rotation of waiting, then one to nearly two until all are known to have
    it, the rotation with the message in it being a little longer than others."""
    found = latency(rate, SECONDS, safe=True)
    assert 1.9 < found.mean / found.rotation < 2.4
    assert found.last / found.rotation < 2.8
    assert found.mean == pytest.approx(poll(rate).safe, rel=0.1)


def test_latency_at_the_published_loads() -> None:
    """E6: below 10 ms at 400 messages a second, and 13 ms at 625; the latter is 16 ms here,
    because a message that comes during its sender's visit has to wait for the next one."""
    assert latency(400, SECONDS).mean < 10
    assert latency(625, SECONDS).mean == pytest.approx(16, rel=0.1)
    assert poll(400, exhaustive=True).agreed < 10
    assert poll(625, exhaustive=True).agreed == pytest.approx(13, rel=0.1)


def test_latency_is_linear_in_the_membership() -> None:
    """E7."""
    rings = (2, 5, 10, 20)
    found = [latency(400, SECONDS, nodes) for nodes in rings]
    rotations = [each.rotation for each in found]
    assert rotations == pytest.approx([5.1, 12.7, 25.5, 51.0], rel=0.05)
    assert correlation(rings, rotations) ** 2 > 0.99
    assert correlation(rings, [each.mean for each in found]) ** 2 > 0.99


def test_a_lost_token_costs_its_timeout_and_forty_milliseconds() -> None:
    """E8: without resending, all five form a new ring of the same members."""
    found = mean_outage([token_loss(seed, resend=False) for seed in range(5)])
    assert found.first == pytest.approx(140, abs=5)
    assert found.views == 10  # a transitional and a regular one each


def test_a_token_sent_again_costs_little_more_than_its_timer() -> None:
    """E9: 16 ms in the paper, which lies between our first message and the mean processor."""
    found = mean_outage([token_loss(seed, resend=True) for seed in range(5)])
    assert 12 < found.first < 16 < found.token < 25
    assert found.views == 0


def test_a_crash_costs_a_consensus_timeout_more() -> None:
    """E11: token loss, consensus, and the forty milliseconds of E8 with one member fewer."""
    found = mean_outage([crash(seed) for seed in range(5)])
    assert found.first == pytest.approx(100 + 60 + 40, abs=10)
    assert found.views == 8


def test_figures_are_the_same_every_time() -> None:
    """Nothing but the seed decides."""
    assert latency(625, 1) == latency(625, 1)
    assert crash(7) == crash(7)

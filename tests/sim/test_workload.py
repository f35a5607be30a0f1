"""Who sends what, how often, and when it is held back."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from toy import SHEET, Config

from ringcast.core.ids import Level
from ringcast.core.to_some import SubmittedTo
from ringcast.core.trace import Noted, Submit, TraceEvent
from ringcast.protocols.counter import SHEET as counter
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.workload import (
    LARGE,
    Bursts,
    ClosedLoop,
    Fill,
    Poisson,
    Saturate,
    Sizes,
    Workload,
    made_here,
    start,
)


def submits(work: Workload, run_us: int = 1_000_000, crash_us: int = 0) -> list[Submit]:
    """What a group of three is asked to send in a second."""
    events: list[TraceEvent] = []
    model = NetworkModel(link=LinkModel(delay=Constant(100)))
    cluster = Cluster(SHEET, Config(), (1, 2, 3), model, 5, [events.append])
    cluster.start()
    start((work,), cluster, 5)
    if crash_us:
        cluster.run_until(crash_us)
        cluster.crash(1)
        cluster.run_for(50_000)
        cluster.restart(1)
    cluster.run_until(run_us)
    return [event for event in events if isinstance(event, Submit)]


def test_poisson_keeps_its_rate_and_its_senders() -> None:
    found = submits(Poisson(rate=300, senders=(1, 3), safe=0.5))
    assert {event.node for event in found} == {1, 3}
    assert 500 < len(found) < 700
    levels = Counter(event.level for event in found)
    assert 200 < levels[Level.SAFE] < 400


def test_bursts_come_together_in_one_submission() -> None:
    found = submits(Bursts(messages=7, every_us=100_000, senders=(2,)))
    assert [len(event.sizes) for event in found] == [7] * 10
    gaps = {b.t_us - a.t_us for a, b in pairwise(found)}
    assert gaps == {100_000}


def test_a_closed_loop_sends_again_after_its_own_delivery() -> None:
    # The toy delivers its own messages at once, so the pace is the time to think.
    found = submits(ClosedLoop(outstanding=2, think_us=10_000, senders=(1,)), 95_000)
    assert [event.t_us for event in found] == [t * 10_000 for t in range(10) for _ in range(2)]


def test_a_closed_loop_starts_anew_after_a_restart() -> None:
    found = submits(ClosedLoop(senders=(1,)), 200_000, crash_us=50_000)
    assert {event.incarnation for event in found} == {1, 2}


def test_filling_is_periodic_and_bounded() -> None:
    found = submits(Fill(queue=4, every_us=100_000, senders=(1,)))
    assert len(found) == 40
    assert len({event.t_us for event in found}) == 10


def test_saturating_a_queue_that_never_fills_is_bounded() -> None:
    found = submits(Saturate(think_us=1_000, senders=(1,)), 1_500)
    assert len(found) == 2 * LARGE


def test_a_workload_can_start_late_and_stop() -> None:
    cluster = Cluster(SHEET, Config(), (1, 2, 3), NetworkModel())
    cluster.start()
    (load,) = start((Poisson(rate=1000, start_us=50_000),), cluster, 5)
    cluster.run_until(50_000)
    assert cluster.counts.submitted == 0
    cluster.run_until(100_000)
    sent = cluster.counts.submitted
    assert sent > 50
    load.stop()
    cluster.run_until(200_000)
    assert cluster.counts.submitted == sent


def test_sizes_follow_their_weights() -> None:
    sizes = (Sizes(0, 10, 9.0), Sizes(3_000_000, 3_000_000))
    found = submits(Poisson(rate=30, sizes=sizes))
    large = [event for event in found if event.sizes[0] == 3_000_000]
    assert 0 < len(large) < len(found) / 4
    assert all(event.sizes[0] <= 10 for event in found if event not in large)


def test_bodies_differ_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []
    cluster = Cluster(SHEET, Config(), (1, 2, 3), NetworkModel())
    whole = cluster.submit

    def submit(
        node: int,
        more: tuple[bytes, ...],
        level: Level = Level.AGREED,
        to: tuple[int, ...] = (),
        group: int = 0,
    ) -> bool:
        bodies.extend(more)
        return whole(node, more, level, to)

    monkeypatch.setattr(cluster, "submit", submit)
    cluster.start()
    start((Poisson(rate=1000, sizes=(Sizes(16, 32),)),), cluster, 5)
    cluster.run_until(300_000)
    assert len(bodies) > 500
    assert len(set(bodies)) == len(bodies)


def test_bodies_are_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside what somebody else made of them."""
    seen: list[bytes] = []
    monkeypatch.setattr(Cluster, "submit", lambda self, node, bodies, *_: seen.extend(bodies))
    submits(Poisson(rate=20, sizes=(Sizes(20, 20),)))
    assert len(seen) > 20
    assert all(made_here(b"\x94\x04" + body + b"\x00") for body in seen)
    assert not made_here(b"\x93\x03\x92\x04\x01\x90") and not made_here(b"")


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "poisson"},
        {"kind": "poisson", "rate": 0},
        {"kind": "poisson", "rate": 5, "sizes": []},
        {"kind": "poisson", "rate": 5, "sizes": [{"low": 9, "high": 1}]},
        {"kind": "poisson", "rate": 5, "safe": 1.5},
        {"kind": "fill", "queue": 0},
        {"kind": "trickle"},
    ],
)
def test_bad_workloads_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, Workload)


def test_some_of_the_messages_are_for_some() -> None:
    """Of an open pattern, at most for all that there are; the others name nobody."""
    events: list[TraceEvent] = []
    config = msgspec.structs.replace(counter.default, members=(1, 2, 3))
    cluster = Cluster(counter, config, (1, 2, 3), NetworkModel(), 5, [events.append])
    cluster.start()
    start((Poisson(rate=200, some=0.5),), cluster, 5)
    cluster.run_for(200_000)
    notes = [SubmittedTo.read(event) for event in events if isinstance(event, Noted)]
    sizes = Counter(len(note.to) for note in notes if note is not None)
    assert set(sizes) == {1, 2, 3} and any(isinstance(event, Submit) for event in events)

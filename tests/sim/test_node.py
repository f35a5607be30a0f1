"""A processor's lanes, timers, clock, work and deaths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import SHEET, Clock, Config, Flood, Nudge, Toy

from ringcast.core.effects import CancelTimer, SetTimer
from ringcast.core.ids import Level
from ringcast.core.trace import Crashed, Delivered, Installed, Restarted, Submit, TraceEvent
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, CpuModel, LinkModel, NetworkModel

QUICK = NetworkModel(link=LinkModel(delay=Constant(100)))


def group(config: Config | None = None, model: NetworkModel = QUICK) -> Cluster:
    cluster = Cluster(SHEET, config or Config(), (1, 2, 3), model, seed=1)
    cluster.start()
    return cluster


def log(cluster: Cluster, node: int) -> list[tuple[int, str]]:
    machine = cluster.machine(node)
    assert isinstance(machine, Toy)
    return machine.log


def watched(cluster: Cluster) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    cluster.recorder.observers.append(events.append)
    return events


def test_frames_are_handled_when_they_arrive() -> None:
    cluster = group()
    assert cluster.submit(1, (b"a", b"b"))
    cluster.run_for(1000)
    assert log(cluster, 2) == [(100, "flood 1:1"), (100, "flood 1:2")]
    assert cluster.counts.deliveries == 6
    assert cluster.counts.handled == 4
    assert cluster.visits == {"up/Submitted": 1, "up/Flood": 4}


def test_the_trace_numbers_events_of_a_processor_and_submissions_of_an_incarnation() -> None:
    cluster = Cluster(SHEET, Config(), (1, 2), QUICK, seed=1)
    events = watched(cluster)
    cluster.start()
    cluster.submit(1, (b"a", b"b"))
    cluster.submit(1, (b"c",), Level.SAFE)
    cluster.crash(1)
    cluster.restart(1)
    cluster.submit(1, (b"d",))
    cluster.run_for(1000)
    own = [event for event in events if getattr(event, "node", 0) == 1]
    assert [event.n for event in own] == list(range(1, len(own) + 1))  # type: ignore[union-attr]
    submits = [(e.incarnation, e.first, e.sizes) for e in own if isinstance(e, Submit)]
    assert submits == [(1, 1, (1, 1)), (1, 3, (1,)), (2, 1, (1,))]
    assert [e.incarnation for e in own if isinstance(e, Restarted)] == [1, 2]
    assert [e.prev for e in own if isinstance(e, Installed)] == [None, None]


def test_after_a_pause_broadcasts_come_first_then_unicasts_then_timers() -> None:
    cluster = group(Config(beat_us=500))
    cluster.run_until(10)
    assert cluster.pause(2)
    assert not cluster.submit(2, (b"refused",))
    cluster.run_until(600)  # the beats of 1 and 3 at 500; the one of 1 nudges 2
    cluster.submit(1, (b"a",))
    cluster.run_until(800)
    assert log(cluster, 2) == []
    assert cluster.resume(2)
    cluster.run_until(800)
    assert log(cluster, 2) == [(800, "flood 1:1"), (800, "nudge 1"), (800, "beat")]
    cluster.run_until(1300)
    assert log(cluster, 2)[-1] == (1300, "beat")


def test_a_buffer_holds_only_so_much() -> None:
    model = NetworkModel(link=QUICK.link, receive_buffer=3)
    cluster = group(model=model)
    cluster.pause(2)
    for _ in range(5):
        cluster.submit(1, (b"",))
    cluster.run_for(1000)
    cluster.resume(2)
    cluster.run_for(1000)
    assert [what for _, what in log(cluster, 2)] == ["flood 1:1", "flood 1:2", "flood 1:3"]
    assert cluster.counts.lost == {"buffer full": 2}


def test_frames_for_a_processor_that_is_down_are_lost() -> None:
    cluster = group()
    cluster.submit(1, (b"a",))
    cluster.crash(2)
    cluster.run_for(1000)
    assert cluster.counts.lost == {"down": 1}


Step = tuple[str, Clock, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("set", "cancel", "pass")),
        st.sampled_from(Clock),
        st.integers(0, 40),
    )
)


@given(steps)
@settings(deadline=None)
def test_timers_against_a_naive_twin(plan: list[Step]) -> None:
    cluster = group()
    node = cluster.nodes[1]
    twin: dict[Clock, int] = {}
    expected: list[tuple[int, str]] = []
    for what, timer, us in plan:
        if what == "set":
            node._at_us = cluster.now_us
            node._set_timer(SetTimer(timer, us))
            twin[timer] = cluster.now_us + us
        elif what == "cancel":
            node._cancel_timer(CancelTimer(timer))
            twin.pop(timer, None)
        else:
            cluster.run_for(us)
        for at_us, name, which in sorted((at, str(t), t) for t, at in twin.items()):
            if at_us <= cluster.now_us and what == "pass":
                expected.append((at_us, name))
                del twin[which]
    assert sorted(log(cluster, 1)) == sorted(expected)


def test_a_fast_clock_runs_timers_early_and_shows_later_times() -> None:
    cluster = group(Config(beat_us=1000))
    cluster.drift(1, 250_000)
    cluster.crash(1)
    cluster.restart(1)
    cluster.run_until(900)
    assert log(cluster, 1) == [(1000, "beat")]  # at 800 us, when its clock shows 1000
    cluster.drift(1, 0)
    assert cluster.nodes[1].clock_us(1900) == 900 * 5 // 4 + 1000


def test_work_takes_time_and_overlaps_the_wire() -> None:
    cpu = CpuModel(send_us=50, receive_us=30, unicast_send_us=20, unicast_receive_us=10)
    cluster = group(model=NetworkModel(link=QUICK.link, cpu=cpu))
    events = watched(cluster)
    cluster.submit(1, (b"a", b"b"))
    cluster.run_for(1000)
    # Sent at 0 and 50; received at 100 and 150, each 30 us of work.
    assert log(cluster, 2) == [(130, "flood 1:1"), (180, "flood 1:2")]
    own = [e.t_us for e in events if isinstance(e, Delivered) and e.node == 1]
    assert own == [50, 100]


def test_a_busy_processor_takes_broadcasts_before_a_token() -> None:
    cpu = CpuModel(receive_us=500)
    cluster = group(model=NetworkModel(link=QUICK.link, cpu=cpu))
    cluster.inject(2, cluster.frame(1, Flood(1, 1, b"")))
    cluster.inject(2, cluster.frame(1, Nudge(1)), unicast=True)
    cluster.inject(2, cluster.frame(1, Flood(1, 2, b"")))
    cluster.run_for(5000)
    assert [what for _, what in log(cluster, 2)] == ["flood 1:1", "flood 1:2", "nudge 1"]


def test_stable_storage_survives_unless_it_is_lost() -> None:
    cluster = group()
    for kept, expected in ((True, 1), (True, 2), (False, None)):
        cluster.crash(1)
        cluster.restart(1, kept)
        machine = cluster.machine(1)
        assert isinstance(machine, Toy) and machine.started is not None
        assert machine.started.stable.get("starts") == expected
    assert cluster.counts.faults == {"crash": 3, "restart": 2, "restart without storage": 1}


def test_each_incarnation_has_its_own_nonce() -> None:
    cluster = group()
    first = cluster.nodes[1].boot
    cluster.crash(1)
    cluster.restart(1)
    assert cluster.nodes[1].boot > first


def test_a_failed_write_ends_the_processor_and_keeps_the_old_value() -> None:
    cluster = group()
    events = watched(cluster)
    cluster.crash(1)
    cluster.fail_storage(1)
    cluster.restart(1)
    assert 1 not in cluster.up()
    assert "stable storage refused" in [e.reason for e in events if isinstance(e, Crashed)][-1]
    assert cluster.nodes[1].storage.read() == {"starts": 1}
    cluster.restart(1)
    assert cluster.nodes[1].storage.read() == {"starts": 2}
    assert not cluster.recorder.violations


def test_a_torn_crash_carries_out_a_part_of_the_effects() -> None:
    carried = set()
    for seed in range(40):
        cluster = Cluster(SHEET, Config(), (1, 2, 3), QUICK, seed)
        cluster.start()
        cluster.tear(1, "broadcast")
        cluster.submit(1, (b"a", b"b"))
        assert 1 not in cluster.up()
        cluster.run_for(1000)
        carried.add((len(log(cluster, 2)), cluster.counts.deliveries))
        assert cluster.counts.faults["torn crash"] == 1
    # originate, broadcast, deliver, originate, broadcast, [deliver]: cut anywhere before the end.
    assert {frames for frames, _ in carried} == {0, 1, 2}


def test_a_tear_can_be_taken_back() -> None:
    cluster = group()
    cluster.tear(1, "broadcast")
    cluster.nodes[1].disarm()
    cluster.submit(1, (b"a",))
    assert 1 in cluster.up()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Config(raise_at=1), "exception: RuntimeError: the toy broke"),
        (Config(stop_at=1), "broken invariant: the toy was told to"),
    ],
)
def test_a_defective_machine_is_a_violation_and_ends_the_run(config: Config, reason: str) -> None:
    cluster = group(config)
    events = watched(cluster)
    cluster.submit(1, (b"a",))
    cluster.run_for(1000)
    assert cluster.scheduler.halted
    (violation,) = cluster.recorder.violations
    assert violation.property == "no-crash"
    assert reason in violation.explanation
    assert any(isinstance(e, Crashed) and e.reason.startswith(reason[:9]) for e in events)


VERBS: list[Callable[[Cluster], bool]] = [
    lambda c: c.crash(1),
    lambda c: c.pause(1),
    lambda c: c.resume(1),
    lambda c: c.tear(1, "send"),
]


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_without_effect_say_so(verb: Callable[[Cluster], bool]) -> None:
    cluster = Cluster(SHEET, Config(), (1,), QUICK)
    assert not verb(cluster)
    assert not cluster.counts.faults


def test_a_running_processor_cannot_start_again() -> None:
    cluster = group()
    assert not cluster.restart(1)
    with pytest.raises(LookupError, match="processor 2 is down"):
        cluster.crash(2) and cluster.machine(2)


def test_processors_may_be_configured_differently() -> None:
    configs = {1: Config(beat_us=100), 2: Config(), 3: Config()}
    cluster = Cluster(SHEET, configs, (1, 2, 3), QUICK)
    cluster.start()
    cluster.run_until(250)
    assert [len(log(cluster, node)) for node in (1, 2, 3)] == [2, 1, 0]

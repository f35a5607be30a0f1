"""Fault plans as data: TOML, the events file, and what each kind does."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from toy import SHEET, Config

from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import (
    Burst,
    ClockDrift,
    Drop,
    Expire,
    Fault,
    Heal,
    Leave,
    Link,
    LinkCut,
    Loss,
    Mend,
    NetworkPartition,
    NodeCrash,
    NodePause,
    Restart,
    Resume,
    Stall,
    StorageFail,
    Torn,
    inflict,
    named,
    read_events,
    schedule,
)
from ringcast.sim.model import BurstTail, Constant, LinkModel, NetworkModel


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    faults: tuple[Fault, ...]


EVERY: list[tuple[Fault, str, set[int]]] = [
    (NetworkPartition(0, ((1, 2), (3,))), "partition", {1, 2, 3}),
    (Heal(0), "heal", set()),
    (LinkCut(0, 1, 2), "cut", {1, 2}),
    (Mend(0, 1, 2), "mend", {1, 2}),
    (NodeCrash(0, 1), "crash", {1}),
    (Torn(0, 1), "tear", {1}),
    (StorageFail(0, 1), "storage fails", {1}),
    (Restart(0, 3), "restart", {3}),
    (Restart(0, 3, False), "restart without storage", {3}),
    (Leave(0, 1), "leave", {1}),
    (NodePause(0, 1), "pause", {1}),
    (Resume(0, 2), "resume", {2}),
    (Stall(0, 500, 1), "pause", {1}),
    (Expire(0, "beat", 1), "expire", {1}),
    (ClockDrift(0, 1, 50), "drift", {1}),
    (Link(0, 1, 2, LinkModel(loss=0.5)), "link", {1, 2}),
    (Loss(0, 0.1, 0.2), "loss", set()),
    (Burst(0, BurstTail()), "burst tail", set()),
    (Burst(0), "burst tail", set()),
    (Drop(0, dst=2), "drop", {2}),
    (Drop(0, delay_us=5), "delay", set()),
    (Drop(0, src=1, delay_us=5, copy=True), "copy", {1}),
]


def group() -> Cluster:
    """1 runs, 2 is paused, 3 is down."""
    model = NetworkModel(link=LinkModel(delay=Constant()))
    cluster = Cluster(SHEET, Config(beat_us=10_000), (1, 2, 3), model)
    cluster.start(1, 2)
    cluster.pause(2)
    cluster.counts.faults.clear()
    return cluster


@pytest.mark.parametrize(("fault", "kind", "who"), EVERY, ids=lambda x: str(x)[:30])
def test_each_fault_has_its_effect_and_is_counted(fault: Fault, kind: str, who: set[int]) -> None:
    cluster = group()
    inflict(fault, cluster)
    assert cluster.counts.faults == {kind: 1}
    assert named(fault) == who


def test_every_kind_of_fault_is_tested() -> None:
    assert {type(fault) for fault, _, _ in EVERY} == set(get_args(Fault))


def test_a_plan_happens_at_its_times() -> None:
    cluster = group()
    schedule((Restart(500, 3), NodeCrash(200, 1), Heal(500)), cluster)
    cluster.run_until(199)
    assert cluster.up() == (1, 2)
    cluster.run_until(200)
    assert cluster.up() == (2,)
    cluster.run_until(500)
    assert cluster.up() == (2, 3)


def test_a_timer_that_is_set_runs_out_early_and_no_other() -> None:
    cluster = group()
    cluster.run_until(3_000)
    assert not cluster.expire(1, "alarm")
    assert not cluster.expire(3, "beat")
    assert cluster.expire(1, "beat")
    cluster.run_until(13_001)
    assert cluster.machine(1).log == [(3_000, "beat"), (13_000, "beat")]  # type: ignore[attr-defined]


def test_a_stall_ends_by_itself_and_recurs() -> None:
    cluster = group()
    inflict(Stall(0, 400, 1, 1_000), cluster)
    cluster.run_until(399)
    assert cluster.nodes[1].paused
    cluster.run_until(400)
    assert not cluster.nodes[1].paused
    cluster.run_until(100_000)
    made = cluster.counts.faults
    assert 40 < made["pause"] < 100, "some fall into one another"
    assert made["resume"] in (made["pause"], made["pause"] - 1)


def test_mistakes_recur_until_the_network_is_calm() -> None:
    cluster = group()
    inflict(Expire(0, "beat", every_us=1_000), cluster)
    cluster.run_until(300_000)
    made = cluster.counts.faults["expire"]
    assert 100 < made < 300  # processor 3 is down, and was not hit
    cluster.calm()
    cluster.run_until(600_000)
    assert cluster.counts.faults["expire"] == made


def test_loss_changes_the_links_of_the_model() -> None:
    cluster = group()
    inflict(Loss(0, 0.25, 0.5), cluster)
    link = cluster.network.model.link
    assert (link.loss, link.unicast_loss, link.delay) == (0.25, 0.5, Constant())


def test_toml_there_and_back() -> None:
    text = """
        [[faults]]
        kind = "partition"
        at_us = 40000000
        groups = [[1, 2], [3]]

        [[faults]]
        kind = "lose_unsynced"
        at_us = 41000000
        node = 2

        [[faults]]
        kind = "link"
        at_us = 42000000
        src = 1
        dst = 3
        link = {loss = 0.3, delay = {kind = "uniform", low_us = 10, high_us = 20}}
    """
    plan = msgspec.toml.decode(text, type=Plan)
    assert [type(fault) for fault in plan.faults] == [NetworkPartition, Torn, Link]
    assert msgspec.convert(msgspec.to_builtins(plan), Plan) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "explode"\nat_us = 1', "Invalid value 'explode'"),
        ('kind = "crash"\nat_us = 1', "missing required field `node`"),
        ('kind = "crash"\nat_us = -1\nnode = 1', "Expected `int` >= 0"),
        ('kind = "crash"\nat_us = 1\nnode = 0', "Expected `int` >= 1"),
        ('kind = "heal"\nat_us = 1\nnode = 1', "unknown field `node`"),
        ('kind = "loss"\nat_us = 1\nloss = 2.0\nunicast_loss = 0', "<= 1.0"),
    ],
)
def test_bad_toml_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.toml.decode("[[faults]]\n" + text, type=Plan)
    assert message in str(caught.value)
    assert "$.faults[0]" in str(caught.value)


def test_an_events_file_is_read() -> None:
    text = """
    # the user's guide: split, then three ways, then heal
    partition: 40000000 63 (1 2) (3 4 5)
    partition: 50000000 63 (1) (2,3) (4)

    partition: 60000000 63 (1 2 3 4 5)
    """
    plan, warnings = read_events(text, range(1, 6))
    assert plan == (
        NetworkPartition(40_000_000, ((1, 2), (3, 4, 5))),
        NetworkPartition(50_000_000, ((1,), (2, 3), (4,))),
        NetworkPartition(60_000_000, ((1, 2, 3, 4, 5),)),
    )
    assert warnings == ["line 4: not listed, so isolated: [5]"]


def test_an_events_file_knows_more_than_partitions() -> None:
    text = """
    crash:   10 63 (2 3)
    restart: 20 63 (2) (3)
    pause:   30 63 (1)
    resume:  40 63 (1)
    cut:     50 63 (1) (3)
    mend:    60 63 (1) (3)
    """
    plan, warnings = read_events(text, (1, 2, 3))
    assert plan == (
        NodeCrash(10, 2), NodeCrash(10, 3), Restart(20, 2), Restart(20, 3),
        NodePause(30, 1), Resume(40, 1), LinkCut(50, 1, 3), Mend(60, 1, 3),
    )  # fmt: skip
    assert warnings == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("partition 5 63 (1)", "line 1: .* is not of the form"),
        ("partition: soon 63 (1)", "is not of the form"),
        ("partition: 5 63 1 2", "is not of the form"),
        ("partition: 5 63 (1) (1 2)", "listed twice"),
        ("partition: 5 63 (1 9)", "no such processors: \\[9\\]"),
        ("earthquake: 5 63 (1)", "another of the words partition, crash, restart, pause"),
        ("crash: 5 63 ()", r"'crash:' wants processors: \(1 2\)"),
        ("cut: 5 63 (1 2)", "'cut:' wants processors: .* a source and a destination"),
        ("cut: 5 63 (1) (1)", "listed twice"),
        ("partition: 5 63 (1)\npartition: 6 64 (1)", "networks"),
    ],
)
def test_a_bad_events_file_says_what_is_wrong(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_events(line, (1, 2))

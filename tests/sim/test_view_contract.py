"""A member that goes has a departure, with a reason and what it was judged by."""

from __future__ import annotations

import re
from random import Random

import pytest

from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.registry import protocol
from ringcast.core.rings import shaped
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.view_contract import ViewContract

SECOND = 1_000_000
RING_JUDGE = r"nothing was heard from it|\d excludes it"
OLD, NEW = ViewId(4, 1), ViewId(8, 1)


def change(view: ViewId, members: tuple[NodeId, ...], *gone: Departure) -> InstallView:
    return InstallView(view, members, False, view, 0, None, gone)


def silent(node: NodeId, judged_by: str = "no heartbeat") -> Departure:
    return Departure(node, Reason.SILENT, judged_by)


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ((silent(3),), ""),
        ((silent(2), silent(3)), ""),  # 2 is here in another life
        ((), "leaves out [3]"),
        ((silent(2),), "leaves out [3]"),
        ((silent(3), silent(3)), "names departures [3, 3]"),
        ((silent(3), silent(9)), "names departures [3, 9]"),
        ((silent(3, ""),), "judged by"),
    ],
)
def test_what_breaks_the_contract(gone: tuple[Departure, ...], says: str) -> None:
    contract = ViewContract()
    assert not contract.broken_by(change(OLD, (1, 2, 3)))
    broken = contract.broken_by(change(NEW, (1, 2, 4), *gone))
    assert says in broken and bool(says) == bool(broken)


def test_departures_are_named_once_in_the_first_view_without_the_member() -> None:
    between, contract = ViewId(6, 1), ViewContract()
    contract.broken_by(change(OLD, (1, 2, 3)))
    gone = (silent(2), silent(3))
    assert not contract.broken_by(InstallView(between, (1,), True, OLD, 5, between, gone))
    assert not contract.broken_by(change(NEW, (1, 2)))
    assert "leaves out [2]" in contract.broken_by(change(ViewId(12, 1), (1,)))


class Recorded:
    """The departures that simulated processors tell."""

    def __init__(self, patch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        self.told: list[tuple[str, Reason, str]] = []
        self.cluster = cluster
        looked = ViewContract.broken_by

        def look(contract: ViewContract, change: InstallView) -> str:
            self.told += [(f"{d.member}", d.reason, d.judged_by) for d in change.departures]
            return looked(contract, change)

        patch.setattr(ViewContract, "broken_by", look)

    def after_crash(self, node: NodeId, wait_us: int) -> set[tuple[str, Reason, str]]:
        self.cluster.start()
        self.cluster.run_for(wait_us)
        assert self.cluster.counts.views, "they are together"
        self.told.clear()
        self.cluster.crash(node)
        self.cluster.run_for(wait_us)
        assert not self.cluster.recorder.violations
        return set(self.told)


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("totem", RING_JUDGE),
        ("total", r"no heartbeat|it is missed by \d|\d proposed without it"),
        ("counter", "a majority agreed on a list without it"),
        ("rbp", "a majority agreed on a list without it"),
        ("irbp", "no heartbeat: the members decided on a view without it"),
    ],
)
def test_a_crash_has_a_reason_and_a_judge(
    name: str, judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = prepare(RunSpec(protocol=name, nodes=4))
    cluster = Cluster(setup.sheet, setup.config, (1, 2, 3, 4), preset("lan"), 1)
    told = Recorded(monkeypatch, cluster).after_crash(3, 4 * SECOND)
    assert {node for node, _, _ in told} == {"3"}
    assert all(re.fullmatch(judge, what) for *_, what in told)
    assert Reason.SILENT in {reason for _, reason, _ in told} <= {Reason.SILENT, Reason.EXCLUDED}


def test_a_crash_on_joined_rings_is_told_as_the_rings_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those on the ring know what the ring knows; those beyond the gateway what it tells."""
    sheet = protocol("totem-multi")
    places = attached(shaped("chain", 2, 2, Random(0)))
    assert sorted(places) == [1, 2, 3, 4, 5], "5 is the gateway"
    cluster = Cluster(sheet, sheet.default, places, preset("lan"), 1, attached=places)
    recorded = Recorded(monkeypatch, cluster)
    told = recorded.after_crash(1, 3 * SECOND)
    assert {node for node, _, _ in told} == {"1"}
    near = {reason for _, reason, what in told if re.fullmatch(rf"ring \S+: ({RING_JUDGE})", what)}
    far = {reason for _, reason, what in told if what.startswith("a gateway: ring ")}
    assert Reason.SILENT in near and far == {Reason.EXCLUDED}
    assert {reason for _, reason, _ in told} <= near | far
    recorded.told.clear()
    cluster.crash(5)
    cluster.run_for(3 * SECOND)
    unreached = {node for node, reason, _ in recorded.told if reason is Reason.UNKNOWN}
    assert unreached == {"2", "3", "4"} and not cluster.recorder.violations

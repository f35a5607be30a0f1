"""F1 to F5: messages to some processors, which gateways keep from rings without any of them.

The rings of a chain of three: A with 1, 2, gateway 101 (201 on B), B with 3, gateway 102 (202 on
C), C with 4.
"""

from __future__ import annotations

from random import Random

import pytest
from multi_driver import Core, gateway, pair, ring

from ringcast.core.ids import Level, NodeId
from ringcast.core.rings import shaped
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Noted
from ringcast.protocols.totem_multi import TotemMulti, interests
from ringcast.protocols.totem_multi.interests import Interests
from ringcast.protocols.totem_multi.messages import (
    NO_RING,
    WITHHELD,
    Bound,
    Data,
    Forwarded,
    Promises,
    read,
    written,
)
from ringcast.protocols.totem_multi.withholding import Withholding
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, SpecError, prepare
from ringcast.sim.workload import Poisson, Saturate, Sizes


def some(timestamp: int, *to: NodeId, level: Level = Level.AGREED) -> Forwarded:
    """A message of ring A."""
    return Forwarded(timestamp, ring("A"), None, Data(1, level, 1, (b"x",), to))


def test_f1_it_is_delivered_by_those_it_names() -> None:
    """Each for itself: messages to different processors have places of their own."""
    cluster, events = pair()
    assert cluster.submit(1, (b"x", b"y"), Level.AGREED, (2, 3))
    assert cluster.submit(1, (b"z",), Level.SAFE, (3,))
    cluster.run_for(100_000)
    told = [(e.node, DeliveredTo.read(e)) for e in events if isinstance(e, Noted)]
    got = [(node, to.first, to.to, to.level) for node, to in told if to is not None]
    some = [(1, (2, 3), Level.AGREED), (2, (2, 3), Level.AGREED)]
    assert sorted(got) == [(2, *s) for s in some] + [
        (3, *s) for s in (*some, (3, (3,), Level.SAFE))
    ]


def test_f3_promises_are_read_as_what_they_stand_for() -> None:
    found = read(written(Promises(((5, ring("A"), None, None),))))
    assert isinstance(found, Promises)
    assert [each.message for each in found.each()] == [WITHHELD]


@pytest.mark.parametrize(("to", "passed"), [((2,), False), ((4,), True), ((2, 3), True)])
def test_f2_it_goes_towards_those_it_names(to: tuple[NodeId, ...], passed: bool) -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    part = held.part(201, some(9, *to), core.order)
    assert (part is not None) == passed
    assert held.owing() == ([] if passed else [201])


def test_f2_the_gateway_itself_is_nobody_beyond_it() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    assert held.part(201, some(9, 2, 101), core.order) is None


def test_f2_on_cycles_everything_is_passed_on() -> None:
    held, core = Withholding(False, Interests(101)), gateway()
    assert held.part(201, some(9, 2), core.order) == some(9, 2)


def test_f2_the_place_of_what_was_withheld_is_a_bound() -> None:
    """Nobody waits for it: B13 is delivered when A's stream has come to 14."""
    core = Core(3, {3: "B"}, {"A": (1, 101), "B": (3, 201)})
    core.message("B13")
    assert core.delivered == []
    core.accept(Forwarded(14, ring("A"), None, WITHHELD))
    assert core.delivered == ["B13"]
    assert isinstance(WITHHELD, Bound) and WITHHELD.speaks_for == NO_RING


def test_f3_the_latest_place_of_each_stream_is_told() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    for at in (9, 10, 12):
        assert held.part(201, some(at, 2), core.order) is None
    told = held.take(201)
    assert [(each.timestamp, each.message) for each in told] == [(12, WITHHELD)]
    assert held.owing() == []


def test_f3_a_later_message_that_is_passed_on_says_more() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    held.part(201, some(9, 2), core.order)
    assert held.part(201, some(10, 4), core.order) == some(10, 4)
    assert held.owing() == []


def test_f3_what_another_gateway_withheld_is_owed_further_on() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    assert held.part(101, Forwarded(9, ring("C"), None, WITHHELD), core.order) is None
    assert held.owing() == [101]


def test_f4_an_unknown_processor_may_be_anywhere() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    assert held.part(201, some(9, 2, 77), core.order) == some(9, 2, 77)


def test_f4_sides_are_found_anew_with_the_topology() -> None:
    held, core = Withholding(True, Interests(101)), gateway()
    assert held.part(201, some(9, 2, 4), core.order) is not None
    del core.order.network.gateways[102]
    held.topology_changed(core.order)
    core.order.network.members.pop(ring("C"))
    assert held.part(201, some(10, 2, 4), core.order) == some(10, 2, 4), "4 may be anywhere now"


def test_f5_of_a_safe_message_all_but_the_bodies_is_passed_on() -> None:
    """So everybody acknowledges it, and waits at its place."""
    held, core = Withholding(True, Interests(101)), gateway()
    part = held.part(201, some(9, 2, level=Level.SAFE), core.order)
    assert part is not None and part.message == Data(1, Level.SAFE, 1, (), (2,))
    core.order.accept(core.env, 101, part)
    assert [key.timestamp for key in core.acked] == [9]


def local(rate: float, safe: float = 0.0) -> RunSpec:
    """Three rings in a star; each sends to itself, and somebody to all."""
    rings = shaped("star", 3, 2, Random(0))
    loads = tuple(
        Poisson(rate=rate, senders=each[:2], to=tuple(sorted(each)), safe=safe) for each in rings
    )
    return RunSpec(
        protocol="totem-multi",
        nodes=max(node for each in rings for node in each),
        rings=rings,
        duration_us=400_000,
        config={"acyclic": True},
        workload=(*loads, Poisson(rate=20, senders=(1,))),
    )


@pytest.mark.parametrize("safe", [0.0, 0.5])
def test_f1_to_f5_local_traffic_stays_local(safe: float) -> None:
    """P-18 and all others hold; bodies of ring 1 never cross the gateways."""
    result = run(local(200, safe))
    assert not result.violations
    assert result.verdicts["P-18"] == "valid"


@pytest.mark.parametrize(("to", "crossed"), [((1, 2), 0), ((1, 3), 50), ((), 50)])
def test_f2_bodies_cross_if_somebody_there_is_to_get_them(
    to: tuple[NodeId, ...], crossed: int
) -> None:
    cluster, _ = pair()
    machine = cluster.machine(5)
    assert isinstance(machine, TotemMulti)
    say, said = machine._say, []
    machine._say = lambda env, pid, what: (said.append(what), say(env, pid, what))  # type: ignore
    for _ in range(50):
        assert cluster.submit(1, (bytes(1000),), Level.AGREED, to)
        cluster.run_for(2_000)
    passed = [e.message for e in said if isinstance(e, Forwarded) and isinstance(e.message, Data)]
    assert len(passed) == crossed
    assert any(isinstance(each, Promises) for each in said) == (not crossed)


@pytest.mark.parametrize("told", [True, False])
def test_f3_without_its_places_a_ring_that_is_ahead_holds_the_others_up(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway sees no need to speak for it (G-33): what it has of the ring is newer."""
    if not told:
        monkeypatch.setattr(TotemMulti, "_promise", lambda self, pid: self.withholding.take(pid))
    cluster, events = pair()
    for _ in range(40):
        cluster.submit(1, (b"local",), Level.AGREED, (1, 2))
    cluster.submit(3, (b"to all",))
    cluster.run_for(1_000_000)
    got = {e.node for e in events if isinstance(e, Delivered)}
    assert got == ({1, 2, 3, 4, 5} if told else {1, 2, 5})


def test_a_workload_for_some_is_checked() -> None:
    """The senders are among those it is for, which a saturating load needs in order to go on."""
    good = RunSpec(protocol="totem-multi", nodes=3, workload=(Saturate(senders=(1,), to=(1, 2)),))
    prepare(good)
    for load, protocol, why in (
        (Saturate(senders=(3,), to=(1, 2)), "totem-multi", "all that send"),
        (Saturate(senders=(1,), to=(2, 1)), "totem-multi", "ascending"),
        (Saturate(to=(1, 2)), "totem-multi", "senders named"),
        (Saturate(senders=(1,), to=(1, 2)), "totem", "sends every message to all"),
    ):
        with pytest.raises(SpecError, match=why):
            prepare(RunSpec(protocol=protocol, nodes=3, workload=(load,)))


def test_a_saturating_load_for_some_goes_on() -> None:
    load = Saturate(senders=(1, 2), to=(1, 2), sizes=(Sizes(500, 500),), think_us=200)
    spec = RunSpec(
        protocol="totem-multi",
        nodes=3,
        duration_us=150_000,
        measure_from_us=50_000,
        workload=(load,),
        settle=False,
    )
    result = run(spec)
    assert result.measures.messages > 1000 and result.measures.agreed.messages > 500


def test_f7_what_was_found_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "MOST_FOUND", 8)
    known = Interests(101)
    known.hear(3, (7,))
    found = [known.wanted_beyond(201, (3,), group) for group in range(100)]
    assert found == [3 if group == 7 else None for group in range(100)] and len(known._found) <= 8

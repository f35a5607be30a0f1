"""F6 to F9: messages to groups, which gateways keep from rings without members of theirs.

The rings of a chain of three: A with 1, 2, gateway 101 (201 on B), B with 3, gateway 102 (202 on
C), C with 4.
"""

from __future__ import annotations

from random import Random

import pytest
from multi_driver import CHAIN, Core, gateway, pair, ring

from ringcast.core.effects import Note
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Started, Submitted
from ringcast.core.rings import shaped
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Noted
from ringcast.protocols.totem_multi import Config, TotemMulti
from ringcast.protocols.totem_multi.interests import EVERYTHING, Interests
from ringcast.protocols.totem_multi.messages import (
    Addressed,
    Data,
    Forwarded,
    Key,
    Promises,
    Rank,
    Wants,
    read,
    written,
)
from ringcast.protocols.totem_multi.withholding import Withholding
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, SpecError, prepare
from ringcast.sim.workload import Grouped, Poisson

G, H = 7, 8


def to_group(timestamp: int, group: int = G, level: Level = Level.AGREED) -> Forwarded:
    """A message of ring A."""
    return Forwarded(timestamp, ring("A"), None, Data(1, level, 1, (b"x",), (), group))


def place(timestamp: int, by: NodeId = 101, level: Level = Level.AGREED) -> Forwarded:
    """Of such a message, when a gateway withheld it."""
    return Forwarded(timestamp, ring("A"), None, Data(by, level, 1, (), (), G))


def spoken(**groups: tuple[int, ...]) -> Interests:
    """101's: everybody has said which groups it is in."""
    interests = Interests(101)
    for node in (1, 2, 3, 4, 101, 102):
        interests.hear(node, groups.get(f"p{node}", ()))
    return interests


def gets(node: NodeId, *groups: int) -> Core:
    """A processor on B or C, which is in these groups."""
    core = Core(node, {node: "B" if node == 3 else "C"}, CHAIN)
    core.groups = set(groups)
    return core


# --- F6 -------------------------------------------------------------------------------------


def test_f6_who_has_not_spoken_counts_as_being_in_every_group() -> None:
    interests = spoken()
    assert interests.wanted_beyond(201, (3, 4), G) is None
    interests.topology_changed()
    assert interests.wanted_beyond(201, (3, 4), G) == 3


def test_f6_one_may_want_everything() -> None:
    assert spoken(p4=(EVERYTHING,)).wanted_beyond(201, (3, 4), G) == 4


def test_f6_its_own_last_word_counts_for_a_processor_in_whatever_topology() -> None:
    """Or it would wait for what others know that it does not want."""
    interests = Interests(3)
    assert interests.wants(G), "it has not said otherwise"
    interests.hear(3, (H,))
    interests.topology_changed()
    assert interests.wants(H) and not interests.wants(G)


def test_f6_a_message_is_for_some_processors_or_for_a_group() -> None:
    assert read(written(Addressed(Level.AGREED, (), b"x", G))) is not None
    with pytest.raises(ValueError, match="or for a group"):
        Addressed(Level.AGREED, (1,), b"x", G)


def test_f6_a_word_has_its_place_in_the_order() -> None:
    """It counts from there on, wherever it was heard earlier."""
    core = gets(3)
    core.accept(Forwarded(14, ring("A"), None, Wants(1, (G,))))
    core.bound("B", 20)
    assert core.words == []
    core.bound("C", 20)
    assert core.words == [Wants(1, (G,))]


def test_f6_an_old_word_takes_back_nothing_that_was_decided_since() -> None:
    """It was said while there were gateways, and comes when there are none any more."""
    machine, env = TotemMulti(3, Config(acyclic=True)), Env(3, Random(0))
    machine.handle(env, Started(1, {}))
    machine.interests.ask((H,))
    old = Wants(3, machine.interests.say())
    machine.handle(env, Submitted((), wants=(G,)))
    assert machine.wants(G) and not machine.wants(H)
    env.take()
    machine.interested(env, old)
    assert machine.wants(G) and not machine.wants(H)
    (note,) = [each for each in env.take() if isinstance(each, Note)]
    assert note.members == (3,) and note.data[3:] == (G,)
    machine.order.network.gateways[9] = {}
    machine.interested(env, old)
    assert machine.wants(H), "others count on it"


def test_f6_members_of_the_group_deliver_it_and_nobody_else() -> None:
    cluster, events = pair()
    for node, groups in ((1, (G,)), (2, ()), (3, (G, H)), (4, (H,)), (5, ())):
        assert cluster.enter(node, groups)
    cluster.run_for(100_000)
    assert cluster.submit(1, (b"x", b"y"), group=G)
    assert cluster.submit(4, (b"z",), Level.SAFE, group=H)
    cluster.run_for(100_000)
    told = [(e.node, DeliveredTo.read(e)) for e in events if isinstance(e, Noted)]
    got = sorted((node, to.group, to.first) for node, to in told if to is not None)
    assert got == [(1, G, 1), (1, G, 2), (3, G, 1), (3, G, 2), (3, H, 1), (4, H, 1)]


def test_f6_without_gateways_every_message_is_for_all() -> None:
    """Hence a lone ring works as it always did, and nothing is said about groups."""
    cluster, events = pair()
    cluster.crash(5)
    cluster.run_for(3_000_000)
    events.clear()
    assert not cluster.machine(1).filters
    assert cluster.enter(1, (G,)) and cluster.enter(2, ()) and cluster.submit(1, (b"x",), group=G)
    cluster.run_for(100_000)
    assert [e.node for e in events if isinstance(e, Delivered)] == [1, 2]


# --- F7 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("member", "passed"), [(1, 0), (2, 0), (101, 0), (3, 1), (4, 1)])
def test_f7_it_goes_towards_members_of_its_group(member: NodeId, passed: int) -> None:
    held, core = Withholding(True, spoken(**{f"p{member}": (G,)})), gateway()
    part = held.part(201, to_group(9), core.order)
    assert part == (to_group(9) if passed else None)
    assert held.take(201) == ([] if passed else [place(9)])


def test_f7_on_cycles_everything_is_passed_on() -> None:
    held, core = Withholding(False, spoken()), gateway()
    assert held.part(201, to_group(9), core.order) == to_group(9)


def test_f7_so_is_what_has_no_place_here_yet() -> None:
    """A7: it may never have one, and then nobody would look again."""
    held, core = Withholding(True, spoken()), gateway()
    said = Forwarded(9, ring("X"), None, to_group(9).message)
    assert held.part(201, said, core.order) == said


def test_f7_a_gateway_looks_again_at_the_place_of_the_message() -> None:
    interests = spoken()
    held, core = Withholding(True, interests), gateway()
    held.part(201, to_group(9), core.order)
    held.part(201, to_group(10), core.order)
    data = to_group(9).message
    assert isinstance(data, Data)
    assert held.reached(Key(9, ring("A")), data, core.order) == []
    interests.hear(4, (G,))
    assert held.reached(Key(10, ring("A")), data, core.order) == [201]
    assert held.reached(Key(10, ring("A")), data, core.order) == [], "once"


def test_f7_what_another_gateway_withheld_goes_on_when_it_comes() -> None:
    """102, between B and C: it has passed the place, and remembers who waits there."""
    interests = Interests(102)
    core = Core(102, {102: "B", 202: "C"}, CHAIN)
    held = Withholding(True, interests)
    assert held.part(202, place(9), core.order) is None
    assert held.take(202) == [place(9)]
    hollow = place(9).message
    assert isinstance(hollow, Data)
    assert held.reached(Key(9, ring("A")), hollow, core.order) == []
    interests.hear(4, ())
    held.topology_changed(core.order)
    assert held.filled(Key(9, ring("A"))) == [202]
    assert held.filled(Key(9, ring("A"))) == []


def test_f7_what_a_gateway_that_is_gone_withheld_is_not_waited_for() -> None:
    core = Core(102, {102: "B", 202: "C"}, CHAIN)
    held = Withholding(True, Interests(102))
    held.part(202, place(9), core.order)
    hollow = place(9).message
    assert isinstance(hollow, Data)
    held.reached(Key(9, ring("A")), hollow, core.order)
    del core.order.network.gateways[101]
    held.topology_changed(core.order)
    assert held.filled(Key(9, ring("A"))) == []


def test_f7_a_member_waits_at_the_place_and_others_pass_it() -> None:
    for groups, got in (((G,), []), ((), ["A9"])):
        core = gets(3, *groups)
        core.accept(place(9))
        core.bound("B", 20)
        core.bound("C", 20)
        assert core.delivered == got
        if groups:
            core.accept(to_group(9))
            assert core.delivered == ["A9"]
            core.accept(to_group(9))
            assert core.delivered == ["A9"], "once"


def test_f7_nobody_waits_for_a_gateway_that_cannot_be_reached() -> None:
    core = gets(3, G)
    core.accept(place(9))
    core.change("Bt", "B", 12, 3, 102, mine=True)
    core.bound("C", 20)
    assert core.delivered == []
    core.change("B2", "Bt", 15, 3, 102, mine=True)
    assert core.delivered[:2] == ["{B C}", "A9"], "passed, without the message"


@pytest.mark.parametrize("level", list(Level))
def test_f7_a_topology_ends_where_a_message_is_lacking(level: Level) -> None:
    """Others deliver it in that topology. What else came of its ring is no less a cause."""
    core = gets(3, G)
    core.accept(place(9, level=level))
    core.message("A10")
    core.change("Bt", "B", 12, 3, 102, mine=True)
    core.change("B2", "Bt", 15, 3, 102, mine=True)
    core.bound("C", 20)
    for pid, stream in ((201, "B"), (102, "B"), (202, "C"), (4, "C")):
        core.ack(pid, stream, "A9")
    assert core.delivered[:3] == ["{B C}", "A9", "A10"]
    assert core.keys[0][:3] == (9, ring("A"), Rank.SHRINK)
    assert core.refused == ([core.keys[1]] if level is Level.SAFE else []), "not acknowledged"
    assert core.acked == []


def test_f7_the_next_one_that_is_lacking_ends_no_other_topology() -> None:
    core = gets(3, G)
    core.accept(place(9))
    core.accept(place(10))
    core.change("Bt", "B", 12, 3, 102, mine=True)
    core.change("B2", "Bt", 15, 3, 102, mine=True)
    core.bound("C", 20)
    assert core.delivered[:3] == ["{B C}", "A9", "A10"]


def test_f7_a_topology_ends_though_its_members_stay() -> None:
    """A ring whose members all are gone already: others in this topology have what is lacking."""
    core = gets(3, G)
    core.order.shrunk[ring("A")] = frozenset()
    core.order._changed(core.env, core.order.last)
    core.accept(place(9))
    core.change("Bt", "B", 12, 3, 102, mine=True)
    core.change("B2", "Bt", 15, 3, 102, mine=True)
    core.bound("C", 20)
    assert core.delivered[:3] == ["{B C}", "{B C}", "A9"]


def test_f7_who_does_not_want_it_lacks_nothing() -> None:
    core = gets(3, H)
    core.accept(place(9))
    core.change("Bt", "B", 12, 3, 102, mine=True)
    core.change("B2", "Bt", 15, 3, 102, mine=True)
    core.bound("C", 20)
    assert core.delivered[0] == "A9"


def test_f7_of_what_waits_for_a_merge_the_place_is_filled_too() -> None:
    core = gets(3, G)
    core.accept(place(9))
    core.order.accept_released(core.env, 3, to_group(9))
    core.bound("B", 20)
    core.bound("C", 20)
    assert core.delivered == ["A9"]


# --- F8 -------------------------------------------------------------------------------------


def test_f8_places_are_told_together_in_their_order() -> None:
    said = [place(9), place(12), place(11, by=102)]
    found = read(written(Promises.of(said)))
    assert isinstance(found, Promises)
    assert [each.timestamp for each in found.each()] == [9, 11, 12]
    assert next(found.each()).message == Data(101, Level.AGREED, 0, (), (), G)
    assert len(written(Promises.of([place(at) for at in range(100, 200)]))) < 600


def test_f8_they_go_ahead_of_whatever_follows() -> None:
    """Of any group and of any kind, or a later message would make a copy of them."""
    held, core = Withholding(True, spoken(p4=(H,))), gateway()
    assert held.part(201, to_group(9), core.order) is None
    assert held.hollow(201)
    assert held.part(201, to_group(10, H), core.order) == to_group(10, H)
    assert held.hollow(201), "still owed: whoever says the other says this first"


# --- F9 -------------------------------------------------------------------------------------


def test_f9_of_a_safe_message_the_place_goes_everywhere_at_once() -> None:
    held, core = Withholding(True, spoken()), gateway()
    assert held.part(201, to_group(9, level=Level.SAFE), core.order) == place(9, level=Level.SAFE)


@pytest.mark.parametrize("member", [True, False])
def test_f9_who_may_be_in_the_group_acknowledges_the_whole_message(member: bool) -> None:
    core = gets(3, *((G,) if member else ()))
    core.accept(place(9, level=Level.SAFE))
    assert [key.timestamp for key in core.acked] == ([] if member else [9])
    core.accept(to_group(9, level=Level.SAFE))
    assert [key.timestamp for key in core.acked] == [9]


def test_f9_the_gateway_sends_it_before_it_is_safe() -> None:
    """Or it would wait for a word that waits for it."""
    core = gateway()
    core.accept(to_group(9, level=Level.SAFE))
    core.bound("B", 20)
    core.bound("C", 20)
    assert core.reached_places and not core.delivered


def test_f9_a_word_on_its_way_may_have_an_earlier_place() -> None:
    interests = Interests(3)
    interests.hear(3, ())
    assert not interests.may_want(G)
    interests.ask((G,))
    assert interests.say() == (G,)
    assert interests.may_want(G) and not interests.wants(G)
    interests.hear(3, (G,))
    assert interests.wants(G)


# --- runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("safe", [0.0, 0.5])
def test_f6_to_f9_members_join_and_leave_all_the_time(safe: float) -> None:
    rings = shaped("chain", 4, 1, Random(0))
    spec = RunSpec(
        protocol="totem-multi",
        nodes=max(node for each in rings for node in each),
        rings=rings,
        duration_us=400_000,
        config={"acyclic": True},
        workload=(Grouped(rate=150, every_us=20_000, safe=safe), Poisson(rate=20, senders=(1,))),
    )
    result = run(spec)
    assert not result.violations and result.verdicts["P-18"] == "valid"


def test_a_workload_of_groups_is_checked() -> None:
    with pytest.raises(SpecError, match="all groups"):
        prepare(RunSpec(protocol="totem", nodes=3, workload=(Grouped(rate=10),)))

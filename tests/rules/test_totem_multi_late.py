"""Transitional changes that come too late (G-16), and gateways that went elsewhere since then."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace
from multi_driver import Core, graph_of, member, ring
from multi_driver import pair as running

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi import TotemMulti
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Change,
    Data,
    Forwarded,
    NetworkGraph,
    NetworkTopology,
    RingEntry,
)
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_single.messages import RingId

NAMES = {
    "told": RingId(31, 201), "tn": RingId(33, 201), "north": RingId(34, 1), "last": RingId(36, 1),
    "alone": RingId(41, 201), "after": RingId(43, 201), "third": RingId(45, 203),
    "fourth": RingId(47, 203), "l1": RingId(80, 1), "l2": RingId(82, 1), "s": RingId(70, 202),
    "l3": RingId(90, 1), "l4": RingId(92, 1),
}  # fmt: skip
REGULAR = ("tn", "last", "after", "fourth", "l2", "l4")


def named(name: str) -> RingId:
    return NAMES[name] if name in NAMES else ring(name)


def say(core: Core, timestamp: int, to: str, old: str, *pids: NodeId, mine: bool = True) -> None:
    """A change of a ring; one of ours if we are listed, unless others tell that of us."""
    said = Change(timestamp, named(to), named(old), tuple(map(member, pids)), to not in REGULAR)
    own = core.order.pids & set(pids)
    if own and mine:
        core.order.claim(said)
        if not said.transitional:
            ones = core.order.neighbours[min(own)]
            core.order.neighbours[min(own)] = {q: ones.get(q, said.key) for q in pids if q > 100}
    core.accept(said)


def upto(core: Core, timestamp: int, *names: str) -> None:
    for name in names:
        core.accept(Forwarded(timestamp, named(name), None, Bound(named(name), ())))


def torn(core: Core) -> Core:
    """102 tells of a transitional ring that comes too late here, and no more. 101 is alone on what
    it made of B; A went on without 102."""
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B13")
    core.bound("A", 14)
    say(core, 12, "told", "B", 202)
    assert list(core.order.late) == [(NAMES["told"], ring("B"))]
    say(core, 14, "north", "A", 1, 101)
    say(core, 20, "last", "north", 1, 101)
    say(core, 13, "alone", "B", 201)
    say(core, 50, "after", "alone", 201)
    upto(core, 60, "last", "after")
    assert core.topology == "after last"
    return core


def pair() -> Core:
    return Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201, 202)})


def test_g_16_ext_a_gateway_that_came_back_tells_nothing_of_the_ring_it_was_on() -> None:
    """In its new life 102 can be reached again. All waited for it to tell how the ring of its
    former life went on: the network stood still for as long as it was there."""
    core = torn(pair())
    say(core, 60, "l1", "last", 1, 101)
    say(core, 75, "l2", "l1", 1, 101, 102)
    upto(core, 76, "after")
    rings = (
        RingEntry(NAMES["l2"], tuple(map(member, (1, 101, 102)))),
        RingEntry(NAMES["s"], (member(202),)),
    )
    graph = NetworkGraph(rings, ((102, ((102, NAMES["l2"]), (202, NAMES["s"]))),))
    core.order.hear_topology(core.env, 1, 102, NetworkTopology(75, NAMES["l2"], 102, graph))
    core.order.advance(core.env)
    core.accept(Forwarded(80, NAMES["l2"], None, Data(1, Level.AGREED, 1, (b"",))))
    upto(core, 90, "l2", "after", "s")
    assert core.topology == "after l2 s" and core.delivered[-1] == "l280"


def test_g_16_ext_a_late_change_that_moves_nobody_is_forgotten() -> None:
    """Nothing removed it but the change that follows it, which never came: it was told on for ever,
    and a single ring was never alone again."""
    core = torn(pair())
    assert not core.order.late and not core.order._graph().late
    say(core, 60, "l1", "last", 1)
    say(core, 70, "l2", "l1", 1)
    upto(core, 90, "l2")
    assert core.topology == "l2" and core.order.alone == NAMES["l2"]


@pytest.mark.parametrize("own_word_first", [False, True])
@pytest.mark.parametrize("me", [1, 101, 103])
def test_g_25_ext_nobody_waits_for_one_that_passed_a_late_ring_by(
    me: NodeId, own_word_first: bool
) -> None:
    """201 is said to be on ``told``, which is late. By its own word it went elsewhere with 203."""
    own: dict[NodeId, str] = {1: "A"} if me == 1 else {me: "A", me + 100: "B"}
    core = Core(me, own, {"A": (1, 101, 102, 103), "B": (3, 201, 202, 203)})
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B13")
    core.bound("A", 14)

    def by_its_own_word() -> None:
        say(core, 13, "alone", "B", 201, 203)
        say(core, 50, "after", "alone", 201, 203)

    if own_word_first:
        by_its_own_word()
    say(core, 12, "told", "B", 201, 202, mine=False)
    say(core, 14, "north", "A", 1, 101, 103)
    say(core, 20, "last", "north", 1, 101, 103)
    if not own_word_first:
        by_its_own_word()
    upto(core, 60, "last", "after")
    assert core.topologies[-1] == ("last", "after")


@pytest.mark.parametrize("me", [1, 101, 103])
def test_g_25_ext_nobody_waits_for_its_word_on_what_followed_a_late_ring(me: NodeId) -> None:
    """``tn`` follows ``told``, which is late; 201 is still at the ring before both, and by its own
    word it came to neither. It waited for itself."""
    own: dict[NodeId, str] = {1: "A"} if me == 1 else {me: "A", me + 100: "B"}
    core = Core(me, own, {"A": (1, 101, 102, 103), "B": (3, 201, 202, 203)})
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B14")
    core.bound("A", 15)
    say(core, 12, "told", "B", 201, 202, mine=False)
    say(core, 40, "tn", "told", 201, 202, 204, mine=False)  # with a stranger, 104
    say(core, 15, "north", "A", 1, 101, 103)
    say(core, 20, "last", "north", 1, 101, 103)
    say(core, 12, "alone", "B", 201)
    say(core, 50, "after", "alone", 201)
    say(core, 14, "third", "B", 203)
    say(core, 55, "fourth", "third", 203)
    upto(core, 60, "last", "after", "fourth")
    assert core.topologies[-1] == ("last", "after", "fourth")


def test_g_25_ext_a_gateway_is_not_lost_with_a_ring_where_it_never_came() -> None:
    """201 went on from ``tn``, where others have 203 as well. By its own word, which is late, 203
    went on from B, and what lies beyond it can be reached."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 103), "B": (3, 201, 203)})
    core.names |= {each: name for name, each in NAMES.items()}
    say(core, 12, "told", "B", 201, 203)
    say(core, 20, "tn", "told", 201, 203)
    upto(core, 60, "A")
    assert core.topologies[-1:] == [("A", "tn")]
    say(core, 12, "third", "B", 203)
    say(core, 50, "fourth", "third", 203)
    say(core, 25, "alone", "tn", 201)
    say(core, 40, "after", "alone", 201)
    upto(core, 60, "after", "fourth")
    assert core.topologies[-1] == ("A", "after", "fourth")


def test_g_25_ext_a_ring_that_was_kept_goes_behind_what_was_delivered() -> None:
    """202 never came to ``tn``, which is kept until ``fourth`` takes 202 along. 103, which is there
    as well, was lost with A; so then ``tn`` is lost, too, and its own place is behind us."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 102, 103), "B": (3, 201, 202, 203)})
    core.names |= {each: name for name, each in NAMES.items()}
    say(core, 12, "told", "B", 201, 202, 203)
    say(core, 20, "tn", "told", 201, 202, 203)
    upto(core, 24, "A")
    say(core, 12, "third", "B", 202)
    say(core, 28, "fourth", "third", 202)
    say(core, 25, "alone", "tn", 201)
    say(core, 26, "after", "alone", 201)
    upto(core, 60, "after", "fourth")
    say(core, 30, "north", "A", 1, 101, 102)
    say(core, 45, "last", "north", 1, 101, 102)
    upto(core, 60, "last")
    assert core.topologies[-1] == ("last", "after", "fourth")
    assert core.keys == sorted(core.keys)


def test_a12_ext_a_late_change_goes_with_the_regular_one_that_is_too_late() -> None:
    """Whom it takes along is lost, also if it is said to be at the ring before both."""
    core = pair()
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B13")
    core.bound("A", 40)
    core.bound("B", 40)
    core.message("A30", "A31")
    core.order.late[NAMES["told"], ring("B")] = Change(
        12, NAMES["told"], ring("B"), (member(202),), True
    )
    core.order._enter(core.order.late[NAMES["told"], ring("B")])
    core.order.entries[NAMES["told"]].late = True
    core.order.last = core.order.last._replace(timestamp=39)
    say(core, 35, "tn", "told", 202)
    assert not core.order.late and not core.order.entries[NAMES["told"]].late
    assert 202 not in core.order.network.gateways[102]


def test_a12_ext_who_never_came_to_a_late_ring_is_not_lost_with_it() -> None:
    """``tn`` follows ``told``, and both are late. 201 came to neither: by its own word it went on
    from the ring before them, and what lies beyond it can be reached."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B15")
    core.bound("A", 18)
    say(core, 12, "told", "B", 201, 202)
    say(core, 16, "alone", "B", 201)
    say(core, 14, "tn", "told", 201, 202)
    say(core, 50, "after", "alone", 201)
    upto(core, 60, "A", "after")
    assert core.topologies[-1] == ("A", "after")


def test_g_25_ext_an_interface_that_is_new_here_is_not_where_it_never_came() -> None:
    """101 is not known here. By its own word 201 went on from B with 204; others have both on a
    ring between. The two did not meet, and what lay beyond 101 was lost here alone."""
    core = Core(1, {1: "A"}, {"A": (1, 104), "B": (204, 201)})
    del core.order.network.gateways[101]
    core.order._stale()
    gone = RingId(ring("Bt").seq + 2, 201)
    core.accept(Change(21, gone, ring("B"), (member(201), member(204)), True))
    rings: dict[str, tuple[NodeId, ...]] = {"A": (1, 104), "Bt": (3, 201, 204), "C": (5, 101)}
    graph, network = graph_of(rings, {101: "C", 201: "Bt", 204: "Bt", 104: "A"}), core.order.network
    core.order._learn(graph)
    assert network.gateways[101][201] == network.gateways[104][204] == ring("B")
    del network.gateways[101], network.members[ring("B")]
    core.order._learn(graph)
    assert network.gateways[101][201] == ring("Bt"), "nobody tells who is on the other one"


def test_g_20_ext_a_gateway_that_is_cut_on_both_sides_stays_cut() -> None:
    """Of three interfaces two were lost here. Somebody who lost one of them, too, tells of the
    other."""
    network = RingNetwork(1, {1: ring("A")})
    rings: dict[str, tuple[NodeId, ...]] = {"A": (1, 101), "B": (201, 3), "C": (301, 4)}

    def told(pid: NodeId, at: RingId | None, there: RingId) -> RingId:
        return there

    network.merge(graph_of(rings, {101: "A", 201: "B", 301: "C"}), told)
    network.cut_off(ring("B"))
    network.cut_off(ring("C"))
    graph = graph_of({"A": (1, 101), "B2": (201, 3)}, {101: "A", 201: "B2"})
    network.merge(NetworkGraph(graph.rings, graph.gateways, (), (101,)), told)
    assert network.gateways[101] == {101: ring("A"), 201: ring("B2")}
    assert network.strangers((member(101),), {101}) == [member(101)]
    network.merge(graph_of(rings | {"C2": (301, 4)}, {101: "A", 301: "C2"}), told)
    assert network.strangers((member(101),), {101}) == []


def test_g_19_ext_a_network_topology_moves_nobody_who_passed_a_ring_by() -> None:
    """A newcomer knows nothing of its own word."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    core.message("A11", "B12", "B14")
    core.bound("A", 15)
    say(core, 12, "told", "B", 201, 202)
    say(core, 40, "tn", "told", 201, 202)
    say(core, 12, "alone", "B", 201)
    ends = {node: dict(each) for node, each in core.order._graph(NAMES["tn"]).gateways}
    assert ends[101][201] == ring("B") and ends[102][202] == NAMES["tn"]


def test_g_19_ext_a_network_topology_has_where_a_late_change_led_from_where_nobody_came() -> None:
    """201 is said to be at ``far``. By its own word, which is late, it went from B to ``told``, and
    is on ``tn`` now. To newcomers it was told to be at ``far``, which nobody tells them the end of.
    """
    core = Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201)})
    core.names |= {each: name for name, each in NAMES.items()}
    far = RingId(25, 203)
    core.order.network.members[far] = (member(201), member(203))
    core.order.network.gateways[101][201] = far
    core.order._stale()
    core.message("A11", "B12", "B14")
    core.bound("A", 15)
    core.order.last = core.order.last._replace(timestamp=15)
    say(core, 12, "told", "B", 201)
    say(core, 40, "tn", "told", 201, 202)
    assert list(core.order.late) == [(NAMES["told"], ring("B"))]
    for name, there in (("tn", NAMES["tn"]), ("last", far)):
        ends = {node: dict(each) for node, each in core.order._graph(NAMES[name]).gateways}
        assert ends[101][201] == there


def test_g_16_ext_one_that_is_elsewhere_by_now_will_not_tell() -> None:
    """103 is still said to be where the late change finds it, and cannot be reached."""
    core = Core(1, {1: "A"}, {"A": (1, 102), "B": (3, 202, 203), "C": (103, 5)})
    core.message("A11", "B12", "B13")
    core.bound("A", 14)
    core.bound("C", 14)
    say(core, 12, "told", "B", 202, 203)
    assert core.order.may_tell(NAMES["told"])
    core.order.network.gateways[102][202] = NAMES["s"]
    core.order._stale()
    assert core.order.live()[1] == {1, 102}
    assert not core.order.may_tell(NAMES["told"])


def test_a3_ext_a_gateway_tells_what_another_one_has_told_with_its_change() -> None:
    """Some do not listen to the other one before a change that lies behind the message (MR-31), and
    waited for a word that had been said: each gateway left it to the other."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    key, receipts = (9, ring("B")), ((3, ((9, ring("B")),), ()),)
    known = core.order.acknowledged
    known.hear_own(3, ring("B"), (key,), ())
    core.accept(Change(20, ring("Bt"), ring("B"), (member(202),), True, receipts))
    assert known.report(ring("B"), 9) == receipts
    known.hear_bound(ring("B"), receipts)
    assert not known.report(ring("B"), 9), "all gateways of the ring pass a Bound on"


def test_a10_ext_our_own_word_counts_when_another_gateway_told_it_before() -> None:
    """The change of our ring came over the other one before that ring was installed here."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    for mine in (False, True):
        core.change("At", "A", 12, 1, 101, 102, mine=mine)
        core.change("A2", "At", 20, 1, 101, 102, mine=mine)
        core.bound("B", 30)
        assert core.topology == ("A2 B" if mine else "A B")


def test_a11_ext_what_comes_late_with_a_new_gateway_counts_if_it_moves_somebody() -> None:
    """All others on the ring took it when it came, and nobody says it here again. 102 was told of
    at B, and that it went on with 202 alone was not."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    core.names |= {each: name for name, each in NAMES.items()}
    core.message("A11", "B12", "B13")
    core.bound("A", 14)
    say(core, 60, "l1", "D", 9, mine=False)
    for timestamp, to, old, pid in (
        (11, RingId(27, 301), "C", 301),  # unknown: of before 301 came to where it is
        (12, RingId(29, 3), "B", 3),  # no gateway
        (12, NAMES["told"], "B", 202),
    ):
        said = Change(timestamp, to, ring(old), (member(pid),), True)
        core.order.accept_released(core.env, 1, said)
        behind = replace(said, since=(core.order.last.timestamp, core.order.last.ring))
        assert (("forward", behind) in core.said) == (pid == 202)
    assert list(core.order.late) == [(NAMES["told"], ring("B"))]
    assert core.order.may_tell(NAMES["told"]) and not core.order.unplaced
    core.order.accept_released(
        core.env, 1, Change(40, NAMES["tn"], NAMES["told"], (member(202),), False)
    )
    upto(core, 50, "A", "B", "tn")
    assert core.topology == "A B tn", "without the first one the second one would be of no ring"


def test_a11_ext_a_transitional_change_waits_though_it_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the gateway that a pending change joins; a regular one never crosses (G-6)."""
    monkeypatch.setattr(TotemMulti, "exchange", lambda *_: None)
    cluster, _ = running()
    machine, env = cluster.machine(1), Env(1, Random(0))
    assert isinstance(machine, TotemMulti)
    (begun,) = set(machine.order.neighbours[1].values())
    waiting = machine._buffers[begun.ring, begun.conf]
    before, stamp = len(waiting), begun.timestamp - 1
    for transitional in (False, True):
        said = Change(stamp, RingId(6, 9), RingId(5, 9), (member(9),), transitional)
        machine._hand_up_forwarded(env, 1, 5, said)
        assert waiting[before:] == [(1, 5, said)] * transitional

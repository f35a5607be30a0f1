"""The core of multiple-ring in fixed and changing networks: dossier 4.5, S-3 to S-24."""

from __future__ import annotations

from itertools import pairwise, permutations

import msgspec
import pytest
from driver import only
from multi_driver import Core, chain, gateway, graph_of, member, ring

from ringcast.core.effects import Stop
from ringcast.core.ids import Level, NodeId
from ringcast.core.settings import MIB
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Change,
    Data,
    Denied,
    Forwarded,
    Key,
    Member,
    NetworkGraph,
    NetworkTopology,
    Rank,
    RingEntry,
    TopologyChange,
)
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_multi.state import MOST_FORETOLD, MOST_REMEMBERED
from ringcast.protocols.totem_single.messages import RingId


def as_told(pid: NodeId, at: RingId | None, ring: RingId) -> RingId:
    return ring


def fig_5_5() -> Core:
    core = chain()
    core.message("A7", "B9", "C8", "B10", "A14", "C10", "B13", "A15", "B15")
    core.bound("C", 11)
    return core


def test_mr_14_messages_come_in_key_order_up_to_the_least_bound() -> None:
    """S-3, MR-12, MR-15, MR-21: a placeholder stops delivery."""
    core = fig_5_5()
    assert core.delivered == ["A7", "C8", "B9", "B10", "C10"]
    assert core.order.least() == (Key(11, ring("C"), Rank.CHANGE, ring("C")), "wait", ring("C"))


def test_mr_12_a_copy_is_neither_delivered_nor_passed_on() -> None:
    """G-18, MR-13: what is not new goes no further."""
    core = fig_5_5()
    said = len(core.said)
    core.message("B9", "B13", "A7")
    assert len(core.said) == said and core.delivered.count("B9") == 1


def test_g_6_equal_timestamps_are_settled_by_the_ring() -> None:
    """S-11."""
    for order in permutations(("A2", "B2", "C2")):
        core = chain()
        core.message(*order)
        for name in "ABC":
            core.bound(name, 3)
        assert core.delivered == ["A2", "B2", "C2"]


def test_mr_30_a_lost_ring_is_deleted_at_its_own_place() -> None:
    """S-5, MR-18, MR-20, MR-22, MR-34, G-12, G-17: B changes without the gateway to C."""
    core = fig_5_5()
    core.change("Bt", "B", 20, 3, 201)
    core.change("B2", "Bt", 25, 3, 201)
    assert core.delivered[5:] == ["{A B}", "B13", "A14", "A15"]
    assert core.keys[5] == Key(11, ring("C"), Rank.CHANGE, ring("C"), core.keys[5].digest)
    core.bound("A", 30)
    assert core.delivered[9:] == ["B15", "{A Bt}", "{A B2}"]
    assert core.topology == "A B2"
    assert all(one < other for one, other in pairwise(core.keys))


def test_g_12_gateways_that_move_along_do_not_cut_anything_off() -> None:
    """S-14: a processor joins B; C is not lost, though all gateways of B moved."""
    core = chain()
    core.message("A14")
    core.bound("C", 11)
    core.bound("B", 12)
    core.change("Bt", "B", 20, 3, 201, 102)
    core.change("B2", "Bt", 25, 3, 5, 201, 102)
    core.message("C12", "A40")
    core.bound("C", 41)
    core.bound("B2", 42)
    assert core.delivered == ["C12", "A14", "{A C Bt}", "{A C B2}", "A40"]


def test_mr_27_a_processor_without_a_gateway_is_alone() -> None:
    """S-16: it deletes all other rings at their places, then goes on by itself."""
    core = Core(1, {1: "A"}, {"A": (1, 101), "B": (3, 201)})
    core.message("A5", "B6")
    core.change("At", "A", 5, 1, mine=True)
    core.change("A2", "At", 9, 1, mine=True)
    assert core.delivered == ["A5", "{At}", "B6", "{At}", "{A2}"], "B is named until it has drained"
    assert core.topology == "A2" and not core.order.pending


def test_g_17_a_newly_joined_gateway_is_not_waited_for_by_the_lost_rings() -> None:
    """S-17, MR-33: gateway 103 joins as 101 goes; the old rings are deleted without its help."""
    core = Core(1, {1: "A"}, {"A": (1, 101), "B": (3, 201)})
    core.message("A5")
    core.bound("B", 6)
    core.change("At", "A", 5, 1, mine=True)
    change = core.change("A2", "At", 9, 1, 103, mine=True)
    assert core.topology == "At", "the change to A2 waits for what 103 can reach"
    core.network_topology(change, 103, {"C": (4, 203)}, {103: "A2", 203: "C"})
    assert core.topology == "A2 C"


def merging() -> tuple[Core, Change]:
    """Gateway 101 is next to apply a change of A that brings 2 and gateway 102."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101), "B": (3, 201)})
    core.bound("A", 5)
    core.bound("B", 50)
    core.change("At", "A", 5, 1, 101, mine=True)
    return core, core.change("A2", "At", 9, 1, 2, 101, 102, mine=True)


def test_mr_25_the_topologies_of_all_gateways_are_joined() -> None:
    """S-18, MR-24, MR-29, G-19: at a gateway, which also says what it can reach."""
    core, change = merging()
    ((_, mine),) = [each for each in core.said if each[0] == "exchange"]
    assert isinstance(mine, NetworkTopology) and mine.ring == ring("A2")
    assert dict(mine.graph.gateways)[101] == ((101, ring("A2")), (201, ring("B")))
    graph = graph_of({"C": (4, 202)}, {102: "A2", 202: "C"})
    core.order.hear_topology(core.env, 101, 102, NetworkTopology(9, change.ring, 102, graph))
    core.order.advance(core.env)
    assert core.topology == "A2 B C"
    sent = [said for what, said in core.said if isinstance(said, TopologyChange)]
    assert sent[-1].change == (ring("A2"), ring("At"))


def test_mr_26_far_away_a_change_with_strangers_waits_for_its_topology() -> None:
    """MR-28, G-21: it adds what the word of the near gateway brings, and not before it."""
    core = chain()
    core.bound("B", 5)
    core.change("Ct", "C", 4, 4, 202)
    change = core.change("C2", "Ct", 9, 4, 202, 103)
    core.bound("A", 20)
    core.bound("B", 20)
    assert core.topology == "A B Ct"
    core.topology_change(
        change, {"C2": (4, 202, 103), "D": (5, 203)}, {103: "C2", 203: "D", 102: "B", 202: "C2"}
    )
    assert core.topology == "A B C2 D"


def test_g_21_nobody_waits_for_a_topology_that_cannot_come() -> None:
    """S-25 and more: the gateway that could send it is lost as well."""
    core = chain()
    core.change("Ct", "C", 4, 4, 202)
    core.change("C2", "Ct", 9, 4, 202, 103)
    core.bound("A", 20)
    core.bound("B", 20)
    assert core.topology == "A B Ct"
    core.change("Bt", "B", 20, 3, 201)
    core.change("B2", "Bt", 25, 3, 201)
    core.bound("A", 30)
    assert core.topology == "A B2"


def test_g_10_a_ring_that_was_never_heard_is_deleted_behind_the_change_that_brought_it() -> None:
    """S-20: D came with C2 and is cut off unheard."""
    core = chain()
    core.bound("B", 5)
    core.change("Ct", "C", 4, 4, 202)
    change = core.change("C2", "Ct", 9, 4, 202, 103)
    core.topology_change(
        change, {"C2": (4, 202, 103), "D": (5, 203)}, {103: "C2", 203: "D", 102: "B", 202: "C2"}
    )
    for name in "AB":
        core.bound(name, 30)
    assert core.topology == "A B C2 D"
    core.change("Bt", "B", 30, 3, 201)
    core.change("B2", "Bt", 35, 3, 201)
    assert core.delivered[-2:] == ["{A B C2}", "{A B}"]
    for key, lost in zip(core.keys[-2:], ("D", "C2"), strict=True):
        assert key[:4] == (9, ring("C2"), Rank.UNHEARD, ring(lost))


def test_mr_30_two_lost_rings_go_one_by_one() -> None:
    """S-21: C and D end at 11; E11 waits for both, since E comes after them."""
    rings = {"A": (1, 101), "B": (201, 102, 103), "C": (202, 4), "D": (203, 5), "E": (6,)}
    core = Core(1, {1: "A"}, rings)
    core.order.network.gateways[106] = {106: ring("A"), 206: ring("E")}
    core.bound("C", 11)
    core.bound("D", 11)
    core.bound("A", 12)
    core.bound("B", 12)
    core.message("E11")
    core.change("Bt", "B", 20, 201)
    core.change("B2", "Bt", 25, 201)
    assert core.delivered[:3] == ["{A B D E}", "{A B E}", "E11"]


def test_g_22_what_was_received_of_a_lost_ring_is_delivered() -> None:
    """MR-38: C leaves the topology with C10 received; C10 comes all the same."""
    core = chain()
    core.message("C10", "A12")
    core.bound("B", 8)
    core.change("Bt", "B", 8, 3, 201)
    core.change("B2", "Bt", 25, 3, 201)
    assert core.delivered == ["{A Bt}", "C10", "{A Bt}", "A12"]
    assert core.keys[2][:2] == (10, ring("C")), "it goes at its own place (MR-30, A5 ext)"
    assert ring("C") not in core.order.entries, "once drained, it is forgotten"


def test_g_25_where_an_interface_went_is_its_own_word() -> None:
    """Others installed rings that name a gateway; it has gone on from the ring before them."""
    old, named, later = RingId(16, 1), RingId(18, 1), RingId(22, 201)
    network = RingNetwork(3, {3: RingId(8, 3)})
    network.gateways = {101: {101: RingId(8, 3), 201: old}}
    listed = (Member(201, 101, True),)
    network.move(Change(5, named, old, listed, True), mine=False)
    assert network.gateways[101][201] == named
    network.move(Change(5, later, old, listed, True), mine=False)
    network.move(Change(9, RingId(20, 1), named, listed, False), mine=False)
    assert network.gateways[101][201] == later


def test_g_25_its_own_word_counts_when_the_ring_it_left_is_behind_us() -> None:
    """Gateway 101 is said to have gone from B to B3, over Bt and B2, and from there nobody hears
    of it. It went from B to a ring of its own, late for us, and on from there."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    core.change("Bt", "B", 5, 201, 202, mine=True)
    core.change("B2", "Bt", 9, 201, 202, mine=True)
    core.bound("A", 30)
    assert core.topologies[-1] == ("A", "B2"), "102 is said to be there"
    gone = RingId(ring("B2").seq + 1, 202)
    own = Change(5, gone, ring("B"), (member(202),), True)
    later = Change(12, ring("B3"), gone, (member(202),), False)
    core.accept(own)
    assert not core.order.unplaced and (gone, ring("B")) in core.order.late
    core.accept(later)
    core.bound("A", 40)
    core.bound("B2", 40)
    assert core.order.network.gateways[102] == {102: ring("A"), 202: ring("B3")}


def test_g_20_nobody_waits_for_a_word_where_nobody_has_one_to_say() -> None:
    """Gateway 102 is cut off here and not for others. A ring goes on with the same members, so
    there is no exchange on it."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101), "B": (3, 201, 102)})
    core.order.network.cut.add(102)
    core.bound("A", 30)
    core.order.neighbours[201] = {102: Key(1, ring("B"))}
    core.change("Bt", "B", 5, 3, 201, 102, mine=True)
    core.change("B2", "Bt", 9, 3, 201, 102, mine=True)
    assert core.topologies[-1] == ("A", "B2")
    assert not [said for what, said in core.said if what == "exchange"]


def test_mr_32_ext_what_a_gateway_sent_may_wait_for_the_next_change_that_lists_it() -> None:
    """Its word on the first one never came; another gateway may tell of it at the second."""
    core = Core(1, {1: "A"}, {"A": (1,)})
    core.change("At", "A", 5, 1, mine=True)
    core.change("A2", "At", 9, 1, 101, 102, mine=True)
    later = ring("A2"), ring("At")
    core.order.pending = {later: Change(9, *later, (member(1), member(101)), False)}
    assert core.order.may_admit(1, 101, Key(12, ring("X"))) == later
    assert core.order.may_admit(1, 101, Key(8, ring("X"))) is None, "of before that change"
    assert core.order.may_admit(1, 102, Key(12, ring("X"))) is None, "it is not listed"


def test_a11_a_late_change_that_was_applied_and_forgotten_does_not_come_back() -> None:
    """It would be waited for without end: what followed it is applied too."""
    core = chain()
    old = Change(5, ring("Ct"), ring("C"), (member(202),), True)
    for at, waits in (("C2", False), ("C", True)):
        core.order.network.gateways[102] = {102: ring("B"), 202: ring(at)}
        core.order._learn(NetworkGraph((), (), (old,)))
        assert bool(core.order.late) == waits


def test_g_23_what_belongs_to_no_known_ring_is_not_for_us() -> None:
    """And a safe message is refused aloud, and those beyond hear of it, once (A4 ext)."""
    core = chain()
    core.message("X5")
    assert not core.said and not core.refused
    core.message("X6", "X6", level=Level.SAFE)
    assert core.said == [("forward", Denied(6, ring("X"), None))]
    assert core.refused == [Key(6, ring("X"))]
    assert core.env.dropped["of a ring that is not in the topology"] == 3


def test_a4_ext_what_waits_for_a_ring_is_refused_once_its_place_was_passed() -> None:
    """Its sender may wait for this word, and we for the sender's."""
    core = fig_5_5()
    for timestamp in (6, 12):
        safe = Data(1, Level.SAFE, 1, (b"",))
        core.order.unplaced.append((None, Forwarded(timestamp, ring("X"), None, safe)))
    core.order.refuse_passed()
    assert core.refused == [Key(6, ring("X"))], "the other may still get its place"


def test_a4_ext_what_lies_before_all_that_may_come_is_refused() -> None:
    """X could come with the change to C2 at 9 at the earliest, and that waits for its Topology
    Change, which may wait for this word."""
    core = chain()
    core.bound("A", 30)
    core.bound("B", 30)
    core.change("Ct", "C", 4, 4, 202)
    core.change("C2", "Ct", 9, 4, 202, 103)
    core.message("X8", "X12", level=Level.SAFE)
    assert core.order.last.timestamp == 4 and (change := core.order.least()) is not None
    assert change[0].timestamp == 9
    core.order.refuse_passed()
    assert core.refused == [Key(8, ring("X"))]


def test_a4_ext_what_a_gateway_refused_is_no_part_of_its_stream() -> None:
    """It says nothing of messages before it, which may come another way, as it may itself."""
    core = fig_5_5()
    denied = [Denied(timestamp, ring("C"), None) for timestamp in (12, 14)]
    for each in denied * 2:
        core.accept(each)
    assert [said for _, said in core.said[-2:]] == denied, "those beyond hear of it, once"
    core.message("C12", level=Level.SAFE)
    core.bound("C", 13)
    assert core.acked == [Key(12, ring("C"))] and not core.order.denied.keys() & core.acked
    core.order.refuse_passed()
    assert not core.refused and core.order.entries[ring("C")].last.timestamp == 13
    core.order.last = Key(15, ring("C"))
    core.order.refuse_passed()
    assert core.refused == [Key(14, ring("C"))] and not core.order.denied


def test_a4_ext_what_a_gateway_refused_is_refused_if_no_change_may_bring_its_ring() -> None:
    core = chain()
    core.accept(Denied(6, ring("X"), None))
    core.order.refuse_passed()
    assert core.refused == [Key(6, ring("X"))]
    core.accept(Denied(6, ring("X"), None))
    assert len(core.said) == 1 and not core.order.denied


def test_a4_ext_what_gateways_say_they_refused_is_bounded() -> None:
    core = fig_5_5()
    for timestamp in range(100, 102 + MOST_REMEMBERED):
        core.accept(Denied(timestamp, ring("C"), None))
    assert len(core.order.denied) == MOST_REMEMBERED


def late(core: Core, name: str) -> None:
    """A message that waited at a gateway for a change, while another passed on what follows."""
    data = Data(1, Level.AGREED, 1, (name.encode(),))
    core.accept(Forwarded(int(name[1:]), ring(name[0]), None, data, late=True))


def test_mr_12_ext_what_comes_late_is_no_copy() -> None:
    core = gateway()
    core.message("B9", "B12")
    said = len(core.said)
    core.message("B7")
    assert len(core.said) == said, "it is not called late, so it is a copy"
    late(core, "B8")
    assert len(core.said) == said + 1, "those beyond lack it, too"
    late(core, "B8")
    late(core, "B9")
    assert len(core.said) == said + 1, "these are copies"
    core.bound("A", 20)
    core.bound("C", 20)
    assert core.delivered == ["B8", "B9", "B12"]
    late(core, "B10")
    assert core.delivered == ["B8", "B9", "B12"] and len(core.said) == said + 3, "it is too late"


def test_mr_12_ext_what_waited_is_called_late_if_its_stream_has_gone_on() -> None:
    core = gateway()
    core.message("B9")
    core.order.accept_released(
        core.env, 201, Forwarded(8, ring("B"), None, Data(1, Level.AGREED, 1, ()))
    )
    core.order.accept_released(
        core.env, 201, Forwarded(12, ring("B"), None, Data(1, Level.AGREED, 2, ()))
    )
    passed = [said for _, said in core.said if isinstance(said, Forwarded)]
    assert [(each.timestamp, each.late) for each in passed] == [(9, False), (8, True), (12, False)]


def test_mr_12_ext_so_are_the_words_of_a_bound_that_comes_late() -> None:
    core = gateway()
    core.message("A18", level=Level.SAFE)
    core.bound("B", 20)
    said, words = len(core.said), ((3, ((18, ring("A")),), ()),)
    for is_late, passed_on in ((False, 0), (True, 1), (True, 1)):
        bound = Bound(ring("B"), words)
        core.accept(Forwarded(19, ring("B"), None, bound, late=is_late))
        assert len(core.said) == said + passed_on
    assert core.order.acknowledged.said((18, ring("A")), 3, (ring("B"),))


def test_mr_12_ext_a_late_bound_of_another_ring_goes_round_no_cycle() -> None:
    """It waited while its ring changed. Nobody notes its words, which so remain news."""
    core = gateway()
    core.bound("B", 20)
    said = len(core.said)
    bound = Bound(ring("A3"), ((3, ((31, ring("B")),), ()),))
    for _ in range(3):
        core.accept(Forwarded(15, ring("B"), None, bound, late=True))
    assert len(core.said) == said


def test_mr_12_ext_a_bound_that_waited_for_a_change_goes_on_once() -> None:
    """Three gateways brought it while a change was pending; another one had brought what follows.
    All three went on as late, and each gateway that waited for a change multiplied them again."""
    for receipts, times in (((), 0), (((3, ((31, ring("B")),), ()),), 1)):
        core = gateway()
        core.bound("B", 20)
        said = len(core.said)
        for _ in range(3):
            bound = Forwarded(15, ring("B"), None, Bound(ring("B"), receipts))
            core.order.accept_released(core.env, 201, bound)
        assert len(core.said) == said + times, "once if its words are news, else never"


def test_g_19_a_ring_of_which_nobody_told_who_is_there_is_no_ring() -> None:
    network = RingNetwork(1, {1: ring("A")})
    ends = ((101, ring("A")), (201, ring("X")))
    graph = NetworkGraph((RingEntry(ring("A"), (member(1), member(101))),), ((101, ends),))
    network.merge(graph, as_told)
    assert network.gateways == {101: {101: ring("A")}} and ring("X") not in network.members


def test_a7_what_waits_is_no_copy_of_what_came_before_it() -> None:
    """One gateway on the ring passes X on from 14, another one from 12."""
    core = chain()
    core.bound("A", 30)
    core.bound("B", 30)
    core.change("Ct", "C", 4, 4, 202)
    change = core.change("C2", "Ct", 9, 4, 202, 103)
    core.message("X14", "X12", "X13", "X8")
    core.message("X7", level=Level.SAFE)
    core.topology_change(
        change, {"C2": (4, 202, 103), "X": (5, 203)}, {103: "C2", 203: "X", 102: "B", 202: "C2"}
    )
    core.bound("C2", 30)
    core.bound("X", 30)
    assert core.delivered[-3:] == ["X12", "X13", "X14"] and "X8" not in core.delivered
    assert core.refused == [Key(7, ring("X"))]
    assert core.order._unplaced_bytes == 0


def test_g_14_a_stream_that_was_joined_later_waits_for_the_change_that_joined_it() -> None:
    """MR-31 for those beyond: gateway 101 lost C and has it again since 25, which is ahead of us.
    So C34 comes without what was sent while C was away: C goes, and comes back with the change."""
    core = chain()
    core.message("B9", "C8")
    core.bound("C", 11)
    core.change("Bt", "B", 20, 3, 201)
    core.change("B2", "Bt", 25, 3, 201, 103)
    since, data = (25, ring("B2")), Data(1, Level.AGREED, 1, (b"",))
    core.accept(Forwarded(34, ring("C"), None, data, since))
    core.accept(Change(36, ring("Ct"), ring("C"), (member(4),), True, since=since))
    assert len(core.order.unplaced) == 2 and core.order.entries[ring("C")].last.timestamp == 11
    core.bound("A", 30)
    assert core.delivered[:3] == ["C8", "B9", "{A B}"], "C is deleted where its stream ended"
    change = core.order.pending[ring("B2"), ring("Bt")]
    members = {"A": (1, 101), "B2": (3, 201, 103), "C": (4, 203)}
    core.topology_change(change, members, {101: "A", 201: "B2", 103: "B2", 203: "C"})
    assert core.topologies[-1] == ("A", "C", "B2") and not core.order.unplaced
    assert core.order.entries[ring("C")].items[0][0] == Key(34, ring("C"))
    core.message("C35")
    passed = [said for _, said in core.said if isinstance(said, Forwarded)]
    assert passed[-1].since == since, "who is behind hears of it"


def test_a7_what_a_pending_change_may_bring_is_kept_and_passed_on() -> None:
    """Scenario (2) of 4.7: buffered X3 comes before the topology that has X."""
    core = chain()
    core.bound("A", 30)
    core.bound("B", 30)
    core.change("Ct", "C", 4, 4, 202)
    change = core.change("C2", "Ct", 9, 4, 202, 103)
    core.message("X12")
    assert len(core.order.unplaced) == 1 and core.said[-1][0] == "forward"
    core.topology_change(
        change, {"C2": (4, 202, 103), "X": (5, 203)}, {103: "C2", 203: "X", 102: "B", 202: "C2"}
    )
    core.bound("C2", 30)
    assert core.delivered[-1] == "X12" and not core.order.unplaced


def test_a8_what_new_gateways_sent_is_passed_on_before_the_topology_change() -> None:
    """MR-31, MR-32: the machine's buffer is released at that place."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101), "B": (3, 201)})
    core.bound("A", 5)
    core.bound("B", 50)
    core.change("At", "A", 5, 1, 101, mine=True)
    seen: list[int] = []
    core.release = lambda env, change: seen.append(len(core.said))  # type: ignore[method-assign]
    core.change("A2", "At", 9, 1, 2, 101, mine=True)
    after = [type(said).__name__ for _, said in core.said[seen[-1] :]]
    assert after == ["TopologyChange"]


def test_g_9_members_that_part_deliver_what_each_part_has() -> None:
    """S-24, G-11, G-16: R between gateways 101 and 102, both also on A; R splits."""
    rings = {"A": (1, 101, 102), "B": (201, 202)}
    core = Core(1, {1: "A"}, rings)
    core.message("B20", "B22")
    core.bound("A", 50)
    core.change("Bt", "B", 22, 201)
    core.message("B26", via="Bt")
    core.change("B2", "Bt", 30, 201)
    assert core.delivered == ["B20", "B22"], "the other part may have more of B"
    core.message("B24")
    assert core.delivered[2:] == ["{A B Bt}", "B24"], "and B stays, for 202 is on it"


def test_a9_one_change_has_one_key_for_one_outcome() -> None:
    """P-4: two nodes that know different things install different lists under different keys."""
    keys = []
    some: tuple[dict[str, tuple[int, ...]], ...] = ({}, {"D": (5, 203)})
    for more in some:
        core = chain()
        change = core.change("Ct", "C", 4, 4, 202)
        change = core.change("C2", "Ct", 9, 4, 202, 103)
        ends = {103: "C2", 102: "B", 202: "C2"} | ({203: "D"} if more else {})
        core.topology_change(change, {"C2": (4, 202, 103), **more}, ends)
        core.bound("A", 20)
        core.bound("B", 20)
        keys.append(core.keys[-1])
    assert keys[0][:4] == keys[1][:4] and keys[0].digest != keys[1].digest


def test_g_18_a_topology_change_that_is_not_needed_is_passed_on_once() -> None:
    """Others beyond this gateway may wait for it, though its place was passed here long ago."""
    core = Core(101, {101: "A", 201: "B"}, {"A": (1, 101), "B": (3, 201)})
    core.order.last = Key(90, ring("A"))
    core.said.clear()
    change = Change(50, ring("N"), ring("B"), tuple(map(member, (3, 201))), False)
    for _ in range(2):
        core.topology_change(change, {"N": (3, 201)}, {101: "A", 201: "N"})
    assert [type(said) for _, said in core.said] == [TopologyChange]
    assert not core.order.told


WAY: dict[str, tuple[NodeId, ...]] = {
    **{"A": (1, 101, 205), "B": (3, 201, 102), "C": (4, 202, 103)},
    **{"D": (5, 203, 104), "E": (204,), "F": (6, 105)},
}
"""F - 105 - A - 101 - B - 102 - C - 103 - D - 104 - E."""


def closing(core: Core, mine: bool, breaks: bool) -> Change:
    """104 comes to A, which closes the cycle at 20. B goes on without 102 (``breaks``), and C is
    known up to 6: how it went on is told beyond it."""
    for name, upto in (("B", 25), ("C", 6 if breaks else 40), ("D", 40), ("E", 40), ("F", 40)):
        core.bound(name, upto)
    if breaks:
        core.change("Bt", "B", 25, 3, 201)
        core.change("B2", "Bt", 28, 3, 201)
    core.change("At", "A", 4, 1, 101, 205, mine=mine)
    return core.change("A2", "At", 20, 1, 101, 205, 204, mine=mine)


BEYOND = ({"C2": (4, 103), "D": (5, 203, 104)}, {103: "C2", 203: "D", 104: "D", 204: "A2"})
"""What 104 can reach."""


def test_g_20_ext_a_known_gateway_that_cannot_be_reached_is_waited_for() -> None:
    """How the rings beyond it went on since the way there was lost, only it can tell."""
    core = Core(1, {1: "A"}, WAY)
    change = closing(core, mine=True, breaks=True)
    assert core.topology == "At B D E F", "C is lost at 6; the change to A2 waits for 104"
    core.network_topology(change, 204, *BEYOND)
    assert core.topology == "A2 B C2 D F"


def test_g_20_ext_far_away_its_topology_change_is_waited_for() -> None:
    """MR-26: those beyond A know 104 by the same way, which was lost to them as well."""
    core = Core(6, {6: "F"}, WAY)
    change = closing(core, mine=False, breaks=True)
    assert core.topology == "At B D E F"
    core.topology_change(change, *BEYOND)
    assert core.topology == "A2 B C2 D F"


def test_g_20_a_gateway_that_is_reached_another_way_is_not_waited_for() -> None:
    """All that it could tell has come that way."""
    for me, name, mine in ((1, "A", True), (6, "F", False)):
        core = Core(me, {me: name}, WAY)
        closing(core, mine, breaks=False)
        assert core.topology == "A2 B C D E F"


def test_g_20_a_gateway_whose_far_ring_was_deleted_is_a_stranger_again() -> None:
    """It comes back with the next change of a ring that it is on, and only it can tell where it
    leads by then."""
    network = chain().order.network
    mine, live = (member(101),), {101, 102}
    assert network.strangers(mine, live) == []
    network.cut_off(ring("B"))
    assert network.strangers(mine, live) == list(mine)
    network.merge(graph_of({"B2": (3, 201)}, {101: "A"}), as_told)
    assert network.strangers(mine, live) == list(mine)
    network.merge(graph_of({"B2": (3, 201)}, {101: "A", 201: "B2"}), as_told)
    assert network.strangers(mine, live) == []


def newcomer(told: NetworkGraph) -> Core:
    """5 comes to ring A2, where 101 tells what it can reach, B and 102 there."""
    core = Core(5, {5: "A"}, {"A": (5,)})
    core.change("At", "A", 4, 5, mine=True)
    change = core.change("A2", "At", 9, 1, 5, 101, mine=True)
    core.order.hear_topology(core.env, 5, 101, NetworkTopology(9, change.ring, 101, told))
    core.order.advance(core.env)
    core.bound("B", 40)
    return core


def test_g_20_ext_that_a_gateway_lost_an_interface_is_told_with_it() -> None:
    """101 has deleted C, and waits for 102 at the next change that lists it. Who knows 102 from
    101 alone has to wait as well, or lacks the interface that comes to its ring."""
    teller = gateway()
    teller.order.network.cut_off(ring("C"))
    graph = teller.order._graph(ring("A2"))
    told = msgspec.structs.replace(
        graph, gateways=((101, ((101, ring("A2")), (201, ring("B")))), graph.gateways[1])
    )
    assert told.cut == (102,)
    core = newcomer(told)
    assert core.topology == "A2 B"
    core.change("Nt", "A2", 20, 1, 5, 101, mine=True)
    change = core.change("N2", "Nt", 25, 1, 5, 101, 202, mine=True)
    assert core.topology == "B Nt", "102 can be reached over B, and 202 is not known"
    core.network_topology(change, 202, {"B": (3, 201, 102)}, {102: "B", 202: "N2"})
    assert core.topology == "B N2"
    assert core.order.network.gateways[102] == {102: ring("B"), 202: ring("N2")}


def test_mr_29_between_the_changes_of_a_merge_no_stream_is_forgotten() -> None:
    """A and B merge to N2, and A's change comes first: 201 is there already, and 3 is not, so C is
    away between the two. Nobody says again how far C's stream has come (seed 3001533)."""
    core = Core(3, {3: "B"}, {"A": (1, 102), "B": (3, 201), "C": (4, 301, 302)})
    core.bound("C", 40)
    core.change("Bt", "B", 20, 3, 201, mine=True)
    mine = core.change("N2", "Bt", 30, 1, 3, 102, 201, mine=True)
    ends = {102: "N2", 302: "C", 201: "N2", 301: "C"}
    rings: dict[str, tuple[NodeId, ...]] = {"A": (1, 102), "C": (4, 301, 302)}
    core.network_topology(mine, 102, rings, ends)
    core.network_topology(mine, 201, rings, ends)
    core.change("At", "A", 20, 1, 102)
    core.change("N2", "At", 30, 1, 3, 102, 201)
    assert core.topologies[-2:] == [("C", "Bt", "N2"), ("C", "N2")]
    assert core.order.entries[ring("C")].placeholder.timestamp == 40


def test_g_25_ext_one_lost_with_a_ring_where_it_never_came_tells_of_its_own() -> None:
    """By 101's word 202 went with 201 to B2, and by its own it never did. Here 202 was lost with
    B2; but 102 can be reached over A, so its word on the ring that it is on will come."""
    core = Core(1, {1: "A"}, {"A": (1, 101, 102), "B": (3, 201, 202)})
    core.change("Bt", "B", 20, 201, 202)
    core.change("B2", "Bt", 25, 201, 202)
    core.bound("A", 30)
    assert core.topology == "A B2"
    apart, after = RingId(ring("B2").seq + 2, 202), RingId(ring("B2").seq + 4, 202)
    core.names[after] = "after"
    core.accept(Change(20, apart, ring("B"), (member(202),), True))
    core.order.network.lose((202,), ring("B2"))
    core.order._stale()
    change = Change(60, after, apart, (member(202),), False)
    core.accept(change)
    core.change("Xt", "B2", 40, 201)
    core.change("X2", "Xt", 50, 201)
    core.bound("A", 70)
    core.bound("X2", 70)
    assert core.topology == "A X2", "and the change to the ring of 202 alone is next"
    assert 202 not in core.order.network.gateways[102] and 102 in core.order.live()[1]
    graph = graph_of({"A": (1, 101, 102)}, {102: "A"})
    ends = ((102, ((102, ring("A")), (202, after))),)
    rings = (*graph.rings, RingEntry(after, (member(202),)))
    core.accept(TopologyChange(60, after, apart, NetworkGraph(rings, ends)))
    assert core.topology == "A X2 after"


def test_g_18_ext_a_topology_change_may_come_before_its_change() -> None:
    """It is older than the change that joins its gateway, and nobody says it again."""
    core = chain()
    core.bound("B", 5)
    core.change("Ct", "C", 4, 4, 202)
    change = Change(9, ring("C2"), ring("Ct"), (member(4), member(202), member(103)), False)
    ends = {103: "C2", 203: "D", 102: "B", 202: "C2"}
    graph = graph_of({"C2": (4, 202, 103), "D": (5, 203)}, ends)
    said = TopologyChange(change.timestamp, change.ring, change.conf, graph)
    core.order.foretell(core.env, 1, said)
    assert ("forward", said) not in core.said
    core.accept(change)
    core.bound("A", 20)
    core.bound("B", 20)
    assert core.topology == "A B C2 D" and ("forward", said) in core.said
    assert not core.order.foretold


def test_g_18_ext_what_is_foretold_is_bounded_and_forgotten() -> None:
    core = chain()
    graph = graph_of({"A": (1, 101)}, {})
    core.order.foretell(core.env, 1, TopologyChange(0, ring("N"), ring("C"), graph))
    assert not core.order.foretold, "of before what is applied"
    for n in range(MOST_FORETOLD + 2):
        core.order.foretell(core.env, 1, TopologyChange(9 + n, RingId(90 + n, 7), ring("C"), graph))
    assert len(core.order.foretold) == MOST_FORETOLD
    assert sum(core.env.dropped.values()) == 3
    core.order.last = Key(20, ring("A"), Rank.SHRINK)
    core.order._prune(set())
    assert min(said.timestamp for _, said in core.order.foretold.values()) == 20


def test_mr_25_and_mr_26_a_change_says_whose_word_it_waits_for() -> None:
    """On its ring, and far from it."""
    core, change = merging()
    assert core.order.awaited(change) == [102]
    far = chain()
    far.bound("B", 5)
    far.change("Ct", "C", 4, 4, 202)
    change = far.change("C2", "Ct", 9, 4, 202, 103)
    far.bound("A", 20)
    far.bound("B", 20)
    assert far.order.awaited(change) == [102], "it has 202 on C"


@pytest.mark.parametrize("along", [True, False])
def test_mr_26_ext_nobody_waits_for_what_is_not_said_on_the_new_ring(along: bool) -> None:
    """A and B merge to N2, and 102 is cut off from both sides then, so B's change has a stranger.
    103 tells of that change on D, and can be reached over 104 alone. If that went along from B, it
    says its own on D as well, and not on N2; if it was on A, it passes on what it hears on D."""
    rings: dict[str, tuple[NodeId, ...]] = {"A": (1, 101), "B": (102, 103), "C": (201, 202)}
    rings["B" if along else "A"] += (104,)
    core = Core(1, {1: "A"}, rings)
    core.order.network.gateways.pop(104)  # nobody has told of it
    core.change("N2", "A", 30, 1, 101, 102, 103, 104, mine=True)
    change = core.change("N2", "B", 30, 1, 101, 102, 103, 104)
    core.change("N3", "N2", 40, 1, 101, 103, 104, mine=True)
    ends = {102: "N2", 202: "C", 103: "N2", 203: "D", 104: "N2", 204: "D"}
    beyond: dict[str, tuple[NodeId, ...]] = {"D": (4, 203, 204)}
    core.network_topology(change, 103, beyond, ends)
    core.network_topology(change, 104, beyond, ends)
    core.change("C2", "C", 40, 201)
    core.bound("C2", 50)
    core.bound("D", 50)
    assert 102 not in core.order.live()[1] and 103 in core.order.live()[1]
    if not along:
        assert core.order.awaited(change) == [103] and core.topology == "B C D N2"
        core.topology_change(change, beyond, ends)
    assert core.topology == "C2 D N3"


def test_a7_what_waits_for_its_ring_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it can be left out, so the processor ends and says why."""
    monkeypatch.setattr("ringcast.protocols.totem_multi.state.MOST_WAITING", 3 * MIB)
    core = chain()
    core.change("B2", "B", 9, 3, 201, 102)
    for n in range(3):
        assert not only(core.env.take(), Stop)
        core.accept(Forwarded(20 + n, ring("N"), None, Data(9, Level.AGREED, n + 1, (bytes(MIB),))))
    (stop,) = only(core.env.take(), Stop)
    assert "more than 3 MiB" in stop.reason and "group.blocked" in stop.reason


def test_g_25_ext_nobody_waits_for_the_word_of_one_that_passed_a_ring_by() -> None:
    """202 is said to have gone to Bt, and by its own word it went elsewhere from B. So 101 cannot
    be reached over it, and 102 will never tell how Bt went on."""
    core = Core(1, {1: "A"}, {"A": (1, 102), "B": (3, 201, 202), "C": (5, 301)})
    core.change("Bt", "B", 20, 201, 202)
    change = core.change("B2", "Bt", 40, 201, 202)
    core.bound("A", 30)
    core.bound("C", 30)
    assert core.topology == "A Bt C"
    gone = RingId(ring("Bt").seq + 1, 202)
    core.accept(Change(15, gone, ring("B"), (member(202),), True))
    core.accept(Change(60, RingId(gone.seq + 2, 202), gone, (member(202),), False))
    assert 101 not in core.order.live()[1] and not core.order.awaited(change)


def test_g_25_ext_what_is_told_takes_nobody_to_a_ring_that_he_passed_by() -> None:
    """A gateway whose own word was not heard beyond yet is on the transitional ring that others
    told of. Who has heard it lost all that lay beyond that gateway, and alone."""
    core = chain()
    core.change("Bt", "B", 20, 3, 102)
    gone = RingId(ring("Bt").seq + 2, 201)
    core.accept(Change(21, gone, ring("B"), (member(201),), True))
    graph = graph_of({"A": (1, 101), "Bt": (3, 201, 102)}, {101: "A", 201: "Bt", 102: "Bt"})
    core.order._learn(graph)
    assert core.order.network.gateways[101] == {101: ring("A"), 201: ring("B")}
    assert core.order.network.gateways[102][102] == ring("B"), "its change is pending (G-14)"


def partly_told(core: Core) -> Core:
    """102 tells of a transitional ring of B with 201 in it, and crashes before it tells of more. By
    its own word 101 went on alone from B."""
    told, alone, after = RingId(31, 201), RingId(41, 201), RingId(43, 201)
    north, last = RingId(33, 1), RingId(35, 1)
    core.names |= {told: "told", alone: "alone", after: "after", north: "north", last: "last"}

    def say(timestamp: int, to: RingId, old: RingId, *pids: NodeId) -> None:
        if core.order.network.own.keys() & set(pids) and to != told:
            core.order.claim(Change(timestamp, to, old, (), False))
        members = tuple(map(member, pids))
        core.accept(Change(timestamp, to, old, members, to not in (last, after)))

    core.message("A11")
    core.message("B12")
    say(12, told, ring("B"), 201, 202)
    say(12, north, ring("A"), 1, 101)
    say(20, last, north, 1, 101)
    say(12, alone, ring("B"), 201)
    say(21, after, alone, 201)
    for now in (last, after):
        core.accept(Forwarded(60, now, None, Bound(now, ())))
    return core


def test_g_25_ext_nobody_waits_for_one_to_tell_of_a_transitional_ring_it_passed_by() -> None:
    """1 and 101 itself waited for 101 to tell how that ring went on. 101 is on B until its own
    change is next."""
    rings: dict[str, tuple[NodeId, ...]] = {"A": (1, 101, 102), "B": (3, 201, 202)}
    one = partly_told(Core(1, {1: "A"}, rings))
    gateway = partly_told(Core(101, {101: "A", 201: "B"}, rings))
    assert one.delivered == gateway.delivered
    assert one.topologies[-1] == ("last", "after")


def test_g_14_what_is_told_moves_no_interface_whose_change_is_pending() -> None:
    """Three gateways that merged into one ring each took the others to be there already, and waited
    for a stream that was to come by them."""
    network = RingNetwork(1, {1: ring("A")})
    before: dict[str, tuple[NodeId, ...]] = {"A": (1, 101), "B": (201,), "C": (3,)}
    network.merge(graph_of(before, {101: "A", 201: "B"}), as_told)
    after = graph_of({"A": (1, 101), "C": (3, 201)}, {101: "A", 201: "C"})
    network.merge(after, lambda pid, at, told: at or told)
    assert network.gateways[101][201] == ring("B")
    network.merge(after, as_told)
    assert network.gateways[101][201] == ring("C"), "a change that takes it from elsewhere"


def test_g_20_ext_who_knows_all_of_a_gateway_keeps_it_whole() -> None:
    """Whoever is heard first: the words of all gateways are joined in any order."""
    rings: dict[str, tuple[NodeId, ...]] = {"B": (3, 201, 102), "C2": (4, 202)}
    lost = msgspec.structs.replace(graph_of(rings, {102: "B"}), cut=(102,))
    whole = graph_of(rings, {102: "B", 202: "C2"})
    for words, waits in (((lost,), True), ((lost, whole), False), ((whole, lost), False)):
        network = RingNetwork(1, {1: ring("A")})
        for word in words:
            network.merge(word, as_told)
        assert bool(network.strangers((member(202),), {102})) == waits

"""The dissertation's two changes of a network step by step, Fig. 5.14 and 5.15: S-6 to S-10.

A ring goes to a transitional one first (G-9), which the figures skip: ``At``, ``Bt`` and ``Ft``,
and ``Bu`` of those that did not come along to ``Bt``. So where the dossier has one Topology Change
with the key (T, B', TC, B), there are two here, (last of B, Bt, TC, B) and (T, B', TC, Bt).
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace
from multi_driver import CHAIN, graph_of, ring
from multi_site import Rings, Site, beyond, plain

from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import (
    Key,
    NetworkTopology,
    Rank,
    TopologyChange,
)


def places(site: Site) -> list[tuple[object, ...]]:
    """The keys of the topologies that were installed, but for their digests."""
    return [key[:4] for key in site.machine.keys if key.rank != Rank.REGULAR]


def at(timestamp: int, new: str, conf: str) -> tuple[object, ...]:
    """(T, N, TC, O) of the dossier."""
    return (timestamp, ring(new), Rank.CHANGE, ring(conf))


def words(site: Site) -> dict[NodeId, list[str]]:
    """What was said on each ring since the last time, in short."""
    return {pid: [plain(each) for each in said] for pid, said in site.said().items()}


# --- Fig. 5.14: A - q - B - r - C, and B goes on without r ------------------------------------


def fig_5_14_at_q() -> Site:
    """S-3 and S-5 at gateway q, 101."""
    q = Site({101: "A", 201: "B"}, CHAIN)
    q.own("A7", "A14", "A15", "B9", "B10", "B13", "B15")
    q.passed(102, "C8", "C10")
    q.passed_bound(102, "C", 11)
    q.changes("B", "Bt", "B'", 25, 3, 201)
    return q


DELIVERED_5_14 = [
    *("A7", "C8", "B9", "B10", "C10"),
    *("{A B}", "B13", "A14", "A15", "B15", "{A Bt}", "{A B'}"),
]


SAID_AT_Q = {
    101: [
        *("B9", "B10", "B13", "B15", "C8", "C10", "C11 bound"),
        *("CC(15 Bt B)", "CC(25 B' Bt)", "TC(15 Bt B)", "TC(25 B' Bt)"),
    ],
    201: ["A7", "A14", "A15", "A26 bound"],
}


def test_s_5_at_q_the_gateway_that_stays() -> None:
    """S-5, Fig. 5.14: what q delivers, and what it says on A and on B'. As the errata have it,
    nobody floods a deletion, since all derive it (G-17), and q sends no Network Topology on B':
    all of its members came along, and nobody there waits for one (G-20)."""
    q = fig_5_14_at_q()
    assert q.delivered == DELIVERED_5_14[:9], "B15 comes once A's bound exceeds 15"
    q.own_bound("A", 26)
    assert q.delivered == DELIVERED_5_14
    assert places(q) == [at(11, "C", "C"), at(15, "Bt", "B"), at(25, "B'", "Bt")]
    assert q.topology == "A B'"
    assert words(q) == SAID_AT_Q


def fig_5_14_on_a(p: NodeId) -> Site:
    """At a processor on A, by what q passes on."""
    site = Site({p: "A"}, CHAIN)
    site.own("A7", "A14", "A15")
    site.passed(101, "B9", "B10", "B13", "B15", "C8", "C10")
    site.passed_bound(101, "C", 11)
    site.passed_change(101, "Bt", "B", 15, 3, 201)
    site.passed_change(101, "B'", "Bt", 25, 3, 201)
    return site


def fig_5_14_on_b() -> Site:
    """At 3, which is on B and goes along to B'."""
    site = Site({3: "B"}, CHAIN)
    site.passed(201, "A7", "A14", "A15")
    site.own("B9", "B10", "B13", "B15")
    site.passed(102, "C8", "C10")
    site.passed_bound(102, "C", 11)
    site.changes("B", "Bt", "B'", 25, 3, 201)
    return site


@pytest.mark.parametrize("flooded", ["never", "before", "after"])
def test_s_6_processors_on_both_rings_do_as_q(flooded: str) -> None:
    """S-6, Fig. 5.14: 1 and 2 on A and 3 on B' have the same keys, digests included, and the same
    deliveries. As the errata have it (G-17, G-20), 3 derives the Topology Changes from its own
    graph, for q says nothing of them on B'; so do those on A, whether the flooded ones come before
    their places, after them, or not at all."""
    q, on_a, on_b = fig_5_14_at_q(), [fig_5_14_on_a(p) for p in (1, 2)], fig_5_14_on_b()
    q.own_bound("A", 26)
    told = [each for each in q.said()[101] if isinstance(each, TopologyChange)]
    assert len(told) == 2
    for p in on_a:
        for each in told if flooded == "before" else ():
            p.hear(101, each)
        assert p.delivered == DELIVERED_5_14[:9]
        p.own_bound("A", 26)
        for each in told if flooded == "after" else ():
            p.hear(101, each)
    assert on_b.delivered == DELIVERED_5_14[:9]
    on_b.passed_bound(201, "A", 26)
    for p in (*on_a, on_b):
        assert p.delivered == DELIVERED_5_14
        assert p.machine.keys == q.machine.keys
        assert p.topology == "A B'" and not p.order.pending
        assert p.order.reported == q.order.reported


# --- Fig. 5.15: A and F merge to A', while B breaks into B' and B'' ----------------------------

NETWORK: Rings = {
    **{"A": (1, 101), "B": (2, 201, 102, 103), "C": (3, 203, 105)},
    **{"D": (4, 205), "E": (5, 202, 104), "F": (6, 204)},
}
"""Gateways a = 101 between A and B, b = 102 between B and E, c = 103 between B and C, d = 104
between E and F, e = 105 between C and D, each with its second interface 100 above the first."""

MERGED = (1, 101, 6, 204)
"""The members of A'."""

BEYOND_D = replace(
    graph_of(
        {name: NETWORK[name] for name in "BCDE"} | {"Ft": NETWORK["F"]},
        {
            **{201: "B", 102: "B", 202: "E", 103: "B", 203: "C", 104: "E", 204: "A'"},
            **{105: "C", 205: "D"},
        },
    ),
    cut=(101,),
)
"""What d can reach at 120, when it has lost A, and with it what lies beyond a."""


def s_7() -> Site:
    """At a, up to the wait for d's Network Topology."""
    a = Site({101: "A", 201: "B"}, NETWORK)
    a.passed(102, "E85", "F90")
    a.passed(103, "D95", "C100")
    a.own("B110", "A112")
    assert a.delivered == ["E85"], "E may say more"
    a.changes("A", "At", "A'", 120, *MERGED)
    a.passed(103, "D122")
    a.own("B123")
    a.passed(103, "C124")
    a.passed(204, "E119", "E121")
    assert a.delivered == ["E85"]
    a.changes("B", "Bt", "B'", 125, 201)
    return a


S_7 = ["E85", "{A B C D F}", "F90", "{A B C D}", "D95", "C100", "B110", "A112", "{B C D At}"]


def test_s_7_at_a_lost_rings_go_at_their_places_and_the_merge_waits() -> None:
    """S-7, Fig. 5.15: E goes behind E85 and F behind F90, E119 is discarded and E121 waits. As the
    errata have it, a floods no deletion, since all derive it (G-17), and says on A' all that it has
    delivered (G-19): beyond it lie B, C and D."""
    a = s_7()
    assert a.delivered == S_7
    assert places(a) == [at(85, "E", "E"), at(90, "F", "F"), at(112, "At", "A")]
    assert all(one < other for one, other in pairwise(a.machine.keys))
    assert a.env.dropped == {"older than the change that joins its gateway": 1}, "E119"
    ((pid, sender, waits),) = a.machine._buffers[ring("A'"), ring("At")]
    assert (pid, sender, plain(waits)) == (101, 204, "E121")
    said = a.said()
    assert [plain(each) for each in said[101]] == [
        *("E85", "F90", "D95", "C100", "B110"),
        *("D122", "B123", "C124", "CC(123 Bt B)", "CC(125 B' Bt)", "NT(120 A')"),
    ]
    assert [plain(each) for each in said[201]] == [
        *("A112", "CC(112 At A)", "CC(120 A' At)", "TC(112 At A)"),
    ]
    told = said[101][-1]
    assert isinstance(told, NetworkTopology) and told.gateway == 101
    assert beyond(told.graph, {201: "B"}) == "A' B C D"
    assert dict(told.graph.gateways)[101] == ((101, ring("A'")), (201, ring("B")))
    assert a.machine.blocked == f"ring {ring('At')} is changing; waiting to hear from 104"


def s_8() -> Site:
    """Now d says what it can reach."""
    a = s_7()
    a.said()
    a.hear(204, NetworkTopology(120, ring("A'"), 104, BEYOND_D))
    return a


S_8 = [*S_7, "{B C D E A'}"]


def test_s_8_at_a_the_word_of_d_brings_e_back() -> None:
    """S-8, Fig. 5.15: E is back with A', and E121 goes on to B', ahead of the Topology Change
    (A8)."""
    a = s_8()
    assert a.delivered == S_8
    assert places(a)[3:] == [at(120, "A'", "At")]
    assert a.topology == "A' B C D E"
    assert words(a) == {101: ["Admitted"], 201: ["E121", "TC(120 A' At)"]}
    assert not a.machine._buffers and a.machine._buffered_bytes == 0
    assert [key for key, _ in a.order.entries[ring("E")].items] == [Key(121, ring("E"))]


S_9 = [
    *("E121", "D122", "B123", "{B C D E Bt A'}", "{C D E Bt A' Bu}", "C124"),
    *("{C D E A' B' Bu}", "E126", "D127", "C128", "{C D E A' B' B''}"),
]


def test_s_9_at_a_both_parts_of_b_are_in_one_topology() -> None:
    """S-9, Fig. 5.15: + B' with B kept, then + B'' and - B, each part by way of its transitional
    ring. As the errata have it (G-11), B's placeholder at 123 stops delivery until the other part
    of B has told how it went on; the figure advances it with the first change of B. G-26: Fig. 5.16
    has no counterpart here, for acknowledgements replace its rows."""
    a = s_8()
    a.said()
    a.own_bound("A'", 126)
    assert a.delivered == [*S_8, "E121"]
    a.own_bound("B'", 128)
    a.passed(204, "E126", "D127", "C128")
    assert a.delivered == [*S_8, "E121", "D122", "B123"]
    a.passed_change(204, "Bu", "B", 123, 2, 102, 103)
    assert a.delivered == [*S_8, "E121", "D122", "B123"], "its regular change is not known yet"
    a.passed_change(204, "B''", "Bu", 130, 2, 102, 103)
    assert a.delivered == [*S_8, *S_9[:8]], "A' is known up to 126"
    a.own_bound("A'", 131)
    a.own_bound("B'", 131)
    for name in ("E", "D", "C"):
        a.passed_bound(204, name, 131)
    assert a.delivered == [*S_8, *S_9]
    assert places(a)[4:] == [
        *(at(123, "Bt", "B"), at(123, "Bu", "B"), at(125, "B'", "Bt"), at(130, "B''", "Bu")),
    ]
    assert all(one < other for one, other in pairwise(a.machine.keys))
    assert a.topology == "A' B' B'' C D E" and not a.order.pending
    assert a.order.network.gateways == {
        101: {101: ring("A'"), 201: ring("B'")},
        102: {102: ring("B''"), 202: ring("E")},
        103: {103: ring("B''"), 203: ring("C")},
        104: {104: ring("E"), 204: ring("A'")},
        105: {105: ring("C"), 205: ring("D")},
    }
    assert words(a) == {
        101: ["B'128 bound", "TC(123 Bt B)", "TC(125 B' Bt)", "B'131 bound"],
        201: [
            *("A'126 bound", "E126", "D127", "C128", "CC(123 Bu B)", "CC(130 B'' Bu)"),
            *("A'131 bound", "E131 bound", "D131 bound", "C131 bound"),
        ],
    }


def s_10() -> Site:
    """At d, up to the wait for a's Network Topology: d knows A up to A112, and by b that B goes on
    without a."""
    d = Site({104: "E", 204: "F"}, NETWORK)
    d.own("E85", "F90")
    d.passed(202, "D95", "C100", "B110", "A112")
    assert d.delivered == ["E85"], "F is known up to F90, and E may say more"
    d.changes("F", "Ft", "A'", 120, *MERGED)
    d.own("E119", "E121")
    d.passed(202, "D122", "B123", "C124")
    d.passed_change(202, "Bu", "B", 123, 2, 102, 103)
    d.passed_change(202, "B''", "Bu", 130, 2, 102, 103)
    return d


S_10 = ["E85", "F90", "{A B C D E Ft}", "D95", "C100", "B110", "A112", "{B C D E Ft}", "E119"]


def test_s_10_at_d_e_is_never_deleted_and_a_is() -> None:
    """S-10, Fig. 5.15 at d: A goes behind A112. A deletion of E that a would flood, were it as
    printed (G-17), is older than the merge and counts for nothing. What d says on A' is what S-8
    feeds to a; with a's word from S-7 both are in one topology. E119 is delivered here, and at a
    it is of before the merge."""
    d = s_10()
    assert d.delivered == S_10
    assert places(d) == [at(90, "Ft", "F"), at(112, "A", "A")]
    assert d.machine.blocked == f"ring {ring('Ft')} is changing; waiting to hear from 101"
    said = d.said()
    told = said[204][-1]
    assert isinstance(told, NetworkTopology) and told.graph == BEYOND_D
    assert beyond(told.graph, {104: "E"}) == "A' B C D E"
    d.hear(101, TopologyChange(85, ring("E"), ring("E"), BEYOND_D))
    assert d.env.dropped == {"older than the change that joins its gateway": 1}
    assert d.delivered == S_10 and not d.order.foretold
    assert (ring("E"), ring("E")) not in d.order.told and words(d) == {104: [], 204: []}
    a = s_7()
    (of_a,) = (each for each in a.said()[101] if isinstance(each, NetworkTopology))
    d.hear(101, of_a)
    a.hear(204, told)
    assert d.delivered == [*S_10, "{B C D E A'}"] and a.delivered == S_8
    assert places(d)[2:] == [at(120, "A'", "Ft")] and places(a)[3:] == [at(120, "A'", "At")]
    assert d.order.reported == a.order.reported
    assert d.machine.keys[-1].digest == a.machine.keys[-1].digest
    assert all("E" in seen for seen in d.delivered if seen.startswith("{"))
    assert not any(key.rank == Rank.CHANGE and key.ring == ring("E") for key in d.machine.keys)

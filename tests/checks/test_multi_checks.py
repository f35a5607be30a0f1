"""Checks of multiple-ring: a right run, and for each check wrong runs that it must catch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ringcast.checks import Verdict, suite
from ringcast.checks.suite import Suite
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.protocols.totem_multi import CLAIMS, p14_safe, p18_in_turn, p18_to_some
from ringcast.protocols.totem_multi.p14_safe import SafeForAll
from ringcast.protocols.totem_multi.p18_to_some import ToSome

A, B, C = ViewId(8, 1), ViewId(8, 3), ViewId(12, 1)
T0, T1, T2 = ViewId(1, 70), ViewId(5, 71), ViewId(9, 72)
ALONE = {1: ViewId(1, 61), 2: ViewId(1, 62), 3: ViewId(1, 63)}


class MadeTrace:
    """A trace that is written by hand; its times and numbers do not matter."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.prev: dict[NodeId, ViewId] = {}
        self.lives: dict[NodeId, int] = {}
        for node in (1, 2, 3):
            self.start(node)
            self.install(node, ALONE[node], 1, (A,), (node,))

    def at(self) -> int:
        return len(self.events)

    def start(self, node: NodeId, incarnation: int = 1, kept: bool = True) -> None:
        self.events.append(Restarted(node, self.at(), self.at(), incarnation, kept))
        self.prev.pop(node, None)
        self.lives[node] = incarnation

    def crash(self, node: NodeId) -> None:
        self.events.append(Crashed(node, self.at(), self.at()))

    def install(
        self,
        node: NodeId,
        view: ViewId,
        timestamp: int,
        rings: tuple[ViewId, ...] = (A, B),
        members: tuple[NodeId, ...] = (1, 2, 3),
        told: bool = True,
    ) -> None:
        key = (timestamp, rings[0].seq, rings[0].rep, 3, 4, 1, view.rep)
        data = key + tuple(n for ring in rings for n in (ring.seq, ring.rep))
        at = self.at()
        if told:
            self.events.append(
                Noted(node, at, at, "multi MR-29", "topology", "", view, members, data)
            )
        prev = self.prev.get(node)
        self.events.append(
            Installed(node, at, at, view, members, False, rings[0], timestamp, None, prev)
        )
        self.prev[node] = view

    def submit(self, node: NodeId, number: int, level: Level = Level.AGREED) -> None:
        at = self.at()
        self.events.append(Submit(node, at, at, self.lives[node], number, level, (1,), (number,)))

    def originate(
        self,
        node: NodeId,
        ring: ViewId,
        timestamp: int,
        level: Level = Level.AGREED,
        number: int | None = None,
        sender: NodeId = 0,
    ) -> None:
        """What was submitted just before, under its timestamp as a number, unless one is given."""
        if number is None:
            self.submit(node, timestamp, level)
        at, first = self.at(), number or timestamp
        self.events.append(
            Originated(node, at, at, ring, timestamp, level, first, (first,), sender)
        )

    def deliver(
        self,
        node: NodeId,
        sender: NodeId,
        ring: ViewId,
        timestamp: int,
        level: Level = Level.AGREED,
        digest: int | None = None,
    ) -> None:
        at, view = self.at(), self.prev[node]
        digests = (timestamp if digest is None else digest,)
        self.events.append(
            Delivered(node, at, at, view, ring, timestamp, sender, level, timestamp, digests)
        )

    def submit_to(
        self, node: NodeId, number: int, *to: NodeId, level: Level = Level.AGREED
    ) -> None:
        told = SubmittedTo(to, self.lives[node], number, level, (number,))
        self.events.append(told.noted(node, self.at(), self.at()))

    def deliver_to(
        self,
        node: NodeId,
        sender: NodeId,
        ring: ViewId,
        timestamp: int,
        *to: NodeId,
        level: Level = Level.AGREED,
    ) -> None:
        at, sent = self.at(), (sender, timestamp, level, (timestamp,))
        told = DeliveredTo(to, self.prev[node], ring, timestamp, *sent)
        self.events.append(told.noted(node, at, at))

    def end(self, *settled: NodeId) -> None:
        self.events.append(Ended(self.at(), settled))

    def checks(self) -> Suite:
        checks = suite(CLAIMS)
        for event in self.events:
            checks.feed(event)
        return checks

    def verdicts(self) -> dict[str, Verdict]:
        return self.checks().verdicts()

    def named(self, tag: str) -> tuple[tuple[NodeId, ...], str]:
        """Who broke a property, and how."""
        (found,) = (v for v in self.checks().violations if v.property == tag)
        return found.nodes, found.explanation


def together() -> MadeTrace:
    """Everybody in T1 with rings A and B; 1 has originated 6 and 8 on A, 3 the safe 7 on B."""
    trace = MadeTrace()
    for node in (1, 2, 3):
        trace.install(node, T1, 5)
    trace.originate(1, A, 6)
    trace.originate(3, B, 7, Level.SAFE)
    trace.originate(1, A, 8)
    return trace


def delivered(trace: MadeTrace, node: NodeId, *timestamps: int) -> None:
    for timestamp in timestamps:
        sender, ring = (3, B) if timestamp == 7 else (1, A)
        level = Level.SAFE if timestamp == 7 else Level.AGREED
        trace.deliver(node, sender, ring, timestamp, level)


def test_a_right_run_is_valid() -> None:
    trace = together()
    for node in (1, 2, 3):
        delivered(trace, node, 6, 7, 8)
    for node in (1, 2, 3):
        trace.install(node, T2, 9, (A, C))
    trace.end(1, 2, 3)
    assert set(trace.verdicts().values()) == {Verdict.VALID}


def test_a_right_run_with_a_crash_and_a_part_that_goes_on_is_valid() -> None:
    trace = together()
    delivered(trace, 1, 6, 7)
    trace.crash(2)
    delivered(trace, 1, 8)
    delivered(trace, 3, 6, 7, 8)
    for node in (1, 3):
        trace.install(node, T2, 9, (A, C), (1, 3))
    trace.start(2, 2)
    trace.install(2, ViewId(1001, 9), 1001, (B,), (2,))
    trace.end(1, 3)
    assert Verdict.INVALID not in trace.verdicts().values()


def untold(trace: MadeTrace) -> None:
    trace.install(1, T2, 9, told=False)


def without_rings(trace: MadeTrace) -> None:
    at = trace.at()
    trace.events.append(Noted(1, at, at, "multi MR-29", "topology", "", T2, (1,), (9, 8, 1)))
    trace.events.append(Installed(1, at, at, T2, (1,), False, A, 9, None, T1))


def outside(trace: MadeTrace) -> None:
    trace.prev[1] = T2
    delivered(trace, 1, 6)


def members_untold(trace: MadeTrace) -> None:
    trace.install(1, T2, 9)
    trace.events[-1] = replace(trace.events[-1], members=(1, 2))


def another_before(trace: MadeTrace) -> None:
    trace.prev[1] = T0
    trace.install(1, T2, 9)


def none_before(trace: MadeTrace) -> None:
    del trace.prev[1]
    trace.install(1, T2, 9)


def before_a_crash(trace: MadeTrace) -> None:
    trace.crash(1)
    trace.events.append(Restarted(1, trace.at(), trace.at(), 2))
    trace.install(1, T2, 9)


def not_one_of_its_members(trace: MadeTrace) -> None:
    trace.install(1, T2, 9, (A,), (2, 3))


def as_a_transitional_one(trace: MadeTrace) -> None:
    trace.install(1, T2, 9)
    trace.events[-1] = replace(trace.events[-1], transitional=True)


def at_another_place(trace: MadeTrace) -> None:
    trace.install(1, T2, 9)
    trace.events[-1] = replace(trace.events[-1], seq=8)


def in_a_former_one(trace: MadeTrace) -> None:
    """Other checks must bear it: 1 has delivered more in its topology than anybody in the other."""
    delivered(trace, 1, 6)
    delivered(trace, 1, 7)
    trace.prev[1] = ALONE[1]
    delivered(trace, 1, 8)


def other_list(trace: MadeTrace) -> None:
    trace.install(1, T2, 9, (A, C))
    trace.install(2, T2, 9, (A, B))


def again(trace: MadeTrace) -> None:
    trace.install(1, T2, 9)
    trace.install(1, T1, 10)


def apart_at_the_end(trace: MadeTrace) -> None:
    trace.install(1, T2, 9)
    trace.end(1, 2, 3)


def not_all_at_the_end(trace: MadeTrace) -> None:
    for node in (1, 2, 3):
        trace.install(node, T2, 9, (A, B), (1, 2, 3, 4))
    trace.end(1, 2, 3)


def not_all_after_all_is_told(trace: MadeTrace) -> None:
    """Nothing else is wrong: all was delivered before."""
    for node in (1, 2, 3):
        delivered(trace, node, 6, 7, 8)
    for node in (1, 2, 3):
        trace.install(node, T2, 9, (A, B), (1, 2, 3, 4))
    trace.end(1, 2, 3)


def other_outcome(trace: MadeTrace) -> None:
    trace.install(1, T2, 9, (A, C), (1,))
    trace.install(2, T2, 9, (A, B), (1, 2))


def other_contents(trace: MadeTrace) -> None:
    trace.deliver(2, 1, A, 6, digest=99)


def other_sender(trace: MadeTrace) -> None:
    trace.deliver(2, 2, A, 6)


def number_originated_twice(trace: MadeTrace) -> None:
    trace.originate(1, A, 9, number=8)


def number_overtaken(trace: MadeTrace) -> None:
    trace.submit(1, 7)
    trace.originate(1, A, 9, number=7)


def originated_for_another(trace: MadeTrace) -> None:
    trace.submit(2, 9)
    trace.originate(1, A, 9, number=9, sender=2)


def backwards(trace: MadeTrace) -> None:
    delivered(trace, 2, 7, 6)


def twice(trace: MadeTrace) -> None:
    delivered(trace, 2, 6, 6)


def behind_a_topology(trace: MadeTrace) -> None:
    trace.install(2, T2, 9)
    delivered(trace, 2, 8)


def to_some_behind_a_topology(trace: MadeTrace) -> None:
    trace.submit_to(1, 40, 2)
    trace.install(2, T2, 50)
    trace.deliver_to(2, 1, A, 40, 2)


def a_life_begins_too_early(trace: MadeTrace) -> None:
    """It installs what lies behind it, and says nothing."""
    delivered(trace, 2, 6, 7, 8)
    trace.crash(2)
    trace.start(2, 2)
    trace.install(2, ViewId(2, 9), 2, (C,), (2,))


def on_a_ring_of_no_topology(trace: MadeTrace) -> None:
    trace.originate(1, C, 9)
    trace.deliver(2, 1, C, 9)
    trace.end()


def from_nowhere(trace: MadeTrace) -> None:
    trace.deliver(2, 1, A, 77)


def not_submitted(trace: MadeTrace) -> None:
    trace.originate(1, A, 9, number=9)


def submitted_in_another_life(trace: MadeTrace) -> None:
    trace.submit(1, 20)
    trace.crash(1)
    trace.start(1, 2)
    trace.install(1, T2, 1010, (C,), (1,))
    trace.originate(1, C, 1020, number=20)


def not_as_submitted(trace: MadeTrace) -> None:
    trace.submit(1, 9)
    trace.events[-1] = replace(trace.events[-1], digests=(99,))
    trace.originate(1, A, 9, number=9)


def weaker_than_submitted(trace: MadeTrace) -> None:
    trace.submit(1, 9, Level.SAFE)
    trace.originate(1, A, 9, number=9)


def submitted_and_forgotten(trace: MadeTrace) -> None:
    trace.submit(2, 9)
    trace.end(1, 2, 3)


def own_left_out(trace: MadeTrace) -> None:
    delivered(trace, 1, 8)


def own_never(trace: MadeTrace) -> None:
    trace.end(1, 2, 3)


def last_is_not_whole(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7, 8)
    delivered(trace, 2, 6, 7)
    delivered(trace, 3, 6, 7, 8)
    trace.end(1, 2, 3)


def effect_without_cause(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7)
    delivered(trace, 2, 6)
    trace.originate(1, A, 12)
    trace.deliver(2, 1, A, 12)


def effect_of_an_agreed_cause(trace: MadeTrace) -> None:
    delivered(trace, 2, 6)
    trace.originate(2, A, 12)
    trace.deliver(3, 2, A, 12)


def effect_elsewhere(trace: MadeTrace, until: int = 20) -> None:
    """1 goes on from the topology of the others, and never delivers 15, which they do. All are with
    each other all the time."""
    for node in (1, 2, 3):
        delivered(trace, node, 6, 7, 8)
    trace.originate(2, B, 15)
    for node in (2, 3):
        trace.deliver(node, 2, B, 15)
    trace.install(1, T2, until)
    trace.originate(3, A, 30)
    trace.deliver(1, 3, A, 30)


def two_ways_round(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7)
    delivered(trace, 2, 7, 6)


def a_topology_at_two_places(trace: MadeTrace) -> None:
    delivered(trace, 1, 6)
    trace.install(1, T2, 9)
    trace.install(2, T2, 9)
    delivered(trace, 2, 6)


def different_sets(trace: MadeTrace) -> None:
    delivered(trace, 1, 6)
    trace.install(1, T2, 9)
    trace.install(2, T2, 9)


def left_out(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7)
    delivered(trace, 2, 7)


def went_on_without(trace: MadeTrace) -> None:
    """The last of the topology; 2 is in another one next than the others, so nobody compares."""
    delivered(trace, 1, 6, 7, 8)
    delivered(trace, 2, 6, 7)
    trace.install(1, T2, 9, (A, C), (1, 3))
    trace.install(2, ViewId(10, 75), 10, (B,), (2,))
    together_again(trace)


def went_on_before_others_came_to_it(trace: MadeTrace) -> None:
    delivered(trace, 2, 6, 7)
    trace.install(2, ViewId(10, 75), 10, (B,), (2,))
    delivered(trace, 1, 6, 7, 8)
    trace.install(1, T2, 9, (A, C), (1, 3))
    together_again(trace)


def together_again(trace: MadeTrace) -> None:
    delivered(trace, 3, 6, 7, 8)
    trace.install(3, T2, 9, (A, C), (1, 3))
    for node in (1, 2, 3):
        trace.install(node, ViewId(20, 80), 20)
    trace.end(1, 2, 3)


def unsafe(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7)
    trace.install(2, T2, 9, (A, C))


def unsafe_before(trace: MadeTrace) -> None:
    trace.install(2, T2, 9, (A, C))
    delivered(trace, 1, 6, 7)


def unsafe_at_the_end(trace: MadeTrace) -> None:
    delivered(trace, 1, 6, 7)
    trace.end(1, 2, 3)


def went_on_alone(trace: MadeTrace, messages: int) -> None:
    """Processor 2 goes on by itself with so many safe messages."""
    trace.install(2, T2, 9, (C,), (2,))
    for timestamp in range(10, 10 + messages):
        trace.originate(2, C, timestamp, Level.SAFE)
        trace.deliver(2, 2, C, timestamp, Level.SAFE)


def unsafe_long_before(trace: MadeTrace) -> None:
    delivered(trace, 2, 6)
    delivered(trace, 3, 6, 7)
    went_on_alone(trace, 5000)
    delivered(trace, 1, 6, 7)


def clock_stands(trace: MadeTrace) -> None:
    delivered(trace, 2, 6, 7, 8)
    trace.originate(2, A, 7)


def clock_falls_back(trace: MadeTrace) -> None:
    trace.crash(1)
    trace.start(1, 2)
    trace.install(1, ViewId(2, 9), 2, (C,), (1,))
    trace.originate(1, C, 3)


def same_stamp_on_a_ring(trace: MadeTrace) -> None:
    trace.originate(2, A, 8)


def for_another(t: MadeTrace) -> None:
    t.submit_to(1, 40, 1, 3)
    t.deliver_to(2, 1, A, 40, 1, 3)
    t.end(1, 2, 3)


def kept_from_one_it_is_for(t: MadeTrace) -> None:
    t.submit_to(1, 40, 1, 3)
    t.deliver_to(1, 1, A, 40, 1, 3)
    t.end(1, 2, 3)


def to_some_in_another_order(t: MadeTrace) -> None:
    """A message to some that is older than what was delivered before it, on another ring."""
    t.submit_to(1, 40, 3)
    t.submit_to(2, 41, 3)
    t.deliver_to(3, 2, A, 41, 3)
    t.deliver_to(3, 1, B, 40, 3)
    t.end(1, 2, 3)


def passed_by_to_some(t: MadeTrace) -> None:
    """3 delivers 42, and not 40, which 1 delivers in the same topology; then it is gone."""
    t.submit_to(2, 40, 1, 3)
    t.submit_to(2, 42, 1, 3)
    t.deliver_to(1, 2, A, 40, 1, 3)
    t.deliver_to(3, 2, A, 42, 1, 3)
    t.crash(3)


def passed_by_for_one_to_all(t: MadeTrace) -> None:
    """The one that delivered 40 tells of it last."""
    t.submit_to(2, 40, 1, 3)
    t.originate(3, B, 42)
    t.deliver(3, 3, B, 42)
    t.deliver_to(1, 2, A, 40, 1, 3)
    t.crash(3)


def went_on_without_what_was_for_it(t: MadeTrace) -> None:
    t.submit_to(2, 40, 1, 3)
    t.deliver_to(1, 2, A, 40, 1, 3)
    t.install(3, ViewId(50, 90), 50, (B,), (3,))
    t.crash(3)


def of_a_former_life(t: MadeTrace) -> None:
    """The number is of the life before, and so is another message."""
    t.submit_to(1, 40, 3)
    t.crash(1)
    t.start(1, 2)
    t.submit_to(1, 41, 2)
    t.deliver_to(3, 1, A, 41, 3)
    t.end(2, 3)


WRONG: dict[str, tuple[Callable[[MadeTrace], None], ...]] = {
    "P-1": (
        untold,
        without_rings,
        outside,
        members_untold,
        another_before,
        none_before,
        before_a_crash,
        not_one_of_its_members,
        as_a_transitional_one,
        at_another_place,
        in_a_former_one,
    ),
    "P-2": (other_list, again),
    "P-3": (apart_at_the_end, not_all_at_the_end, not_all_after_all_is_told),
    "P-4": (other_outcome,),
    "P-6": (
        other_contents,
        other_sender,
        number_originated_twice,
        number_overtaken,
        originated_for_another,
    ),
    "P-7": (
        backwards,
        twice,
        behind_a_topology,
        to_some_behind_a_topology,
        a_life_begins_too_early,
    ),
    "P-8": (
        from_nowhere,
        on_a_ring_of_no_topology,
        not_submitted,
        submitted_in_another_life,
    ),
    "P-9": (own_left_out, own_never),
    "P-10": (last_is_not_whole,),
    "P-11": (different_sets,),
    "P-12": (effect_without_cause, effect_of_an_agreed_cause, effect_elsewhere),
    "P-13": (left_out, went_on_without, went_on_before_others_came_to_it),
    "P-14": (unsafe, unsafe_before, unsafe_at_the_end, unsafe_long_before),
    "P-15": (two_ways_round, a_topology_at_two_places),
    "P-16": (clock_stands, clock_falls_back, same_stamp_on_a_ring),
    "P-18": (
        for_another,
        kept_from_one_it_is_for,
        to_some_in_another_order,
        passed_by_to_some,
        passed_by_for_one_to_all,
        went_on_without_what_was_for_it,
        of_a_former_life,
    ),
    "content": (not_as_submitted, weaker_than_submitted),
    "validity": (submitted_and_forgotten,),
}


def test_every_claim_has_wrong_runs() -> None:
    assert set(WRONG) == set(CLAIMS)


@pytest.mark.parametrize(("claim", "wrong"), [(c, w) for c, some in WRONG.items() for w in some])
def test_a_wrong_run_is_caught(claim: str, wrong: Callable[[MadeTrace], None]) -> None:
    trace = together()
    wrong(trace)
    assert trace.verdicts()[claim] is Verdict.INVALID


def test_p_13_what_comes_behind_the_place_of_a_change_is_not_missed() -> None:
    """2 lost ring A after 6, so it went on before 7; what others deliver there is not for it."""
    trace = together()
    delivered(trace, 2, 6)
    trace.install(2, ViewId(6, 75), 6, (B,), (2,))
    for node in (1, 3):
        delivered(trace, node, 6, 7, 8)
    assert Verdict.INVALID not in trace.verdicts().values()


@pytest.mark.parametrize("kept", [True, False])
def test_p_7_a_life_without_storage_begins_anywhere(kept: bool) -> None:
    trace = together()
    delivered(trace, 2, 6, 7, 8)
    trace.crash(2)
    trace.start(2, 2, kept=kept)
    trace.install(2, ViewId(2, 9), 2, (C,), (2,))
    assert (trace.verdicts()["P-7"] is Verdict.INVALID) == kept


@pytest.mark.parametrize("knows", ["another one", "one that crashed", "nobody"])
def test_p_8_of_a_ring_that_others_knew(knows: str) -> None:
    """Ring C was in no topology of 2. It was in one of 1, or might have been if not for a crash."""
    trace = together()
    trace.originate(3, C, 9)
    trace.deliver(2, 3, C, 9)
    if knows == "another one":
        trace.install(1, T2, 10, (A, C))
    elif knows == "one that crashed":
        trace.crash(1)
    trace.end()
    assert (trace.verdicts()["P-8"] is Verdict.INVALID) == (knows == "nobody")


def test_p_18_who_went_on_before_missed_nothing() -> None:
    """3 goes on at 30, before the place of what is for it, and 1 is later than 2 with it."""
    trace = together()
    trace.submit_to(2, 40, 1, 2, 3)
    trace.install(3, ViewId(30, 90), 30, (B,), (3,))
    trace.deliver_to(2, 2, A, 40, 1, 2, 3)
    trace.originate(2, A, 41)
    trace.deliver(2, 2, A, 41)
    trace.deliver_to(1, 2, A, 40, 1, 2, 3)
    trace.deliver(1, 2, A, 41)
    assert Verdict.INVALID not in trace.verdicts().values()


def test_p_18_remembers_so_much_of_a_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p18_in_turn, "LATEST", 4)
    trace = together()
    for number in range(40, 60):
        trace.submit_to(1, number, 2)
        trace.deliver_to(2, 1, A, number, 2)
    (check,) = (each for each in trace.checks().properties if isinstance(each, ToSome))
    here = check._within[T1]
    assert set(here.places) == here.told.keys() and 2 <= len(here.places) <= 4


def test_p_14_a_processor_may_come_to_a_safe_message_long_after_another() -> None:
    """Others have gone on with thousands of messages since; what they had is remembered."""
    trace = together()
    delivered(trace, 2, 6, 7, 8)
    went_on_alone(trace, 5000)
    for node in (3, 1):
        delivered(trace, node, 6, 7, 8)
    assert Verdict.INVALID not in trace.verdicts().values()


@pytest.mark.parametrize("right", [True, False])
def test_p_14_remembers_so_much_and_does_not_judge_what_it_forgot(
    right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processor 1 is a hundred messages behind, and is judged again when it is not."""
    monkeypatch.setattr(p14_safe, "LOOKED_AT", 4)
    monkeypatch.setattr(p14_safe, "REMEMBERED", 16)
    checks, trace = Suite([SafeForAll]), together()
    delivered(trace, 2, 6, 7, 8)
    went_on_alone(trace, 100)
    for node in (3, 1):
        delivered(trace, node, 6, 7, 8)
        trace.install(node, ViewId(200, 9), 200, (B,), (1, 3))
    trace.deliver(1, 3, B, 201, Level.SAFE)
    if right:
        trace.deliver(3, 3, B, 201, Level.SAFE)
    trace.install(3, ViewId(202, 9), 202, (B,), (3,))
    most = 0
    for event in trace.events:
        checks.feed(event)
        (check,) = checks.properties
        assert isinstance(check, SafeForAll)
        most = max(most, len(check._had))
    assert most == 16
    assert bool(checks.violations) == (not right)


def test_p_10_what_one_delivers_in_the_last_topology_is_owed_by_all() -> None:
    """It was originated in the topology before; 3 waits for it, or passed it, for ever."""
    trace = together()
    for node in (1, 2, 3):
        delivered(trace, node, 6, 7, 8)
    trace.originate(1, A, 20)
    for node in (1, 2, 3):
        trace.install(node, T2, 9, (A, C))
    for node in (1, 2):
        trace.deliver(node, 1, A, 20)
    trace.end(1, 2, 3)
    assert trace.named("P-10")[0] == (1, 3)


@pytest.mark.parametrize("seen", ["to some", "a topology", "nothing"])
def test_p_16_counts_all_that_its_sender_had_come_to(seen: str) -> None:
    """Its storage is kept, so after a crash it is above that."""
    trace = together()
    for node in (1, 2, 3):
        delivered(trace, node, 6, 7, 8)
    if seen == "to some":
        trace.submit_to(1, 50, 2)
        trace.deliver_to(2, 1, A, 50, 2)
    elif seen == "a topology":
        trace.install(2, T2, 50)
    trace.crash(2)
    trace.start(2, 2)
    trace.install(2, ViewId(30, 99), 30, (C,), (2,))
    trace.originate(2, C, 40)
    trace.deliver(2, 2, C, 40)
    trace.end()
    assert trace.verdicts()["P-16"] is (Verdict.VALID if seen == "nothing" else Verdict.INVALID)


@pytest.mark.parametrize(("until", "right"), [(12, True), (20, False)])
def test_p_12_is_about_who_was_there_at_the_place_of_the_cause(until: int, right: bool) -> None:
    trace = together()
    effect_elsewhere(trace, until)
    trace.end()
    assert trace.verdicts()["P-12"] is (Verdict.VALID if right else Verdict.INVALID)


@pytest.mark.parametrize("order", [(T2, T1), (T1, T2)])
def test_p_15_counts_a_topology_when_one_comes_to_it_first(order: tuple[ViewId, ViewId]) -> None:
    """At one place a processor may come back (P-2)."""
    trace = together()
    trace.install(1, T2, 5)
    trace.install(1, T1, 5)
    delivered(trace, 1, 6)
    for view in order:
        trace.install(2, view, 5)
    trace.end()
    assert trace.verdicts()["P-15"] is Verdict.VALID


@pytest.mark.parametrize(("place", "right"), [(5, True), (6, False)])
def test_p_2_at_one_place_one_may_come_back(place: int, right: bool) -> None:
    """Rings that a change brings are deleted with it. Nothing is delivered in between."""
    trace = together()
    trace.install(1, T2, place)
    trace.install(1, T1, 5)
    delivered(trace, 2, 6)
    trace.end()
    assert trace.verdicts()["P-2"] is (Verdict.VALID if right else Verdict.INVALID)


@pytest.mark.parametrize(("loser", "kept"), [(1, False), (1, True), (3, False)])
def test_content_excuses_a_place_only_for_who_gave_it(loser: NodeId, kept: bool) -> None:
    """Processor 1 is the sender and the representative of ring A, so only its loss counts."""
    trace = together()
    trace.crash(loser)
    trace.start(loser, 2, kept)
    trace.deliver(2, 1, A, 6, digest=99)
    trace.end()
    excused = loser == 1 and not kept
    found = Verdict.UNKNOWN if excused else Verdict.INVALID
    assert trace.verdicts()["content"] is found


@pytest.mark.parametrize("loser", [1, 2])
def test_content_a_loss_excuses_nothing_that_was_told_after_it(loser: NodeId) -> None:
    """Neither the representative of a ring nor a sender on it gives a place again later."""
    trace = together()
    trace.crash(loser)
    trace.start(loser, 2, kept=False)
    trace.install(loser, T2, 9, (C,), (loser,))
    trace.originate(2, A, 40)
    trace.deliver(3, 2, A, 40, digest=99)
    assert trace.named("content")[0] == (2, 3)


def test_content_a_place_that_was_given_again_holds_either() -> None:
    """As many messages as there were losses, and one more."""
    trace = together()
    for life, digest in ((2, 98), (3, 99)):
        trace.crash(1)
        trace.start(1, life, kept=False)
        trace.deliver(2, 1, A, 6, digest=digest)
    for digest in (6, 98, 99):
        trace.deliver(3, 1, A, 6, digest=digest)
    assert trace.verdicts()["content"] is Verdict.UNKNOWN
    trace.deliver(3, 1, A, 6, digest=97)
    assert trace.named("content")[0] == (2, 3)


def test_p_18_names_who_told_a_place_first_as_well() -> None:
    """Either of them may be wrong."""
    trace = together()
    trace.submit_to(1, 40, 2, 3)
    trace.deliver_to(3, 1, A, 40, 2, 3, level=Level.SAFE)
    trace.deliver_to(2, 1, A, 40, 2, 3)
    nodes, why = trace.named("P-18")
    assert nodes == (3, 2) and "at processor 3 it is another message" in why


def test_p_18_names_who_told_another_place_of_a_message_as_well() -> None:
    """And the ring stands first in what it calls the place."""
    trace = together()
    trace.submit_to(1, 40, 1, 2)
    trace.deliver_to(1, 1, A, 40, 1, 2)
    sent = (1, 40, Level.AGREED, (40,))
    told = DeliveredTo((1, 2), T1, A, 41, *sent)
    trace.events.append(told.noted(2, trace.at(), trace.at()))
    nodes, why = trace.named("P-18")
    assert nodes == (1, 2) and "processor 1 delivered it as (8,1):40.0" in why


@pytest.mark.parametrize("early", [True, False])
def test_p_18_a_place_may_hold_another_message_after_a_loss(early: bool) -> None:
    """The representative loses its storage before anybody tells the place, or in between."""
    trace = together()
    trace.submit_to(1, 40, 2, 3)
    if not early:
        trace.deliver_to(3, 1, A, 40, 2, 3, level=Level.SAFE)
    trace.crash(1)
    trace.start(1, 2, kept=False)
    if early:
        trace.deliver_to(3, 1, A, 40, 2, 3, level=Level.SAFE)
    trace.deliver_to(2, 1, A, 40, 2, 3)
    assert trace.verdicts()["P-18"] is (Verdict.INVALID if early else Verdict.UNKNOWN)


def test_p_18_remembers_so_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p18_to_some, "REMEMBERED", 4)
    trace = together()
    for number in range(40, 60):
        trace.submit_to(1, number, 2)
        trace.deliver_to(2, 1, A, number, 2)
    (check,) = (each for each in trace.checks().properties if isinstance(each, ToSome))
    assert len(check._told) == 4


@pytest.mark.parametrize("lost", [True, False])
def test_p_18_does_not_know_what_is_owed_after_a_loss(lost: bool) -> None:
    """Processor 2 delivers a safe message that processor 3 never does, and goes elsewhere."""
    trace = together()
    trace.submit_to(1, 40, 2, 3, level=Level.SAFE)
    trace.deliver_to(2, 1, A, 40, 2, 3, level=Level.SAFE)
    trace.crash(1)
    trace.start(1, 2, kept=not lost)
    trace.install(2, T2, 50, (C,), (2,))
    trace.end(2, 3)
    assert trace.verdicts()["P-18"] is (Verdict.UNKNOWN if lost else Verdict.INVALID)


@pytest.mark.parametrize("right", [True, False])
def test_p_18_does_not_judge_what_it_forgot(right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor 3 comes to the safe 40 when it is forgotten that 2 had it; 49 is remembered."""
    monkeypatch.setattr(p18_to_some, "REMEMBERED", 4)
    trace, safe = together(), Level.SAFE
    trace.submit_to(1, 40, 2, 3, level=safe)
    trace.deliver_to(2, 1, A, 40, 2, 3, level=safe)
    for number in range(41, 49):
        trace.submit_to(1, number, 2, level=safe)
        trace.deliver_to(2, 1, A, number, 2, level=safe)
    trace.deliver_to(3, 1, A, 40, 2, 3, level=safe)
    trace.submit_to(1, 49, 2, 3, level=safe)
    trace.deliver_to(3, 1, A, 49, 2, 3, level=safe)
    if right:
        trace.deliver_to(2, 1, A, 49, 2, 3, level=safe)
    trace.end(1, 2, 3)
    assert (trace.verdicts()["P-18"] is Verdict.INVALID) == (not right)


def test_p_18_a_message_of_a_life_before_and_timestamps_before_rings_are_right() -> None:
    trace = together()
    trace.submit_to(1, 40, 3)
    trace.submit_to(2, 41, 3)
    trace.crash(1)
    trace.start(1, 2)
    trace.deliver_to(3, 1, B, 40, 3)
    trace.deliver_to(3, 2, A, 41, 3)
    trace.end(2, 3)
    assert trace.verdicts()["P-18"] is Verdict.VALID


@pytest.mark.parametrize("to", [3, 2])
def test_p_18_a_body_that_is_sent_to_others_in_the_next_life(to: NodeId) -> None:
    """It is what the sender submitted in the life before, and came late."""
    trace = together()
    trace.submit_to(1, 40, 3)
    trace.crash(1)
    trace.start(1, 2)
    trace.submit_to(1, 40, 2)
    trace.deliver_to(3, 1, B, 40, to)
    assert (trace.verdicts()["P-18"] is Verdict.INVALID) == (to != 3)


@pytest.mark.parametrize("loser", [1, 2])
@pytest.mark.parametrize("right", [True, False])
def test_p_18_a_place_that_is_given_again_after_a_loss_of_storage(
    loser: NodeId, right: bool
) -> None:
    """Message 8 of processor 1 is of its first life, whoever comes to its place in a second one;
    and a message to some with a number below that is still wrong."""
    trace, number = together(), 40 if right else 7
    trace.submit_to(1, number, 3)
    trace.crash(loser)
    trace.start(loser, 2, kept=False)
    trace.submit(loser, 1)
    trace.originate(loser, A, 8, number=1)
    delivered(trace, 3, 6, 7, 8)
    sent = (1, number, Level.AGREED, (number,))
    told = DeliveredTo((3,), T1, A, 40, *sent)
    trace.events.append(told.noted(3, trace.at(), trace.at()))
    assert (trace.verdicts()["P-18"] is Verdict.INVALID) == (not right)

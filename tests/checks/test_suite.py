"""The suite: claims, explanations, early detection, bounded memory, the time bound of M5."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringcast.checks import Suite, Verdict, suite
from ringcast.checks.content import Content
from ringcast.checks.history import TRIM_EVERY
from ringcast.checks.integrity import Integrity
from ringcast.checks.suite import COMMON
from ringcast.core.ids import Level, ViewId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
)
from ringcast.traces.text import parse


def judge(story: str, *claims: str, bound_us: int | None = None) -> Suite:
    checks = suite(claims or COMMON, bound_us)
    for event in parse(story):
        checks.feed(event)
    return checks


def test_an_unknown_claim_lists_the_known_ones() -> None:
    with pytest.raises(LookupError, match=r"'M99'; known: M1 \(announce\), M2 \(unique id\)"):
        suite(["M1", "M99"])


def test_an_empty_claim_is_refused() -> None:
    with pytest.raises(LookupError):
        suite([""])


def test_a_claim_may_carry_words_and_counts_once() -> None:
    assert list(suite(["M2 unique id", "M2"]).verdicts()) == ["M2"]


def test_only_what_is_claimed_is_judged() -> None:
    checks = judge("ring(8,1){1,2}\np1: o1 d1 d1\nend{1,2}", "M1", "fifo")
    assert checks.violations == []
    assert set(checks.verdicts()) == {"M1", "fifo"}


def test_an_explanation_names_nodes_messages_and_times() -> None:
    story = "ring(8,1){1,2}\np1: o1 d1\np2: o2 d2\nend"
    (violation,) = judge(story, "D9").violations
    assert violation.nodes == (1, 2)
    assert violation.messages == ("(8,1):1.0", "(8,1):2.0")
    assert "(8,1):1.0 at processor 1" in violation.explanation
    assert "(8,1):2.0 at processor 2" in violation.explanation
    assert str(violation.t_us) in violation.explanation


def test_a_violation_is_seen_at_its_event_and_reported_once() -> None:
    checks = suite(["D2"])
    seen = []
    for event in parse("ring(8,1){1,2}\np1: o1 d1 d1 d1\nend"):
        checks.feed(event)
        seen.append(len(checks.violations))
    assert seen[-4:] == [0, 1, 1, 1]
    assert checks.verdicts() == {"D2": Verdict.INVALID}


@pytest.mark.parametrize("crashes", [False, True])
def test_causal_order_where_a_place_is_known_before_the_sender_knows_it(crashes: bool) -> None:
    """b answers a; processor 3 delivers b first, and neither sender has heard of its place yet, or
    ever does."""
    ring, members = ViewId(8, 1), (1, 2, 3)

    def told(node: int, seq: int, sender: int) -> Delivered:
        return Delivered(node, 0, 9, ring, ring, seq, sender, Level.AGREED, 1, (sender,))

    checks = suite(["causal"])
    for node in members:
        checks.feed(Installed(node, 0, 0, ring, members, False, ring, 0, None, None))
    checks.feed(Submit(1, 0, 1, 1, 1, Level.AGREED, (1,), (1,)))
    checks.feed(told(2, 2, sender=1))
    checks.feed(Submit(2, 0, 2, 1, 1, Level.AGREED, (1,), (2,)))
    if crashes:
        checks.feed(Crashed(2, 0, 3))
    checks.feed(told(3, 3, sender=2))
    assert not checks.violations
    checks.feed(told(3, 2, sender=1))
    assert [violation.nodes for violation in checks.violations] == [(3, 2)]


OVERTAKEN = "ring(8,1){1,2}\np1: sub3 o1=3 o2x2=1 d1 d2\np2: d1 d2\nend{1,2}"


def test_a_message_that_overtakes_in_the_queue_of_its_sender() -> None:
    (violation,) = judge(OVERTAKEN).violations
    assert (violation.property, violation.nodes) == ("content", (1,))
    assert violation.messages == ("(8,1):1.0",)
    assert "not what was submitted under the number" in violation.explanation
    assert violation.explanation.endswith("these contents: 3.")


def test_multicast_names_who_told_a_place_first_as_well() -> None:
    """A higher level than was asked for is right by itself, so either may be wrong."""
    checks = suite(["multicast"])
    for event in parse("ring(8,1){1,2,3}\np1: sub{2,3}\np2: d1<1#1\np3: d1<1#1\nend{1,2,3}"):
        if isinstance(event, Noted) and event.node == 2 and (told := DeliveredTo.read(event)):
            raised = replace(told, level=Level.SAFE)
            checks.feed(raised.noted(event.node, event.n, event.t_us))
        else:
            checks.feed(event)
    (violation,) = checks.violations
    assert violation.nodes == (2, 3)


def test_multicast_names_who_told_another_place_of_a_message_as_well() -> None:
    story = "ring(8,1){1,2,3}\np1: sub{2,3}\np2: d1<1#1\np3: d2<1#1\nend{1,2,3}"
    (violation,) = judge(story, "multicast").violations
    assert (violation.nodes, violation.messages) == ((2, 3), ("(8,1):2.0",))


def test_a_message_that_nobody_submitted_between_two_that_were() -> None:
    """That a later one was submitted does not tell that this one was."""
    checks = suite(["integrity", "validity"])
    for event in parse("ring(8,1){1,2}\np1: sub3 o1 o2 o3 d1-3\np2: d1-3\nend{1,2}"):
        if isinstance(event, Submit):
            checks.feed(replace(event, sizes=(8,), digests=()))
            checks.feed(replace(event, sizes=(8,), digests=(), first=3))
        else:
            checks.feed(event)
    (violation,) = checks.violations
    assert (violation.property, violation.messages) == ("integrity", ("(8,1):2.0",))
    assert "number 2 of processor 1, which had not submitted it" in violation.explanation


def test_a_message_delivered_before_it_is_submitted_is_delivered() -> None:
    """Integrity speaks of it; nothing is owed."""
    checks = suite(["integrity", "validity"])
    events = list(parse("ring(8,1){1,2}\np1: sub1 o1 d1\np2: d1\nend{1,2}"))
    late = [e for e in events if isinstance(e, Submit)]
    for event in [e for e in events[:-1] if e not in late] + late + events[-1:]:
        checks.feed(event)
    assert checks.verdicts() == {"integrity": Verdict.INVALID, "validity": Verdict.VALID}


def test_contents_that_were_not_recorded_are_not_compared() -> None:
    checks = suite(["fifo"])
    for event in parse(OVERTAKEN):
        checks.feed(replace(event, digests=()) if isinstance(event, Submit) else event)
    assert checks.verdicts() == {"fifo": Verdict.VALID}


def test_content_without_what_to_compare_with_is_unknown() -> None:
    checks = suite(["content"])
    for event in parse("ring(8,1){1}\np1: o1 d1\nend{1}"):
        checks.feed(replace(event, digests=()) if isinstance(event, Submit) else event)
    assert checks.verdicts() == {"content": Verdict.UNKNOWN}


def test_a_report_of_very_many_messages_takes_no_time() -> None:
    story = "ring(8,1){1}\np1: o1 d1 unc2-999999999999999999 unc1-999999999999999999\nend{1}"
    assert judge(story, "accounted").verdicts() == {"accounted": Verdict.INVALID}


def test_a_new_incarnation_has_an_empty_queue() -> None:
    story = "p1: reg(4,1){1} sub2 o1 d1 down up reg(8,1){1} o1x2 d1\nend{1}"
    assert judge(story, "fifo").verdicts() == {"fifo": Verdict.VALID}


@pytest.mark.parametrize(
    ("again", "verdict"),
    [("p1: reg(8,1){1,2}", Verdict.VALID), ("p2:", Verdict.INVALID)],
    ids=["itself", "another"],
)
def test_who_makes_a_step_twice_is_not_compared_with_itself(again: str, verdict: Verdict) -> None:
    """M2 tells that it was in one configuration twice."""
    story = (
        "ring(8,1){1,2}\np1: o1 d1 tr(10,1){1,2} reg(12,1){1,2}"
        f"\n{again} tr(10,1){{1,2}}\nend"
    )
    assert judge(story, "D6").verdicts() == {"D6": verdict}


def test_what_was_delivered_before_its_ring_was_installed_was_not_delivered_in_it() -> None:
    """D5 tells that it was too early; what is sent in the ring does not follow it there."""
    story = "p1: reg(8,1){1,2} o1\np2: reg(4,2){2} {}reg(8,1){1,2} {}o2\np1: d2\nend"
    early = story.replace("{}", "d1@(8,1) ", 1).replace("{}", "")
    within = story.replace("{}", "", 1).replace("{}", "d1 ")
    assert judge(early, "D7").verdicts() == {"D7": Verdict.VALID}
    assert judge(within, "D7").verdicts() == {"D7": Verdict.INVALID}


def test_a_gap_in_a_ring_that_was_left_leaves_nothing_open() -> None:
    """D5 tells of what is delivered there later; no note of a transitional configuration comes."""
    story = "ring(8,1){1,2}\np1: o1-3 d1 tr(10,1){1} {}reg(12,1){1} {}\nend"
    within, after = story.replace("{}", "d3 ", 1), story.replace("{}", "", 1)
    assert judge(within.replace("{}", ""), "D13").verdicts() == {"D13": Verdict.UNKNOWN}
    assert judge(after.replace("{}", "d3@(8,1)"), "D13").verdicts() == {"D13": Verdict.VALID}


STAYS = "ring(8,1){1,2,3}\np1: o1 d1\np3: down\np1: +900 tr(10,1){1,2} +5000\nend"


def test_without_a_bound_staying_behind_is_open() -> None:
    assert judge(STAYS, "M5").verdicts() == {"M5": Verdict.UNKNOWN}


def test_within_the_bound_all_leave_a_ring_that_has_ceased() -> None:
    (violation,) = judge(STAYS, "M5", bound_us=3000).violations
    assert violation.nodes[0] == 2
    assert judge(STAYS, "M5", bound_us=10_000).violations == []


@pytest.mark.parametrize(
    ("fault", "late"),
    [
        (Faulted(0, 1, 3000, "heal"), False),  # in time, and the end comes within the bound
        (Faulted(0, 1, 5000, "heal"), True),  # 2 should have left before
        (Faulted(2, 1, 1000, "pause"), False),
        (Faulted(1, 1, 1000, "pause"), True),
    ],
)
def test_the_bound_counts_from_the_last_fault_and_not_for_the_paused(
    fault: Faulted, late: bool
) -> None:
    checks = suite(["M5"], 3000)
    for event in parse(STAYS):
        if isinstance(event, Ended):
            checks.feed(fault)
        checks.feed(event)
    assert bool(checks.violations) == late


def long_run(frames: int) -> str:
    turn = "p1: o{0}s d{0}\np2: d{0}\np3: d{0}\n"
    return "ring(8,1){1,2,3}\n" + "".join(turn.format(seq) for seq in range(1, frames + 1))


def test_a_running_ring_is_trimmed_behind_the_slowest() -> None:
    checks = judge(long_run(3 * TRIM_EVERY + 5) + "end{1,2,3}")
    (ring,) = checks.history.rings.values()
    assert len(ring.frames) <= TRIM_EVERY + 5
    assert len(ring.marks["D10"][ring.view].made) <= TRIM_EVERY + 5
    assert len(ring.marks["D9"][ring.view].order) <= TRIM_EVERY + 5
    assert checks.violations == []
    assert set(checks.verdicts().values()) == {Verdict.VALID}


@pytest.mark.parametrize(
    ("word", "broken"),
    [
        ("p2: d7", {"D2", "D9", "D12", "D12-graph", "integrity"}),
        ("p2: o7", {"D1", "D1-own"}),
        ("p1: o9000 d9000\np2: d9000~", {"D1", "content"}),
    ],
)
def test_what_was_trimmed_still_counts(word: str, broken: set[str]) -> None:
    checks = judge(long_run(2 * TRIM_EVERY + 5) + word + "\nend")
    assert {violation.property for violation in checks.violations} == broken


def test_what_waits_is_remembered_and_nothing_else() -> None:
    (content,) = judge("p1: reg(4,1){1} o1-5000 d1-4990", "content").properties
    assert isinstance(content, Content)
    assert len(content._senders[1][1].submitted) == 10


def test_lives_that_no_event_can_be_about_are_forgotten() -> None:
    """In a ring that is not over, a life of long ago still counts."""
    often = " sub1 down up" * 40
    for story, kept in (("p1: reg(4,1){1}", {40}), ("ring(8,1){1,2}\np1: o1", {1, 40})):
        content, integrity = judge(story + often, "content", "integrity").properties
        assert isinstance(content, Content) and isinstance(integrity, Integrity)
        assert set(content._senders[1]) == set(integrity._own[1]) == kept
    checks = judge("ring(8,1){1,2}\np1: o1" + often + "\np2: d1~\nend", "content", "integrity")
    assert checks.verdicts()["integrity"] is Verdict.VALID
    assert checks.verdicts()["content"] is Verdict.INVALID


def test_a_crash_that_is_not_in_the_trace_ends_what_was_owed() -> None:
    story = """
ring(8,1){1,2}
p1: o1 sub1
p2: o2
p1: down up reg(12,1){1} o1 d1
end{1}
"""
    told = judge(story).verdicts()
    checks = suite(COMMON)
    for event in parse(story):
        if not isinstance(event, Crashed):
            checks.feed(event)
    assert checks.verdicts() == told
    assert told["D3"] is Verdict.UNKNOWN and told["validity"] is Verdict.UNKNOWN
    assert not checks.violations


def test_rings_and_configurations_that_are_over_are_forgotten() -> None:
    story = "".join(f"ring({seq},1){{1,2}}\np1: o1 d1\np2: d1\n" for seq in range(8, 12_000, 4))
    checks = judge(story + "end{1,2}", *(tag for tag in COMMON if tag != "D12-graph"))
    assert checks.violations == []
    assert len(checks.history.rings) == 1
    assert len(checks.history.first_conf) <= 2048
    assert all(not node.waiting for node in checks.history.nodes.values())


def test_whoever_is_only_named_as_a_sender_is_no_processor() -> None:
    """Nobody has to deliver anything there."""
    checks = suite(("agreement", "uniform-agreement", "causal"))
    for event in parse("ring(8,1){1,2}\np1: o1 d1\np2: d1\nend"):
        if isinstance(event, Originated | Delivered):
            event = replace(event, sender=5)
        checks.feed(event)
    assert set(checks.verdicts().values()) == {Verdict.VALID}
    assert 5 not in checks.history.nodes


def test_a_message_is_of_the_life_of_whom_a_delivery_names() -> None:
    """2 has started again, so that its messages are of its second life; those of 1 are not."""
    checks = suite(("fifo", "integrity"))
    story = "ring(8,1){1,2}\np2: down up\nring(12,1){1,2}\np1: o1 d1\np2: o2 d2\np1: d2\nend"
    for event in parse(story):
        if isinstance(event, Delivered) and (event.node, event.seq) == (1, 2):
            event = replace(event, sender=1)
        checks.feed(event)
    texts = {breach.property: breach.explanation for breach in checks.violations}
    assert "number 1 of processor 1 for the second time" in texts["integrity"]
    assert "processor 1's incarnation 1" in texts["fifo"]


def test_a_ring_knows_the_life_in_which_a_member_installed_it() -> None:
    """Another member may have installed it before this one started."""
    checks = suite(("validity", "integrity"))
    story = "p1: reg(8,1){1,2}\np2: reg(8,1){1,2} o1 d1\np1: d1\nend{1,2}"
    for event in parse(story):
        if isinstance(event, Restarted | Submit) and event.node == 2:
            event = replace(event, incarnation=2)
        checks.feed(event)
    assert set(checks.verdicts().values()) == {Verdict.VALID}

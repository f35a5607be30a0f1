"""TOTAL, from one view to the next (dossier 2.7, 2.8): FL-1 to FL-6, TL-22, TL-30, quorum (G-5)."""

from __future__ import annotations

import pytest
from total import Group, bodies, delivered, drops, sent

from ringcast.blocks.channel import Arrived, Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.flush import Report
from ringcast.core.effects import Deliver, Effect, InstallView, Uncertain, Up
from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.protocols.total import SHEET, Config
from ringcast.protocols.total.messages import Bcast, CumSeqAck, NewViewAck, Request
from ringcast.protocols.total.state import Phase, Timer

VIEW = ViewId(8, 1)


def told(effects: list[Effect]) -> list[object]:
    """What the application saw: bodies, and views with a ``T`` or ``R``."""
    seen: list[object] = []
    for effect in effects:
        if isinstance(effect, Deliver):
            seen += effect.batch.bodies
        elif isinstance(effect, InstallView):
            seen.append(("T" if effect.transitional else "R", effect.members))
    return seen


def uncertain(effects: list[Effect]) -> list[tuple[int, int]]:
    return [(e.first, e.count) for e in effects if isinstance(e, Uncertain)]


def held(
    group: Group, node: int, *numbers: int, origin: int = 1, level: Level = Level.AGREED
) -> None:
    """The member has received these numbers, each with a body of its own."""
    for seq in numbers:
        group.receive(node, group.bcast(seq, origin, body=b"%d" % seq, level=level), 1)


def ended(group: Group, *gone: int) -> Group:
    """These leave, and the others go on to the next view; only what happens there is logged."""
    for log in group.log.values():
        log.clear()
    group.lose()
    group.gone(*gone)
    group.settle()
    return group


# --- the flush --------------------------------------------------------------------------------


def test_fl_1_who_is_blocked_numbers_requests_and_receives_nothing() -> None:
    group = Group(3).together()
    group.submit(2, b"asked")
    group.lose()
    group.gone(3)
    assert group[1].phase is Phase.BLOCKED
    assert group[1].view == VIEW
    effects = group.receive(1, group.request(1), 2)
    assert drops(effects) == ["a frame of a view that is ending"]
    group.run(lambda: group[2].phase is Phase.BLOCKED)
    assert drops(group.receive(2, group.bcast(1), 1)) == ["a frame of a view that is ending"]
    assert group[2].numbers.got == 0
    assert sent(group.submit(2, b"more"), Request) == []
    assert drops(group.fire(2, Timer.REQUEST)) == ["a timer of a view that is ending"]


def test_fl_1_it_says_what_it_holds() -> None:
    group = Group(3).together()
    held(group, 3, 1, 2, 4, 5, 9)
    group.receive(3, group.bcast(10, stable=2), 1)
    group.lose()
    group.gone(1)
    group.run(lambda: group[3].phase is Phase.BLOCKED)
    reports = [p.payload for p in sent(group.log[3], Packet) if isinstance(p.payload, Report)]
    holding = reports[-1].holding
    assert (holding.first, holding.got, holding.stable) == (1, 2, 2)
    assert holding.above == ((4, 5), (9, 10))


def test_fl_3_all_deliver_through_the_cut_in_the_old_view() -> None:
    group = Group(3).together()
    held(group, 2, 1, 2, 3, 4, 5)
    held(group, 3, 1, 2, 3, 5)
    ended(group, 1)
    assert told(group.log[2]) == [("T", (2, 3)), ("R", (2, 3))]
    assert told(group.log[3]) == [b"4", b"5", ("T", (2, 3)), ("R", (2, 3))]


def test_fl_3_what_lies_above_the_cut_is_lost_to_all() -> None:
    group = Group(3).together()
    held(group, 2, 1, 3)
    held(group, 3, 1, 4)
    ended(group, 1)
    assert delivered(group.log[2]) == delivered(group.log[3]) == []
    assert group[2].numbers.first == 4  # and no number of theirs is taken again: 1 to 3 were seen


def test_fl_3_safe_messages_not_known_to_be_held_by_all_come_in_the_transitional_view() -> None:
    group = Group(3).together()
    for node in (2, 3):
        held(group, node, 1, level=Level.SAFE)
        held(group, node, 2)
    ended(group, 1)
    for node in (2, 3):
        assert told(group.log[node]) == [("T", (2, 3)), b"1", b"2", ("R", (2, 3))]


def test_fl_3_what_one_survivor_knows_to_be_stable_all_deliver_in_the_old_view() -> None:
    group = Group(3).together()
    for node in (2, 3):
        held(group, node, 1, level=Level.SAFE)
    group.receive(2, group.bcast(2, level=Level.SAFE, stable=1, body=b"2"), 1)
    ended(group, 1)
    assert told(group.log[3]) == [b"1", ("T", (2, 3)), b"2", ("R", (2, 3))]
    assert told(group.log[2]) == [("T", (2, 3)), b"2", ("R", (2, 3))]


def test_fl_3_the_position_of_the_change_is_the_last_number_delivered_before_it() -> None:
    group = Group(3).together()
    for node in (2, 3):
        held(group, node, 1, 2)
        held(group, node, 3, level=Level.SAFE)
    ended(group, 1)
    changes = [e for e in group.log[2] if isinstance(e, InstallView)]
    assert [(e.view, e.ring, e.seq, e.conf_id) for e in changes] == [
        (ViewId(10, 2), VIEW, 2, ViewId(10, 2)),
        (ViewId(12, 2), ViewId(12, 2), 0, ViewId(10, 2)),
    ]


def test_fl_4_a_delivered_prefix_is_never_undone() -> None:
    """Attempt after attempt, whoever is lost: the cut never falls below what was delivered."""
    group = Group(4).together()
    held(group, 4, 1, 2, 3)
    held(group, 3, 1)
    group.lose()
    group.gone(1)
    group.run(lambda: group[4].phase is Phase.BLOCKED)
    group.lose()
    group.gone(2)
    group.settle()
    assert bodies(group.log[3]) == [b"1", b"2", b"3"]
    assert bodies(group.log[4]) == [b"1", b"2", b"3"]


def test_fl_3_a_message_of_another_view_does_not_fill_a_hole() -> None:
    group = Group(3).together()
    group.gone(1)
    group.run(lambda: group[3].phase is Phase.BLOCKED)
    group[3].hear(group.envs[3], _arrived(group.bcast(1, view=ViewId(4, 1))))
    assert drops(group.envs[3].take()) == ["a message of a view that is over"]


def test_fl_3_nor_does_one_that_no_member_can_have_made() -> None:
    """Its number would be seen, and none would be left for the views to come (A2, TL-4)."""
    group = Group(3).together()
    group.gone(1)
    group.run(lambda: group[3].phase is Phase.BLOCKED)
    group[3].hear(group.envs[3], _arrived(group.bcast(LIMIT)))
    assert drops(group.envs[3].take()) == ["malformed frame"]
    assert group[3].numbers.top == 0


def _arrived(bcast: Bcast) -> Up:
    return Up(Arrived(2, 1, bcast))


# --- requests in flight -----------------------------------------------------------------------


def test_tl_30_what_was_not_delivered_is_requested_again_in_order_before_new_ones() -> None:
    group = Group(3).together()
    for body in (b"a", b"b"):
        group.submit(3, body)
    group.lose()
    group.gone(1)
    group.submit(3, b"c")
    group.settle()
    assert bodies(group.log[3]) == bodies(group.log[2]) == [b"a", b"b", b"c"]


def test_tl_30_the_new_sequencer_numbers_its_own_again() -> None:
    group = Group(3).together()
    for body in (b"a", b"b"):
        group.submit(2, body)
    group.lose()
    group.gone(1)
    group.settle()
    assert bodies(group.log[3]) == [b"a", b"b"]
    assert group[2].snapshot()["pending"] == 0


def test_tl_30_what_the_flush_delivers_is_not_requested_again() -> None:
    group = Group(3).together()
    group.submit(2, b"z")
    held(group, 3, 1, origin=2)
    ended(group, 1)
    assert [b.batch.sender for b in group.log[2] if isinstance(b, Deliver)] == [2]
    assert bodies(group.log[2]) == [b"1"]
    assert sent(group.log[2], Request) == []
    assert group[2].snapshot()["pending"] == 0


def test_tl_30_a_large_message_that_is_not_whole_begins_anew() -> None:
    group = Group(3, max_packet=600).together()
    body = bytes(range(256)) * 8
    group.submit(2, body)
    first = next(f for _, f in group.unicasts if isinstance(f.message, Request))
    group.unicasts.clear()
    group.handle(1, first)  # its first part has a number
    group.settle()
    assert group[2].kept == 1
    group.gone(1)
    group.settle()
    assert bodies(group.log[2]) == bodies(group.log[3]) == [body]


def test_tl_22_who_carries_requests_along_is_settled_when_they_are_delivered() -> None:
    group = Group(3).together()
    group.submit(3, b"a")
    group.lose()
    group.gone(1)
    group.run(lambda: group[3].view == ViewId(12, 2))
    assert not group[3].snapshot()["settled"]
    assert not group[2].group.open
    group.settle()
    assert group[3].snapshot()["settled"]
    assert group[2].group.open


# --- prefix mode ------------------------------------------------------------------------------


def test_tl_30_in_prefix_mode_it_is_uncertain_and_not_sent_again() -> None:
    group = Group(3, mode="prefix").together()
    group.submit(3, b"a", b"b")
    group.submit(3, b"c")
    ended(group, 1)
    assert uncertain(group.log[3]) == [(1, 2), (3, 1)]
    assert bodies(group.log[3]) == []
    assert group[3].snapshot()["pending"] == 0
    group.submit(3, b"new")
    group.settle()
    assert bodies(group.log[2]) == [b"new"]


def test_fl_1_in_prefix_mode_there_is_no_flush() -> None:
    group = Group(3, mode="prefix").together()
    held(group, 2, 1, 2)
    held(group, 3, 2)
    ended(group, 1)
    assert told(group.log[3]) == [("T", (2, 3)), ("R", (2, 3))]  # number 2 is cleared
    assert not [p for p in sent(group.log[3], Packet) if isinstance(p.payload, Report)]


def test_tl_30_a_message_half_cut_up_is_sent_whole_again_in_prefix_mode() -> None:
    group = Group(3, mode="prefix", max_packet=600, request_window=2).together()
    body = bytes(range(256)) * 8
    group.submit(3, body)
    ended(group, 1)
    assert uncertain(group.log[3]) == []
    assert bodies(group.log[2]) == bodies(group.log[3]) == [body]


# --- a primary part ---------------------------------------------------------------------------


def test_g_5_a_part_without_a_quorum_does_not_deliver() -> None:
    group = Group(3, quorum=2).together()
    group.submit(3, b"asked")
    ended(group, 1, 2)
    assert told(group.log[3]) == [("T", (3,)), ("R", (3,))]
    assert uncertain(group.log[3]) == [(1, 1)]
    assert bodies(group.submit(3, b"kept back")) == []
    assert group[3].snapshot()["queued"] == 1


def test_g_5_numbers_are_given_when_a_quorum_has_installed_the_view() -> None:
    group = Group(3, quorum=2)
    for node in group.ids:
        group.start(node)
    group.submit(1, b"a")
    group.settle()
    group.fire(1, group.timer(1, "membership merge"))
    group.run(lambda: group[1].view == VIEW)
    assert group[1].snapshot()["assigned"] == 0
    effects = group.receive(1, NewViewAck(VIEW), 2)
    assert bodies(effects) == [b"a"]


@pytest.mark.parametrize(("quorum", "claimed"), [(0, True), (2, False)])
def test_g_5_with_a_quorum_not_all_that_is_submitted_is_delivered(
    quorum: int, claimed: bool
) -> None:
    assert ("validity" in SHEET.claims(Config(quorum=quorum))) is claimed


def test_fl_6_the_excluded_learns_it_and_comes_back() -> None:
    group = Group(3).together()
    group.lose()
    later = ViewId(20, 1)
    for node in (1, 2):
        group.receive(3, Heartbeat(later), node)
    assert group[3].view.rep == 3
    assert group[3].members == (3,)
    assert group[3].snapshot()["settled"]  # so it is announced, and can be taken in


def test_tl_27_acknowledged_and_delivered_it_is_not_needed_for_a_flush() -> None:
    group = Group(3).together()
    group.submit(1, b"x")
    group.settle()
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 1), node)
    assert group[1].snapshot()["stored"] == 0
    ended(group, 3)
    assert told(group.log[1]) == [("T", (1, 2)), ("R", (1, 2))]

"""TOTAL, normal operation (dossier 2.5): TL-10 to TL-16, and the window TL-28."""

from __future__ import annotations

import msgspec
import pytest
from total import Group, bodies, broadcasts, delivered, drops, sent, unicasts

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, Deliver, Effect, Originate, Stop, Up
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import Leaving, Submitted
from ringcast.protocols.total import Config, member
from ringcast.protocols.total.messages import (
    Bcast,
    CumSeqAck,
    NewViewAck,
    Request,
    Resend,
    SeqAck,
    Unicast,
)
from ringcast.protocols.total.state import Timer

VIEW = ViewId(8, 1)


def numbers(effects: list[Effect]) -> list[tuple[int, int, int]]:
    """What was numbered: number, origin, request."""
    return [(b.seq, b.origin, b.request) for b in broadcasts(effects, Bcast)]


def test_tl_10_a_member_asks_the_sequencer_and_nobody_else() -> None:
    group = Group(3).together()
    effects = group.submit(2, b"a", b"b")
    ((to, request),) = unicasts(effects, Request)
    assert (to, request.request, request.lowest) == (1, 1, 1)
    assert request.contents == Contents(1, (b"a", b"b"))
    assert not any(isinstance(e, Broadcast) for e in effects)


def test_tl_10_the_sequencer_takes_the_short_cut() -> None:
    group = Group(3).together()
    effects = group.submit(1, b"a")
    assert not sent(effects, Request)
    assert numbers(effects) == [(1, 1, 1)]
    assert bodies(effects) == [b"a"]


def test_tl_10_no_more_requests_are_under_way_than_the_window_allows() -> None:
    group = Group(3, request_window=2).together()
    assert len(sent(group.submit(2, b"a"), Request)) == 1
    assert len(sent(group.submit(2, b"b"), Request)) == 1
    assert sent(group.submit(2, b"c"), Request) == []
    assert sent(group.submit(2, b"d"), Request) == []
    effects = group.receive(2, group.bcast(1, origin=2, request=1), 1)
    ((_, request),) = unicasts(effects, Request)
    assert request.contents.bodies == (b"c", b"d")  # what waited leaves together
    assert (request.request, request.lowest) == (3, 2)


def test_tl_10_requests_that_waited_leave_when_half_of_the_window_is_free() -> None:
    """One at a time they would cost a system call each."""
    group = Group(3, request_window=4, packing=False).together()
    assert len(sent(group.submit(2, *(b"abcdefgh"[i : i + 1] for i in range(8))), Request)) == 4
    effects = group.receive(2, group.bcast(1, origin=2, request=1), 1)
    assert unicasts(effects, Request) == []
    effects = group.receive(2, group.bcast(2, origin=2, request=2), 1)
    assert [request.request for _, request in unicasts(effects, Request)] == [5, 6]


def test_tl_11_a_number_that_is_here_is_discarded() -> None:
    group = Group(3).together()
    assert delivered(group.receive(3, group.bcast(1), 1)) == [1]
    for seq in (1, 3, 3):
        effects = group.receive(3, group.bcast(seq), 1)
        assert delivered(effects) == []
    assert drops(effects) == ["a number that is here, or too far ahead"]


def test_tl_12_what_became_deliverable_goes_up_in_order() -> None:
    group = Group(3).together()
    found = [delivered(group.receive(3, group.bcast(seq), 1)) for seq in (1, 4, 2, 5, 3)]
    assert found == [[1], [], [2], [], [3, 4, 5]]
    assert group[3].snapshot()["queue"] == ()


def test_tl_12_many_messages_of_a_frame_go_up_together() -> None:
    group = Group(3).together()
    contents = Contents(4, (b"a", b"b", b"c"))
    effects = group.receive(3, group.bcast(1, origin=2, contents=contents), 1)
    ((batch,),) = [[e.batch for e in effects if isinstance(e, Deliver)]]
    assert (batch.sender, batch.first, batch.bodies) == (2, 4, (b"a", b"b", b"c"))


def test_tl_13_a_request_gets_the_next_number_and_goes_to_all() -> None:
    group = Group(3).together()
    effects = group.receive(1, group.request(1, body=b"a"), 2)
    assert numbers(effects) == [(1, 2, 1)]
    assert bodies(effects) == [b"a"]  # without relying on loop-back
    (originated,) = [e.batch for e in effects if isinstance(e, Originate)]
    assert (originated.sender, originated.seq) == (2, 1)
    assert [type(e) for e in effects if isinstance(e, Originate | Broadcast | Deliver)] == [
        Originate,
        Broadcast,
        Deliver,
    ]


def test_tl_13_a_request_that_has_its_number_gets_no_other() -> None:
    group = Group(3).together()
    group.receive(1, group.request(1), 2)
    effects = group.receive(1, group.request(1), 2)
    assert numbers(effects) == []
    ((to, again),) = unicasts(effects, Bcast)
    assert (to, again.seq, again.request) == (2, 1, 1)


def test_tl_13_one_that_all_have_is_done_with() -> None:
    group = Group(3).together()
    group.receive(1, group.request(1), 2)
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 1), node)
    effects = group.receive(1, group.request(1), 2)
    assert drops(effects) == ["a REQUEST that is done with, or waits for its number"]
    assert sent(effects, Bcast) == []


def test_tl_13_a_copy_of_its_own_number_is_acknowledged_by_who_cannot_deliver_it_yet() -> None:
    """TL-13 ext: number 1 is missing, so CUM_SEQ_ACK could not tell that 2 is there."""
    group = Group(3).together()
    group.submit(2, b"a")
    again = group.bcast(2, origin=2, request=1)
    assert sent(group.receive(2, again, 1), SeqAck) == []
    assert unicasts(group.receive(2, again, 1), SeqAck) == [(1, SeqAck(VIEW, 2))]
    assert sent(group.receive(3, again, 1), SeqAck) == []
    assert sent(group.receive(3, again, 1), SeqAck) == []  # it asked for nothing


@pytest.mark.parametrize("ack", [SeqAck(VIEW, 1), CumSeqAck(VIEW, 1)])
def test_tl_13_a_request_whose_number_its_origin_has_needs_no_answer(ack: msgspec.Struct) -> None:
    group = Group(3).together()
    group.receive(1, group.request(1), 2)
    group.receive(1, group.request(2), 2)
    group.receive(1, ack, 2)
    assert sent(group.receive(1, group.request(1), 2), Bcast) == []
    assert len(sent(group.receive(1, group.request(2), 2), Bcast)) == 1


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_tl_13_a_seq_ack_tells_something_new_of_a_number_that_exists(seq: int) -> None:
    group = Group(3).together()
    for request in (1, 2):
        group.receive(1, group.request(request), 2)
    group.receive(1, SeqAck(VIEW, 1), 2)
    effects = group.receive(1, SeqAck(VIEW, seq), 2)
    assert drops(effects) == ["a SEQ_ACK that is old, or ahead of the numbers"]


def test_tl_14_requests_of_one_origin_are_numbered_in_their_order() -> None:
    group = Group(3).together()
    assert numbers(group.receive(1, group.request(2), 2)) == []
    assert numbers(group.receive(1, group.request(4), 2)) == []
    assert numbers(group.receive(1, group.request(1), 2)) == [(1, 2, 1), (2, 2, 2)]
    assert numbers(group.receive(1, group.request(3), 2)) == [(3, 2, 3), (4, 2, 4)]


def test_tl_14_they_begin_with_the_lowest_that_the_origin_names() -> None:
    group = Group(3).together()
    assert numbers(group.receive(1, group.request(8, lowest=7), 2)) == []
    assert numbers(group.receive(1, group.request(7, lowest=7), 2)) == [(1, 2, 7), (2, 2, 8)]


@pytest.mark.parametrize(("asked", "request_number"), [(0, 1), (2, 2)])
def test_tl_14_a_message_of_mine_out_of_turn_is_a_defect(asked: int, request_number: int) -> None:
    group = Group(3).together()
    for _ in range(asked):
        group.submit(2, b"x")
    effects = group.receive(2, group.bcast(1, origin=2, request=request_number), 1)
    assert [e.reason[:16] for e in effects if isinstance(e, Stop)] == ["broken invariant"]


def test_tl_14_requests_before_their_turn_are_bounded() -> None:
    group = Group(3, request_window=2).together()
    for number in (5, 4, 3, 2):
        group.receive(1, group.request(number), 2)
    assert numbers(group.receive(1, group.request(1), 2)) == [(1, 2, 1)]


def test_tl_15_a_request_is_repeated_until_it_is_delivered() -> None:
    group = Group(3).together()
    group.submit(2, b"a")
    waits = []
    for _ in range(7):
        waits.append(group.timers[2][Timer.REQUEST] - group.now_us)
        group.now_us = group.timers[2][Timer.REQUEST]
        ((to, request),) = unicasts(group.fire(2, Timer.REQUEST), Request)
        assert (to, request.request) == (1, 1)
    step = group.config.request_us
    assert waits == [step, 2 * step, 4 * step, 8 * step, 16 * step, 500_000, 500_000]
    group.receive(2, group.bcast(1, origin=2, request=1), 1)
    assert group.fire(2, Timer.REQUEST) == []
    assert Timer.REQUEST not in group.timers[2]


def test_tl_15_progress_puts_the_repetition_off() -> None:
    group = Group(3).together()
    group.submit(2, b"a")
    group.submit(2, b"b")
    group.now_us += group.config.request_us - 1_000
    group.receive(2, group.bcast(1, origin=2, request=1), 1)
    group.now_us += 1_000
    assert sent(group.fire(2, Timer.REQUEST), Request) == []
    assert group.timers[2][Timer.REQUEST] == group.now_us + group.config.request_us - 1_000


def test_tl_15_the_oldest_requests_are_repeated() -> None:
    group = Group(3).together()
    for _ in range(9):
        group.submit(2, b"x")
    group.now_us = group.timers[2][Timer.REQUEST]
    repeated = sent(group.fire(2, Timer.REQUEST), Request)
    assert [request.request for request in repeated] == list(range(1, member.REPEATED + 1))


@pytest.mark.parametrize(
    "frame",
    [
        Request(VIEW, 1, 1, Level.AGREED, Contents(1, (b"x",))),
        Resend(VIEW, (1,)),
        CumSeqAck(VIEW, 1),
        SeqAck(VIEW, 1),
        NewViewAck(VIEW),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_tl_16_who_is_not_the_sequencer_does_none_of_its_work(frame: msgspec.Struct) -> None:
    group = Group(3).together()
    (reason,) = drops(group.receive(3, frame, 2))
    assert reason.endswith("to one that is not the sequencer")


def test_tl_16_point_to_point_is_passed_up_untouched() -> None:
    group = Group(3).together()
    env = group.envs[2]
    member.unicast(group[2], env, 3, b"hello")
    ((to, frame),) = unicasts(env.take(), Unicast)
    assert to == 3
    effects = group.receive(3, frame, 2)
    assert [e.what for e in effects if isinstance(e, Up)] == [Unicast(VIEW, b"hello")]
    assert group[3].numbers.got == 0


# --- submissions ------------------------------------------------------------------------------


def test_tl_28_no_number_is_given_while_the_window_is_full() -> None:
    group = Group(3, window_size=2).together()
    for number in (1, 2, 3):
        group.receive(1, group.request(number), 2)
    assert group[1].snapshot()["assigned"] == 2
    assert group[1].snapshot()["waiting"] == 1
    group.receive(1, CumSeqAck(VIEW, 1), 2)
    effects = group.receive(1, CumSeqAck(VIEW, 1), 3)
    assert numbers(effects) == [(3, 2, 3)]


def test_tl_28_ext_a_member_has_its_window_waiting_and_no_more() -> None:
    """20,000 requests of one member waited, with 1.1 GiB; what is refused is asked for again."""
    group = Group(3, window_size=2, request_window=4).together()
    office = group[1].office
    assert office is not None
    for number in range(1, 40):
        group.receive(1, group.request(number), 2)
    assert (group[1].snapshot()["assigned"], len(office.waiting), len(office.early[2])) == (2, 4, 4)
    said = drops(group.receive(1, group.request(7), 2))
    assert said == ["a REQUEST of a member that has its window waiting"]
    group.receive(1, group.request(1), 3)
    assert len(office.waiting) == 5, "another member has its own"
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 2), node)
    group.receive(1, group.request(7), 2)
    assert office.expected[2] == 12, "it goes on where it was refused, with what came early"


def test_tl_28_own_messages_wait_with_the_others_in_order() -> None:
    group = Group(2, window_size=1).together()
    assert numbers(group.submit(1, b"a")) == [(1, 1, 1)]
    group.receive(1, group.request(1), 2)
    group.submit(1, b"b")
    assert numbers(group.receive(1, CumSeqAck(VIEW, 1), 2)) == [(2, 2, 1)]
    assert numbers(group.receive(1, CumSeqAck(VIEW, 2), 2)) == [(3, 1, 2)]


def test_tl_28_submissions_over_the_bounds_are_refused() -> None:
    group = Group(3, max_queue=3, min_queue=1, request_window=1, max_message=100).together()
    assert drops(group.submit(2, b"x" * 101)) == ["a submission over the bounds"]
    for _ in range(4):
        assert group[2].ready
        group.submit(2, b"x")
    assert not group[2].ready
    assert drops(group.submit(2, b"x")) == ["a submission over the bounds"]


def test_a_large_message_takes_several_numbers_and_goes_up_whole() -> None:
    group = Group(2, max_packet=600).together()
    body = bytes(range(256)) * 8
    group.submit(2, body)
    group.settle()
    assert bodies(group.log[1]) == bodies(group.log[2]) == [body]
    assigned = group[1].snapshot()["assigned"]
    assert isinstance(assigned, int) and assigned > 3
    assert group[2].snapshot()["pending"] == 0


def test_who_leaves_says_so_and_a_sequencer_sends_what_some_may_lack() -> None:
    group = Group(3).together()
    group.submit(1, b"a")
    group.receive(1, CumSeqAck(VIEW, 1), 2)
    group.submit(1, b"b")
    effects = group.handle(1, Leaving())
    assert [b.seq for b in broadcasts(effects, Bcast)] == [1, 2]
    assert type(effects[-1]).__name__ == "Stop"


def test_submissions_are_taken_in_every_phase() -> None:
    group = Group(3).together()
    group.gone(1)
    assert group[2].snapshot()["phase"] == "Blocked"
    effects = group.handle(2, Submitted((b"later",), Level.AGREED))
    assert sent(effects, Request) == []
    group.settle()
    assert bodies(group.log[3]) == [b"later"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"quorum": -1}, "quorum = -1 must be within 0..100"),
        ({"quorum": 101}, "quorum = 101 must be within 0..100"),
        ({"request_window": 10**9}, "request_window = 1000000000 must be within 1..4096"),
        ({"window_size": 4097}, "window_size = 4097 must be within 1..4096"),
        ({"queue_size": 0}, "queue_size = 0 must be within 1..32768"),
        ({"join_us": -1}, "join_us = -1 must not be negative"),
        ({"ack_us": 0}, "ack_us = 0 must be positive"),
        ({"beat_us": 200_000}, "beat_us = 200000 must be half suspect_us at most"),
        ({"suspect_max_us": 1}, "suspect_max_us = 1 must not be below suspect_us"),
        ({"max_packet": 100}, "max_packet = 100 leaves no room"),
        ({"max_queue_bytes": 1}, "must hold at least one message"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Config(**settings)  # type: ignore[arg-type]

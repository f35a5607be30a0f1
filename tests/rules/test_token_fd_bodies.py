"""token-fd: ids in the token, bodies apart (TF-30, TF-32, TF-33, TF-41)."""

from __future__ import annotations

import msgspec
from driver import drops, set_timers
from fd import Group, bodies_sent, tokens, told

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, Effect, Send
from ringcast.core.ids import Level
from ringcast.protocols.token_fd.messages import Body, Fetch
from ringcast.protocols.token_fd.state import Timer


def fetches(effects: list[Effect]) -> dict[int, tuple[int, ...]]:
    return {
        e.to: e.message.wanted
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Fetch)
    }


def test_tf_32_bodies_are_broadcast_at_once_and_packed() -> None:
    group = Group(3).up(2)
    (body,) = bodies_sent(group.submit(2, b"a", b"b"))
    assert (body.origin, body.number, body.contents.bodies) == (1, 1, (b"a", b"b"))
    (body,) = bodies_sent(group.submit(2, b"c"))
    assert (body.number, body.contents.first) == (2, 3)


def test_tf_32_no_more_than_each_time_are_under_way() -> None:
    group = Group(3, each_time=2, packing=False).up(2, 3)
    assert len(bodies_sent(group.submit(2, b"a", b"b", b"c"))) == 2
    token = group.token(0, adeliv=(1, 1))
    effects = group.receive(2, token, src=1)
    assert told(effects) == [b"a"]
    assert [body.contents.bodies for body in bodies_sent(effects)] == [(b"c",)]
    kinds = [type(e) for e in effects if isinstance(e, Broadcast | Send)]
    assert kinds.index(Broadcast) < kinds.index(Send), "bodies first, then the token of them"


def test_tf_32_a_large_message_goes_in_pieces() -> None:
    group = Group(3, max_packet=200, each_time=40).up()
    large = bytes(range(256)) * 4
    pieces = bodies_sent(group.submit(1, large))
    assert len(pieces) > 5
    assert not pieces[0].contents.last and pieces[-1].contents.last
    group.quiet()
    group.until_hop(6)
    assert told(group.log[2]) == [large]


def test_tf_38_a_body_larger_than_any_of_the_group_is_not_kept() -> None:
    """What is kept is counted in frames of max_packet: larger ones took 2.1 GiB instead of 64 MiB,
    and a token brought them too."""
    group = Group(3, max_packet=600).up(2)
    large = msgspec.structs.replace(group.body(2, 1), contents=Contents(1, (bytes(601),)))
    many = msgspec.structs.replace(group.body(2, 1), contents=Contents(1, (b"",) * 601))
    token = msgspec.structs.replace(group.token(0), bodies=(large,))
    for frame, src in ((large, 3), (many, 3), (token, 1)):
        assert drops(group.receive(2, frame, src=src)) == ["a body larger than max_packet"]
    assert group[2].frames == [{}, {}, {}]
    group.receive(2, group.body(2, 1), src=3)
    assert list(group[2].frames[2]) == [1]


def test_tf_32_an_id_is_proposed_only_with_f_plus_1_known_holders() -> None:
    group = Group(7).up(4)
    held = {(1, 1): 1, (2, 1): 1}
    (sent,) = tokens(group.receive(4, group.token(2, held=held), src=3)).values()
    assert sent.proposal == (), "two holders, and f is 2"
    group.receive(4, group.body(1, 1), src=2)
    (sent,) = tokens(group.receive(4, group.token(9, held=held), src=3)).values()
    assert sent.proposal == (1, 1), "now we hold it too"
    assert sent.held[3 * 7 + 1] == 1


def test_tf_32_who_broadcasts_a_body_holds_it() -> None:
    group = Group(3).up(2)
    group.receive(2, group.body(2, 1), src=3)
    (sent,) = tokens(group.receive(2, group.token(0), src=1)).values()
    assert sent.proposal == (2, 1)


def test_tf_32_voting_needs_no_body_delivering_does_and_keeps_the_order() -> None:
    group = Group(3).up(3)
    group.receive(3, group.body(1, 1, b"b"), src=2)
    effects = group.receive(3, group.token(1, (0, 1, 1, 1), votes=1), src=2)
    (sent,) = tokens(effects).values()
    assert sent.adeliv == (0, 1, 1, 1), "decided"
    assert told(effects) == [], "but its first body is missing"
    assert sent.known == (0, 0, 0)
    assert told(group.receive(3, group.body(0, 1, b"a"), src=1)) == [b"a", b"b"]


def test_tf_33_nobody_takes_anything_out_of_a_proposal() -> None:
    """It may be decided already, by a member that the token passed across a gap."""
    group = Group(7).up(4)
    (sent,) = tokens(group.receive(4, group.token(2, (0, 3, 5, 1), 1), src=3)).values()
    assert (sent.proposal, sent.votes) == ((0, 3, 5, 1), 2)


def test_tf_30_a_hole_keeps_later_messages_of_the_same_sender_waiting() -> None:
    group = Group(3).up(2)
    group.receive(2, group.body(2, 2), src=3)
    (sent,) = tokens(group.receive(2, group.token(0), src=1)).values()
    assert sent.proposal == ()
    group.receive(2, group.body(2, 1), src=3)
    (sent,) = tokens(group.receive(2, group.token(3), src=1)).values()
    assert sent.proposal == (2, 2)


def test_tf_41_what_others_hold_and_does_not_come_is_fetched() -> None:
    group = Group(3, fetch_us=9).up(2)
    effects = group.receive(2, group.token(0, held={(2, 2): 3, (0, 2): 3}), src=1)
    assert not fetches(effects), "it may be on its way"
    assert set_timers(effects)[Timer.FETCH] == 9
    group.receive(2, group.body(2, 2), src=3)
    first = fetches(group.fire(2, Timer.FETCH))
    second = fetches(group.fire(2, Timer.FETCH))
    assert first | second == {1: (2, 1, 1, 2, 3, 3), 3: (2, 1, 1, 2, 3, 3)}
    assert len(first) == len(second) == 1, "somebody else each time"
    group.receive(2, group.body(2, 1), src=3)
    group.receive(2, group.body(2, 3), src=1)
    assert Timer.FETCH in group.timers[2]
    assert not fetches(group.fire(2, Timer.FETCH))
    assert Timer.FETCH not in group.timers[2]


def test_tf_41_holders_answer_with_what_they_have() -> None:
    group = Group(3).up(2)
    for number in (1, 2, 4):
        group.receive(2, group.body(2, number), src=3)
    effects = group.receive(2, Fetch(group.config.group, (2, 1, 4, 0, 1, 9)), src=1)
    sent = [(e.to, e.message.number) for e in effects if isinstance(e, Send)]  # type: ignore[attr-defined]
    assert sent == [(1, 1), (1, 2), (1, 4)]


def test_tf_41_a_request_for_everything_there_might_be_costs_no_more_than_any_other() -> None:
    class Looked(dict[int, Body]):
        times = 0

        def get(self, number: int, default: object = None) -> None:  # type: ignore[override]
            self.times += 1

    group = Group(3, each_time=2).up(2)
    group[2].frames[0] = looked = Looked()
    group.receive(2, Fetch(group.config.group, (0, 1, 2**62) * 4096), src=1)
    assert looked.times == 6


def test_tf_41_an_answer_that_completes_a_request_makes_the_next_one() -> None:
    group = Group(3, each_time=2).up(2)
    group.receive(2, group.token(0, held={(2, 2): 5}), src=1)
    assert fetches(group.fire(2, Timer.FETCH)) == {3: (2, 1, 2)}
    assert not fetches(group.receive(2, group.body(2, 1), src=3))
    assert fetches(group.receive(2, group.body(2, 2), src=3)) == {3: (2, 3, 4)}


def test_tf_41_what_went_down_with_its_sender_is_asked_for_less_and_less() -> None:
    group = Group(3, fetch_us=10).up(2)
    group.receive(2, group.token(0, held={(2, 2): 1}), src=1)
    waits = []
    for _ in range(30):
        effects = group.fire(2, Timer.FETCH)
        assert fetches(effects) == {3: (2, 1, 1)}
        waits.append(set_timers(effects)[Timer.FETCH])
    assert waits[0] == 10 and waits[-1] == 640 and waits == sorted(waits)
    token = group.token(3, held={(2, 2): 1, (0, 0): 1})
    effects = group.receive(2, token, src=1)
    assert set_timers(effects)[Timer.FETCH] == 10, "something else is missing now"


def test_tf_41_a_frame_nobody_has_does_not_keep_others_waiting() -> None:
    """Found by a swarm: the room of one request was used up by what nobody could give."""
    group = Group(4, each_time=1).up(2)
    held = {(0, 0): 1, (2, 2): 1, (3, 2): 1}
    group.receive(2, group.token(0, held=held), src=1)
    wanted = fetches(group.fire(2, Timer.FETCH)).values()
    assert {place for triples in wanted for place in triples[::3]} == {0, 2}


def test_a_number_far_beyond_what_is_decided_is_not_kept() -> None:
    """All that may be kept of three members together is what the history may take."""
    group = Group(3, each_time=2, history_bytes=1460 * 30).up(2)
    group.receive(2, group.body(2, 11), src=3)
    assert group[2].snapshot()["kept"] == 0
    group.receive(2, group.body(2, 10), src=3)
    assert group[2].snapshot()["kept"] == 1


def test_levels_are_told_as_asked_for_and_served_alike() -> None:
    group = Group(3).up()
    group.submit(1, b"s", level=Level.SAFE)
    group.submit(1, b"a")
    group.quiet()
    group.until_hop(5)
    batches = [e.batch for e in group.log[2] if hasattr(e, "batch")]
    assert [(b.level, b.bodies) for b in batches] == [
        (Level.SAFE, (b"s",)),
        (Level.AGREED, (b"a",)),
    ]

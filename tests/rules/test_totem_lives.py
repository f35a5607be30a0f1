"""Who may send what: tokens of the predecessor, frames of members' present lives, ring numbers.

Rules R20, R32, R48, R55 and R59 with what goes beyond the text, and G38.
"""

from __future__ import annotations

import pytest
from driver import (
    Bench,
    Phase,
    Timer,
    deliveries,
    drops,
    entry,
    only,
    only_dropped,
    sent,
)
from msgspec.structs import replace

from ringcast.core.effects import Deliver, Effect, Note, Persist
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Message, Received
from ringcast.protocols.totem_single.messages import (
    LAST,
    REACH,
    Announce,
    CommitToken,
    Encapsulated,
    Join,
    Leave,
    Token,
)
from ringcast.protocols.totem_single.state import ANOTHER_LIFE
from ringcast.protocols.totem_single.tokens import NOT_PASSED

OLD, NEW = ViewId(8, 1), ViewId(12, 1)
NOW, BEFORE = 1, 7
"""The boots of the lives that signed, and of another one."""


def forming(phase: Phase, node: NodeId = 2) -> Bench:
    """Ring (8,1) of three that re-forms as (12,1), with ``node`` in ``phase``."""
    bench = Bench().to_ring()
    bench.lose()
    if phase is Phase.OPERATIONAL:
        return bench
    bench.to_gather()
    if phase is not Phase.GATHER:
        bench.to_phase(node, phase)
    bench.lose()
    return bench


def hear(bench: Bench, node: NodeId, message: Message, src: NodeId, boot: int) -> list[Effect]:
    return bench.handle(node, Received(src, boot, message))


# --- the token ------------------------------------------------------------------------------


@pytest.mark.parametrize(("src", "boot"), [(3, NOW), (9, NOW), (1, BEFORE)])
def test_r20_ext_only_the_predecessor_passes_the_token(src: NodeId, boot: int) -> None:
    """A copy of the token that is sent to a third member made two tokens, and one number stood
    for two messages."""
    bench = forming(Phase.OPERATIONAL)
    bench.submit(2, b"a")
    token = bench.token(2)
    effects = hear(bench, 2, token, src, boot)
    assert drops(effects) == [NOT_PASSED] and only_dropped(effects)
    assert sent(hear(bench, 2, token, 1, NOW), Token)
    assert bench.envs[2].dropped[NOT_PASSED] == 1


def test_r20_ext_in_recover_too() -> None:
    bench = forming(Phase.RECOVER)
    token = Token(NEW, bench[2].token.my_token_seq + 1, 0, 0, None, (), 0, False)
    assert drops(hear(bench, 2, token, 3, NOW)) == [NOT_PASSED]
    assert drops(hear(bench, 2, token, 1, BEFORE)) == [NOT_PASSED]
    assert sent(hear(bench, 2, token, 1, NOW), Token)


def test_r20_ext_copies_of_tokens_change_nothing() -> None:
    """Every token is copied to everybody: the ring orders as it does without."""
    bench = Bench(packing=False).to_ring()
    for node in bench.ids:
        bench.submit(node, *(b"%d %d" % (node, k) for k in range(20)))
    for _ in range(40):
        bench.quiet()
        to, frame = bench.unicasts[0]
        for third in set(bench.ids) - {to, frame.src}:
            bench.handle(third, frame)
        bench.step()
    told = [
        [(d.batch.seq, d.batch.sender, d.batch.bodies) for d in only(bench.log[n], Deliver)]
        for n in bench.ids
    ]
    assert len(told[0]) == 60 and told[0] == told[1] == told[2]


@pytest.mark.parametrize(("src", "boot"), [(3, NOW), (1, BEFORE)])
def test_r48_ext_the_first_commit_token_comes_from_who_signed_before_me(
    src: NodeId, boot: int
) -> None:
    bench = Bench().to_ring().to_gather(2)
    bench.lose()
    token = CommitToken(NEW, 0, (1, 2, 3), (entry(),))
    assert drops(hear(bench, 2, token, src, boot)) == [NOT_PASSED]
    assert bench[2].phase is Phase.GATHER
    hear(bench, 2, token, 1, NOW)
    assert bench.phase(2) is Phase.COMMIT


@pytest.mark.parametrize(("src", "boot"), [(3, NOW), (1, BEFORE)])
def test_r55_ext_and_the_second_one_too(src: NodeId, boot: int) -> None:
    bench = forming(Phase.COMMIT)
    mine = bench[2].recovery.my_signature
    assert mine is not None
    token = CommitToken(NEW, 2, (1, 2, 3), (entry(), mine, entry()))
    assert drops(hear(bench, 2, token, src, boot)) == [NOT_PASSED]
    hear(bench, 2, token, 1, NOW)
    assert bench[2].phase is Phase.RECOVER


@pytest.mark.parametrize(("src", "boot"), [(2, NOW), (3, BEFORE)])
def test_r59_ext_at_the_representative_it_comes_from_the_last_member(
    src: NodeId, boot: int
) -> None:
    bench = forming(Phase.RECOVER, node=1)
    mine = bench[1].recovery.my_signature
    assert mine is not None
    token = CommitToken(NEW, bench[1].token.my_token_seq + 2, (1, 2, 3), (mine, entry(), entry()))
    assert drops(hear(bench, 1, token, src, boot)) == [NOT_PASSED]
    assert sent(hear(bench, 1, token, 3, NOW), Token)


# --- other lives ----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.OPERATIONAL, Phase.GATHER, Phase.COMMIT])
def test_g38_ext_a_message_of_another_life_is_none_of_the_ring(phase: Phase) -> None:
    """When all lose their storage a second ring has the name of the first, and late frames of
    the first life were taken for messages of the second."""
    bench = forming(phase)
    assert drops(hear(bench, 2, bench.message(1, ring=OLD), 3, BEFORE)) == [ANOTHER_LIFE]
    assert not bench[2].old.store
    hear(bench, 2, bench.message(1, ring=OLD), 3, NOW)
    assert bench[2].old.store.keys() == {1}


def test_g38_ext_nor_one_on_the_ring_being_formed() -> None:
    bench = forming(Phase.RECOVER)
    message = bench.message(1, ring=NEW)
    wrapped = Encapsulated(NEW, 2, bench.message(1, ring=OLD), 2)
    for frame in (message, wrapped):
        assert drops(hear(bench, 2, frame, 3, BEFORE)) == [ANOTHER_LIFE]
    assert not bench[2].new.store and not bench[2].old.store
    for frame in (message, wrapped):
        hear(bench, 2, frame, 3, NOW)
    assert bench[2].new.store.keys() == {1, 2} and bench[2].old.store.keys() == {1}


def test_g38_ext_nor_what_else_names_the_ring() -> None:
    bench = forming(Phase.OPERATIONAL)
    wrapped = Encapsulated(OLD, 1, bench.message(1, ring=ViewId(4, 1)), 2)
    for frame in (wrapped, Announce(OLD, 3, (1, 2, 3), calls=True), Leave(OLD, 3)):
        assert drops(hear(bench, 2, frame, 3, BEFORE)) == [ANOTHER_LIFE]
    assert bench[2].phase is Phase.OPERATIONAL
    hear(bench, 2, Leave(OLD, 3), 3, NOW)
    assert bench[2].gather.my_fail_set == {3}


def test_g38_ext_all_lose_their_storage_and_the_ring_has_its_name_again() -> None:
    """A message of the first life is on its way for as long as all restart."""
    bench = Bench().to_ring()
    late = Received(3, bench.boots[3], bench.message(1, body=b"of the first life"))
    bench.lose()
    for node in bench.ids:
        bench.crash(node)
        bench.stable[node] = {}
    bench.to_ring()
    assert bench[2].my_ring_id == OLD
    assert not deliveries(bench.handle(2, late))
    bench.submit(1, b"of the second")
    bench.rotate(2)
    assert [d.batch.bodies for d in only(bench.log[2], Deliver)] == [(b"of the second",)]


# --- ring numbers ---------------------------------------------------------------------------


def test_r32_ext_one_join_raises_the_ring_number_by_no_more_than_its_reach() -> None:
    """One Join with the last number there is was stored, and no ring formed any more."""
    bench = forming(Phase.OPERATIONAL)
    effects = bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=LAST), src=3)
    assert bench[2].gather.max_ring_seq == 8 + REACH
    notes = [note for note in only(effects, Note) if note.what == "reach"]
    assert [note.members for note in notes] == [(3,)]
    assert bench.envs[2].dropped["a part of a ring number that is out of reach"] == 1


def test_r32_ext_after_it_rings_form_as_ever() -> None:
    bench = Bench().to_ring()
    for attempt in (1, 2, 3):
        for node in bench.ids:
            bench.receive(node, bench.join(9, (node, 9), (node,), ring_seq=LAST), src=9)
        bench.to_gather()
        bench.until_operational()
        assert bench[1].my_memb == (1, 2, 3)
        assert bench[1].my_ring_id.seq == 8 + attempt * (REACH + 4)


def test_r32_ext_a_member_that_was_away_for_long_catches_up_by_joins() -> None:
    """Numbers that are out of reach are believed bit by bit, not never."""
    bench = Bench()
    bench.stable[1] = bench.stable[2] = {"ring_seq": 3 * REACH}
    for node in bench.ids:
        bench.start(node)
    for _ in range(8):
        bench.quiet()
        if bench[3].phase is Phase.OPERATIONAL:
            break
        for node in bench.ids:
            if Timer.JOIN in bench.timers[node]:
                bench.fire(node, Timer.JOIN)
        while bench.unicasts or bench.broadcasts:
            bench.step()
            if bench.phase(3) is Phase.OPERATIONAL:
                break
    assert bench[3].my_memb == (1, 2, 3)


def test_r32_ext_nor_does_a_commit_token() -> None:
    bench = Bench().to_ring().to_gather(2)
    bench.lose()
    far = ViewId(LAST, 1)
    token = CommitToken(far, 0, (1, 2, 3), (entry(),))
    assert drops(bench.receive(2, token, src=1)) == ["a Commit token that does not fit"]
    near = replace(token, ring_id=ViewId(8 + REACH, 1))
    assert only(bench.receive(2, near, src=1), Persist) == [Persist("ring_seq", 8 + REACH)]


def test_r32_ext_small_steps_are_not_noted() -> None:
    bench = forming(Phase.OPERATIONAL)
    effects = bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=8 + REACH), src=3)
    assert "reach" not in [note.what for note in only(effects, Note)]
    assert bench[2].gather.max_ring_seq == 8 + REACH
    assert sent(effects, Join)

"""Outbox and Assembler: whatever is put in comes out once, in order, whatever the frames."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.blocks.packing import GIVEN_UP, MOST_SENDERS, Assembler, Contents, Outbox
from ringcast.core.ids import Level

MIB = 2**20
bodies = st.lists(st.tuples(st.binary(max_size=300), st.sampled_from(Level)), max_size=25)
budgets = st.integers(16, 200)


def outbox(packing: bool = True, high: int = 10_000) -> Outbox[Level]:
    return Outbox(high, high // 2, 64 * MIB, packing)


def drain(box: Outbox[Level], budget: int) -> list[tuple[Level, Contents, tuple[bytes, ...]]]:
    frames = []
    while (frame := box.take(budget)) is not None:
        frames.append(frame)
    return frames


@given(bodies, budgets, st.booleans())
def test_everything_comes_out_once_and_in_order(
    messages: list[tuple[bytes, Level]], budget: int, packing: bool
) -> None:
    box = outbox(packing)
    for body, level in messages:
        box.put((body,), level)
    frames = drain(box, budget)
    assembler = Assembler(MIB)
    out: list[tuple[bytes, Level]] = []
    numbers: list[int] = []
    for level, contents, whole in frames:
        assert contents.wire_bytes() - 12 <= budget
        assert len(msgspec.msgpack.encode(contents)) <= contents.wire_bytes() + 8
        got = assembler.add(7, contents)
        assert (got or ()) == whole
        numbers += range(contents.first, contents.first + len(whole))
        out += [(body, level) for body in whole]
    assert out == messages
    assert numbers == list(range(1, len(messages) + 1))
    assert len(box) == 0 and assembler.dropped == 0


@given(bodies, budgets, st.integers(0, 30), budgets)
def test_a_rewind_sends_a_cut_message_again_whole(
    messages: list[tuple[bytes, Level]], budget: int, before: int, later: int
) -> None:
    """R99: at a change of ring the receivers forget pieces, and frames may have another size."""
    box = outbox()
    for body, level in messages:
        box.put((body,), level)
    out: list[bytes] = []
    for _ in range(before):
        if (frame := box.take(budget)) is not None:
            out += frame[2]
    box.rewind()
    assembler = Assembler(MIB)
    for _, contents, _ in drain(box, later):
        out += assembler.add(7, contents) or ()
    assert out == [body for body, _ in messages]


@given(bodies, budgets)
def test_frames_are_as_full_as_order_and_level_allow(
    messages: list[tuple[bytes, Level]], budget: int
) -> None:
    """R96: two whole-message frames in a row would not have fit into one, or differ in level."""
    box = outbox()
    for body, level in messages:
        box.put((body,), level)
    frames = drain(box, budget)
    for (level, one, _), (next_level, two, _) in itertools.pairwise(frames):
        if level is next_level and one.last and one.part == 0 and two.last and two.part == 0:
            first = Contents(1, two.bodies[:1]).wire_bytes() - 12
            assert one.wire_bytes() - 12 + first > budget


def test_sixteen_mebibytes() -> None:
    body = bytes(range(256)) * (16 * MIB // 256)
    box = outbox()
    box.put((body,), Level.SAFE)
    assembler = Assembler(16 * MIB)
    frames = drain(box, 1360)
    results = [assembler.add(1, contents) for _, contents, _ in frames]
    assert results[:-1] == [None] * (len(frames) - 1)
    assert results[-1] == (body,)
    assert len(frames) == -(-len(body) // 1355)


def test_a_message_over_the_bound_is_given_up_with_all_its_pieces() -> None:
    """And something stands in its place, so that readers get to know."""
    assembler = Assembler(10)
    pieces = [Contents(1, (bytes(4),), part, part == 3) for part in range(4)]
    assert [assembler.add(1, piece) for piece in pieces] == [None, None, (GIVEN_UP,), None]
    assert assembler.dropped
    assert assembler.add(1, Contents(2, (b"next",))) == (b"next",)


@pytest.mark.parametrize(
    "pieces",
    [
        [(1, False), (2, True)],  # the first is missing
        [(0, False), (2, True)],  # one in between is missing
        [(0, False), (0, False), (2, True)],  # begun again, then a hole
    ],
)
def test_a_message_with_a_missing_piece_is_dropped_whole(pieces: list[tuple[int, bool]]) -> None:
    """R73, R99."""
    assembler = Assembler(MIB)
    for part, last in pieces:
        assert assembler.add(1, Contents(1, (b"x",), part, last)) is None
    assert assembler.dropped


def test_senders_do_not_mix() -> None:
    assembler = Assembler(MIB)
    for sender in (1, 2):
        assert assembler.add(sender, Contents(1, (b"%d" % sender,), 0, False)) is None
    for sender in (1, 2):
        assert assembler.add(sender, Contents(1, (b"!",), 1, True)) == (b"%d!" % sender,)


def test_pieces_of_different_messages_are_never_joined() -> None:
    """R99: the number of the message counts, not only that of the piece."""
    assembler = Assembler(MIB)
    for part in range(2):
        assert assembler.add(1, Contents(7, (b"A",), part, False)) is None
    assert assembler.add(1, Contents(8, (b"B",), 2, True)) is None
    assert assembler.dropped and assembler.held == 0
    assert assembler.add(1, Contents(7, (b"A",), 2, True)) is None  # its beginning is gone too


def test_whole_messages_end_an_assembly() -> None:
    assembler = Assembler(MIB)
    assembler.add(1, Contents(1, (b"a",), 0, False))
    assert assembler.add(1, Contents(1, (b"b",))) == (b"b",)
    assert assembler.add(1, Contents(1, (b"c",), 1, True)) is None


def test_marks_of_back_pressure() -> None:
    """R79: refuse at the upper mark, accept again at the lower one."""
    box: Outbox[Level] = Outbox(high=4, low=2, max_bytes=1000, packing=False)
    box.put((b"a",) * 4, Level.AGREED)
    assert not box.ready
    box.take(100)
    assert not box.ready
    box.take(100)
    assert box.ready
    box.put((b"b",), Level.AGREED)
    assert box.ready  # three, below the upper mark


def test_bytes_are_bounded_too() -> None:
    box: Outbox[Level] = Outbox(high=100, low=50, max_bytes=1000)
    box.put((bytes(1000),), Level.AGREED)
    assert not box.ready
    drain(box, 100)
    assert box.ready


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans()), max_size=60))
def test_memory_is_bounded_whatever_arrives(pieces: list[tuple[int, int, bool]]) -> None:
    assembler = Assembler(64)
    for sender, part, last in pieces:
        assembler.add(sender, Contents(1, (bytes(16),), part, last))
        assert assembler.held <= 3 * 64


def test_senders_are_bounded() -> None:
    assembler = Assembler(64)
    for sender in range(1, MOST_SENDERS + 2):
        assembler.add(sender, Contents(1, (b"x",), 0, False))
    assert assembler.held == MOST_SENDERS and assembler.dropped == 1
    assert assembler.add(1, Contents(1, (b"y",), 1, True)) == (b"xy",)


@given(
    st.lists(st.binary(min_size=40, max_size=200), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_nothing_within_max_message_is_dropped(large: list[bytes], random: Random) -> None:
    """However the pieces of different senders interleave: the bound is the sender's alone."""
    assembler = Assembler(200)
    boxes = {sender: outbox() for sender in range(1, len(large) + 1)}
    for sender, box in boxes.items():
        box.put((large[sender - 1],), Level.AGREED)
    got: dict[int, tuple[bytes, ...]] = {}
    while boxes:
        sender = random.choice(sorted(boxes))
        if (frame := boxes[sender].take(32)) is None:
            del boxes[sender]
        elif (whole := assembler.add(sender, frame[1])) is not None:
            got[sender] = whole
        assert assembler.held <= len(large) * 200
    assert got == {at: (body,) for at, body in enumerate(large, start=1)}
    assert assembler.dropped == 0


def leaving(box: Outbox[Level], budget: int) -> list[bytes]:
    """What leaves, message by message."""
    return [body for _, _, whole in drain(box, budget) for body in whole]


def test_what_goes_first_leaves_ahead_of_the_rest_and_in_its_order() -> None:
    box = outbox()
    box.put((b"a", b"b"), Level.AGREED)
    box.put_first(b"x", Level.SAFE)
    box.put_first(b"y" * 50, Level.SAFE)
    assert box.size == 53 and not box.delays_first
    assert box.take(30) is not None, "x"
    assert box.take(30) is not None, "a piece of y"
    box.put_first(b"z", Level.SAFE)
    assert not box.delays_first, "what is being cut goes first as well"
    assert leaving(box, 30) == [b"y" * 50, b"z", b"a", b"b"] and box.size == 0
    box.put((b"c",), Level.AGREED)
    box.put_first(b"w", Level.AGREED)
    assert leaving(box, 30) == [b"w", b"c"], "in one frame"


@pytest.mark.parametrize("again", [False, True])
def test_what_goes_first_waits_for_a_message_that_was_begun(again: bool) -> None:
    """Pieces come without a gap or not at all. One that begins anew gives way."""
    box, large = outbox(), b"l" * 50
    box.put((large, b"a"), Level.AGREED)
    assert box.take(30) is not None
    assert not box.delays_first
    box.put_first(b"x", Level.SAFE)
    box.put_first(b"y", Level.SAFE)
    assert box.delays_first
    if again:
        box.rewind()
        assert not box.delays_first
    assert leaving(box, 30) == ([b"x", b"y", large, b"a"] if again else [large, b"x", b"y", b"a"])
    assert not box.delays_first

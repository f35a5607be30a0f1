"""Totem's frames on the wire: round trips, sizes, and bytes that are no frame."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.blocks.packing import Contents
from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.protocols.totem_single.messages import (
    ENCAPSULATION_BYTES,
    HEADER_BYTES,
    MAX_MEMBERS,
    Announce,
    CommitToken,
    Encapsulated,
    Entry,
    Frame,
    Hearing,
    Join,
    Regular,
    Token,
    ascending,
    malformed,
)

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Frame)

ids = st.integers(1, 2**32 - 1)
seqs = st.integers(0, LIMIT)
rings = st.builds(ViewId, seqs, ids)
id_sets = st.sets(ids, max_size=6).map(lambda s: tuple(sorted(s)))
contents = st.builds(
    Contents,
    seqs,
    st.lists(st.binary(max_size=40), max_size=5).map(tuple),
    st.integers(0, 2**31),
    st.booleans(),
)
regulars = st.builds(Regular, ids, rings, seqs, st.sampled_from(Level), contents)
entries = st.builds(
    Entry, rings, st.integers(0, 2**32 - 1), seqs, st.booleans(), seqs, st.none() | rings, seqs
)
rides = st.none() | st.binary(max_size=40)
tuples_of = st.lists
frames = st.one_of(
    regulars,
    st.builds(Encapsulated, rings, seqs, regulars, st.integers(0, MAX_MEMBERS - 1)),
    st.builds(
        Token,
        rings,
        seqs,
        seqs,
        seqs,
        st.none() | ids,
        tuples_of(seqs, max_size=6).map(tuple),
        seqs,
        st.booleans(),
        rides,
    ),
    st.builds(
        Join,
        ids,
        seqs,
        id_sets,
        id_sets,
        seqs,
        seqs,
        tuples_of(st.builds(Hearing, ids, seqs, seqs, id_sets), max_size=3).map(tuple),
        rides,
    ),
    st.builds(CommitToken, rings, seqs, id_sets, tuples_of(entries, max_size=4).map(tuple), rides),
    st.builds(
        Announce,
        rings,
        ids,
        id_sets,
        id_sets,
        tuples_of(st.tuples(ids, ids), max_size=4).map(tuple),
    ),
)


@given(frames)
def test_every_frame_survives_the_wire(frame: msgspec.Struct) -> None:
    assert DECODER.decode(ENCODER.encode(frame)) == frame


@given(frames, ids)
def test_malformed_answers_with_a_fixed_phrase_or_none(frame: msgspec.Struct, src: int) -> None:
    why = malformed(frame, src)
    assert why is None or why.startswith("malformed ")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_not_a_crash(data: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError):  # ValidationError is one of them
        DECODER.decode(data)


@given(frames, st.integers(0, 2**16), st.integers(0, 255))
def test_a_damaged_frame_is_refused_or_still_well_typed(
    frame: msgspec.Struct, at: int, byte: int
) -> None:
    data = bytearray(ENCODER.encode(frame))
    data[at % len(data)] = byte
    with contextlib.suppress(msgspec.DecodeError):
        again = DECODER.decode(bytes(data))
        assert DECODER.decode(ENCODER.encode(again)) == again


@given(regulars)
def test_sizes_are_not_understated(frame: Regular) -> None:
    """R83: budgets are kept by these numbers; the rest of the header is the wire's own."""
    assert len(ENCODER.encode(frame)) <= frame.wire_bytes()
    outer = Encapsulated(ViewId(LIMIT, 2**32 - 1), LIMIT, frame, MAX_MEMBERS - 1)
    assert len(ENCODER.encode(outer)) <= frame.wire_bytes() + ENCAPSULATION_BYTES
    assert outer.wire_bytes() == frame.wire_bytes() + ENCAPSULATION_BYTES
    assert frame.wire_bytes() >= HEADER_BYTES


RING = ViewId(8, 1)
ONE = Contents(1, (b"x",))
GOOD = Regular(1, RING, 1, Level.AGREED, ONE)
SIGNED = Entry(ViewId(4, 1), 0, 7, False, 5, None, 1)


@pytest.mark.parametrize(
    ("frame", "fine"),
    [
        (GOOD, True),
        (Regular(1, RING, 0, Level.AGREED, ONE), False),
        (Regular(1, RING, 1, Level.AGREED, Contents(1, ())), False),
        (Encapsulated(RING, 1, GOOD, 0), True),
        (Encapsulated(RING, 0, GOOD, 0), False),
        (Encapsulated(RING, 1, Regular(1, RING, 0, Level.AGREED, ONE), 0), False),
        (Token(RING, 1, 5, 5, None, (), 0, False), True),
        (Token(RING, 1, 5, 3, 2, (4, 5), 0, False), True),
        (Token(RING, 1, 5, 6, None, (), 0, False), False),
        (Token(RING, 1, 5, 3, 2, (5, 4), 0, False), False),
        (Token(RING, 1, 5, 3, 2, (4, 4), 0, False), False),
        (Token(RING, 1, 5, 3, 2, (0, 4), 0, False), False),
        (Token(RING, 1, 5, 3, 2, (6,), 0, False), False),
        (Token(RING, LIMIT, 0, 0, None, (), 0, False), False),
        (Join(1, 8, (1, 2), (2,), 0), True),
        (Join(2, 8, (1, 2), (), 0), False),  # another one's
        (Join(1, 8, (2, 3), (), 0), False),  # not a candidate itself
        (Join(1, 8, (1, 2), (1,), 0), False),
        (Join(1, 8, (2, 1), (), 0), False),
        (Join(1, 8, (1, 2, 3), (3, 2), 0), False),
        (Join(1, 8, (1, 2), (3,), 0), False),
        (Join(1, LIMIT, (1, 2), (), 0), False),
        (CommitToken(RING, 0, (1, 2), (SIGNED,)), True),
        (CommitToken(RING, 0, (1, 2), (SIGNED,) * 2), True),
        (CommitToken(RING, 0, (), ()), False),
        (CommitToken(RING, 0, (1, 2), ()), False),
        (CommitToken(RING, 0, (1, 2), (SIGNED,) * 3), False),
        (CommitToken(RING, 0, (2, 1), (SIGNED,)), False),
        (CommitToken(RING, 0, (2, 3), (SIGNED,)), False),  # the representative is not first
        (CommitToken(RING, LIMIT, (1, 2), (SIGNED,)), False),
        (Announce(RING, 1, (1, 2)), True),
        (Announce(RING, 2, (1, 2)), False),
    ],
)
def test_what_makes_a_frame_malformed(frame: msgspec.Struct, fine: bool) -> None:
    """R4: what no correct processor sends, as heard from processor 1."""
    assert (malformed(frame, 1) is None) is fine


def test_a_ring_number_without_room_for_the_next_is_malformed() -> None:
    """G28: signed and stored, it would leave no number for any later ring."""
    assert malformed(CommitToken(ViewId(LIMIT, 1), 0, (1, 2), (SIGNED,)), 1)


@given(st.lists(st.integers(0, 20), max_size=6))
def test_ascending(numbers: list[int]) -> None:
    assert ascending(tuple(numbers)) is (numbers == sorted(set(numbers)))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(ViewId(8, 1), 0, 7, False, 5, None, 1),  # an old ring as new as the new one
        Entry(ViewId(4, 1), 0, 7, False, 8, None, 1),  # more delivered than received
        Entry(ViewId(4, 1), 0, 7, True, 5, ViewId(8, 1), 1),  # received in a ring not yet formed
    ],
)
def test_an_entry_no_correct_processor_signs_makes_a_commit_token_malformed(entry: Entry) -> None:
    """R4: such an entry would make a member look for messages that do not exist."""
    assert malformed(CommitToken(ViewId(8, 1), 0, (1, 2), (entry,)), 1)

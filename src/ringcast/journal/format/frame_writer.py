"""Entries on their way into a frame.

A busy node spends its time here, so nothing is done for a record that can be done for a message,
and the messages themselves are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ringcast.core.ids import NodeId, Position
from ringcast.journal.format.frame import KINDS, OWN, SHARED, Frame, NameTable, value
from ringcast.journal.format.layout import Entry, JournalError, Source
from ringcast.journal.format.message import digest, room, shortest
from ringcast.wire.envelope import MOST_ROWS

Piece = bytes | memoryview

MANY_PIECES = 256
"""More of them are joined before they are written: then a copy costs less than each for itself."""


class FrameContent(NamedTuple):
    """What a frame is made of."""

    section: bytes
    """All but the messages."""
    pieces: Sequence[Piece]
    """The messages."""
    values: list[int]
    """A number for each entry, for the chain."""
    rows: int
    """How many records there are."""
    first: Position
    last: Position
    told: bool = False
    """Whether other nodes told them to one that was away."""


def frame_content(entries: Sequence[Entry]) -> FrameContent:
    """What a node has delivered."""
    groups: dict[str, int] = {}
    members: list[tuple[NodeId, ...]] = []
    sources: list[Source] = []
    table: list[bytes] = []
    values: list[int] = []
    entries = as_short_as_can_be(entries)
    for each in entries:
        first, view, kind, sender, level, group, who, lengths, data, number, time_us, source = each
        note = 0
        if who:
            members.append(who)
            note = len(members)
        elif source:
            if source[2] + len(lengths) > MOST_ROWS:
                raise JournalError(f"row {source[2]} of {source[0]} could not be read back")
            sources.append(source)
            note = len(sources)
        timestamp, ring_seq, ring_rep, seq, index, branch = first
        count = len(lengths)
        shared = SHARED.pack(timestamp, ring_seq, ring_rep, seq, branch, view.seq, view.rep, sender,
                             number, index, count, KINDS.index(kind), level)  # fmt: skip
        table += OWN.pack(time_us, groups.setdefault(group, len(groups)), note, len(data)), shared
        values.append(value(shared, who))
    names = msgspec.msgpack.encode(NameTable(list(groups), members, sources))
    section = b"".join([*table, *(each.lengths for each in entries), names])
    pieces: list[Piece] = [each.data for each in entries]
    if len(pieces) > MANY_PIECES:
        pieces = [b"".join(pieces)]
    rows = sum(len(each.lengths) for each in entries)
    return FrameContent(section, pieces, values, rows, entries[0].first, entries[-1].last)


def as_short_as_can_be(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The same, with messages whose bodies are found by their lengths alone."""
    import numpy as np

    lengths = np.frombuffer(b"".join(each.lengths for each in entries), np.int32)
    counts = np.array([len(each.lengths) for each in entries])
    sizes = [len(each.data) for each in entries]
    wrong = np.flatnonzero(sizes != room([each.group for each in entries], counts, lengths))
    if len(wrong):
        entries = list(entries)
        for at in wrong:
            data = shortest(entries[at].data)
            entries[at] = entries[at]._replace(data=data, digest=digest(data))
    return entries


def content_of(frame: Frame, told: bool) -> FrameContent:
    """The same for entries of another journal."""
    places = (frame.first, frame.last)
    values, rows = frame.values(), len(frame.lengths)
    return FrameContent(frame.section(), [frame.messages], values, rows, *places, told)


# --- the chain -----------------------------------------------------------------------------


def link(before: bytes, values: list[int]) -> bytes:
    """The chain after entries with these numbers: the same at all nodes with the same history.

    It covers all but the time, which is each node's own, and does not depend on how entries were
    put into frames. Each lane is a polynomial in an odd number, modulo 2^64: it tells a record that
    was altered, lost, doubled or moved, by accident and not by malice.
    """
    one, other = (int.from_bytes(before[at : at + 8], "little") for at in (0, 8))
    for each in values:
        one = (one * FACTORS[0] + each) & LANE
        other = (other * FACTORS[1] + each) & LANE
    return one.to_bytes(8, "little") + other.to_bytes(8, "little")


FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
LANE = 2**64 - 1

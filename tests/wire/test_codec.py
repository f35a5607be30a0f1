"""Datagrams: every message goes through, everything else is refused by reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.blocks.packing import Contents
from ringcast.core.ids import Level
from ringcast.protocols.totem_single.machine import MESSAGES
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Entry,
    Hearing,
    Join,
    Leave,
    Regular,
    RingId,
    Token,
)
from ringcast.runtime.discovery import Hello, Place
from ringcast.wire import keys
from ringcast.wire.codec import HEADER, MAGIC, OVERHEAD, VERSION, Codec, Lane
from ringcast.wire.keys import KeyFile

RING = RingId(8, 1)
REGULAR = Regular(1, RING, 7, Level.SAFE, Contents(3, (b"", b"\x00" * 300)))
SAMPLES: list[msgspec.Struct] = [
    REGULAR,
    Encapsulated(RingId(12, 1), 3, REGULAR),
    Token(RING, 2**62, 9, 7, None, (8, 9), 1, True),
    Token(RING, 1, 0, 0, 3, (), 0, False),
    Join(1, 8, (1, 2, 3), (3,), 2, 50, (Hearing(2, 8, 1, (1, 2)),)),
    CommitToken(RING, 0, (1, 2), (Entry(RingId(4, 1), 5, 6, False, 7, None, 2**50),)),
    Announce(RING, 1, (1, 2), (3,), ((3, 1),)),
    Leave(RING, 1),
    Hello((Place(1, 2**50, "::1", 5405), Place(2, 0, "n2.example", 1)), True),
]


def codec(src: int = 1, boot: int = 5, file: KeyFile | None = None) -> Codec:
    return Codec((*MESSAGES, Hello), src, boot, file)


@pytest.fixture(params=["plain", "sealed"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> KeyFile | None:
    if request.param == "plain":
        return None
    keys.write(tmp_path / "k", keys.add({}))
    return KeyFile(tmp_path / "k")


def test_all_messages_are_in_the_samples() -> None:
    assert {type(sample) for sample in SAMPLES} == {*MESSAGES, Hello}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("lane", Lane)
def test_round_trip(sample: msgspec.Struct, lane: Lane, file: KeyFile | None) -> None:
    datagram = codec(1, 5, file).encode(sample, lane)
    assert len(datagram) <= OVERHEAD + len(msgspec.msgpack.encode(sample))
    receiver = codec(2, 1, file)
    assert receiver.decode(datagram) == (1, 5, lane, sample)
    assert receiver.refused == {}


def test_refusals_are_counted_by_reason() -> None:
    good = codec().encode(REGULAR, Lane.BROADCAST)
    receiver = codec(2)
    bad = {
        "too short": [b"", good[: HEADER.size - 1]],
        "not a ringcast frame of this version": [
            HEADER.pack(MAGIC + 1, VERSION << 4, 0, 1, 5, 1) + b"x",
            HEADER.pack(MAGIC, VERSION + 1 << 4, 0, 1, 5, 1) + b"x",
            HEADER.pack(MAGIC, VERSION << 4, 0, 0, 5, 1) + b"x",
        ],
        "sealed, but this node has no key": [HEADER.pack(MAGIC, VERSION << 4, 1, 1, 5, 1)],
        "malformed": [
            good[: HEADER.size],
            good[:-1],
            good + b"x",
            HEADER.pack(MAGIC, VERSION << 4, 0, 1, 5, 1) + msgspec.msgpack.encode([99]),
            HEADER.pack(MAGIC, VERSION << 4, 0, 1, 5, 1) + b"\x91" * 60_000,
            codec().encode(SAMPLES[-1], Lane.BROADCAST).replace(b"::1", b":\xff1"),
        ],
    }
    for datagrams in bad.values():
        assert [receiver.decode(d) for d in datagrams] == [None] * len(datagrams)
    assert receiver.refused == {reason: len(datagrams) for reason, datagrams in bad.items()}


def test_deep_nesting_in_an_ignored_field_is_refused() -> None:
    """Fields beyond the known ones are skipped, which must not be a way to exhaust the stack."""
    known = msgspec.to_builtins(SAMPLES[2])
    head = HEADER.pack(MAGIC, VERSION << 4, 0, 1, 5, 1)
    payload = bytearray(msgspec.msgpack.encode(known))
    payload[0] += 1
    receiver = codec(2)
    assert receiver.decode(head + bytes(payload) + b"\x91" * 50_000 + b"\xc0") is None
    assert receiver.refused == {"malformed": 1}


def test_without_a_key_a_sealed_group_is_closed(tmp_path: Path) -> None:
    keys.write(tmp_path / "k", keys.add({}))
    sealed = codec(2, 1, KeyFile(tmp_path / "k"))
    assert sealed.decode(codec().encode(REGULAR, Lane.UNICAST)) is None
    assert sealed.refused == {"unknown key": 1}


def test_frames_of_our_own_past_are_refused(file: KeyFile | None) -> None:
    """Sent back to us after a restart they must not pass for another user of our id."""
    recorded = codec(1, 5, file).encode(REGULAR, Lane.BROADCAST)
    restarted = codec(1, 6, file)
    assert restarted.decode(recorded) is None
    assert restarted.refused == {"frame of an earlier incarnation": 1}
    impostor = codec(1, 7, file).encode(REGULAR, Lane.BROADCAST)
    assert restarted.decode(impostor) == (1, 7, Lane.BROADCAST, REGULAR)


def test_new_keys_are_used_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "k"
    keys.write(path, keys.add({}))
    file = KeyFile(path)
    sender, receiver = codec(1, 5, file), codec(2, 1, file)
    keys.write(path, keys.retire(keys.promote(keys.add(file.keys))))
    assert file.reload()
    sender.renew_keys()
    receiver.renew_keys()
    assert receiver.decode(sender.encode(REGULAR, Lane.UNICAST)) is not None


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(noise: bytes) -> None:
    receiver = codec(2)
    assert receiver.decode(noise) is None
    receiver.decode(HEADER.pack(MAGIC, VERSION << 4, 0, 1, 5, 1) + noise)


@given(st.sampled_from(SAMPLES), st.integers(0, 400), st.integers(1, 255))
def test_altered_frames_never_raise(sample: msgspec.Struct, at: int, flip: int) -> None:
    datagram = bytearray(codec().encode(sample, Lane.BROADCAST))
    datagram[at % len(datagram)] ^= flip
    codec(2).decode(bytes(datagram))

"""Datagrams: every message goes through, everything else is refused by reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
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
from ringcast.wire import codec as wire_codec
from ringcast.wire import keys, seal
from ringcast.wire.codec import (
    EVERYBODY,
    HEADER,
    MAGIC,
    MOST_OUTLIVED,
    MOST_PEERS,
    MOST_REASONS,
    MOST_SILENT,
    MOST_STRANGERS,
    MOST_UNMET,
    OVERHEAD,
    Codec,
)
from ringcast.wire.keys import KeyFile, KeySet
from ringcast.wire.meeting import Hello, Whereabouts
from ringcast.wire.misfits import MOST as MOST_UNPROVEN
from ringcast.wire.misfits import PATIENCE
from ringcast.wire.seal import TAG_BYTES, VERSION, Medium, Realm, opened, session

RING = RingId(8, 1)
REGULAR = Regular(1, RING, 7, Level.SAFE, Contents(3, (b"", b"\x00" * 300)))
SAMPLES: list[msgspec.Struct] = [
    REGULAR,
    Encapsulated(RingId(12, 1), 3, REGULAR, 0),
    Token(RING, 2**62, 9, 7, None, (8, 9), 1, True),
    Token(RING, 1, 0, 0, 3, (), 0, False),
    Join(1, 8, (1, 2, 3), (3,), 2, 50, (Hearing(2, 8, 1, (1, 2)),)),
    CommitToken(RING, 0, (1, 2), (Entry(RingId(4, 1), 5, 6, False, 7, None, 2**50),)),
    Announce(RING, 1, (1, 2), (3,), ((3, 1),)),
    Leave(RING, 1),
    Hello((Whereabouts(1, 2**50, "::1", 5405), Whereabouts(2, 0, "n2.example", 1)), True),
]


REALM = Realm(Medium.RING, "test", "totem")
MARK = REALM.mark(b"")
KEY = bytes(range(32))
SEALED = KeySet({1: KEY})
SEALED_MARK = REALM.mark(KEY)


def codec(src: int = 1, boot: int = 5, file: KeySet | None = None) -> Codec:
    return Codec(MESSAGES, src, boot, file, REALM, {"max_message": "100"})


def hello(src: int, echo: int = 0, **terms: str) -> Hello:
    return Hello((Whereabouts(src, 1, "h", 1),), False, 1, echo, {"max_message": "100"} | terms)


def meet(receiver: Codec, sender: Codec, src: int = 1) -> Codec:
    """The receiver, which has met the sender."""
    assert receiver.decode(sender.encode(hello(src, receiver.challenge), EVERYBODY)) is not None
    return receiver


def head(key: int = 0, src: int = 1, to: int = 0, boot: int = 5, counter: int = 2**63) -> bytes:
    return HEADER.pack(MAGIC, VERSION << 4, key, MARK, src, boot, to, counter)


@pytest.fixture(params=["plain", "sealed"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> KeyFile | None:
    if request.param == "plain":
        return None
    keys.write(tmp_path / "k", keys.add({}))
    return KeyFile(tmp_path / "k")


def test_all_messages_are_in_the_samples() -> None:
    assert {type(sample) for sample in SAMPLES} == {*MESSAGES, Hello}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("to", [EVERYBODY, 2])
def test_round_trip(sample: msgspec.Struct, to: int, file: KeyFile | None) -> None:
    sender = codec(1, 5, file)
    receiver = meet(codec(2, 1, file), sender)
    datagram = sender.encode(sample, to)
    assert len(datagram) <= OVERHEAD + len(msgspec.msgpack.encode(sample))
    assert receiver.decode(datagram) == (1, 5, to, sample)
    assert receiver.refused == {}
    assert receiver.decode(datagram) is None
    assert receiver.refused == {"replayed frame": 1}


def test_refusals_are_counted_by_reason() -> None:
    sender = codec()
    receiver = meet(codec(2), sender)
    good = sender.encode(REGULAR, EVERYBODY)
    other = REALM._replace(protocol="total").mark(b"")
    bad = {
        "too short": [b"", good[: HEADER.size - 1]],
        "not a ringcast frame": [HEADER.pack(MAGIC + 1, VERSION << 4, 0, MARK, 1, 5, 0, 1)],
        "of version 1, and this node's is 3: run one release": [
            HEADER.pack(MAGIC, 0x11, 0, MARK, 1, 5, 0, 1)
        ],
        "of protocol total, and this node's is totem": [
            HEADER.pack(MAGIC, VERSION << 4, 0, other, 1, 5, 0, 1)
        ],
        "of another group: its key or its network is not this node's": [
            HEADER.pack(MAGIC, VERSION << 4, 0, MARK ^ 1, 1, 5, 0, 1)
        ],
        "no such sender": [head(src=0), head(src=3, boot=2**63)],
        "sent to another node": [head(to=3)],
        "sealed, but this node has no key": [head(key=1)],
        "malformed, from node 1": [
            good[: HEADER.size],
            good[:-1],
            good + b"x",
            head() + msgspec.msgpack.encode([99]),
            head() + b"\x91" * 60_000,
            sender.encode(SAMPLES[-1], EVERYBODY).replace(b"::1", b":\xff1"),
        ],
    }
    for datagrams in bad.values():
        assert [receiver.decode(d) for d in datagrams] == [None] * len(datagrams)
    assert receiver.refused == {reason: len(datagrams) for reason, datagrams in bad.items()}
    assert receiver.decode(good) is not None, "nothing that was refused used up its counter"


def test_reasons_are_bounded() -> None:
    receiver = codec(2)
    for number in range(2 * MOST_REASONS):
        receiver.decode(codec(3).encode(hello(3, max_message=str(number)), EVERYBODY))
    assert len(receiver.refused) == MOST_REASONS + 1
    assert sum(receiver.refused.values()) == 2 * MOST_REASONS - 1  # one agreed


# --- meeting -------------------------------------------------------------------------------


def test_nobody_is_heard_before_it_was_met(file: KeyFile | None) -> None:
    sender, receiver = codec(1, 5, file), codec(2, 1, file)
    early = sender.encode(REGULAR, EVERYBODY)
    assert receiver.decode(early) is None
    assert (list(receiver.unmet), receiver.early, receiver.refused) == ([1], 1, {})
    assert receiver.decode(sender.encode(hello(1, echo=99), EVERYBODY)) is not None
    assert not receiver.met(1, 5), "not what this node asked for"
    meet(receiver, sender)
    assert receiver.met(1, 5)
    assert receiver.decode(early) is None
    assert receiver.refused == {"replayed frame": 1}, "what was sent before may be a replay"
    assert receiver.decode(sender.encode(REGULAR, EVERYBODY)) == (1, 5, EVERYBODY, REGULAR)


def test_a_receiver_that_restarted_takes_nothing_recorded(file: KeyFile | None) -> None:
    sender, first = codec(1, 5, file), codec(2, 1, file)
    recorded = [sender.encode(hello(1, first.challenge), EVERYBODY)]
    recorded += [sender.encode(REGULAR, to) for to in (EVERYBODY, 2)]
    assert all(first.decode(each) for each in recorded)
    restarted = codec(2, 2, file)
    for each in recorded:
        restarted.decode(each)
    assert not restarted.knows(1)
    meet(restarted, sender)
    assert [restarted.decode(each) for each in recorded] == [None] * 3


def test_an_earlier_incarnation_is_refused_once_a_later_one_was_met(file: KeyFile | None) -> None:
    early, late = codec(1, 5, file), codec(1, 6, file)
    receiver = meet(codec(2, 1, file), early)
    assert receiver.decode(late.encode(REGULAR, EVERYBODY)) is None
    assert receiver.decode(early.encode(REGULAR, EVERYBODY)) is not None, "not met, no change"
    meet(receiver, late)
    assert receiver.decode(early.encode(REGULAR, EVERYBODY)) is None
    assert receiver.refused == {"frame of an earlier incarnation": 1}


def test_other_settings_are_named_with_both_values() -> None:
    sender, receiver = codec(1), codec(2)
    differs = hello(1, receiver.challenge, max_message="7")
    assert receiver.decode(sender.encode(differs, EVERYBODY)) is not None, "it is answered"
    assert not receiver.knows(1)
    said = (
        "max_message is 7 at node 1 (h:1) and 100 at this node: it must be the same at all members"
    )
    assert receiver.refused == {said: 1}
    assert receiver.misfits == {1: said}
    receiver.decode(sender.encode(hello(1, receiver.challenge), EVERYBODY))
    assert receiver.knows(1) and receiver.misfits == {}, "it was mended"


def test_settings_that_should_be_the_same_are_named_and_met() -> None:
    sender, receiver = codec(1), codec(2)
    receiver.wishes = {"token_loss_us": "300000"}
    for there, said in (("50000", "token_loss_us is 50000 at node 1 (h:1) and 300000 at this"),
                        ("300000", "")):  # fmt: skip
        word = hello(1, receiver.challenge)
        word = msgspec.structs.replace(word, wishes={"token_loss_us": there})
        receiver._peers.clear()
        assert receiver.decode(sender.encode(word, EVERYBODY)) is not None
        assert receiver.knows(1) and receiver.refused == {}
        assert receiver.misfits.get(1, "").startswith(said) and bool(receiver.misfits) is bool(said)


@pytest.mark.parametrize(
    ("realm", "said"),
    [
        (REALM._replace(protocol="total"), "node 3 speaks total, this node totem"),
        (REALM._replace(network="other"), "node 3 has another key 0, or another network than"),
    ],
)
def test_who_speaks_something_else_is_named(realm: Realm, said: str) -> None:
    receiver = codec(2)
    other = Codec(MESSAGES, 3, 5, None, realm)
    assert receiver.decode(other.encode(hello(3, 0), EVERYBODY)) is None
    assert receiver.unproven.said()[3].startswith(said)


def test_who_has_another_key_is_named_with_both_ids(tmp_path: Path) -> None:
    held = keys.add({})
    other = {id: key for id, key in keys.add(held).items() if id not in held}
    for name, found in (("held", held), ("more", other)):
        keys.write(tmp_path / name, found)
    here, there = KeyFile(tmp_path / "held"), KeyFile(tmp_path / "more")
    for mine, theirs, said in (
        (here, there, f"node 1 seals with key {there.sealing}, this node has {here.sealing}"),
        (here, None, f"node 1 has no key, this node has {here.sealing}"),
        (None, here, f"node 1 seals with key {here.sealing}, this node has none"),
    ):
        receiver = codec(2, 1, mine)
        assert receiver.decode(codec(1, 5, theirs).encode(REGULAR, EVERYBODY)) is None
        assert receiver.unproven.said() == {1: f"{said} (by frames that anybody could have sent)"}
        assert receiver.misfits == {}, "they prove nothing"


def of_version_7(src: int) -> bytes:
    """Whoever has no key can send it."""
    return HEADER.pack(MAGIC, 7 << 4, 1, MARK, src, 5, EVERYBODY, 5) + b"x"


def test_a_stranger_says_nothing_of_members_that_were_met(file: KeyFile | None) -> None:
    sender = codec(1, 5, file)
    receiver = codec(2, 1, file)
    receiver.decode(of_version_7(1))
    assert "runs version 7" in receiver.unproven.said()[1]
    meet(receiver, sender)
    receiver.decode(of_version_7(1))
    assert receiver.unproven.said() == receiver.misfits == {}


def test_a_member_that_missed_a_rotation_is_named(file: KeyFile | None) -> None:
    """It was met, and its frames cannot be opened any more: neither side said a word."""
    sender, receiver = codec(1, 5, file), codec(2, 1, file)
    meet(receiver, sender)
    for _ in range(PATIENCE):
        receiver.decode(of_version_7(1))
        assert receiver.unproven.said() == {}, "it may be heard again any moment"
        receiver.rest()
    receiver.rest()
    receiver.decode(of_version_7(1))
    assert "runs version 7" in receiver.unproven.said()[1]
    assert not receiver.hears(1)
    receiver.decode(sender.encode(REGULAR, EVERYBODY))
    receiver.rest()
    assert receiver.hears(1) and receiver.unproven.said() == {}


def test_strangers_fill_no_table_for_good(file: KeyFile | None) -> None:
    receiver = codec(2, 1, file)
    for src in range(1000, 1000 + 2 * MOST_PEERS):
        receiver.decode(of_version_7(src))
    assert len(receiver.unproven.said()) == MOST_UNPROVEN and receiver.misfits == {}
    differs = hello(1, receiver.challenge, max_message="7")
    receiver.decode(codec(1, 5, file).encode(differs, EVERYBODY))
    assert list(receiver.misfits) == [1], "one with the key is named all the same"
    for _ in range(PATIENCE):
        receiver.rest()
    assert receiver.unproven.said() == {}, "nobody repeated it"


def test_misfits_that_were_never_met_make_room(file: KeyFile | None) -> None:
    """One with the key took all places for good, under 1,024 ids. What a member that was met has
    said once stays."""
    receiver = codec(2, 1, file)
    receiver.wishes = {"token_loss_us": "300000"}
    meet(receiver, codec(1, 5, file))
    for src in range(1000, 1000 + MOST_PEERS):
        receiver.rest()
        differs = hello(src, receiver.challenge, max_message="7")
        receiver.decode(codec(src, 5, file).encode(differs, EVERYBODY))
    assert len(receiver.misfits) == PATIENCE + 1, "nobody repeats it"
    for src in range(1000, 1000 + MOST_PEERS):
        receiver.misfit(src, "it has the key")
    assert len(receiver.misfits) == MOST_PEERS
    for _ in range(PATIENCE):
        assert len(receiver.misfits) == MOST_PEERS
        receiver.rest()
    assert list(receiver.misfits) == [1]


def test_a_recorded_hello_with_former_settings_is_no_misfit(file: KeyFile | None) -> None:
    """Not of a member that was met since, and not where it was never met."""
    past, now, receiver = codec(1, 5, file), codec(1, 6, file), codec(2, 1, file)
    recorded = past.encode(hello(1, echo=99, max_message="7"), EVERYBODY)
    receiver.decode(recorded)
    assert receiver.misfits == {}
    meet(receiver, now)
    to_me = past.encode(hello(1, receiver.challenge, max_message="7"), EVERYBODY)
    for each in (recorded, to_me):
        receiver.decode(each)
    assert receiver.misfits == {} and receiver.met(1, 6)


@pytest.mark.parametrize("bad", ["\n", "\x1b[2J", "\x9b", "\u2028", "\u202e", "\n" * 2])
@pytest.mark.parametrize("where", ["value", "name", "host"])
def test_text_that_leaves_its_line_is_malformed(bad: str, where: str) -> None:
    """A member wrote lines of its own into the others' logs, and onto their terminals."""
    sender, receiver = codec(3), codec(2)
    value, name = ("7" + bad if where == "value" else "7"), ("x" + bad if where == "name" else "x")
    place = Whereabouts(3, 5, "h" + bad if where == "host" else "h…é", 1)
    said = Hello((place,), False, 1, receiver.challenge, {"max_message": value, name: "1"})
    assert receiver.decode(sender.encode(said, EVERYBODY)) is None
    assert receiver.refused == {"malformed, from node 3": 1} and receiver.misfits == {}


def test_a_frame_to_one_processor_is_none_for_another(tmp_path: Path) -> None:
    """Its destination is authenticated, so it cannot be rewritten either."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    sender = codec(1, 5, file)
    third = meet(codec(3, 1, file), sender)
    frame = sender.encode(REGULAR, 2)
    assert third.decode(frame) is None
    _, _, key, mark, src, boot, _, counter = HEADER.unpack_from(frame)
    for to in (3, EVERYBODY):
        header = HEADER.pack(MAGIC, VERSION << 4, key, mark, src, boot, to, counter)
        assert third.decode(header + frame[HEADER.size :]) is None
    assert third.refused == {"sent to another node": 1, "not sealed by this group": 2}


def test_in_the_name_of_another_nothing_opens_with_the_same_number(tmp_path: Path) -> None:
    """Sender and life are in the key: with the very nonce of a frame it is not theirs."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    sender, other, later = codec(1, 5, file), codec(3, 5, file), codec(1, 6, file)
    sender._counter = 2**63  # above the numbers of the others
    receiver = meet(meet(codec(2, 1, file), other, 3), later)
    frame = sender.encode(REGULAR, EVERYBODY)
    version, key, mark, _, _, to, counter = HEADER.unpack_from(frame)[1:]
    for src, boot in ((3, 5), (1, 6)):
        header = HEADER.pack(MAGIC, version, key, mark, src, boot, to, counter)
        assert receiver.decode(header + frame[HEADER.size :]) is None
    assert receiver.refused == {"not sealed by this group": 2}


@pytest.mark.parametrize(
    "realm",
    [REALM._replace(channel=Medium.JOURNAL), REALM._replace(network="other")],
)
def test_channels_and_networks_are_apart(tmp_path: Path, realm: Realm) -> None:
    """With a mark that collides, or was copied, the key is still another one."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    receiver = codec(2, 1, file)
    foreign = Codec(MESSAGES, 1, 5, file, realm)
    frame = foreign.encode(hello(1, receiver.challenge), EVERYBODY)
    assert receiver.decode(frame) is None
    _, kind, key, _, src, boot, to, counter = HEADER.unpack_from(frame)
    mark = REALM.mark(file.keys[key])
    copied = HEADER.pack(MAGIC, kind, key, mark, src, boot, to, counter) + frame[HEADER.size :]
    assert receiver.decode(copied) is None
    assert list(receiver.refused) == [
        "of another group: its key or its network is not this node's",
        "not sealed by this group",
    ]


def test_another_version_has_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of one are none of another, whatever stands in the open."""
    nonce = bytes(12)
    sealed = session(KEY, REALM, 1, 5).encrypt(nonce, b"x", None)
    assert opened(session(KEY, REALM, 1, 5), nonce, sealed) == b"x"
    monkeypatch.setattr(seal, "VERSION", VERSION + 1)
    assert opened(session(KEY, REALM, 1, 5), nonce, sealed) is None
    assert REALM.mark(KEY) != SEALED_MARK


def test_channels_of_another_key_are_told_by_the_mark() -> None:
    """No key is derived for a stranger's frame, though it knows network and protocol."""
    stranger, receiver = codec(1, 5, KeySet({1: bytes(32)})), codec(2, 1, SEALED)
    assert receiver.decode(stranger.encode(hello(1, receiver.challenge), EVERYBODY)) is None
    no_key = HEADER.pack(MAGIC, VERSION << 4, 1, MARK, 1, 5, EVERYBODY, 5)
    assert receiver.decode(no_key) is None
    reason = "of another group: its key or its network is not this node's"
    assert receiver.refused == {reason: 2}


def test_a_flood_of_strangers_costs_a_bounded_number_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    sender = codec(1, 5, file)
    receiver = meet(codec(2, 1, file), sender)
    receiver.rest()
    derived: list[Any] = []

    def deriving(*told: Any) -> Any:
        derived.append(told)
        return session(*told)

    monkeypatch.setattr(wire_codec, "session", deriving)
    _, kind, key, mark, *_ = HEADER.unpack_from(sender.encode(REGULAR, EVERYBODY))
    for boot in range(10 * MOST_STRANGERS):
        receiver.decode(HEADER.pack(MAGIC, kind, key, mark, 9, boot, 0, 1) + bytes(40))
    assert len(derived) == MOST_STRANGERS
    assert receiver.refused["too many strangers at once"] == 9 * MOST_STRANGERS
    assert receiver.decode(sender.encode(REGULAR, EVERYBODY)) is not None, "who was met goes on"
    newcomer = codec(4, 1, file)
    assert receiver.decode(newcomer.encode(hello(4), EVERYBODY)) is None
    receiver.rest()
    assert receiver.decode(newcomer.encode(hello(4), EVERYBODY)) is not None


def test_a_busy_member_that_was_not_met_is_no_flood_of_strangers(tmp_path: Path) -> None:
    """Its frames used up what is there for strangers, so the Hello behind them was not heard."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    sender, receiver = codec(1, 5, file), codec(2, 1, file)
    for _ in range(2 * MOST_STRANGERS):
        assert receiver.decode(sender.encode(REGULAR, EVERYBODY)) is None
    assert receiver.early == 2 * MOST_STRANGERS
    meet(receiver, sender)
    assert receiver.decode(sender.encode(REGULAR, EVERYBODY)) is not None
    assert receiver.refused == {}


def test_frames_of_an_earlier_life_cost_a_bounded_number_of_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody on the path has many of them, and repeats them."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    early, late = codec(1, 5, file), codec(1, 6, file)
    receiver = meet(codec(2, 1, file), late)
    recorded = [early.encode(REGULAR, EVERYBODY) for _ in range(3 * MOST_OUTLIVED)]
    tried: list[Any] = []
    monkeypatch.setattr(wire_codec, "opened", lambda *told: tried.append(told))
    for turn in (1, 2):
        for each in recorded:
            assert receiver.decode(each) is None
        assert len(tried) == turn * MOST_OUTLIVED
        receiver.rest()


def test_of_lives_that_were_not_met_a_bounded_number_is_known(tmp_path: Path) -> None:
    """A member with the key could say a frame in each of as many as it likes."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    receiver = codec(2, 1, file)
    for boot in range(1, 2 * MOST_UNMET):
        receiver.decode(codec(1, boot, file).encode(REGULAR, EVERYBODY))
    assert len(receiver._unmet) == MOST_UNMET


def test_senders_are_bounded() -> None:
    receiver = codec(2)
    for src in range(3, 3 + MOST_PEERS):
        meet(receiver, codec(src), src)
    assert receiver.decode(codec(1).encode(hello(1, receiver.challenge), EVERYBODY)) is None
    assert receiver.refused == {"too many senders": 1}


def test_senders_that_are_gone_make_room() -> None:
    """After 1,024 ids no newcomer was met until the node started again."""
    receiver, lives = codec(2), codec(3)
    meet(receiver, lives, 3)
    for src in range(4, 3 + MOST_PEERS):
        meet(receiver, codec(src), src)
    for _ in range(MOST_SILENT + 1):
        receiver.decode(lives.encode(REGULAR, EVERYBODY))
        receiver.rest()
    assert receiver.knows(3) and not receiver.knows(4)
    meet(receiver, codec(1), 1)
    assert receiver.refused == {}


def test_a_sender_that_made_room_is_not_met_by_what_was_recorded() -> None:
    """Its Hello had this node's challenge in it for as long as the node lived, so everything it had
    said since could be said again."""
    receiver, gone = codec(2), codec(3)
    recorded = [gone.encode(hello(3, receiver.challenge), EVERYBODY)]
    recorded += [gone.encode(REGULAR, EVERYBODY) for _ in range(3)]
    assert all(receiver.decode(each) for each in recorded)
    for src in range(4, 4 + MOST_PEERS - 1):
        meet(receiver, codec(src), src)
    for _ in range(MOST_SILENT + 1):
        receiver.rest()
    assert not receiver.knows(3)
    receiver.decode(recorded[0])
    assert [receiver.decode(each) for each in recorded[1:]] == [None] * 3
    assert not receiver.knows(3)
    meet(receiver, gone, 3)
    assert receiver.met(3, 5), "if it lives, it can"


def test_state_rolled_back_repeats_no_nonce(tmp_path: Path) -> None:
    """The same processor with the same boot number again, as from a snapshot of its disk."""
    keys.write(tmp_path / "k", keys.add({}))
    file = KeyFile(tmp_path / "k")
    frames = [codec(1, 5, file).encode(REGULAR, EVERYBODY) for _ in range(100)]
    assert len({HEADER.unpack_from(frame)[-1] for frame in frames}) == 100


@pytest.mark.parametrize("depth", [50_000, 1_000_000])
def test_deep_nesting_in_an_ignored_field_is_refused(depth: int) -> None:
    """Fields beyond the known ones are skipped, which must not be a way to exhaust the stack.

    From 3.14 on Python measures the stack, and skips what fits, as the most of a datagram does.
    """
    known = msgspec.to_builtins(SAMPLES[2])
    payload = bytearray(msgspec.msgpack.encode(known))
    payload[0] += 1
    receiver = meet(codec(2), codec())
    found = receiver.decode(head() + bytes(payload) + b"\x91" * depth + b"\xc0")
    if sys.version_info >= (3, 14) and found is not None:
        assert depth == 50_000 and found[-1] == SAMPLES[2]
        return
    assert found is None
    assert receiver.refused == {"malformed, from node 1": 1}


def test_without_a_key_a_sealed_group_is_closed(tmp_path: Path) -> None:
    keys.write(tmp_path / "k", keys.add({}))
    sealed = codec(2, 1, KeyFile(tmp_path / "k"))
    assert sealed.decode(codec().encode(REGULAR, 2)) is None
    assert sealed.refused == {"unknown key": 1}


def test_frames_of_our_own_past_are_refused(file: KeyFile | None) -> None:
    """Sent back to us after a restart they must not pass for another user of our id."""
    recorded = codec(1, 5, file).encode(REGULAR, EVERYBODY)
    restarted = codec(1, 6, file)
    assert restarted.decode(recorded) is None
    assert restarted.refused == {"frame of an earlier incarnation": 1}
    again = codec(1, 5, file).encode(hello(1, restarted.challenge), EVERYBODY)
    assert restarted.decode(again) is not None, "if it lives, it has to learn of us"
    assert not restarted.knows(1)
    impostor = codec(1, 7, file)
    assert restarted.decode(impostor.encode(REGULAR, EVERYBODY)) is None, "one frame proves nothing"
    meet(restarted, impostor)
    frame = impostor.encode(REGULAR, EVERYBODY)
    assert restarted.decode(frame) == (1, 7, EVERYBODY, REGULAR), "the protocol says what to do"


def test_new_keys_are_used_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "k"
    keys.write(path, keys.add({}))
    file = KeyFile(path)
    sender = codec(1, 5, file)
    receiver = meet(codec(2, 1, file), sender)
    keys.write(path, keys.retire(keys.promote(keys.add(file.keys))))
    assert file.reload()
    sender.renew_keys()
    receiver.renew_keys()
    assert receiver.decode(sender.encode(REGULAR, 2)) is not None


@pytest.mark.parametrize("held", [None, SEALED])
@given(noise=st.binary(max_size=200))
def test_random_bytes_are_no_frame(held: KeySet | None, noise: bytes) -> None:
    """Behind a header that is right they may be one where there is no seal, and never raise. Nor
    are they a seal behind a message."""
    receiver = meet(codec(2, 1, held), codec(1, 5, held))
    assert receiver.decode(noise) is None
    key, mark = (1, REALM.mark(KEY)) if held else (0, MARK)
    for src in (1, 7):
        header = HEADER.pack(MAGIC, VERSION << 4, key, mark, src, 5, EVERYBODY, 2**63)
        forged = msgspec.msgpack.encode(REGULAR) + noise[:TAG_BYTES].ljust(TAG_BYTES)
        found = [receiver.decode(header + body) for body in (noise, forged)]
        assert found == [None, None] or held is None


@pytest.mark.parametrize("held", [None, SEALED])
@given(sample=st.sampled_from(SAMPLES), flip=st.integers(1, 255))
@settings(max_examples=30)
def test_altered_frames_are_none(held: KeySet | None, sample: msgspec.Struct, flip: int) -> None:
    """Whichever byte it is, of the header too; without a seal they never raise."""
    sender = codec(1, 5, held)
    receiver = meet(codec(2, 1, held), sender)
    good = sender.encode(sample, EVERYBODY)
    for at in range(len(good)):
        altered = bytearray(good)
        altered[at] ^= flip
        found = receiver.decode(bytes(altered))
        assert found is None or held is None
    if held is not None:
        assert receiver.decode(good) == (1, 5, EVERYBODY, sample), "none of them was taken for it"

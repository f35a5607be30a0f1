"""The reliable channel: once, in order, bounded, over links that lose, repeat and reorder."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from wire import Wire, drops, sent, words

from ringcast.blocks import channel
from ringcast.blocks.channel import (
    MOST_PEERS,
    Ack,
    Arrived,
    Channel,
    Packet,
    Piece,
    Settings,
    Timer,
)
from ringcast.core.inputs import Received

SETTINGS = Settings(resend_us=1_000, resend_max_us=8_000, window=4, queue=6)


class Item(msgspec.Struct, frozen=True, array_like=True, tag=1):
    number: int


def pair(settings: Settings = SETTINGS) -> Wire:
    wire = Wire(2, lambda node: Channel(node, settings))
    wire.start()
    return wire


def send(wire: Wire, *numbers: int) -> list[int]:
    """1 sends to 2; the numbers of the packets that left at once."""
    found: list[int] = []
    for number in numbers:
        effects = wire.call(1, wire[1].send, 2, Item(number))
        found += [packet.seq for packet in sent(effects, Packet)]
    return found


def arrived(wire: Wire, node: int = 2) -> list[int]:
    return [word.payload.number for word in words(wire.said[node], Arrived)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(8))
def test_everything_arrives_once_and_in_order(seed: int) -> None:
    """C1, C2."""
    wire = pair(Settings(resend_us=1_000, resend_max_us=8_000, window=8, queue=1_000))
    rng = Random(seed)
    send(wire, *range(200))
    for _ in range(200_000):
        if not wire.frames:
            if Timer.RESEND not in wire.timers[1]:
                break
            wire.fire(1, Timer.RESEND)
        at = rng.randrange(len(wire.frames))
        match rng.random():
            case chance if chance < 0.3:
                wire.frames.pop(at)
            case chance if chance < 0.5:
                node, frame = wire.frames[at]
                wire.handle(node, frame)
            case _:
                wire.step(at)
    assert arrived(wire) == list(range(200))
    assert wire[1].waiting == 0
    assert Timer.RESEND not in wire.timers[1]


def test_no_more_than_the_window_is_under_way_and_acknowledgements_move_it() -> None:
    """C2."""
    wire = pair()
    assert send(wire, *range(7)) == [1, 2, 3, 4]
    wire.step()  # packet 1 arrives, its acknowledgement is on its way
    assert [p.seq for p in sent(wire.step(-1), Packet)] == [5]


def test_a_full_queue_refuses() -> None:
    """C6."""
    wire = pair()
    send(wire, *range(4 + 6))
    assert not wire[1].room(2)
    assert not wire[1].ready
    assert drops(wire.call(1, wire[1].send, 2, Item(99))) == ["a payload over the bound"]
    wire.run()
    assert arrived(wire) == list(range(10))
    assert wire[1].room(2)


def test_silence_is_met_with_longer_and_longer_intervals() -> None:
    """C1."""
    wire = pair()
    send(wire, 1)
    wire.frames.clear()
    waits = []
    for _ in range(6):
        began_us = wire.now_us
        effects = wire.fire(1, Timer.RESEND)
        waits.append(wire.now_us - began_us)
        assert [p.seq for p in sent(effects, Packet)] == [1]
    for wait, least in zip(waits, (1_000, 2_000, 4_000, 8_000, 8_000, 8_000), strict=True):
        assert least <= wait <= least * 5 // 4


def test_a_timeout_sends_the_lowest_again_and_no_more_than_a_few() -> None:
    wire = pair(Settings(window=20, queue=50))
    send(wire, *range(20))
    assert [p.seq for p in sent(wire.fire(1, Timer.RESEND), Packet)] == list(range(1, 9))


def test_the_timeout_follows_the_time_a_round_trip_takes() -> None:
    wire = pair()
    for number in range(20):
        send(wire, number)
        wire.now_us += 3_000
        wire.step()
        wire.step()
    send(wire, 99)
    assert wire.timers[1][Timer.RESEND] - wire.now_us >= 6_000


def test_a_round_trip_of_a_packet_that_was_sent_again_is_not_measured() -> None:
    wire = pair()
    send(wire, 1)
    wire.frames.clear()
    wire.fire(1, Timer.RESEND)
    wire.now_us += 7_000
    wire.run()
    send(wire, 2)
    assert wire.timers[1][Timer.RESEND] - wire.now_us <= 2_000 * 5 // 4


def test_a_timer_that_fires_a_little_early_is_heeded() -> None:
    wire = pair()
    send(wire, 1)
    wire.now_us = wire.timers[1].pop(Timer.RESEND) - 1
    wire.timers[1][Timer.RESEND] = wire.now_us
    assert sent(wire.fire(1, Timer.RESEND), Packet)


def test_after_a_reset_only_the_new_arrives() -> None:
    """C3."""
    wire = pair()
    send(wire, 1, 2, 3)
    old = list(wire.frames)
    wire.frames.clear()
    wire.call(1, wire[1].reset, 2)
    assert Timer.RESEND not in wire.timers[1]
    send(wire, 4)
    wire.run()
    for node, frame in old:
        assert drops(wire.handle(node, frame)) == ["a packet of an earlier stream"]
    assert arrived(wire) == [4]


def test_acknowledgements_of_another_incarnation_or_stream_do_not_count() -> None:
    """C2."""
    wire = pair()
    send(wire, 1)
    for ack in (Ack(wire.boot(1) + 7, 1, 1), Ack(wire.boot(1), 2, 1)):
        assert drops(wire.receive(1, 2, ack)) == ["an acknowledgement of another stream"]
    assert wire[1].waiting == 1
    wire.receive(1, 2, Ack(wire.boot(1), 1, 1))
    assert wire[1].waiting == 0


def test_an_acknowledgement_of_what_was_never_sent_is_cut_short() -> None:
    wire = pair()
    send(wire, 1)
    wire.receive(1, 2, Ack(wire.boot(1), 1, 50))
    assert wire[1].waiting == 0
    assert send(wire, 2) == [2]


def test_a_receiver_that_starts_again_gets_what_was_not_acknowledged() -> None:
    wire = pair()
    send(wire, 1, 2)
    wire.run()
    wire.crash(2)
    send(wire, 3)
    wire.start(2)
    wire.frames.clear()
    wire.fire(1, Timer.RESEND)
    wire.run()
    assert arrived(wire) == [1, 2, 3]


def test_what_an_earlier_life_of_the_receiver_acknowledged_is_not_waited_for() -> None:
    wire = pair()
    send(wire, 1, 2)
    again = [wire.frames[0]]
    wire.step()
    wire.step()
    acks, wire.frames = wire.frames, []  # both under way when it starts again
    wire.crash(2)
    wire.start(2)
    wire.frames = again
    wire.step()
    wire.frames = acks
    wire.run()
    send(wire, 3)
    wire.run()
    assert arrived(wire) == [1, 2, 1, 3]
    assert wire[1].waiting == 0


def test_a_sender_that_starts_again_begins_anew() -> None:
    wire = pair()
    send(wire, 1, 2)
    late = wire.frames[1]
    wire.step()
    wire.crash(1)
    wire.start(1)
    wire.frames.clear()
    send(wire, 5)
    wire.run()
    wire.handle(*late)  # of the earlier incarnation: it goes on where that one was
    assert arrived(wire) == [1, 5, 2]


def test_packets_beyond_the_window_and_malformed_ones_are_dropped() -> None:
    wire = pair()
    assert drops(wire.receive(2, 1, Packet(1, 5, 1, Item(5)))) == ["a packet beyond the window"]
    for seq, base in ((0, 0), (3, 4), (3, 0)):
        assert drops(wire.receive(2, 1, Packet(1, seq, base, Item(1)))) == ["malformed packet"]


def test_streams_that_are_remembered_are_bounded() -> None:
    wire = pair()
    for boot in range(1, MOST_PEERS + 50):
        wire.receive(2, 1, Packet(1, 1, 1, Item(boot)), boot=boot)
    assert wire[2].snapshot()["streams"] == MOST_PEERS


def test_a_packet_decodes_with_the_payloads_that_it_may_carry() -> None:
    packet = Packet(3, 2, 1, Item(9))
    decode = msgspec.msgpack.Decoder(Packet[Item] | Ack).decode
    assert decode(msgspec.msgpack.encode(packet)) == packet
    assert abs(packet.wire_bytes() - len(msgspec.msgpack.encode(packet))) <= 28
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(Packet(1, 1, 1, Ack(1, 1, 1))))


# --- payloads that do not fit a frame -----------------------------------------------------------

PIECES = Settings(resend_us=1_000, resend_max_us=8_000, window=4, queue=40, piece_bytes=100)


class Text(msgspec.Struct, frozen=True, array_like=True, tag=2):
    text: str


def in_pieces(settings: Settings = PIECES) -> Wire:
    wire = Wire(2, lambda node: Channel(node, settings, Item | Text))
    wire.start()
    return wire


def payloads(wire: Wire) -> list[object]:
    return [word.payload for word in words(wire.said[2], Arrived)]


def test_c5_a_payload_too_large_for_a_frame_arrives_whole_and_in_its_place() -> None:
    wire = in_pieces()
    large = Text("x" * 950)
    for item in (Item(1), large, Item(2)):
        wire.call(1, wire[1].send, 2, item)
    frames = [frame.message for _, frame in wire.frames]
    assert all(len(msgspec.msgpack.encode(frame)) < 130 for frame in frames)
    wire.run()
    assert payloads(wire) == [Item(1), large, Item(2)]


def test_c5_a_receiver_that_starts_again_in_the_middle_gets_no_half() -> None:
    wire = in_pieces()
    wire.call(1, wire[1].send, 2, Text("x" * 950))
    wire.call(1, wire[1].send, 2, Item(2))
    for _ in range(6):
        wire.step()
    wire.start(2)
    wire.pass_us(100_000)
    assert payloads(wire) == [Item(2)]
    assert wire.envs[2].dropped["a piece without those before it"] > 0


def test_c5_pieces_are_refused_together() -> None:
    wire = in_pieces(Settings(window=4, queue=6, piece_bytes=100))
    assert drops(wire.call(1, wire[1].send, 2, Text("x" * 950))) == ["a payload over the bound"]
    wire.call(1, wire[1].send, 2, Item(1))
    wire.run()
    assert payloads(wire) == [Item(1)]


def test_c5_what_makes_no_payload_or_too_large_a_one_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = in_pieces()
    bad = (Packet(1, 1, 1, Piece(0, False, b"no")), Packet(1, 2, 1, Piece(1, True, b"sense")))
    assert [drops(wire.receive(2, 1, frame)) for frame in bad] == [
        [],
        ["pieces that make no payload"],
    ]
    deep = msgspec.msgpack.encode(Item(1)).replace(b"\x92", b"\x93") + b"\x91" * 5000
    for number, data in enumerate((deep, b"\x91\xa2\xff\xfe"), 3):
        frame = Packet(1, number, 1, Piece(0, True, data))
        assert drops(wire.receive(2, 1, frame)) == ["pieces that make no payload"]
    monkeypatch.setattr(channel, "MOST_BYTES", 150)
    large = [Packet(1, 5 + at, 1, Piece(at, False, b"x" * 100)) for at in range(2)]
    assert [drops(wire.receive(2, 1, frame)) for frame in large] == [
        [],
        ["a payload that is too large"],
    ]
    assert payloads(wire) == []


def test_c5_pieces_of_all_peers_share_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 256 incarnations had 64 MiB of its own."""
    monkeypatch.setattr(channel, "MOST_BYTES", 250)
    wire = in_pieces()

    def say(boot: int, at: int, last: bool, data: bytes) -> list[str]:
        frame = Packet(1, 1 + at, 1, Piece(at, last, data))
        wire[2].handle(wire.envs[2], Received(1, boot, frame))
        return drops(wire.envs[2].take())

    whole = msgspec.msgpack.encode(Text("x" * 30))
    assert say(7, 0, False, whole[:20]) == []
    assert say(8, 0, False, b"x" * 110) == say(8, 1, False, b"x" * 110) == []
    assert say(9, 0, False, b"x" * 110) == ["a payload that is too large"], "whoever has most"
    assert wire[2]._joining == 130
    assert say(7, 1, True, whole[20:]) == [] and wire[2]._joining == 110
    for boot in range(10, 10 + 2 * channel.MOST_PEERS):
        say(boot, 0, False, b"x")
    assert wire[2]._joining == sum(each.bytes for each in wire[2]._in.values()) <= 250

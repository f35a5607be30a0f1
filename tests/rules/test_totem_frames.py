"""Frames, start and restart: dossier section 3.1, R1-R9."""

from __future__ import annotations

import pytest
from driver import Bench, Phase, Timer, drops, only, only_dropped, sent, set_timers, stops, upcalls

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, InstallView, Persist, Send
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import Received
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Join,
    Leave,
    Regular,
    Token,
)

RING = ViewId(8, 1)


def test_r1_own_frames_that_loop_back_are_dropped() -> None:
    """§3.1, G8: a broadcast comes back to its sender; acting on an own Join would end the ring."""
    bench = Bench().to_ring()
    own = Received(2, bench.boots[2], bench.join(2, (1, 2, 3)))
    assert drops(bench.handle(2, own)) == ["own frame"]
    assert bench[2].phase is Phase.OPERATIONAL


def test_r1_own_messages_enter_the_store_when_they_are_sent() -> None:
    """§3.1, G8: the copy kept at sending is the one delivered; the looped one is not needed."""
    bench = Bench().to_ring()
    bench.submit(1, b"a")
    effects = bench.visit(1)
    (message,) = sent(effects, Regular)
    assert upcalls(effects) == [1]
    assert only_dropped(bench.handle(1, Received(1, bench.boots[1], message)))


def test_r2_an_id_used_twice_stops_the_processor() -> None:
    """R2, G21: a frame with my id and another start's nonce comes from an impostor."""
    bench = Bench().to_ring()
    impostor = Received(2, bench.boots[2] + 7, bench.join(2, (2,)))
    (reason,) = stops(bench.handle(2, impostor))
    assert reason.startswith("another processor uses the id 2")


def test_r3_broadcast_frames_are_handled_before_a_token() -> None:
    """§4.1: the token must not overtake messages that arrived before it.

    The world keeps this rule; here both wait at processor 2 and the simulator hands them over.
    """
    from ringcast.protocols.totem_single import SHEET
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.model import NetworkModel

    cluster = Cluster(SHEET, Bench().config, (1, 2), NetworkModel())
    cluster.start()
    cluster.run_for(1_000_000)
    assert cluster.machine(2).snapshot()["ring_id"] == "(8,1)"
    order: list[str] = []
    cluster.pause(2)
    machine = cluster.machine(2)
    handle = machine.handle

    def listen(env: object, event: object) -> None:
        if isinstance(event, Received):
            order.append(type(event.message).__name__)
        handle(env, event)  # type: ignore[arg-type]

    machine.handle = listen  # type: ignore[method-assign]
    token = Token(RING, 0, 0, 0, None, (), 0, False)
    message = Regular(1, RING, 1, Level.AGREED, Contents(1, (b"x",)))
    cluster.inject(2, cluster.frame(1, token), unicast=True)
    cluster.inject(2, cluster.frame(1, message))
    cluster.resume(2)
    cluster.run_for(1)
    assert order.index("Regular") < order.index("Token")


ENTRY_LESS = CommitToken(ViewId(12, 1), 0, (1, 2, 3), ())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (Regular(1, RING, 0, Level.AGREED, Contents(1, (b"x",))), "malformed message"),
        (Regular(1, RING, 1, Level.AGREED, Contents(1, ())), "malformed message"),
        (
            Encapsulated(RING, 0, Regular(1, RING, 1, Level.AGREED, Contents(1, (b"x",))), 0),
            "malformed encapsulated message",
        ),
        (Token(RING, 99, 1, 2, None, (), 0, False), "malformed token"),
        (Token(RING, 99, 3, 1, None, (3, 2), 0, False), "malformed token"),
        (Token(RING, 99, 3, 1, None, (4,), 0, False), "malformed token"),
        (Join(1, 8, (1, 2), (1,), 0), "malformed Join"),
        (Join(1, 8, (2, 3), (), 0), "malformed Join"),
        (Join(1, 8, (1, 2), (3,), 0), "malformed Join"),
        (Join(3, 8, (1, 2, 3), (), 0), "malformed Join"),
        (ENTRY_LESS, "malformed Commit token"),
        (Announce(ViewId(8, 3), 3), "malformed notice"),
        (Leave(ViewId(8, 3), 3), "malformed notice"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_r4_malformed_frames_are_counted_and_dropped(frame: object, why: str) -> None:
    """R4: no correct processor sends these; they have no effect but a count and a reason."""
    bench = Bench().to_ring()
    effects = bench.receive(2, frame, src=1)  # type: ignore[arg-type]
    assert drops(effects) == [why] and only_dropped(effects)
    assert bench.envs[2].dropped[why] == 1


def test_r4_lists_over_their_limits_do_not_decode() -> None:
    """R4, G28: lengths and ranges are checked where the frame is decoded."""
    import msgspec

    from ringcast.protocols.totem_single.messages import MAX_MEMBERS, Frame

    decoder = msgspec.msgpack.Decoder(Frame)
    longest = Join(1, 8, tuple(range(1, MAX_MEMBERS + 1)), (), 0)
    assert decoder.decode(msgspec.msgpack.encode(longest)) == longest
    for bad in (
        Join(1, 8, tuple(range(1, MAX_MEMBERS + 2)), (), 0),
        Token(RING, 2**63, 0, 0, None, (), 0, False),
        Token(RING, -1, 0, 0, None, (), 0, False),
        Join(0, 8, (1,), (), 0),
    ):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.msgpack.encode(bad))


@pytest.mark.parametrize(("stored", "expected"), [({}, 4), ({"ring_seq": 8}, 12)])
def test_r5_start_takes_a_ring_number_never_used(stored: dict[str, int], expected: int) -> None:
    """§4.2, §3.1, G7: stored number plus 4, written before the singleton is told to anybody."""
    bench = Bench()
    bench.stable[2] = dict(stored)
    effects = bench.start(2)
    ring = ViewId(expected, 2)
    assert effects[:2] == [
        Persist("ring_seq", expected),
        InstallView(ring, (2,), False, ring, 0, None),
    ]
    assert bench[2].snapshot()["ring_id"] == str(ring) == bench[2].snapshot()["old_ring_id"]


def test_r6_after_start_gather_with_the_new_number() -> None:
    """§4.2: a starting processor looks for others; its Join carries the number just taken."""
    bench = Bench()
    bench.stable[2] = {"ring_seq": 8}
    (join,) = sent(bench.start(2), Join)
    assert (join.sender_id, join.ring_seq) == (2, 12)
    assert (join.proc_set, join.fail_set) == ((2,), ())
    assert bench[2].phase is Phase.GATHER


def test_r7_alone_the_consensus_timeout_is_awaited() -> None:
    """R7, G11: a lone proposal agrees with itself at once; acting on it would waste a ring."""
    bench = Bench(1)
    assert "consensus" in set_timers(bench.start(1))
    assert bench[1].phase is Phase.GATHER
    bench.fire(1, Timer.JOIN)
    assert bench[1].phase is Phase.GATHER
    bench.fire(1, Timer.CONSENSUS)
    assert bench.phase(1) is Phase.OPERATIONAL


def test_r8_a_ring_of_one_forms_in_one_step() -> None:
    """§4.2, Th 4.7 (S1): consensus to install at once, seq +4, stored, both changes delivered."""
    bench = Bench(1)
    bench.start(1)
    effects = bench.fire(1, Timer.CONSENSUS)
    assert upcalls(effects) == [("T", 6, 1, (1,)), ("R", 8, 1, (1,))]
    assert only(effects, Persist) == [Persist("ring_seq", 8)]
    assert effects.index(Persist("ring_seq", 8)) < effects.index(only(effects, InstallView)[0])
    assert not only(effects, Send) and not only(effects, Broadcast)


def test_r9_alone_even_safe_messages_are_delivered_at_once() -> None:
    """Th 4.7 (S1): a ring of one numbers and delivers without token and without token timers."""
    bench = Bench(1)
    bench.start(1)
    bench.fire(1, Timer.CONSENSUS)
    effects = bench.submit(1, b"a", level=Level.SAFE)
    assert upcalls(effects) == [1]
    assert not only(effects, Send) and not only(effects, Broadcast)  # nobody could use it
    assert not bench.timers[1].keys() & {Timer.TOKEN_LOSS, Timer.TOKEN_RETRANSMIT}
    assert bench[1].snapshot()["stored"] == 0


def test_r9_what_was_queued_before_is_served_at_the_install() -> None:
    """R9, R78, G31: messages submitted while alone and gathering come after the conf."""
    bench = Bench(1)
    bench.start(1)
    bench.submit(1, b"a")
    effects = bench.fire(1, Timer.CONSENSUS)
    assert upcalls(effects) == [("T", 6, 1, (1,)), ("R", 8, 1, (1,)), 1]

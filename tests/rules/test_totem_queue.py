"""Queue, flow control, idle ring and packing: dossier section 3.9, R78-R100."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from driver import (
    PAPER,
    Bench,
    Phase,
    Timer,
    cancelled,
    deliveries,
    drops,
    only,
    only_dropped,
    sent,
    set_timers,
    stops,
    upcalls,
)
from msgspec.structs import replace

from ringcast.core.effects import Broadcast, Deliver, Note, Originate, Send
from ringcast.core.ids import Level, ViewId
from ringcast.core.ids import level as level_of
from ringcast.core.inputs import TimerFired
from ringcast.protocols.totem_single import Config, TotemSingle, operational, tokens
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Join,
    Regular,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import (
    FlowState,
    GatherState,
    RecoveryState,
    TokenState,
)

OLD, NEW = ViewId(8, 1), ViewId(12, 1)


# --- the queue ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.GATHER, Phase.COMMIT, Phase.RECOVER])
def test_r78_submissions_wait_for_the_next_ring(phase: Phase) -> None:
    """G31 (S31): accepted in every state, numbered on the next ring, after its conf."""
    bench = Bench().to_ring().to_gather().to_phase(2, phase)
    effects = bench.submit(2, b"a", b"b")
    assert effects == [] and bench[2].snapshot()["queued"] == 2
    bench.until_operational()
    bench.visit(3)
    assert upcalls(bench.log[3])[-2:] == [("R", 12, 1, (1, 2, 3)), 1]
    (delivered,) = only(bench.log[3], Deliver)
    assert delivered.batch.bodies == (b"a", b"b")


def test_r78_nothing_numbered_goes_back_to_the_queue() -> None:
    """G31: a message that has a number is the recovery's business."""
    bench = Bench().to_ring()
    bench.submit(1, b"a")
    bench.visit(1)
    bench.crash(2)
    bench.lose()
    bench.reform(1, 3).until_operational()
    assert bench[1].snapshot()["queued"] == 0
    assert [d.batch.ring for d in only(bench.log[3], Deliver)] == [OLD]


def test_r79_back_pressure_between_two_marks() -> None:
    """App. A: refused from max_queue on, accepted again from min_queue."""
    bench = Bench(max_queue=4, min_queue=2, packing=False, each_time=1).to_ring()
    bench.submit(1, b"1", b"2", b"3", b"4")
    assert not bench[1].ready
    assert drops(bench.submit(1, b"5")) == ["a submission over the bounds"]
    bench.visit(1)
    assert not bench[1].ready  # three are left
    bench.visit(1)
    assert bench[1].ready
    assert (PAPER.max_queue, PAPER.min_queue) == (300, 250)


def test_r80_two_levels_serve_all() -> None:
    """§4.6, §1.2: fifo, causal and reliable are served, and reported, as agreed."""
    bench = Bench(packing=False).to_ring()
    for name in ("reliable", "fifo", "causal", "agreed", "safe"):
        bench.submit(1, name.encode(), level=level_of(name))
    bench.rotate(4)
    reported = [d.batch.level for d in only(bench.log[2], Deliver)]
    assert reported == [Level.AGREED] * 4 + [Level.SAFE]
    with pytest.raises(ValueError, match="'atomic' is no level: say agreed or safe"):
        level_of("atomic")


def test_r81_one_sender_keeps_its_order_across_configurations() -> None:
    """R81: a single queue; `first` numbers one sender's messages without a gap."""
    bench = Bench(packing=False, each_time=2).to_ring()
    bodies = [b"%d" % i for i in range(6)]
    bench.submit(1, *bodies[:3])
    bench.visit(1)
    bench.quiet()
    bench.to_gather()
    bench.submit(1, *bodies[3:])
    bench.until_operational()
    bench.rotate(4)
    batches = [d.batch for d in only(bench.log[2], Deliver)]
    assert [b.bodies[0] for b in batches] == bodies
    assert [b.first for b in batches] == [1, 2, 3, 4, 5, 6]
    assert len({b.ring for b in batches}) == 2


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"join_us": 150_000, "consensus_us": 150_000}, "join_us"),
        ({"token_retransmit_us": 300_000}, "token_retransmit_us"),
        ({"hold_us": 300_000}, "hold_us"),
        ({"each_time": 0}, "each_time"),
        ({"window_size": 0}, "window_size"),
        ({"min_each": 11}, "min_each"),
        ({"max_requests": 0}, "max_requests"),
        ({"max_packet": 100}, "max_packet"),
        ({"min_queue": 300}, "min_queue"),
        ({"max_queue_bytes": 1}, "max_queue_bytes"),
    ],
)
def test_r82_settings_that_cannot_work_are_refused(settings: dict[str, Any], name: str) -> None:
    """G35: the relations the protocol relies on are checked before it starts, by name."""
    with pytest.raises(ValueError, match=f"^{name} = "):
        Config(**settings)


def test_r82_a_rotation_of_holds_stays_within_token_loss() -> None:
    """R82: however many members rest the token in turn."""
    bench = Bench(6, hold_us=299_999, max_fast_rounds=3).to_ring()
    bench.lose()
    for _ in range(4):
        effects = bench.receive(1, bench.token(1), src=6)
    assert 6 * set_timers(effects)["hold"] < bench.config.token_loss_us


@pytest.mark.parametrize("max_packet", [200, 1460, 9000])
def test_r83_any_message_fits_a_frame_when_encapsulated(max_packet: int) -> None:
    """App. A: contents, header and encapsulation together stay within a packet."""
    bench = Bench(max_packet=max_packet).to_ring()
    bench.submit(1, bytes(5000), *(bytes(17) for _ in range(99)))
    for message in sent(bench.visit(1), Regular):
        assert Encapsulated(NEW, 1, message, 0).wire_bytes() <= max_packet


def test_r83_what_is_sent_again_is_never_nested() -> None:
    """R83: a ring whose first numbers were encapsulated re-forms; only real messages travel."""
    bench = Bench().to_ring()
    bench.lose()
    bench.receive(1, bench.message(1), src=3)
    bench.to_gather()
    bench.until_operational()
    bench.submit(2, b"a")
    bench.visit(2)
    bench.lose()
    bench.to_gather()
    bench.until_operational()
    inner = [e.inner for n in bench.ids for e in sent(bench.log[n], Encapsulated)]
    assert inner and {type(m) for m in inner} == {Regular}
    assert [m.ring_id for m in inner] == [OLD, NEW]


# --- flow control ---------------------------------------------------------------------------


def saturate(rotations: int, n: int = 3, **settings: Any) -> list[list[int]]:
    """New messages per visit, rotation by rotation, on a ring with more than enough to send."""
    settings = {"window_size": 20, "each_time": 10, "max_queue": 100_000, **settings}
    bench = Bench(n, packing=False, **settings).to_ring()
    for node in bench.ids:
        bench.submit(node, *(b"x" for _ in range(10 * rotations)))
    return [[len(sent(bench.visit(n), Regular)) for n in bench.ids] for _ in range(rotations)]


def test_r84_the_allowance_follows_the_others_traffic() -> None:
    """§4.4, G5 (S11): what the others sent since my last visit is taken off the window."""
    assert saturate(4) == [[10, 10, 1], [9, 10, 1], [9, 10, 1], [9, 10, 1]]


def test_r84_a_single_sender_may_use_each_time_every_visit() -> None:
    """§4.4 (E3): own messages of the last visit are in neither term."""
    bench = Bench(packing=False, window_size=20, each_time=20).to_ring()
    bench.submit(1, *(b"x" for _ in range(60)))
    assert [len(sent(bench.visit(1), Regular)) for _ in range(3)] == [20, 20, 20]


def test_r84_ext_nothing_new_is_sent_while_half_of_the_window_is_taken() -> None:
    """R84: the window of a ring on which nothing becomes safe is not filled by its own members."""
    bench = Bench().to_ring()
    bench.lose()
    for seq in range(1, 2051):
        bench.receive(2, bench.message(seq, body=bytes(40_000)), src=3)
    bench.submit(2, b"a")
    assert bench[2].old.crowded
    behind = bench.token(2, seq=2050, aru=0, aru_id=3)
    assert not sent(bench.receive(2, behind, src=1), Regular)
    for _ in range(2):  # all have it: it is safe, and released after the visit
        bench.receive(2, bench.token(2, seq=2050, aru=2050), src=1)
    assert sent(bench.receive(2, bench.token(2, seq=2050, aru=2050), src=1), Regular)


def test_r85_what_is_kept_for_the_next_visit() -> None:
    """§4.4, G5: the token's seq after my own messages, and my own retransmissions."""
    bench = Bench().to_ring()
    bench.lose()
    bench.receive(2, bench.message(1), src=3)
    bench.submit(2, b"a")
    token = bench.token(2, seq=4, aru=0, aru_id=3, rtr=(1,), retrans_round=3)
    (out,) = sent(bench.receive(2, token, src=1), Token)
    assert (bench[2].flow.last_token_seq, bench[2].flow.last_retrans, out.retrans_round) == (
        5,
        1,
        4,
    )


def test_r86_retransmissions_come_first_and_count() -> None:
    """§4.4, F4.1: they use up the allowance before anything new does."""
    bench = Bench(each_time=3, packing=False).to_ring()
    bench.lose()
    for seq in (1, 2):
        bench.receive(2, bench.message(seq), src=3)
    bench.submit(2, b"a", b"b")
    effects = bench.receive(2, bench.token(2, seq=2, aru_id=3, rtr=(1, 2)), src=1)
    assert [m.seq for m in sent(effects, Regular)] == [1, 2, 3]


def test_r87_min_each_keeps_a_late_position_from_starving() -> None:
    """G5 (S11): the literal rule, min_each 0, leaves nothing to the last one for ever."""
    assert saturate(3, min_each=0) == [[10, 10, 0]] * 3
    assert saturate(3, min_each=2) == [[10, 10, 2], [8, 10, 2], [8, 10, 2]]


def test_r88_the_same_allowance_in_recover() -> None:
    """F4.12: encapsulated frames are frames."""
    bench = Bench(each_time=2).to_ring()
    bench.lose()
    for seq in range(1, 6):
        bench.receive(2, bench.message(seq), src=3)
    bench.to_gather()
    bench.until_operational()
    per_visit: list[int] = []
    for effect in bench.log[2]:
        if isinstance(effect, Broadcast) and isinstance(effect.message, Encapsulated):
            per_visit[-1] += 1
        elif isinstance(effect, Send) and isinstance(effect.message, Token | CommitToken):
            per_visit.append(0)
    assert max(per_visit) == 2 and sum(per_visit) == 5


@pytest.mark.parametrize(("n", "min_each", "over"), [(3, 0, 0), (3, 1, 2), (7, 1, 6), (7, 0, 0)])
def test_r89_a_rotation_stays_within_the_window(n: int, min_each: int, over: int) -> None:
    """§4.4: from one of my visits to the next; min_each 1 adds one frame a late position."""
    sizes = [size for rotation in saturate(5, n, min_each=min_each) for size in rotation]
    spans = [sum(sizes[i : i + n]) for i in range(len(sizes) - n + 1)]
    assert max(spans) <= 20 + over


@pytest.mark.parametrize("n", [3, 7])
def test_r89_an_adaptive_window_stays_within_max_window(n: int) -> None:
    """R89 ext: each processor's window is its own, and the largest allowed bounds a rotation."""
    settings = {"adaptive": True, "min_window": 10, "max_window": 40, "each_time": 20}
    sizes = [size for rotation in saturate(12, n, **settings) for size in rotation]
    spans = [sum(sizes[i : i + n]) for i in range(len(sizes) - n + 1)]
    assert 20 + n - 1 < max(spans) <= 40 + n - 1


def test_r90_another_window_is_reported() -> None:
    """R90: the window is one for the whole ring; Joins carry it so that a slip is seen."""
    bench = Bench().to_ring().to_gather(2)
    join = replace(bench.join(3, (1, 2, 3)), window_size=7)
    notes = [n for n in only(bench.receive(2, join, src=3), Note) if n.what == "window"]
    assert [note.text for note in notes] == ["3 has window_size 7"]
    assert not only(bench.receive(2, bench.join(3, (1, 2, 3)), src=3), Note)


def test_r91_membership_needs_no_token() -> None:
    """§4.2: Join, Commit token, resend and Announce leave without it."""
    bench = Bench().to_ring()
    bench.lose()  # the token is nowhere
    assert sent(bench.fire(1, Timer.ANNOUNCE), Announce)
    assert sent(bench.fire(1, Timer.TOKEN_RETRANSMIT), Token)
    assert sent(bench.fire(1, Timer.TOKEN_LOSS), Join)
    bench.receive(1, bench.join(2, (1, 2, 3)), src=2)
    assert sent(bench.receive(1, bench.join(3, (1, 2, 3)), src=3), CommitToken)


# --- the idle ring --------------------------------------------------------------------------


def resting() -> Bench:
    """B3, idle for so long that the token rests at processor 1."""
    bench = Bench(hold_us=10_000, max_fast_rounds=3).to_ring()
    bench.lose()
    for _ in range(4):
        bench.receive(1, bench.token(1), src=3)
    assert bench[1].snapshot()["token_held"]
    return bench


def test_r92_an_idle_ring_slows_down() -> None:
    """App. A (S34): after max_fast_rounds visits with nothing to do the token rests."""
    bench = Bench(hold_us=10_000, max_fast_rounds=3).to_ring()
    bench.lose()
    for _ in range(3):
        assert sent(bench.receive(1, bench.token(1), src=3), Token)
    effects = bench.receive(1, bench.token(1), src=3)
    assert not only(effects, Send)
    assert set_timers(effects) == {"hold": 10_000}
    assert sent(bench.fire(1, Timer.HOLD), Token)


def test_r25_a_token_that_rests_with_the_others_is_not_sent_again() -> None:
    """R92: silence while the other two hold it for 10 ms each is no sign of loss."""
    bench = resting()
    effects = bench.fire(1, Timer.HOLD)
    assert set_timers(effects)["token_retransmit"] == bench.config.token_retransmit_us + 20_000


@pytest.mark.parametrize(
    "busy",
    [{"seq": 1, "aru": 1}, {"seq": 1, "aru": 0, "aru_id": 3}, {"seq": 1, "aru": 1, "rtr": (1,)}],
)
def test_r92_a_ring_at_work_does_not_rest(busy: dict[str, object]) -> None:
    """App. A: a new number, a lagging aru or a request starts the count over."""
    bench = Bench(hold_us=10_000, max_fast_rounds=1).to_ring()
    bench.lose()
    bench.receive(1, bench.message(1, sender=2), src=2)
    bench.receive(1, bench.token(1), src=3)
    assert sent(bench.receive(1, bench.token(1, **busy), src=3), Token)
    assert sent(bench.receive(1, bench.token(1, **busy), src=3), Token)


def test_r92_a_submission_releases_the_token_and_is_served() -> None:
    """App. A (S34): in the same visit, at once."""
    bench = resting()
    effects = bench.submit(1, b"a")
    assert sent(effects, Regular)
    assert sent(effects, Token)
    assert "hold" in cancelled(effects)
    assert upcalls(effects) == [1]


def test_r92_ext_who_has_a_message_calls_for_a_token_that_rests() -> None:
    """Beyond the paper, where the message waits for the holds of all others."""
    bench = resting()
    for _ in range(4):
        bench.receive(2, bench.token(2), src=1)
    assert sent(bench.fire(2, Timer.HOLD), Token)
    (wake,) = sent(bench.submit(2, b"a"), Announce)
    assert not sent(bench.submit(2, b"b"), Announce), "once is enough"
    effects = bench.receive(1, wake, src=2)
    assert sent(effects, Token) and "hold" in cancelled(effects)
    for _ in range(3):
        assert sent(bench.receive(1, bench.token(1), src=3), Token), "and it does not rest again"


def test_r92_ext_an_idle_ring_that_says_it_exists_does_not_wake_itself() -> None:
    """Nor does it go fast for max_fast_rounds: that was most of what an idle ring cost."""
    bench = resting()
    bench.fire(1, Timer.ANNOUNCE)
    (exists,) = sent(bench.fire(1, Timer.ANNOUNCE), Announce)
    for _ in range(4):
        bench.receive(2, bench.token(2), src=1)
    assert not sent(bench.receive(2, exists, src=1), Token)
    assert bench[2].may_rest and bench[2].token.held_token is not None


def test_r92_ext_a_token_that_rests_with_one_who_counts_ahead_is_called_for() -> None:
    """Or the message would wait for its hold: the ring of a replica with one client, whose disk
    took as long as max_fast_rounds rotations, did that for one put in twenty."""
    bench = Bench(hold_us=10_000, max_fast_rounds=5).to_ring()
    bench.lose()
    while bench[2].token.idle_visits < 4:
        bench.receive(2, bench.token(2), src=1)
    assert not bench[2].may_rest
    assert sent(bench.submit(2, b"a"), Announce)


def test_r92_ext_a_token_on_its_way_is_not_called_for() -> None:
    """Nobody rests it yet: the others are COUNTS_APART visits ahead at most."""
    bench = Bench(hold_us=10_000, max_fast_rounds=5).to_ring()
    bench.lose()
    while bench[2].token.idle_visits < 3:
        bench.receive(2, bench.token(2), src=1)
    assert not sent(bench.submit(2, b"a"), Announce)


def state_of(machine: TotemSingle) -> dict[str, dict[str, object]]:
    """All variables by group, those of the ring too; the queue of the application is the same."""
    ring = [name for kind in Ring.__mro__ for name in getattr(kind, "__slots__", ())]
    parts: dict[str, tuple[object, Iterable[str]]] = {
        "ring": (machine.old, (name for name in ring if name != "assembler")),
        "token": (machine.token, TokenState.__slots__),
        "flow": (machine.flow, FlowState.__slots__),
        "recovery": (machine.recovery, RecoveryState.__slots__),
        "gather": (machine.gather, (k for k in GatherState.__slots__ if k != "ears")),
        "own": (machine, ("phase", "my_ring_id", "my_new_memb", "ring_seen_alive")),
    }
    found = {part: {k: getattr(of, k) for k in names} for part, (of, names) in parts.items()}
    return copy.deepcopy(found)


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("miss_visits", [0, 1])
def test_r12_to_r20_a_quiet_token_passes_as_a_general_visit_would_pass_it(
    adaptive: bool, miss_visits: int
) -> None:
    """The short way and the long way leave the same effects and the same state."""
    found = []
    for way in (operational.visit, lambda p, env, t: tokens.pass_quietly(p, env, p.old, t)):
        bench = Bench(adaptive=adaptive, miss_visits=miss_visits).to_ring()
        bench.lose()
        bench.submit(2, b"a")
        seen = []
        for visit in range(6):
            seq = min(visit, 1)  # the message gets its number at the first visit
            token = bench.token(2, seq=seq, aru=seq)
            machine, env = bench[2], bench.envs[2]
            env.now_us += 100
            tokens.accept(machine, env, token)
            quiet = tokens.quiet(machine, machine.old, token)
            seen.append(quiet)
            (way if quiet else operational.visit)(machine, env, token)
            found.append((env.take(), state_of(machine)))
        assert seen == [False, False, True, True, True, True]
    half = len(found) // 2
    assert found[:half] == found[half:]


def test_r93_copies_are_refused_during_a_hold() -> None:
    """R93: my_token_seq advances at acceptance."""
    bench = resting()
    held = bench[1].token.held_token
    assert held is not None and only_dropped(bench.receive(1, held, src=3))


def test_r93_leaving_during_a_hold_drops_the_token() -> None:
    """R93: a token that outlives its ring would be served twice."""
    bench = resting()
    effects = bench.receive(1, bench.join(3, (1, 2, 3)), src=3)
    assert "hold" in cancelled(effects) and Timer.HOLD not in bench.timers[1]
    assert not bench[1].snapshot()["token_held"] and not sent(effects, Token)


@pytest.mark.parametrize("phase", [Phase.GATHER, Phase.COMMIT, Phase.RECOVER])
def test_r93_no_hold_outside_operational(phase: Phase) -> None:
    """R93, R94: neither the hold nor the announce timer is set while a ring is formed."""
    bench = Bench(hold_us=10_000, max_fast_rounds=3).to_ring().to_gather().to_phase(2, phase)
    for timer in (Timer.HOLD, Timer.ANNOUNCE):
        assert timer not in bench.timers[2]
        assert stops(bench.handle(2, TimerFired(timer)))


def test_r94_an_idle_rings_representative_announces_it() -> None:
    """G33 (S29): tokens are unicast, so nobody else would notice the ring."""
    bench = Bench().to_ring()
    effects = bench.fire(1, Timer.ANNOUNCE)
    assert sent(effects, Announce) == [Announce(OLD, 1, (1, 2, 3))]
    assert set_timers(effects) == {"announce": bench.config.announce_us}
    assert not sent(bench.fire(2, Timer.ANNOUNCE), Announce)


def test_r94_a_ring_that_sends_need_not_announce_itself() -> None:
    """G33: its messages say that it exists; after a quiet period it announces again."""
    bench = Bench().to_ring()
    bench.receive(1, bench.message(1), src=3)
    assert not sent(bench.fire(1, Timer.ANNOUNCE), Announce)
    assert sent(bench.fire(1, Timer.ANNOUNCE), Announce)


def test_r94_two_idle_rings_merge() -> None:
    """G33 (S29): one Announce is enough."""
    bench = Bench(4)
    bench.cut |= {(a, b) for a in (1, 2) for b in (3, 4)} | {(b, a) for a in (1, 2) for b in (3, 4)}
    for node in bench.ids:
        bench.start(node)
    bench.run(until=lambda: bench.phases() == [Phase.OPERATIONAL] * 4)
    bench.lose()
    bench.cut.clear()
    bench.fire(1, Timer.ANNOUNCE)
    bench.until_operational()
    assert upcalls(bench.log[4])[-2:] == [("T", 10, 3, (3, 4)), ("R", 12, 1, (1, 2, 3, 4))]


def dropped_outsider(backoff_us: int) -> Bench:
    """B3 that 9 disturbed: nobody heard a Join of it, so it was dropped and (12,1) formed."""
    bench = Bench(merge_backoff_us=backoff_us).to_ring()
    bench.lose()
    for node in bench.ids:
        bench.receive(node, Announce(ViewId(4, 9), 9), src=9)
    bench.quiet()
    for node in bench.ids:
        bench.fire(node, Timer.CONSENSUS)
    bench.until_operational()
    return bench


def test_r95_merge_backoff_is_off_by_default() -> None:
    """G29: an outsider that was dropped may disturb again at once."""
    bench = dropped_outsider(0)
    bench.receive(1, Announce(ViewId(4, 9), 9), src=9)
    assert bench[1].phase is Phase.GATHER


def test_r95_merge_backoff_leaves_a_dropped_outsider_alone_for_a_while() -> None:
    """G29, G37: foreign messages and Announces of it are ignored, for a doubling interval."""
    bench = dropped_outsider(1000)
    for frame in (Announce(ViewId(4, 9), 9), bench.message(1, ring=ViewId(4, 9))):
        assert only_dropped(bench.receive(1, frame, src=9))
    bench.now_us = 1000
    bench.receive(1, Announce(ViewId(4, 9), 9), src=9)
    assert bench[1].phase is Phase.GATHER
    bench.lose()
    for q in (2, 3):
        bench.receive(1, bench.join(q, (1, 2, 3, 9), ring_seq=12), src=q)
    bench.fire(1, Timer.CONSENSUS)
    assert bench[1].gather.shunned[9][0] == 1000 + 2000


# --- packing and fragmentation --------------------------------------------------------------


def test_r96_small_messages_share_a_frame() -> None:
    """R96 (S33): one number, one unit of allowance, delivered back to back in index order."""
    bench = Bench(each_time=1).to_ring()
    bodies = tuple(b"%02d" % i + bytes(18) for i in range(40))
    bench.submit(1, *bodies)
    (frame,) = sent(bench.visit(1), Regular)
    bench.quiet()
    (delivered,) = only(bench.log[2], Deliver)
    assert delivered.batch.bodies == frame.contents.bodies == bodies
    assert (delivered.batch.seq, delivered.batch.first) == (1, 1)


def test_r96_a_frame_has_one_level() -> None:
    """R96: only consecutive messages of the same service may share it."""
    bench = Bench().to_ring()
    for level in (Level.AGREED, Level.AGREED, Level.SAFE, Level.AGREED):
        bench.submit(1, b"x", level=level)
    frames = sent(bench.visit(1), Regular)
    assert [(f.service, len(f.contents.bodies)) for f in frames] == [
        (Level.AGREED, 2),
        (Level.SAFE, 1),
        (Level.AGREED, 1),
    ]


def test_r97_packing_never_waits() -> None:
    """R97: a lone small message leaves with the first token."""
    bench = Bench().to_ring()
    bench.submit(1, b"x")
    assert len(sent(bench.visit(1), Regular)) == 1


def large(frames: int) -> bytes:
    """A message that needs so many frames."""
    return bytes((frames - 1) * (PAPER.frame_budget - 5) + 1)


def test_r98_a_large_message_is_cut_and_counts_as_its_last_piece() -> None:
    """R98: pieces in consecutive numbers; origination and delivery belong to the last."""
    bench = Bench().to_ring()
    bench.submit(1, large(3))
    effects = bench.visit(1)
    frames = sent(effects, Regular)
    assert [(f.seq, f.contents.part, f.contents.last) for f in frames] == [
        (1, 0, False),
        (2, 1, False),
        (3, 2, True),
    ]
    assert [o.batch.seq for o in only(effects, Originate)] == [3]
    bench.quiet()
    for node in bench.ids:
        (delivered,) = only(bench.log[node], Deliver)
        assert (delivered.batch.seq, delivered.batch.bodies) == (3, (large(3),))


def test_r99_a_message_cut_off_by_a_change_is_sent_again_whole() -> None:
    """G32 (S32): receivers forget the pieces, the sender starts over at the head of the queue."""
    bench = Bench(each_time=2).to_ring()
    bench.submit(1, large(5), b"next")
    bench.visit(1)
    bench.quiet()
    bench.crash(3)
    bench.reform(1, 2).until_operational()
    assert not only(bench.log[2], Deliver)
    bench.rotate(4)
    for node in (1, 2):
        batches = [d.batch for d in only(bench.log[node], Deliver)]
        assert [(b.ring, b.first, b.bodies[0]) for b in batches] == [
            (NEW, 1, large(5)),
            (NEW, 2, b"next"),
        ]


def test_r99_a_message_whose_last_piece_was_numbered_is_left_to_recovery() -> None:
    """G32: the old ring's exchange decides; it is not sent twice."""
    bench = Bench().to_ring()
    bench.submit(1, large(3))
    bench.visit(1)
    bench.lose()  # nobody has any of it
    bench.crash(3)
    bench.reform(1, 2).until_operational()
    bench.rotate(3)
    for node in (1, 2):
        assert [d.batch.bodies for d in only(bench.log[node], Deliver)] == [(large(3),)]


def test_r99_in_the_transitional_configuration_a_torn_message_is_dropped_whole() -> None:
    """R73, G32: its first piece lies before the gap, the rest beyond it with a member gone."""
    bench = Bench().to_ring()
    bench.submit(3, large(3))
    bench.visit(3)
    pieces = [m for m in sent(bench.log[3], Regular) if m.ring_id == OLD]
    bench.lose()
    for node in (1, 2):
        for seq in (0, 2):
            bench.receive(node, pieces[seq], src=3)
    bench.crash(3)
    bench.reform(1, 2).until_operational()
    for node in (1, 2):
        assert not deliveries(bench.log[node])


def test_r100_a_safe_message_in_pieces_is_safe_as_a_whole() -> None:
    """R100: delivered when its last piece is known to be everywhere."""
    bench = Bench().to_ring()
    bench.submit(1, large(3), level=Level.SAFE)
    frames = sent(bench.visit(1), Regular)
    assert {f.service for f in frames} == {Level.SAFE}
    bench.quiet()
    assert not deliveries(bench.log[2])
    bench.rotate(2)
    assert deliveries(bench.log[1]) == [(OLD, 3)]

"""Install, the step between two configurations: dossier section 3.8, R71-R77."""

from __future__ import annotations

from driver import Bench, Phase, Timer, drops, entry, only, stops, upcalls
from msgspec.structs import replace

from ringcast.core.effects import Deliver, InstallView, Note, Reason
from ringcast.core.ids import Level, ViewId
from ringcast.protocols.totem_single.messages import CommitToken, Token

OLD, NEW, BETWEEN = ViewId(8, 1), ViewId(12, 1), ViewId(10, 1)
SAFE = Level.SAFE


def survivors(*held: tuple[int, int, int, Level], until: Phase = Phase.OPERATIONAL) -> Bench:
    """B3 holding messages ``(at, seq, sender, level)``; 3 crashes and 1 and 2 form (12,1)."""
    bench = Bench().to_ring()
    bench.lose()
    for at, seq, sender, level in held:
        bench.receive(at, bench.message(seq, sender, level), src=3 if at != 3 else 1)
    bench.crash(3)
    bench.reform(1, 2)
    if until is Phase.OPERATIONAL:
        bench.until_operational()
    else:
        bench.to_phase(1, until)
    return bench


def story(bench: Bench, node: int) -> list[object]:
    """What the application saw since ring (8,1)."""
    return upcalls(bench.log[node])[3:]


def both(seq: int, sender: int, level: Level = Level.AGREED) -> list[tuple[int, int, int, Level]]:
    return [(1, seq, sender, level), (2, seq, sender, level)]


def test_r71_the_old_configuration_is_finished_up_to_a_gap() -> None:
    """F4.14 (S26): what one member got in Gather is exchanged and delivered by all, in (8,1)."""
    bench = survivors((2, 1, 3, Level.AGREED), (2, 2, 3, Level.AGREED))
    for node in (1, 2):
        assert story(bench, node) == [1, 2, ("T", 10, 1, (1, 2)), ("R", 12, 1, (1, 2))]


def test_r71_a_safe_message_nobody_delivered_waits_for_the_transitional_one() -> None:
    """F4.14 (S15, S18, G24): and holds back what follows it."""
    bench = survivors(*both(1, 1, SAFE), *both(2, 3))
    for node in (1, 2):
        assert story(bench, node) == [("T", 10, 1, (1, 2)), 1, 2, ("R", 12, 1, (1, 2))]


def test_r71_a_safe_message_somebody_delivered_belongs_to_the_old_one() -> None:
    """F4.14 (S16): only the shared high_ring_delivered decides, not what I alone know."""
    bench = Bench().to_ring()
    bench.submit(1, b"m1", level=SAFE)
    bench.rotate(2)
    assert story(bench, 1) == [1] and story(bench, 2) == []
    bench.crash(3)
    bench.reform(1, 2).until_operational()
    for node in (1, 2):
        assert story(bench, node) == [1, ("T", 10, 1, (1, 2)), ("R", 12, 1, (1, 2))]


def test_r71_a_message_somebody_delivered_must_be_there() -> None:
    """F4.14: otherwise the recovery is broken, and the processor says so instead of going on."""
    bench = Bench().to_ring().to_gather().to_phase(2, Phase.COMMIT)
    bench.lose()
    mine, theirs = entry(), entry(5, 5)
    bench.receive(2, CommitToken(NEW, 3, (1, 2, 3), (theirs, mine, mine)), src=1)
    for _ in range(3):
        token = Token(NEW, bench[2].token.my_token_seq + 2, 0, 0, None, (), 0, False)
        effects = bench.receive(2, token, src=1)
    (reason,) = stops(effects)
    assert reason.startswith("broken invariant")
    assert not only(effects, InstallView)


def test_r72_the_transitional_configuration() -> None:
    """G23, G25, G26: new number - 2, least member; placed behind the last number delivered."""
    bench = survivors(*both(1, 3), *both(2, 1, SAFE))
    for node in (1, 2):
        change = only(bench.log[node], InstallView)[-2]
        assert change == InstallView(BETWEEN, (1, 2), True, OLD, 1, BETWEEN, change.departures)
        (gone,) = change.departures
        assert (gone.member, gone.reason) == (3, Reason.SILENT)


def test_r72_the_members_come_from_the_same_old_ring() -> None:
    """G23 (S24, S14): a restarted member is in nobody's transitional configuration."""
    bench = Bench().to_ring()
    bench.lose()
    bench.crash(1)
    bench.start(1)
    bench.until_operational()
    assert story(bench, 2) == [("T", 14, 2, (2, 3)), ("R", 16, 1, (1, 2, 3))]
    assert upcalls(bench.log[1])[3:] == [
        ("R", 12, 1, (1,)),
        ("T", 14, 1, (1,)),
        ("R", 16, 1, (1, 2, 3)),
    ]


def test_r73_beyond_a_gap_only_messages_of_those_who_came_along() -> None:
    """§4.3, Th 4.10, G24 (S17): a lost message may causally precede a lost member's later ones."""
    bench = survivors((2, 2, 3, Level.AGREED), *both(3, 2))
    for node in (1, 2):
        assert story(bench, node) == [("T", 10, 1, (1, 2)), 3, ("R", 12, 1, (1, 2))]
        assert "beyond a gap, of a member that is gone" in drops(bench.log[node])
        change = only(bench.log[node], InstallView)[-2]
        assert change.seq == 0


def test_r73_before_the_gap_everything_is_delivered() -> None:
    """G24: the figure would leave out a lost member's message; the theorems do not."""
    bench = survivors(*both(1, 3, SAFE), *both(2, 3), *both(4, 3), *both(5, 1))
    for node in (1, 2):
        assert story(bench, node) == [("T", 10, 1, (1, 2)), 1, 2, 5, ("R", 12, 1, (1, 2))]


def test_r73_deliveries_name_the_configuration_they_happen_in() -> None:
    """D5: the message keeps its ring, the view is the transitional one."""
    bench = survivors(*both(1, 1, SAFE))
    (delivery,) = only(bench.log[2], Deliver)
    assert (delivery.view, delivery.batch.ring) == (BETWEEN, OLD)
    (note,) = [n for n in only(bench.log[2], Note) if n.view == BETWEEN]
    assert (note.what, note.members) == ("deliver_memb", (1, 2))


def test_r74_the_regular_configuration_follows() -> None:
    """F4.14: its change message names the transitional one before it."""
    bench = survivors()
    assert only(bench.log[1], InstallView)[-1] == InstallView(NEW, (1, 2), False, NEW, 0, BETWEEN)


def test_r75_what_an_install_leaves_behind() -> None:
    """F4.14: a clean slate on the new ring, with the encapsulated numbers passed."""
    bench = survivors((2, 1, 3, Level.AGREED), (2, 2, 3, Level.AGREED))
    for node in (1, 2):
        machine = bench[node]
        shown = machine.snapshot()
        assert shown["memb"] == shown["proc_set"] == (1, 2)
        assert shown["fail_set"] == () and not machine.gather.my_last and not machine.gather.tried
        assert shown["ring_id"] == shown["old_ring_id"] == "(12,1)"
        assert not shown["my_received_flg"]
        assert shown["my_high_delivered"] == machine.recovery.my_install_seq == 2
        assert machine.phase is Phase.OPERATIONAL


def test_r76_what_early_installers_sent_becomes_deliverable() -> None:
    """F4.14, R65, R24: a message kept in Recover goes up right after the new configuration."""
    bench = Bench().to_ring().to_gather().to_phase(2, Phase.RECOVER)
    bench.run(until=lambda: bench[2].recovery.my_retrans_flg_count == 2)
    early = bench.message(1, sender=3, ring=NEW)
    assert not only(bench.receive(2, early, src=3), Deliver)
    token = Token(NEW, bench[2].token.my_token_seq + 2, 1, 0, 1, (), 0, False)
    effects = bench.receive(2, token, src=1)
    assert upcalls(effects) == [("T", 10, 1, (1, 2, 3)), ("R", 12, 1, (1, 2, 3)), 1]


def test_r77_the_sets_shrink_only_at_an_install() -> None:
    """§4.3, G17: a failed pass keeps its fail_set, so my_trans_memb can only shrink."""
    bench = survivors(until=Phase.RECOVER)
    assert bench[1].snapshot()["fail_set"] == (3,)
    bench.lose()
    bench.fire(1, Timer.TOKEN_LOSS)
    assert bench[1].snapshot()["fail_set"] == (3,)
    assert bench[1].snapshot()["proc_set"] == (1, 2, 3)
    assert drops(bench.receive(1, bench.join(3, (1, 2, 3), ring_seq=100), src=3))


def test_r75_numbers_beyond_32_bits_keep_their_order() -> None:
    """G28 (S35): 64-bit numbers everywhere, no wrap."""
    bench = Bench()
    for node in bench.ids:
        bench.stable[node] = {"ring_seq": 2**40}
    bench.to_ring()
    ring = ViewId(2**40 + 8, 1)
    assert bench[2].my_ring_id == ring
    at = 2**32 - 2
    for node in bench.ids:
        record = bench[node].old
        record.begin(at + 1)
        record.my_high_delivered = record.safe_bound = at
        bench[node].flow.last_token_seq = bench[node].token.last_aru_seen = at
    to, frame = bench.unicasts.pop()
    token = replace(frame.message, seq=at, aru=at)
    bench.unicasts.append((to, replace(frame, message=token)))
    bench.submit(2, *(b"%d" % i for i in range(4)))
    bench[2].new_message_queue.packing = False
    bench.rotate(3)
    for node in bench.ids:
        assert story(bench, node) == [at + 1, at + 2, at + 3, at + 4]
    bench.to_gather()
    bench.until_operational()
    assert story(bench, 3)[4:] == [
        ("T", 2**40 + 10, 1, (1, 2, 3)),
        ("R", 2**40 + 12, 1, (1, 2, 3)),
    ]

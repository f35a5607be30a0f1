"""The Commit phase: the Commit token's first rotation (§4.2, F4.8-F4.10). Rules R8, R47-R55."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.totem_single import install, recovery, tokens
from ringcast.protocols.totem_single.messages import CommitToken, Entry, Regular, RingId
from ringcast.protocols.totem_single.state import ANOTHER_LIFE, Cause, Phase, Processor, Timer

RING_SEQ = "ring_seq"
"""Stable storage: the largest my_ring_id.seq ever adopted (G7)."""


def start(p: Processor, env: Env) -> None:
    """R47, F4.8: the representative names the ring; R8: alone it is formed in one step."""
    memb = p.gather.candidates
    highest = p.gather.max_ring_seq
    if p.rider is not None:
        highest = max(highest, p.rider.ring_seq())
    ring_id = RingId(highest + 4, p.me)
    adopt(p, env, CommitToken(ring_id, 0, memb, ()))
    if memb == (p.me,):
        token = CommitToken(ring_id, 0, memb, (my_entry(p),))
        for rotation in (1, 2):
            token = recovery.commit_passed(p, env, token, rotation)
        recovery.begin(p, token.entries)
        install.install(p, env, "alone")
        return
    p.token.my_token_seq = 0
    sign(p, env, CommitToken(ring_id, 0, memb, ()))


def enter(p: Processor, env: Env, token: CommitToken) -> None:
    """R49, F4.9: sign the Commit token and pass it on."""
    adopt(p, env, token)
    p.token.my_token_seq = token.token_seq + 1
    sign(p, env, token)


def adopt(p: Processor, env: Env, token: CommitToken) -> None:
    """R49, G7, G14: this is my ring from now on, whatever becomes of it; storage says so first."""
    p.my_new_memb = token.memb
    p.my_ring_id = token.ring_id
    mine = p.gather
    mine.max_ring_seq = max(mine.max_ring_seq, token.ring_id.seq)
    mine.tried.add(mine.sets)
    mine.my_last.clear()
    mine.waiting = False
    env.persist(RING_SEQ, token.ring_id.seq)
    env.cancel_timer(Timer.JOIN)
    env.cancel_timer(Timer.CONSENSUS)
    env.note("totem R49", "commit", view=token.ring_id, members=token.memb)


def sign(p: Processor, env: Env, token: CommitToken) -> None:
    """R49: add my entry; the rotation count of this attempt starts here."""
    p.change_phase(env, Phase.COMMIT, "totem R49", f"ring {token.ring_id}")
    p.token.my_rotation_count = 0
    p.recovery.my_signature = my_entry(p)
    entries = (*token.entries, p.recovery.my_signature)
    signed = CommitToken(token.ring_id, p.token.my_token_seq, token.memb, entries, token.ride)
    tokens.forward(p, env, recovery.commit_passed(p, env, signed, 1), token.memb)


def my_entry(p: Processor) -> Entry:
    """What the others must know of my old ring."""
    old = p.old
    return Entry(
        old.ring_id,
        old.memb_crc,
        old.my_aru,
        p.recovery.my_received_flg,
        old.my_high_delivered,
        p.recovery.received_in,
        p.boot,
    )


def on_regular(p: Processor, env: Env, event: Received) -> None:
    """R51, G16: an old-ring message is kept, not delivered; R50: any other is dropped.

    MR-3 ext: with a rider it is too late: the new ring begins above what its members held when they
    signed. Whoever else is on that ring signed after it sent its last message, and holds it.
    """
    message = event.message
    assert isinstance(message, Regular)
    if message.ring_id != p.old.ring_id:
        env.drop("totem R50", "a foreign message while forming a ring")
    elif p.old.boots.get(event.src) != event.boot:
        env.drop("totem R51", ANOTHER_LIFE)
    elif p.recovery.my_received_flg:
        env.drop("totem R51", "the exchanged set is fixed")
    elif p.rider is not None:
        env.drop("multi MR-3", "of the old ring, after the clocks were collected")
    else:
        p.old.put(message.seq, message)


def on_commit_token(p: Processor, env: Env, event: Received) -> None:
    """R55, G2: the second rotation; a copy of the first must not pass, entries would be missing.

    G38 ext: nor one that an earlier life of mine signed, before it lost its storage.
    """
    token = event.message
    assert isinstance(token, CommitToken)
    if tokens.stale(p, token) or token.memb_index != len(token.memb):
        env.drop("totem R55", "a Commit token that does not fit")
        return
    if (
        token.memb != p.my_new_memb
        or token.entries[token.memb.index(p.me)] != p.recovery.my_signature
    ):
        env.drop("totem R55", "a Commit token I did not sign")
        return
    if not tokens.passed_from(token.memb.index(p.me) - 1, event):
        env.drop("totem R55", tokens.NOT_PASSED)
        return
    recovery.enter(p, env, token)


def on_token_loss(p: Processor, env: Env, event: TimerFired) -> None:
    """R54."""
    p.enter_gather(env, Cause.TOKEN_LOSS_IN_COMMIT)

"""The Gather phase: agreeing on a membership (§4.2, F4.5-F4.8). Rules R33-R46, R95."""

from __future__ import annotations

from ringcast.core.effects import Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.totem_single import commit, delivery, hearing, tokens
from ringcast.protocols.totem_single.config import LONGEST_BACKOFF
from ringcast.protocols.totem_single.messages import (
    MAX_MEMBERS,
    REACH,
    Announce,
    CommitToken,
    Join,
    Regular,
)
from ringcast.protocols.totem_single.state import ANOTHER_LIFE, Cause, Phase, Processor, Timer

HISTORY_US = 600_000_000
"""R95: how long it is remembered that a processor was dropped, and for how long it was shunned."""


def enter(p: Processor, env: Env, cause: Cause) -> None:
    """R33, F4.5: propose my two sets to everybody."""
    if p.phase is Phase.OPERATIONAL:
        p.token.my_rotation_count = 0  # G13: count per attempt
        p.gather.ears.forget(p.my_memb)
    for timer in (Timer.TOKEN_LOSS, Timer.TOKEN_RETRANSMIT, Timer.HOLD, Timer.ANNOUNCE):
        env.cancel_timer(timer)
    p.token.heard_us = -1
    p.change_phase(env, Phase.GATHER, "totem R33", cause)
    p.token.held_token = None  # R93: leaving drops a token that was resting here
    p.gather.waiting = False
    delivery.deliver_ready(env, p.old)  # R51: what was only stored in Commit
    send_join(p, env)
    env.set_timer(Timer.CONSENSUS, p.config.consensus_us)
    check_consensus(p, env)


def send_join(p: Processor, env: Env) -> None:
    """R33, R42: say what I propose, and come back to it while nothing else happens."""
    proc_set, fail_set = p.gather.sets
    rows = p.gather.ears.report(p.my_ring_id.seq) if p.config.mutual else ()
    env.broadcast(
        Join(
            p.me,
            p.my_ring_id.seq,
            proc_set,
            fail_set,
            p.token.my_rotation_count,
            p.config.window_size,
            rows,
            p.rider.join_built(env) if p.rider is not None else None,
        )
    )
    env.set_timer(Timer.JOIN, p.config.join_us)


# --- frames ---------------------------------------------------------------------------------


def on_regular(p: Processor, env: Env, event: Received) -> None:
    """R35, F4.6: an old-ring message is kept and delivered; R36: a stranger is a candidate."""
    message = event.message
    assert isinstance(message, Regular)
    if message.ring_id != p.old.ring_id:
        on_stranger(p, env, event.src)
    elif p.old.boots.get(event.src) != event.boot:
        env.drop("totem R35", ANOTHER_LIFE)
    elif p.recovery.my_received_flg:
        env.drop("totem R35", "the exchanged set is fixed")  # G16
    elif p.old.put(message.seq, message):
        delivery.deliver_ready(env, p.old)


def on_announce(p: Processor, env: Env, event: Received) -> None:
    """R36: like a foreign message."""
    announce = event.message
    assert isinstance(announce, Announce)
    heed_announce(p, env, announce)
    on_stranger(p, env, event.src)


def on_stranger(p: Processor, env: Env, src: NodeId) -> None:
    """R36: a processor I did not know of joins the candidates."""
    if src in p.gather.my_proc_set:
        env.drop("totem R36", "a foreign message of a candidate")
        return
    if keep_out(p, env, src):
        return
    p.gather.my_proc_set |= {src}
    p.enter_gather(env, Cause.FOREIGN)


def on_join(p: Processor, env: Env, event: Received) -> None:
    """R37-R41, F4.6."""
    join = event.message
    assert isinstance(join, Join)
    if join.sender_id not in p.gather.my_proc_set and keep_out(p, env, join.sender_id):
        return
    if merge(p, env, join):
        p.enter_gather(env, Cause.SETS_CHANGED)  # R41: only on change, else a livelock (G12)
    else:
        check_consensus(p, env)


def merge(p: Processor, env: Env, join: Join) -> bool:
    """R37-R40: take a Join into my sets; whether they changed. Used in every phase (R31, R52)."""
    mine = p.gather
    q = join.sender_id
    if q in mine.my_fail_set:
        env.drop("totem R39", "a Join of a failed processor")
        return False
    if join.window_size != p.config.window_size:
        env.note("totem R90", "window", f"{q} has window_size {join.window_size}")
    proc_set, fail_set = frozenset(join.proc_set), frozenset(join.fail_set)
    if len(mine.my_proc_set | proc_set) > MAX_MEMBERS:
        env.drop("totem R4", "more candidates than a ring may have")
        return False
    if proc_set <= mine.my_proc_set and fail_set <= mine.my_fail_set:
        if not p.agrees(q):  # R38 ext: a late smaller Join does not take back q's consent
            mine.my_last[q] = join
        return False  # R37, R38
    mine.my_last[q] = join
    before = (mine.my_proc_set, mine.my_fail_set)
    mine.my_proc_set |= proc_set  # R40; the sender is in its own proc_set
    if p.me in fail_set:
        mine.my_fail_set |= {q}
    elif q in p.my_memb:
        mine.my_fail_set |= fail_set
    else:
        mine.my_fail_set |= fail_set - frozenset(p.my_memb)  # an outsider cannot break my ring
    for x in sorted(mine.my_fail_set - before[1]):
        why = "it excludes me" if x == q else f"{q} excludes it"
        p.blame(x, Reason.EXCLUDED, why)
        env.note("totem R40", "exclude", f"{x}: {why}", members=(x,))
    return before != (mine.my_proc_set, mine.my_fail_set)


def raise_ring_seq(p: Processor, env: Env, join: Join) -> None:
    """R32: every Join raises the largest ring number known; R32 ext: by no more than REACH.

    One Join with the last number there is would otherwise be the end of all rings. A member that
    is further behind than that catches up with the Joins that follow.
    """
    mine, ring_seq = p.gather, join.ring_seq
    reach = mine.max_ring_seq + REACH
    if ring_seq > reach:
        text = f"{join.sender_id} claims ring number {ring_seq}"
        env.note("totem R32", "reach", text, members=(join.sender_id,))
        env.drop("totem R32", "a part of a ring number that is out of reach")
        ring_seq = reach
    mine.max_ring_seq = max(mine.max_ring_seq, ring_seq)


def keep_out(p: Processor, env: Env, src: NodeId) -> bool:
    """R43 ext, R95: whether an outsider is left alone for now, because of a bad link or backoff."""
    if len(p.gather.my_proc_set | {src}) > MAX_MEMBERS:
        env.drop("totem R4", "more candidates than a ring may have")
        return True
    if p.config.mutual:
        p.gather.ears.hear(src)
        if p.gather.ears.barred(src):
            env.drop("totem R43", "barred for a bad link")
            return True
    until, _ = p.gather.shunned.get(src, (0, 0))
    if env.now_us < until:
        env.drop("totem R95", "an outsider that was just dropped")
        return True
    return False


def heed_announce(p: Processor, env: Env, announce: Announce) -> None:
    """R43 ext: what an Announce says about links, and whom that bars."""
    if p.config.mutual:
        src, ears = announce.sender_id, p.gather.ears
        before = ears.barred(src)
        ears.hear(src)
        ears.heed(announce, p.my_memb)
        why = ears.barred(src)
        if why and not before:
            env.note("totem R43", "barred", f"{src}: {why}", members=(src,))


# --- consensus ------------------------------------------------------------------------------


def check_consensus(p: Processor, env: Env) -> None:
    """R44: everybody I propose proposes the same; then form the ring, once per pair of sets.

    R44 ext: and everybody is known to hear everybody. Otherwise some would wait for a Commit
    token that cannot come, because whoever should send it does not hear one of them agree.
    """
    mine = p.gather
    if mine.waiting or mine.candidates == (p.me,):  # R7: alone, the timeout decides
        return
    if not all(p.agrees(q) for q in mine.candidates):
        return
    if p.config.mutual and not mine.ears.mutual(mine.candidates):
        if mine.ears.unsaid(mine.candidates):
            send_join(p, env)  # the others wait to hear that I hear them all
        return
    if mine.sets in mine.tried:
        drop_slowest(p, env)  # R46
        return
    mine.tried.add(mine.sets)
    p.token.my_rotation_count = 0
    if mine.candidates[0] == p.me:
        commit.start(p, env)  # R47
        return
    mine.waiting = True
    env.cancel_timer(Timer.CONSENSUS)  # G27
    env.set_timer(Timer.TOKEN_LOSS, p.config.token_loss_us)


def drop_slowest(p: Processor, env: Env) -> None:
    """R46, G13: a membership that was tried and failed loses the member the token reached least."""
    mine = p.gather

    def rotation_count(q: NodeId) -> int:
        return p.token.my_rotation_count if q == p.me else mine.my_last[q].rotation_count

    victim = min(mine.candidates, key=rotation_count)  # min takes the first of equals
    env.note("totem R46", "victim", f"{victim} saw the fewest tokens of the last attempt")
    for q in mine.candidates if victim == p.me else (victim,):
        shun(p, env, q)  # R95 ext: else, with only unicast dead, the ring re-forms for ever
    if victim == p.me:
        mine.my_fail_set = mine.my_proc_set - {p.me}
        commit.start(p, env)  # R8
    else:
        p.blame(victim, Reason.SILENT, "it saw the fewest tokens of the last attempt")
        mine.my_fail_set |= {victim}
        p.enter_gather(env, Cause.REPEATED)


def on_join_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R42."""
    send_join(p, env)


def on_consensus_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R43, F4.7: whoever does not agree is failed; R7: alone, become a ring of one.

    R7 ext: also if others excluded me and I them (R40). Were the ring of one formed at once, two
    that exclude each other would draw each other out of it with every Join, for ever.
    """
    mine = p.gather
    if mine.candidates == (p.me,):
        commit.start(p, env)
        return
    failed = exclude(p, env) if p.config.mutual else frozenset()
    if not failed:
        failed = frozenset(q for q in mine.candidates if not p.agrees(q))
        for q in sorted(failed):
            p.blame(q, Reason.SILENT, "the Consensus timeout: it did not agree in time")
            env.note("totem R43", "exclude", f"{q}: did not agree in time", members=(q,))
    for q in sorted(failed.difference(p.my_memb)):
        shun(p, env, q)
    mine.my_last.clear()
    mine.ears.turn()
    mine.my_fail_set |= failed
    p.enter_gather(env, Cause.CONSENSUS_TIMEOUT)
    if mine.candidates == (p.me,):
        commit.start(p, env)  # R8: nobody is left to wait for


def exclude(p: Processor, env: Env) -> frozenset[NodeId]:
    """R43 ext: everybody outside my group of processors that all hear each other."""
    rows = p.gather.ears.rows()
    groups = hearing.groups(p.gather.candidates, rows)
    mine = next(group for group in groups if p.me in group)
    for group in groups:
        links = {link for a in mine for b in group for link in hearing.broken(a, b, rows)}
        for q in group if group is not mine else ():
            own = [link for link in links if q in link]
            why = hearing.reason(own or links) if q in rows else "nothing was heard from it"
            p.blame(q, Reason.BAD_LINK if q in rows else Reason.SILENT, why)
            env.note("totem R43", "exclude", f"{q}: {why}", members=(q,))
    return frozenset(p.gather.candidates).difference(mine)


def shun(p: Processor, env: Env, q: NodeId) -> None:
    """R95: after q was dropped, leave it alone for a doubling interval."""
    if p.config.merge_backoff_us:
        shunned = p.gather.shunned
        for gone in [x for x, (until, _) in shunned.items() if until < env.now_us - HISTORY_US]:
            del shunned[gone]
        _, interval = shunned.get(q, (0, p.config.merge_backoff_us))
        longest = LONGEST_BACKOFF * p.config.merge_backoff_us
        shunned[q] = (env.now_us + interval, min(2 * interval, longest))


def on_token_loss(p: Processor, env: Env, event: TimerFired) -> None:
    """R45, F4.7: consensus was reached and no Commit token came; give this attempt up (G15)."""
    p.gather.given_up.add(p.gather.sets)
    p.gather.my_last.clear()
    p.enter_gather(env, Cause.TOKEN_LOSS_IN_GATHER)


def on_commit_token(p: Processor, env: Env, event: Received) -> None:
    """R48, F4.7: the representative forms the ring I propose, and it is my turn to sign."""
    mine = p.gather
    token = event.message
    assert isinstance(token, CommitToken)
    if (
        p.my_ring_id.seq < token.ring_id.seq <= mine.max_ring_seq + REACH
        and token.token_seq < len(mine.candidates)
        and token.memb == mine.candidates
        and token.memb_index < len(token.memb)
        and token.memb[token.memb_index] == p.me
        and mine.sets not in mine.given_up
    ):
        if tokens.passed_from(token.memb_index - 1, event):  # R20 ext
            commit.enter(p, env, token)
        else:
            env.drop("totem R48", tokens.NOT_PASSED)
    else:
        env.drop("totem R48", "a Commit token that does not fit")

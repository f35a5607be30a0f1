"""The Recover phase: the members exchange what they hold of their old rings (§4.3, F4.11-F4.13).

Rules R56-R70. Old-ring messages travel encapsulated in messages of the new ring, under the same
token, requests and flow control.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.blocks.receive_window import MAX_BYTES
from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.totem_single import install, tokens
from ringcast.protocols.totem_single.messages import (
    CommitToken,
    Encapsulated,
    Entry,
    Join,
    Regular,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import ANOTHER_LIFE, Cause, Phase, Processor, Timer


def enter(p: Processor, env: Env, token: CommitToken) -> None:
    """R56, F4.11: the second rotation of the Commit token shows me everybody's entry."""
    tokens.accept(p, env, token)
    p.change_phase(env, Phase.RECOVER, "totem R56", f"ring {token.ring_id}")
    passed_on = replace(token, token_seq=p.token.my_token_seq)
    tokens.forward(p, env, commit_passed(p, env, passed_on, 2), token.memb)
    if not begin(p, token.entries):
        env.stop("broken invariant: received flags of different recoveries (totem G17)")


def commit_passed(p: Processor, env: Env, token: CommitToken, rotation: int) -> CommitToken:
    """R49, R56: the Commit token as it leaves me, with the ride that the rider gives it."""
    if p.rider is None:
        return token
    if rotation == 1:
        old = p.old
        waiting = (frame for seq, frame in old.store.items() if seq > old.my_high_delivered)
        p.rider.messages_held(frame for frame in waiting if type(frame) is Regular)
    return replace(token, ride=p.rider.commit_token_passed(env, token, rotation))


def begin(p: Processor, entries: tuple[Entry, ...]) -> bool:
    """R56-R58: an empty record for the new ring, and what must be exchanged of the old one.

    False if members whose exchange is complete completed it in different rings (G17).
    """
    old_rings = len({e.my_old_ring_id for e in entries})
    room = (1 + old_rings) * MAX_BYTES  # all that the members may hold of their old rings
    boots = {q: e.boot for q, e in zip(p.my_new_memb, entries, strict=True)}
    p.new = Ring(p.me, p.my_ring_id, boots, p.config.max_message, room, p.rider)
    p.token.restart()
    p.flow.restart()
    exchange = p.recovery
    exchange.restart()
    by_id = dict(zip(p.my_new_memb, entries, strict=True))
    old = (p.old.ring_id, p.old.memb_crc)
    mine = {
        q: e
        for q, e in by_id.items()
        if (e.my_old_ring_id, e.old_memb_crc) == old and q in p.old.memb
    }
    exchange.my_trans_memb = tuple(sorted(mine))  # G23: from the same old *ring*
    if all(e.my_received_flg for e in mine.values()):  # R58: keep all from the earlier pass
        return len({e.received_in for e in mine.values()}) == 1
    exchange.my_received_flg = False  # R57
    exchange.received_in = None
    exchange.my_deliver_memb = exchange.my_trans_memb
    exchange.low_ring_aru = min(e.old_ring_my_aru for e in mine.values())
    exchange.high_ring_delivered = max(e.my_high_delivered for e in mine.values())
    store = p.old.store
    exchange.retrans_message_queue = {
        seq: message
        for seq in sorted(store)
        if seq > exchange.low_ring_aru and type(message := store[seq]) is Regular
    }
    return True


def on_commit_token(p: Processor, env: Env, event: Received) -> None:
    """R59, F4.13: back at the representative, the Commit token becomes the regular token."""
    commit_token = event.message
    assert isinstance(commit_token, CommitToken)
    if p.me != p.my_ring_id.rep or tokens.stale(p, commit_token):
        env.drop("totem R59", "a Commit token in Recover")
        return
    if not tokens.passed_on(p.new, event):
        env.drop("totem R59", tokens.NOT_PASSED)
        return
    tokens.accept(p, env, commit_token)
    p.recovery.i_set_flg = bool(p.recovery.retrans_message_queue)
    token = Token(p.my_ring_id, p.token.my_token_seq, 0, 0, None, (), 0, p.recovery.i_set_flg)
    tokens.forward(p, env, token, p.my_new_memb)


def on_token(p: Processor, env: Env, event: Received) -> None:
    """R60-R64, F4.12: the token collects the exchange; then everybody installs."""
    token = tokens.take(p, env, p.new, event)
    if token is None:
        return
    memb = p.my_new_memb
    passed_on = tokens.visit(p, env, p.new, token, send_old)
    if passed_on is None:
        return
    passed_on = mark(p, passed_on)
    exchange = p.recovery
    if exchange.my_retrans_flg_count >= 2 and not exchange.my_received_flg:
        complete_exchange(p)
    # R64: forwarded with a full aru at this visit and the one before (safe_bound is the minimum).
    done = exchange.my_retrans_flg_count >= 3 and p.new.safe_bound >= exchange.my_install_seq
    if done and not install.install(p, env, "recovered"):
        return
    tokens.forward(p, env, passed_on, memb)
    if p.phase is Phase.OPERATIONAL:
        install.resume(p, env)  # R76


def send_old(p: Processor, env: Env, seq: int, allowed: int) -> int:
    """R60, R88: what I hold of the old ring and nobody has sent yet, encapsulated."""
    queue = p.recovery.retrans_message_queue
    rank = p.my_new_memb.index(p.me)
    sent = 0
    while sent < allowed and queue:
        old_seq = next(iter(queue))
        sent += 1
        message = Encapsulated(p.my_ring_id, seq + sent, queue.pop(old_seq), rank)
        p.new.keep(message.seq, message)
        env.broadcast(message)
    return sent


def mark(p: Processor, token: Token) -> Token:
    """R61, R62: the flag says that somebody still has to send; count the visits without it."""
    exchange, flag = p.recovery, token.retrans_flg
    if exchange.retrans_message_queue and not flag:
        flag = exchange.i_set_flg = True
    elif not exchange.retrans_message_queue and flag and exchange.i_set_flg:
        flag = exchange.i_set_flg = False
    exchange.my_retrans_flg_count = 0 if flag else exchange.my_retrans_flg_count + 1
    if exchange.my_retrans_flg_count == 2:
        exchange.my_install_seq = token.seq
    if flag is token.retrans_flg:
        return token
    return Token(
        token.ring_id,
        token.token_seq,
        token.seq,
        token.aru,
        token.aru_id,
        token.rtr,
        token.retrans_round,
        flag,
    )


def complete_exchange(p: Processor) -> None:
    """R63, G20: I hold all that was exchanged, no later than anybody installs."""
    exchange = p.recovery
    if p.new.my_aru >= exchange.my_install_seq:
        exchange.my_received_flg = True
        exchange.received_in = p.my_ring_id
        exchange.my_deliver_memb = exchange.my_trans_memb


def on_regular(p: Processor, env: Env, event: Received) -> None:
    """R65: an early installer's message waits."""
    message = event.message
    assert isinstance(message, Regular)
    keep(p, env, event, message)


def keep(p: Processor, env: Env, event: Received, message: Regular | Encapsulated) -> bool:
    """R65: a message of the ring being formed is kept under its number there; R67: an old-ring
    message directly is too late."""
    if message.ring_id != p.my_ring_id:
        env.drop("totem R67", "not of the ring being formed")
        return False
    if p.new.boots.get(event.src) != event.boot:
        env.drop("totem R65", ANOTHER_LIFE)
        return False
    env.set_timer(Timer.TOKEN_LOSS, p.config.token_loss_us)
    p.new.put(message.seq, message)
    return True


def on_encapsulated(p: Processor, env: Env, event: Received) -> None:
    """R65, R66: keep it under its new number, and what it carries if that is of my old ring.

    G38 ext: of my ring, and not of another one of its name.
    """
    message = event.message
    assert isinstance(message, Encapsulated)
    if not keep(p, env, event, message) or p.recovery.my_received_flg:
        return
    inner, memb = message.inner, p.my_new_memb
    mine = message.rank < len(memb) and memb[message.rank] in p.recovery.my_trans_memb
    if mine and inner.ring_id == p.old.ring_id:
        p.old.put(inner.seq, inner)
        p.recovery.retrans_message_queue.pop(inner.seq, None)


def on_join(p: Processor, env: Env, event: Received) -> None:
    """R52, R68, G1: a member that abandoned this ring sends Joins that carry its number.

    The same in Commit and in Recover. R68 ext: all members had my sets when this ring was formed,
    and sets only grow until a ring is installed; so one that takes a processor back has installed
    this ring. Were my sets kept, I would exclude whoever this ring is about to merge with.
    """
    join = event.message
    assert isinstance(join, Join)
    if join.sender_id in p.my_new_memb and join.ring_seq >= p.my_ring_id.seq:
        if not p.gather.my_fail_set.issubset(join.fail_set):
            env.note("totem R68", "installed", f"by {join.sender_id}, as its Join shows")
            install.end_attempt(p, p.old.memb)
        p.merge_join(env, join)
        p.enter_gather(env, Cause.JOIN)
    else:
        env.drop("totem R52", "a Join while forming a ring")


def on_token_loss(p: Processor, env: Env, event: TimerFired) -> None:
    """R69."""
    p.enter_gather(env, Cause.TOKEN_LOSS_IN_RECOVER)


def abandon(p: Processor) -> None:
    """R69, F4.13: the new ring is gone; every old-ring message obtained stays."""
    p.new = p.old
    p.recovery.retrans_message_queue = {}

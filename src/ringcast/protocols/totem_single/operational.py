"""The Operational phase: messages are ordered and delivered (§4.1, F4.1, F4.2, F4.4).

Rules R9-R32 and R92-R95 of the dossier. The only way out is ``enter_gather``.
"""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, Submitted, TimerFired
from ringcast.protocols.totem_single import delivery, gather, sending, tokens
from ringcast.protocols.totem_single.messages import (
    Announce,
    Encapsulated,
    Join,
    Regular,
    Token,
)
from ringcast.protocols.totem_single.state import ANOTHER_LIFE, Cause, Phase, Processor, Timer

# --- the token ------------------------------------------------------------------------------


def on_token(p: Processor, env: Env, event: Received) -> None:
    """R10-R21, F4.1: a regular token arrives."""
    token = tokens.take(p, env, p.old, event)
    if token is None:
        return
    if not tokens.quiet(p, p.old, token):
        p.token.idle_visits = 0
        visit(p, env, token)
        return
    p.token.idle_visits += 1
    if p.may_rest:
        p.token.held_token = token
        env.cancel_timer(Timer.TOKEN_RETRANSMIT)
        env.set_timer(Timer.HOLD, hold_us(p))
    else:
        tokens.pass_quietly(p, env, p.old, token)


def visit(p: Processor, env: Env, token: Token) -> None:
    """R12-R21: retransmit, send, pass the token on, and only then deliver and release."""
    ring = p.old
    passed_on = tokens.visit(p, env, ring, token, sending.number_new)
    if passed_on is None:
        return
    tokens.forward(p, env, passed_on, ring.memb)
    delivery.deliver_ready(env, ring)  # R21
    ring.release_safe()


def hold_us(p: Processor) -> int:
    """R82: a rotation of holds must stay well within token_loss, however many members."""
    return min(p.config.hold_us, p.config.token_loss_us // (3 * len(p.my_memb)))


def on_hold(p: Processor, env: Env, event: TimerFired) -> None:
    """R92: the rest is over. The token will rest with the others too, and is no less there then:
    R25 waits for that, or an idle ring of five would send every token twice."""
    release_token(p, env)
    if p.phase is Phase.OPERATIONAL:
        rests_us = (len(p.my_memb) - 1) * hold_us(p)
        env.set_timer(Timer.TOKEN_RETRANSMIT, p.config.token_retransmit_us + rests_us)


def release_token(p: Processor, env: Env) -> None:
    """R92: serve the visit that was put off, then the token goes on."""
    mine = p.token
    token, mine.held_token = mine.held_token, None
    if token is not None:
        env.cancel_timer(Timer.HOLD)
        visit(p, env, token)


# --- messages -------------------------------------------------------------------------------


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """R78; R9: alone, a message is numbered and delivered at once; R92: it ends a hold.

    R92 ext: where the token rests with somebody else it is called for by an Announce, or the
    message would wait for the holds of all others. Should the call be lost, that is what it does.
    """
    if sending.queue(p, env, event):
        serve(p, env)


def serve(p: Processor, env: Env) -> None:
    """R9, R92: something has come into the queue."""
    if len(p.my_memb) == 1:
        sending.serve_alone(p, env)
    elif p.token.held_token is not None:
        release_token(p, env)
    elif p.may_rest_elsewhere:
        p.token.idle_visits = 0
        announce(p, env, calls=True)


def on_regular(p: Processor, env: Env, event: Received) -> None:
    """R22-R24, F4.2: a message of my ring is stored and delivered; R28, R29: of another ring."""
    message = event.message
    assert isinstance(message, Regular)
    if message.ring_id != p.my_ring_id:
        on_other_ring(p, env, event.src, message.ring_id.seq)
        return
    if p.old.boots.get(event.src) != event.boot:
        env.drop("totem R22", ANOTHER_LIFE)
        return
    if token_moved_on(p, env, message) and p.old.put(message.seq, message):
        delivery.deliver_ready(env, p.old)


def on_encapsulated(p: Processor, env: Env, event: Received) -> None:
    """R22: still wanted by a member that lags; R28: of another ring it is not foreign."""
    message = event.message
    assert isinstance(message, Encapsulated)
    if message.ring_id != p.my_ring_id:
        env.drop("totem R28", "another ring's recovery")
        return
    if p.old.boots.get(event.src) != event.boot:
        env.drop("totem R22", ANOTHER_LIFE)
        return
    if token_moved_on(p, env, message):
        p.old.put(message.seq, message)


def token_moved_on(p: Processor, env: Env, message: Regular | Encapsulated) -> bool:
    """R23, G6: a frame of my ring shows that the ring lives; whether it is worth keeping.

    Only a number above those of the token I sent proves that somebody after me has held it.
    Each timer is touched by the first of the frames that say the same: 1 us a frame less.
    """
    p.ring_seen_alive = True
    mine = p.token
    if mine.heard_us != env.now_us:
        mine.heard_us = env.now_us
        env.set_timer(Timer.TOKEN_LOSS, p.config.token_loss_us)
    if mine.token_away and message.seq > p.flow.last_token_seq:
        mine.token_away = False
        env.cancel_timer(Timer.TOKEN_RETRANSMIT)
    return message.seq > p.old.released


# --- membership events ----------------------------------------------------------------------


def on_other_ring(p: Processor, env: Env, src: NodeId, ring_seq: int) -> None:
    """R28, R29, G18, G19: what counts is who put the frame on the wire, and how new its ring is."""
    if src in p.my_memb:
        if ring_seq < p.my_ring_id.seq:
            env.drop("totem R29", "a member's frame of an older ring")
        else:
            p.enter_gather(env, Cause.MEMBER_MOVED)
        return
    if gather.keep_out(p, env, src):
        return
    p.gather.my_proc_set |= {src}
    p.enter_gather(env, Cause.FOREIGN)


def on_announce(p: Processor, env: Env, event: Received) -> None:
    """R28, R94: another ring exists; R92 ext: on mine somebody calls for a token that rests."""
    heard = event.message
    assert isinstance(heard, Announce)
    gather.heed_announce(p, env, heard)
    if heard.ring_id == p.my_ring_id:
        if p.old.boots.get(event.src) != event.boot:
            env.drop("totem R94", ANOTHER_LIFE)
            return
        p.ring_seen_alive = True
        if heard.calls:
            p.token.idle_visits = 0
            release_token(p, env)
        return
    on_other_ring(p, env, event.src, heard.ring_id.seq)


def on_join(p: Processor, env: Env, event: Received) -> None:
    """R30, R31, G10: ignore what is late or excludes me; any other Join ends this ring.

    R30 ext: an outsider that has given up a member of my ring cannot agree with us before it
    has a ring of its own; its Join would end ours for nothing, and again and again.
    """
    join = event.message
    assert isinstance(join, Join)
    if p.me in join.fail_set:
        env.drop("totem R30", "a Join that excludes me")
        return
    if join.sender_id in p.gather.my_proc_set and join.ring_seq < p.my_ring_id.seq:
        env.drop("totem R30", "a late Join")
        return
    if join.sender_id not in p.my_memb and not p.gather.my_proc_set.isdisjoint(join.fail_set):
        env.drop("totem R30", "an outsider's Join that excludes a member of mine")
        return
    if join.sender_id not in p.my_memb and gather.keep_out(p, env, join.sender_id):
        return
    gather.merge(p, env, join)
    p.enter_gather(env, Cause.JOIN)


def on_token_loss(p: Processor, env: Env, event: TimerFired) -> None:
    """R26."""
    p.enter_gather(env, Cause.TOKEN_LOSS)


def on_announce_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R94, G33: an idle ring's representative says that it exists.

    Besides, whoever knows of a bad link announces itself, so that its mending is noticed.
    """
    apart = p.gather.ears.apart
    if (p.me == p.my_memb[0] and not p.ring_seen_alive) or apart:
        announce(p, env)
    p.ring_seen_alive = False
    p.gather.ears.turn()
    env.set_timer(Timer.ANNOUNCE, p.config.announce_us)


def announce(p: Processor, env: Env, calls: bool = False) -> None:
    """R94: my ring exists, and this is what I know of links."""
    heard = tuple(node for node in p.gather.ears.lately if node not in p.my_memb)
    env.broadcast(Announce(p.my_ring_id, p.me, p.my_memb, heard, p.gather.ears.apart, calls))

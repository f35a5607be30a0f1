"""The token: hearing ACKs, issuing numbers, passing on and watching over it (R5 to R8, R12, R17 to
R19).
"""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.rbp import delivery, losses
from ringcast.protocols.rbp.epochs import Ids, Trouble
from ringcast.protocols.rbp.messages import Ack
from ringcast.protocols.rbp.state import Phase, Processor, Timer


def on_ack(p: Processor, env: Env, event: Received) -> None:
    """R16: the tag first, before any other effect (G15); it may tell that another list is in force.
    F5, I5: of a frozen epoch nothing counts any more."""
    ack = event.message
    assert isinstance(ack, Ack)
    if p.current is None or ack.epoch != p.current.epoch:
        p.chooser.other_epoch(env, event.src, ack.epoch)
    current = p.current
    if current is None or ack.epoch != current.epoch:
        env.drop("rbp R16", "an ACK of another epoch")
    elif p.phase is not Phase.MEMBER:
        env.drop("rbp F5", "an ACK while the epoch is frozen")
    elif ack.issuer not in current.core or current.after(ack.issuer) != ack.next:
        env.drop("rbp R5", "an ACK of a stranger")
    elif ack.number <= p.log.held or ack.number in p.ring.acks:
        known(p, env, event.src, ack)
    else:
        hear(p, env, ack)


def known(p: Processor, env: Env, src: int, ack: Ack) -> None:
    """R12, G13, G17: an ACK again. If its issuer repeats it, it has not heard what came after: the
    process it names, and the holder, tell. Nothing is issued."""
    env.drop("rbp R15", "a known ACK")
    if src != ack.issuer or p.ring.seen <= ack.number:
        return
    last, told_us = p.ring.answered.get(src, (0, 0))
    recently = ack.number <= last and env.now_us - told_us < p.config.token_us // 2
    if (p.me == ack.next or p.next == p.me) and not recently:
        p.ring.answered[src] = (ack.number, env.now_us)
        for number in sorted({ack.number + 1, p.ring.seen}):
            following = p.ring.acks.get(number)
            if following is not None:
                env.send(src, following)


def hear(p: Processor, env: Env, ack: Ack) -> None:
    """R9: a new number: file it, ask for what is missing, deliver, and issue if it is our turn."""
    ring = p.ring
    if ack.number > ring.seen:
        progress(p, env, ack)
    if not p.log.file(ack.entry):
        env.drop("rbp R9", "an ACK far ahead")
        return
    ring.acks[ack.number] = ack
    for each in ack.ids:
        if each.source == p.me:
            p.sending.named = max(p.sending.named, each.last)
    if p.log.advance():
        p.asking.tries = 0
    losses.look(p, env)
    delivery.deliver(p, env)
    go_on(p, env)


def progress(p: Processor, env: Env, ack: Ack) -> None:
    """R18: a number higher than any seen in this epoch: only that, and an installation, counts."""
    p.ring.seen = ack.number
    watch(p, env)
    if p.ring.issued:
        env.cancel_timer(Timer.TOKEN)  # R8: somebody went on from what we issued


def watch(p: Processor, env: Env) -> None:
    """R18: be patient from now on, not quite as long as the others."""
    if not p.alone:
        spread_us = env.rng.randrange(p.config.token_us) + 1
        env.set_timer(Timer.ACT, p.config.act_us + spread_us)


# --- issuing ------------------------------------------------------------------------------------


def go_on(p: Processor, env: Env) -> None:
    """R6, R17: while we hold the token, give numbers to what is here; pass a null on while there is
    something to deliver (G51); else let it rest."""
    while p.holds_token:
        ids = p.log.select(p.config.batch)
        if not ids and not must_pass(p):
            rest(p, env)
            return
        if p.chooser.turn(env):
            return
        issue(p, env, ids)


def must_pass(p: Processor) -> bool:
    """G51, drain: a null goes round while an entry with content is not delivered here; I12: the
    first number of an epoch is issued at once, so that all learn of it."""
    assert p.current is not None
    if p.log.last_content > p.delivered:
        return True
    return p.ring.seen == p.current.start and not p.alone


def rest(p: Processor, env: Env) -> None:
    """R17: nothing is to be done; wait before passing a null."""
    if p.chooser.turn(env) or p.alone:
        return
    if not p.ring.resting:
        p.ring.resting = True
        env.set_timer(Timer.IDLE, p.config.idle_us)


def on_idle_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R17: pass a null."""
    if p.ring.resting and p.holds_token and not p.chooser.turn(env):
        issue(p, env, p.log.select(p.config.batch))
        go_on(p, env)


def issue(p: Processor, env: Env, ids: tuple[Ids, ...]) -> None:
    """R5, R8: the next number, appended here at once; it passes the token on."""
    current, ring = p.current, p.ring
    assert current is not None
    if ring.resting:
        ring.resting = False
        env.cancel_timer(Timer.IDLE)
    number = ring.seen + 1
    ack = Ack(p.group, current.epoch, number, ids, p.me, current.after(p.me))
    ring.seen = ring.issued = number
    ring.tries = 0
    ring.acks[number] = ack
    filed = p.log.file(ack.entry) and p.log.advance()
    assert filed and p.log.held == number, "R6 lets only a process issue that holds all before"
    for each in ids:
        if each.source == p.me:
            p.sending.named = max(p.sending.named, each.last)
    if not p.alone:
        env.broadcast(ack)
        watch(p, env)
    delivery.deliver(p, env)
    if not p.alone:
        expect_answer(p, env)


def expect_answer(p: Processor, env: Env) -> None:
    """R8: how long an answer may take: longer, if the token may rest where it went."""
    rests = p.log.last_content <= p.delivered and not p.log.pool
    env.set_timer(Timer.TOKEN, p.config.token_us + (p.config.idle_us if rests else 0))


def on_token_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R8: repeat the identical frame; R19: or suspect the next one, who never answers. R21: nobody
    else is watched."""
    ring = p.ring
    if ring.seen != ring.issued:
        return
    ring.tries += 1
    ack = ring.acks[ring.issued]
    if ring.tries > p.config.retries:
        env.note("rbp R19", "suspect", f"{ack.next} after {ring.tries} tries", members=(ack.next,))
        p.chooser.trouble(env, Trouble.NEXT, ack.next)
        return
    env.broadcast(ack)
    expect_answer(p, env)


def on_act_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R18, R22: nothing goes on, whoever is to blame. D5: this watch is the log's, not the
    detector's: it is about numbers, and a token may rest longer than a member may be silent."""
    env.note("rbp R18", "stall", f"K={p.ring.seen}")
    p.chooser.trouble(env, Trouble.STALL, None)

"""Losses: asking for what is missing, and answering (R9 to R11, R20)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.rbp import delivery, ordering
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Ids, Key, Trouble
from ringcast.protocols.rbp.messages import Ask
from ringcast.protocols.rbp.state import Phase, Processor, Timer

ASKED_AT_ONCE = 64
"""Numbers, and bodies, that one request asks for."""


def lacks(p: Processor) -> bool:
    """Whether something is missing that the ring or a recovery has told us of."""
    return p.log.held < max(p.ring.seen, p.asking.to)


def look(p: Processor, env: Env) -> None:
    """R9: after a short random time ask for what is missing; R10: at once, if the token waits for
    us."""
    asking = p.asking
    if not lacks(p):
        if asking.armed:
            asking.armed = False
            env.cancel_timer(Timer.NACK)
        return
    if p.phase is Phase.MEMBER and p.next == p.me and asking.tries == 0:
        ask(p, env)
    elif not asking.armed:
        arm(p, env, env.rng.randrange(p.config.nack_us) + 1)


def arm(p: Processor, env: Env, delay_us: int) -> None:
    """Ask when that time is over."""
    p.asking.armed = True
    env.set_timer(Timer.NACK, delay_us)


def on_nack_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R9: ask again; R20: or, if the token waits for us and nobody has what it needs, say so."""
    p.asking.armed = False
    if not lacks(p):
        return
    waited = p.phase is Phase.MEMBER and p.next == p.me
    if waited and p.asking.tries > p.config.retries + 2:
        last = p.ring.acks.get(p.ring.seen)
        p.chooser.trouble(env, Trouble.ISSUER, last.issuer if last else None)
        if p.phase is not Phase.MEMBER:
            return
    ask(p, env)


def ask(p: Processor, env: Env) -> None:
    """R9, R11: ask the issuer first, then the holder, then all."""
    asking = p.asking
    wanted = request(p)
    whom = ask_whom(p)
    if wanted is not None:
        if whom is not None:
            env.send(whom, wanted)
        else:
            env.broadcast(wanted)
    asking.tries += 1
    arm(p, env, p.config.nack_us)


def ask_whom(p: Processor) -> NodeId | None:
    """G19: whoever surely has it, first; None: everybody."""
    asking = p.asking
    last = p.ring.acks.get(p.ring.seen)
    if asking.tries == 0:
        whom = asking.helper if asking.to > p.ring.seen or last is None else last.issuer
    elif asking.tries == 1:
        whom = asking.helper or p.next
    else:
        whom = None
    return whom if whom != p.me else None


def request(p: Processor) -> Ask | None:
    """What is missing, as much as one frame asks for."""
    log = p.log
    numbers = log.missing_numbers(p.ring.seen)
    first, last = numbers or (0, 0)
    last = min(last, first + ASKED_AT_ONCE - 1) if numbers else 0
    bodies = list(log.missing_bodies(ASKED_AT_ONCE))
    if not numbers and not bodies:
        return None
    epoch = p.current.epoch if p.current else NEVER
    view = bodies[0][0] if bodies else NOBODY
    return Ask(p.group, epoch, first, last, view, ranges([k for k in bodies if k[0] == view]))


def ranges(keys: list[Key]) -> tuple[Ids, ...]:
    """Ids of bodies as ranges."""
    found: list[Ids] = []
    for _, source, counter in keys:
        if found and found[-1].source == source and found[-1].last == counter - 1:
            found[-1] = Ids(source, found[-1].first, counter)
        else:
            found.append(Ids(source, counter, counter))
    return tuple(found)


def on_ask(p: Processor, env: Env, event: Received) -> None:
    """R11: answer with the original frames, unchanged (G14)."""
    asked = event.message
    assert isinstance(asked, Ask)
    src = event.src
    if asked.last and (p.current is None or asked.epoch != p.current.epoch):
        env.drop("rbp R16", "a request of another epoch")
        p.chooser.other_epoch(env, src, asked.epoch)
    elif asked.last:
        for number in range(asked.first, min(asked.last, asked.first + ASKED_AT_ONCE - 1) + 1):
            ack = p.ring.acks.get(number)
            if ack is not None:
                env.send(src, ack)
    left = ASKED_AT_ONCE
    for each in asked.bodies:
        for counter in range(each.first, min(each.last, each.first + left - 1) + 1):
            body = p.log.body((asked.view, each.source, counter))
            left -= 1
            if body is not None:
                env.send(src, body)


def recovered(p: Processor, env: Env) -> None:
    """A body came that was missing: the log may reach further."""
    if not p.log.advance():
        return
    p.asking.tries = 0
    look(p, env)
    if p.phase is Phase.MEMBER:
        delivery.deliver(p, env)
        ordering.go_on(p, env)
    p.chooser.grown(env)

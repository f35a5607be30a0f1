"""Getting what was lost (2.6): RESEND, a window of numbers, each with its own back-off (TL-21)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.total.messages import Bcast, Resend
from ringcast.protocols.total.state import Missing, Processor, Timer


def watch(p: Processor, env: Env) -> None:
    """TL-17: there is a hole; if it lasts for a tick, ask."""
    if not p.resend_on:
        p.resend_on = True
        env.set_timer(Timer.RESEND, p.config.tick_us)


def on_resend_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-17, TL-18, TL-21: ask for what is missing and was not asked for lately."""
    p.resend_on = False
    numbers, now_us = p.numbers, env.now_us
    if not numbers.first or p.office is not None:
        return
    p.lasting = numbers.top
    missing = numbers.holes(p.config.resend_window)
    asked = p.asked = {seq: p.asked[seq] for seq in missing if seq in p.asked}
    due = [seq for seq in missing if seq not in asked or asked[seq].due_us <= now_us]
    if due:
        for seq in due:
            ask(p, env, seq)
        env.send(p.sequencer, Resend(p.view, tuple(due)))
    if missing:
        p.resend_on = True
        next_us = min(each.due_us for each in asked.values())
        env.set_timer(Timer.RESEND, max(p.config.tick_us, next_us - now_us))


def ask(p: Processor, env: Env, seq: int) -> None:
    """TL-21: at first after twice the time an answer takes, then doubling, with some jitter."""
    known = p.asked.get(seq)
    if known is None:
        interval_us = max(2 * p.trip_us, p.config.resend_us)
        known = p.asked[seq] = Missing(0, interval_us, env.now_us)
    else:
        known.interval_us = 2 * known.interval_us
        known.asked_us = 0
    known.interval_us = min(known.interval_us, p.config.resend_max_us)
    known.due_us = env.now_us + known.interval_us + env.rng.randrange(known.interval_us // 4 + 1)


def arrived(p: Processor, env: Env, seq: int) -> bool:
    """TL-21: asked for once, it tells how long an answer takes; whether its place in the window is
    free now."""
    asked = p.asked.pop(seq, None)
    if asked is not None and asked.asked_us:
        trip_us = env.now_us - asked.asked_us
        p.trip_us = (7 * p.trip_us + trip_us) // 8 if p.trip_us else trip_us
    return asked is not None


def go_on(p: Processor, env: Env) -> None:
    """TL-21: when half of the window is free, ask at once for more of what has lasted for a tick;
    so the answers, and not the tick, set the pace."""
    window = p.config.resend_window
    if 2 * len(p.asked) > window:
        return
    due = [seq for seq in p.numbers.holes(window) if seq not in p.asked and seq <= p.lasting]
    if due:
        for seq in due:
            ask(p, env, seq)
        env.send(p.sequencer, Resend(p.view, tuple(due)))


def on_resend(p: Processor, env: Env, event: Received) -> None:
    """TL-19: from what is kept, to who asks; to all if two ask for the same within a while.

    A number not given out yet, or held by all, is ignored: who asks for it is mistaken.
    """
    office = p.office
    message = event.message
    assert isinstance(message, Resend)
    if office is None:
        env.drop("total TL-16", "a RESEND to one that is not the sequencer")
        return
    for seq in message.numbers:
        bcast = p.numbers.store.get(seq)
        if bcast is None or seq <= p.numbers.stable:
            env.drop("total TL-19", "a RESEND of a number that is not kept")
            continue
        answer(p, env, event.src, bcast)


def answer(p: Processor, env: Env, to: int, bcast: Bcast) -> None:
    """TL-19, A15: the second who asks within the least interval makes it everybody's."""
    office = p.office
    assert office is not None
    who, when_us = office.answered.get(bcast.seq, (to, 0))
    if who != to and env.now_us - when_us < p.config.resend_us:
        env.broadcast(bcast)
    else:
        env.send(to, bcast)
    office.answered[bcast.seq] = (to, env.now_us)

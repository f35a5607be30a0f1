"""What every member does in a view: request, receive, acknowledge (2.4, 2.5, TL-25)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, Submitted, TimerFired
from ringcast.protocols.total import delivery, repair, sequencer
from ringcast.protocols.total.messages import (
    Bcast,
    CumSeqAck,
    NewView,
    NewViewAck,
    Request,
    SeqAck,
    Status,
    Unicast,
)
from ringcast.protocols.total.state import Asked, Phase, Processor, Timer

REPEATED = 4
"""Requests repeated at a time: the sequencer numbers them in order, so the lowest count."""

# --- sending ----------------------------------------------------------------------------------


def queue(p: Processor, env: Env, event: Submitted) -> bool:
    """Accepted in every phase, up to the bounds; whether it was."""
    if not p.outbox.takes(event.bodies, p.config.max_message):
        env.drop("total TL-28", "a submission over the bounds")
        return False
    p.outbox.put(event.bodies, event.level)
    return True


def on_submitted_later(p: Processor, env: Env, event: Submitted) -> None:
    """FL-1, TL-8 ext: what comes while a view ends, or right after the start, waits."""
    queue(p, env, event)


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """TL-8, TL-10: requested at once, or numbered at once by the sequencer."""
    if queue(p, env, event):
        feed(p, env)


def feed(p: Processor, env: Env) -> None:
    """TL-10: turn what is queued into requests, as many as may be under way."""
    if p.office is not None:
        sequencer.serve(p, env)
        return
    while (asked := take(p)) is not None:
        send(p, env, asked)


def take(p: Processor) -> Asked | None:
    """The next request, if there is something to send and the window allows it."""
    if len(p.pending) - p.kept >= p.config.request_window:
        return None
    taken = p.outbox.take(p.frame_budget)
    if taken is None:
        return None
    level, contents, _ = taken
    p.requests += 1
    asked = Asked(p.requests, level, contents)
    p.pending.append(asked)
    return asked


def request_of(p: Processor, asked: Asked) -> Request:
    """TL-14: with the lowest request that is not delivered."""
    lowest = p.pending[p.kept].request
    return Request(p.view, asked.request, lowest, asked.level, asked.contents)


def send(p: Processor, env: Env, asked: Asked) -> None:
    """TL-10, TL-15: to the sequencer alone; repeated until it is delivered."""
    env.send(p.sequencer, request_of(p, asked))
    if not p.request_on:
        p.request_on = True
        p.progress_us = env.now_us
        env.set_timer(Timer.REQUEST, p.request_interval_us)


def on_request_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-15: repeat the oldest requests, less and less often while nothing moves."""
    p.request_on = False
    waiting = len(p.pending) - p.kept
    if not waiting or p.office is not None:
        return
    left_us = p.progress_us + p.request_interval_us - env.now_us
    if left_us <= 0:
        for i in range(min(REPEATED, waiting)):
            env.send(p.sequencer, request_of(p, p.pending[p.kept + i]))
        p.request_interval_us = min(2 * p.request_interval_us, p.config.request_max_us)
        left_us = p.request_interval_us
        p.progress_us = env.now_us
    p.request_on = True
    env.set_timer(Timer.REQUEST, max(left_us, p.config.tick_us))


def unicast(p: Processor, env: Env, to: int, payload: bytes) -> None:
    """TL-16: something for one member, in no order with anything. For an owner of this machine."""
    env.send(to, Unicast(p.view, payload))


def on_unicast(p: Processor, env: Env, event: Received) -> None:
    """TL-16: passed up untouched."""
    message = event.message
    assert isinstance(message, Unicast)
    env.note("total TL-16", "unicast", f"{len(message.payload)} bytes from {event.src}")
    env.up(message)


# --- receiving --------------------------------------------------------------------------------


def on_new_view(p: Processor, env: Env, event: Received) -> None:
    """TL-7, TL-9: numbers begin here; said again, it only is acknowledged again."""
    message = event.message
    assert isinstance(message, NewView)
    if event.src != p.sequencer:
        env.drop("total TL-3", "a NEW_VIEW of one that is not the sequencer")
        return
    if not p.numbers.first:
        p.numbers.learn(message.first)
        moved(p, env)
    env.send(event.src, NewViewAck(p.view))


def on_bcast(p: Processor, env: Env, event: Received) -> None:
    """TL-6, TL-9, TL-11: a numbered message arrives, from the sequencer or sent again."""
    bcast = event.message
    assert isinstance(bcast, Bcast)
    if event.src != p.sequencer:
        env.drop("total TL-3", "a BCAST of one that is not the sequencer")
        return
    numbers = p.numbers
    if not numbers.first and bcast.first:
        numbers.learn(bcast.first)
    freed = bool(p.asked) and repair.arrived(p, env, bcast.seq)
    fresh = numbers.take(bcast)
    if freed and fresh:
        repair.go_on(p, env)
    if bcast.stable > numbers.stable:
        numbers.stable = min(bcast.stable, numbers.got)
    if not fresh:
        env.drop("total TL-11", "a number that is here, or too far ahead")
        if bcast.origin == p.me and numbers.stable < bcast.seq and bcast.seq in numbers.store:
            env.send(p.sequencer, SeqAck(p.view, bcast.seq))  # TL-13 ext: my request is answered
    moved(p, env)


def moved(p: Processor, env: Env) -> None:
    """TL-12, TL-27, TL-25, TL-17: what follows when something was received or became stable."""
    numbers = p.numbers
    delivery.deliver_ready(p, env)
    numbers.release_stable()
    acknowledge(p, env)
    if numbers.top > numbers.got:
        repair.watch(p, env)
    if p.outbox and 2 * (len(p.pending) - p.kept) <= p.config.request_window:
        feed(p, env)  # when half of the window is free: requests in a row leave in one call


def on_status(p: Processor, env: Env, event: Received) -> None:
    """TL-26: what exists, and what all have; a lost suffix shows here."""
    status = event.message
    assert isinstance(status, Status)
    if event.src != p.sequencer:
        env.drop("total TL-3", "a STATUS of one that is not the sequencer")
        return
    numbers = p.numbers
    if not numbers.first:
        env.drop("total TL-6", "a STATUS before the first number is known")
        return
    numbers.top = max(numbers.top, status.last)
    numbers.stable = max(numbers.stable, min(status.stable, numbers.got))
    moved(p, env)


# --- acknowledging ----------------------------------------------------------------------------


def acknowledge(p: Processor, env: Env) -> None:
    """TL-25: after k numbers, and by and by in any case. TL-29 ext: at once if a safe message
    waits and the last word has been heard, so one such word is under way at a time."""
    numbers = p.numbers
    fresh = numbers.got - numbers.acked
    waits = numbers.delivered < numbers.got
    if fresh >= p.config.ack_every or (fresh and waits and numbers.stable >= numbers.acked):
        send_ack(p, env)
        fresh = 0
    if not p.ack_on and numbers.got > numbers.stable:
        p.ack_on = True
        p.repeat_us = 2 * p.config.status_us
        env.set_timer(Timer.ACK, p.config.ack_us if fresh else p.repeat_us)


def send_ack(p: Processor, env: Env) -> None:
    """TL-25: everything up to here is received."""
    p.numbers.acked = p.numbers.got
    env.send(p.sequencer, CumSeqAck(p.view, p.numbers.got))


def on_ack_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-25: τ_ack is over. TL-25 ext: until all is known to be stable, my word or the answer to
    it may have been lost, so it is repeated, less and less often."""
    p.ack_on = False
    numbers = p.numbers
    if p.office is not None or numbers.got <= numbers.stable:
        return
    if numbers.got == numbers.acked:
        p.repeat_us = min(2 * p.repeat_us, p.config.request_max_us)
    send_ack(p, env)
    p.ack_on = True
    env.set_timer(Timer.ACK, p.repeat_us)


def on_join_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-8 ext: nobody else was found, so serve alone."""
    p.change_phase(env, Phase.ACTIVE, "total TL-8", "nobody else is here")
    feed(p, env)

"""Bodies: from the application to everybody, until they have a number (R1 to R4)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, Submitted, TimerFired
from ringcast.protocols.rbp import losses, ordering
from ringcast.protocols.rbp.epochs import NOBODY, Data, Epoch
from ringcast.protocols.rbp.messages import Ordered
from ringcast.protocols.rbp.state import Mine, Phase, Processor, Timer

REPEATED = 16
"""R1: bodies that one turn of the timer repeats, at most."""


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """R1: queue the messages, and send what may be sent."""
    if not p.ready or not p.sending.queue.takes(event.bodies, p.config.max_message):
        env.drop("rbp R1", "a submission over the bounds")
        return
    p.sending.queue.put(event.bodies, event.level)
    if p.phase is Phase.MEMBER:
        send_new(p, env)
        ordering.go_on(p, env)


def send_new(p: Processor, env: Env) -> None:
    """R1, K6: give bodies their counters and let all have them, within the window."""
    sending, current = p.sending, p.current
    assert current is not None
    view = current.epoch.view
    others = len(current.seats) > 1
    while sending.queue and len(sending.mine) < p.config.window:
        taken = sending.queue.take(p.budget)
        assert taken is not None
        level, contents, whole = taken
        sending.counter += 1
        data = Data(p.group, view, p.me, sending.counter, level, contents)
        sending.mine.append(Mine(data, whole))
        p.log.store(data)  # S1: our own copy is handled at once
        if others:
            env.broadcast(data)
            if len(sending.mine) == 1 or sending.named == sending.counter - 1:
                env.set_timer(Timer.DATA, p.config.data_us)


def on_data_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """R1, R2: repeat what no ACK has named, under the same id (G3)."""
    late = [mine.data for mine in p.sending.mine if mine.data.counter > p.sending.named]
    for data in late[:REPEATED]:
        env.broadcast(data)
    if late:
        env.set_timer(Timer.DATA, p.config.data_us)


def on_data(p: Processor, env: Env, event: Received) -> None:
    """R3: keep a body of this view; one of an earlier view only if the log wants it (R16)."""
    data = event.message
    assert isinstance(data, Data)
    if p.log.wants(data.key):
        p.log.store(data)
        losses.recovered(p, env)
        return
    current = p.current
    view = current.epoch.view if current else NOBODY
    if current is None or data.view != view:
        env.drop("rbp R16", "a body of another view")
        if event.src == data.source:
            p.chooser.other_epoch(env, event.src, Epoch(data.view))
    elif data.source not in current.lives:
        env.drop("rbp R16", "a body of a stranger")
    elif data.counter <= p.log.named.get(data.source, 0) or p.log.number_of(data.key):
        env.drop("rbp R15", "a body that is ordered")
        if event.src == data.source:
            answer_repeat(p, env, data)
    elif data.counter > p.log.named.get(data.source, 0) + 4 * p.config.window:
        env.drop("rbp K6", "a body beyond the window")
    elif p.log.store(data):
        ordering.go_on(p, env)


def answer_repeat(p: Processor, env: Env, data: Data) -> None:
    """R4: the source has not heard that its body is ordered: the token's holder alone says so, with
    the original ACK while it is kept."""
    if not p.holds_token:
        return
    number = p.log.number_of(data.key)
    ack = p.ring.acks.get(number) if number is not None else None
    if ack is not None:
        env.send(data.source, ack)
    else:
        named = p.log.named.get(data.source, 0)
        env.send(data.source, Ordered(p.group, data.view, named))


def on_ordered(p: Processor, env: Env, event: Received) -> None:
    """R2: our bodies up to a counter have a number; they are kept until we deliver them (G20)."""
    ordered = event.message
    assert isinstance(ordered, Ordered)
    if p.current is not None and ordered.view == p.current.epoch.view:
        p.sending.named = max(p.sending.named, min(ordered.counter, p.sending.counter))


def put_back(p: Processor) -> None:
    """G43, G44: what the view did not order is sent in the next one; counters begin anew. Of a
    large message all pieces are sent again, if one is."""
    sending = p.sending
    back = [(body, mine.data.level) for mine in sending.mine for body in mine.whole]
    sending.queue.put_back(back)
    sending.mine.clear()
    sending.counter = sending.named = 0

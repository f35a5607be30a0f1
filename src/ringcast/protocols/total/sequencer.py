"""The sequencer's work: number, broadcast, and know what all have (2.4, 2.5, TL-25 to TL-28)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.total import delivery, member
from ringcast.protocols.total.config import Mode
from ringcast.protocols.total.messages import (
    Bcast,
    CumSeqAck,
    NewView,
    NewViewAck,
    Request,
    SeqAck,
    Status,
)
from ringcast.protocols.total.state import Office, Processor, Timer

# --- the view begins --------------------------------------------------------------------------


def take_office(p: Processor, env: Env) -> None:
    """TL-4, TL-5: numbers begin above all I have seen; the others are told before any of them."""
    first = max(p.highest, 0) + 1
    others = p.members[1:]
    p.office = Office(first, others, p.config)
    p.numbers.learn(first)
    if others:
        env.broadcast(NewView(p.view, first))
        env.set_timer(Timer.NEW_VIEW, p.office.interval_us)


def on_new_view_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-9: who has not said that it knows is told again, less and less often."""
    office = p.office
    if office is None or not office.unaware:
        return
    first = p.numbers.first
    for node in sorted(office.unaware):
        env.send(node, NewView(p.view, first))
    office.interval_us = min(2 * office.interval_us, p.config.request_max_us)
    env.set_timer(Timer.NEW_VIEW, office.interval_us)


def on_new_view_ack(p: Processor, env: Env, event: Received) -> None:
    """TL-9; G-5: with a quorum, numbers are given out once so many are in the view."""
    office = p.office
    assert isinstance(event.message, NewViewAck)
    if office is None:
        env.drop("total TL-16", "a NEW_VIEW_ACK to one that is not the sequencer")
        return
    office.unaware.discard(event.src)
    serve(p, env)


def may_number(p: Processor, office: Office) -> bool:
    """G-5 ext: always, or in the primary part, as soon as a quorum has installed the view."""
    return len(p.members) - len(office.unaware) >= p.config.quorum


# --- requests ---------------------------------------------------------------------------------


def on_request(p: Processor, env: Env, event: Received) -> None:
    """TL-13, TL-14: number what is new, in the order of the origin's requests."""
    office = p.office
    request = event.message
    assert isinstance(request, Request)
    if office is None:
        env.drop("total TL-16", "a REQUEST to one that is not the sequencer")
        return
    origin = event.src
    expected = office.expected.setdefault(origin, request.lowest)
    if request.request < expected:
        repeat(p, env, origin, request)
        return
    early = office.early.setdefault(origin, {})
    if request.request > expected:
        if len(early) < p.config.request_window:
            early[request.request] = request
        return
    if office.queued[origin] >= p.config.request_window:
        env.drop("total TL-28", "a REQUEST of a member that has its window waiting")
        return
    while True:  # TL-28: in all 2 * request_window datagrams of an origin, so bytes are bounded
        office.line_up(origin, request)
        expected += 1
        if (following := early.pop(expected, None)) is None:
            break
        request = following
    office.expected[origin] = expected
    serve(p, env)


def repeat(p: Processor, env: Env, origin: NodeId, request: Request) -> None:
    """TL-13: it has its number already; the origin gets the BCAST again, if it may lack it.
    TL-13 ext: it asks because it cannot deliver it yet, so it may well have it, and says so."""
    office, numbers = p.office, p.numbers
    assert office is not None
    for bcast in numbers.store.values():
        if bcast.origin == origin and bcast.request == request.request:
            if bcast.seq > max(numbers.stable, office.acked[origin], office.held.get(origin, 0)):
                env.send(origin, bcast)
            return
    env.drop("total TL-13", "a REQUEST that is done with, or waits for its number")


def serve(p: Processor, env: Env) -> None:
    """TL-13, TL-28: give out numbers while the window is open, to requests and own messages."""
    office = p.office
    assert office is not None
    numbers = p.numbers
    if not may_number(p, office):
        return
    while True:
        while (asked := member.take(p)) is not None:
            office.line_up(p.me, member.request_of(p, asked))
        if not office.waiting or numbers.got - numbers.stable >= p.config.window_size:
            break
        assign(p, env, office, *office.next_in_line())
        if not office.acked:
            numbers.stable = numbers.got  # TL-T30: alone, own count is everybody's
        delivery.deliver_ready(p, env)
        numbers.release_stable()
    if office.acked and numbers.got > office.announced and not office.status_on:
        office.status_on = True
        env.set_timer(Timer.STATUS, p.config.status_us)


def assign(p: Processor, env: Env, office: Office, origin: NodeId, request: Request) -> None:
    """TL-13: the next number is this message's."""
    numbers = p.numbers
    seq = office.next_assign
    office.next_assign = seq + 1
    first = numbers.first if p.config.first_in_bcast else 0
    level = Level.SAFE if p.config.mode is Mode.UNIFORM else request.level  # TL-29
    contents = request.contents
    bcast = Bcast(p.view, seq, first, numbers.stable, origin, request.request, level, contents)
    numbers.assign(bcast)
    bodies = office.assembler.add(origin, contents)
    if bodies is not None:
        env.originate(delivery.batch_of(bcast, level, bodies))
    if office.acked:
        env.broadcast(bcast)
        office.announced = numbers.stable


# --- acknowledgements -------------------------------------------------------------------------


def on_cum_seq_ack(p: Processor, env: Env, event: Received) -> None:
    """TL-25: what one member has; stable is what all have."""
    office = p.office
    ack = event.message
    assert isinstance(ack, CumSeqAck)
    if office is None:
        env.drop("total TL-16", "a CUM_SEQ_ACK to one that is not the sequencer")
        return
    numbers = p.numbers
    known = office.acked.get(event.src, ack.upto)
    if not known < ack.upto < office.next_assign:
        env.drop("total TL-25", "an acknowledgement that is old, or ahead of the numbers")
        if ack.upto == known <= numbers.stable:
            env.send(event.src, Status(p.view, numbers.got, numbers.stable))  # TL-26 ext
        return
    office.acked[event.src] = ack.upto
    office.status_us = p.config.status_us
    stable = min(office.acked.values())
    if stable <= numbers.stable:
        return
    waited = numbers.delivered < numbers.got
    numbers.stable = stable
    delivery.deliver_ready(p, env)
    numbers.release_stable()
    for seq in [seq for seq in office.answered if seq <= stable]:
        del office.answered[seq]
    serve(p, env)
    if waited and office.announced < stable:
        announce(p, env, office)  # a safe message waits for the word at every member


def on_seq_ack(p: Processor, env: Env, event: Received) -> None:
    """TL-13 ext: a member has this number of its own, so it has those before it too or asks for
    them by RESEND; its repeated requests need no answer up to here."""
    office = p.office
    ack = event.message
    assert isinstance(ack, SeqAck)
    if office is None:
        env.drop("total TL-16", "a SEQ_ACK to one that is not the sequencer")
    elif not office.held.get(event.src, 0) < ack.seq < office.next_assign:
        env.drop("total TL-13", "a SEQ_ACK that is old, or ahead of the numbers")
    else:
        office.held[event.src] = ack.seq


def announce(p: Processor, env: Env, office: Office) -> None:
    """TL-26: STATUS."""
    office.announced = p.numbers.stable
    env.broadcast(Status(p.view, p.numbers.got, p.numbers.stable))


def on_status_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TL-26: while somebody lacks something, or does not know that nobody does; else silence.
    TL-26 ext: less and less often while nothing is heard."""
    office = p.office
    if office is None:
        return
    office.status_on = False
    numbers = p.numbers
    if numbers.stable < numbers.got or office.announced < numbers.stable:
        announce(p, env, office)
        office.status_on = True
        env.set_timer(Timer.STATUS, office.status_us)
        office.status_us = min(2 * office.status_us, p.config.request_max_us)

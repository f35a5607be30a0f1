"""Handing messages up, by number (TL-12, TL-29)."""

from __future__ import annotations

from ringcast.core.effects import PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import Level, ViewId
from ringcast.protocols.total.messages import Bcast
from ringcast.protocols.total.state import Processor


def deliver_ready(p: Processor, env: Env) -> None:
    """TL-12, TL-29: ascending, without gap; a safe message when all have it, and it blocks.

    TL-29 ext: a message may be safe in every mode; in uniform mode the sequencer makes all so.
    """
    numbers = p.numbers
    if not numbers.first:
        return  # TL-6
    store = numbers.store
    seq = numbers.delivered + 1
    while seq <= numbers.got:
        bcast = store[seq]
        if bcast.level and seq > numbers.stable:
            break
        numbers.delivered = seq
        upcall(p, env, p.view, bcast)
        seq += 1


def upcall(p: Processor, env: Env, view: ViewId, bcast: Bcast) -> None:
    """TL-12: the messages that are whole with this frame go up together, if any."""
    bodies = p.numbers.assembler.add(bcast.origin, bcast.contents)
    if bodies is not None:
        env.deliver(view, batch_of(bcast, bcast.level, bodies))
    if bcast.origin == p.me:
        own_delivered(p, env, bcast)


def batch_of(bcast: Bcast, level: Level, bodies: tuple[bytes, ...]) -> PackedMessages:
    """The frame as the application and the trace see it."""
    return PackedMessages(bcast.view, bcast.seq, bcast.origin, level, bcast.contents.first, bodies)


def own_delivered(p: Processor, env: Env, bcast: Bcast) -> None:
    """TL-15, A19: a request ends with its delivery. TL-30 ext: parts of a large message are kept
    until it is whole, since another view would begin with it anew."""
    if p.kept == len(p.pending) or p.pending[p.kept].request != bcast.request:
        env.stop("broken invariant: a message of mine comes out of turn (total TL-14)")
        return
    p.kept += 1
    if bcast.contents.last:
        for _ in range(p.kept):
            p.pending.popleft()
        p.kept = 0
    p.progress_us = env.now_us
    p.request_interval_us = p.config.request_us
    if p.carried and bcast.request >= p.carried:
        p.carried = 0
        p.below.call(env, p.below.machine.settle)  # TL-22

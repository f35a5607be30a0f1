"""From the application's queue to numbered frames (R9, R13, R78-R81, R96-R100)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Submitted
from ringcast.protocols.totem_single import delivery
from ringcast.protocols.totem_single.messages import STAMP_BYTES, Regular
from ringcast.protocols.totem_single.state import Processor


def queue(p: Processor, env: Env, event: Submitted) -> bool:
    """R78, R79, G31: accepted in every phase, up to the bound; whether it was."""
    if not p.new_message_queue.takes(event.bodies, p.config.max_message):
        env.drop("totem R79", "a submission over the bounds")
        return False
    p.new_message_queue.put(event.bodies, event.level)
    return True


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """R78: outside Operational the message waits for the next ring."""
    queue(p, env, event)


def number_new(p: Processor, env: Env, seq: int, allowed: int) -> int:
    """R13: give numbers to queued messages, frame by frame, and broadcast them.

    R84 ext: not while half of the window is taken up by what is not safe yet, so that the
    windows of all have room for what is under way. A rider may allow less of some sorts, and may
    let others go first in the queue; of those that wait behind them a share is held.
    """
    ring, queue = p.old, p.new_message_queue
    if not queue or ring.crowded:
        return 0
    budget, rider = p.config.frame_budget, p.rider
    margins, window = None, 0
    if rider is not None:
        budget -= STAMP_BYTES
        margins = rider.margins
        window = rider.window if margins else 0
    shared = len(ring.memb) > 1  # R9 ext: alone there is nobody to send to, and no flow control
    sent = 0
    room = budget
    while sent < allowed:
        if margins and queue:
            room = budget
            if (sort := queue.next) in margins:
                room -= margins[sort]
                if not window and not queue.delays_first:
                    break
                window = max(0, window - 1)
        if (taken := queue.take(room)) is None:
            break
        level, contents, whole = taken
        sent += 1
        at, ring_id = seq + sent, ring.ring_id
        if rider is None:
            message = Regular(p.me, ring_id, at, level, contents)
            if whole:
                env.originate(delivery.batch_of(message, whole))
        else:
            stamp = rider.message_transmitted(env, ring_id, at, level, whole) if whole else None
            message = Regular(p.me, ring_id, at, rider.services[level], contents, stamp)
        ring.keep(at, message)
        if shared:
            env.broadcast(message)
            p.ring_seen_alive = True
    if queue.yields and sent == allowed:
        queue.hold()
    return sent


def serve_alone(p: Processor, env: Env) -> None:
    """R9: a ring of one needs no token; what it numbers is safe at once."""
    ring = p.old
    while number_new(p, env, ring.my_aru, p.config.each_time):
        ring.safe_bound = ring.my_aru
        delivery.deliver_ready(env, ring)
        ring.release_safe()

"""Handing messages up, in order (§4.1, R24)."""

from __future__ import annotations

from ringcast.core.effects import PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import ViewId
from ringcast.protocols.totem_single.messages import Encapsulated, Regular
from ringcast.protocols.totem_single.ring import Ring


def deliver_ready(env: Env, ring: Ring) -> None:
    """R24: ascending, without gap; a safe message only up to the safe bound, and it blocks.

    Encapsulated messages have numbers of their ring too, and are passed over.
    """
    store, rider = ring.store, ring.rider
    seq = ring.my_high_delivered + 1
    while (message := store.get(seq)) is not None:
        if type(message) is Regular:
            if message.service and seq > ring.safe_bound:
                break
            if rider is None:
                hand_up(env, ring, ring.ring_id, message)
            else:
                rider.message_ready(env, ring, ring.ring_id, message)
        seq += 1
    ring.my_high_delivered = seq - 1


def upcall(env: Env, ring: Ring, view: ViewId, message: Regular) -> None:
    """R96, R98, R100: the messages that are whole with this frame go up together, if any."""
    if ring.rider is not None:
        ring.rider.message_ready(env, ring, view, message)
        return
    hand_up(env, ring, view, message)


def hand_up(env: Env, ring: Ring, view: ViewId, message: Regular) -> None:
    """R96: whatever the frame carries."""
    bodies = ring.assembler.add(message.sender_id, message.contents)
    if bodies is not None:
        env.deliver(view, batch_of(message, bodies))


def batch_of(message: Regular, bodies: tuple[bytes, ...]) -> PackedMessages:
    """The frame as the application and the trace see it."""
    return PackedMessages(
        message.ring_id,
        message.seq,
        message.sender_id,
        message.service,
        message.contents.first,
        bodies,
    )


def undelivered(ring: Ring) -> list[Regular]:
    """S of R71: the messages above my_high_delivered, ascending."""
    above = sorted(seq for seq in ring.store if seq > ring.my_high_delivered)
    return [m for seq in above if not isinstance(m := ring.store[seq], Encapsulated)]

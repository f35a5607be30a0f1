"""Installing a ring: one atomic step between two configurations (§4.3 steps 2-6, F4.14).

Rules R71-R77. No frame and no timer comes in between; the application sees the rest of the old
configuration, the transitional one, what is delivered in it, and the new one.
"""

from __future__ import annotations

from ringcast.blocks.receive_window import MAX_BYTES
from ringcast.core.effects import InstallView
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_single import delivery, sending
from ringcast.protocols.totem_single.messages import Regular, RingId
from ringcast.protocols.totem_single.state import Phase, Processor, Timer


def install(p: Processor, env: Env, cause: str) -> bool:
    """R71-R77, F4.14; whether it could be done."""
    old = p.old
    waiting = delivery.undelivered(old)
    if not all_present(waiting, old.my_high_delivered, p.recovery.high_ring_delivered):
        env.stop("broken invariant: a message some member delivered is not here (totem R71)")
        return False
    rest = finish_old(p, env, waiting)  # R71
    transitional = RingId(p.my_ring_id.seq - 2, p.recovery.my_trans_memb[0])  # R72, G26
    env.note("totem R73", "deliver_memb", view=transitional, members=p.recovery.my_deliver_memb)
    env.install_view(
        InstallView(
            transitional,
            p.recovery.my_trans_memb,
            True,
            old.ring_id,
            old.my_high_delivered,  # G25: last number *delivered* there
            transitional,
            p.departed(),
        )
    )
    deliver_transitional(p, env, transitional, rest)  # R73
    env.install_view(  # R74
        InstallView(p.my_ring_id, p.my_new_memb, False, p.my_ring_id, 0, transitional)
    )
    become_operational(p, env, cause)  # R75
    if p.my_memb == (p.me,):
        sending.serve_alone(p, env)  # R9
    return True


def all_present(waiting: list[Regular], delivered: int, high_ring_delivered: int) -> bool:
    """R71: everything that a member of my_deliver_memb delivered in the old ring must be here."""
    wanted = max(0, high_ring_delivered - delivered)
    return len(waiting) >= wanted and all(
        message.seq == delivered + 1 + i for i, message in enumerate(waiting[:wanted])
    )


def finish_old(p: Processor, env: Env, waiting: list[Regular]) -> list[Regular]:
    """R71: deliver in the old configuration up to the first gap, or the first safe message
    that nobody delivered there; only the shared high_ring_delivered decides, never what I alone
    know to be safe. Returns the messages that remain.
    """
    old = p.old
    for at, message in enumerate(waiting):
        gap = message.seq != old.my_high_delivered + 1
        if gap or (message.service and message.seq > p.recovery.high_ring_delivered):
            return waiting[at:]
        delivery.upcall(env, old, old.ring_id, message)
        old.my_high_delivered = message.seq
    return []


def deliver_transitional(p: Processor, env: Env, transitional: RingId, rest: list[Regular]) -> None:
    """R73, G24: up to the first gap everything; beyond it only what members of my_deliver_memb
    originated, because a lost message of anybody else may causally precede the others.
    """
    expected = p.old.my_high_delivered + 1
    beyond_gap = False
    for message in rest:
        beyond_gap = beyond_gap or message.seq != expected
        expected = message.seq + 1
        if not beyond_gap or message.sender_id in p.recovery.my_deliver_memb:
            delivery.upcall(env, p.old, transitional, message)
        else:
            env.drop("totem R73", "beyond a gap, of a member that is gone")


def become_operational(p: Processor, env: Env, cause: str) -> None:
    """R75, R77: what belonged to the old ring and to the attempt ends here."""
    p.old = p.new
    p.old.max_bytes = MAX_BYTES  # the exchange is over, and will be released
    p.old.my_high_delivered = p.recovery.my_install_seq
    end_attempt(p, ())
    p.gather.settle(p.my_new_memb)
    p.recovery.settle()
    p.token.idle_visits = 0
    p.ring_seen_alive = False
    p.flow.window = p.config.window_size
    p.new_message_queue.rewind()  # R99
    if p.config.mutual:
        ears = p.gather.ears
        for q in ears.barred_ids():
            env.note("totem R43", "barred", f"{q}: {ears.barred(q)}", members=(q,))
    p.change_phase(env, Phase.OPERATIONAL, "totem R75", cause)
    env.set_timer(Timer.ANNOUNCE, p.config.announce_us)


def end_attempt(p: Processor, old: tuple[NodeId, ...]) -> None:
    """R77: whoever was failed may come to the next ring, but for members of the old ring while that
    is not finished here (G17); R43 ext: and not over a bad link."""
    excluded = p.gather.my_fail_set
    p.gather.begin_anew(p.my_new_memb, excluded.intersection(old))
    if p.config.mutual:
        p.gather.ears.settle(p.my_new_memb, excluded)


def resume(p: Processor, env: Env) -> None:
    """R76: what early installers sent on the new ring becomes deliverable."""
    delivery.deliver_ready(env, p.old)
    p.old.release_safe()

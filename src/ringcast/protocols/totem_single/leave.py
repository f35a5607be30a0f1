"""Leaving on purpose (beyond the paper, where a member that leaves is one that falls silent).

A Leave takes the place of token loss and Consensus timeout: whoever hears it has the leaver in
its fail_set at once, and the others agree without waiting. If it is lost, they notice as ever.
"""

from __future__ import annotations

from ringcast.core.effects import Reason
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received
from ringcast.protocols.totem_single import commit
from ringcast.protocols.totem_single.messages import Leave
from ringcast.protocols.totem_single.state import ANOTHER_LIFE, Cause, Phase, Processor

LEFT = "left"
"""The reason a processor stops with when it leaves."""


def on_leaving(p: Processor, env: Env, event: Leaving) -> None:
    """R26 ext: tell the others, then stop."""
    env.broadcast(Leave(p.my_ring_id, p.me))
    env.stop(LEFT)


def on_leave(p: Processor, env: Env, event: Received) -> None:
    """R26 ext: a member of the ring I am in or form is gone; do not wait for it."""
    leave = event.message
    assert isinstance(leave, Leave)
    members = p.gather.candidates if p.phase is Phase.GATHER else p.my_new_memb
    if event.src not in members or leave.ring_id not in (p.my_ring_id, p.old.ring_id):
        env.drop("totem R26", "a Leave of another ring")
        return
    if leave.ring_id == p.old.ring_id and p.old.boots.get(event.src) != event.boot:
        env.drop("totem R26", ANOTHER_LIFE)
        return
    env.note("totem R26", "leave", f"{event.src} leaves", members=(event.src,))
    p.blame(event.src, Reason.LEFT, "its Leave")
    p.gather.my_fail_set |= {event.src}
    p.enter_gather(env, Cause.LEFT)
    if p.gather.candidates == (p.me,):
        commit.start(p, env)  # R8: nobody is left to wait for

"""Catching up: a member that tokens tell too little asks for the order it missed (TF-38)."""

from __future__ import annotations

from operator import lt

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received
from ringcast.protocols.token_fd.messages import LogRep, LogReq
from ringcast.protocols.token_fd.state import Processor, Timer

MOST_RUNS = 512
"""Entries of the order in one answer, or a few more, up to the end of a decision."""


def behind(p: Processor) -> bool:
    """Whether a token waits for the order that it continues."""
    return any(token.start > p.order.length for _, token in p.tokens.waiting())


def ask(p: Processor, env: Env, src: NodeId) -> None:
    """TF-38: what comes after the order known here? The token's sender knows; later, others.

    Asked once, until there is an answer or the time for one is over.
    """
    if p.asked_after == p.order.length:
        return
    p.asked_after = p.order.length
    env.send(src, LogReq(p.group, p.order.length))
    if not p.fetching:
        p.fetching = True
        env.set_timer(Timer.FETCH, p.config.fetch_us)


def on_log_req(p: Processor, env: Env, event: Received) -> None:
    """TF-38: tell it, from there or from as far back as it is kept."""
    request = event.message
    assert isinstance(request, LogReq)
    base, adeliv = p.order.after(request.length, MOST_RUNS)
    if adeliv or sum(base) > request.length:
        env.send(event.src, LogRep(p.group, base, adeliv, tuple(p.held)))


def refuse(p: Processor, env: Env, src: NodeId) -> None:
    """TF-38: bodies that ``src`` asks for are no longer kept: an answer that tells no order, only
    where it begins here."""
    env.send(src, LogRep(p.group, tuple(p.order.old_base), (), tuple(p.held)))


def too_late(p: Processor, reply: LogRep) -> bool:
    """TF-38: whether what comes next for us, in the order or of its bodies, is not kept there."""
    if sum(reply.base) > p.order.length:
        return True
    return not reply.adeliv and any(map(lt, p.have, reply.base))


def waiting(p: Processor) -> str:
    """TF-38: why nothing is delivered here, where those that answer no longer keep what we lack and
    too few of them do answer. The others may keep it: we wait for them."""
    if not p.gone:
        return ""
    others = [str(node) for node in p.ring.ids if node != p.me and node not in p.gone]
    return (
        f"{', '.join(map(str, sorted(p.gone)))} no longer keep what comes after position "
        f"{p.order.delivered}; waiting for {', '.join(others)} (token-fd TF-38)"
    )


def lost(p: Processor, env: Env, src: NodeId) -> None:
    """TF-38: ``src`` no longer keeps what we lack.

    If f+1 members say so, one of them is correct, and the group has gone on too far without us.
    """
    env.drop("token-fd TF-38", "what we lack is no longer kept there")
    p.gone.add(src)
    if len(p.gone) > p.ring.f:
        env.stop(
            f"fell behind: the others no longer keep what comes after position "
            f"{p.order.delivered}, more than history_bytes ago (token-fd TF-38)"
        )

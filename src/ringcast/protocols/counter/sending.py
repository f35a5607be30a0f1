"""Sending: stamping with the cycle, and flow control (CB-1, CB-2, CB-28 to CB-30)."""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Submitted
from ringcast.protocols.counter import tokens
from ringcast.protocols.counter.entries import listed
from ringcast.protocols.counter.messages import Entry, Msg, Token, ranges, strange
from ringcast.protocols.counter.state import Label, Mine, Phase, Processor

EVERYBODY: dict[Level, Label] = {level: (level, ()) for level in Level}
"""What messages to all have in common; the queue packs those that share one object."""

NOT_AGAIN: Label = (Level.AGREED, ())
"""CB-43: stands in the queue for a message that keeps its number and is not sent again."""

MOST_SETS = 16
"""CB-43: sets of destinations in one cycle of a member; a token has room for so many entries."""


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """CB-1: queue the messages, and send what may be sent; a token that rests goes on."""
    if not p.ready or not p.sending.queue.takes(event.bodies, p.config.max_message):
        env.drop("counter CB-1", "a submission over the bounds")
        return
    if event.to and strange(event.to, set(p.members)):
        env.drop("counter CB-43", "a submission to strangers")
        return
    label = (event.level, event.to) if event.to else EVERYBODY[event.level]
    p.sending.queue.put(event.bodies, label)
    if p.phase is Phase.MEMBER:
        send_new(p, env)
        tokens.go_on(p, env)


def may_send(p: Processor, to: tuple[NodeId, ...]) -> bool:
    """CB-29, CB-31, CB-33: unless a receiver or the network is overloaded, we leave, or are not in
    the view of this cycle yet: our messages would be delivered in one we never saw.

    CB-43: or this cycle has as many sets of destinations as a token has room for.
    """
    sending = p.sending
    if p.leaving or sending.overloaded is not None or not in_its_view(p):
        return False
    if to and len(own := sending.own.get(p.P, {})) >= MOST_SETS and to not in own:
        return False
    return not any(not to or node in to for node in sending.local if node != p.me)


def in_its_view(p: Processor) -> bool:
    """CB-31: whether every list that is in force for our cycle has become a view of this life of
    ours. Else we may crash before that, and others deliver in a view what no member of it sent."""
    lists = p.newest.lists if p.newest is not None else ()
    waiting = any(each.no > p.ring_no and each.first <= p.P for each in lists)
    return p.view_life == p.life and not waiting


def send_new(p: Processor, env: Env) -> None:
    """CB-1, CB-2: stamp what is queued with P_x, keep it, and let everybody have it.

    CB-1 ext: no more is under way than the window allows, so that nothing grows without bound.
    """
    sending = p.sending
    queue = sending.queue
    alone = len(p.list.seats) == 1
    while queue and len(sending.mine) < p.config.window and may_send(p, queue.next[1]):
        if queue.next is NOT_AGAIN:
            queue.skip()
            continue
        taken = queue.take(p.budget)
        assert taken is not None
        label, contents, whole = taken
        level, to = label
        if contents.part == 0:
            sending.cut_since = p.P
        sending.last_k += 1
        k = sending.last_k
        msg = Msg(p.group, p.me, p.P, k, to, level, contents)
        p.holding.data[msg.key] = msg
        sending.own.setdefault(p.P, {}).setdefault(to, []).append(k)
        sending.mine[k] = Mine(label, contents.first, whole)
        if not alone:
            env.broadcast(msg)


def begin_cycle(p: Processor) -> None:
    """CB-1: a large message that began in a view that ended begins anew; its pieces are forgotten
    there by everybody."""
    assert p.held is not None
    if p.sending.cut_since < p.P and any(each.first == p.P for each in p.held.lists):
        p.sending.queue.rewind()


def own_entries(p: Processor, cycle: int) -> list[Entry]:
    """CB-23, CB-24, CB-43: our messages of a cycle, for the token: one entry for each set of
    destinations, none if there are none."""
    own = p.sending.own.pop(cycle, {})
    if not own:
        return []
    base = min(ks[0] for ks in own.values())
    return [Entry(p.me, cycle, base, ranges(ks), to, (), 0) for to, ks in own.items()]


def flow_fields(p: Processor, token: Token) -> Token:
    """CB-28: say whether our buffer is nearly full, and whether the network is overloaded."""
    flags = dict(zip(token.local, token.local_c, strict=True))
    flags = {node: c for node, c in flags.items() if token.list.seat(node)}  # CB-30
    flags.pop(p.me, None)
    if len(p.holding.data) > p.config.held_limit:
        flags[p.me] = p.P
    nodes = tuple(sorted(flags))
    return replace(
        token,
        local=nodes,
        local_c=tuple(flags[node] for node in nodes),
        global_c=p.P if listed(token.S) > p.config.listed_limit else 0,
    )


def heed(p: Processor, token: Token) -> None:
    """CB-29, A17: stop when told to, and remember the cycle; go on at a token of a later cycle.

    CB-30: who is no member has no say.
    """
    sending = p.sending
    flags = dict(zip(token.local, token.local_c, strict=True))
    for node, cycle in flags.items():
        sending.local[node] = max(cycle, sending.local.get(node, 0))
    for node, cycle in list(sending.local.items()):
        if not token.list.seat(node) or (node not in flags and token.t > cycle):
            del sending.local[node]
    if token.global_c:
        sending.overloaded = max(token.global_c, sending.overloaded or 0)
    elif sending.overloaded is not None and token.t > sending.overloaded:
        sending.overloaded = None

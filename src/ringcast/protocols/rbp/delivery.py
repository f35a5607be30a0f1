"""Delivery: how many hold an entry, and handing it up (R13, K1 to K5)."""

from __future__ import annotations

from ringcast.core.effects import PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.protocols.rbp import sending
from ringcast.protocols.rbp.config import MOST_BATCH
from ringcast.protocols.rbp.epochs import Entry
from ringcast.protocols.rbp.state import Phase, Processor


def holders(p: Processor, number: int) -> int:
    """K1: members of the ring that are proven to hold an entry, by numbers of this epoch alone
    (G36): each of the last issuers held everything before what it issued."""
    current, seen = p.current, p.ring.seen
    assert current is not None
    if seen == current.start:
        return 0
    return min(len(current.core), seen - max(number, current.start + 1) + 1)


def required(p: Processor, entry: Entry) -> int:
    """K2, K4: how many must hold an entry; all of the ring, if a message in it is a safe one."""
    assert p.current is not None
    ring = len(p.current.core)
    wanted = p.config.holders(ring)
    if wanted < ring and any(body.level is Level.SAFE for body in p.log.bodies((entry,))):
        return ring
    return wanted


def deliver(p: Processor, env: Env) -> None:
    """R13, K2: deliver in number order what is held here and by enough others. What that frees is
    used: the window for more bodies, the log for what all hold (K5)."""
    before = p.delivered
    while p.delivered < p.log.held:
        entry = p.log.entry(p.delivered + 1)
        assert entry is not None
        if holders(p, entry.number) < required(p, entry):
            break
        hand_up(p, env, entry)
    if p.delivered > before:
        discard(p)
        if p.phase is Phase.MEMBER and p.sending.queue:
            sending.send_new(p, env)


def deliver_to(p: Processor, env: Env, number: int) -> None:
    """F14, I13: what every later epoch contains is delivered in the view it belongs to."""
    while p.delivered < number:
        entry = p.log.entry(p.delivered + 1)
        assert entry is not None and entry.number <= p.log.held, "the log reaches what was decided"
        hand_up(p, env, entry)


def hand_up(p: Processor, env: Env, entry: Entry) -> None:
    """One entry: the messages that are whole with its bodies, in order. A null one is silent."""
    view = p.view
    assert view is not None
    p.delivered = entry.number
    if entry.ids and entry.tag.view != view:  # somebody has answered what is not so
        env.stop(f"broken invariant: an entry of {entry.tag} in view {view} (rbp K2)")
        return
    for at, body in enumerate(p.log.bodies((entry,))):
        bodies = p.assembler.add(body.source, body.contents)
        if body.source == p.me:
            mine = p.sending.mine
            while mine and mine[0].data.counter <= body.counter:
                mine.popleft()
        if bodies is not None:
            seq = entry.number * MOST_BATCH + at
            batch = PackedMessages(view, seq, body.source, body.level, body.contents.first, bodies)
            if body.source == p.me:
                env.originate(batch)
            env.deliver(view, batch)


def discard(p: Processor) -> None:
    """K5, K7: let go of what all of the ring hold, once it is too much. What an epoch began with is
    no exception (K1): a member may be in the ring before its log reaches so far."""
    current = p.current
    assert current is not None
    stable = p.ring.seen - len(current.core) + 1
    if stable <= current.start:
        return
    floor = p.log.floor
    p.log.release(min(p.delivered, stable), p.config.history_bytes)
    for number in range(floor + 1, p.log.floor + 1):
        if number != p.ring.seen:  # it says whose turn it is
            p.ring.acks.pop(number, None)

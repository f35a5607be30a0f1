"""A new epoch: what was decided begins, and those who missed it are told (CB-38, CB-40, CB-41)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received
from ringcast.protocols.counter import commit, losses, recovery, reformation, sending, tokens
from ringcast.protocols.counter.config import Counting
from ringcast.protocols.counter.entries import furthest
from ringcast.protocols.counter.messages import Ask, Newl, Token, Value
from ringcast.protocols.counter.state import Phase, Processor, Timer


def on_newl(p: Processor, env: Env, event: Received) -> None:
    """CB-38: news of a decision."""
    newl = event.message
    assert isinstance(newl, Newl)
    install(p, env, newl.value)


def install(p: Processor, env: Env, value: Value, issuer: bool = False) -> None:
    """CB-40: begin the epoch that was decided; CB-41: or end here, if it is without us."""
    base, first = value.base, value.first
    if p.phase is Phase.OUT:
        if p.parted is None and recovery.welcome(p, first):
            recovery.taken_in(p, env, value, issuer)
    elif first.epoch <= p.epoch:
        env.drop("counter CB-38", "a decision that is known")
    elif not p.seated(first.list) or base is None:
        recovery.excluded(p, env)
    elif left_out(p, first):
        env.drop("counter CB-38", "a decision that our vote has left behind")
    elif base.epoch < p.epoch:
        recovery.excluded(p, env)  # decided by our promise from before we knew of this epoch
    elif base.epoch > p.epoch:
        tokens.astray(p, env, f"from epoch {p.epoch} after {base.epoch} (counter CB-38)")
    else:
        commit.consider(p, env, base)
        p.parting.append((furthest(base, p.config.counting), first.list))
        commit.part_ways(p, env)
        prune(p, base, first)
        if first.epoch < reformation.frozen_epoch(p):
            pass_through(p, env, value)
        else:
            start(p, env, value, issuer)


def left_out(p: Processor, first: Token) -> bool:
    """CB-38: whether we have voted for a value that goes on from what this epoch would, and that
    comes after it: those who vote for it know of the epoch as a proposal, if at all."""
    voted = p.reform.voted
    if voted is None or voted.base is None:
        return False
    return voted.base.epoch < first.epoch < voted.first.epoch


def pass_through(p: Processor, env: Env, value: Value) -> None:
    """CB-37: we have promised not to act in this epoch any more, but we must know of it: promise
    once more, with what we know now."""
    begin(p, value)
    reform = p.reform
    assert reform.promised is not None
    prom = reformation.my_promise(p, reform.promised)
    if reform.promised.node != p.me:
        env.send(reform.promised.node, prom)
    elif reform.ballot is not None and reform.proposed is None:
        reform.proms[p.me] = prom
        reformation.gather(p, env, False)


def start(p: Processor, env: Env, value: Value, issuer: bool) -> None:
    """CB-40: the first token of the epoch is as any other; its issuer watches over it."""
    first, reform = value.first, p.reform
    begin(p, value)
    p.heard_us = env.now_us
    reform.ballot = reform.proposed = reform.promised = reform.voted = None
    reform.seen = reform.doubts = 0
    env.cancel_timer(Timer.REFORM)
    p.enter(env, Phase.MEMBER, f"epoch {p.epoch} of {' '.join(map(str, p.list.members))}")
    lives = p.list.lives  # whoever is in it has promised in the life that it is in
    p.joiners = {node: life for node, life in p.joiners.items() if node not in lives}
    if issuer and first.n != p.me:
        p.released = first
        p.tries = 0
        tokens.watch(p, env)
    sending.heed(p, first)
    losses.look(p, env, first)
    commit.consider(p, env, first)
    if first.n == p.me:
        tokens.accept(p, env, first)
    else:
        tokens.listen(p, env, first)
        sending.send_new(p, env)


def begin(p: Processor, value: Value) -> None:
    """CB-40: what is new in an epoch."""
    first = value.first
    p.epoch = first.epoch
    p.first_hop = first.hop if value.base is not first else -1
    p.list = first.list
    p.held = p.released = None
    p.resting = False
    p.newest = first
    p.committed_then = -1
    p.reform.decided = value
    if p.config.counting is Counting.COUNTER:
        p.holding.counted.clear()  # CB-36: the flags, not the composition


def prune(p: Processor, base: Token, first: Token) -> None:
    """CB-39, CB-40: what a sender that is gone never listed, and what was struck, is forgotten."""
    listed = {(entry.sender, entry.cycle, k) for entry in first.S for k in entry.numbers()}
    for entry in base.S:
        composition = p.holding.composition.get(entry.cycle, {})
        for k in entry.numbers():
            if (entry.sender, entry.cycle, k) not in listed:
                composition.pop((entry.sender, k), None)
    for key in [key for key in p.holding.data if key not in listed]:
        sender, cycle, k = key
        known = (sender, k) in p.holding.composition.get(cycle, {})
        if first.list.seat(sender) is None and cycle > p.committed and not known:
            del p.holding.data[key]
    for key in [key for key in p.holding.want if key not in listed]:
        del p.holding.want[key]


def other_epoch(p: Processor, env: Env, src: NodeId, token: Token) -> None:
    """CB-41: a token of a later epoch ends our membership, or tells that we missed the news; the
    sender of an earlier one has missed it."""
    if token.epoch < p.epoch:
        env.drop("counter CB-3", "a token of an old epoch")
        tell(p, env, src)
    elif not p.seated(token.list):
        recovery.excluded(p, env)
    else:
        env.send(src, Ask(p.group, token.epoch))


def on_ask(p: Processor, env: Env, event: Received) -> None:
    """CB-38: tell again what was decided."""
    tell(p, env, event.src, at_once=True)


def tell(p: Processor, env: Env, src: NodeId, at_once: bool = False) -> None:
    """CB-38: one that is behind hears of the last decision, though not too often."""
    reform = p.reform
    told_us = reform.told_us.get(src)
    recently = told_us is not None and env.now_us - told_us < p.config.reissue_us // 2
    if reform.decided is None or p.phase is Phase.OUT or (recently and not at_once):
        return
    reform.told_us[src] = env.now_us
    env.send(src, Newl(p.group, reform.decided))

"""The token: hearing it, owning it, passing it on and watching over it (CB-3 to CB-7, CB-22 to
CB-27).
"""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.counter import (
    commit,
    epoch,
    losses,
    membership,
    recovery,
    reformation,
    sending,
)
from ringcast.protocols.counter.entries import complete, count, destined, orphan, reached
from ringcast.protocols.counter.lineage import told
from ringcast.protocols.counter.messages import Entry, Token
from ringcast.protocols.counter.state import Phase, Processor, Timer

IDLE_VISITS = 2
"""A24: a token rests after so many visits at which there was nothing to do."""


def on_token(p: Processor, env: Env, event: Received) -> None:
    """CB-6: every token of the epoch that is heard is examined, whoever is to own it next."""
    token = event.message
    assert isinstance(token, Token)
    if token.epoch != p.epoch:
        epoch.other_epoch(p, env, event.src, token)
    elif p.newest is not None and token.hop <= p.newest.hop:
        stale(p, env, token)
    elif not p.seated(token.list):
        membership.gone(p, env, token)
    else:
        hear(p, env, token)


def on_token_frozen(p: Processor, env: Env, event: Received) -> None:
    """CB-37: no token of the old epoch is acted upon; one of a later epoch tells of a decision."""
    token = event.message
    assert isinstance(token, Token)
    if token.epoch > p.epoch:
        epoch.other_epoch(p, env, event.src, token)
    else:
        env.drop("counter CB-37", "a token while the list is reformed")


def stale(p: Processor, env: Env, token: Token) -> None:
    """CB-7, A12: an old token for us says that our own was not heard: send it again, as evidence,
    once for each stale hop and interval."""
    env.drop("counter CB-3", "an old token")
    sent = p.released
    if token.n != p.me or sent is None or token.hop >= sent.hop or p.held is not None:
        return
    hop, when_us = p.evidence
    if token.hop == hop and env.now_us - when_us < p.config.reissue_us // 2:
        return
    p.evidence = (token.hop, env.now_us)
    env.broadcast(sent)


def hear(p: Processor, env: Env, token: Token) -> None:
    """CB-6: a token newer than all before: learn, ask, commit; and own it, if it is for us."""
    if token.t > p.P + 1 and not p.fresh:
        astray(p, env, f"rotation {token.t} in cycle {p.P} (counter CB-27)")
        return
    p.newest = token
    p.heard_us = env.now_us
    if p.released is not None and token.hop > p.released.hop:
        env.cancel_timer(Timer.MONITOR)  # CB-25: progress
    adopt(p, token)
    sending.heed(p, token)
    losses.look(p, env, token)
    commit.consider(p, env, token)
    if token.n == p.me:
        accept(p, env, token)
    else:
        listen(p, env, token)
        sending.send_new(p, env)


def adopt(p: Processor, token: Token) -> None:
    """CB-32: a changed list of the epoch with a larger hop is ours from now on."""
    if token.list is not p.list:
        if token.list.no > p.list.no:
            members = set(token.list.members)
            for node in p.list.members:
                if node not in members:
                    left = Departure(node, Reason.LEFT, "the token: it took itself off the list")
                    p.farewells[node] = left
        p.list = token.list
        for node in [node for node, life in p.joiners.items() if _taken_in(p, node, life)]:
            del p.joiners[node]


def _taken_in(p: Processor, node: int, life: int) -> bool:
    seat = p.list.seat(node)
    return seat is not None and seat.life == life


def listen(p: Processor, env: Env, token: Token) -> None:
    """CB-37, A19: the farther we are behind the owner, the longer we bear its silence."""
    members = token.list.members
    distance = (members.index(p.me) - members.index(token.n)) % len(members)
    env.set_timer(Timer.SILENCE, p.config.patience_us * (2 + distance))


# --- owning it ----------------------------------------------------------------------------------


def accept(p: Processor, env: Env, token: Token) -> None:
    """CB-3, CB-4: own the token, and begin a new cycle; CB-40: unless a reformation found us owning
    it, and we own it again."""
    head = token.list.seats[0].node == p.me
    if not p.life and forgot(p, token):
        astray(p, env, "the token tells of what we did before (counter CB-42)")
        return
    if p.fresh:
        p.fresh = False
        p.P = token.t
    elif not p.unreleased:
        if token.t != p.P + 1 and not (head and token.t == p.P):
            astray(p, env, f"rotation {token.t} after cycle {p.P} (counter CB-27)")
            return
        p.P += 1
    p.unreleased = True
    p.held = replace(token, S=kept(p, token))
    env.cancel_timer(Timer.SILENCE)
    losses.forget(p, p.committed)
    sending.begin_cycle(p)
    sending.send_new(p, env)
    p.idle_visits = p.idle_visits + 1 if idle(p) else 0
    p.resting = p.config.idle_us > 0 and p.idle_visits > IDLE_VISITS
    hold_us = p.config.idle_us if p.resting else p.config.token_us
    if hold_us:
        env.set_timer(Timer.OWNER, hold_us)
    else:
        release(p, env)


def astray(p: Processor, env: Env, what: str) -> None:
    """CB-27, CB-42: what cannot be, except for one that lost its storage and does not know that it
    took part before: now it knows, and is none any more."""
    if p.life:
        env.stop(f"broken invariant: {what}")
    else:
        recovery.excluded(p, env, f"stable storage was lost: {what}", owed=False)


def forgot(p: Processor, token: Token) -> bool:
    """CB-42: whether a token lists messages that we do not remember to have sent, or to have
    counted: it is of a group that we were in before we lost our storage."""
    me, holding = p.me, p.holding
    for entry in token.S:
        if entry.sender == me:
            ends = (entry.ids[0], entry.ids[-1])  # our numbers of a cycle have no gaps
            if any((me, entry.cycle, k) not in holding.data for k in ends):
                return True
        elif me in entry.acks and entry.cycle > p.committed and entry.key not in holding.counted:
            return True
    return False


def kept(p: Processor, token: Token) -> tuple[Entry, ...]:
    """CB-4: the entries that are not removed. CB-43: of those that are, the messages of ours to
    others alone are not under way any more."""
    left: list[Entry] = []
    for entry in token.S:
        if not removable(p, entry, token):
            left.append(entry)
        elif entry.sender == p.me and entry.to and p.me not in entry.to:
            for k in entry.numbers():
                p.sending.mine.pop(k, None)
    return tuple(left)


def removable(p: Processor, entry: Entry, token: Token) -> bool:
    """CB-4, A4: own entries of any cycle that everybody holds; CB-40: those of senders that are
    gone."""
    if entry.sender != p.me and not orphan(entry, token.list):
        return False
    return complete(entry, token.list, p.config.counting)


def idle(p: Processor) -> bool:
    """A24: whether nobody has anything to send, to hold or to deliver, as far as we know."""
    assert p.held is not None
    busy = p.held.S or p.holding.data or p.joiners or p.leaving or p.sending.mine
    pending = p.sending.queue and sending.may_send(p, ())
    return not busy and not pending and p.list.first <= p.committed + 1


def go_on(p: Processor, env: Env, awaited: bool = False) -> None:
    """A24: a token that rests does not, as soon as there is something to do, or others await it."""
    resting = p.held is not None and p.resting and p.phase is Phase.MEMBER
    if resting and (awaited or not idle(p)):
        p.resting = False
        p.idle_visits = 0
        if p.config.token_us:
            env.set_timer(Timer.OWNER, p.config.token_us)
        else:
            env.cancel_timer(Timer.OWNER)
            release(p, env)


def on_owner_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-23: the owner's time is over."""
    release(p, env)


# --- passing it on ------------------------------------------------------------------------------


def release(p: Processor, env: Env) -> None:
    """CB-23: count, list, say how full we are, and pass the token on; then see what it allows.

    Alone in the list, the token comes back at once; it goes round until nothing is to be done.
    """
    while p.held is not None:
        token = next_token(p, env, p.held)
        p.held = None
        p.resting = p.unreleased = False
        p.newest = p.released = token
        p.tries = 0
        p.list = token.list
        note(p, env, token)
        if p.left_hop < 0:
            commit.consider(p, env, token)
        p.committed_then = p.committed if p.view_life == p.life else -1
        if any(entry.to for entry in token.S):  # CB-44: others may not have committed as much
            p.committed_then = min(p.committed_then, reached(token, p.config.counting))
        if token.n != p.me:
            env.broadcast(token)
            watch(p, env)
            if p.left_hop < 0:
                listen(p, env, token)
                sending.send_new(p, env)
        else:
            accept_alone(p, env, token)
            if p.config.token_us or p.resting:
                return


def accept_alone(p: Processor, env: Env, token: Token) -> None:
    """CB-3: the only member is its own successor."""
    p.P += 1
    p.unreleased = True
    p.held = replace(token, S=kept(p, token))
    losses.forget(p, p.committed)
    sending.begin_cycle(p)
    sending.send_new(p, env)
    p.resting = idle(p)
    if p.resting:
        env.set_timer(Timer.OWNER, max(p.config.idle_us, p.config.token_us, 1000))
    elif p.config.token_us:
        env.set_timer(Timer.OWNER, p.config.token_us)


def next_token(p: Processor, env: Env, held: Token) -> Token:
    """CB-22, CB-23: the token as we pass it on."""
    counting, holding = p.config.counting, p.holding
    leaves = membership.leaves_now(p, held)
    entries: list[Entry] = []
    for entry in held.S:
        if leaves:
            entries.append(membership.taken_back(p, entry))
        elif holds(p, entry, held):
            holding.counted.add(entry.key)
            compose(p, entry)
            entries.append(count(entry, p.me, counting))
        else:
            entries.append(entry)
    own = [] if leaves else sending.own_entries(p, p.P - 1)
    for entry in own:
        if not entry.to or p.me in entry.to:  # CB-43: a sender may not be a destination
            compose(p, entry)
    lists = membership.next_lists(p, env, held, leaves)
    following = membership.next_owner(p, held, lists[-1])
    token = replace(
        held,
        hop=held.hop + 1,
        c=p.me,
        n=following,
        t=p.P,
        S=(*entries, *own),
        lists=lists,
    )
    return sending.flow_fields(p, token)


def compose(p: Processor, entry: Entry) -> None:
    """CB-19, A11: what we list or count ourselves is part of its cycle, and nothing else is."""
    if entry.cycle > p.committed:
        cycle = p.holding.composition.setdefault(entry.cycle, {})
        cycle.update({(entry.sender, k): k - entry.base for k in entry.numbers()})


def holds(p: Processor, entry: Entry, token: Token) -> bool:
    """CB-12, CB-14, CB-22: whether we are to count an entry, have not, and hold all of it now.

    CB-36: what is committed here was here, though it may be no more.
    """
    holding = p.holding
    if entry.key in holding.counted or not destined(entry, p.me, token.list):
        return False
    if entry.cycle <= p.committed:
        return True
    return all((entry.sender, entry.cycle, k) in holding.data for k in entry.numbers())


def note(p: Processor, env: Env, token: Token) -> None:
    """P9, P10: what a check wants to know of a token."""
    first = token.hop == p.first_hop + 1
    text = f"hop {token.hop} to {token.n}, rotation {token.t}, {len(token.S)} entries"
    env.note("counter CB-23", "pass", text, data=told(token, first))


# --- watching over it ---------------------------------------------------------------------------


def watch(p: Processor, env: Env) -> None:
    """CB-25: listen for longer than a token period."""
    env.set_timer(Timer.MONITOR, p.config.period_us)


def on_monitor(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-25, CB-26: nothing came of our token: send the very same again, after a random delay, at
    most L times; CB-27: then the next owner has failed."""
    sent = p.released
    if sent is None or (p.newest is not None and p.newest.hop > sent.hop):
        return
    p.tries += 1
    if p.tries > p.config.reissues:
        if p.left_hop < 0:
            reformation.initiate(p, env, f"no word of {sent.n} after {p.tries - 1} reissues")
        return
    env.broadcast(sent)
    delay_us = p.config.reissue_us + env.rng.randrange(p.config.reissue_us // 4 + 1)
    env.set_timer(Timer.MONITOR, delay_us)


def on_silence(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-37, A19: owner and monitor may both be gone."""
    if p.held is None:
        reformation.initiate(p, env, "silence")

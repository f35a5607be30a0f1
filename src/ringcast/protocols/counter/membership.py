"""Changes of the list that a token's owner makes: joining and leaving (CB-31 to CB-34)."""

from __future__ import annotations

from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, TimerFired
from ringcast.protocols.counter import reformation, tokens
from ringcast.protocols.counter.entries import uncount
from ringcast.protocols.counter.messages import (
    Entry,
    Join,
    Leave,
    PassingList,
    Seat,
    Token,
    followed,
)
from ringcast.protocols.counter.state import LIVES, Phase, Processor, Timer

LISTS = 1 << 16
"""Lists that one epoch may have; the number of a list tells its epoch."""

LEFT = "left"
"""The reason a member stops with when it leaves."""


def on_join(p: Processor, env: Env, event: Received) -> None:
    """CB-31: remember who asks, for our next ownership. One that is listed has lost its memory:
    it is excluded first. CB-42 ext: one that remembers more than this group, which has lost all it
    knew, or that may not act in this epoch, comes with a later one."""
    join = event.message
    assert isinstance(join, Join)
    seat = p.list.seat(event.src)
    if join.epoch > p.epoch or join.no > p.list.no:
        p.reform.seen = max(p.reform.seen, join.epoch, join.no // LISTS)
        call_for_another(p, env, p.list.seats[0].node, f"{event.src} is ahead")
        return
    if seat is not None and join.life <= seat.life and join.life // LIVES == seat.life // LIVES:
        return  # it will hear of it, or it is late: of an earlier life of the same incarnation
    p.joiners[event.src] = join.life
    if seat is None:
        tokens.go_on(p, env)
    else:
        call_for_another(p, env, p.list.after(event.src), f"{event.src} has lost its memory")


def call_for_another(p: Processor, env: Env, caller: NodeId, why: str) -> None:
    """CB-37: the list cannot stay as it is: one member calls for another, and the silence of the
    token will tell the rest."""
    if p.phase is Phase.MEMBER and p.left_hop < 0 and caller == p.me:
        reformation.initiate(p, env, why)


def on_leave(p: Processor, env: Env, event: Received) -> None:
    """CB-33 ext: a member has gone at once."""
    leave = event.message
    assert isinstance(leave, Leave)
    if p.list.lives.get(event.src) == leave.life:
        p.farewells[event.src] = Departure(event.src, Reason.LEFT, "its Leave")
        call_for_another(p, env, p.list.after(event.src), f"{event.src} has left")


def next_lists(p: Processor, env: Env, held: Token, leaves: bool) -> tuple[PassingList, ...]:
    """CB-31, CB-33: the lists as we pass them on: with somebody more, or without us.

    Every change is in force from the cycle after this rotation on; a list that was in force only
    for cycles that all have committed is let go.
    """
    lists = held.lists
    while len(lists) > 1 and lists[1].first <= p.committed_then + 1:
        lists = lists[1:]
    now = held.list
    first = max(p.P + 1, now.first)
    if leaves:
        seats = tuple(seat for seat in now.seats if seat.node != p.me)
        p.left_hop = held.hop + 1
        env.note("counter CB-33", "leave", f"cycle={p.P}")
        return followed(lists, PassingList(now.no + 1, first, seats))
    joiners = [node for node in sorted(p.joiners) if now.seat(node) is None]
    if joiners and (now.no + 1) % LISTS:
        node = joiners[0]
        seat = Seat(node, first, p.joiners.pop(node))
        env.note("counter CB-31", "join", f"{node} since={first}")
        return followed(lists, PassingList(now.no + 1, first, (*now.seats, seat)))
    return lists


def next_owner(p: Processor, held: Token, list_: PassingList) -> NodeId:
    """CB-23: our successor; CB-34: where we leave, the one that comes after us now."""
    if list_.seat(p.me) is not None:
        return list_.after(p.me)
    return held.list.after(p.me)


def on_leaving(p: Processor, env: Env, event: Leaving) -> None:
    """CB-33: stop sending; go when everybody holds what we sent. Who is no member just goes, and
    one without whom there is no majority: the others wait for it, or for another."""
    if p.phase is Phase.OUT or len(p.list.seats) <= p.config.majority or not p.config.leave_us:
        go(p, env)
        return
    p.leaving = True
    env.set_timer(Timer.LEAVE, p.config.leave_us)
    tokens.go_on(p, env)


def on_leave_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-33 ext: it could not be done in good order."""
    go(p, env)


def go(p: Processor, env: Env) -> None:
    """CB-33 ext: say so, and stop."""
    if p.phase is not Phase.OUT:
        env.broadcast(Leave(p.group, p.life))
    env.stop(LEFT)


def leaves_now(p: Processor, held: Token) -> bool:
    """CB-33: whether nothing of ours is under way any more."""
    if not p.leaving or p.sending.own or len(held.list.seats) <= p.config.majority:
        return False
    return not any(entry.sender == p.me for entry in held.S)


def taken_back(p: Processor, entry: Entry) -> Entry:
    """CB-33, A13: our count in an entry that others still need."""
    if entry.key in p.holding.counted:
        return uncount(entry, p.me, p.config.counting)
    return entry


def gone(p: Processor, env: Env, token: Token) -> None:
    """CB-33: somebody has our token, and with it the list without us: we may go."""
    if p.left_hop >= 0 and token.hop > p.left_hop:
        env.stop(LEFT)
    else:
        env.drop("counter CB-41", "a token of a list without us")

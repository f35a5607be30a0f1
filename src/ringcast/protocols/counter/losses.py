"""Messages that come, those that are missing, and requests for them (CB-8 to CB-15)."""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.counter import tokens
from ringcast.protocols.counter.config import MOST_WINDOW
from ringcast.protocols.counter.entries import destined, orphan
from ringcast.protocols.counter.messages import Msg, Req, Token
from ringcast.protocols.counter.state import Missing, Processor, Timer

AHEAD = 2
"""Cycles that a sender may be ahead of us: the token has passed it, and what it told is late."""


def on_msg(p: Processor, env: Env, event: Received) -> None:
    """CB-8: keep it unless it is here, or committed, or not for us; a token that rests goes on."""
    msg = event.message
    assert isinstance(msg, Msg)
    holding = p.holding
    holding.turns.pop(msg.key, None)  # CB-15: somebody else has answered
    if msg.key in holding.data:
        env.drop("counter CB-8", "a message that is here")
    elif msg.p <= p.committed or msg.sender == p.me:
        env.drop("counter CB-8", "a message of a cycle that is committed")
    elif msg.to and p.me not in msg.to:
        env.drop("counter CB-43", "a message for others")
        tokens.go_on(p, env, awaited=True)
    elif msg.p > p.P + AHEAD or len(holding.data) >= 2 * p.config.n * p.config.window:
        env.drop("counter CB-8", "a message beyond the buffer")
    elif msg.contents.exceeds(p.config.max_packet):  # the buffer is counted in frames of that size
        env.drop("counter CB-8", "a message larger than max_packet")
    else:
        holding.data[msg.key] = msg
        holding.want.pop(msg.key, None)
        if not holding.want:
            env.cancel_timer(Timer.REQUEST)
        tokens.go_on(p, env)


def look(p: Processor, env: Env, token: Token) -> None:
    """CB-9, A8: whatever any entry lists and is not here is asked for at once."""
    holding = p.holding
    fresh: dict[tuple[NodeId, bool], list[int]] = {}
    for entry in token.S:
        if (
            entry.cycle <= p.committed
            or entry.key in holding.counted
            or not destined(entry, p.me, token.list)
        ):
            continue
        lost = orphan(entry, token.list)
        for k in entry.numbers():
            key = (entry.sender, entry.cycle, k)
            if key in holding.data:
                continue
            missing = holding.want.get(key)
            if missing is None:
                holding.want[key] = Missing(1, env.now_us, lost)
                fresh.setdefault((entry.sender, lost), []).extend((entry.cycle, k, 1))
            else:
                missing.orphan = lost
    if fresh:
        ask(p, env, fresh)
        env.set_timer(Timer.REQUEST, p.config.request_us)


def ask(p: Processor, env: Env, wanted: dict[tuple[NodeId, bool], list[int]]) -> None:
    """CB-9, A9: to the sender, or to everybody if that one is gone."""
    for (sender, lost), triples in sorted(wanted.items()):
        for at in range(0, len(triples), 3 * MOST_WINDOW):
            request = Req(p.group, sender, tuple(triples[at : at + 3 * MOST_WINDOW]))
            if lost:
                env.broadcast(request)
            else:
                env.send(sender, request)


def on_request_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-10: ask again for what is still missing, with a higher request number."""
    due: dict[tuple[NodeId, bool], list[int]] = {}
    want = p.holding.want
    for (sender, cycle, k), missing in sorted(want.items()):
        if env.now_us - missing.asked_us >= p.config.request_us // 2:
            missing.n += 1
            missing.asked_us = env.now_us
            due.setdefault((sender, missing.orphan), []).extend((cycle, k, missing.n))
    ask(p, env, due)
    if want:
        env.set_timer(Timer.REQUEST, p.config.request_us)


def on_req(p: Processor, env: Env, event: Received) -> None:
    """CB-11: answer requests not answered before; CB-15: for a sender that is gone, in turn.

    CB-13: flow control has no say, and a frame is sent again as it was.
    """
    req = event.message
    assert isinstance(req, Req)
    holding, me = p.holding, p.me
    place = p.list.members.index(me) if p.list.seat(me) else len(p.list.seats)
    wanted = iter(req.wanted)
    for cycle, k, n in zip(wanted, wanted, wanted, strict=True):
        key = (req.sender, cycle, k)
        msg = holding.data.get(key)
        if msg is None or n <= holding.answered.get((event.src, *key), 0):
            continue
        holding.answered[event.src, *key] = n
        if req.sender == me or place == 0:
            env.broadcast(msg)
        elif key not in holding.turns:
            holding.turns[key] = env.now_us + place * p.config.answer_us
            env.set_timer(Timer.ANSWER, p.config.answer_us)


def on_answer_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-15: nobody with a lower rank has answered, so we do."""
    holding = p.holding
    for key, due_us in sorted(holding.turns.items()):
        if key not in holding.data:
            del holding.turns[key]
        elif due_us <= env.now_us:
            del holding.turns[key]
            env.broadcast(holding.data[key])
    if holding.turns:
        env.set_timer(Timer.ANSWER, p.config.answer_us)


def forget(p: Processor, cycle: int) -> None:
    """P12: bodies up to a cycle that is committed are dropped, but our own until their entry is
    removed as complete."""
    holding = p.holding
    newest = p.newest
    listed = {e.cycle for e in newest.S if e.sender == p.me} if newest else set()
    listed |= p.sending.own.keys()
    for key in [key for key in holding.data if key[1] <= cycle]:
        if key[0] != p.me or key[1] not in listed:
            del holding.data[key]
    for known in (holding.want, holding.turns):
        for key in [key for key in known if key[1] <= cycle]:
            del known[key]
    for asked in [asked for asked in holding.answered if asked[1:] not in holding.data]:
        del holding.answered[asked]

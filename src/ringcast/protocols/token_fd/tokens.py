"""The token: which one is taken, what a visit does, and how it gets further (TF-6 to TF-9,
TF-22 to TF-31, TF-34 to TF-39).
"""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.token_fd import bodies
from ringcast.protocols.token_fd.messages import Body, Token, TokenAck, TokenReq
from ringcast.protocols.token_fd.order import Flat, pairs, shown
from ringcast.protocols.token_fd.state import Processor, Timer

# --- what any token teaches ---------------------------------------------------------------------


def absorb(p: Processor, env: Env, token: Token) -> bool:
    """TF-29, TF-25: take over what is decided, and who holds what; False if that cannot be.

    Safe with any token: what it says was delivered is decided, the rest are nominations only.
    """
    p.held = list(map(max, p.held, token.held))
    for place, length in enumerate(token.known):
        if length > p.known[place]:
            p.known[place] = length
            p.moved_us[place] = env.now_us
    if not learn(p, env, token.base, token.adeliv):
        return False
    for body in token.bodies:
        bodies.take(p, env, body)
    return True


def learn(p: Processor, env: Env, base: tuple[int, ...], adeliv: Flat) -> bool:
    """TF-24, TF-29: what is decided goes up; False, and the end, if it is not what we know (I6)."""
    try:
        news = p.order.beyond(base, adeliv)
    except ValueError as error:
        env.stop(f"broken invariant: two orders, {error} (token-fd I6)")
        return False
    if news:
        p.order.append(news)
    if p.order.pending:
        bodies.collect(p)
    bodies.send_new(p, env)
    return True


# --- which one is taken, and when ---------------------------------------------------------------


def consider(p: Processor, env: Env) -> None:
    """TF-7, TF-8: take a token if there is one to take, now or, if it is idle, after a rest."""
    while (found := takeable(p)) is not None:
        distance, token = found
        if not learned(p, env, token):
            return
        if idle(p, token):
            if not p.holding:
                p.holding = True
                if p.ring.n > 1:
                    env.set_timer(Timer.HOLD, p.config.hold_us)
            return
        visit(p, env, distance, token)


def takeable(p: Processor) -> tuple[int, Token] | None:
    """TF-7, TF-38: the token to take, of those that continue an order known here.

    Under suspicion an older one will do: if the newest is of a member that decided, told only what
    comes after, and crashed, nobody can tell what was before. Its votes are in the older ones.
    """
    length = p.order.length
    return p.tokens.eligible(p.suspecting, lambda token: token.start <= length)


def learned(p: Processor, env: Env, token: Token) -> bool:
    """TF-38: know all that the token tells before it is taken; when it came, a gap may have kept us
    from learning it (I3)."""
    return token.length <= p.order.length or learn(p, env, token.base, token.adeliv)


def idle(p: Processor, token: Token) -> bool:
    """TF-31: whether nothing has changed since our last token, and there is nothing to propose."""
    sent = p.sent
    if (p.config.hold_us == 0 and p.ring.n > 1) or sent is None or token.proposal:
        return False
    return (
        p.order.length == sent.length
        and tuple(p.known) == sent.known
        and tuple(p.held) == sent.held
        and not proposal(p)
    )


def rest_is_over(p: Processor, env: Env) -> None:
    """TF-31: an idle token goes on all the same."""
    p.holding = False
    found = takeable(p)
    if found is not None and learned(p, env, found[1]):
        p.rests = True
        visit(p, env, *found)
        p.rests = False


# --- a visit ------------------------------------------------------------------------------------


def visit(p: Processor, env: Env, distance: int, token: Token) -> None:
    """TF-25 to TF-28: vote for the proposal or decide it, make another if there is none, and go on.

    Bodies play no part in this (TF-33): a proposal that came with the token may be decided
    already, so nobody may take anything out of it, whatever is missing here.
    """
    if p.holding:
        p.holding = False
        env.cancel_timer(Timer.HOLD)
    hop = p.tokens.take(distance, token)
    for body in token.bodies:  # TF-22: when it came, they may have been too far ahead to keep
        bodies.take(p, env, body)
    order = p.order
    proposed, votes = carry_on(token, distance, order.length)
    if proposed and votes > p.ring.f:
        told = f"length={order.length} value={shown(proposed)}"
        env.note("token-fd TF-27", "decide", told, data=(order.length, *proposed))
        order.append(proposed)
        proposed = ()
        bodies.collect(p)
        bodies.send_new(p, env)
    if not proposed:
        proposed, votes = proposal(p), 1
    pass_on(p, env, hop, token.hop, votes, proposed)


def carry_on(token: Token, distance: int, length: int) -> tuple[Flat, int]:
    """TF-26, TF-27: what is left of a token's proposal where ``length`` frames are decided, and
    the votes for it with our own.

    A token that is behind proposes what is decided already. Votes count one after another, across
    a gap from 1 again, and never for nothing (A11).
    """
    if token.length < length:
        return (), 0
    if token.proposal and distance == 1:
        return token.proposal, token.votes + 1
    return token.proposal, 1


def proposal(p: Processor) -> Flat:
    """TF-28, TF-30, TF-32: all that may be proposed, our own first, then around the ring.

    A frame may if f+1 members hold it, so that one of them stays; in order of its numbers, so
    that the order of each member's messages is kept. In a token with bodies it comes along.
    """
    n, f, counts = p.ring.n, p.ring.f, p.order.counts
    found: list[int] = []
    for step in range(n):
        place = (p.place + step) % n
        if p.config.bodies_in_token:
            count = p.have[place] - counts[place]
        else:
            count = sorted(p.held[place::n])[-1 - f] - counts[place]
        if count > 0:
            found += (place, count)
    return tuple(found)


def pass_on(p: Processor, env: Env, hop: int, after: int, votes: int, proposed: Flat) -> None:
    """TF-6, TF-28, TF-34, TF-37: our token of this hop, to the next member and to whoever asked."""
    order, config, ring = p.order, p.config, p.ring
    all_have = min(p.known)
    adeliv = order.told_from(all_have, p.lag)
    kept_from = min(max(all_have, order.length - p.history), order.delivered, sum(order.base))
    for place, first, last in order.forget(kept_from):
        for number in range(first, last + 1):
            p.frames[place].pop(number, None)
    token = Token(
        p.group,
        hop,
        after,
        votes,
        proposed,
        tuple(order.base),
        adeliv,
        tuple(p.known),
        tuple(p.held),
        told_bodies(p, proposed) if config.bodies_in_token else (),
    )
    told = f"votes={votes} length={order.length} order={order.crc:08x} proposal={shown(proposed)}"
    waiting = sum(p.heard_of) - order.length
    env.note(
        "token-fd TF-28",
        "token",
        f"hop={hop} after={after} {told} open={waiting}",
        data=(hop, after, votes, order.length, order.crc, waiting, *proposed),
    )
    p.sent = token
    if ring.n == 1:
        p.tokens.offer(p.place, token)  # A20: it is our own successor
        return
    p.unheard = set(ring.successors if config.copies else ring.successors[:1])
    for node in sorted(p.unheard | p.asked):
        env.send(node, token)
    p.asked.clear()
    # TF-31: a token that rests with everybody is no less there for that.
    rest_us = ring.n * config.hold_us if p.rests else 0
    env.set_timer(Timer.RESEND, config.resend_us + rest_us)
    if p.suspecting:
        request(p, env)


def told_bodies(p: Processor, proposed: Flat) -> tuple[Body, ...]:
    """TF-22: the bodies of everything that the token speaks of, also if earlier ones are missing
    here: whoever votes for it must hold it."""
    ends = list(p.order.counts)
    for place, count in pairs(proposed):
        ends[place] += count
    return tuple(
        p.frames[place][number]
        for place, told in enumerate(p.order.base)
        for number in range(told + 1, max(ends[place], p.have[place]) + 1)
        if number in p.frames[place]
    )


# --- on lossy links, and past a member that is suspected -----------------------------------------


def on_resend(p: Processor, env: Env, event: TimerFired) -> None:
    """TF-39: nothing came of it, so perhaps it was lost."""
    if p.sent is not None and p.unheard:
        for node in sorted(p.unheard):
            env.send(node, p.sent)
        env.set_timer(Timer.RESEND, p.config.resend_us)


def on_ack(p: Processor, env: Env, event: Received) -> None:
    """TF-39: it was not."""
    ack = event.message
    assert isinstance(ack, TokenAck)
    if p.sent is not None and ack.hop == p.sent.hop:
        p.unheard.discard(event.src)
        if not p.unheard:
            env.cancel_timer(Timer.RESEND)


def request(p: Processor, env: Env) -> None:
    """TF-34: ask those before the predecessor, each for a token newer than the last of theirs."""
    if p.config.copies or not p.ring.standbys:
        return
    for node in p.ring.standbys:
        env.send(node, TokenReq(p.group, p.tokens.seen[p.ring.places[node]]))
    env.set_timer(Timer.REQUEST, p.config.request_us)


def on_request_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TF-34: ask again while the suspicion lasts."""
    request(p, env)


def on_token_req(p: Processor, env: Env, event: Received) -> None:
    """TF-34, TF-35: the last token, or the dummy; TF-34 ext: else the next one as soon as it is
    sent, which saves half a period a round."""
    asked = event.message
    assert isinstance(asked, TokenReq)
    if event.src not in p.ring.successors:
        env.drop("token-fd TF-34", "a request from farther than f+1")
    elif p.sent is not None and p.sent.hop > asked.seen:
        env.send(event.src, p.sent)
    else:
        p.asked.add(event.src)

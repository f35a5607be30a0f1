"""What comes in, one handler for each kind: learn from it, then see what it allows.

It may allow to take a token, to ask for what is missing, and to hand messages up; ``go_on`` does
that after everything, in this order.
"""

from __future__ import annotations

from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Submitted, TimerFired
from ringcast.protocols.token_fd import bodies, catchup, tokens
from ringcast.protocols.token_fd.messages import Body, LogRep, Token, TokenAck
from ringcast.protocols.token_fd.state import Processor

LEFT = "left"
"""The reason a member stops with when it leaves."""


def go_on(p: Processor, env: Env) -> None:
    """Take a token if there is one to take, and hand up what has been collected."""
    tokens.consider(p, env)
    bodies.look_for_missing(p, env)
    bodies.hand_up(p, env)


def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
    """TF-24: queue the messages, and send what the window allows; a token that rests goes on."""
    if not p.queue.takes(event.bodies, p.config.max_message):
        env.drop("token-fd TF-24", "a submission over the bounds")
        return
    p.queue.put(event.bodies, event.level)
    bodies.send_new(p, env)
    if p.holding:
        go_on(p, env)


def on_body(p: Processor, env: Env, event: Received) -> None:
    """TF-32: a body, by broadcast or on request; a token that rests goes on."""
    body = event.message
    assert isinstance(body, Body)
    if bodies.take(p, env, body):
        if p.holding:
            tokens.consider(p, env)
        bodies.hand_up(p, env)


def on_token(p: Processor, env: Env, event: Received) -> None:
    """TF-9: first learn from it, old or new, then see whether it is to be taken."""
    token = event.message
    assert isinstance(token, Token)
    if not tokens.absorb(p, env, token):
        return
    place = p.ring.places[event.src]
    if not p.tokens.offer(place, token):
        if token.hop == p.tokens.seen[place]:
            env.send(event.src, TokenAck(p.group, token.hop))  # TF-39
        else:
            env.drop("token-fd TF-40", "an old token")
    elif token.start > p.order.length:
        catchup.ask(p, env, event.src)
    go_on(p, env)


def on_log_rep(p: Processor, env: Env, event: Received) -> None:
    """TF-38: go on from there, with the tokens that have been waiting for it."""
    reply = event.message
    assert isinstance(reply, LogRep)
    length = p.order.length
    if catchup.too_late(p, reply):
        catchup.lost(p, env, event.src)
        return
    p.held = list(map(max, p.held, reply.held))
    told = [(reply.base, reply.adeliv)]
    told += [(token.base, token.adeliv) for _, token in p.tokens.waiting()]
    if not all(tokens.learn(p, env, *order) for order in told):
        return
    if p.order.length > length:
        p.gone.clear()
        if catchup.behind(p):
            catchup.ask(p, env, event.src)
    go_on(p, env)


def on_hold(p: Processor, env: Env, event: TimerFired) -> None:
    """TF-31: an idle token has rested here for long enough."""
    tokens.rest_is_over(p, env)
    go_on(p, env)


def on_fetch_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """TF-38, TF-41: what is still missing was not on its way; ask for it, and wait again."""
    p.fetching = False
    p.attempts += 1
    p.asked_after = -1
    p.due.clear()
    if catchup.behind(p):
        catchup.ask(p, env, p.ring.after(-1 - p.attempts % (p.ring.n - 1)))
    bodies.fetch(p, env)
    bodies.look_for_missing(p, env)


def on_leaving(p: Processor, env: Env, event: Leaving) -> None:
    """Nobody is told, and nobody need be; but a token does not rest with one who goes."""
    if p.holding:
        tokens.rest_is_over(p, env)
        bodies.hand_up(p, env)
    env.stop(LEFT)

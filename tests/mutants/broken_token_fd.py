"""Mutants of token-fd: votes, hops, bodies, catching up."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.blocks import ring_detector
from ringcast.blocks.token_ring import FixedRing, TokenRing
from ringcast.core.effects import SetTimer
from ringcast.core.env import Env
from ringcast.core.inputs import Received, Started
from ringcast.protocols.token_fd import bodies, catchup, tokens
from ringcast.protocols.token_fd.machine import TokenFd
from ringcast.protocols.token_fd.messages import Token
from ringcast.protocols.token_fd.order import DecidedOrder, Flat, pairs
from ringcast.protocols.token_fd.state import Phase, Processor, Timer


def handler(patch: MonkeyPatch, key: Any, act: Any) -> None:
    """Replace the handler of an input in both phases."""
    for phase in Phase:
        patch.setitem(TokenFd.table.rows[phase], key, act)


@mutant("TF-27 A11", "token-path", "total-order", "D9")
def votes_for_nothing(patch: MonkeyPatch) -> None:
    """Lets votes gather on an empty proposal, and the one that fills it inherits them."""
    taken: list[Token] = []
    carry_on, pass_on = tokens.carry_on, tokens.pass_on

    def remember(token: Token, distance: int, length: int) -> tuple[Flat, int]:
        taken[:] = [token]
        return carry_on(token, distance, length)

    def inherit(p: Processor, env: Env, hop: int, after: int, votes: int, proposed: Flat) -> None:
        if taken and not taken[0].proposal and hop == after + 1:
            votes = taken[0].votes + 1
        pass_on(p, env, hop, after, min(votes, 60), proposed)

    patch.setattr(tokens, "carry_on", remember)
    patch.setattr(tokens, "pass_on", inherit)


@mutant("TF-27", "token-path", "total-order", "D9")
def votes_across_a_gap(patch: MonkeyPatch) -> None:
    """Counts a vote for a proposal whoever it was taken from."""

    def carry_on(token: Token, distance: int, length: int) -> tuple[Flat, int]:
        if token.length < length:
            return (), 0
        return token.proposal, token.votes + 1 if token.proposal else 1

    patch.setattr(tokens, "carry_on", carry_on)


@mutant("TF-26", "token-path", "total-order", "no-crash", "D9")
def token_behind_keeps_its_proposal(patch: MonkeyPatch) -> None:
    """Votes for the proposal of a token that does not know of the last decisions."""
    whole = tokens.carry_on
    patch.setattr(tokens, "carry_on", lambda token, distance, length: whole(token, distance, 0))


@mutant("TF-33 A15", "token-path", "total-order", "D9")
def voter_filters_a_proposal(patch: MonkeyPatch) -> None:
    """Takes out of a proposal what it has no body of."""
    whole = tokens.visit

    def visit(p: Processor, env: Env, distance: int, token: Token) -> None:
        kept: list[int] = []
        for place, count in pairs(token.proposal):
            if p.order.counts[place] + count <= p.have[place]:
                kept += (place, count)
        whole(p, env, distance, replace(token, proposal=tuple(kept)))

    patch.setattr(tokens, "visit", visit)


@mutant("TF-30 A8", "token-path", "total-order", "D9")
def voter_sorts_a_proposal(patch: MonkeyPatch) -> None:
    """Puts the messages of a proposal in an order of its own."""
    whole = tokens.visit

    def visit(p: Processor, env: Env, distance: int, token: Token) -> None:
        runs = sorted(pairs(token.proposal), key=lambda run: (run[0] - p.place) % p.ring.n)
        proposal = tuple(number for run in runs for number in run)
        whole(p, env, distance, replace(token, proposal=proposal))

    patch.setattr(tokens, "visit", visit)


@mutant("TF-24 A8", "token-path", "total-order", "no-crash", "D9")
def learns_in_an_order_of_its_own(patch: MonkeyPatch) -> None:
    """Puts what it learns to be decided in the order of places."""
    whole = DecidedOrder.append

    def append(order: DecidedOrder, runs: Flat) -> None:
        whole(order, tuple(number for run in sorted(pairs(runs)) for number in run))

    patch.setattr(DecidedOrder, "append", append)


@mutant("TF-23 A3", "token-path", "progress")
def first_turn_not_counted(patch: MonkeyPatch) -> None:
    """The first member's first token is not a turn: it sends another one for the same hop."""
    whole = TokenFd.start

    def start(p: TokenFd, env: Env, event: Started) -> None:
        whole(p, env, event)
        if p.place == 0 and p.tokens.last_hop == 0:
            p.tokens.last_hop = -p.ring.n

    patch.setattr(TokenFd, "start", start)


@mutant("TF-8 A7", "token-path", "no-crash")
def goes_back_a_round(patch: MonkeyPatch) -> None:
    """Takes tokens that lead to a hop that it has had."""

    def offer(circulation: TokenRing[Any], src: int, token: Any) -> bool:
        if circulation.ring.distance(src) > circulation.ring.f + 1:
            return False
        circulation._waiting[src] = token
        circulation.last_hop = min(circulation.last_hop, token.hop)
        circulation.seen[src] = token.hop
        return True

    patch.setattr(TokenRing, "offer", offer)


@mutant("TF-7 TF-8", "token-path")
def takes_a_token_from_anywhere(patch: MonkeyPatch) -> None:
    """While it suspects its predecessor, asks everybody, and takes the token of any of them."""

    def others(ring: FixedRing) -> tuple[int, ...]:
        return tuple(ring.after(steps) for steps in range(1, ring.n))

    def offer(circulation: TokenRing[Any], src: int, token: Any) -> bool:
        if token.hop <= circulation.seen[src]:
            return False
        circulation.seen[src] = token.hop
        if token.hop + circulation.ring.distance(src) > circulation.last_hop:
            circulation._waiting[src] = token
        return True

    patch.setattr(FixedRing, "successors", property(others))
    patch.setattr(FixedRing, "standbys", property(others))
    patch.setattr(TokenRing, "offer", offer)


@mutant("TF-24 TF-28 A9", "token-path", "progress")
def proposes_what_is_decided(patch: MonkeyPatch) -> None:
    """Proposes all that it has not handed up, decided or not."""
    whole = tokens.proposal

    def proposal(p: Processor) -> Flat:
        counts, p.order.counts = p.order.counts, p.order.delivered_of
        proposed = whole(p)
        p.order.counts = counts
        return proposed

    patch.setattr(tokens, "proposal", proposal)


@mutant("TF-29", "progress", "agreement", "uniform-agreement", "token-path")
def learns_only_from_what_it_takes(patch: MonkeyPatch) -> None:
    """A token that is not the predecessor's teaches nothing."""
    whole = tokens.absorb

    def absorb(p: Processor, env: Env, token: Token) -> bool:
        if p.ring.distance(token.hop % p.ring.n) > 1:
            return True
        return whole(p, env, token)

    patch.setattr(tokens, "absorb", absorb)


@mutant("TF-27", "token-path", "total-order", "D9")
def decides_with_f_votes(patch: MonkeyPatch) -> None:
    """Takes one vote less for enough."""
    whole = tokens.carry_on

    def carry_on(token: Token, distance: int, length: int) -> tuple[Flat, int]:
        proposed, votes = whole(token, distance, length)
        return proposed, votes + 1

    patch.setattr(tokens, "carry_on", carry_on)


@mutant("TF-32 A15", "progress", "agreement", "uniform-agreement")
def one_holder_is_enough(patch: MonkeyPatch) -> None:
    """Proposes what one member is known to hold, which may crash with it."""

    def proposal(p: Processor) -> Flat:
        counts = [known - p.order.counts[place] for place, known in enumerate(p.heard_of)]
        places = [(p.place + step) % p.ring.n for step in range(p.ring.n)]
        return tuple(x for place in places if counts[place] > 0 for x in (place, counts[place]))

    patch.setattr(tokens, "proposal", proposal)


@mutant("TF-24 TF-32", "content", "D9", "total-order", "fifo", "causal", "D12")
def delivery_skips_what_is_missing(patch: MonkeyPatch) -> None:
    """Hands up what it has, in order, and what was missing later."""

    def collect(p: Processor) -> None:
        order, left = p.order, []
        for place, count in order.pending:
            number = order.delivered_of[place] + 1
            if all(k in p.frames[place] for k in range(number, number + count)):
                for k in range(number, number + count):
                    order.delivered += 1
                    bodies.up(p, p.frames[place][k])
                order.delivered_of[place] += count
            else:
                left.append((place, count))
        order.pending.clear()
        order.pending.extend(left)
        p.known[p.place] = order.delivered

    patch.setattr(bodies, "collect", collect)


@mutant("TF-38", "token-path", "no-crash")
def token_not_learned_before_it_is_taken(patch: MonkeyPatch) -> None:
    """Takes a token that came while the order before it was missing, without learning from it."""
    patch.setattr(tokens, "learned", lambda p, env, token: True)


@mutant("TF-38", "progress", "agreement", "uniform-agreement")
def nobody_tells_what_was_missed(patch: MonkeyPatch) -> None:
    """Does not answer a member that asks for the order it missed."""
    patch.setattr(DecidedOrder, "after", lambda order, length, most: (tuple(order.counts), ()))
    patch.setattr(catchup, "lost", lambda p, env, src: None)


@mutant("TF-39", "progress")
def lost_tokens_stay_lost(patch: MonkeyPatch) -> None:
    """Does not send a token again."""
    handler(patch, Timer.RESEND, lambda p, env, event: None)


@mutant("TF-34", "progress")
def nobody_is_asked(patch: MonkeyPatch) -> None:
    """Waits for the predecessor's token even while it is suspected, unless copies are sent."""
    patch.setattr(tokens, "request", lambda p, env: None)


@mutant("TF-41", "progress")
def missing_bodies_are_not_fetched(patch: MonkeyPatch) -> None:
    """Hopes that bodies will come."""
    patch.setattr(bodies, "fetch", lambda p, env: None)


@mutant("TF-42", "token-path", "no-crash", "D12", "M2", "integrity")
def comes_back_without_memory(patch: MonkeyPatch) -> None:
    """Takes part again after a crash, as if nothing had been."""
    whole = TokenFd.start
    patch.setattr(TokenFd, "start", lambda p, env, event: whole(p, env, Started(event.boot, {})))
    admit = TokenFd.admit

    def anybody(p: TokenFd, env: Env, event: Received) -> bool:
        p.boots.clear()
        return admit(p, env, event)

    patch.setattr(TokenFd, "admit", anybody)


@mutant("TF-1 A14", "progress")
def patience_never_grows(patch: MonkeyPatch) -> None:
    """Suspects as soon after a hundred mistakes as after none."""
    whole = ring_detector.RingDetector.heard

    def heard(detector: ring_detector.RingDetector, env: Env) -> None:
        whole(detector, env)
        detector.suspect_us = detector.patience.suspect_us
        if env.effects and isinstance(last := env.effects[-1], SetTimer):
            env.effects[-1] = SetTimer(last.timer, detector.suspect_us)

    patch.setattr(ring_detector.RingDetector, "heard", heard)


@mutant("TF-31", survives="it costs frames and no more: an idle token is never in a hurry")
def an_idle_token_never_rests(patch: MonkeyPatch) -> None:
    """Passes an idle token on at once."""
    patch.setattr(tokens, "idle", lambda p, token: p.ring.n == 1 and not tokens.proposal(p))

"""What a processor does with the regular token (F4.1), in Operational and in Recover alike."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ringcast.core.effects import Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.totem_single import flow
from ringcast.protocols.totem_single.messages import CommitToken, Token
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import Cause, Processor, Timer

SendNew = Callable[[Processor, Env, int, int], int]
"""Number and broadcast up to so many frames above a sequence number; returns how many."""


def stale(p: Processor, token: Token | CommitToken) -> bool:
    """R10: another ring's token, or one I have had; my_token_seq is what I *sent* (G2)."""
    return token.ring_id != p.my_ring_id or token.token_seq < p.token.my_token_seq


NOT_PASSED = "a token from one that does not pass it to me"
"""R20 ext: why a token is refused although it fits."""


def passed_on(ring: Ring, event: Received) -> bool:
    """R20 ext: whether a token comes from my predecessor, in the life in which it signed."""
    return (event.src, event.boot) == ring.passer


def passed_from(at: int, event: Received) -> bool:
    """R20 ext: the same for a Commit token on its first two passes; ``at`` is the predecessor's
    place, which may be -1 for the last one."""
    token = event.message
    assert isinstance(token, CommitToken)
    return event.src == token.memb[at] and event.boot == token.entries[at].boot


def accept(p: Processor, env: Env, token: Token | CommitToken) -> None:
    """R11; R93: my_token_seq advances now, so that copies arriving during a hold are refused.

    The Token retransmission timeout ends here too: whoever accepts a token passes it on, which
    sets the timer anew, or gathers or holds, which cancels it.
    """
    p.token.my_token_seq = token.token_seq + 1
    if p.rider is not None and type(token) is Token:
        p.rider.token_received(env, token)


def take(p: Processor, env: Env, ring: Ring, event: Received) -> Token | None:
    """R10, R11, R20: the token that has arrived, accepted; None if it must be dropped."""
    token = event.message
    assert isinstance(token, Token)
    if stale(p, token):
        env.drop("totem R10", "stale token")
        return None
    if not passed_on(ring, event):
        env.drop("totem R20", NOT_PASSED)
        return None
    accept(p, env, token)
    return token


def quiet(p: Processor, ring: Ring, token: Token) -> bool:
    """Whether a visit finds nothing to do: all there is was delivered, is safe and released."""
    seq, last = token.seq, p.flow
    return (
        seq == ring.released
        and seq == last.last_token_seq
        and token.aru == seq
        and token.aru_id is None
        and not token.rtr
        and token.retrans_round == last.last_retrans == 0
        and not p.new_message_queue
    )


def pass_quietly(p: Processor, env: Env, ring: Ring, token: Token) -> None:
    """What is left of R11-R20 for a quiet token, which is nearly every one at light load.

    The general visit comes to the same (a test compares them) with many calls that are not needed
    then, and waiting for the token is half of the latency of a message.
    """
    seq, mine = token.seq, p.token
    mine.seen_seqs.append(seq)
    p.flow.last_visit_us = env.now_us
    mine.last_aru_seen = seq
    mine.my_aru_count = 0
    passed_on = Token(token.ring_id, mine.my_token_seq, seq, seq, None, (), 0, token.retrans_flg)
    forward(p, env, passed_on, ring.memb)


def visit(p: Processor, env: Env, ring: Ring, token: Token, send_new: SendNew) -> Token | None:
    """One visit of the token, R11-R19: the token to pass on, or None if it must be dropped."""
    mine, last = p.token, p.flow
    adapt_window(p, env, token)
    allowed = flow.allowance(p.config, last.window, token, last.last_token_seq, last.last_retrans)
    rtr, resent = token.rtr, 0
    if rtr or mine.answered:
        rtr, resent = retransmit(p, env, ring, rtr, allowed)  # R12
    seq = token.seq + send_new(p, env, token.seq, allowed - resent)  # R13
    aru, aru_id = next_aru(token, ring.my_aru, seq, p.me)  # R14, R15
    rtr = requests(p, ring, rtr, token.seq)  # R16
    if failed_to_receive(p, aru, aru_id):  # R17
        assert aru_id is not None
        env.note("totem R17", "blame", f"{aru_id} has not received {aru + 1}")
        p.blame(aru_id, Reason.FAILED_TO_RECEIVE, f"the token: it lacks number {aru + 1}")
        p.gather.my_fail_set |= {aru_id}
        p.enter_gather(env, Cause.FAILED_TO_RECEIVE)
        return None
    ring.safe_bound = max(ring.safe_bound, min(mine.last_aru_seen, aru))  # R18, before overwriting
    mine.last_aru_seen = aru
    retrans_round = flow.next_retrans_round(token, last.last_retrans, resent)  # R85
    last.last_retrans = resent
    last.last_token_seq = seq
    return Token(
        token.ring_id, mine.my_token_seq, seq, aru, aru_id, rtr, retrans_round, token.retrans_flg
    )


def retransmit(
    p: Processor, env: Env, ring: Ring, rtr: tuple[int, ...], allowed: int
) -> tuple[tuple[int, ...], int]:
    """R12: send again what others miss, oldest first; the requests left, and how many were met.

    R12 ext: a number I sent again at my last visit and that is wanted once more is left to
    another holder this time. Where my frames do not reach the one who asks, I would otherwise
    take the request off the list at every rotation and nobody else would ever answer it.
    """
    if not rtr:
        p.token.answered = frozenset()
        return rtr, 0
    left: list[int] = []
    sent: list[int] = []
    others_can = len(ring.memb) > 2
    for seq in rtr:
        message = ring.store.get(seq)
        if message is None or len(sent) >= allowed or (others_can and seq in p.token.answered):
            left.append(seq)
        else:
            env.broadcast(message)
            sent.append(seq)
    p.token.answered = frozenset(sent)
    return tuple(left), len(sent)


def next_aru(token: Token, my_aru: int, seq: int, me: NodeId) -> tuple[int, NodeId | None]:
    """R15: lower the token's aru to mine, or raise it if I lowered it or nobody lags."""
    my_aru = min(my_aru, seq)  # a number the token does not know of is none
    if my_aru < token.aru or token.aru_id == me or token.aru_id is None:
        return my_aru, None if my_aru == seq else me
    return token.aru, token.aru_id


def requests(p: Processor, ring: Ring, rtr: tuple[int, ...], seq: int) -> tuple[int, ...]:
    """R16: add what I miss, lowest first, up to max_requests.

    With miss_visits, only numbers that existed that many visits ago are asked for, because a
    network that reorders may still bring the younger ones.
    """
    seen = p.token.seen_seqs
    seen.append(seq)
    if ring.my_aru >= seq or len(seen) <= p.config.miss_visits:
        return rtr
    limit = p.config.max_requests
    wanted = set(rtr)
    room = limit - len(rtr)
    for missing in ring.missing(seen[0], limit + len(rtr)):
        if room <= 0:
            break
        if missing not in wanted:
            wanted.add(missing)
            room -= 1
    return tuple(sorted(wanted))


def failed_to_receive(p: Processor, aru: int, aru_id: NodeId | None) -> bool:
    """R17, R70, G4: the same processor has kept aru at the same value for too many visits."""
    mine = p.token
    if aru == mine.last_aru_seen and aru_id is not None:
        mine.my_aru_count += 1
    else:
        mine.my_aru_count = 0
    return mine.my_aru_count > p.config.fail_rcv_const and aru_id != p.me


def adapt_window(p: Processor, env: Env, token: Token) -> None:
    """Let the window follow what the last rotation showed; a fixed one stays as configured."""
    last, seen = p.flow, p.token.seen_seqs
    if p.config.adaptive and seen:
        used = token.seq - seen[-1] + token.retrans_round
        if used:  # or it says nothing
            rotation_us = env.now_us - last.last_visit_us
            last.window = flow.next_window(p.config, last.window, token, used, rotation_us)
    last.last_visit_us = env.now_us


def forward(p: Processor, env: Env, token: Token | CommitToken, memb: tuple[NodeId, ...]) -> None:
    """R19, R20: pass the token on, remember it for R25, and expect it back."""
    if p.rider is not None and type(token) is Token:
        token = replace(token, ride=p.rider.token_released(env, token))
    mine = p.token
    mine.my_rotation_count += 1
    mine.last_sent = (p.successor(memb), token)
    mine.token_away = True
    env.send(*mine.last_sent)
    env.set_timer(Timer.TOKEN_RETRANSMIT, p.config.token_retransmit_us)
    env.set_timer(Timer.TOKEN_LOSS, p.config.token_loss_us)


def on_token_retransmit(p: Processor, env: Env, event: TimerFired) -> None:
    """R25, F4.9: nothing shows that the token moved on; send the identical one again."""
    env.send(*p.token.last_sent)
    env.set_timer(Timer.TOKEN_RETRANSMIT, p.config.token_retransmit_us)

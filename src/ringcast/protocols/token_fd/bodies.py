"""Bodies: from the application's queue to frames, to all who hold them, and up (TF-32, TF-41)."""

from __future__ import annotations

from operator import le

from ringcast.core.effects import Deliver, Originate, PackedMessages
from ringcast.core.env import Env
from ringcast.core.inputs import Received
from ringcast.protocols.token_fd import catchup
from ringcast.protocols.token_fd.config import MOST_RUNS
from ringcast.protocols.token_fd.messages import Body, Fetch
from ringcast.protocols.token_fd.state import Processor, Timer

LONGEST = 6
"""What is missing is asked for at intervals that double this often, and stay so."""


def send_new(p: Processor, env: Env) -> None:
    """TF-24, TF-32: give numbers to what is queued, within the window, and let everybody have it.

    With bodies in the token the next token brings them.
    """
    if not p.queue:
        return
    me, config = p.place, p.config
    under_way = p.have[me] - p.order.delivered_of[me]
    if under_way >= config.each_time or must_wait(p, env):
        return
    apart = not config.bodies_in_token and p.ring.n > 1
    while under_way < config.each_time and (taken := p.queue.take(p.budget)):
        level, contents, _ = taken
        under_way += 1
        body = Body(p.group, me, p.have[me] + 1, level, contents)
        put(p, body)
        if apart:
            env.broadcast(body)


def must_wait(p: Processor, env: Env) -> bool:
    """TF-38 ext: whether a member is so far behind, and coming nearer, that we wait for it.

    One that does not move may have crashed: waiting for it would stop the group.
    """
    lagging = p.order.length - p.history // 2
    if min(p.known) >= lagging:
        return False
    lately_us = env.now_us - p.config.suspect_most_us
    return any(
        known < lagging and moved_us > lately_us
        for known, moved_us in zip(p.known, p.moved_us, strict=True)
    )


def put(p: Processor, body: Body) -> bool:
    """TF-32: keep a body unless it is here; from now on we are one of its holders."""
    origin, number = body.origin, body.number
    have, frames = p.have[origin], p.frames[origin]
    if number <= have or number in frames or number > p.order.counts[origin] + ahead(p):
        return False
    frames[number] = body
    if number == have + 1:
        have = number
        while have + 1 in frames:
            have += 1
        n = p.ring.n
        p.have[origin] = p.held[p.place * n + origin] = have
        if p.held[origin * n + origin] < have:
            p.held[origin * n + origin] = have  # whoever sent it first holds it too
    return True


def ahead(p: Processor) -> int:
    """How far beyond what is decided here frames of one member are kept.

    Theirs are no further than the window, but this member may be behind; all together they take
    no more room than the history may.
    """
    return max(2 * p.config.each_time, p.history // p.ring.n)


def take(p: Processor, env: Env, body: Body) -> bool:
    """TF-32: a body that came by itself; whether it is new. What waited for it is collected."""
    if not put(p, body):
        return False
    p.attempts = 0
    if p.order.pending:
        collect(p)
        send_new(p, env)
    if p.due:
        p.due.discard((body.origin, body.number))
        if not p.due:
            fetch(p, env)  # what was asked for has come; there may be more
    return True


# --- what is missing ----------------------------------------------------------------------------


def look_for_missing(p: Processor, env: Env) -> None:
    """TF-41: bodies somebody is known to hold may be on their way; after a while they are not.

    A frame that went down with its sender is never found: it is asked for less and less often,
    until there is something else to ask for.
    """
    wanted, rounds = p.heard_of, p.attempts // p.ring.n
    if p.have == wanted:
        return
    if rounds and wanted != p.wanted:
        rounds = p.attempts = 0
        p.fetching = False
    if not p.fetching:
        p.wanted = wanted
        p.fetching = True
        env.set_timer(Timer.FETCH, p.config.fetch_us << min(rounds, LONGEST))


def fetch(p: Processor, env: Env) -> None:
    """TF-41: ask for bodies, each time somebody else who is known to hold them.

    Their own sender first, then the members after it. Of each sender as many as it may have under
    way, so that frames of one that nobody has any more do not keep those of others waiting.
    """
    n, most = p.ring.n, p.config.each_time
    asked: dict[int, list[int]] = {}
    for origin in range(n):
        first, last = p.have[origin] + 1, p.wanted[origin]
        if first > last:
            continue
        holders = [
            holder
            for holder in ((origin + step) % n for step in range(n))
            if holder != p.place and p.held[holder * n + origin] >= first
        ]
        if not holders:
            continue
        holder = holders[p.attempts % len(holders)]
        furthest = p.order.counts[origin] + ahead(p)
        last = min(last, p.held[holder * n + origin], first + most - 1, furthest)
        missing = [k for k in range(first, last + 1) if k not in p.frames[origin]]
        p.due.update((origin, k) for k in missing)
        for low, high in stretches(missing):
            asked.setdefault(holder, []).extend((origin, low, high))
    for holder in sorted(asked):
        env.send(p.ring.ids[holder], Fetch(p.group, tuple(asked[holder][: 3 * MOST_RUNS])))


def stretches(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as intervals."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def on_fetch(p: Processor, env: Env, event: Received) -> None:
    """TF-41: send what is asked for and here, as much as may be under way; TF-38: or say that it
    was too long ago."""
    request = event.message
    assert isinstance(request, Fetch)
    if any(map(le, request.wanted[1::3], (p.order.old_base[at] for at in request.wanted[::3]))):
        catchup.refuse(p, env, event.src)
    left, wanted = p.ring.n * p.config.each_time, iter(request.wanted)
    for place, first, last in zip(wanted, wanted, wanted, strict=True):
        frames = p.frames[place]
        last = min(last, first + left - 1)
        left -= max(0, last - first + 1)
        for number in range(first, last + 1):
            if (body := frames.get(number)) is not None:
                env.send(event.src, body)


# --- up -----------------------------------------------------------------------------------------


def collect(p: Processor) -> None:
    """TF-24, TF-32: in order, and no further than the first body that is missing."""
    order = p.order
    pending, before = order.pending, order.delivered
    while pending:
        place, count = pending[0]
        frames = p.frames[place]
        number = order.delivered_of[place]
        last = number + count
        while number < last and (body := frames.get(number + 1)) is not None:
            number += 1
            order.delivered += 1
            up(p, body)
        order.delivered_of[place] = number
        if number < last:
            pending[0] = (place, last - number)
            break
        pending.popleft()
    if order.delivered > before:
        p.gone.clear()  # TF-38: what they did not keep was found elsewhere
    p.known[p.place] = order.delivered


def up(p: Processor, body: Body) -> None:
    """The messages that are whole with this frame go up together, if any."""
    contents, sender = body.contents, p.ring.ids[body.origin]
    bodies = p.assembler.add(sender, contents)
    if bodies is not None:
        batch = PackedMessages(
            p.view, p.order.delivered, sender, body.level, contents.first, bodies
        )
        if sender == p.me:
            p.ups.append(Originate(batch))
        p.ups.append(Deliver(p.view, batch))


def hand_up(p: Processor, env: Env) -> None:
    """Last of all, what was collected."""
    if p.ups:
        env.effects += p.ups
        p.ups.clear()

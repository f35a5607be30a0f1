"""No member any more, or without a memory: catch up, and ask to be taken in (CB-41, CB-42)."""

from __future__ import annotations

from ringcast.core.effects import Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.counter import commit, epoch, reformation
from ringcast.protocols.counter.entries import destined
from ringcast.protocols.counter.messages import (
    Ask,
    Fetch,
    Join,
    Past,
    Stranger,
    Token,
    Told,
    Value,
)
from ringcast.protocols.counter.sending import NOT_AGAIN
from ringcast.protocols.counter.state import (
    LIVES,
    DataList,
    Label,
    Parted,
    Phase,
    Processor,
    Timer,
)

PATIENCE = 6
"""So often we ask what became of the view we were in; then we go on without knowing."""

FRESH = 4
"""A processor that asks to be taken in is there for so many periods."""


def excluded(p: Processor, env: Env, why: str = "excluded", owed: bool = True) -> None:
    """CB-41, CB-27: the others go on without us: stop at once, find out what was delivered in the
    view we were in, unless nothing is ``owed``, and ask to be taken in again. We are in a
    transitional view of our own."""
    env.note("counter CB-41", "excluded", f"epoch={p.epoch} committed={p.committed}")
    if p.leaving:
        env.stop("left")
        return
    for timer in Timer:
        env.cancel_timer(timer)
    p.enter(env, Phase.OUT, why)
    if p.view_life == p.life and owed:
        p.parted = Parted(p.life, p.holding, p.newest)
    else:
        put_back(p, env)
    if p.view_life == p.life:
        alone(p, env)
    go_out(p, env)


def alone(p: Processor, env: Env) -> None:
    """CB-41: a transitional view of our own; its number is odd, and nobody else's."""
    number = p.highest_view + 1 + p.highest_view % 2
    commit.transit(p, env, number, (p.in_view[p.me],), Reason.MOVED, "the others go on without us")


def go_out(p: Processor, env: Env) -> None:
    """CB-31, CB-42: a new life, that knows of no token."""
    p.joins += 1
    if p.joins >= LIVES:
        env.stop("excluded too often: start this member again (counter CB-41)")
        return
    p.life = p.boot * LIVES + p.joins
    p.holding = DataList()
    p.sending.local.clear()
    p.sending.overloaded = None
    p.held = p.newest = p.released = None
    p.resting = p.fresh = p.unreleased = False
    p.joiners.clear()
    p.blank.clear()
    p.here = ()
    p.unknown.clear()
    p.parting.clear()
    p.reform.ballot = p.reform.proposed = None
    p.heard_us = env.now_us - FRESH * p.config.join_us
    env.set_timer(Timer.JOIN, env.rng.randrange(p.config.join_us) + 1)


def put_back(p: Processor, env: Env) -> None:
    """CB-40: what was not delivered of ours never will be, so it is sent anew, in its order.

    CB-43: of what we had listed for some we cannot know that: whoever told us what was delivered
    may be none of them. We say so, and do not send it again.
    """
    queue, under_way, own = p.sending.queue, p.sending.mine, p.sending.own
    unlisted = {k for sets in own.values() for ks in sets.values() for k in ks}
    again: dict[int, tuple[bytes, Label]] = {}
    for k, mine in under_way.items():
        unknown = mine.label[1] and k not in unlisted
        for number, body in enumerate(mine.whole, mine.first):
            if unknown:
                env.uncertain(number, 1)
            else:
                again[number] = (body, mine.label)
    if again:  # what is not among them keeps its number
        numbers = range(min(again), queue.number)
        queue.put_back(again.get(number, (b"", NOT_AGAIN)) for number in numbers)
    else:
        queue.rewind()
    under_way.clear()
    own.clear()


def resolved(p: Processor, env: Env) -> None:
    """CB-42: it is known what became of the view we were in; what comes next is another."""
    p.parted = None
    put_back(p, env)
    p.view_life = -1


def part(p: Processor, env: Env) -> None:
    """CB-41 ext: nobody can tell what became of our view: deliver whatever somebody may have
    delivered in it, and what we had listed.

    A cycle that was committed anywhere had all its entries counted by us; CB-44: those to all.
    """
    parted = p.parted
    assert parted is not None
    env.note("counter CB-41", "part", f"committed={p.committed}")
    holding, newest = parted.holding, parted.newest
    assert newest is not None or not holding.composition
    missing = [
        entry.cycle
        for entry in (newest.S if newest else ())
        if newest
        and not entry.to
        and entry.key not in holding.counted
        and destined(entry, p.me, newest.list)
    ]
    for cycle in sorted(holding.composition):
        whole = cycle < min(missing, default=cycle + 1)
        composition = {
            key: number
            for key, number in holding.composition[cycle].items()
            if whole or key[0] == p.me
        }
        assert newest is not None
        for seq, sender, k in commit.in_order(p, cycle, composition, newest.lists):
            if seq > p.delivered_seq:
                commit.hand_up(p, env, holding.data[sender, cycle, k], seq)
    p.whole = False
    resolved(p, env)


# --- asking -------------------------------------------------------------------------------------


def on_join_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-31: ask again, until we see ourselves listed; first for what we missed (CB-42)."""
    env.set_timer(Timer.JOIN, p.config.join_us)
    if p.parted is not None:
        p.parted.asked += 1
        if p.parted.asked <= PATIENCE:
            fetch(p, env)
            return
        part(p, env)
    env.broadcast(Join(p.group, p.life, reformation.frozen_epoch(p), p.ring_no))
    begin_anew(p, env)


def fetch(p: Processor, env: Env, node: NodeId = 0) -> None:
    """CB-42: ask one of the members heard of, or everybody."""
    request = Fetch(p.group, p.ring_no, p.delivered_seq)
    if node:
        env.send(node, request)
    else:
        env.broadcast(request)


def on_token(p: Processor, env: Env, event: Received) -> None:
    """CB-31: a token that lists us makes us a member; any other tells that there is a group."""
    token = event.message
    assert isinstance(token, Token)
    p.heard_us = env.now_us
    p.here = ()
    p.blank.clear()
    seat = token.list.seat(p.me)
    if p.parted is not None or seat is None or not welcome(p, token):
        return
    if seat.since == 0:
        env.send(event.src, Ask(p.group, token.epoch))  # it is a new beginning
    else:
        taken_in(p, env, Value(token, token))


def welcome(p: Processor, token: Token) -> bool:
    """CB-31, CB-37: whether a token lists this life of ours, in an epoch that we may act in; its
    list becomes a view, so its number is above that of our last one."""
    fits = token.epoch >= reformation.frozen_epoch(p) and token.list.no > p.ring_no
    return fits and p.seated(token.list)


def taken_in(p: Processor, env: Env, value: Value, issuer: bool = False) -> None:
    """CB-31: we own the token in this rotation, and are then in its cycle; we count and deliver
    from the cycle after it on, and send nothing before. CB-42 ext: or all begin anew."""
    first = value.first
    seat = first.list.seat(p.me)
    assert seat is not None
    p.fresh = value.base is not None
    p.P = max(0, first.t - 1) if p.fresh else 0
    p.committed = seat.since - 2 if p.fresh else -1
    p.skip_lists = 0
    p.tries = p.idle_visits = 0
    p.list = first.list
    if not p.fresh:
        p.history.clear()
        p.history_bytes = p.history_from = p.delivered_seq = 0
        p.views_over.clear()
    env.cancel_timer(Timer.JOIN)
    if not p.fresh:
        commit.install(p, env, first.list)
    epoch.start(p, env, value, issuer)


# --- catching up --------------------------------------------------------------------------------


def on_fetch(p: Processor, env: Env, event: Received) -> None:
    """CB-42: tell what came after a place in a view of ours, as much as fits."""
    request = event.message
    assert isinstance(request, Fetch)
    no, after = request.no, request.after
    known = (p.ring is not None and p.whole and no == p.ring_no) or no in p.views_over
    known = known and after >= p.history_from
    known = known and remembers(p, event)
    items: list[Past] = []
    room = p.config.max_packet
    following = p.views_over.get(no) if known else None
    for past, size in p.history if known else ():
        if past.msg.to and event.src not in past.msg.to:
            continue  # CB-43
        if past.no == no and past.place > after:
            room -= size
            if items and room < 0:
                following = None
                break
            items.append(past)
    env.send(event.src, Told(p.group, no, after, known, following, tuple(items)))


def remembers(p: Processor, event: Received) -> bool:
    """CB-42: whether who asks is the incarnation that took part, and not one that forgot it all. Of
    one that nobody here has heard before, only what it delivered tells."""
    request, src = event.message, event.src
    assert isinstance(request, Fetch)
    seat = p.list.seat(src)
    boots = {p.boots[src]} if src in p.boots else set()
    if seat is not None and seat.life:
        boots.add(seat.life // LIVES)
    return boots == {event.boot} if boots else request.after > 0


def on_told(p: Processor, env: Env, event: Received) -> None:
    """CB-42: deliver what we missed of our view, then ask to be taken in."""
    told = event.message
    assert isinstance(told, Told)
    if p.parted is None or told.no != p.ring_no or told.after != p.delivered_seq:
        env.drop("counter CB-42", "an answer to nothing")
    elif not told.known:
        p.unknown.add(event.src)
        if len(p.unknown) >= p.config.n - 1:
            part(p, env)
    else:
        for past in told.items:
            p.parted.asked = 0
            commit.hand_up(p, env, past.msg, past.place)
        following, me = told.following, p.parted.life
        if following is not None and following.lives.get(p.me) != me:
            resolved(p, env)
            on_join_timer(p, env, TimerFired(Timer.JOIN))
            return
        if following is not None and following.no > p.ring_no:
            commit.install(p, env, following)  # we were to be in it
            alone(p, env)
            p.parted = Parted(me, DataList(), None)  # CB-43: nothing held belongs to this view
        if following is not None or told.items:
            fetch(p, env, event.src)


def on_stranger(p: Processor, env: Env, event: Received) -> None:
    """CB-42: others know an earlier incarnation of ours, and we do not: our storage was lost."""
    stranger = event.message
    assert isinstance(stranger, Stranger)
    if stranger.boot == p.boot and not p.life:
        excluded(p, env, "stable storage was lost", owed=False)


# --- a new beginning ----------------------------------------------------------------------------


def on_join(p: Processor, env: Env, event: Received) -> None:
    """CB-42 ext: somebody else is no member, either."""
    join = event.message
    assert isinstance(join, Join)
    p.blank[event.src] = (join.life, join.epoch, env.now_us)


def begin_anew(p: Processor, env: Env) -> None:
    """CB-42 ext: if a majority is there and nobody is a member, the first of them calls for a new
    beginning."""
    old_us = env.now_us - FRESH * p.config.join_us
    there = {node: known for node, known in p.blank.items() if known[2] > old_us}
    p.here = (p.me, *there) if p.heard_us <= old_us else ()
    if len(p.here) < p.config.majority or p.me > min(there, default=p.me):
        return
    p.reform.seen = max((known[1] for known in there.values()), default=0)
    if p.reform.ballot is None:
        reformation.initiate(p, env, "nobody is a member")

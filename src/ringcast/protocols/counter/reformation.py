"""Reformation: a majority decides on a list without those that are silent (CB-37 to CB-41).

Every attempt has an epoch of its own: nobody promises two ballots for one epoch, so at most one of
them gets a majority. A promise for an epoch ends all work in lower ones, and tells the newest state
its maker knows: the newest token, and the value it voted for last. The next epoch
continues from the newest of all. Since two majorities meet, what was decided is always continued;
since every list is a majority, two epochs never work at the same time.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.counter import epoch, membership, recovery
from ringcast.protocols.counter.entries import orphan, recounted
from ringcast.protocols.counter.messages import (
    AHEAD,
    Ackd,
    Acpt,
    Ask,
    Ballot,
    Entry,
    Held,
    Nack,
    Newl,
    PassingList,
    Prep,
    Prom,
    Seat,
    Token,
    Value,
    followed,
    numbers,
    ranges,
)
from ringcast.protocols.counter.state import Phase, Processor, Timer

PROMISED = "counter_promised"
"""Stable storage: the highest epoch that got a promise."""
VOTED = "counter_voted"
"""Stable storage: the highest epoch for which a value got a vote."""


DOUBTS = 4
"""CB-42 ext: attempts in which a majority was there and something newer may have been forgotten;
then those that remember less stop being members."""


def frozen_epoch(p: Processor) -> int:
    """CB-37: we do not act in an epoch below this one: we have promised that, or been in it."""
    reform = p.reform
    return max(p.epoch, reform.stored, reform.promised.epoch if reform.promised else 0)


# --- the initiator ------------------------------------------------------------------------------


def initiate(p: Processor, env: Env, why: str) -> None:
    """CB-27, CB-37: call for a new epoch; nobody is removed by one member alone."""
    reform = p.reform
    ballot = Ballot(max(frozen_epoch(p), reform.seen) + 1, p.me)
    env.note("counter CB-37", "prepare", f"epoch={ballot.epoch}: {why}")
    promise(p, env, ballot)
    reform.ballot = ballot
    reform.proms = {p.me: my_promise(p, ballot)}
    reform.ackd.clear()
    reform.proposed = None
    env.broadcast(Prep(p.group, ballot))
    env.set_timer(Timer.REFORM, p.config.grace_us)
    gather(p, env, False)


def on_prom(p: Processor, env: Env, event: Received) -> None:
    """CB-38: collect promises; all there can be need no grace."""
    prom = event.message
    assert isinstance(prom, Prom)
    reform = p.reform
    if prom.ballot != reform.ballot or reform.proposed is not None:
        env.drop("counter CB-38", "a promise that is not awaited")
        return
    reform.proms[event.src] = prom
    if prom.token is not None and p.phase is not Phase.OUT:
        if prom.token.epoch > p.epoch:
            env.send(event.src, Ask(p.group, prom.token.epoch))
        elif prom.token.epoch < p.epoch and p.list.lives.get(event.src) == prom.life:
            epoch.tell(p, env, event.src, at_once=True)  # it will promise again, and know more
    gather(p, env, False)


def on_nack(p: Processor, env: Env, event: Received) -> None:
    """CB-37: our ballot is too low; the next one will not be."""
    nack = event.message
    assert isinstance(nack, Nack)
    p.reform.seen = max(p.reform.seen, nack.epoch)


def gather(p: Processor, env: Env, graced: bool) -> None:
    """CB-38: propose, when a majority has promised and the time for others is over: to go on from
    what is known, or, if a majority remembers nothing, to begin anew (CB-42 ext)."""
    reform = p.reform
    assert reform.ballot is not None
    base = newest_of(reform.proms)
    proms = reform.proms
    if len(proms) < p.config.majority or not (graced or len(proms) == p.config.n):
        return
    blank = sum(prom.token is None for prom in proms.values())
    if base is not None and not forgotten(p, base) and remembering(base, proms):
        propose(p, env, continued(p, reform.ballot, base))
    elif blank >= p.config.majority:
        propose(p, env, anew(p, reform.ballot))
    elif p.phase is not Phase.OUT:
        reform.doubts += 1
        if reform.doubts > DOUBTS:
            recovery.excluded(p, env)  # the group may have gone on, and nobody here knows how


def forgotten(p: Processor, base: Token) -> bool:
    """CB-42 ext: whether something newer than ``base`` may have been decided by votes that are
    forgotten, or of processors that are not there."""
    proms = p.reform.proms
    spent = [prom.spent for prom in proms.values() if prom.spent > base.epoch]
    away = p.config.n - len(proms)
    return any(spent.count(each) + away >= p.config.majority for each in spent)


def newest_of(proms: dict[NodeId, Prom]) -> Token | None:
    """CB-38: of all that promisers know, the newest: by epoch, then by hop."""
    known = [prom.token for prom in proms.values() if prom.token is not None]
    known += [prom.voted.first for prom in proms.values() if prom.voted is not None]
    return max(known, key=lambda token: (token.epoch, token.hop), default=None)


def last_passed(proms: dict[NodeId, Prom], newest: Token) -> Token | None:
    """CB-40: the last token that was passed on: ``newest``, or the one before it if that is only
    the proposal for an epoch. All who go on commit what it allows before they do."""
    if all(prom.token != newest for prom in proms.values()):
        for prom in proms.values():
            if prom.voted is not None and prom.voted.first == newest:
                return prom.voted.base
    return newest


def remembering(newest: Token, proms: dict[NodeId, Prom]) -> list[Seat]:
    """CB-38: the members of the newest list that promised, and know the epoch that ends."""
    passed = last_passed(proms, newest)
    known = {
        node: prom.life
        for node, prom in proms.items()
        if prom.token is not None and passed is not None and prom.token.epoch == passed.epoch
    }
    return [seat for seat in newest.list.seats if known.get(seat.node) == seat.life]


def continued(p: Processor, ballot: Ballot, base: Token) -> Value:
    """CB-38 to CB-40: the list of all that promised, and the first token of theirs.

    Its owner so far stays the one of the base, even if it is excluded: offered() must not hold too
    early. CB-38 ext: those that remember nothing are taken in at its end, as if they had just
    joined; if the owner was one of them, it is none that comes last. The list is in force from a
    cycle on that nobody stamps messages with before it knows of it.
    """
    proms, now = p.reform.proms, base.list
    kept = remembering(base, proms)
    cycle = max(base.t + AHEAD, now.first)
    known = {seat.node for seat in kept}
    came = [
        Seat(node, cycle, prom.life)
        for node, prom in sorted(proms.items())
        if node not in known and prom.token is None
    ]
    no = ballot.epoch * membership.LISTS + 1
    lists = followed(base.lists, PassingList(no, cycle, (*kept, *came)))
    following = base.n
    while following not in known:
        following = now.after(following)
    entries = [recounted(entry, lists[-1]) for entry in struck(base.S, lists[-1], proms)]
    flags = [
        (node, cycle) for node, cycle in zip(base.local, base.local_c, strict=True) if node in known
    ]
    first = replace(
        base,
        epoch=ballot.epoch,
        hop=base.hop + 1,
        c=base.c if base.c not in {seat.node for seat in came} else following,
        n=following,
        S=tuple(entry for entry in entries if entry.ids),
        lists=lists,
        local=tuple(node for node, _ in flags),
        local_c=tuple(cycle for _, cycle in flags),
    )
    return Value(last_passed(proms, base), first)


def struck(
    entries: tuple[Entry, ...], list_: PassingList, proms: dict[NodeId, Prom]
) -> list[Entry]:
    """CB-39: what a sender that is gone has listed and nobody in the new list holds is erased.
    CB-39 ext: and with a message to all whatever it listed later, lest it comes back and sends the
    first again (P7).

    Nobody can have committed it: that needs every member to hold it, and all before it. If nobody
    here counts its cycle, others may have, and what follows stays. What is held by one that
    promised and is left out does not help: that one lets it go.
    """
    lives = list_.lives
    here = {node: prom for node, prom in proms.items() if lives.get(node) == prom.life}
    gone = {entry.key: found(entry, here) for entry in entries if orphan(entry, list_)}
    ends: dict[NodeId, tuple[int, int]] = {}
    for (sender, cycle, to), (_, lost) in gone.items():
        if lost and not to and any(counts(node, prom, cycle) for node, prom in here.items()):
            end = (cycle, lost[0])
            ends[sender] = min(end, ends.get(sender, end))
    left: list[Entry] = []
    for entry in entries:
        if entry.key in gone:
            kept, _ = gone[entry.key]
            if entry.sender in ends:
                kept = [k for k in kept if (entry.cycle, k) < ends[entry.sender]]
            entry = replace(entry, ids=ranges(kept))
        left.append(entry)
    return left


def found(entry: Entry, proms: dict[NodeId, Prom]) -> tuple[list[int], list[int]]:
    """CB-39: of what a sender that is gone has listed, what somebody holds, and the rest.

    CB-31: one that was taken in later begins beyond its cycle, which does not say that it held it;
    nor does what it counted in an earlier life.
    """
    held: set[int] = set()
    for node, prom in proms.items():
        due = counts(node, prom, entry.cycle)
        due = due and (not entry.to or node in entry.to)  # CB-43: others commit without it
        if due and (prom.committed >= entry.cycle or node in entry.acks):
            return list(entry.numbers()), []
        for each in prom.held:
            if each.sender == entry.sender and each.cycle == entry.cycle:
                held.update(numbers(each.ids))
    listed = list(entry.numbers())
    return [k for k in listed if k in held], [k for k in listed if k not in held]


def counts(node: NodeId, prom: Prom, cycle: int) -> bool:
    """CB-31: whether one that promised was a member for a cycle."""
    seat = prom.token.list.seat(node) if prom.token is not None else None
    return seat is not None and seat.since <= cycle


def anew(p: Processor, ballot: Ballot) -> Value:
    """CB-42 ext: a majority is there and remembers nothing: a new beginning."""
    seats = tuple(
        Seat(node, 0, prom.life)
        for node, prom in sorted(p.reform.proms.items())
        if prom.token is None
    )
    list_ = PassingList(ballot.epoch * membership.LISTS + 1, 0, seats)
    head, last = seats[0].node, seats[-1].node
    return Value(None, Token(p.group, ballot.epoch, 0, last, head, 0, (), (list_,)))


def propose(p: Processor, env: Env, value: Value) -> None:
    """CB-38: ask for votes, if the list is a majority.

    Else too many remember an epoch that has ended without them: they are told so, and will come as
    ones that are no members. To stop being one is safe, whatever is decided.
    """
    reform = p.reform
    seats = value.first.list.lives
    if len(seats) < p.config.majority:
        for node, prom in sorted(reform.proms.items()):
            if prom.token is not None and node not in seats and node != p.me:
                env.send(node, Newl(p.group, value))
        if p.phase is not Phase.OUT and p.me not in seats:
            recovery.excluded(p, env)
        return
    assert reform.ballot is not None
    reform.proposed = value
    vote(p, env, reform.ballot, value)
    reform.ackd = {p.me}
    env.broadcast(Acpt(p.group, reform.ballot, value))
    env.set_timer(Timer.REFORM, 2 * p.config.grace_us)
    tally(p, env)


def on_ackd(p: Processor, env: Env, event: Received) -> None:
    """CB-38: count the votes."""
    ackd = event.message
    assert isinstance(ackd, Ackd)
    if ackd.ballot != p.reform.ballot or p.reform.proposed is None:
        env.drop("counter CB-38", "a vote that is not awaited")
        return
    p.reform.ackd.add(event.src)
    tally(p, env)


def tally(p: Processor, env: Env) -> None:
    """CB-38: a majority decides."""
    value = p.reform.proposed
    if value is not None and len(p.reform.ackd) >= p.config.majority:
        env.broadcast(Newl(p.group, value))
        epoch.install(p, env, value, issuer=True)


def on_reform_timer(p: Processor, env: Env, event: TimerFired) -> None:
    """CB-38: the grace is over; or nobody got through, and we try again, after a random delay."""
    reform = p.reform
    if reform.ballot is not None and reform.proposed is None:
        gather(p, env, True)
        if reform.proposed is not None:
            return
    failed = reform.ballot is not None
    reform.ballot = reform.proposed = None
    if p.phase is Phase.OUT:
        return  # the next time to ask will do
    if failed:
        wait(p, env, 1)
    else:
        initiate(p, env, "no decision")


def wait(p: Processor, env: Env, rounds: int) -> None:
    """CB-38: how long to wait for somebody else's decision: each for a time of its own."""
    grace_us = p.config.grace_us
    delay_us = grace_us * (rounds + p.members.index(p.me))
    env.set_timer(Timer.REFORM, delay_us + env.rng.randrange(2 * grace_us))


# --- everybody ----------------------------------------------------------------------------------


def on_prep(p: Processor, env: Env, event: Received) -> None:
    """CB-37: promise, unless there is a higher promise; then freeze. One that is behind is told
    what was decided."""
    prep = event.message
    assert isinstance(prep, Prep)
    ballot = prep.ballot
    out = p.phase is Phase.OUT
    p.heard_us = env.now_us
    if ballot.node != event.src:
        env.drop("counter CB-37", "a ballot of somebody else")
    elif out and p.parted is not None:
        env.drop("counter CB-42", "a ballot while we catch up")
    elif not out and ballot.epoch <= p.epoch:
        epoch.tell(p, env, event.src)
    elif ballot.epoch <= frozen_epoch(p):
        env.drop("counter CB-37", "a ballot that is not above a promise")
        env.send(event.src, Nack(p.group, frozen_epoch(p)))
    else:
        promise(p, env, ballot)
        env.send(event.src, my_promise(p, ballot))
        if not out:
            wait(p, env, 4)


def promise(p: Processor, env: Env, ballot: Ballot) -> None:
    """CB-37: on disk before anybody hears of it; and nothing more happens in lower epochs."""
    reform = p.reform
    reform.promised = ballot
    if reform.ballot is not None and reform.ballot != ballot:
        reform.ballot = reform.proposed = None
    env.persist(PROMISED, ballot.epoch)
    if p.phase is Phase.MEMBER:
        p.enter(env, Phase.FROZEN, f"ballot {ballot.epoch} of {ballot.node}")
        for timer in (Timer.OWNER, Timer.MONITOR, Timer.SILENCE):
            env.cancel_timer(timer)


def my_promise(p: Processor, ballot: Ballot) -> Prom:
    """CB-37: all that we know and hold."""
    reform = p.reform
    if p.phase is Phase.OUT:
        spent = 0 if reform.voted else reform.spent
        return Prom(p.group, ballot, p.life, spent, None, -1, (), reform.voted)
    found: dict[tuple[NodeId, int], list[int]] = {}
    for sender, cycle, k in sorted(p.holding.data):
        if cycle > p.committed:
            found.setdefault((sender, cycle), []).append(k)
    held = tuple(Held(sender, cycle, ranges(ks)) for (sender, cycle), ks in found.items())
    newest = p.newest or first_token(p)
    return Prom(p.group, ballot, p.life, 0, newest, p.committed, held, reform.voted)


def first_token(p: Processor) -> Token:
    """CB-5: the virtual token that the start node accepts, which everybody knows of."""
    seats = p.list.seats
    return Token(p.group, p.epoch, 0, seats[-1].node, seats[0].node, 0, (), (p.list,))


def on_acpt(p: Processor, env: Env, event: Received) -> None:
    """CB-38: vote for a value, unless there is a higher promise."""
    acpt = event.message
    assert isinstance(acpt, Acpt)
    ballot, reform = acpt.ballot, p.reform
    if ballot.node != event.src:
        env.drop("counter CB-38", "a ballot of somebody else")
    elif reform.promised is None or ballot != reform.promised:
        env.drop("counter CB-38", "a value without a promise")
    else:
        vote(p, env, ballot, acpt.value)
        env.send(event.src, Ackd(p.group, ballot))
        if p.phase is not Phase.OUT:
            wait(p, env, 4)


def vote(p: Processor, env: Env, ballot: Ballot, value: Value) -> None:
    """CB-38: on disk before anybody hears of it."""
    p.reform.voted = value
    env.persist(VOTED, ballot.epoch)

"""Mutants of the counter-based protocol: the source read literally, and single rules broken."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.counter import (
    commit,
    entries,
    epoch,
    losses,
    recovery,
    reformation,
    sending,
    tokens,
)
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.counter.messages import (
    Entry,
    Join,
    Newl,
    PassingList,
    Prep,
    Prom,
    Req,
    Token,
)
from ringcast.protocols.counter.state import Phase, Processor, Timer


def handler(patch: MonkeyPatch, phase: Phase, key: Any, act: Any) -> None:
    """Replace the handler of an input in one phase."""
    patch.setitem(CounterBased.table.rows[phase], key, act)


@mutant("CB-17 A5", "total-order", "D9", "D6", "D10", "no-crash", "progress")
def silence_is_consent(patch: MonkeyPatch) -> None:
    """The source, literally: a cycle of which the token says nothing may be committed."""

    def offered(cycle: int, token: Token) -> bool:
        return token.t >= cycle + 1

    patch.setattr(entries, "offered", offered)


@mutant("CB-9 A8", "progress")
def only_the_last_cycle_is_compared(patch: MonkeyPatch) -> None:
    """The source, literally: only entries of cycle t-1 are compared with what is here."""
    whole = losses.look

    def look(p: Processor, env: Env, token: Token) -> None:
        last = tuple(entry for entry in token.S if entry.cycle == token.t - 1)
        whole(p, env, replace(token, S=last))

    patch.setattr(losses, "look", look)


@mutant("CB-35 A13", "D10", "progress", "no-crash", "total-order", "D9", "D6")
def counts_of_the_dead(patch: MonkeyPatch) -> None:
    """The source, literally: the counts of members that failed stay, while N falls."""
    patch.setattr(reformation, "recounted", lambda entry, list_: entry)

    def complete(entry: Entry, list_: PassingList, counting: Any) -> bool:
        number = max(len(entry.acks), entry.counter)
        return number >= len(entries.expected(entry, list_))

    for module in (entries, tokens):
        patch.setattr(module, "complete", complete)


@mutant(
    "CB-37 A12", "token-lineage", "total-order", "D9", "M2", "progress", "D10", "no-crash", "D12"
)
def one_member_deletes_another(patch: MonkeyPatch) -> None:
    """The source, literally: who gets no answer deletes its successor and goes on."""
    whole = reformation.gather

    def gather(p: Processor, env: Env, graced: bool) -> None:
        config = p.config
        p.config = replace(config, members=config.members[:1])
        try:
            whole(p, env, graced)
        finally:
            p.config = config

    def tally(p: Processor, env: Env) -> None:
        if p.reform.proposed is not None:
            value = p.reform.proposed
            env.broadcast(Newl(p.group, value))
            epoch.install(p, env, value, issuer=True)

    patch.setattr(reformation, "gather", gather)
    patch.setattr(reformation, "tally", tally)


@mutant("CB-3 A18", "progress", "no-crash")
def duplicates_by_periods(patch: MonkeyPatch) -> None:
    """The source, literally: who hears fewer than N tokens from one of its turns to the next takes
    the one it gets for a duplicate, and gives it up."""
    hear, accept = tokens.hear, tokens.accept
    heard: dict[Processor, int] = {}

    def counting(p: Processor, env: Env, token: Token) -> None:
        heard[p] = heard.get(p, 0) + 1
        hear(p, env, token)

    def giving_up(p: Processor, env: Env, token: Token) -> None:
        periods = heard.pop(p, 0)
        if p.released is None or periods >= len(token.list.seats) - 1:
            accept(p, env, token)

    patch.setattr(tokens, "hear", counting)
    patch.setattr(tokens, "accept", giving_up)


@mutant("CB-12 CB-22", "no-crash", "D10", "total-order", "D9")
def counts_what_it_does_not_hold(patch: MonkeyPatch) -> None:
    """Counts an entry though messages of it are missing."""

    def holds(p: Processor, entry: Entry, token: Token) -> bool:
        return entry.key not in p.holding.counted and entries.destined(entry, p.me, token.list)

    patch.setattr(tokens, "holds", holds)


@mutant("CB-4 A4", "progress")
def nothing_is_removed(patch: MonkeyPatch) -> None:
    """Leaves complete entries in the token for ever."""
    patch.setattr(tokens, "removable", lambda p, entry, token: False)


@mutant("CB-20", "total-order", "D9", "causal", "D12", "D10")
def everybody_has_an_order_of_its_own(patch: MonkeyPatch) -> None:
    """Begins the order of a cycle with its own messages."""
    whole = commit.in_order

    def in_order(p: Processor, *args: Any) -> Any:
        found = whole(p, *args)
        return sorted(found, key=lambda item: (item[1] != p.me, item[0]))

    patch.setattr(commit, "in_order", in_order)


@mutant("CB-25", "progress", "M5")
def a_lost_token_is_never_sent_again(patch: MonkeyPatch) -> None:
    """Neither reissues a token nor notices silence."""

    def ignore(p: Processor, env: Env, event: TimerFired) -> None:
        return

    handler(patch, Phase.MEMBER, Timer.MONITOR, ignore)
    handler(patch, Phase.MEMBER, Timer.SILENCE, ignore)


@mutant("CB-10", "progress")
def asks_once(patch: MonkeyPatch) -> None:
    """Does not repeat a request."""

    def ignore(p: Processor, env: Env, event: TimerFired) -> None:
        return

    for phase in (Phase.MEMBER, Phase.FROZEN):
        handler(patch, phase, Timer.REQUEST, ignore)


@mutant("CB-15 A10", "progress")
def only_the_sender_answers(patch: MonkeyPatch) -> None:
    """The source, literally: nobody answers for a sender that is gone."""
    whole = losses.on_req

    def on_req(p: Processor, env: Env, event: Received) -> None:
        if event.message.sender == p.me:  # type: ignore[attr-defined]
            whole(p, env, event)

    for phase in (Phase.MEMBER, Phase.FROZEN):
        handler(patch, phase, Req, on_req)


@mutant("CB-39", "progress")
def nothing_is_struck(patch: MonkeyPatch) -> None:
    """Keeps messages listed that nobody has."""
    patch.setattr(reformation, "struck", lambda entries, list_, proms: entries)


@mutant("CB-37", "total-order", "D9", "no-crash", "D6", "M7", "D10", "M2", "progress")
def a_promise_binds_nobody(patch: MonkeyPatch) -> None:
    """Goes on with tokens of the old epoch after a promise."""
    handler(patch, Phase.FROZEN, Token, tokens.on_token)


@mutant("CB-41", "integrity", "total-order", "D10", "validity", "fifo")
def sends_again_without_asking(patch: MonkeyPatch) -> None:
    """After an exclusion sends all again that it has not delivered, without asking what became of
    it."""
    whole = recovery.excluded

    def excluded(p: Processor, env: Env, why: str = "excluded", owed: bool = True) -> None:
        whole(p, env, why, owed=False)

    for module in (recovery, epoch, reformation, tokens):
        patch.setattr(module if module is recovery else module.recovery, "excluded", excluded)


@mutant("CB-40", "no-crash", "total-order", "D9", "progress", "integrity", "validity")
def a_new_cycle_after_each_reformation(patch: MonkeyPatch) -> None:
    """Raises its cycle again when it owns the same token a second time."""
    whole = epoch.begin

    def begin(p: Processor, value: Any) -> None:
        p.unreleased = False
        whole(p, value)

    patch.setattr(epoch, "begin", begin)


@mutant("CB-31 A14", "progress")
def newcomers_must_have_everything(patch: MonkeyPatch) -> None:
    """Expects a newcomer to count what was sent before it came."""

    def expected(entry: Entry, list_: PassingList) -> set[int]:
        return {
            seat.node
            for seat in list_.seats
            if seat.node != entry.sender and (not entry.to or seat.node in entry.to)
        }

    patch.setattr(entries, "expected", expected)


@mutant("CB-1", "validity", "progress", "D9", "integrity")
def large_messages_go_on_in_the_next_view(patch: MonkeyPatch) -> None:
    """Does not begin a large message anew in another view."""
    patch.setattr(sending, "begin_cycle", lambda p: None)


@mutant("CB-31", "progress")
def nobody_is_taken_in(patch: MonkeyPatch) -> None:
    """Forgets who asked to become a member."""

    def on_join(p: Processor, env: Env, event: Received) -> None:
        return

    for phase in (Phase.MEMBER, Phase.FROZEN):
        handler(patch, phase, Join, on_join)


@mutant("CB-22 P9", "token-lineage")
def counts_at_every_visit(patch: MonkeyPatch) -> None:
    """Counts what it has counted before."""
    whole = tokens.holds

    def holds(p: Processor, entry: Entry, token: Token) -> bool:
        p.holding.counted.discard(entry.key)
        return whole(p, entry, token)

    patch.setattr(tokens, "holds", holds)


@mutant("CB-26", "token-lineage", "progress")
def what_is_sent_again_knows_more(patch: MonkeyPatch) -> None:
    """Counts anew what it holds by now when it sends a token again, under the same hop."""
    whole = tokens.on_monitor

    def on_monitor(p: Processor, env: Env, event: TimerFired) -> None:
        sent = p.released
        if sent is not None and (p.newest is None or p.newest.hop <= sent.hop):
            found: list[Entry] = []
            for entry in sent.S:
                if tokens.holds(p, entry, sent):
                    p.holding.counted.add(entry.key)
                    tokens.compose(p, entry)
                    entry = entries.count(entry, p.me, p.config.counting)
                found.append(entry)
            p.released = replace(sent, S=tuple(found))
        whole(p, env, event)

    handler(patch, Phase.MEMBER, Timer.MONITOR, on_monitor)


@mutant("CB-3 P10", "token-lineage", "no-crash")
def takes_old_tokens(patch: MonkeyPatch) -> None:
    """Owns a token that it has passed on before when it comes again, in the same rotation."""
    whole = tokens.stale

    def stale(p: Processor, env: Env, token: Token) -> None:
        sent = p.released
        if sent and token.n == p.me and token.hop == sent.hop - 1 and p.held is None:
            p.held = token
            tokens.release(p, env)
        else:
            whole(p, env, token)

    patch.setattr(tokens, "stale", stale)


@mutant("CB-16 CB-4", "token-lineage", "total-order", "D9", "D10", "progress")
def all_but_one_are_enough(patch: MonkeyPatch) -> None:
    """Takes an entry for complete when one member may still lack it."""

    def complete(entry: Entry, list_: PassingList, counting: Any) -> bool:
        number = max(len(entry.acks), entry.counter)
        return number >= len(entries.expected(entry, list_)) - 1

    for module in (entries, tokens):
        patch.setattr(module, "complete", complete)


@mutant("CB-36", "progress", "token-lineage")
def counts_nothing_anew(patch: MonkeyPatch) -> None:
    """With bare counters, counts no entry again in a new epoch, though all counters begin at 0."""
    whole = epoch.begin

    def begin(p: Processor, value: Any) -> None:
        counted = set(p.holding.counted)
        whole(p, value)
        p.holding.counted |= counted

    patch.setattr(epoch, "begin", begin)


@mutant("CB-39 CB-31", "progress")
def newcomers_vouch_for_earlier_cycles(patch: MonkeyPatch) -> None:
    """Believes that one that was taken in later held what was sent before."""
    whole = reformation.found

    def found(entry: Entry, proms: dict[int, Prom]) -> tuple[list[int], list[int]]:
        if any(prom.token is not None and prom.committed >= entry.cycle for prom in proms.values()):
            return list(entry.numbers()), []
        return whole(entry, proms)

    patch.setattr(reformation, "found", found)


@mutant(
    "CB-37",
    survives="No run of 300 has two initiators that meet so; "
    "`rules/test_counter_reform.py -k second_ballot` shows it.",
)
def two_promises_for_an_epoch(patch: MonkeyPatch) -> None:
    """Promises the higher of two ballots for one epoch, whatever it promised before."""
    whole = reformation.on_prep

    def on_prep(p: Processor, env: Env, event: Received) -> None:
        prep, promised = event.message, p.reform.promised
        assert isinstance(prep, Prep)
        again = promised is not None and prep.ballot.epoch == promised.epoch
        if again and promised is not None and prep.ballot > promised and not p.reform.stored:
            p.reform.promised = None
        whole(p, env, event)
        if p.reform.promised is None:
            p.reform.promised = promised

    for phase in Phase:
        handler(patch, phase, Prep, on_prep)

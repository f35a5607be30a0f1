"""Mutants of RBP: the source read literally, and single rules broken."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.rbp import delivery, install, lists, losses, ordering
from ringcast.protocols.rbp.catchup import CatchUp
from ringcast.protocols.rbp.config import Config
from ringcast.protocols.rbp.epochs import NOBODY, Extent, Ids
from ringcast.protocols.rbp.log import Log
from ringcast.protocols.rbp.machine import Rbp
from ringcast.protocols.rbp.messages import Ack, Join
from ringcast.protocols.rbp.reformation import Reformation
from ringcast.protocols.rbp.state import Mine, Phase, Processor, Timer


def handler(patch: MonkeyPatch, key: Any, act: Any, *phases: Phase) -> None:
    """Replace the handler of an input."""
    for phase in phases or Phase:
        patch.setitem(Rbp.table.rows[phase], key, act)


@mutant("rbp R1 G3", "integrity", "content", "fifo", "causal", "D9")
def a_retry_is_a_new_message(patch: MonkeyPatch) -> None:
    """The source, literally: the id grows inside the retry loop, so each retry is a new message."""

    def on_data_timer(p: Processor, env: Env, event: TimerFired) -> None:
        late = [mine for mine in p.sending.mine if mine.data.counter > p.sending.named]
        for mine in late[:1]:
            p.sending.counter += 1
            data = replace(mine.data, counter=p.sending.counter)
            p.sending.mine.append(Mine(data, mine.whole))
            p.log.store(data)
            env.broadcast(data)
        if late:
            env.set_timer(Timer.DATA, p.config.data_us)

    handler(patch, Timer.DATA, on_data_timer, Phase.MEMBER)


@mutant("rbp R6 G13", "D9", "total-order", "content", "uniform-in-view", "no-crash", "progress")
def an_old_token_falls_through(patch: MonkeyPatch) -> None:
    """The source, literally: after an old token the code goes on and issues a number again."""

    def known(p: Processor, env: Env, src: NodeId, ack: Ack) -> None:
        if ack.next == p.me and p.log.held == p.ring.seen:
            ordering.issue(p, env, p.log.select(p.config.batch))

    patch.setattr(ordering, "known", known)


@mutant("rbp R3 G8", "progress")
def a_body_after_its_ack_is_thrown_away(patch: MonkeyPatch) -> None:
    """The source, literally: a body is stored only if no ACK for it is known."""
    patch.setattr(Log, "wants", lambda log, key: False)


@mutant("rbp R2 G20", "validity", "progress")
def an_ack_ends_the_care_of_the_source(patch: MonkeyPatch) -> None:
    """The source, literally: once an ACK names its body, the source forgets it, though the entry
    may be void."""
    whole = ordering.hear

    def hear(p: Processor, env: Env, ack: Ack) -> None:
        whole(p, env, ack)
        mine = p.sending.mine
        while mine and mine[0].data.counter <= p.sending.named:
            mine.popleft()

    patch.setattr(ordering, "hear", hear)


@mutant("rbp R9", "progress")
def nobody_asks(patch: MonkeyPatch) -> None:
    """What is missing is not asked for."""
    patch.setattr(losses, "look", lambda p, env: None)


@mutant("rbp R8 R18", "progress")
def a_lost_token_is_never_found(patch: MonkeyPatch) -> None:
    """An ACK is sent once, and silence is not noticed."""
    handler(patch, Timer.TOKEN, lambda p, env, event: None, Phase.MEMBER)
    handler(patch, Timer.ACT, lambda p, env, event: None, Phase.MEMBER)


@mutant("rbp K2 K4", "uniform-in-view", "one-log", "no-crash", "D10")
def delivered_when_held(patch: MonkeyPatch) -> None:
    """Every level delivers as the unsafe one, and claims what it claimed."""
    patch.setattr(delivery, "required", lambda p, entry: 1)


@mutant("rbp F5 G28", "uniform-in-view", "one-log", "no-crash", "D6", "D9", "progress")
def a_vote_binds_nobody(patch: MonkeyPatch) -> None:
    """Goes on ordering in the old list after a yes."""

    def freeze(p: Processor, env: Env) -> Extent:
        return p.extent()

    patch.setattr(install, "freeze", freeze)


@mutant("rbp F7", "uniform-in-view", "one-log", "total-order", "no-crash", "D6", "M2", "progress")
def a_majority_of_the_last_list_is_enough(patch: MonkeyPatch) -> None:
    """The majority test counts members of the last list, not of the group."""

    def enough(votes: lists.Votes, config: Config, view: ViewId, ring: int) -> bool:
        return sum(lists.committed(vote, view) for vote in votes.values()) > ring // 2

    def made(version: ViewId, votes: lists.Votes, config: Config, *rest: Any) -> Any:
        return whole(version, votes, replace(config, members=()), *rest)

    whole: Any = lists.made
    patch.setattr(lists, "enough", enough)
    patch.setattr(lists, "made", made)


@mutant("rbp F8 G22", "uniform-in-view", "one-log", "no-crash")
def a_majority_votes_whatever_the_level(patch: MonkeyPatch) -> None:
    """Leaves out the resiliency test: a majority is enough for levels that need more."""
    patch.setattr(Config, "awaited", lambda config, ring: 1)


@mutant("rbp G47", "uniform-in-view", "one-log", "no-crash")
def an_amnesiac_votes(patch: MonkeyPatch) -> None:
    """Counts votes of restarted sites, which have forgotten what they held."""

    def enough(votes: lists.Votes, config: Config, view: ViewId, ring: int) -> bool:
        return len(votes) >= config.majority

    patch.setattr(lists, "enough", enough)


@mutant("rbp F10", "no-crash", "progress", "uniform-in-view")
def commits_without_what_it_lacks(patch: MonkeyPatch) -> None:
    """Gives its second yes at once."""
    whole = Reformation._align

    def align(site: Reformation, env: Env) -> None:
        config = site.announced
        whole(site, env)
        if site.announced is not None and config is not None:
            site.announced = None
            site.pending = [config]
            site._second_yes(env, config)

    patch.setattr(Reformation, "_align", align)


@mutant("rbp F15", "integrity", "uniform-in-view", "D10", "content", "fifo", "causal", "D6")
def comes_back_without_asking(patch: MonkeyPatch) -> None:
    """An excluded member does not ask what became of its view, and sends all again."""

    def follow(self: CatchUp, env: Env) -> None:
        self.site.out(env, NOBODY)

    patch.setattr(CatchUp, "follow", follow)


@mutant("rbp F1", "progress")
def nobody_may_join(patch: MonkeyPatch) -> None:
    """Forgets who asked to join."""

    def on_join(p: Any, env: Env, event: Received) -> None:
        assert isinstance(event.message, Join)
        if p.current is None:
            p.chooser.on_join(env, event)

    handler(patch, Join, on_join)


@mutant("rbp R7", "fifo", "causal", "no-crash", "D9", "integrity", "accounted", "progress")
def any_body_is_next(patch: MonkeyPatch) -> None:
    """Orders bodies of a source as they arrive, not by their counters."""

    def select(log: Log, batch: int) -> tuple[Ids, ...]:
        taken: dict[NodeId, int] = {}
        for _, source, counter in log.pool:
            taken.setdefault(source, counter)
        return tuple(Ids(source, counter, counter) for source, counter in taken.items())

    patch.setattr(Log, "select", select)

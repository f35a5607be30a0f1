"""Mutants of messages to some members, in the counter-based protocol."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import after, mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.inputs import Received, Submitted
from ringcast.protocols.counter import commit, epoch, losses, recovery, sending, tokens
from ringcast.protocols.counter.entries import destined, reached
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.counter.messages import Entry, Msg, PassingList
from ringcast.protocols.counter.state import Phase, Processor


def handler(patch: MonkeyPatch, key: Any, act: Any) -> None:
    """Replace the handler of an input of members."""
    for phase in (Phase.MEMBER, Phase.FROZEN):
        patch.setitem(CounterBased.table.rows[phase], key, act)


@mutant("CB-43 CB-8", "multicast")
def delivers_what_is_for_others(patch: MonkeyPatch) -> None:
    """A member keeps, counts and delivers messages that it is not to get."""
    whole = losses.on_msg

    def on_msg(p: Processor, env: Env, event: Received) -> None:
        msg = event.message
        assert isinstance(msg, Msg)
        if msg.to and p.me not in msg.to and msg.p > p.committed:
            p.holding.data[msg.key] = msg
        else:
            whole(p, env, event)

    handler(patch, Msg, on_msg)

    def for_anybody(entry: Entry, node: int, list_: PassingList) -> bool:
        return destined(replace(entry, to=()), node, list_)

    patch.setattr(tokens, "destined", for_anybody)


@mutant("CB-43 CB-1", "multicast")
def leaves_one_out(patch: MonkeyPatch) -> None:
    """A sender forgets the last one of those that a message is for."""

    def on_submitted(p: Processor, env: Env, event: Submitted) -> None:
        to = event.to[:-1] if len(event.to) > 1 else event.to
        sending.on_submitted(p, env, replace(event, to=to))

    handler(patch, Submitted, on_submitted)


@mutant("CB-43 CB-17", "multicast")
def one_of_them_passes_it_over(patch: MonkeyPatch) -> None:
    """The last one of those that a message is for holds it, counts it and does not deliver it."""
    whole = commit.hand_up

    def hand_up(p: Processor, env: Env, msg: Msg, seq: int) -> None:
        if not msg.to or p.me != msg.to[-1]:
            whole(p, env, msg, seq)

    patch.setattr(commit, "hand_up", hand_up)


@mutant("CB-44 CB-20", "multicast")
def what_is_for_some_comes_first(patch: MonkeyPatch) -> None:
    """Delivers the messages of a cycle that are for some before those that are for all."""

    def for_some_first(found: list[tuple[int, int, int]], p: Processor, cycle: int, *_: Any) -> Any:
        data = p.holding.data
        return sorted(found, key=lambda each: not data[each[1], cycle, each[2]].to)

    after(patch, commit, "in_order", for_some_first)


@mutant("CB-43 CB-41", "multicast", "integrity", "content", "fifo")
def sends_again_what_is_uncertain(patch: MonkeyPatch) -> None:
    """One that was excluded sends again what it had listed for some, as it does with the rest."""
    whole = recovery.put_back

    def put_back(p: Processor, env: Env) -> None:
        p.sending.own = {0: {(): list(p.sending.mine)}}  # as if nothing were listed
        whole(p, env)

    patch.setattr(recovery, "put_back", put_back)


@mutant("CB-44 CB-40", "M7", "D6", "D9", "multicast", "no-crash", "D10")
def parts_where_it_stands(patch: MonkeyPatch) -> None:
    """Takes leave of lost members behind what it has committed itself, and not behind what anybody
    may have."""
    patch.setattr(epoch, "furthest", lambda token, counting: -1)


@mutant("CB-44", "multicast", "total-order", "D9", "D6", "no-crash")
def commits_before_those_it_is_for_hold_it(patch: MonkeyPatch) -> None:
    """Does not wait for entries that are for some, of whom it is one."""

    def early(token: Any, counting: Any, node: int | None = None) -> int:
        to_all = tuple(entry for entry in token.S if not entry.to)
        return reached(replace(token, S=to_all), counting, node)

    patch.setattr(commit, "reached", early)

"""The system state S: who must hold what, who does, and what follows from it. Pure functions."""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.ids import NodeId
from ringcast.protocols.counter.config import Config, Counting, CycleOrder
from ringcast.protocols.counter.messages import Entry, PassingList, Token, in_force, size

PLACE_BITS = 14
"""Bits of a message's number within its sender's cycle, in its place in the order."""

RANK_BITS = 7
"""Bits of its sender's rank there."""


def expected(entry: Entry, list_: PassingList) -> set[NodeId]:
    """CB-16: who must hold an entry: destinations in the list that count its cycle (A14)."""
    return {
        seat.node
        for seat in list_.seats
        if seat.node != entry.sender
        and seat.since <= entry.cycle
        and (not entry.to or seat.node in entry.to)
    }


def complete(entry: Entry, list_: PassingList, counting: Counting) -> bool:
    """CB-16, CB-35: whether all of them are known to hold it."""
    if counting is Counting.SET:
        return expected(entry, list_) <= set(entry.acks)
    return entry.counter == len(expected(entry, list_))


def offered(cycle: int, token: Token) -> bool:
    """CB-17, A5: whether everybody has had the chance to list its messages of ``cycle``."""
    if token.t >= cycle + 2:
        return True
    return token.t == cycle + 1 and token.c == token.list.seats[-1].node


def reached(token: Token, counting: Counting, node: NodeId | None = None) -> int:
    """CB-17, CB-18, CB-44: the last cycle that ``node`` commits on a token: entries for others
    alone do not matter. Without one: that everybody does."""
    last = token.t - 1
    if not offered(last, token):
        last -= 1
    for entry in token.S:
        if (
            entry.cycle <= last
            and (node is None or not entry.to or node in entry.to)
            and not complete(entry, token.list, counting)
        ):
            last = entry.cycle - 1
    return last


def furthest(token: Token, counting: Counting) -> int:
    """CB-44: the last cycle that anybody can have committed on a token or on those before it."""
    if not any(entry.to for entry in token.S):
        return reached(token, counting)
    return max(reached(token, counting, node) for node in token.list.members)


def orphan(entry: Entry, list_: PassingList) -> bool:
    """CB-15, A10: whether its sender is gone, or back in another life."""
    seat = list_.seat(entry.sender)
    return seat is None or seat.since > entry.cycle


def destined(entry: Entry, node: NodeId, list_: PassingList) -> bool:
    """CB-43: whether ``node`` is to get it, and counts its cycle."""
    if entry.sender == node or (entry.to and node not in entry.to):
        return False
    seat = list_.seat(node)
    return seat is not None and seat.since <= entry.cycle


def count(entry: Entry, node: NodeId, counting: Counting) -> Entry:
    """CB-22: the entry with one holder more."""
    if counting is Counting.SET:
        return replace(entry, acks=tuple(sorted({*entry.acks, node})))
    return replace(entry, counter=entry.counter + 1)


def uncount(entry: Entry, node: NodeId, counting: Counting) -> Entry:
    """CB-33, A13: the entry without the holder that leaves."""
    if counting is Counting.SET:
        return replace(entry, acks=tuple(ack for ack in entry.acks if ack != node))
    return replace(entry, counter=entry.counter - 1)


def recounted(entry: Entry, list_: PassingList) -> Entry:
    """CB-35, CB-36, CB-40: an entry at the begin of an epoch: holders that are still members, and
    a counter from zero."""
    members = set(list_.members)
    return replace(entry, acks=tuple(a for a in entry.acks if a in members), counter=0)


def listed(entries: tuple[Entry, ...] | list[Entry]) -> int:
    """CB-28: how many ids are recorded."""
    return sum(size(entry.ids) for entry in entries)


def rank(sender: NodeId, cycle: int, lists: tuple[PassingList, ...], config: Config) -> int:
    """CB-20, CB-21: a sender's place among those of a cycle."""
    members = in_force(lists, cycle).members
    place = members.index(sender)
    if config.order is CycleOrder.ROTATING:
        place = (place - cycle - config.first_sender) % len(members)
    return place


def place(cycle: int, rank: int, number: int) -> int:
    """P6: the place of a message in the order, by cycle, rank and number within both."""
    return ((cycle << RANK_BITS | rank) << PLACE_BITS) | number

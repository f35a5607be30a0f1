"""I6, I8: what a member contributes to a change, and which epoch a set of contributions makes.
Calculations, without a word to anybody."""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.irbp.config import Config
from ringcast.protocols.irbp.messages import MOST_UNSTABLE, Change, Contribution, Kind, Successor
from ringcast.protocols.rbp.epochs import Entry, Epoch, EpochConfig, Extent, Seat
from ringcast.protocols.rbp.state import Processor

Contributions = Mapping[NodeId, Contribution]


def contribution(p: Processor, change: Change, extent: Extent) -> Contribution:
    """I6: how far our log reaches; for a regular view, what we have not delivered of it as well."""
    after = extent.delivered
    entries: tuple[Entry, ...] = ()
    if change.kind is Kind.REGULAR and extent.number - after <= MOST_UNSTABLE:
        entries = p.read(after, extent.number, MOST_UNSTABLE) or ()
    bodies, before = p.bodies(entries), p.log.tag_at(after)
    return Contribution(p.group, change.epoch, change.kind, extent, entries, bodies, before)


def best(config: EpochConfig, given: Contributions) -> NodeId:
    """The greatest tail, by its tag and then its number (G36); of equal ones the first in M."""
    order = [node for node in config.members if node in given]
    return max(
        order,
        key=lambda node: (
            given[node].extent.tail,
            given[node].extent.number,
            -order.index(node),
        ),
    )


def next_iview(
    config: EpochConfig, given: Contributions, settings: Config, avoid: NodeId = 0
) -> Successor:
    """I8: the same members; the ring are those that are not far behind, and a majority at least.

    The ring begins with the best log, which is the base. I3: ``avoid`` is left out, if it can be.
    """
    chosen = best(config, given)
    extent = given[chosen].extent
    start = extent.number
    lag = {node: start - min(start, each.extent.number) for node, each in given.items()}
    near = {node for node in given if lag[node] <= settings.catch and node != avoid} | {chosen}
    least = settings.contributions(len(config.members))
    for node in sorted(given, key=lambda node: (lag[node], config.members.index(node))):
        if len(near) >= least:
            break
        near.add(node)
    ring = [node for node in config.members if node in near]
    at = ring.index(chosen)
    core = tuple(ring[at:] + ring[:at])
    epoch = Epoch(config.epoch.view, config.epoch.step + 1)
    return Successor(
        EpochConfig(epoch, config.seats, core, start, extent.tail, 0, config.parent), (), ()
    )


def next_view(
    config: EpochConfig,
    given: Contributions,
    leavers: frozenset[NodeId],
    joiners: Mapping[NodeId, int],
) -> Successor | None:
    """I8: contributors without leavers, joiners last; None if nobody is left. I14: all of them are
    in the ring, and the first in the list begins.

    The value has what the best log holds and has not delivered, with bodies (G33).
    """
    chosen = best(config, given)
    source = given[chosen]
    seats = [seat for seat in config.seats if seat.node in given and seat.node not in leavers]
    staying = {seat.node for seat in seats}
    seats += [Seat(node, life) for node, life in sorted(joiners.items()) if node not in staying]
    if not seats:
        return None
    extent = source.extent
    view = ViewId(config.epoch.view.seq + 1, seats[0].node)
    members = tuple(seat.node for seat in seats)
    following = EpochConfig(
        Epoch(view),
        tuple(seats),
        members,
        extent.number,
        extent.tail,
        extent.number,
        config.epoch.view,
    )
    return Successor(following, source.entries, source.bodies, source.before)

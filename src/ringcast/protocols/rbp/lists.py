"""F7 to F9: which list a set of votes makes, if any. A calculation, without a word to anybody."""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.rbp.config import Config
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Epoch, EpochConfig, Seat
from ringcast.protocols.rbp.messages import Vote

Votes = Mapping[NodeId, Vote]


def next_list(version: ViewId, votes: Votes, config: Config) -> EpochConfig | str:
    """The list of ``version``, or why these votes make none."""
    pending = newest_pending(votes)
    installed = max((vote.installed or NOBODY for vote in votes.values()), default=NOBODY)
    if pending is not None and pending.epoch.view > installed:
        found = replaced(version, votes, config, pending)
    elif installed != NOBODY:
        found = continued(version, votes, config, installed)
    else:
        found = None
    if found is None and sum(vote.blank for vote in votes.values()) >= config.majority:
        found = anew(version, votes, config)
    return found or f"{len(votes)} votes of {config.n} sites are too few (rbp F7, F8)"


def newest_pending(votes: Votes) -> EpochConfig | None:
    """The newest list that was committed and, for all these votes tell, may be in force.

    It is not, and never will be, if one of its own members has not committed it: having voted for a
    later version, that one refuses (F10).
    """
    pending = {each.epoch.view: each for vote in votes.values() for each in vote.pending}
    for view in sorted(pending, reverse=True):
        lives = pending[view].lives
        if all(
            lives.get(node) != vote.life or committed(vote, view) for node, vote in votes.items()
        ):
            return pending[view]
    return None


def committed(vote: Vote, view: ViewId) -> bool:
    """Whether the vote's maker gave that list its second yes."""
    return vote.installed == view or any(each.epoch.view == view for each in vote.pending)


def enough(votes: Votes, config: Config, view: ViewId, ring: int) -> bool:
    """F7: of those who committed no later list, as far as these votes can tell, too few are left
    for any later list to be in force, which takes more than half of the group. F8: so many of the
    list take part that one holds whatever was delivered in it."""
    there = [vote for vote in votes.values() if committed(vote, view)]
    known = sum(committed(vote, view) or no_later(vote, view) for vote in votes.values())
    return config.n - known < config.majority and len(there) >= config.awaited(ring)


def no_later(vote: Vote, view: ViewId) -> bool:
    """Whether the vote's maker knows that it was in no later list in a life that it forgot."""
    return vote.forgot is not None and vote.forgot <= view


def continued(version: ViewId, votes: Votes, config: Config, parent: ViewId) -> EpochConfig | None:
    """F9: the list that follows one in force: its members, and those who are in none. The token
    goes to the longest log: a number that one of them heard survives, any other is void (R23).
    Members of an older list first find out what became of it (F15)."""
    inside = {node: vote for node, vote in votes.items() if vote.installed == parent}
    best = min(inside, key=lambda node: (-inside[node].number, node))
    vote = inside[best]
    if not enough(votes, config, parent, vote.ring):
        return None
    chosen = [n for n in config.members if n in votes and present(votes[n], parent, vote.number)]
    return made(version, votes, config, chosen, best, vote.number, vote.tail, parent)


def replaced(
    version: ViewId, votes: Votes, config: Config, pending: EpochConfig
) -> EpochConfig | None:
    """F9 ext: the list that follows one which may be in force, though nobody here has seen it so.

    Nothing was delivered in it, for lack of holders (F8), and nothing will be. Whoever saw it in
    force closed the view before at its start: so there the new list begins as well, in its place.
    """
    if not enough(votes, config, pending.epoch.view, len(pending.core)):
        return None
    start, parent = pending.start, pending.parent
    if parent is None:
        return anew(version, votes, config)
    chosen = [n for n in config.members if n in votes and present(votes[n], parent, start)]
    holding = [n for n in chosen if votes[n].installed == parent and votes[n].number >= start]
    if not holding:
        return None
    return made(version, votes, config, chosen, holding[0], start, pending.base, parent)


def present(vote: Vote, parent: ViewId, start: int) -> bool:
    """Whether a site can be in the next list: it is in none, or in the parent, or has committed
    that, or is in a list in which nothing was delivered and that began where the next one does."""
    return vote.out or committed(vote, parent) or vote.start == start


def anew(version: ViewId, votes: Votes, config: Config) -> EpochConfig | None:
    """F7 ext: a majority remembers nothing, so nobody can ever prove what was delivered; they begin
    anew."""
    chosen = [node for node in config.members if node in votes and votes[node].out]
    if not chosen:
        return None
    return made(version, votes, config, chosen, chosen[0], 0, NEVER, None)


def made(
    version: ViewId,
    votes: Votes,
    config: Config,
    chosen: list[NodeId],
    best: NodeId,
    start: int,
    base: Epoch,
    parent: ViewId | None,
) -> EpochConfig | None:
    """F7: the list, if it is a majority, rotated so that the best log is first."""
    if len(chosen) < config.majority:
        return None
    at = chosen.index(best)
    core = tuple(chosen[at:] + chosen[:at])
    seats = tuple(Seat(node, votes[node].life) for node in chosen)
    return EpochConfig(Epoch(version), seats, core, start, base, start, parent)

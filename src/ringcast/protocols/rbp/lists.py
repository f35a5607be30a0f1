"""F7 to F9: which list a set of votes makes, if any. A calculation, without a word to anybody."""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.rbp.config import Config
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Epoch, EpochConfig, Seat
from ringcast.protocols.rbp.messages import MOST_PENDING, Vote

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
        listed = [node for node in votes if node in lives]
        if not any(refutes(votes[node], view, lives[node]) for node in listed):
            return pending[view]
    return None


def refutes(vote: Vote, view: ViewId, life: int) -> bool:
    """Whether the site that votes knows that it did not commit list ``view``, where it has a seat
    in life ``life``. A site that forgot lists says how far they go. One that cannot say that knows
    only of its present life, as far back as a vote has room."""
    if committed(vote, view):
        return False
    if vote.forgot is not None:
        return view > vote.forgot
    whole = len(vote.pending) < MOST_PENDING or view > vote.pending[0].epoch.view
    return vote.life == life and whole


def committed(vote: Vote, view: ViewId) -> bool:
    """Whether the vote's maker gave that list its second yes."""
    return vote.installed == view or any(each.epoch.view == view for each in vote.pending)


def enough(votes: Votes, config: Config, view: ViewId, ring: int) -> bool:
    """F7: of those who committed no later list, as far as these votes can tell, too few are left
    for any later list to be in force, which takes more than half of the group. F8: so many of the
    list take part that one holds whatever was delivered in it."""
    there = [vote for vote in votes.values() if committed(vote, view)]
    known = sum(no_later(vote, view) for vote in votes.values())
    return config.n - known < config.majority and len(there) >= config.awaited(ring)


def no_later(vote: Vote, view: ViewId) -> bool:
    """Whether the vote's maker committed no later list but those that it names."""
    return vote.forgot <= view if vote.forgot is not None else committed(vote, view)


def continued(version: ViewId, votes: Votes, config: Config, parent: ViewId) -> EpochConfig | None:
    """F9: the list that follows one in force: its members, and those who are in none. The token
    goes to the longest log: a number that one of them heard survives, any other is void (R23).
    Members of an older list first find out what became of it (F15)."""
    inside = {node: vote for node, vote in votes.items() if vote.installed == parent}
    best = min(inside, key=lambda node: (-inside[node].number, node))
    vote = inside[best]
    if not enough(votes, config, parent, vote.ring):
        return None
    start, base = vote.number, vote.tail
    chosen = [n for n in config.members if n in votes and present(votes[n], parent, start, base)]
    return made(version, votes, config, chosen, best, start, base, parent)


def replaced(
    version: ViewId, votes: Votes, config: Config, pending: EpochConfig
) -> EpochConfig | None:
    """F9 ext: the list that follows one which may be in force, though nobody here has seen it so.

    Nothing was delivered in it, for lack of holders (F8), and nothing will be. Whoever saw it in
    force closed the view before at its start: so there the new list begins as well, in its place.
    """
    if not enough(votes, config, pending.epoch.view, len(pending.core)):
        return None
    start, base, parent = pending.start, pending.base, pending.parent
    if parent is None:
        return anew(version, votes, config)
    chosen = [n for n in config.members if n in votes and present(votes[n], parent, start, base)]
    holding = [
        n for n in chosen if reaches(votes[n], parent, start) or begins(votes[n], start, base)
    ]
    if not holding:
        return None
    return made(version, votes, config, chosen, holding[0], start, base, parent)


def present(vote: Vote, parent: ViewId, start: int, base: Epoch) -> bool:
    """Whether a site can be in the next list: it is in none, or in the parent, or has committed
    that, or is in a list in which nothing was delivered and that began where the next one does, in
    the same log."""
    return vote.out or committed(vote, parent) or begins(vote, start, base)


def begins(vote: Vote, start: int, base: Epoch) -> bool:
    """Whether a site is in a list that begins there, and has delivered nothing in it."""
    return not vote.out and (vote.start, vote.base) == (start, base)


def reaches(vote: Vote, parent: ViewId, start: int) -> bool:
    """Whether the log of a site in that list goes so far."""
    return vote.installed == parent and vote.number >= start


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

"""Reformation, the originator's side: inviting, announcing, and the token (F2, F3, F6 to F9, F11 to
F13).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.rbp import install
from ringcast.protocols.rbp.epochs import NOBODY, Epoch, EpochConfig
from ringcast.protocols.rbp.lists import next_list
from ringcast.protocols.rbp.messages import Abort, Announce, Commit, Invite, News, Refuse, Vote

if TYPE_CHECKING:
    from ringcast.protocols.rbp.reformation import Reformation

TICKS = 4
"""Invitations within ``vote_us``."""

RECOVERY = 3
"""Times ``vote_us`` that members may take to recover what they lack (F10)."""


class ReformTimer(StrEnum):
    """The timers of reformation."""

    VOTE = "rbp vote"
    """F6: an originator waits for votes."""
    WAIT = "rbp wait"
    """F13: nothing came of a version, or it is time to try again."""
    JOIN = "rbp join"
    """F1: ask again to be in a list."""


class Forming:
    """One attempt after the other to form a list."""

    def __init__(self, site: Reformation) -> None:
        self.site = site
        self.active = False
        self.version: ViewId = NOBODY
        self.heard_us = 0
        """When a list had last been heard of, as it began."""
        self.votes: dict[NodeId, Vote] = {}
        self.commits: set[NodeId] = set()
        self.config: EpochConfig | None = None
        """F9: what was announced."""
        self.ticks = 0
        self.suspects: set[NodeId] = set()
        """F6: sites that are not waited for."""

    # --- phase I --------------------------------------------------------------------------------

    def originate(self, env: Env, why: str) -> None:
        """F2, F3: a version above all seen; every site of the group is invited."""
        site, p = self.site, self.site.p
        self.drop(env)
        version = ViewId(max(site.highest, site.joined.seq) + 1, p.me)
        env.note("rbp F1", "originate", f"{version} ({why})", version)
        site.promise(env, version)
        self.active, self.version = True, version
        self.heard_us = site.heard_us
        self.votes, self.commits, self.config, self.ticks = {}, set(), None, 0
        self.votes[p.me] = site.vote()
        site.joiners.clear()
        env.cancel_timer(ReformTimer.WAIT)
        if len(p.members) > 1:
            env.broadcast(Invite(p.group, version))
            self._tick(env)
        else:
            self._decide(env)

    def drop(self, env: Env) -> None:
        """Our attempt is over. If the list is not in force here by now, it will be nowhere: nobody
        else says so first (F11)."""
        site = self.site
        site.pending = [each for each in site.pending if each.epoch.view != self.version]
        if self.active:
            env.cancel_timer(ReformTimer.VOTE)
        self.active = False
        self.config = None

    def _tick(self, env: Env) -> None:
        env.set_timer(ReformTimer.VOTE, max(1, self.site.p.config.vote_us // TICKS))

    def on_vote(self, env: Env, event: Received) -> None:
        """F6: decide when everybody has answered. F6 ext: whoever answers is running, even if the
        answer is too late. If it stayed a suspect, its next answer would be too late as well."""
        site, p, vote = self.site, self.site.p, event.message
        assert isinstance(vote, Vote)
        self.suspects.discard(event.src)
        if not self.active or vote.version != self.version or self.config is not None:
            env.drop("rbp F6", "a vote for another version")
            return
        self.votes[event.src] = vote
        current = p.current
        if current is not None and vote.installed is not None:
            if vote.installed < current.epoch.view:
                env.send(event.src, News(p.group, current))
            elif vote.installed > current.epoch.view:
                site.other_epoch(env, event.src, Epoch(vote.installed))
        if self.active and len(self.votes) == len(p.members):
            self._decide(env)

    def on_refuse(self, env: Env, event: Received) -> None:
        """F6, F10: a no ends the attempt; the next version is higher."""
        refuse = event.message
        assert isinstance(refuse, Refuse)
        self.site.highest = max(self.site.highest, refuse.joined.seq)
        current = self.site.p.current
        if current is not None and current.epoch.view == refuse.version:
            env.drop("rbp F11", "a no to a list that is in force")
        elif self.active and refuse.version == self.version and refuse.joined > self.version:
            self._abort(env, f"{event.src} has joined {refuse.joined}")
        else:
            env.drop("rbp F6", "a no to another version")

    def on_vote_timer(self, env: Env, event: TimerFired) -> None:
        """F6: invite and announce again; after the time decide with what there is, or give up."""
        p, config = self.site.p, self.config
        self.ticks += 1
        if config is None:
            if self.ticks >= TICKS or self._enough():
                self._decide(env)
            else:
                env.broadcast(Invite(p.group, self.version))
                self._tick(env)
        elif p.current is not None and p.current.epoch == config.epoch:
            self._repeat_news(env, config)
        elif self.ticks >= RECOVERY * TICKS:
            self._abort(env, "not all have committed")
        else:
            for node in config.members:
                if node not in self.commits and node != p.me:
                    env.send(node, Announce(p.group, config))
            self._tick(env)

    def _enough(self) -> bool:
        """F6: whether all that are in our list and not suspected have answered."""
        current = self.site.p.current
        members = current.members if current else self.site.p.members
        return all(node in self.votes or node in self.suspects for node in members)

    # --- phases II and III ----------------------------------------------------------------------

    def _decide(self, env: Env) -> None:
        """F7 to F9: a list, if the votes make one. F7 ext: a new beginning is for those of whom
        nobody else remembers anything."""
        site, p = self.site, self.site.p
        found = next_list(self.version, self.votes, p.config)
        if isinstance(found, str):
            env.note("rbp F7", "blocked", found, self.version, tuple(sorted(self.votes)))
            if p.current is not None:
                site.missing = frozenset(p.members) - self.votes.keys()
            self._abort(env, found)
            return
        if found.parent is None and site.heard_us > self.heard_us:
            self._abort(env, "a list was heard of meanwhile")  # it goes on, or freezes and votes
            return
        site.missing = None
        self.config, self.ticks = found, 0
        env.note("rbp F9", "announce", f"{found.epoch} start={found.start}", self.version)
        if len(found.members) > 1:
            env.broadcast(Announce(p.group, found))
            self._tick(env)
        site.announce(env, found)

    def on_commit(self, env: Env, event: Received) -> None:
        """F11: a second yes."""
        commit = event.message
        assert isinstance(commit, Commit)
        self.committed(env, event.src, commit.version)

    def committed(self, env: Env, node: NodeId, version: ViewId) -> None:
        """F11: with all of them, the list is in force. If we are not in it, its first is asked."""
        site, p, config = self.site, self.site.p, self.config
        if not self.active or config is None or version != self.version:
            env.drop("rbp F11", "a yes to another version")
            return
        self.commits.add(node)
        if not self.commits.issuperset(config.members) or p.current == config:
            return
        if len(p.members) > 1:
            env.broadcast(News(p.group, config))
        site.other_epoch(env, config.core[0], config.epoch)

    def _repeat_news(self, env: Env, config: EpochConfig) -> None:
        """F11: until the token is seen, or the ring's own watch finds it lost (R18)."""
        p = self.site.p
        if p.ring.seen > config.start or self.ticks >= 2 * TICKS or len(config.members) == 1:
            self.drop(env)
            return
        env.broadcast(News(p.group, config))
        self._tick(env)

    def _abort(self, env: Env, why: str) -> None:
        """F12, F13: tell all, and try again later."""
        site, p = self.site, self.site.p
        env.note("rbp F12", "abort", f"{self.version} ({why})", self.version)
        env.broadcast(Abort(p.group, self.version))
        self.drop(env)
        site.announced = None
        site.tries += 1
        if p.current is not None:
            install.freeze(p, env)
            site.wait(env, site.pause_us(env))

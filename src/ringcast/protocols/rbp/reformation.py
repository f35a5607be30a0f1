"""Reformation, the site's side: voting, committing, and coming back (F1, F4, F5, F10 to F15).

This is RBP's way to choose the next epoch. Each list has a version, which is its view's id.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.rbp import install, ordering
from ringcast.protocols.rbp.catchup import CatchUp, fetch
from ringcast.protocols.rbp.config import MAX_MEMBERS
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Chooser, Epoch, EpochConfig, Trouble
from ringcast.protocols.rbp.messages import (
    MOST_PENDING,
    Abort,
    Announce,
    Commit,
    Invite,
    Join,
    Leave,
    News,
    Refuse,
    Vote,
)
from ringcast.protocols.rbp.originator import Forming, ReformTimer
from ringcast.protocols.rbp.state import LIVES, Phase, Processor

JOINED = "rbp_joined"
"""Stable storage: the highest version that this site has voted for."""

ANYBODY: NodeId = 2**32 - 1
"""After a crash a site takes part in no version of a number that it voted for, whoever's it is."""

KNOWN = "rbp_known"
"""Stable storage: the newest list that this site has committed or was in, as one number (F7)."""

LEFT = "left"
"""The reason a member stops with when it leaves."""

RECENT = 3
"""Times ``join_us``: sites that asked within that are here."""

QUIET = 2
"""Times ``join_us``: without a word of a list for so long, nobody here is in one."""


class Reformation(Chooser):
    """What a site knows of lists beyond the one it is in."""

    judged_by = "a majority agreed on a list without it"
    one_epoch = True

    def __init__(self, p: Processor) -> None:
        self.p = p
        self.joined: ViewId = NOBODY
        """F4: the highest version that it has voted for."""
        self.highest = 0
        """F2: the highest counter seen."""
        self.forgot: ViewId | None = None
        """F7, G47: of the lists that it committed and forgot, none is later; None, if it cannot
        tell: it starts for the first time, or its storage is lost."""
        self.known: ViewId = NOBODY
        """The same of all the lists that it ever was in, as its storage says."""
        self.pending: list[EpochConfig] = []
        """Lists that it committed and has not seen in force, oldest first; ``_keep`` says which.
        Those in which its seat is of an earlier life it names in votes and never adopts."""
        self.announced: EpochConfig | None = None
        """F10: the list that it recovers for."""
        self.forming = Forming(self)
        self.catchup = CatchUp(self)
        self.joiners: dict[NodeId, int] = {}
        """F1: sites that ask to be in the next list, and the life that does."""
        self.blank: dict[NodeId, int] = {}
        """Sites that are in no list, and when they were heard."""
        self.heard_us = 0
        """When a list was last heard of, for one that is in none."""
        self.missing: frozenset[NodeId] | None = None
        """G46: who did not vote, when the votes made no list."""
        self.tries = 0
        """F13: reformations since the last list came in force."""

    # --- what the core says ---------------------------------------------------------------------

    def recall(self, stable: Mapping[str, int]) -> None:
        """A3: a site remembers how far the lists went that it voted for, and that it committed, and
        nothing else."""
        members, joined, known = self.p.members, stable.get(JOINED), stable.get(KNOWN)
        if joined is not None:
            self.joined, self.highest = ViewId(joined, ANYBODY), joined
        if known is not None:
            seq, rank = divmod(known, MAX_MEMBERS)
            self.known = ViewId(seq, members[rank] if rank < len(members) else ANYBODY)
            self.forgot = self.known

    def start(self, env: Env) -> None:
        """F1: a site that starts is in no list, whatever it was in before."""
        install.new_life(self.p, env)
        self.heard_us = env.now_us
        self._join_later(env)

    def _join_later(self, env: Env) -> None:
        env.set_timer(ReformTimer.JOIN, env.rng.randrange(self.p.config.join_us) + 1)

    def trouble(self, env: Env, why: Trouble, node: NodeId | None) -> None:
        """F1: a failure is detected: be the originator of a new list."""
        self.forming.suspects = {node} if node is not None else set()
        self.forming.originate(env, why.value)

    def turn(self, env: Env) -> bool:
        """F1: the holder of the token takes in those who ask, so that it is one originator."""
        p = self.p
        if not self.joiners:
            return False
        self.forming.suspects = set()
        self.forming.originate(env, "somebody asks to join")
        return p.phase is not Phase.MEMBER

    def other_epoch(self, env: Env, src: NodeId, epoch: Epoch) -> None:
        """R16, F11: a frame of a list that we have committed puts it in force."""
        view, current = epoch.view, self.p.current
        self.heard_us = env.now_us
        if view == self.joined and self._adopt(env, view):
            return
        if current is not None and view > current.epoch.view:
            self.catchup.begin(env, src)
        elif current is not None and view < current.epoch.view:
            self._tell(env, src)

    def grown(self, env: Env) -> None:
        """F10, F15: the log reaches further: perhaps as far as it must."""
        if self.announced is not None:
            self._align(env)
        elif self.catchup.helper is not None:
            self.catchup.follow(env)

    def installed(self, env: Env) -> None:
        """F11: a list is in force."""
        current = self.p.current
        assert current is not None
        view = current.epoch.view
        if self.joined < view:
            self._promised(env, view)
        if self.forgot is None or self.forgot <= view:
            self.forgot = NOBODY  # whatever it was in before was earlier than this (F4)
        self._know(env, max([view, *(each.epoch.view for each in self.pending)]))
        self.catchup.done()
        lives = current.lives
        self.joiners = {n: life for n, life in self.joiners.items() if lives.get(n) != life}
        env.cancel_timer(ReformTimer.JOIN)
        if self.joined == view:
            self.announced = None
            self.missing = None
            self.tries = 0
            self.blank.clear()
            env.cancel_timer(ReformTimer.WAIT)

    def leaving(self, env: Env) -> None:
        """F15: say so, and go."""
        if self.p.current is not None:
            env.broadcast(Leave(self.p.group, self.p.life))
        env.stop(LEFT)

    def snapshot(self) -> dict[str, object]:
        """State for people."""
        return {
            "joined": str(self.joined),
            "blocked": self.missing is not None,
            "forming": self.forming.active,
            "pending": len(self.pending),
        }

    # --- phase I: voting ------------------------------------------------------------------------

    def on_invite(self, env: Env, event: Received) -> None:
        """F4: yes to a version above all that we have voted for."""
        p, invite = self.p, event.message
        assert isinstance(invite, Invite)
        version = invite.version
        self.highest = max(self.highest, version.seq)
        if version.rep != event.src:
            env.drop("rbp F2", "an invitation in the name of another")
        elif p.phase is Phase.MEMBER and not self.seated(event.src, event.boot):
            env.drop("rbp F15", "an invitation of one that is not in the list")
            self._tell(env, event.src)
        elif version < self.joined:
            env.send(event.src, Refuse(p.group, version, self.joined))
        elif version == self.joined:
            if self.announced is None and not self._committed(version):
                env.send(event.src, self.vote())
        else:
            self.promise(env, version)
            env.send(event.src, self.vote())
            self.wait(env)

    def seated(self, node: NodeId, boot: int) -> bool:
        """Whether this incarnation of a site is in our list."""
        current = self.p.current
        return current is not None and current.lives.get(node, -1) // LIVES == boot

    def _committed(self, version: ViewId) -> bool:
        """Whether a list is one that we have committed, or that is in force."""
        current = self.p.current
        known = current is not None and current.epoch.view == version
        return known or any(each.epoch.view == version for each in self.pending)

    def promise(self, env: Env, version: ViewId) -> None:
        """F4, F5: take part in no lower version from now on, and issue nothing in it (G28)."""
        self._promised(env, version)
        self.announced = None
        if self.forming.active and self.forming.version != version:
            self.forming.drop(env)
        install.freeze(self.p, env)

    def _promised(self, env: Env, version: ViewId) -> None:
        self.joined = version
        self.highest = max(self.highest, version.seq)
        env.persist(JOINED, version.seq)

    def _know(self, env: Env, view: ViewId) -> None:
        """F7: after a crash, too, we can tell that we were in no later list than this."""
        if view > self.known:
            self.known = view
            env.persist(KNOWN, view.seq * MAX_MEMBERS + self.p.members.index(view.rep))

    def vote(self) -> Vote:
        """F5: what we hold."""
        p = self.p
        current = p.current
        begun = (-1, NEVER)
        if current is not None and p.delivered <= current.start:
            begun = current.start, current.base
        return Vote(
            p.group,
            self.joined,
            p.life,
            self.forgot,
            current.epoch.view if current else None,
            len(current.core) if current else 0,
            *begun,
            p.log.tail,
            p.log.held,
            tuple(self.pending),
        )

    def wait(self, env: Env, us: int | None = None) -> None:
        """F13: how long we bear to hear nothing."""
        config = self.p.config
        env.set_timer(ReformTimer.WAIT, us or 3 * config.vote_us + self.pause_us(env))

    def pause_us(self, env: Env) -> int:
        """F13: random, growing, and shorter for those who come first in the group."""
        p = self.p
        grown_us = p.config.backoff_us * (1 + min(self.tries, 4))
        rank = p.members.index(p.me)
        return grown_us + env.rng.randrange(grown_us) + rank * p.config.backoff_us // len(p.members)

    def on_wait_timer(self, env: Env, event: TimerFired) -> None:
        """F13: leave that version for good, and be an originator oneself; whoever is in no list
        leaves that to others, if there are some."""
        self.announced = None
        if self.p.phase is Phase.FROZEN:
            self.forming.originate(env, "nothing came of a list")

    # --- phase II: recovering and committing ----------------------------------------------------

    def on_announce(self, env: Env, event: Received) -> None:
        """F10: the list; if we have left it, no."""
        announce = event.message
        assert isinstance(announce, Announce)
        config = announce.config
        version = config.epoch.view
        if version.rep != event.src:
            env.drop("rbp F2", "a list in the name of another")
        elif version != self.joined:
            env.send(event.src, Refuse(self.p.group, version, self.joined))
        elif self.p.current is None or self.p.current.epoch.view != version:
            self.announce(env, config)

    def announce(self, env: Env, config: EpochConfig) -> None:
        """F10: become aligned, then commit. Whoever is not in the list waits."""
        self.wait(env)
        if config.lives.get(self.p.me) != self.p.life:
            return
        if any(each.epoch == config.epoch for each in self.pending):
            self._second_yes(env, config)
            return
        self.announced = config
        self._align(env)

    def _align(self, env: Env) -> None:
        """F10, F15: the log must reach the start of the list."""
        p, config = self.p, self.announced
        assert config is not None
        if config.parent is not None:
            self._adopt(env, config.parent)  # somebody has seen it in force
        if p.current is None:
            p.log.begin_at(config.start, config.base)  # we are new in it
        elif p.delivered > config.start:
            env.stop(f"diverged: entry {p.delivered} was delivered here and is void (rbp G23)")
            return
        elif config.parent != p.current.epoch.view and not self._as_ours(config):
            self.announced = None  # we must find out first what became of our list
            return
        elif not p.aligned(config):
            assert config.parent is not None
            p.asking.helper = config.core[0]
            if p.asking.to <= p.log.held:  # else bodies are missing, and asked for
                fetch(p, env, config.parent, config.core[0])
            return
        self._keep(config)
        self.announced = None
        if self.forgot is not None:
            self._know(env, config.epoch.view)
        self._second_yes(env, config)

    def _as_ours(self, config: EpochConfig) -> bool:
        """F9 ext: whether a list begins where ours does, in the same log."""
        current = self.p.current
        return current is not None and (config.start, config.base) == (current.start, current.base)

    def _keep(self, config: EpochConfig) -> None:
        """F10: commit a list. Those that begin elsewhere are void or come before it, and others
        know which; we keep the one that it follows: if we have left that, perhaps nobody else here
        knows of it. A vote has room for so many; we forget the oldest, and say so (F7)."""
        start, parent = config.start, config.parent
        kept = [old for old in self.pending if old.start == start or old.epoch.view == parent]
        kept.append(config)
        forgotten, self.pending = kept[:-MOST_PENDING], kept[-MOST_PENDING:]
        if forgotten and self.forgot is not None:
            self.forgot = max(self.forgot, forgotten[-1].epoch.view)

    def _second_yes(self, env: Env, config: EpochConfig) -> None:
        version = config.epoch.view
        env.note("rbp F10", "commit", f"{version} start={config.start}")
        if version.rep == self.p.me:
            self.forming.committed(env, self.p.me, version)
        else:
            env.send(version.rep, Commit(self.p.group, version))

    def on_abort(self, env: Env, event: Received) -> None:
        """F12, F13: nothing comes of that version; somebody tries again. F11: of one in force,
        something came."""
        abort = event.message
        assert isinstance(abort, Abort)
        if self.p.phase is Phase.MEMBER:
            env.drop("rbp F11", "an end of a list that is in force, or of one before it")
        elif abort.version == self.joined and abort.version.rep == event.src:
            self.announced = None
            self.tries += 1
            self.wait(env, self.p.config.vote_us + self.pause_us(env))

    # --- phase III: in force --------------------------------------------------------------------

    def on_news(self, env: Env, event: Received) -> None:
        """F11 ext: a list is in force; CONFIG: or has been for a while."""
        news = event.message
        assert isinstance(news, News)
        self.other_epoch(env, event.src, news.config.epoch)

    def _adopt(self, env: Env, view: ViewId) -> bool:
        """F11: a list that we committed is in force; those committed before it never were."""
        for each in self.pending:
            if each.epoch.view == view and each.lives[self.p.me] == self.p.life:
                self.enforce(env, each)
                return True
        return False

    def enforce(self, env: Env, config: EpochConfig) -> None:
        """F11: begin a list that is in force. Having voted for a later one, we issue nothing in it
        (F5)."""
        view = config.epoch.view
        void = [each for each in self.pending if each.epoch.view < view]
        self.pending = [each for each in self.pending if each.epoch.view > view]
        install.install(self.p, env, config, self.joined > view)
        for each in void:
            self.p.children[each.epoch.view] = config

    def _tell(self, env: Env, src: NodeId) -> None:
        """R16: the sender of a lower tag hears of our list, though not too often."""
        p = self.p
        last_us = p.told_us.get(src)
        if p.current is None or (last_us is not None and env.now_us - last_us < p.config.nack_us):
            return
        p.told_us[src] = env.now_us
        env.send(src, News(p.group, p.current))

    def out(self, env: Env, view: ViewId) -> None:
        """F15: list ``view`` is without us: come back through a later reformation, as somebody new.
        F7: of later lists that we have committed our votes go on to tell."""
        self.pending = [each for each in self.pending if each.epoch.view > view]
        self.announced = None
        self.catchup.done()
        self.joiners.clear()
        self.missing = None
        if self.forming.active:
            self.forming.drop(env)
        env.cancel_timer(ReformTimer.WAIT)
        install.leave_epoch(self.p, env, f"list {view} is without us")
        self.heard_us = env.now_us
        self.on_join_timer(env, TimerFired(ReformTimer.JOIN))

    # --- joining and leaving --------------------------------------------------------------------

    def on_join_timer(self, env: Env, event: TimerFired) -> None:
        """F1: ask to be in a list; if nobody here is in one, the first of us calls for it."""
        p = self.p
        env.set_timer(ReformTimer.JOIN, p.config.join_us)
        env.broadcast(Join(p.group, p.life))
        recent_us, quiet_us = (env.now_us - times * p.config.join_us for times in (RECENT, QUIET))
        here = [node for node, heard_us in self.blank.items() if heard_us > recent_us]
        many = len(here) + 1 >= p.config.majority and not self.forming.active
        if many and self.heard_us <= quiet_us and p.me < min([*here, ANYBODY]):
            self.forming.originate(env, "nobody is in a list")

    def on_join(self, env: Env, event: Received) -> None:
        """F1: remember who asks, until we hold the token. One that is listed has lost its memory
        (G47), so that nobody need wait for it."""
        p, join = self.p, event.message
        assert isinstance(join, Join)
        if p.current is None:
            self.blank[event.src] = env.now_us
            return
        life = p.current.lives.get(event.src)
        if life == join.life:
            self._tell(env, event.src)
            return
        self.joiners[event.src] = join.life
        if p.phase is not Phase.MEMBER:
            return
        ring = p.ring
        if life is not None and p.next == event.src and ring.issued == ring.seen:
            self.trouble(env, Trouble.NEXT, event.src)
        else:
            ordering.go_on(p, env)

    def on_leave(self, env: Env, event: Received) -> None:
        """F15: a member has gone; the one behind it calls for a list without it."""
        p, leave = self.p, event.message
        assert isinstance(leave, Leave)
        current = p.current
        if current is None or current.lives.get(event.src) != leave.life:
            return
        p.farewells[event.src] = Departure(event.src, Reason.LEFT, "its Leave")
        if p.phase is Phase.MEMBER and current.after(event.src) == p.me:
            self.trouble(env, Trouble.NEXT, event.src)

"""From a decision to its installation: alignment, jumps, and what became of a view that went on
without us (I10, I11, I13, I21, I22, I24).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.irbp.membership import AMNESIA
from ringcast.protocols.irbp.messages import Catch, Caught, Successor, ViewTimer
from ringcast.protocols.rbp import catchup, delivery, install
from ringcast.protocols.rbp.epochs import Entry, Epoch, EpochConfig
from ringcast.protocols.rbp.messages import MOST_ENTRIES, Fetch, Gone, News, Past

if TYPE_CHECKING:
    from ringcast.protocols.irbp.views import Views


class Following:
    """Epochs that are decided and not installed, and how to get there."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.p = views.p
        self.pending: list[EpochConfig] = []
        """In their order: the view that follows ours, and the newest i-view of the last of them."""
        self.newest: EpochConfig | None = None
        """I24: the latest view that we have heard of, if we do not know yet what followed ours."""
        self.checked = 0
        """I11: up to here our log is what the one we align with is."""
        self.tries = 0
        self.gone: set[NodeId] = set()
        """I21: members that do not keep what we lack."""
        self.rings: dict[NodeId, frozenset[NodeId]] = {}
        """I21: of a later view, whom each of them counts among its ring, as it last said."""
        self.logs: dict[NodeId, tuple[int, int]] = {}
        """I21: from where to where the logs of members reach, as they last said in this epoch."""

    # --- decisions ------------------------------------------------------------------------------

    def decided(self, env: Env, value: Successor) -> None:
        """I10, I13: a decision; its entries are kept first, since nobody else may have them. An
        i-view that we have not begun is jumped over: to begin it now would void what it ordered. If
        our entry before them has another tag, it is void, and what was there is asked for (I11)."""
        p, config = self.p, value.config
        if config.epoch.step:
            self.adopt(env, config)
            return
        self.pending = []
        self._only_the_log()
        last = value.entries[0].number - 1 if value.entries else p.log.held + 1
        if p.log.floor <= last <= p.log.held and p.log.tag_at(last) != value.before:
            if last <= p.delivered:
                self._diverged(env)
                return
            p.log.cut(last - 1)
        install.keep(p, env, value.entries, value.bodies)
        self.follow(env, config)

    def adopt(self, env: Env, config: EpochConfig) -> None:
        """I10: an i-view of our view, perhaps one after some that we missed."""
        if self.pending and self.pending[-1].epoch.step:
            self.pending.pop()
        self._only_the_log()
        self._aim(env, [*self.pending, config])
        self.views.enter(env, config)
        self.go_on(env)

    def follow(self, env: Env, config: EpochConfig) -> None:
        """I13: the view that follows ours, with us or without."""
        self._aim(env, [config])
        if config.lives.get(self.p.me) == self.p.life:
            self.views.enter(env, config)
        self.go_on(env)

    def _aim(self, env: Env, pending: list[EpochConfig]) -> None:
        """I5: this is where we go; nothing more is issued in the epoch we are in."""
        install.freeze(self.p, env)
        self.pending = pending
        self.newest = None
        self._ask_anew()

    def _only_the_log(self) -> None:
        """2.0, I11: what was filed beyond a hole counts for nothing. Some of it may be void, and
        must not follow what is recovered."""
        self.p.log.cut(self.p.log.held)

    def _ask_anew(self) -> None:
        """I11: what was delivered is right, and not asked for again; unless it may be void: then
        its last entry is, since equal tags there prove equal logs (G23)."""
        p = self.p
        self.logs.clear()
        self._right_to(max(p.delivered if p.config.uniform else p.delivered - 1, p.log.floor))

    def _right_to(self, number: int) -> None:
        """I11: what follows this is asked for next, of everybody."""
        self.checked = number
        self.tries = 0
        self.gone.clear()
        self.rings.clear()

    def go_on(self, env: Env) -> None:
        """I11, I13: begin what the log reaches; ask for the rest."""
        p = self.p
        while self.pending and p.current is not None and p.aligned(self.pending[0]):
            config = self.pending.pop(0)
            if p.delivered > config.start and self._beyond(env):
                return
            if config.lives.get(p.me) != p.life:
                self._excluded(env, config)
                return
            frozen = bool(self.pending or self.views.asked)  # I5: we have contributed since
            install.install(p, env, config, frozen)
            self._ask_anew()
        if self.pending and p.current is not None and not self.tries:
            self.ask(env)

    def _excluded(self, env: Env, config: EpochConfig) -> None:
        """V9, I19 ext: deliver the rest of our view, and nothing beyond it."""
        p, membership = self.p, self.views.membership
        delivery.deliver_to(p, env, config.start)
        if membership.leaving:
            membership.released(env, config.members)
        else:
            self.views.leave(env, f"view {config.epoch.view} is without us")

    def _beyond(self, env: Env) -> bool:
        """Whether we stop, since we have delivered what the others never will. A3 ext: so may a
        founder that lost its storage, if it took answers to its first life for its own."""
        if not self.p.config.uniform:
            self._diverged(env)
            return True
        if self.views.membership.may_have_forgotten:
            env.stop(AMNESIA)
            return True
        return False

    def _diverged(self, env: Env) -> None:
        """G23: at a level that allows it, we have delivered what the others never will."""
        env.stop(f"diverged: entry {self.p.delivered} was delivered here and is void (irbp G23)")

    # --- catching up ----------------------------------------------------------------------------

    def ask(self, env: Env) -> None:
        """I11: what follows the part that is known to be right, so that a void entry shows: the
        first of the ring, who is aligned by definition, then all."""
        p = self.p
        assert p.current is not None
        target = self.pending[0] if self.pending else self.newest
        assert target is not None
        self.tries += 1
        env.set_timer(ViewTimer.CATCH, 2 * p.config.nack_us * min(self.tries, 8))
        view = p.current.epoch.view
        wanted: Catch | Fetch = Fetch(p.group, view, self.checked)
        if target.epoch.view == view:
            wanted = Catch(p.group, target.epoch, self.checked)
        if self.tries == 1 and target.core[0] != p.me:
            env.send(target.core[0], wanted)
        else:
            env.broadcast(wanted)

    def on_catch_timer(self, env: Env, event: TimerFired) -> None:
        """I11: again, with entries that were told and whose bodies have not come: perhaps they are
        not kept any more (I21). Of a later view, when all have been asked and nobody has it, that
        is the end: no member's word alone is."""
        target = self.pending[0] if self.pending else self.newest
        if self.p.current is None or target is None:
            return
        if self.tries > 1 and self.rings and self.gone.issuperset(chain(*self.rings.values())):
            self._gap(env, target)
            return
        self.checked = min(self.checked, self.p.log.held)
        self.ask(env)

    def on_catch(self, env: Env, event: Received) -> None:
        """I11: one that is aligned in the same epoch answers; one that is further says so, and one
        that knows of a later ring."""
        p, catch = self.p, event.message
        assert isinstance(catch, Catch)
        if p.current is None or p.current.epoch != catch.epoch:
            self.other_epoch(env, event.src, catch.epoch)
            return
        if self.views.decided != p.current:
            self.tell(env, event.src)
        entries = p.read(catch.after, p.log.held, MOST_ENTRIES)
        if entries is None:
            env.send(event.src, catchup.gone(p, catch.epoch.view, catch.after))
        else:
            env.send(event.src, Caught(p.group, catch.epoch, catch.after, entries))

    def on_caught(self, env: Env, event: Received) -> None:
        """I11: entries of the log that we must align with."""
        caught = event.message
        assert isinstance(caught, Caught)
        config = self.pending[0] if self.pending else None
        if config is None or caught.epoch != config.epoch or caught.after != self.checked:
            env.drop("irbp I11", "an answer to nothing")
        else:
            self._checked(env, tuple(e for e in caught.entries if e.number <= config.start))

    def _checked(self, env: Env, entries: tuple[Entry, ...]) -> None:
        """I11: entries that are right, as far as they go; more are asked for."""
        if not entries:
            return
        if self.views.membership.forgot(entries):
            env.stop(AMNESIA)
            return
        self._right_to(entries[-1].number)
        install.keep(self.p, env, entries)  # which begins what it can, by ``grown``

    def on_past(self, env: Env, event: Received) -> None:
        """I13, I24: the rest of our view, and what followed it."""
        p, past = self.p, event.message
        assert isinstance(past, Past)
        if p.current is None or past.view != p.current.epoch.view or past.after != self.checked:
            env.drop("irbp I13", "an answer to nothing")
            return
        if self.newest is None and not self._succeeded:
            env.drop("irbp I13", "an answer to nothing")
            return
        self._checked(env, past.entries)
        if past.child is not None and self.newest is not None and p.current is not None:
            self.follow(env, past.child)
        elif self.newest is not None and past.entries:
            self.ask(env)

    def on_gone(self, env: Env, event: Received) -> None:
        """I11: a member does not keep all that we asked for. If our log has the last entry that it
        let go, that much is right (2.0), and we need only what follows. I21, I22: otherwise, when
        every other member of the ring that we are to be in says so, we cannot go on in this life.
        Who is in the ring of a later view, each can say of itself only (``on_catch_timer``)."""
        p, gone = self.p, event.message
        assert isinstance(gone, Gone)
        target = self.pending[0] if self.pending else self.newest
        here = p.current is not None and gone.view == p.current.epoch.view
        if target is None or not here or gone.after != self.checked:
            env.drop("irbp I21", "an answer to nothing")
            return
        if self.checked < gone.floor <= p.log.held and p.log.tag_at(gone.floor) == gone.tag:
            self._right_to(gone.floor)
            self.ask(env)
            return
        self.gone.add(event.src)
        if target.epoch.view != gone.view:
            self.rings[event.src] = frozenset((event.src, *gone.core)) - {p.me}
        elif self.gone >= set(target.core) - {p.me}:
            self._gap(env, target)

    def refused(self, src: NodeId) -> None:
        """A3 ext, I21: one tells us nothing, since it knows another incarnation of ours. When all
        of the ring that we are to catch up with do, what we lack is gone."""
        target = self.pending[0] if self.pending else self.newest
        if target is not None:
            self.gone.add(src)
            self.rings[src] = frozenset(target.core) - {self.p.me}

    def _gap(self, env: Env, target: EpochConfig) -> None:
        """I22: what we missed is not kept by anybody."""
        self.views.membership.gap(env, target.lives.get(self.p.me) == self.p.life)

    def kept(self, env: Env, src: NodeId, floor: int, held: int) -> None:
        """I20, I21: what follows our log was let go, and nobody else in the ring has it either: we
        cannot catch up. Of one that goes round with the ring nothing is let go (K7), whatever
        somebody says; and an external member that lacks nothing believes no single word."""
        p, decided = self.p, self.views.decided
        assert decided is not None
        self.logs[src] = (floor, held)
        ring = [self.logs.get(node) for node in decided.core if node != p.me]
        logs = [each for each in ring if each is not None]
        if len(logs) < len(ring):
            return
        let_go = [floor > p.log.held for floor, _ in logs]
        if p.me not in decided.core:
            lost = all(let_go)
        else:
            comes = any(floor <= p.log.held < held for floor, held in logs)
            lost = p.current != decided and any(let_go) and not comes
        if lost:
            self.views.membership.gap(env, True)

    # --- news of epochs -------------------------------------------------------------------------

    def other_epoch(self, env: Env, src: NodeId, epoch: Epoch) -> None:
        """R16, I24: tell one that is behind; ask one that is ahead."""
        mine = self.views.decided
        if mine is None:
            return
        if (epoch.view.seq, epoch.step) < (mine.epoch.view.seq, mine.epoch.step):
            self.tell(env, src)
            return
        if epoch.view.seq > mine.epoch.view.seq or epoch.step > mine.epoch.step:
            self._inquire(env, src)
        self.views.membership.heard_after(env, src)

    def tell(self, env: Env, src: NodeId) -> None:
        """R16: CONFIG, though not too often. I24: a ring that is decided, even if our log does not
        reach it yet: nobody else may be left that knows of it."""
        mine, decided = self.p.current, self.views.decided
        if mine is None or not self._may(env, src):
            return
        if decided is not None and decided.epoch.view == mine.epoch.view:
            mine = decided
        env.send(src, News(self.p.group, mine))

    def _inquire(self, env: Env, src: NodeId) -> None:
        """I24: what became of our view? The answer is entries, CONFIG, or a later view."""
        p = self.p
        if p.current is None or not self._may(env, src):
            return
        env.send(src, Catch(p.group, p.current.epoch, p.log.held))

    def _may(self, env: Env, src: NodeId) -> bool:
        """At most once in T_nack."""
        p = self.p
        last_us = p.told_us.get(src)
        if last_us is not None and env.now_us - last_us < p.config.nack_us:
            return False
        p.told_us[src] = env.now_us
        return True

    def on_news(self, env: Env, event: Received) -> None:
        """I10, I17, I24: an epoch is in force: a first one, an i-view of ours, or a later view."""
        p, news = self.p, event.message
        assert isinstance(news, News)
        config, mine = news.config, self.views.decided
        if mine is None:
            if config.lives.get(p.me) == p.life and not config.epoch.step:
                install.install(p, env, config, False)  # I17: our log begins there
            return
        if config.epoch.view == mine.epoch.view:
            if config.epoch.step > mine.epoch.step:
                self.adopt(env, config)
        elif config.epoch.view.seq > mine.epoch.view.seq and p.current is not None:
            self._behind(env, config)

    @property
    def _succeeded(self) -> bool:
        """I13: whether we know what followed our view, and are on the way there."""
        current = self.p.current
        assert current is not None
        return bool(self.pending) and self.pending[0].epoch.view != current.epoch.view

    def _behind(self, env: Env, config: EpochConfig) -> None:
        """I24: a later view than any we know of: find out what followed ours. Whoever knows that
        goes there first: if it began again with each view it hears of, it might never arrive."""
        if self._succeeded:
            return
        if self.newest is None:
            self._only_the_log()
            self._aim(env, [])
            self.newest = config
            self.ask(env)
        else:
            self.newest = max(self.newest, config, key=lambda each: each.epoch)

    def clear(self, env: Env) -> None:
        """This life is over."""
        self.pending = []
        self.newest = None
        self._ask_anew()

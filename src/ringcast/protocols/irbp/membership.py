"""Who comes and goes: joining, leaving, coming back into the ring, and a group that begins (I16 to
I23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast.blocks.detector import Limit
from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.errors import STORAGE_LOST
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.irbp.messages import Join, Kind, Leave, Ready, Stranger, ViewTimer
from ringcast.protocols.rbp import install
from ringcast.protocols.rbp.epochs import NEVER, Entry, Epoch, EpochConfig, Seat
from ringcast.protocols.rbp.messages import News
from ringcast.protocols.rbp.state import Phase

if TYPE_CHECKING:
    from ringcast.protocols.irbp.views import Views

HIGHEST = "irbp_view"
"""Stable storage: the number of the last view that this site knew of; there since it first took
part."""

FIRST = 1
"""The number of the view that a group begins with: no other has only members in life 0."""

LEFT = "left"

GAP = "gap: what this member missed is not kept any more; start it again (irbp I22)"

FORGOTTEN = (
    "gap: too few are left that remember the last view; start it again: with nothing delivered, it "
    "begins when all listed members are there (irbp I17)"
)

AMNESIA = f"{STORAGE_LOST}, with an empty history (irbp A3)"

RECENT = 4
"""Times ``join_us``: sites that asked so long ago are here."""


class ViewMembership:
    """Joiners, leavers and external members, as this site knows them."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.p = views.p
        self.highest = 0
        self.opening: EpochConfig | None = None
        """I17: the first epoch of our view, where the log of a new member begins."""
        self.asking: dict[NodeId, tuple[int, int, int]] = {}
        """I17: sites that ask to be members: life, the last view they know of, when heard."""
        self._leaving: dict[NodeId, int] = {}
        """I18: members that said that they leave, and the life that does."""
        self.leaving = False
        self.left_us = 0
        self.staying: set[NodeId] = set()
        """I18: members of the view that goes on without us that may not know it yet."""
        self.gapped = False
        self.dwell_us = views.settings.dwell_us
        self.entered_us = 0
        self.stranded_us: int | None = None
        """I17 ext: since when too few are left of our view, and all others are in none."""

    # --- joining --------------------------------------------------------------------------------

    def first_view(self, env: Env) -> None:
        """A site that starts for the first time is a member of the first view, which all know."""
        p = self.p
        self.know(env, FIRST)
        seats = tuple(Seat(node, 0) for node in p.members)
        epoch = Epoch(ViewId(FIRST, p.members[0]))
        config = EpochConfig(epoch, seats, p.members, 0, NEVER, 0, None)
        install.install(p, env, config, False)

    def know(self, env: Env, highest: int) -> None:
        """V1: a number of a view is on disk before anybody hears of it, so that none is used
        twice."""
        if highest > self.highest:
            self.highest = highest
            env.persist(HIGHEST, highest)

    @property
    def joiners(self) -> dict[NodeId, int]:
        """I17: sites that ask to be members now."""
        decided = self.views.decided
        lives = decided.lives if decided else {}
        return {n: life for n, (life, _, _) in self.asking.items() if lives.get(n) != life}

    @property
    def leavers(self) -> frozenset[NodeId]:
        """I18: members that leave."""
        return frozenset(self._leaving)

    @property
    def reborn(self) -> set[NodeId]:
        """G47: members that have come back as somebody new, so nobody need wait for them."""
        decided = self.views.decided
        return set(self.joiners) & decided.lives.keys() if decided else set()

    def out(self, env: Env) -> None:
        """I17: ask to be a member."""
        self.asking.clear()
        self._leaving.clear()
        env.cancel_timer(ViewTimer.READY)
        env.cancel_timer(ViewTimer.CATCH)
        env.set_timer(ViewTimer.JOIN, env.rng.randrange(self.p.config.join_us) + 1)

    def on_join_timer(self, env: Env, event: TimerFired) -> None:
        """I17: ask again; if nobody remembers anything any more, begin anew."""
        p = self.p
        env.set_timer(ViewTimer.JOIN, p.config.join_us)
        if self.leaving:
            self._say_leave(env)
            return
        if p.current is not None:
            env.cancel_timer(ViewTimer.JOIN)
            return
        env.broadcast(Join(p.group, p.life, self.highest))
        self._forget(env)
        if len(self.asking) == len(p.members) - 1 and p.me == min(p.members):
            self._anew(env)

    def _forget(self, env: Env) -> None:
        old_us = env.now_us - RECENT * self.p.config.join_us
        self.asking = {n: each for n, each in self.asking.items() if each[2] >= old_us}

    def _anew(self, env: Env) -> None:
        """I17 ext: all sites are here and none is in a view: nothing of what was can ever be known,
        so the first of them begins a view after all that any of them remembers."""
        p = self.p
        highest = max([self.highest, *(known for _, known, _ in self.asking.values())])
        self.know(env, highest + 1)
        lives = {node: life for node, (life, _, _) in self.asking.items()} | {p.me: p.life}
        seats = tuple(Seat(node, lives[node]) for node in p.members)
        epoch = Epoch(ViewId(highest + 1, p.me))
        config = EpochConfig(epoch, seats, p.members, 0, NEVER, 0, None)
        env.note("irbp I17", "anew", str(epoch), epoch.view)
        env.broadcast(News(p.group, config))
        install.install(p, env, config, False)

    def on_join(self, env: Env, event: Received) -> None:
        """I17: remember who asks; one that is a member already is told so, and where its view has
        begun: its log does there, whatever rings there were since. A3: a Join may come late, of a
        life that is over; so it counts only if the one that is a member is silent."""
        p, join = self.p, event.message
        assert isinstance(join, Join)
        decided = self.views.decided
        if decided is not None and decided.lives.get(event.src) == join.life:
            assert self.opening is not None
            env.send(event.src, News(p.group, self.opening))
            return
        heard_us = self.views.detector.machine.heard.get(event.src)
        if heard_us is not None and env.now_us - heard_us < 2 * self.views.settings.beat_us:
            env.drop("irbp A3", "a member that lives asks, in a life that is over")
            return
        self.asking[event.src] = (join.life, join.highest, env.now_us)
        if decided is None:
            return
        if self._stranded(env, decided):
            env.stop(FORGOTTEN)
        elif event.src in decided.lives:
            self.views.suspicions(env)
        elif p.holds_token:
            self.turn(env)

    def _stranded(self, env: Env, decided: EpochConfig) -> bool:
        """I17 ext: so many of our view have come back as somebody new that no change of it can ever
        be agreed on (I7), and all other sites are in no view. Whoever is left forgets it as well,
        so that they can begin anew; though not before one that knows of a later view had the time
        to say so."""
        p, settings = self.p, self.views.settings
        self._forget(env)
        left = set(decided.members) - self.reborn
        stuck = len(left) < settings.contributions(len(decided.members))
        if not stuck or not set(p.members) - left <= self.asking.keys():
            self.stranded_us = None
        elif self.stranded_us is None:
            self.stranded_us = env.now_us
        else:
            return env.now_us - self.stranded_us >= settings.exclude_us
        return False

    def on_stranger(self, env: Env, event: Received) -> None:
        """A3, G47: we have taken part before and lost the memory of it, and took ourselves for a
        member: whoever starts this one again is another one, that knows it is none. One that has
        delivered something is a member, whatever one of the others says."""
        stranger = event.message
        assert isinstance(stranger, Stranger)
        p = self.p
        founder = p.life == 0 and self.views.decided is not None
        if not founder or stranger.boot != p.boot:
            env.drop("irbp A3", "no word about this incarnation")
        elif not p.delivered:
            env.stop(AMNESIA)
        else:
            self.views.following.refused(event.src)

    @property
    def may_have_forgotten(self) -> bool:
        """A3 ext: whether we are in the first view, as a founder is that lost its storage."""
        current = self.p.current
        return current is not None and current.epoch.view.seq == FIRST

    def forgot(self, entries: tuple[Entry, ...]) -> bool:
        """A3 ext: whether the log of the first view names bodies of ours that we do not remember to
        have sent: an earlier incarnation did."""
        p = self.p
        return self.may_have_forgotten and any(
            ids.source == p.me and ids.last > p.sending.counter
            for entry in entries
            for ids in entry.ids
        )

    # --- leaving --------------------------------------------------------------------------------

    def leave(self, env: Env) -> None:
        """I18: say so; go on serving and voting until the view without us."""
        decided = self.views.decided
        if decided is None or len(decided.seats) == 1:
            env.stop(LEFT)
            return
        self.leaving = True
        self.left_us = env.now_us
        self._leaving[self.p.me] = self.p.life
        env.set_timer(ViewTimer.JOIN, self.p.config.join_us)
        self._say_leave(env)

    def _say_leave(self, env: Env) -> None:
        p = self.p
        if env.now_us - self.left_us > 4 * self.views.settings.exclude_us:
            self.gone(env)  # I18: too few are here to let us go
            return
        if self.staying:
            self.part(env)
            return
        env.broadcast(Leave(p.group, p.life, self.gapped))
        self.turn(env)

    def on_leave(self, env: Env, event: Received) -> None:
        """I18: do not wait for it when it is gone."""
        p, leave = self.p, event.message
        assert isinstance(leave, Leave)
        decided = self.views.decided
        if decided is None or decided.lives.get(event.src) != leave.life:
            return
        self._leaving[event.src] = leave.life
        reason = Reason.FAILED_TO_RECEIVE if leave.gap else Reason.LEFT
        p.farewells.setdefault(event.src, Departure(event.src, reason, "its Leave"))
        if p.holds_token:
            self.turn(env)

    def gap(self, env: Env, member: bool) -> None:
        """I22: what we missed is gone. A member leaves in good order, for its vote may be needed;
        one that is a member no longer just stops."""
        if not self.gapped:
            env.note("irbp I22", "gap", f"after {self.p.log.held}")
        elif member:
            return
        self.gapped = True
        if member:
            self.leave(env)
        else:
            self.gone(env)

    def released(self, env: Env, staying: tuple[NodeId, ...]) -> None:
        """I18, I22: these go on without us, as we wished. B2: they may not know it without our
        word, which nobody repeats when we have stopped."""
        self.staying = set(staying)
        self.part(env)

    def heard_after(self, env: Env, src: NodeId) -> None:
        """I18, B2: ``src`` speaks in a later view, so it needs no word of ours any more."""
        if src in self.staying:
            self.staying.discard(src)
            if self.staying:
                self.part(env)
            else:
                self.gone(env)

    def part(self, env: Env) -> None:
        """B2: stop when all that stay and are not silent for long have what we sent them."""
        if self.staying:
            here = self.staying - self.views.doubted(Limit.CONSERVATIVE)
            if not any(map(self.views.channel.machine.owes, here)):
                self.gone(env)

    def gone(self, env: Env) -> None:
        """I18, I22: the view goes on without us, as we wished."""
        env.stop(GAP if self.gapped else LEFT)

    def turn(self, env: Env) -> bool:
        """I16: a regular view for joiners and leavers. G34: not while somebody is suspected by the
        aggressive limit alone, for all would stand still until the conservative one."""
        views, decided = self.views, self.views.decided
        if decided is None or views.asked or self.p.current != decided or views.resting(env):
            return False
        self._forget(env)
        wanted = bool(self.joiners or self.leavers)
        if not wanted or self.p.phase is not Phase.MEMBER:
            return False
        doubted = views.doubted(Limit.AGGRESSIVE) - views.doubted(Limit.CONSERVATIVE)
        if doubted & set(decided.members):
            return False
        views.start_change(env, Kind.REGULAR, "somebody joins or leaves")
        return self.p.phase is not Phase.MEMBER

    # --- the ring -------------------------------------------------------------------------------

    def entered(self, env: Env, config: EpochConfig) -> None:
        """A view is decided: those it took in have been served."""
        self.opening = config
        self.know(env, config.epoch.view.seq)
        lives = config.lives
        self.asking = {n: each for n, each in self.asking.items() if n not in lives}
        self._leaving = {n: life for n, life in self._leaving.items() if lives.get(n) == life}
        if not self.leaving:
            env.cancel_timer(ViewTimer.JOIN)

    def settled(self, env: Env) -> None:
        """Our ring is in the newest epoch: newcomers hear of it; I23: an external member says when
        it is ready; what was asked for meanwhile is begun."""
        p, decided = self.p, self.views.decided
        assert decided is not None
        self.entered_us = env.now_us
        if not decided.epoch.step and decided.core[0] == p.me:
            env.broadcast(News(p.group, decided))
        if p.me in decided.core:
            env.cancel_timer(ViewTimer.READY)
        else:
            env.set_timer(ViewTimer.READY, self.views.settings.dwell_us)
        self.views.suspicions(env)

    def on_ready_timer(self, env: Env, event: TimerFired) -> None:
        """I23: caught up with the ring, so let us in."""
        p, decided = self.p, self.views.decided
        if decided is None or p.me in decided.core:
            return
        env.set_timer(ViewTimer.READY, self.views.settings.dwell_us)
        if p.current == decided and p.ring.seen - p.log.held <= self.views.settings.catch:
            env.broadcast(Ready(p.group, decided.epoch))

    def on_ready(self, env: Env, event: Received) -> None:
        """I23: an i-view with it, if the ring has been at peace for long enough. A ring that
        changes again and again gets longer times of peace."""
        views, decided = self.views, self.views.decided
        ready = event.message
        assert isinstance(ready, Ready)
        if (
            decided is None
            or ready.epoch != decided.epoch
            or not views.seated(event.src, event.boot)
            or self.p.me not in decided.core
            or event.src in views.doubted(Limit.AGGRESSIVE)
        ):
            env.drop("irbp I23", "nobody who may come into the ring now")
            return
        settings = views.settings
        peace_us = env.now_us - self.entered_us
        if peace_us < self.dwell_us:
            return
        quiet = peace_us > 4 * self.dwell_us
        factor_us = self.dwell_us // 2 if quiet else 2 * self.dwell_us
        self.dwell_us = min(max(factor_us, settings.dwell_us), settings.dwell_max_us)
        views.start_change(env, Kind.IVIEW, f"{event.src} is ready")

    def start(self, env: Env, highest: int | None) -> None:
        """A3: a site that has taken part before comes back as somebody new."""
        if highest is None:
            self.first_view(env)
            return
        self.highest = highest
        install.new_life(self.p, env)
        self.out(env)

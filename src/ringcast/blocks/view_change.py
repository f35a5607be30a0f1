"""ViewChange: how one view gives way to the next, who is missed, who proposes, who agrees.

The part of ``membership`` that knows nothing of other views. A member that has promised itself to
a proposal never goes back to its old view; a later proposal ends an earlier one.

Rules: G-1 to G-9, FL-4 to FL-6.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from ringcast.blocks import channel, detector
from ringcast.blocks.channel import Channel
from ringcast.blocks.detector import Detector, Heartbeat, Suspects, Trusts
from ringcast.blocks.merge_candidates import MergeCandidates
from ringcast.blocks.view_messages import (
    STEP,
    Agree,
    Cancel,
    Complain,
    Install,
    Installed,
    Leave,
    Propose,
    Proposed,
    RankedView,
    Refuse,
)
from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Message, Received, TimerFired
from ringcast.core.machine import Machine
from ringcast.core.owned import Heard, Owned

VIEW_SEQ = "view_seq"
"""The largest view number this processor made or agreed to, in stable storage."""


class Phase(StrEnum):
    """In a view, or promised to the next one."""

    STEADY = "Steady"
    CHANGING = "Changing"


class Timer(StrEnum):
    """Timers of the membership; its detector and its channel have their own."""

    CHANGE = "membership change"
    ANNOUNCE = "membership announce"
    MERGE = "membership merge"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the membership and of its parts."""

    detector: detector.Settings = detector.Settings()
    channel: channel.Settings = channel.Settings()
    change_us: int = 1_000_000
    """Longest wait for members to get ready for a view."""
    announce_us: int = 500_000
    merge_us: int = 5_000
    """From hearing of another view to going together: others may be heard of too."""
    away_us: int = 100_000
    """How long a processor that was lost is kept away, at first …"""
    away_max_us: int = 5_000_000
    """… and at most."""


class ViewChange(Machine):
    """The state of one member, and the steps from its view to the next."""

    def __init__(self, me: NodeId, settings: Settings) -> None:
        super().__init__()
        self.me = me
        self.settings = settings
        self.phase: Phase = Phase.STEADY
        self.view = RankedView(ViewId(0, me), (me,), (0,))
        self.boots: dict[NodeId, int] = {}
        """The incarnations that are in the view."""
        self.proposal: Propose | None = None
        self.promised = self.view.id
        self.detector = Owned(Detector(me, settings.detector), self._hear_detector)
        self.channel = Owned(Channel(me, settings.channel), self.hear_channel)
        self.highest = 0  # largest view number heard of
        self._gone: set[NodeId] = set()  # members of the view that will not come back to it
        self._why: dict[NodeId, Departure] = {}
        self._reported: set[NodeId] = set()  # has stopped for the proposal, if it is mine
        self._agreed: set[NodeId] = set()  # to the proposal, if it is mine
        self._taken: tuple[RankedView, ...] = ()  # other views that are part of it
        self._retry = False  # it is to be made again with a higher number
        self._complained = False
        self.settled: set[NodeId] = set()
        self.done = False  # I am settled myself
        self.gathering = False
        self.others = MergeCandidates(settings.announce_us, settings.away_us, settings.away_max_us)

    @abstractmethod
    def hear_channel(self, env: Env, heard: Heard) -> None:
        """Something came through the channel."""

    def post(self, env: Env, to: NodeId, payload: Message) -> None:
        """Send something through the channel; what is not of the membership goes to the owner."""
        self.channel.call(env, self.channel.machine.send, to, payload)

    # --- who is there -------------------------------------------------------------------------

    @property
    def missed(self) -> set[NodeId]:
        """Members of the view that cannot be counted on."""
        return self._gone | (self.detector.machine.suspected & self.boots.keys())

    @property
    def coordinator(self) -> NodeId:
        """FL-5, G-9: the first member of the view that is not missed."""
        missed = self.missed
        return next(m for m in self.view.members if m == self.me or m not in missed)

    def _hear_detector(self, env: Env, heard: Heard) -> None:
        """G-5: silence makes suspicion."""
        word = heard.what  # type: ignore[union-attr]
        if type(word) is Suspects:
            for node in word.nodes:
                self._why.setdefault(node, Departure(node, Reason.SILENT, "no heartbeat"))
                env.note("G-5", "suspect", f"{node} is silent", members=(node,))
            self._miss(env, word.nodes)
        elif type(word) is Trusts:
            self._why.pop(word.node, None)
            env.note("G-5", "trust", f"{word.node} is heard again", members=(word.node,))

    def _lose(self, env: Env, nodes: Iterable[NodeId], why: str, reason: Reason) -> None:
        """Members that will not come back to this view."""
        lost = [n for n in nodes if n in self.boots and n not in self._gone and n != self.me]
        for node in lost:
            self._gone.add(node)
            self._why.setdefault(node, Departure(node, reason, f"it {why}"))
            env.note("G-5", "gone", f"{node} {why}", members=(node,))
        if lost:
            self._miss(env, lost)

    def _miss(self, env: Env, nodes: Iterable[NodeId]) -> None:
        """G-5: somebody has to act: who made the proposal that waits for them, or leads us."""
        proposal = self.proposal
        if proposal is None or proposal.view.id.rep in nodes:
            self._act(env)
            return
        concerned = tuple([node for node in nodes if node in proposal.view.members])
        if concerned and proposal.view.id.rep == self.me:
            self.propose(env)
        elif concerned:
            self.post(env, proposal.view.id.rep, Complain(proposal.view.id, concerned))

    def _act(self, env: Env) -> None:
        """FL-5: the coordinator proposes; the others let it know whom they miss."""
        coordinator = self.coordinator
        if coordinator == self.me:
            self.propose(env)
            return
        self.post(env, coordinator, Complain(self.view.id, tuple(sorted(self.missed))))
        self._complained = True
        env.set_timer(Timer.CHANGE, self.settings.change_us)

    def on_complain(self, env: Env, src: NodeId, boot: int, complaint: Complain) -> None:
        """G-5: a suspicion is everybody's; with no name, somebody waits for a view."""
        proposal = self.proposal
        leading = proposal is not None and proposal.view.id.rep == self.me
        mine = self.boots.get(src) == boot and complaint.id == self.view.id
        if not mine and not (leading and proposal and complaint.id == proposal.view.id):
            env.drop("G-5", "a complaint about another view")
            return
        strangers = [node for node in complaint.members if node not in self.boots]
        self._lose(env, complaint.members, f"is missed by {src}", Reason.EXCLUDED)
        if leading and strangers:
            self._miss(env, strangers)
        elif self.proposal is None and not complaint.members:
            self._act(env)

    def on_leave(self, env: Env, event: Received) -> None:
        """G-5: a member of my view, or of the one to come, is gone; do not wait for it."""
        leave = event.message
        assert isinstance(leave, Leave)
        proposal = self.proposal
        if self.boots.get(event.src) == event.boot and leave.id >= self.view.id:
            self._lose(env, (event.src,), "leaves", Reason.LEFT)
        elif proposal and event.src not in self.boots and event.src in proposal.view.members:
            self._miss(env, (event.src,))
        else:
            env.drop("G-5", "a Leave of another view")
        self.others.forget(event.src)

    def on_heartbeat(self, env: Env, event: Received) -> None:
        """FL-6: a member that says it is in a later view has left mine."""
        beat = event.message
        assert isinstance(beat, Heartbeat)
        self.detector.handle(env, event)
        if self.boots.get(event.src) == event.boot:
            self.follow(env, event.src, beat.view)

    def follow(self, env: Env, node: NodeId, view_id: ViewId) -> None:
        """``node`` is in ``view_id``, which may be the one I am about to install."""
        proposal = self.proposal
        to_come = proposal is not None and view_id == proposal.view.id
        if view_id > self.view.id and not to_come:
            self._lose(env, (node,), f"went on to {view_id}", Reason.MOVED)

    # --- proposals ----------------------------------------------------------------------------

    def propose(self, env: Env, others: tuple[RankedView, ...] = ()) -> None:
        """G-7, G-9: the survivors in their order or, if none is missed, with other views.

        Who proposes comes first: all before it in the view are missed, or it would not.
        """
        missed = self.missed
        whole = not missed and self.view.id.rep == self.me
        self._withdraw(env)
        self._taken = others if whole else ()
        mine = self.view.members.index(self.me)
        members = [m for m in self.view.members[mine:] if m not in missed]
        boots = [self.boots[m] for m in members]
        bases = [self.view.id] * len(members)
        for other in self._taken:
            members += other.members
            boots += other.boots
            bases += [other.id] * len(other.members)
        seq = max(self.highest, *(base.seq for base in bases)) + STEP
        view = RankedView(ViewId(seq, self.me), tuple(members), tuple(boots))
        proposal = Propose(view, tuple(bases))
        self._reported, self._agreed = set(), set()
        self._retry = False
        self._accept(env, proposal, self.settings.change_us)
        for node in view.members:
            if node != self.me:
                self.post(env, node, proposal)

    def _withdraw(self, env: Env) -> None:
        """My earlier proposal is void; tell those who may not hear of the next one."""
        proposal = self.proposal
        if proposal is not None and proposal.view.id.rep == self.me:
            for node in proposal.view.members:
                if node not in self.boots:
                    self.post(env, node, Cancel(proposal.view.id))

    def promise(self, env: Env, view_id: ViewId) -> None:
        """G-1: no number is heard of before it is on disk, so none is used twice."""
        env.persist(VIEW_SEQ, view_id.seq)
        self.promised = view_id
        self.highest = max(self.highest, view_id.seq)

    def _accept(self, env: Env, proposal: Propose, patience_us: int) -> None:
        """G-9: from here on there is no way back to the view I am in."""
        view = proposal.view
        self.promise(env, view.id)
        self.proposal = proposal
        self._complained = False
        self.phase = Phase.CHANGING
        env.note("G-9", "commit", view=view.id, members=tuple(sorted(view.members)))
        self._watch(env, dict(zip(view.members, view.boots, strict=True)) | self.boots)
        env.cancel_timer(Timer.ANNOUNCE)
        env.set_timer(Timer.CHANGE, patience_us)
        env.up(Proposed(proposal))

    def _watch(self, env: Env, boots: dict[NodeId, int]) -> None:
        self.detector.call(env, self.detector.machine.watch, self.view.id, boots)

    def on_propose(self, env: Env, src: NodeId, boot: int, proposal: Propose) -> None:
        """G-9: accept the highest. TL-22 ext: merge only whole views with settled members."""
        view = proposal.view
        here = (self.me, self.boots[self.me])
        if (
            proposal.malformed
            or src != view.id.rep
            or here not in zip(view.members, view.boots, strict=True)
        ):
            env.drop("G-2", "malformed proposal")
            return
        self.highest = max(self.highest, view.id.seq)
        mine = proposal.coming_from(self.view.id)
        whole = len(mine) == len(self.view.members) and self.done
        merging = len(mine) < len(view.members)
        higher = view.id.seq > self.promised.seq  # G-9 ext: a number is promised to one
        if self.me not in mine or not higher or (merging and not whole):
            self.post(env, src, Refuse(view.id, self.view.id, self.promised))
            return
        self._accept(env, proposal, 2 * self.settings.change_us)

    def on_refuse(self, env: Env, src: NodeId, boot: int, refusal: Refuse) -> None:
        """FL-5: propose without one that is elsewhere, and higher than one that is promised."""
        self.highest = max(self.highest, refusal.promised.seq)
        proposal = self.proposal
        if proposal is None or refusal.id != proposal.view.id or refusal.id.rep != self.me:
            env.drop("G-9", "a refusal of another proposal")
        elif refusal.view not in proposal.bases or refusal.promised.seq < refusal.id.seq:
            self._give_up(env, (src,), f"is in {refusal.view}")
        elif not self._retry:
            self._retry = True
            env.set_timer(Timer.CHANGE, 1 + env.rng.randrange(4 * self.settings.merge_us))

    def _give_up(self, env: Env, nodes: Iterable[NodeId], why: str) -> None:
        """FL-4: the next attempt goes without these, and without the views they are in."""
        for node in nodes:
            self.others.forget(node)
            self.others.keep_away(node, env.now_us)
        self._gone.update(node for node in nodes if node in self.boots)
        for node in nodes:
            self._why.setdefault(node, Departure(node, Reason.SILENT, f"it {why}"))
            env.note("FL-4", "gone", f"{node} {why}", members=(node,))
        self.propose(env)

    def on_cancel(self, env: Env, src: NodeId, boot: int, cancel: Cancel) -> None:
        """FL-5: the proposal I wait for is void; my own coordinator must make another."""
        if self.proposal is not None and self.proposal.view.id == cancel.id:
            self._act(env)

    def reported(self, env: Env, node: NodeId) -> None:
        """FL-2: the owner has heard that ``node`` stopped; until all have, nobody can agree."""
        self._reported.add(node)
        if node != self.me and not self._retry:
            env.set_timer(Timer.CHANGE, self.settings.change_us)

    def on_agree(self, env: Env, src: NodeId, boot: int, consent: Agree) -> None:
        """FL-4: one more is ready."""
        proposal = self.proposal
        if proposal is not None and consent.id == proposal.view.id and consent.id.rep == self.me:
            self.take_consent(env, src)

    def take_consent(self, env: Env, node: NodeId) -> None:
        """FL-4: when all are ready the view is installed."""
        proposal = self.proposal
        assert proposal is not None
        self._agreed.add(node)
        if not self._agreed.issuperset(proposal.view.members):
            if not self._retry:
                env.set_timer(Timer.CHANGE, self.settings.change_us)
            return
        for member in proposal.view.members:
            if member != self.me:
                self.post(env, member, Install(proposal.view.id))
        self._install(env, proposal)

    def on_install(self, env: Env, src: NodeId, boot: int, install: Install) -> None:
        """FL-4: everybody was ready."""
        proposal = self.proposal
        if proposal is None or install.id != proposal.view.id or src != install.id.rep:
            env.drop("G-9", "an Install of another proposal")
            return
        self._install(env, proposal)

    def _install(self, env: Env, proposal: Propose) -> None:
        """G-1, G-3: the proposal is the view."""
        together = proposal.coming_from(self.view.id)
        for node in self.view.members:
            if node not in proposal.view.members:
                self.others.keep_away(node, env.now_us)
        self.enter(env, proposal.view, together)

    def enter(self, env: Env, view: RankedView, together: tuple[NodeId, ...]) -> None:
        """G-1: a view begins; what belongs to the one before is over."""
        for node in self.boots:
            if node not in view.members:
                self.channel.call(env, self.channel.machine.reset, node)
        departures = tuple(self._departures(view, together))
        self.view = view
        self.boots = dict(zip(view.members, view.boots, strict=True))
        self.proposal = None
        self._gone = set()
        self._why = {}
        self.settled = set()
        self.done = self._complained = self._retry = False
        self._taken = ()
        self.others.begin(view.members)
        self.phase = Phase.STEADY
        self._watch(env, self.boots)
        env.cancel_timer(Timer.CHANGE)
        env.up(Installed(view, together, departures))
        if self.missed:
            self._act(env)

    def _departures(self, view: RankedView, together: tuple[NodeId, ...]) -> Iterator[Departure]:
        """Why each member of my view does not come along."""
        for node in self.view.members:
            if node in together:
                continue
            if node in view.members:
                yield Departure(node, Reason.MOVED, "it comes from another view")
            else:
                others = Departure(node, Reason.EXCLUDED, f"{view.id.rep} proposed without it")
                yield self._why.get(node, others)

    def on_change(self, env: Env, event: TimerFired) -> None:
        """FL-4, FL-5: what was waited for has not come. Who has reported waits for those who have
        not, as we do; only when all have can a member be late."""
        proposal = self.proposal
        if proposal is not None and proposal.view.id.rep == self.me:
            if self._retry:
                self.propose(env, self._taken)
            else:
                silent = [m for m in proposal.view.members if m not in {*self._agreed, self.me}]
                late = [m for m in silent if m not in self._reported] if self._reported else silent
                self._give_up(env, late or silent, "does not get ready")
        elif proposal is not None or self.missed:
            if self._complained and self.coordinator != self.me:
                passive = Departure(self.coordinator, Reason.SILENT, "it does not act")
                self._why.setdefault(self.coordinator, passive)
                env.note("FL-5", "gone", f"{self.coordinator} does not act")
                self._gone.add(self.coordinator)
            self._act(env)

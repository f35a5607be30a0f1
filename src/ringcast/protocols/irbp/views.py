"""Views by consensus: iRBP's way to choose the next epoch (I1 to I10, I13 to I19).

A member that suspects a neighbour, or finds the ring standing still, asks all for another ring; one
that suspects somebody for long, or hears of joiners and leavers, asks for another membership. All
freeze, tell how far their logs reach, propose, and decide with one instance of consensus for each
epoch. What was decided is installed in order, as soon as the log reaches its start
(``following``).
"""

from __future__ import annotations

from ringcast.blocks.channel import Arrived, Channel
from ringcast.blocks.consensus import Consensus, Decided
from ringcast.blocks.detector import Detector, Heartbeat, Limit, Suspects
from ringcast.blocks.reliable_broadcast import HandedUp, ReliableBroadcast
from ringcast.core.effects import Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message, Received, Started, TimerFired
from ringcast.core.owned import Heard, Owned, Parts
from ringcast.protocols.irbp import following, membership, proposals
from ringcast.protocols.irbp.config import Config
from ringcast.protocols.irbp.messages import (
    CONSENSUS,
    MOST_UNSTABLE,
    Change,
    Contribution,
    Kind,
    Payload,
    Successor,
    bad_payload,
    epoch_of,
)
from ringcast.protocols.rbp import install, losses
from ringcast.protocols.rbp.delivery import deliver
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Chooser, Epoch, EpochConfig, Trouble
from ringcast.protocols.rbp.state import LIVES, Phase, Processor

BOOK = "irbp"

CHANGES = "changes"
"""The scope of the reliable broadcast; instances of consensus have their epoch's."""


class Views(Chooser):
    """What a site knows of views beyond the epoch that its ring is in."""

    judged_by = "no heartbeat: the members decided on a view without it"
    one_epoch = False

    def __init__(self, p: Processor, config: Config) -> None:
        self.p = p
        self.settings = config
        self.parts = Parts()
        self.detector = Owned(Detector(p.me, config.detector), self._hear_detector, book=BOOK)
        self.channel = Owned(Channel(p.me, config.channel, Payload), self._hear_channel, book=BOOK)
        block = ReliableBroadcast(p.me)
        self.changes = Owned(block, self._hear_change, CHANGES, book=BOOK, over=self.post)
        self.parts.add(self.changes)
        self.decided: EpochConfig | None = None
        """The newest epoch that we are a member of; our ring may not have got there yet."""
        self.asked: set[Kind] = set()
        """I4: what it is asked to change into."""
        self.given: dict[NodeId, Contribution] = {}
        """I7: contributions to the change."""
        self.avoid: NodeId = 0
        """I3: the member that two changes in a row were about."""
        self.stalled_at: NodeId | None = None
        self.passed_over_us: int | None = None
        """I9: when a ring of this view was chosen though another membership was asked for."""
        self.following = following.Following(self)
        self.membership = membership.ViewMembership(self)
        self.boots: dict[NodeId, int] = {}
        """Incarnations of members that began with the group, as heard first; kept when they are
        members no longer."""
        self.early_acks: list[Received] = []
        """ACKs of an epoch that we are about to begin."""
        self._early: list[tuple[NodeId, int, Message]] = []
        """Z8: payloads of an epoch that we have not heard of yet."""

    # --- who is who -----------------------------------------------------------------------------

    def seated(self, node: NodeId, boot: int) -> bool:
        """A3: whether this incarnation of a site is a member."""
        life = self.decided.lives.get(node) if self.decided else None
        if life is None:
            return False
        return (self.boots.setdefault(node, boot) if life == 0 else life // LIVES) == boot

    @property
    def others(self) -> tuple[NodeId, ...]:
        """The members but us."""
        assert self.decided is not None
        return tuple(node for node in self.decided.members if node != self.p.me)

    def doubted(self, limit: Limit) -> set[NodeId]:
        """D2, G47: members that are suspected, and those that have come back as somebody new."""
        detector = self.detector.machine
        suspected = detector.suspected if limit is Limit.AGGRESSIVE else detector.excludable
        return suspected | self.membership.reborn

    @property
    def lost(self) -> set[NodeId]:
        """Members that are not here, as it looks."""
        return self.doubted(Limit.AGGRESSIVE).intersection(
            self.decided.members if self.decided else ()
        )

    @property
    def blocked(self) -> bool:
        """G46: too few are here to choose another epoch."""
        if self.decided is None or self.p.phase is Phase.MEMBER:
            return False
        members = len(self.decided.members)
        return members - len(self.lost) < self.settings.contributions(members)

    # --- what the core says ---------------------------------------------------------------------

    def start(self, env: Env) -> None:
        """I17: in no view yet."""
        self.channel.handle(env, Started(self.p.boot, {}))

    def trouble(self, env: Env, why: Trouble, node: NodeId | None) -> None:
        """I3, R18 to R20: the ring does not go on: another one, of the same members (G52)."""
        if self.p.current is None:
            return
        at = node if node is not None else self.p.next
        again = at is not None and at == self.stalled_at and at != self.p.me
        self.stalled_at = at
        self.start_change(env, Kind.IVIEW, why.value, at if again and at is not None else 0)

    def other_epoch(self, env: Env, src: NodeId, epoch: Epoch) -> None:
        """R16, I24: tell one that is behind of our epoch, ask one that is ahead."""
        self.following.other_epoch(env, src, epoch)

    def grown(self, env: Env) -> None:
        """I11, I13: the log reaches further: perhaps as far as it must."""
        self.following.go_on(env)

    def installed(self, env: Env) -> None:
        """I10, I13: the ring has begun an epoch."""
        current = self.p.current
        assert current is not None
        if self.decided is None or self.decided.epoch < current.epoch:
            self.enter(env, current)
        acks, self.early_acks = self.early_acks, []
        for event in acks:
            if event.message.epoch == current.epoch:  # type: ignore[attr-defined]
                self.p.handle(env, event)
        if self.decided is not None and self.decided.epoch == current.epoch:
            self.membership.settled(env)

    def turn(self, env: Env) -> bool:
        """I17, I18: joiners and leavers are taken care of where the token is, in a quiet ring."""
        return self.membership.turn(env)

    def leaving(self, env: Env) -> None:
        """I18: tell the others, and stay until the view without us."""
        self.membership.leave(env)

    def snapshot(self) -> dict[str, object]:
        """State for people."""
        detector = self.detector.machine
        return {
            "blocked": self.blocked,
            "decided": str(self.decided.epoch) if self.decided else "-",
            "changing": tuple(kind.name.lower() for kind in sorted(self.asked)),
            "contributed": tuple(sorted(self.given)),
            "suspected": tuple(sorted(detector.suspected)),
            "excludable": tuple(sorted(detector.excludable)),
            "external": self.decided.external if self.decided else (),
        }

    # --- signs of life --------------------------------------------------------------------------

    def alive(self, env: Env, src: NodeId) -> None:
        """D1: any frame of a member is a sign of life."""
        heard = self.detector.machine.heard
        if src in heard:
            heard[src] = env.now_us

    def on_heartbeat(self, env: Env, event: Received) -> None:
        """D1, I20: what the sender knows of the ring; T17: the last number may be one we missed."""
        beat = event.message
        assert isinstance(beat, Heartbeat)
        if len(beat.news) != 4 or not self.seated(event.src, event.boot):
            env.drop("irbp D1", "a heartbeat of a stranger")
            if self.decided is not None and beat.view < self.decided.epoch.view:
                self.following.tell(env, event.src)
            return
        step, seen, floor, held = beat.news
        epoch, p = Epoch(beat.view, step), self.p
        if self.decided is None or epoch != self.decided.epoch:
            self.other_epoch(env, event.src, epoch)
            return
        if p.phase is Phase.MEMBER and p.current == self.decided and seen > p.ring.seen:
            p.ring.seen = seen
            losses.look(p, env)
            deliver(p, env)
        self.following.kept(env, event.src, floor, held)

    def _hear_detector(self, env: Env, heard: Heard) -> None:
        """I1, I2: what a suspicion leads to depends on its limit, and on who is suspected."""
        assert isinstance(heard, Up)
        if isinstance(word := heard.what, Suspects):
            names = " ".join(map(str, word.nodes))
            env.note("irbp I2", "suspect", f"{names} ({word.limit})", members=word.nodes)
        self.suspicions(env)

    def suspicions(self, env: Env) -> None:
        """I2: begin the change that a suspicion asks for; I7, Z5: or go on with the present one."""
        if self.decided is None:
            return
        members = set(self.decided.members)
        lost, silent = self.doubted(Limit.CONSERVATIVE), self.doubted(Limit.AGGRESSIVE)
        waits = (silent - lost) & members  # G34: it would wait for these
        if lost & members and not waits and not self.resting(env):
            self.start_change(env, Kind.REGULAR, "a member is silent for long")
        if not self.asked and self.neighbours & silent:
            self.start_change(env, Kind.IVIEW, "a neighbour is silent")
        if self.asked and set(self.awaited(Kind.REGULAR)) & (silent - lost):
            self.start_change(env, Kind.IVIEW, "somebody that a change waits for is silent")
        if self.scope in self.parts:
            part = self.parts[self.scope]
            part.call(env, part.machine.suspect, self.doubted(Limit.AGGRESSIVE))
        self.propose(env)

    def resting(self, env: Env) -> bool:
        """I23: whether it is too early to ask for another membership again: somebody had heard more
        of a silent member than we, and chose another ring instead of waiting for it."""
        passed_us = self.passed_over_us
        return passed_us is not None and env.now_us - passed_us < self.settings.dwell_us

    @property
    def neighbours(self) -> set[NodeId]:
        """I1: before and behind us in the ring; an external member watches nobody."""
        assert self.decided is not None
        core = self.decided.core
        if self.p.me not in core:
            return set()
        at = core.index(self.p.me)
        return {core[at - 1], core[(at + 1) % len(core)]} - {self.p.me}

    # --- the change -----------------------------------------------------------------------------

    @property
    def scope(self) -> str:
        """The instance that decides what follows the newest epoch we know."""
        assert self.decided is not None
        epoch = self.decided.epoch
        return f"{CONSENSUS}{epoch.view.seq}.{epoch.step}"

    def start_change(self, env: Env, kind: Kind, why: str, avoid: NodeId = 0) -> None:
        """I4: ask all members; equal requests are one."""
        if self.decided is None or kind in self.asked:
            return
        epoch = self.decided.epoch
        env.note("irbp I4", "change", f"{epoch} {kind.name.lower()}: {why}")
        key = f"{epoch.view.seq}.{epoch.step} {kind.name}"
        block = self.changes.machine
        self.changes.call(env, block.broadcast, key, Change(epoch, kind, avoid))

    def post(self, env: Env, to: NodeId, payload: Message) -> None:
        """L1: over the reliable channel."""
        self.channel.call(env, self.channel.machine.send, to, payload)

    def _hear_channel(self, env: Env, heard: Heard) -> None:
        """L1: a payload, of a contribution or of a part."""
        assert isinstance(heard, Up) and isinstance(heard.what, Arrived)
        self.take(env, heard.what.src, heard.what.boot, heard.what.payload)

    def take(self, env: Env, src: NodeId, boot: int, payload: Message) -> None:
        """Z8: what is of a later epoch waits until we hear of that."""
        if why := bad_payload(payload, self.p.members):
            env.drop("irbp I6", why)
            return
        epoch = epoch_of(payload)
        if epoch is not None and self._ahead(epoch):
            if len(self._early) < MOST_UNSTABLE:
                self._early.append((src, boot, payload))
            self.other_epoch(env, src, epoch)
        elif not self.seated(src, boot):
            env.drop("irbp A3", "a payload of one that is no member")
        elif isinstance(payload, Contribution):
            self._contributed(env, src, payload)
        elif not self.parts.route(env, Received(src, boot, payload)):
            env.drop("irbp Z8", "a frame of a decision that is over")
            self.following.tell(env, src)

    def _ahead(self, epoch: Epoch) -> bool:
        """Whether an epoch is later than the newest that we know."""
        mine = self.decided.epoch if self.decided else NEVER
        return (epoch.view.seq, epoch.step) > (mine.view.seq, mine.step)

    def _hear_change(self, env: Env, heard: Heard) -> None:
        """I5, I6: freeze, tell how far our log reaches, and begin to decide."""
        assert isinstance(heard, Up) and isinstance(heard.what, HandedUp)
        change = heard.what.payload
        if not isinstance(change, Change) or self.decided is None:
            return
        if change.epoch != self.decided.epoch:
            env.drop("irbp I4", "a change of another epoch")
            return
        if change.kind in self.asked:
            return
        self.asked.add(change.kind)
        self.avoid = self.avoid or change.avoid
        mine = proposals.contribution(self.p, change, install.freeze(self.p, env))
        for node in self.others:
            self.post(env, node, mine)
        self._begin(env)
        self._contributed(env, self.p.me, mine)
        self.suspicions(env)

    def _begin(self, env: Env) -> None:
        """I9: one instance for each epoch, among all its members. Z2: its first coordinator is the
        ring's second in M: the first begins the next ring if logs are equal, and knows first."""
        if self.scope in self.parts:
            return
        config = self.decided
        assert config is not None
        ring = [node for node in config.members if node in config.core]
        first = config.members.index(ring[1 % len(ring)])
        block = Consensus(self.p.me, self.participants(config), first)
        part = Owned(block, self._hear_decision, self.scope, book=BOOK, over=self.post)
        self.parts.add(part)
        part.handle(env, Started(self.p.boot, {}))

    def participants(self, config: EpochConfig) -> tuple[NodeId, ...]:
        """I9, G37: all members, for both kinds."""
        return config.members

    def _contributed(self, env: Env, src: NodeId, contribution: Contribution) -> None:
        """I7: the larger contribution of a member counts (G38)."""
        if self.decided is None or contribution.epoch != self.decided.epoch:
            env.drop("irbp I7", "a contribution to another change")
            return
        known = self.given.get(src)
        if known is None or known.kind < contribution.kind:
            self.given[src] = contribution
        self.propose(env)

    def awaited(self, kind: Kind) -> list[NodeId]:
        """I7: members whose contributions are not here."""
        assert self.decided is not None
        return [
            node
            for node in self.decided.members
            if node not in self.given or self.given[node].kind < kind
        ]

    def propose(self, env: Env) -> None:
        """I7, I8: with a word or a suspicion of everybody, and enough contributions."""
        config = self.decided
        if config is None or self.scope not in self.parts:
            return
        for kind, limit in ((Kind.IVIEW, Limit.AGGRESSIVE), (Kind.REGULAR, Limit.CONSERVATIVE)):
            if kind not in self.asked or set(self.awaited(kind)) - self.doubted(limit):
                continue
            given = {node: each for node, each in self.given.items() if each.kind >= kind}
            if len(given) < self.least(config):
                continue
            value = self.value(config, kind, given)
            part = self.parts[self.scope]
            if value is not None:
                part.call(env, part.machine.propose, value)
            return

    def least(self, config: EpochConfig) -> int:
        """I7, K3: contributions that a proposal needs."""
        return self.settings.contributions(len(config.members))

    def value(
        self, config: EpochConfig, kind: Kind, given: dict[NodeId, Contribution]
    ) -> Successor | None:
        """I8: what follows, as far as we know."""
        if kind is Kind.IVIEW:
            return proposals.next_iview(config, given, self.settings, self.avoid)
        return proposals.next_view(config, given, self.membership.leavers, self.membership.joiners)

    def _hear_decision(self, env: Env, heard: Heard) -> None:
        """I9: the one successor of the epoch."""
        assert isinstance(heard, Up) and isinstance(heard.what, Decided)
        value = heard.what.value
        assert isinstance(value, Successor)
        epoch = value.config.epoch
        env.note("irbp I9", "decide", f"{epoch} {value.config.members}", epoch.view)
        self.following.decided(env, value)

    # --- the next epoch -------------------------------------------------------------------------

    def enter(self, env: Env, config: EpochConfig) -> None:
        """I9: the newest epoch that we are a member of; the change of the one before is over."""
        before = self.decided
        if before is not None and self.scope in self.parts:
            self.parts.drop(env, self.scope)
        self.decided = config
        if Kind.REGULAR in self.asked:
            self.passed_over_us = env.now_us
        self.asked.clear()
        self.given.clear()
        self.avoid = 0
        if before is None or before.epoch.view != config.epoch.view:
            self._enter_view(env, before, config)
        detector = self.detector
        detector.call(env, detector.machine.watch, config.epoch.view, config.lives)
        early, self._early = self._early, []
        for src, boot, payload in early:
            self.take(env, src, boot, payload)

    def _enter_view(self, env: Env, before: EpochConfig | None, config: EpochConfig) -> None:
        """B3, C3: other members; what waits for those that are gone is given up."""
        self.passed_over_us = None
        lives = config.lives
        for node, life in sorted(before.lives.items() if before else ()):
            if lives.get(node) != life and node != self.p.me:
                self.channel.call(env, self.channel.machine.reset, node)
        self.changes.call(env, self.changes.machine.among, config.members)
        self.membership.entered(env, config)
        if before is None:
            self.detector.handle(env, Started(self.p.boot, {}))

    def leave(self, env: Env, why: str) -> None:
        """I19: our view goes on without us: this life ends, and the site comes back as another."""
        if self.decided is not None and self.scope in self.parts:
            self.parts.drop(env, self.scope)
        for node in self.others if self.decided else ():
            self.channel.call(env, self.channel.machine.reset, node)
        self.decided = None
        self.asked.clear()
        self.given.clear()
        self._early.clear()
        self.following.clear(env)
        self.detector.call(env, self.detector.machine.watch, NOBODY, {})
        install.leave_epoch(self.p, env, why)
        self.membership.out(env)

    def to_detector(self, env: Env, event: TimerFired) -> None:
        """D1: the beat tells where our ring is."""
        if self.decided is not None:
            p, step = self.p, self.decided.epoch.step
            self.detector.machine.news = (step, p.ring.seen, p.log.floor, p.log.held)
            self.detector.handle(env, event)
            if self.passed_over_us is not None:
                self.suspicions(env)

    def to_channel(self, env: Env, event: Received | TimerFired) -> None:
        """L1: what is the channel's. I18: whoever leaves waits for what it owes."""
        self.channel.handle(env, event)
        self.membership.part(env)

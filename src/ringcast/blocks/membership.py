"""View membership: agreed, numbered, ordered lists of who is in the group.

Each processor starts alone. A coordinator, the first member that is not missed, proposes the next
view; every member makes itself ready and agrees; then all install it. View numbers only rise, also
over restarts: a number is written to stable storage before anybody can hear of it. A proposal with
a higher number takes the place of a lower one, so that whoever is missed, wherever an attempt
stopped, a later one ends it; a member that has promised itself never goes back to its old view.

Views change in two ways and never in both at once: members are lost (they fell silent, left,
started again, or went on without us), or whole views go together. The second only happens when the
members of both have said that they are settled: what they carried into their view is done with.
A protocol that sends a message again in the next view needs that, so that nobody who had it under
its old number gets it a second time.

The group is partitionable: every part goes on by itself. Owners that want one primary part look at
the size of the view.

Rules: G-1 to G-9, FL-5, FL-6, TL-22.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcast.blocks import channel, detector
from ringcast.blocks.channel import Ack, Arrived, Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.merge_candidates import leads
from ringcast.blocks.view_change import VIEW_SEQ, Phase, Timer, ViewChange
from ringcast.blocks.view_messages import (
    STEP,
    Agree,
    Announce,
    Cancel,
    Complain,
    Install,
    Leave,
    Propose,
    RankedView,
    Refuse,
    Settled,
)
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Impossible, Table
from ringcast.core.owned import Heard


class Membership(ViewChange):
    """One processor's part in the group."""

    # --- life ---------------------------------------------------------------------------------

    def start(self, env: Env, event: Started) -> None:
        """G-1: alone in a view whose number was never used before."""
        self.detector.handle(env, event)
        self.channel.handle(env, event)
        view_id = ViewId(event.stable.get(VIEW_SEQ, 0) + STEP, self.me)
        self.promise(env, view_id)
        self.enter(env, RankedView(view_id, (self.me,), (event.boot,)), (self.me,))

    def admit(self, env: Env, event: Received) -> bool:
        """Malformed announcements go no further; packets are looked at when they arrive."""
        message = event.message
        if type(message) is Announce and (
            message.view.malformed or message.view.id.rep != event.src
        ):
            env.drop("G-2", "malformed announcement")
            return False
        return True

    @property
    def ready(self) -> bool:
        """It takes no submissions."""
        return False

    def on_leaving(self, env: Env, event: Leaving) -> None:
        """Tell the others, so that nobody waits for me; the owner stops."""
        env.broadcast(Leave(self.view.id))

    # --- what the owner says ------------------------------------------------------------------

    def agree(self, env: Env, view_id: ViewId) -> None:
        """G-8: the owner is ready for the view proposed."""
        if self.proposal is None or self.proposal.view.id != view_id:
            return
        if view_id.rep == self.me:
            self.take_consent(env, self.me)
        else:
            self.post(env, view_id.rep, Agree(view_id))

    def settle(self, env: Env) -> None:
        """TL-22: the owner is done with what it carried into the view."""
        self.done = True
        if self.view.id.rep == self.me:
            self._take_settled(env, self.me)
        else:
            self.post(env, self.view.id.rep, Settled(self.view.id))

    # --- other views --------------------------------------------------------------------------

    def on_settled(self, env: Env, src: NodeId, boot: int, settled: Settled) -> None:
        """TL-22: one more is done with what it carried along."""
        if settled.id == self.view.id and self.boots.get(src) == boot:
            self._take_settled(env, src)

    def _take_settled(self, env: Env, node: NodeId) -> None:
        self.settled.add(node)
        if self.open:
            self._announce(env)

    @property
    def open(self) -> bool:
        """Whether the view can go together with others, and it is for me to see to it."""
        steady = self.phase is Phase.STEADY and self.view.id.rep == self.me
        return steady and self.settled.issuperset(self.view.members) and not self.missed

    def _announce(self, env: Env) -> None:
        env.broadcast(Announce(self.view))
        env.set_timer(Timer.ANNOUNCE, self.settings.announce_us)

    def on_announce_timer(self, env: Env, event: TimerFired) -> None:
        """TL-22: say that the view exists."""
        if self.open:
            self._announce(env)

    def on_announce(self, env: Env, event: Received) -> None:
        """TL-22, FL-6: another view exists; or one of mine has gone there."""
        announce = event.message
        assert isinstance(announce, Announce)
        view = announce.view
        self.highest = max(self.highest, view.id.seq)
        mine = [m for m in view.members if m in self.boots]
        if view.id == self.view.id or self.me in mine:
            return
        if mine:
            for node in mine:
                self.follow(env, node, view.id)
            return
        self.others.hear(view, env.now_us)
        if not self.open:
            return
        if leads(view) < leads(self.view):
            env.send(event.src, Announce(self.view))  # it need not wait for our next one
        if not self.gathering:
            self.gathering = True
            env.set_timer(Timer.MERGE, self.settings.merge_us)

    def on_merge(self, env: Env, event: TimerFired) -> None:
        """TL-22: go together with the views heard of, if mine leads them."""
        self.gathering = False
        if not self.open:
            return
        if others := self.others.candidates(self.view, env.now_us):
            self.propose(env, tuple(others))
        elif wait_us := self.others.wait_us(env.now_us):
            self.gathering = True
            env.set_timer(Timer.MERGE, max(wait_us, self.settings.merge_us))

    # --- parts --------------------------------------------------------------------------------

    def hear_channel(self, env: Env, heard: Heard) -> None:
        """What the channel hands up: the membership's own words, or the owner's."""
        word = heard.what  # type: ignore[union-attr]
        assert isinstance(word, Arrived)
        act = WORDS.get(type(word.payload))
        if act is None:
            env.up(word)
        else:
            act(self, env, word.src, word.boot, word.payload)

    def to_detector(self, env: Env, event: TimerFired) -> None:
        """The detector's own."""
        self.detector.handle(env, event)

    def to_channel(self, env: Env, event: Received | TimerFired) -> None:
        """The channel's own."""
        self.channel.handle(env, event)

    def snapshot(self) -> dict[str, object]:
        """The view, and who is missed."""
        return {
            "phase": self.phase.value,
            "view": str(self.view.id),
            "members": self.view.members,
            "promised": str(self.promised),
            "missed": tuple(sorted(self.missed)),
            "settled": tuple(sorted(self.settled)),
            "waiting": self.channel.machine.waiting,
        }


WORDS: dict[type, Callable[[Membership, Env, NodeId, int, Any], None]] = {
    Propose: Membership.on_propose,
    Agree: Membership.on_agree,
    Refuse: Membership.on_refuse,
    Install: Membership.on_install,
    Complain: Membership.on_complain,
    Settled: Membership.on_settled,
    Cancel: Membership.on_cancel,
}
"""What members say to each other through the channel, and who acts on it."""

Membership.table = Table(
    Phase,
    (Heartbeat, Packet, Ack, Announce, Leave),
    (*Timer, *detector.Timer, *channel.Timer),
    {
        (phase, key): cell
        for phase in Phase
        for key, cell in (
            (Submitted, Impossible("a membership carries no messages")),
            (Leaving, Membership.on_leaving),
            (Heartbeat, Membership.on_heartbeat),
            (Packet, Membership.to_channel),
            (Ack, Membership.to_channel),
            (Announce, Membership.on_announce),
            (Leave, Membership.on_leave),
            (Timer.CHANGE, Membership.on_change),
            (Timer.ANNOUNCE, Membership.on_announce_timer),
            (Timer.MERGE, Membership.on_merge),
            (detector.Timer.BEAT, Membership.to_detector),
            (channel.Timer.RESEND, Membership.to_channel),
        )
    },
)

"""Flush: a view ends with the same contents for all who go on from it together.

Sits between a membership and a protocol that numbers its messages, and delays each view until the
members are of one mind. When a view is proposed the protocol stops and says what it holds. Who
proposed it finds, for each view that members come from, the ``cut``: the largest number up to
which nothing is lost to those who go on. Whoever lacks something below it gets it from one that
holds it, and agrees to the view then. What lies above the cut is lost to all.

The flush never sees a message: it asks the protocol to ``Supply`` them, which goes through the
channel (``post``), and the protocol says ``reached`` when it holds everything up to the cut.

Rules: G-8, FL-1 to FL-5.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from ringcast.blocks import channel, detector
from ringcast.blocks import view_change as changing
from ringcast.blocks import view_messages as views
from ringcast.blocks.channel import Ack, Arrived, Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.membership import Membership
from ringcast.blocks.view_change import Settings
from ringcast.blocks.view_messages import Announce, Leave, Propose, Proposed, RankedView
from ringcast.core.effects import Departure
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, Seq, ViewId
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Impossible, Machine, Table
from ringcast.core.owned import Heard, Owned
from ringcast.core.seqset import SeqSet

MOST_PIECES = 4096
"""Most intervals in a report, and most orders in a cut."""

MOST_LACKING = 2**16
"""Most numbers that a member can lack: no protocol has more under way."""

Ranges = Annotated[tuple[tuple[Seq, Seq], ...], msgspec.Meta(max_length=MOST_PIECES)]


class Phase(StrEnum):
    """Nothing to do; collecting reports or waiting for the cut; getting what lies below it."""

    IDLE = "Idle"
    BLOCKED = "Blocked"
    FILLING = "Filling"


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member holds of its view: all of ``first .. got``, and the ranges ``above``.

    Of these, everything that is not ``stable`` or not delivered can be supplied to others.
    ``first`` is 0 if it is not known; nothing was delivered then.
    """

    first: Seq
    got: Seq
    above: Ranges
    stable: Seq


class Report(msgspec.Struct, frozen=True, array_like=True, tag=32, gc=False):
    """FL-1: the sender is blocked for the view proposed, and holds this of its own."""

    id: ViewId
    holding: Holding


class Order(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Numbers ``low .. high`` are to be sent to a member that lacks them."""

    to: NodeId
    low: Seq
    high: Seq


class Cut(msgspec.Struct, frozen=True, array_like=True, tag=33, gc=False):
    """FL-2: the old view ends with number ``cut``; ``stable`` is the most that anyone knew of."""

    id: ViewId
    first: Seq
    cut: Seq
    stable: Seq
    orders: Annotated[tuple[Order, ...], msgspec.Meta(max_length=MOST_PIECES)]


Word: TypeAlias = views.Word | Report | Cut
"""What travels in packets of the channel, besides what the protocol supplies."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """To the owner: stop, and say ``report``."""

    id: ViewId


class Supply(msgspec.Struct, frozen=True, gc=False):
    """To the owner: this is the cut; send what is ordered, and say ``reached`` when you are."""

    cut: Cut


class Flushed(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the view is installed. ``cut`` ended the one before, if there was one."""

    view: RankedView
    together: tuple[NodeId, ...]
    cut: Cut | None
    departures: tuple[Departure, ...] = ()


class Flush(Machine):
    """One member's part in ending a view."""

    def __init__(self, me: NodeId, settings: Settings) -> None:
        super().__init__()
        self.me = me
        self.phase: Phase = Phase.IDLE
        self.group = Owned(Membership(me, settings), self._hear_group)
        self._reports: dict[NodeId, Holding] = {}
        self._cut: Cut | None = None

    @property
    def membership(self) -> Membership:
        """The part below."""
        return self.group.machine

    def start(self, env: Env, event: Started) -> None:
        """Begin alone."""
        self.group.handle(env, event)

    def admit(self, env: Env, event: Received) -> bool:
        """The membership looks at frames."""
        return True

    @property
    def ready(self) -> bool:
        """It takes no submissions."""
        return False

    # --- what the owner says ------------------------------------------------------------------

    def report(self, env: Env, holding: Holding) -> None:
        """FL-1: the owner has stopped, and holds this."""
        proposal = self.membership.proposal
        assert proposal is not None
        proposer = proposal.view.id.rep
        if proposer == self.me:
            self._collect(env, self.me, holding)
        else:
            self.post(env, proposer, Report(proposal.view.id, holding))

    def reached(self, env: Env) -> None:
        """FL-3: the owner holds everything up to the cut, unless a later attempt has begun."""
        if self._cut is not None:
            self.group.call(env, self.membership.agree, self._cut.id)

    def settle(self, env: Env) -> None:
        """The owner is done with what it carried into the view."""
        self.group.call(env, self.membership.settle)

    def post(self, env: Env, to: NodeId, payload: Message) -> None:
        """Send something through the channel."""
        self.group.call(env, self.membership.post, to, payload)

    # --- what is heard ------------------------------------------------------------------------

    def _hear_group(self, env: Env, heard: Heard) -> None:
        word = heard.what  # type: ignore[union-attr]
        match word:
            case Proposed(proposal):
                if proposal is self.membership.proposal:  # else a later one is about to be heard
                    self._block(env, proposal)
            case views.Installed():
                cut, self._cut = self._cut, None
                self.phase = Phase.IDLE
                env.up(Flushed(word.view, word.together, cut, word.departures))
            case Arrived(src=src, payload=Report() as report):
                self._on_report(env, src, report)
            case Arrived(src=src, payload=Cut() as cut):
                self._on_cut(env, src, cut)
            case _:
                env.up(word)

    def _block(self, env: Env, proposal: Propose) -> None:
        """FL-1, FL-5: stop; what an earlier attempt found out does not count."""
        self._reports = {}
        self._cut = None
        self.phase = Phase.BLOCKED
        env.up(Block(proposal.view.id))

    def _on_report(self, env: Env, src: NodeId, report: Report) -> None:
        """FL-2: what one more member holds, if it is for my present proposal."""
        proposal = self.membership.proposal
        if proposal is None or report.id != proposal.view.id or src not in proposal.view.members:
            # After a loss of stable storage a number may come twice, for other members.
            env.drop("FL-2", "a report for another proposal")
            return
        self._collect(env, src, report.holding)

    def _collect(self, env: Env, src: NodeId, holding: Holding) -> None:
        """FL-2: with the reports of all, each view that members come from has its cut."""
        proposal = self.membership.proposal
        assert proposal is not None
        self._reports[src] = holding
        self.group.call(env, self.membership.reported, src)
        if self._reports.keys() < set(proposal.view.members):
            return
        for base in dict.fromkeys(proposal.bases):
            group = {m: self._reports[m] for m in proposal.coming_from(base)}
            first, cut, stable = cut_of(group)
            orders = orders_of(group, first, cut)
            for member in group:
                mine = Cut(proposal.view.id, first, cut, stable, orders.get(member, ()))
                if member == self.me:
                    self._on_cut(env, self.me, mine)
                else:
                    self.post(env, member, mine)

    def _on_cut(self, env: Env, src: NodeId, cut: Cut) -> None:
        """FL-3: the view I am in ends there."""
        proposal = self.membership.proposal
        known = self._cut is not None or proposal is None or cut.id != proposal.view.id
        if known or src != cut.id.rep:
            env.drop("FL-3", "a cut for another proposal, or a second one")
            return
        self._cut = cut
        self.phase = Phase.FILLING
        env.up(Supply(cut))

    def to_group(self, env: Env, event: Received | TimerFired | Leaving) -> None:
        """The membership's own, and its parts'."""
        self.group.handle(env, event)

    def snapshot(self) -> dict[str, object]:
        """The attempt, if there is one."""
        return {
            "phase": self.phase.value,
            "reports": tuple(sorted(self._reports)),
            "cut": None if self._cut is None else self._cut.cut,
        }

    table: ClassVar[Table]


Flush.table = Table(
    Phase,
    (Heartbeat, Packet, Ack, Announce, Leave),
    (*changing.Timer, *detector.Timer, *channel.Timer),
    {
        (phase, key): Impossible("a flush carries no messages")
        if key is Submitted
        else Flush.to_group
        for phase in Phase
        for key in (
            Submitted,
            Leaving,
            Heartbeat,
            Packet,
            Ack,
            Announce,
            Leave,
            *changing.Timer,
            *detector.Timer,
            *channel.Timer,
        )
    },
)


def cut_of(group: dict[NodeId, Holding]) -> tuple[int, int, int]:
    """FL-2: first number, cut, and the most that is known to be stable, of one view's survivors.

    What is stable is held by all; what anybody delivered is held by that one.
    """
    first = max(holding.first for holding in group.values())
    stable = max(holding.stable for holding in group.values())
    if not first:
        return 0, 0, 0
    held = SeqSet()
    for holding in group.values():
        held.add_range(first, max(holding.got, stable))
        for low, high in holding.above:
            held.add_range(low, high)
    return first, held.all_up_to(first - 1), stable


def orders_of(
    group: dict[NodeId, Holding], first: int, cut: int
) -> dict[NodeId, tuple[Order, ...]]:
    """FL-3: who sends what to whom, so that each gets what it lacks from one that holds it.

    A holder gets no more orders than a cut can tell. For a member that lacks more pieces the last
    order goes on over numbers that it has, or that the holder has not: these cost frames only.
    """
    most = MOST_PIECES // len(group)
    held: dict[NodeId, SeqSet] = {}
    for member, holding in group.items():
        held[member] = numbers = SeqSet()
        numbers.add_range(0, holding.got)
        for low, high in holding.above:
            numbers.add_range(low, high)
    orders: dict[NodeId, list[Order]] = {member: [] for member in group}
    for member in group:
        pieces = Counter[NodeId]()
        for number in held[member].missing(first, cut, MOST_LACKING):
            holder = next((other for other in group if number in held[other]), member)
            last = orders[holder][-1] if pieces[holder] else None
            if last is not None and (last.high == number - 1 or pieces[holder] == most):
                orders[holder][-1] = Order(member, last.low, number)
            else:
                orders[holder].append(Order(member, number, number))
                pieces[holder] += 1
    return {member: tuple(found) for member, found in orders.items()}

"""From one view to the next: block, report, fill, install (2.4, 2.7, 2.8).

The application sees the rest of the old view, a transitional configuration of those who go on
together, what is delivered in it, and the new view. Safe messages that are not known to be held by
all members of the old view are delivered in the transitional one: all its members have them.
"""

from __future__ import annotations

from ringcast.blocks.channel import Arrived
from ringcast.blocks.flush import Block, Cut, Flushed, Holding, Supply
from ringcast.blocks.view_messages import Installed, Proposed, RankedView
from ringcast.core.effects import Departure, InstallView
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.owned import Heard
from ringcast.core.seqset import SeqSet
from ringcast.protocols.total import delivery, member, sequencer
from ringcast.protocols.total.config import Mode
from ringcast.protocols.total.messages import Bcast, malformed
from ringcast.protocols.total.state import Asked, Numbers, Phase, Processor, Timer

OF_A_VIEW = (Timer.NEW_VIEW, Timer.STATUS, Timer.ACK, Timer.RESEND, Timer.REQUEST)


def hear(p: Processor, env: Env, heard: Heard) -> None:
    """What the group below says."""
    word = heard.what  # type: ignore[union-attr]
    match word:
        case Block(id):
            block(p, env, id)
        case Supply(cut):
            supply(p, env, cut)
        case Flushed(view, together, cut, departures):
            install(p, env, view, together, cut, departures)
        case Arrived(payload=Bcast() as bcast):
            fill(p, env, bcast)
        case Proposed(proposal):  # no flush: prefix mode
            p.proposed = proposal.view.id
            p.below.call(env, p.group.agree, p.proposed)
        case Installed(view, together, departures):
            install(p, env, view, together, None, departures)
        case _:
            env.drop("total TL-16", "a word of another protocol")


# --- the end of a view ------------------------------------------------------------------------


def block(p: Processor, env: Env, proposed: ViewId) -> None:
    """FL-1: no numbers, no requests, nothing received any more; say what is held."""
    p.proposed = proposed
    p.early = []
    p.cut = None
    p.change_phase(env, Phase.BLOCKED, "total FL-1", f"{proposed} is proposed")
    numbers = p.numbers
    above = SeqSet()
    for seq in sorted(numbers.store):
        if seq > numbers.got:
            above.add(seq)
    ranges = tuple(above.intervals())
    holding = Holding(numbers.first, numbers.got, ranges, numbers.stable)
    p.below.call(env, p.below.machine.report, holding)  # type: ignore[union-attr]


def supply(p: Processor, env: Env, cut: Cut) -> None:
    """FL-3: send what others lack; what I lack is on its way."""
    p.cut = cut
    store = p.numbers.store
    for order in cut.orders:
        for seq in range(order.low, min(order.high, p.numbers.top) + 1):
            if seq in store:
                p.post(env, order.to, store[seq])
    if cut.first and not p.numbers.first:
        p.numbers.learn(cut.first)
    filled(p, env)


def fill(p: Processor, env: Env, bcast: Bcast) -> None:
    """FL-3: a number I lacked, from a member that holds it."""
    if malformed(bcast):
        env.drop("total A2", "malformed frame")
        return
    if p.phase is not Phase.BLOCKED or bcast.view != p.view:
        env.drop("total FL-3", "a message of a view that is over")
        return
    if p.numbers.fill(bcast):
        filled(p, env)


def filled(p: Processor, env: Env) -> None:
    """FL-3: ready when nothing is missing up to the cut."""
    if p.cut is not None and p.numbers.got >= p.cut.cut:
        p.below.call(env, p.below.machine.reached)  # type: ignore[union-attr]


def finish(p: Processor, env: Env, cut: Cut) -> int:
    """FL-3, TL-29: deliver in the old view up to the cut, or the first safe message that nobody
    knew to be stable; returns where that is.

    Only what all reports told decides, never what I alone know, so all stop at the same number.
    """
    numbers = p.numbers
    for seq in range(numbers.delivered + 1, cut.cut + 1):
        bcast = numbers.store[seq]
        if bcast.level and seq > cut.stable:
            break
        numbers.delivered = seq
        delivery.upcall(p, env, p.view, bcast)
    return numbers.delivered


def install(
    p: Processor,
    env: Env,
    view: RankedView,
    together: tuple[NodeId, ...],
    cut: Cut | None,
    departures: tuple[Departure, ...],
) -> None:
    """TL-2: the old view ends, the new one begins; no frame and no timer comes in between.
    TL-2 ext: a transitional configuration of those who come along stands between them."""
    numbers = p.numbers
    first_view = p.view.seq == 0
    conf_id: ViewId | None = None
    if not first_view:
        last = finish(p, env, cut) if cut is not None and cut.first else numbers.delivered
        told = last if last >= max(numbers.first, 1) else 0
        conf_id = ViewId(view.id.seq - 2, min(together))
        members = tuple(sorted(together))
        env.note("total FL-3", "deliver_memb", view=conf_id, members=members)
        env.install_view(InstallView(conf_id, members, True, p.view, told, conf_id, departures))
        # G-5 ext: of a part that is not primary nobody else may ever have these.
        if cut is not None and cut.first and len(view.members) >= p.config.quorum:
            for seq in range(last + 1, cut.cut + 1):
                numbers.delivered = seq
                delivery.upcall(p, env, conf_id, numbers.store[seq])
    p.highest = max(p.highest, numbers.delivered, numbers.top)
    reset(p, env, view)
    env.install_view(InstallView(view.id, tuple(sorted(view.members)), False, view.id, 0, conf_id))
    begin(p, env, alone=first_view)


def reset(p: Processor, env: Env, view: RankedView) -> None:
    """TL-2, TL-18, TL-31: nothing of the old view is left; its frames are none of ours."""
    p.view = view.id
    p.members = view.members
    p.numbers = Numbers(p.config.queue_size, p.config.max_message)
    p.office = None
    p.cut = p.proposed = None
    p.asked, p.lasting = {}, 0
    p.ack_on = p.resend_on = p.request_on = False
    p.request_interval_us = p.config.request_us
    for timer in OF_A_VIEW:
        env.cancel_timer(timer)


# --- the beginning of a view ------------------------------------------------------------------


def begin(p: Processor, env: Env, alone: bool) -> None:
    """TL-3, TL-8, TL-30: who is first takes office; requests that are not delivered go again."""
    p.kept = 0
    if p.config.mode is Mode.PREFIX or not p.primary:
        give_up(p, env)
    p.carried = p.pending[-1].request if p.pending else 0
    if alone:
        env.set_timer(Timer.JOIN, p.config.join_us)
    else:
        env.cancel_timer(Timer.JOIN)
        p.change_phase(env, Phase.ACTIVE, "total TL-2", f"{p.view} is installed")
    if p.sequencer == p.me:
        sequencer.take_office(p, env)
        ask_again(p, env)
    else:
        for asked in p.pending:
            member.send(p, env, asked)
    if not p.carried:
        p.below.call(env, p.below.machine.settle)
    early, p.early = p.early, []
    if p.phase is Phase.ACTIVE:
        member.feed(p, env)
    for event in early:
        p.handle(env, event)


def ask_again(p: Processor, env: Env) -> None:
    """TL-30: the sequencer's own requests of earlier views, in their order, before new ones."""
    office = p.office
    assert office is not None
    for asked in p.pending:
        office.line_up(p.me, member.request_of(p, asked))


def give_up(p: Processor, env: Env) -> None:
    """2.8, A20: whether anybody delivered these cannot be told, so they must not be sent again;
    the application hears of it."""
    lost: list[Asked] = [asked for asked in p.pending if asked.contents.last]
    for asked in lost:
        first, count = asked.contents.first, len(asked.contents.bodies)
        env.note("total TL-30", "uncertain", f"messages {first} to {first + count - 1}")
        env.uncertain(first, count)
    parts = bool(p.pending) and not p.pending[-1].contents.last
    p.pending.clear()
    if parts:
        p.outbox.rewind()

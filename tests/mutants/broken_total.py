"""Mutants of TOTAL: numbers, acknowledgements, the flush, views."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import after, mutant
from pytest import MonkeyPatch

from ringcast.blocks import flush
from ringcast.blocks.flush import Cut, Holding
from ringcast.blocks.membership import Membership
from ringcast.blocks.view_change import ViewChange
from ringcast.blocks.view_messages import Install, RankedView
from ringcast.core.effects import Uncertain
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.total import change, delivery, member, repair, sequencer
from ringcast.protocols.total.machine import CELLS, Total
from ringcast.protocols.total.messages import (
    MESSAGES,
    Bcast,
    CumSeqAck,
    NewView,
    NewViewAck,
    Request,
    Resend,
)
from ringcast.protocols.total.state import Numbers, Phase, Processor, Timer

FLOWING = (Phase.JOINING, Phase.ACTIVE)


def handle(patch: MonkeyPatch, key: Any, act: Any, phases: tuple[Phase, ...] = FLOWING) -> None:
    """Replace the handler of an input while messages flow, or in other phases."""
    for phase in phases:
        patch.setitem(Total.table.rows[phase], key, act)


# --- in a view --------------------------------------------------------------------------------


@mutant("TL-2 TL-7", "progress", "D9", "D5", "no-crash")
def numbers_not_reset_per_view(patch: MonkeyPatch) -> None:
    """Goes on, in a new view, to expect the number after the last one of the old view."""
    whole = change.reset

    def reset(p: Processor, env: Env, view: RankedView) -> None:
        old = p.numbers
        whole(p, env, view)
        if old.first and p.sequencer != p.me:
            p.numbers.learn(old.got + 1)

    patch.setattr(change, "reset", reset)


@mutant("TL-7 A4", "D2", "D9", "D12", "no-crash", "integrity")
def new_view_resets_expectations(patch: MonkeyPatch) -> None:
    """Sets the expected number at every NEW_VIEW, a late copy too."""

    def on_new_view(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, NewView)
        store = dict(p.numbers.store)
        p.numbers.learn(message.first)
        p.numbers.store.update(store)
        member.moved(p, env)
        env.send(event.src, NewViewAck(p.view))

    handle(patch, NewView, on_new_view)


@mutant("TL-13 A5", "integrity", "no-crash")
def request_numbered_twice(patch: MonkeyPatch) -> None:
    """Gives a request that is repeated, or comes twice, another number."""

    def repeat(p: Processor, env: Env, origin: NodeId, request: Request) -> None:
        assert p.office is not None
        p.office.waiting.append((origin, request))
        sequencer.serve(p, env)

    patch.setattr(sequencer, "repeat", repeat)


@mutant("TL-14", "fifo", "no-crash", "causal")
def requests_numbered_as_they_come(patch: MonkeyPatch) -> None:
    """Numbers the requests of an origin in the order of their arrival."""

    def on_request(p: Processor, env: Env, event: Received) -> None:
        request, office = event.message, p.office
        assert isinstance(request, Request)
        if office is None:
            return
        seen = office.early.setdefault(event.src, {})
        if request.request not in seen:
            seen[request.request] = request
            office.waiting.append((event.src, request))
            sequencer.serve(p, env)

    handle(patch, Request, on_request)


@mutant("TL-15 A5", "progress")
def requests_are_not_repeated(patch: MonkeyPatch) -> None:
    """Asks once."""
    handle(patch, Timer.REQUEST, lambda p, env, event: None)


@mutant("TL-19", "progress")
def resend_unanswered(patch: MonkeyPatch) -> None:
    """Never sends a number again."""
    handle(patch, Resend, lambda p, env, event: None)


@mutant("TL-26 TL-20", survives="the next message, or the end of the view, shows what is missing")
def no_status(patch: MonkeyPatch) -> None:
    """Says nothing of what was given out last, so a lost suffix is not found."""

    def on_status_timer(p: Processor, env: Env, event: TimerFired) -> None:
        if p.office is not None:
            p.office.status_on = False

    handle(patch, Timer.STATUS, on_status_timer)


@mutant("TL-12", "D1", "D9", "integrity", "no-crash")
def a_hole_is_skipped(patch: MonkeyPatch) -> None:
    """Takes everything up to the highest number for received."""

    def take(numbers: Numbers, bcast: Bcast) -> bool:
        if not numbers.first or bcast.seq <= numbers.got:
            return False
        for seq in range(numbers.got + 1, bcast.seq + 1):
            numbers.store[seq] = replace(bcast, seq=seq)
        numbers.got = numbers.top = bcast.seq
        return True

    patch.setattr(Numbers, "take", take)


@mutant("TL-25", "D10", "D11", "no-crash", "progress")
def stable_when_one_has_it(patch: MonkeyPatch) -> None:
    """Takes for stable what some member has acknowledged."""
    whole = sequencer.on_cum_seq_ack

    def on_cum_seq_ack(p: Processor, env: Env, event: Received) -> None:
        ack, office = event.message, p.office
        assert isinstance(ack, CumSeqAck)
        if office is not None and ack.upto < office.next_assign:
            for node in office.acked:
                if node != event.src:
                    office.acked[node] = max(office.acked[node], ack.upto)
        whole(p, env, event)

    handle(patch, CumSeqAck, on_cum_seq_ack)


@mutant("TL-29", "D10", "M7", "D6")
def safe_before_it_is_stable(patch: MonkeyPatch) -> None:
    """Delivers safe messages like agreed ones."""

    def deliver_ready(p: Processor, env: Env) -> None:
        numbers = p.numbers
        while numbers.first and numbers.delivered < numbers.got:
            numbers.delivered += 1
            delivery.upcall(p, env, p.view, numbers.store[numbers.delivered])

    patch.setattr(delivery, "deliver_ready", deliver_ready)


@mutant("TL-31 G-4 A2", "D9", "D5", "D1", "no-crash", "integrity", "M1", "D6")
def frames_of_any_view(patch: MonkeyPatch) -> None:
    """Takes a frame whatever view it was sent in."""
    whole = Total.admit

    def admit(p: Total, env: Env, event: Received) -> bool:
        if type(event.message) in MESSAGES:
            message = replace(event.message, view=p.view)
            event = replace(event, message=message)
            if type(message) is Bcast and not whole(p, env, event):
                return False
            if type(message) is Bcast:
                member.on_bcast(p, env, event)
                return False
        return whole(p, env, event)

    patch.setattr(Total, "admit", admit)


# --- the flush --------------------------------------------------------------------------------


@mutant("TL-27", "no-crash", "progress", "D6")
def delivered_is_dropped_before_it_is_stable(patch: MonkeyPatch) -> None:
    """Forgets a message once it is delivered here, although others may lack it."""

    def release_stable(numbers: Numbers) -> None:
        for seq in range(numbers.released + 1, numbers.delivered + 1):
            del numbers.store[seq]
        numbers.released = max(numbers.released, numbers.delivered)

    patch.setattr(Numbers, "release_stable", release_stable)


@mutant("FL-1", "D6", "D9", "M7", "D10", "D11")
def receives_while_blocked(patch: MonkeyPatch) -> None:
    """Goes on to receive and deliver after it has said what it holds."""
    handle(patch, Bcast, CELLS[Phase.ACTIVE, Bcast], (Phase.BLOCKED,))


@mutant("FL-2", "D6", "M7", "D9")
def cut_at_the_least(patch: MonkeyPatch) -> None:
    """Ends a view with the number that all survivors have, not the last that one has."""

    def spoil(found: tuple[int, int, int], group: dict[NodeId, Holding]) -> tuple[int, int, int]:
        first, cut, stable = found
        return first, min([cut, *(max(h.got, first - 1) for h in group.values())]), stable

    after(patch, flush, "cut_of", spoil)


@mutant("FL-3", "D6", "M7", "no-crash", "D10")
def ready_before_it_is_filled(patch: MonkeyPatch) -> None:
    """Goes on with what it has, without waiting for what it lacks up to the cut."""

    def filled(p: Processor, env: Env) -> None:
        if p.cut is not None:
            p.cut = None
            p.below.call(env, p.below.machine.reached)  # type: ignore[union-attr]

    def finish(p: Processor, env: Env, cut: Cut) -> int:
        numbers = p.numbers
        while numbers.delivered < min(cut.cut, numbers.got):
            numbers.delivered += 1
            delivery.upcall(p, env, p.view, numbers.store[numbers.delivered])
        return numbers.delivered

    whole = change.install

    def install(
        p: Processor, env: Env, view: RankedView, together: Any, cut: Cut | None, departures: Any
    ) -> None:
        if cut is not None and p.numbers.got < cut.cut:
            cut = replace(cut, cut=max(p.numbers.got, p.numbers.delivered))
        whole(p, env, view, together, cut, departures)

    patch.setattr(change, "filled", filled)
    patch.setattr(change, "finish", finish)
    patch.setattr(change, "install", install)


@mutant("FL-3 TL-29", "D10", "D6", "M7")
def safe_delivered_in_the_old_view(patch: MonkeyPatch) -> None:
    """Delivers all up to the cut in the old view, safe or not."""

    def finish(p: Processor, env: Env, cut: Cut) -> int:
        numbers = p.numbers
        while numbers.delivered < cut.cut:
            numbers.delivered += 1
            delivery.upcall(p, env, p.view, numbers.store[numbers.delivered])
        return numbers.delivered

    patch.setattr(change, "finish", finish)


@mutant("FL-3", "D6", "M7")
def own_knowledge_ends_the_old_view(patch: MonkeyPatch) -> None:
    """Ends the old view with what it knows to be stable itself, not with what all reported."""
    whole = change.finish

    def finish(p: Processor, env: Env, cut: Cut) -> int:
        return whole(p, env, replace(cut, stable=p.numbers.stable))

    patch.setattr(change, "finish", finish)


@mutant("TL-30", "accounted", "validity")
def requests_forgotten_with_the_view(patch: MonkeyPatch) -> None:
    """Forgets, with a view, what it had asked for in vain."""
    whole = change.begin

    def begin(p: Processor, env: Env, alone: bool) -> None:
        p.kept = 0
        if p.pending and p.pending[-1].contents.last:
            p.pending.clear()
        whole(p, env, alone)

    patch.setattr(change, "begin", begin)


@mutant("TL-30", "integrity", "no-crash")
def requested_again_without_a_flush(patch: MonkeyPatch) -> None:
    """In prefix mode, asks again for what it has not delivered, although others may have it."""
    patch.setattr(change, "give_up", lambda p, env: None)


# --- views ------------------------------------------------------------------------------------


@mutant("TL-22 A12", "integrity", "causal")
def merges_unsettled(patch: MonkeyPatch) -> None:
    """Goes together with other views although some of what it carried along is not delivered."""
    whole = ViewChange.enter

    def enter(m: Membership, env: Env, view: RankedView, together: tuple[NodeId, ...]) -> None:
        whole(m, env, view, together)
        if m.proposal is None:
            m.done = True
            m.settled = set(view.members)

    patch.setattr(ViewChange, "enter", enter)


@mutant("G-1", "M2", "M3", "M6", "D12")
def view_number_not_persisted(patch: MonkeyPatch) -> None:
    """Promises itself to a view without writing its number down."""

    def promise(m: ViewChange, env: Env, view_id: ViewId) -> None:
        m.promised = view_id
        m.highest = max(m.highest, view_id.seq)

    patch.setattr(ViewChange, "promise", promise)


@mutant("FL-4 G-8", "M8", "D6", "M7", "progress")
def installs_before_all_agree(patch: MonkeyPatch) -> None:
    """Installs a view when most of its members are ready."""

    def take_consent(m: ViewChange, env: Env, node: NodeId) -> None:
        proposal = m.proposal
        assert proposal is not None
        m._agreed.add(node)
        if 2 * len(m._agreed) <= len(proposal.view.members) or m.me not in m._agreed:
            return
        for other in proposal.view.members:
            if other != m.me:
                m.post(env, other, Install(proposal.view.id))
        m._install(env, proposal)

    patch.setattr(ViewChange, "take_consent", take_consent)


@mutant("FL-6", "progress", "M5")
def who_went_on_is_waited_for(patch: MonkeyPatch) -> None:
    """Does not mind that a member says it is in a later view."""
    patch.setattr(ViewChange, "follow", lambda m, env, node, view_id: None)


@mutant("FL-5", "progress", "M5")
def nobody_takes_over(patch: MonkeyPatch) -> None:
    """Waits for the first member to propose a view, whether it lives or not."""
    patch.setattr(ViewChange, "coordinator", property(lambda m: m.view.members[0]))


@mutant(
    "TL-4",
    survives="numbers of different views are told apart by their views (A16)",
)
def numbers_begin_at_one(patch: MonkeyPatch) -> None:
    """Begins every view with number 1, whatever was seen before."""
    whole = sequencer.take_office

    def take_office(p: Processor, env: Env) -> None:
        p.highest = 0
        whole(p, env)

    patch.setattr(sequencer, "take_office", take_office)


@mutant("G-4", survives="what is dropped is asked for again in the new view (TL-15, TL-17)")
def early_frames_dropped(patch: MonkeyPatch) -> None:
    """Drops frames of the view to come instead of keeping them."""
    whole = Total.handle

    def handle_(p: Total, env: Env, event: Any) -> None:
        p.early = []
        whole(p, env, event)

    patch.setattr(Total, "handle", handle_)


@mutant("TL-18 TL-21", survives="a number comes more often than needed")
def asks_again_at_every_tick(patch: MonkeyPatch) -> None:
    """Asks for a missing number at every tick."""

    def ask(p: Processor, env: Env, seq: int) -> None:
        whole(p, env, seq)
        p.asked[seq].due_us = env.now_us

    whole = repair.ask
    patch.setattr(repair, "ask", ask)


@mutant("TL-30 Q7", "accounted")
def uncertain_messages_are_dropped_in_silence(patch: MonkeyPatch) -> None:
    """Gives messages up at a change and does not tell the application."""

    def give_up(p: Processor, env: Env) -> None:
        told = len(env.effects)
        whole(p, env)
        env.effects[told:] = [e for e in env.effects[told:] if not isinstance(e, Uncertain)]

    whole = change.give_up
    patch.setattr(change, "give_up", give_up)

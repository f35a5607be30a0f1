"""Commit: when a cycle is complete, its order, and handing it up with views between (CB-16 to
CB-21).
"""

from __future__ import annotations

from ringcast.blocks.packing import Assembler
from ringcast.core.effects import Departure, InstallView, PackedMessages, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.counter import losses
from ringcast.protocols.counter.entries import place, rank, reached
from ringcast.protocols.counter.messages import Msg, PassingList, Past, Seat, Token
from ringcast.protocols.counter.state import LIVES, Processor

VIEW_NO = "counter_view"
"""Stable storage: the number of the last list that became a view here."""

FRAME_BYTES = 42
"""CB-42: what a frame takes of the history besides its messages, and each of these two more."""

VIEWS_KEPT = 64
"""CB-42: views that members may ask about when they come back."""

JUDGED_BY = "a majority agreed on a list without it"
"""What says that a member is silent, for the application (``Departure``)."""

STEP = 8
"""Numbers of views from one list to the next; transitional ones lie in between."""


def consider(p: Processor, env: Env, token: Token) -> None:
    """CB-17, CB-18: commit, in order, every cycle that a token shows to be complete."""
    before, last = p.committed, reached(token, p.config.counting, p.me)
    for cycle in range(before + 1, last + 1):
        deliver_cycle(p, env, cycle, token.lists)
        p.committed = cycle
        step_view(p, env, token.lists)
        if p.parting:
            part_ways(p, env)
    if p.committed > before:
        losses.forget(p, p.committed)
        for key in [key for key in p.holding.counted if key[1] <= p.committed]:
            if not any(entry.key == key for entry in token.S):
                p.holding.counted.discard(key)


def deliver_cycle(p: Processor, env: Env, cycle: int, lists: tuple[PassingList, ...]) -> None:
    """CB-19, CB-20: the messages we listed or counted ourselves, in the order of the cycle."""
    composition = p.holding.composition.pop(cycle, {})
    if p.view_life == p.life:  # CB-31: a member delivers from its first view on
        for seq, sender, k in in_order(p, cycle, composition, lists):
            hand_up(p, env, p.holding.data[sender, cycle, k], seq)


def in_order(
    p: Processor,
    cycle: int,
    composition: dict[tuple[NodeId, int], int],
    lists: tuple[PassingList, ...],
) -> list[tuple[int, NodeId, int]]:
    """CB-20, P6: the messages of a cycle by their places."""
    return sorted(
        (place(cycle, rank(sender, cycle, lists, p.config), number + 1), sender, k)
        for (sender, k), number in composition.items()
    )


def hand_up(p: Processor, env: Env, msg: Msg, seq: int) -> None:
    """The messages that are whole with this frame go up together, if any; it is kept for those who
    come back (CB-42)."""
    assert p.view is not None and p.ring is not None
    p.delivered_seq = p.ring_seq = seq
    remember(p, Past(p.ring_no, seq, msg))
    bodies = p.assembler.add(msg.sender, msg.contents)
    if msg.sender == p.me:
        p.sending.mine.pop(msg.k, None)
    if bodies is not None:
        first = msg.contents.first
        batch = PackedMessages(p.ring, seq, msg.sender, msg.level, first, bodies, to=msg.to)
        if msg.sender == p.me and p.view == p.ring and not msg.to:
            env.originate(batch)
        env.deliver(p.view, batch)


def remember(p: Processor, past: Past) -> None:
    """CB-42: keep what was delivered, as much as the history may hold."""
    contents = past.msg.contents
    size = FRAME_BYTES + contents.size + 2 * len(contents.bodies)
    p.history.append((past, size))
    p.history_bytes += size
    while p.history_bytes > p.config.history_bytes:
        gone, size = p.history.popleft()
        p.history_bytes -= size
        p.history_from = gone.place


# --- views --------------------------------------------------------------------------------------


def step_view(p: Processor, env: Env, lists: tuple[PassingList, ...]) -> None:
    """CB-31, CB-33, CB-40: a list that is in force from the next cycle on becomes a view."""
    for list_ in reversed(lists):
        if list_.first == p.committed + 1 and list_.no > p.ring_no and list_.no >= p.skip_lists:
            if p.seated(list_):
                install(p, env, list_)
            return


def part_ways(p: Processor, env: Env) -> None:
    """CB-40, CB-44: a new epoch is without some of our view: the others are in a transitional one
    from the cycle on that nobody has committed before the epoch began."""
    while p.parting and p.parting[0][0] <= p.committed:
        _, list_ = p.parting.popleft()
        p.skip_lists = list_.no
        lost = any(list_.seat(node) != seat for node, seat in p.in_view.items())
        if lost and p.view is not None and p.view == p.ring:
            transit(p, env, between(list_), list_.seats)


def install(p: Processor, env: Env, list_: PassingList) -> None:
    """A regular view, after a transitional one of those who come along."""
    if p.view is not None and p.view == p.ring:
        transit(p, env, between(list_), list_.seats)
    members = tuple(sorted(list_.members))
    view = ViewId(STEP * list_.no, list_.seats[0].node)
    env.persist(VIEW_NO, list_.no)
    gone = departed(p, list_.seats)  # after the transitional view, if another epoch came between
    env.install_view(InstallView(view, members, False, view, 0, p.view, gone))
    if p.ring is not None and p.whole:
        p.views_over[p.ring_no] = list_
        if len(p.views_over) > VIEWS_KEPT:
            del p.views_over[min(p.views_over)]
    p.whole = True
    p.view = p.ring = view
    p.highest_view = max(p.highest_view, view.seq)
    p.view_life = p.life
    p.ring_no = list_.no
    p.ring_seq = 0
    p.in_view = {seat.node: seat for seat in list_.seats}
    p.boots |= {seat.node: seat.life // LIVES for seat in list_.seats if seat.life}
    p.assembler = Assembler(p.config.max_message)


def between(list_: PassingList) -> int:
    """The number of the transitional view before that of ``list_``."""
    return STEP * list_.no - STEP // 2


def transit(
    p: Processor,
    env: Env,
    number: int,
    seats: tuple[Seat, ...],
    reason: Reason = Reason.SILENT,
    judged_by: str = JUDGED_BY,
) -> None:
    """The transitional view after ours: who of it is still with us, in the same seat.

    CB-42: one that promised, was seated by an epoch and never heard of it comes to the next as one
    that has just joined, in the same life: it was not in our view. We ourselves keep our seat.
    """
    assert p.ring is not None
    if p.in_view[p.me] not in seats:
        env.stop("broken invariant: our seat is not the one in our view (counter CB-42)")
        return
    departures = departed(p, seats, reason, judged_by)
    p.in_view = {node: seat for node, seat in p.in_view.items() if seat in seats}
    members = tuple(sorted(p.in_view))
    view = ViewId(number, members[0])
    last = max(p.ring_seq, place(p.committed + 1, 0, 0) - 1)  # whoever was to get the last message
    env.install_view(InstallView(view, members, True, p.ring, last, view, departures))
    p.view = view
    p.highest_view = max(p.highest_view, view.seq)


def departed(
    p: Processor,
    seats: tuple[Seat, ...],
    reason: Reason = Reason.SILENT,
    judged_by: str = JUDGED_BY,
) -> tuple[Departure, ...]:
    """Those of our view that have not kept their seat: gone for this reason, unless they left."""
    gone = [node for node, seat in sorted(p.in_view.items()) if node != p.me and seat not in seats]
    here, back = {seat.node for seat in seats}, "it was taken in anew"
    return tuple(
        p.farewells.pop(node, Departure(node, reason, back if node in here else judged_by))
        for node in gone
    )

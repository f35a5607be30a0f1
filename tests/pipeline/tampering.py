"""Traces that somebody tampered with: each kind of edit, and what must be found in every protocol.

An edit is made to the trace of a run in which nothing is wrong. It says which property must name
it and which processors; the few that no trace can show say why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import (
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.sim.faults import NodeCrash, Restart
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, claims_of
from ringcast.sim.workload import Bursts
from ringcast.traces import Claims

PROTOCOLS = ("totem", "total", "token-fd", "counter", "rbp", "irbp", "totem-multi")

E = TypeVar("E")
change = msgspec.structs.replace


LONG_US = 6_000
"""Between bursts of a run that is two or three times as long."""


def spec(protocol: str, loser: NodeId | None = None, every_us: int = 15_000) -> RunSpec:
    """A short run in which frames hold several messages, and a member crashes; or ``loser`` does so
    early, and comes back without its storage."""
    several, slow = protocol == "totem-multi", 4 if protocol == "rbp" else 1
    faults: tuple[NodeCrash | Restart, ...] = (NodeCrash(60_000 * slow, 4),)
    if loser is not None:
        back = Restart(20_000 * slow, loser, keep_storage=False)
        faults = (NodeCrash(15_000 * slow, loser), back)
    return RunSpec(
        protocol=protocol,
        nodes=4,
        rings=((1, 2, 3), (3, 4)) if several else (),
        seed=7,
        duration_us=120_000 * slow,
        workload=(Bursts(messages=3, every_us=every_us * slow, safe=0.3, start_us=8_000),),
        faults=faults,
        core=(1, 2, 3),
    )


def right(
    protocol: str, loser: NodeId | None = None, every_us: int = 15_000
) -> tuple[list[TraceEvent], Claims]:
    """The trace of it and what is claimed of it."""
    events: list[TraceEvent] = []
    chosen = spec(protocol, loser, every_us)
    result = run(chosen, [events.append])
    assert not result.violations
    return events, claims_of(chosen)


class Trace:
    """The events of a run, to be edited."""

    def __init__(self, events: list[TraceEvent]) -> None:
        self.events = list(events)

    def all(self, kind: type[E], **wanted: object) -> list[E]:
        """The events of a kind with these fields."""
        return [
            e
            for e in self.events
            if isinstance(e, kind) and all(getattr(e, n) == v for n, v in wanted.items())
        ]

    def middle(self, kind: type[E], where: Callable[[Any], bool] = bool, **wanted: object) -> E:
        """One of them, from the middle."""
        found = [e for e in self.all(kind, **wanted) if where(e)]
        return found[len(found) // 2]

    def put(self, old: Any, **changes: object) -> Any:
        """Another event in the place of one."""
        new = change(old, **changes)
        self.events[self.index(old)] = new
        return new

    def index(self, event: Any) -> int:
        return next(at for at, e in enumerate(self.events) if e is event)

    def drop(self, event: Any) -> None:
        del self.events[self.index(event)]

    def swap(self, one: Any, other: Any) -> None:
        """Two events of a processor happen in each other's place."""
        at, to = self.index(one), self.index(other)
        self.events[at] = change(other, n=one.n, t_us=one.t_us)
        self.events[to] = change(one, n=other.n, t_us=other.t_us)

    def insert(self, event: Any, after: Any) -> None:
        """An event of the same processor right after another, which moves the later numbers."""
        at = self.index(after)
        for k, e in enumerate(self.events):
            if isinstance(e, Ended | Faulted) or e.node != after.node:
                continue
            if e.n > after.n:
                self.events[k] = change(e, n=e.n + 1)
        self.events.insert(at + 1, change(event, n=after.n + 1, t_us=after.t_us))

    def move(self, event: Any, after: Any) -> None:
        """One event happens right after another, which may be another processor's."""
        self.drop(event)
        self.insert(change(event, node=after.node), after)

    def packed(self, node: NodeId) -> Delivered:
        """A foreign frame of several messages that a processor delivered, and not first."""
        return self.middle(
            Delivered,
            lambda e: e.sender != node and len(e.digests) > 1 and self.first_told(e) != node,
            node=node,
        )

    def reached(self, submission: Submit) -> bool:
        """Whether its first message was delivered."""
        return any(submission.digests[0] in e.digests for e in self.all(Delivered))

    def first_told(self, frame: Delivered) -> NodeId:
        """Who first named the place of a frame."""
        return next(
            e.node
            for e in self.events
            if isinstance(e, Originated | Delivered) and (e.ring, e.seq) == (frame.ring, frame.seq)
        )

    def named(self, frame: Delivered, node: NodeId) -> tuple[NodeId, NodeId]:
        return (self.first_told(frame), node)


Nodes = tuple[NodeId, ...] | None
"""Who must be named; None: whoever it is."""
Named = Nodes | dict[str, Nodes]
"""The same, or by property."""
Edit = Callable[[Trace], Named]


class Tampering(msgspec.Struct, frozen=True):
    """An edit, and which property names it: for all protocols, or by protocol."""

    name: str
    edit: Edit
    breaks: dict[str, str]
    unseen: str = ""
    """Why no trace can show it."""
    nothing: str = ""
    """Why the traces of the other protocols cannot."""


TAMPERINGS: dict[str, Tampering] = {}


def tampering(*, unseen: str = "", nothing: str = "", **breaks: str) -> Callable[[Edit], Edit]:
    """Enter an edit. ``breaks`` has ``every`` or one keyword a protocol (``token_fd``)."""

    def enter(edit: Edit) -> Edit:
        name = edit.__name__.replace("_", "-")
        by = {p: breaks.get(p.replace("-", "_"), breaks.get("every", "")) for p in PROTOCOLS}
        told = {p: tag for p, tag in by.items() if tag}
        TAMPERINGS[name] = Tampering(name, edit, told, unseen, nothing)
        return edit

    return enter


UNTOLD = (
    "counter claims nothing of originations: a member may learn in a reformation where its own "
    "message stands, and does not originate it then"
)
NO_TRANSITIONAL = "it has no transitional configurations"


def altered(digests: tuple[int, ...], at: int = 0) -> tuple[int, ...]:
    return (*digests[:at], digests[at] ^ 1, *digests[at + 1 :])


# --- contents -----------------------------------------------------------------------------------


@tampering(every="content")
def one_body_altered_at_one_member(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    named = trace.named(frame, 2)
    trace.put(frame, digests=altered(frame.digests, -1 % len(frame.digests)))
    return named


@tampering(every="content")
def every_foreign_body_altered_at_one_member(trace: Trace) -> Nodes:
    found = [e for e in trace.all(Delivered, node=3) if e.sender != 3]
    first = trace.first_told(found[0])
    for e in found:
        trace.put(e, digests=tuple(d ^ 1 for d in e.digests))
    return (3, found[0].sender) if first == 3 else (first, 3)


@tampering(every="content")
def body_altered_where_it_is_originated(trace: Trace) -> Nodes:
    event = trace.middle(Originated)
    trace.put(event, digests=altered(event.digests))
    return None


@tampering(every="content")
def body_of_a_submission_altered(trace: Trace) -> Nodes:
    event = trace.middle(Submit, node=2)
    trace.put(event, digests=altered(event.digests))
    return None


@tampering(every="content")
def message_missing_from_a_packed_frame_at_one_member(trace: Trace) -> Nodes:
    frame = trace.packed(3)
    named = trace.named(frame, 3)
    trace.put(frame, digests=frame.digests[:-1])
    return named


@tampering(every="content")
def contents_of_two_frames_exchanged_at_one_member(trace: Trace) -> Nodes:
    one = trace.packed(2)
    other = next(
        e
        for e in trace.all(Delivered, node=2, sender=one.sender)
        if e.n > one.n and len(e.digests) == len(one.digests)
    )
    named = trace.named(one, 2)
    trace.put(one, digests=other.digests)
    trace.put(other, digests=one.digests)
    return named


@tampering(every="content")
def contents_of_two_messages_of_a_frame_exchanged(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    named = trace.named(frame, 2)
    trace.put(frame, digests=(frame.digests[1], frame.digests[0], *frame.digests[2:]))
    return named


@tampering(every="content")
def delivered_with_another_level(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    named = trace.named(frame, 2)
    trace.put(frame, level=Level(1 - frame.level))
    return named


def everywhere(trace: Trace, level: Level) -> Nodes:
    """A frame gets another level, at its originator and at all members."""
    frame = trace.middle(Delivered, node=2, level=Level(1 - level))
    first = trace.first_told(frame)
    for e in trace.events:
        if isinstance(e, Originated | Delivered) and (e.ring, e.seq) == (frame.ring, frame.seq):
            trace.put(e, level=level)
    return (first,) if first == frame.sender else (first, frame.sender)


@tampering(every="content")
def safe_message_agreed_everywhere(trace: Trace) -> Nodes:
    return everywhere(trace, Level.AGREED)


@tampering(unseen="a protocol may promise more than was asked for; D10 and D11 hold it to that")
def agreed_message_safe_everywhere(trace: Trace) -> Nodes:
    return everywhere(trace, Level.SAFE)


@tampering(every="content")
def level_of_a_submission_raised(trace: Trace) -> Nodes:
    trace.put(trace.middle(Submit, node=3, level=Level.AGREED), level=Level.SAFE)
    return None


@tampering(every="content")
def delivered_as_another_senders(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    named = trace.named(frame, 2)
    trace.put(frame, sender=2)
    return named


@tampering(every="content")
def delivered_with_another_number(trace: Trace) -> Nodes:
    frame = trace.packed(3)
    named = trace.named(frame, 3)
    trace.put(frame, first=frame.first + 1)
    return named


@tampering(unseen="the size stands in the submission alone, and the checksum does not tell it")
def size_of_a_submission_changed(trace: Trace) -> Nodes:
    event = trace.middle(Submit, node=2)
    trace.put(event, sizes=tuple(size + 1 for size in event.sizes))
    return None


@tampering(unseen="all tables tell the same; a trace is not signed")
def body_altered_in_every_table(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    wrong = frame.digests[0]
    for e in trace.events:
        if isinstance(e, Submit | Originated | Delivered) and wrong in e.digests:
            trace.put(e, digests=tuple(d ^ (d == wrong) for d in e.digests))
    return None


@tampering(every="content")
def own_body_altered_by_its_sender(trace: Trace) -> Nodes:
    """It originates something else than its application gave it; all members agree on that."""
    event = trace.middle(Submit, lambda e: trace.reached(e), node=2)
    for e in trace.events:
        if isinstance(e, Originated | Delivered) and event.digests[0] in e.digests:
            trace.put(e, digests=tuple(d ^ (d == event.digests[0]) for d in e.digests))
    return None


@tampering(every="integrity", totem_multi="P-6")
def one_message_at_two_places(trace: Trace) -> Nodes:
    """All members agree on both."""
    frame = trace.packed(2)
    later = next(
        e
        for e in trace.all(Delivered, node=2, sender=frame.sender)
        if e.n > frame.n and len(e.digests) == len(frame.digests)
    )
    events: list[Delivered | Originated] = [*trace.all(Delivered), *trace.all(Originated)]
    for e in events:
        if (e.ring, e.seq) == (later.ring, later.seq):
            trace.put(e, first=frame.first, digests=frame.digests, level=frame.level)
    return None


@tampering(every="integrity", totem_multi="P-8")
def all_submissions_left_out(trace: Trace) -> Nodes:
    trace.events = [e for e in trace.events if not isinstance(e, Submit)]
    return None


# --- originations and submissions ---------------------------------------------------------------


@tampering(
    totem="D1",
    total="D1",
    token_fd="D1-own",
    rbp="D1-own",
    irbp="D1-own",
    totem_multi="P-8",
    nothing=UNTOLD,
)
def origination_left_out(trace: Trace) -> Nodes:
    event = trace.middle(Originated, lambda e: e.owner == e.node, node=1)
    trace.drop(event)
    return None


@tampering(
    totem="D1-own",
    total="one-sequencer",
    token_fd="D1-own",
    rbp="D1-own",
    irbp="D1-own",
    totem_multi="P-6",
    nothing=UNTOLD,
)
def origination_moved_to_another_processor(trace: Trace) -> Nodes:
    event = trace.middle(Originated, node=1)
    anchor = [e for e in trace.events if getattr(e, "node", 0) == 2 and e.t_us <= event.t_us][-1]
    trace.move(trace.put(event, sender=event.owner), anchor)
    return (2, event.owner)


@tampering(
    totem="D1",
    total="D1",
    token_fd="D1-own",
    counter="D3",
    rbp="D1-own",
    irbp="D1-own",
    totem_multi="P-16",
)
def origination_after_its_own_delivery(trace: Trace) -> Nodes:
    event = trace.middle(Originated, lambda e: e.owner == e.node, node=1)
    (told,) = trace.all(Delivered, node=1, ring=event.ring, seq=event.seq)
    trace.move(event, told)
    return (1,)


@tampering(
    totem="D1",
    total="D1",
    token_fd="D1-own",
    rbp="D1-own",
    irbp="D1-own",
    totem_multi="P-6",
    nothing=UNTOLD,
)
def origination_told_twice(trace: Trace) -> Nodes:
    event = trace.middle(Originated, lambda e: e.owner == e.node, node=1)
    trace.insert(event, event)
    return None


@tampering(every="integrity", totem_multi="P-8")
def submission_left_out(trace: Trace) -> Nodes:
    trace.drop(trace.middle(Submit, node=2))
    return None


@tampering(every="integrity", totem_multi="P-8")
def submission_of_another_incarnation(trace: Trace) -> Nodes:
    trace.put(trace.middle(Submit, node=2), incarnation=2)
    return None


@tampering(every="integrity", totem_multi="P-8")
def delivered_before_it_was_submitted(trace: Trace) -> Nodes:
    """By one member; among the others nothing changes."""
    event = trace.middle(Submit, node=2)
    told = next(e for e in trace.all(Delivered, node=3, sender=2) if e.first >= event.first)
    before = [
        e
        for e in trace.events
        if getattr(e, "node", 0) == 3 and not isinstance(e, Faulted) and e.t_us < event.t_us
    ]
    trace.move(told, before[-1])
    return (3, 2)


@tampering(every="content", totem_multi="P-8")
def another_body_submitted_after_the_origination(trace: Trace) -> Nodes:
    """Right before its own delivery."""
    event = trace.middle(Submit, lambda e: trace.reached(e), node=2)
    trace.drop(event)
    told = next(e for e in trace.all(Delivered, node=2) if event.digests[0] in e.digests)
    before = max((e for e in own_events(trace, 2) if e.n < told.n), key=lambda e: e.n)
    trace.insert(change(event, digests=altered(event.digests)), before)
    return (2,)


@tampering(every="integrity", totem_multi="P-8")
def number_submitted_twice(trace: Trace) -> Nodes:
    event = trace.middle(Submit, node=2)
    trace.insert(change(event, digests=altered(event.digests)), event)
    return (2,)


def own_events(trace: Trace, node: NodeId) -> list[Any]:
    return [e for e in trace.events if getattr(e, "n", 0) and getattr(e, "node", 0) == node]


@tampering(every="integrity", totem_multi="P-8")
def delivered_message_reported_uncertain(trace: Trace) -> Nodes:
    told = trace.middle(Delivered, node=2, sender=2)
    trace.insert(ReportedUncertain(2, 0, 0, told.first, 1), told)
    return (2,)


@tampering(every="integrity", totem_multi="P-8")
def uncertain_message_delivered(trace: Trace) -> Nodes:
    event = trace.middle(Submit, lambda e: trace.reached(e), node=2)
    trace.insert(ReportedUncertain(2, 0, 0, event.first, 1), event)
    return (2,)


@tampering(every="integrity", totem_multi="P-8")
def message_never_submitted_reported_uncertain(trace: Trace) -> Nodes:
    trace.insert(ReportedUncertain(2, 0, 0, 10_000, 2), trace.middle(Submit, node=2))
    return (2,)


# --- order --------------------------------------------------------------------------------------


@tampering(every="total-order", rbp="D9", totem_multi="P-7")
def two_deliveries_exchanged(trace: Trace) -> Nodes:
    one = trace.packed(3)
    own = trace.all(Delivered, node=3)
    other = own[own.index(one) + 1]
    trace.swap(one, other)
    return None


@tampering(every="D9", totem_multi="P-13")
def delivery_left_out(trace: Trace) -> Nodes:
    trace.drop(trace.packed(2))
    return None


@tampering(every="D2", totem_multi="P-7")
def delivery_told_twice(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    trace.insert(frame, frame)
    return (2,)


@tampering(every="integrity", totem_multi="P-8")
def delivered_again_at_another_place(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    last = trace.all(Delivered, node=2)[-1]
    trace.insert(change(frame, ring=last.ring, view=last.view, seq=last.seq + 1), last)
    return (2, frame.sender)


@tampering(
    totem="D1",
    total="D1",
    token_fd="integrity",
    counter="integrity",
    rbp="integrity",
    irbp="integrity",
    totem_multi="P-8",
)
def invented_delivery(trace: Trace) -> Nodes:
    last = trace.all(Delivered, node=2)[-1]
    frame = change(last, seq=last.seq + 1, sender=1, first=10_000, digests=(1,))
    trace.insert(frame, last)
    return None


@tampering(
    totem="D4",
    total="D4",
    token_fd="agreement",
    counter="D4",
    rbp="D4",
    irbp="D4",
    totem_multi="P-10",
)
def last_deliveries_of_a_settled_member_left_out(trace: Trace) -> Nodes:
    for e in trace.all(Delivered, node=2)[-20:]:
        trace.drop(e)
    return None


# --- configurations -----------------------------------------------------------------------------


@tampering(every="M1", totem_multi="P-1")
def another_configuration_before(trace: Trace) -> Nodes:
    event = trace.all(Installed, node=2)[-1]
    trace.put(event, prev=ViewId(999, 1))
    return (2,)


@tampering(every="M1", totem_multi="P-1")
def delivered_in_another_configuration(trace: Trace) -> Nodes:
    frame = trace.packed(2)
    trace.put(frame, view=ViewId(frame.view.seq + 7, frame.view.rep))
    return (2,)


@tampering(every="M2", totem_multi="P-2")
def view_told_as_of_the_other_kind(trace: Trace) -> Nodes:
    view = trace.all(Installed)[-1].view
    first, *_, last = trace.all(Installed, view=view)
    trace.put(last, transitional=not last.transitional)
    return (first.node, last.node)


@tampering(every="D12", totem_multi="P-2")
def view_told_at_another_place(trace: Trace) -> Named:
    view = trace.all(Installed)[-1].view
    first, *_, last = trace.all(Installed, view=view)
    trace.put(last, seq=last.seq + 5)
    return {"P-2": (first.node, last.node), "": (last.node,)}


@tampering(every="M2", totem_multi="P-1")
def member_left_out_of_a_view(trace: Trace) -> Nodes:
    event = trace.all(Installed, node=2)[-1]
    trace.put(event, members=event.members[:-1])
    return None


@tampering(totem="M4", total="M4", counter="M2", nothing=NO_TRANSITIONAL)
def transitional_configuration_with_a_stranger(trace: Trace) -> Named:
    event = trace.all(Installed, node=2, transitional=True)[-1]
    first = trace.all(Installed, view=event.view)[0]
    trace.put(event, members=(*event.members, 9))
    return {"M4": (2,), "M2": (first.node, 2)}


@tampering(
    totem="M4",
    total="M4",
    counter="M2",
    irbp="one-ring",
    totem_multi="P-1",
    nothing="nobody goes on from a ring that others know: there is one, or the first is the last",
)
def ring_told_without_a_member(trace: Trace) -> Named:
    """The one that told so is to blame, not those that went on from the ring as it was."""
    ring = trace.all(Installed, node=1, transitional=False)[-2]
    trace.put(ring, members=tuple(m for m in ring.members if m != 2))
    told = [e.node for e in trace.all(Installed, view=ring.view)]
    return {"M2": (told[0], told[1] if told[0] == 1 else 1), "": (1,)}


@tampering(totem="M3", total="M3", counter="M1", nothing=NO_TRANSITIONAL)
def transitional_configuration_left_out(trace: Trace) -> Nodes:
    trace.drop(trace.all(Installed, node=3, transitional=True)[-1])
    return (3,)


@tampering(totem="M7", total="M7", counter="M7", nothing=NO_TRANSITIONAL)
def another_number_before_a_change(trace: Trace) -> Nodes:
    event = trace.all(Installed, node=3, transitional=True)[-1]
    trace.put(event, seq=event.seq - 1)
    return None


@tampering(totem="M8", total="M8", nothing="its members make no note of their consent to a ring")
def consent_left_out(trace: Trace) -> Nodes:
    view = trace.all(Installed, node=1, transitional=False)[-1].view
    for note in trace.all(Noted, node=2, what="commit", view=view):
        trace.drop(note)
    return None


@tampering(unseen="faults of the world say what was done to the group, not what it did")
def pause_invented(trace: Trace) -> Nodes:
    trace.events.insert(9, Faulted(2, 900, trace.events[9].t_us, "pause"))
    trace.events.insert(10, Faulted(2, 901, trace.events[9].t_us, "resume"))
    return None


@tampering(every="validity", total="accounted")
def own_frames_left_out(trace: Trace) -> Nodes:
    """Two in a row, so that several numbers are passed over: the first of them is named."""
    own = trace.all(Delivered, node=2, sender=2)
    for frame in own[3:5]:
        trace.drop(frame)
    return (2,)


CASES = [
    (kind, protocol)
    for kind in TAMPERINGS.values()
    for protocol in PROTOCOLS
    if kind.unseen or protocol in kind.breaks
]
"""Each kind in each protocol for which the table says something."""


def since_the_loss(trace: Trace) -> list[Delivered]:
    """What processor 2 delivered of others that had told it before, and all of them after a loss:
    from whoever lost its storage, or in its ring."""
    (loss,) = trace.all(Restarted, storage_kept=False)
    old = {
        (e.ring, e.seq)
        for e in trace.events
        if isinstance(e, Originated | Delivered) and e.t_us < loss.t_us
    }
    return [
        e
        for e in trace.all(Delivered, node=2)
        if loss.node in (e.ring.rep, e.sender)
        and (e.ring, e.seq) not in old
        and trace.first_told(e) != 2
    ]


def body_altered_after_the_giver_lost_its_storage(trace: Trace) -> Nodes:
    """What was told first was told after the loss, which excuses nothing then."""
    found = since_the_loss(trace)
    frame = found[len(found) // 2]
    named = trace.named(frame, 2)
    trace.put(frame, digests=altered(frame.digests))
    return named


def tell_again(trace: Trace, *nodes: NodeId) -> None:
    """A place that was told before the loss is another message at each of these after it."""
    (loss,) = trace.all(Restarted, storage_kept=False)
    frame = next(e for e in trace.all(Delivered) if e.ring.rep == loss.node)
    assert frame.t_us < loss.t_us
    for node in nodes:
        anchor = trace.all(Delivered, node=node)[-1 if node == 3 else -9]
        digests = tuple(digest ^ node for digest in frame.digests)
        trace.insert(change(frame, node=node, digests=digests), anchor)


def place_given_again(trace: Trace) -> Nodes:
    """That leaves content unknown; but the place is behind others there."""
    tell_again(trace, 2)
    return (2,)


def place_given_again_and_again(trace: Trace) -> Nodes:
    """One loss does not excuse two."""
    tell_again(trace, 2, 3)
    return (2, 3)


def given_again(edit: Edit, tag: str = "content") -> Tampering:
    """Of places in rings that are no configurations, after a loss; nothing else can show it."""
    return Tampering(edit.__name__.replace("_", "-"), edit, {"totem-multi": tag})


LOST: list[tuple[Tampering, str, NodeId]] = [
    (TAMPERINGS[name], protocol, 4)
    for name in ("one-body-altered-at-one-member", "member-left-out-of-a-view")
    for protocol in PROTOCOLS
    if protocol != "token-fd" and (name[0] == "m" or protocol not in ("counter", "irbp"))
]
"""What lost storage does not excuse: the same must be found where a member has come back without
its own. Those of token-fd do not come back, and those of counter and irbp take the first ring
again, which leaves every property unknown that finds messages by their ring."""

LOST += [
    (given_again(body_altered_after_the_giver_lost_its_storage), "totem-multi", 1),
    (given_again(body_altered_after_the_giver_lost_its_storage), "totem-multi", 3),
    (given_again(place_given_again, "P-7"), "totem-multi", 1),
    (given_again(place_given_again_and_again), "totem-multi", 1),
]

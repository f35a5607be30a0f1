"""The variables of one processor, under the dossier's names (2.3).

What belongs to a view lives in objects that end with it: ``Numbers``, what this member received,
and ``Office``, what only the sequencer knows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from enum import StrEnum

import msgspec

from ringcast.blocks.flush import Cut, Flush
from ringcast.blocks.membership import Membership
from ringcast.blocks.packing import Assembler, Contents, Outbox
from ringcast.blocks.receive_window import ReceiveWindow
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Message, Received
from ringcast.core.machine import Machine
from ringcast.core.owned import Heard, Owned
from ringcast.protocols.total.config import Config, Mode
from ringcast.protocols.total.messages import Bcast, Request


class Phase(StrEnum):
    """Whether messages flow."""

    JOINING = "Joining"
    """Alone since the start, and looking for others: what is submitted waits."""
    ACTIVE = "Active"
    BLOCKED = "Blocked"
    """A flush is ending the view (FL-1)."""


class Timer(StrEnum):
    """Timers of TOTAL itself; the group below has its own."""

    JOIN = "total join"
    NEW_VIEW = "total new view"
    STATUS = "total status"
    ACK = "total ack"
    RESEND = "total resend"
    REQUEST = "total request"


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request of ours that is not delivered: its number r and what it carries."""

    request: int
    level: Level
    contents: Contents


class Missing(msgspec.Struct, gc=False):
    """A number asked for: when to ask again, how long that is, and when it was asked first."""

    due_us: int
    interval_us: int
    asked_us: int


BELOW_CUT = 2**20
"""FL-3: how far ahead of what it expects a member keeps numbers that a flush brings."""


class Numbers(ReceiveWindow[Bcast]):
    """The numbered messages of one view, as this member has them."""

    __slots__ = ("acked", "assembler", "delivered", "first", "stable", "top")

    def __init__(self, queue_size: int, max_message: int) -> None:
        super().__init__(queue_size)
        self.first = 0  # 0: not known yet (TL-6)
        self.delivered = 0
        self.stable = 0  # known to be held by every member of the view
        self.acked = 0  # last CUM_SEQ_ACK sent
        self.top = 0  # largest number known to exist
        self.assembler = Assembler(max_message)

    def learn(self, first: int) -> None:
        """TL-7: the numbers begin here; lower ones are none of this view's."""
        self.first = first
        self.delivered = self.stable = self.acked = first - 1
        self.top = max(self.top, first - 1)
        self.begin(first)

    def take(self, bcast: Bcast) -> bool:
        """TL-11, TL-24: keep a number unless it is here already or too far ahead."""
        seq = bcast.seq
        if seq > self.top:
            self.top = seq
        if self.first:
            return self.put(seq, bcast)
        fresh = seq not in self.store and len(self.store) < self.ahead
        if fresh:
            self.store[seq] = bcast
        return fresh

    def fill(self, bcast: Bcast) -> bool:
        """FL-3: keep a number that a flush brings; TL-24 does not bound those below the cut."""
        ahead, self.ahead = self.ahead, BELOW_CUT
        fresh = self.take(bcast)
        self.ahead = ahead
        return fresh

    def assign(self, bcast: Bcast) -> None:
        """TL-13: the next number, which the sequencer gives out itself."""
        self.keep(bcast.seq, bcast)
        self.top = bcast.seq

    def holes(self, limit: int) -> list[int]:
        """TL-17, TL-24: the lowest numbers that exist, are not here, and would be kept if they
        came."""
        return self.missing(min(self.top, self.got + self.ahead), limit)

    def release_stable(self) -> None:
        """TL-27: what is delivered here and held by all is needed by nobody any more."""
        self.release(min(self.stable, self.delivered))


class Office:
    """What the sequencer of a view knows. The numbers given out are in its ``Numbers``."""

    __slots__ = (
        "acked",
        "announced",
        "answered",
        "assembler",
        "early",
        "expected",
        "held",
        "interval_us",
        "next_assign",
        "queued",
        "status_on",
        "status_us",
        "unaware",
        "waiting",
    )

    def __init__(self, first: int, others: tuple[NodeId, ...], config: Config) -> None:
        self.next_assign = first
        self.acked = dict.fromkeys(others, first - 1)
        self.held: dict[NodeId, int] = {}  # largest own number that a member said it has (SEQ_ACK)
        self.unaware = set(others)  # whose NEW_VIEW_ACK is missing (TL-9)
        self.expected: dict[NodeId, int] = {}  # by origin, the request to be numbered next (TL-14)
        self.early: dict[NodeId, dict[int, Request]] = {}  # requests before their turn
        self.waiting: deque[tuple[NodeId, Request]] = deque()  # in turn, for room (TL-28)
        self.queued: Counter[NodeId] = Counter()  # how many of them each origin has
        self.announced = first - 1  # the last ``stable`` that was told
        self.answered: dict[int, tuple[NodeId, int]] = {}  # who asked for a number, and when
        self.assembler = Assembler(config.max_message)  # of messages as they get their places
        self.interval_us = config.status_us  # until NEW_VIEW is repeated
        self.status_on = False
        self.status_us = config.status_us  # until the next STATUS

    def line_up(self, origin: NodeId, request: Request) -> None:
        """A request waits for its number."""
        self.waiting.append((origin, request))
        self.queued[origin] += 1

    def next_in_line(self) -> tuple[NodeId, Request]:
        """The request that has waited longest, and whose it is."""
        origin, request = self.waiting.popleft()
        self.queued[origin] -= 1
        return origin, request


class Processor(Machine):
    """The state that the phases share. What a phase may do with it is in other files."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me = me
        self.config = config
        self.boot = 0
        self.phase: Phase = Phase.JOINING

        self.below: Owned[Flush] | Owned[Membership]
        if config.mode is Mode.PREFIX:
            group = Membership(me, config.group)
            self.below = Owned(group, self.hear, book="total")
            self.group = group
        else:
            flush = Flush(me, config.group)
            self.below = Owned(flush, self.hear, book="total")
            self.group = flush.membership
        self.heard_us = self.group.detector.machine.heard

        self.view = ViewId(0, me)
        self.members: tuple[NodeId, ...] = (me,)  # in order of rank: the sequencer first (TL-3)
        self.proposed: ViewId | None = None  # frames of this view are early, not foreign (TL-T25)
        self.early: list[Received] = []
        self.transitional: ViewId | None = None

        self.numbers = Numbers(config.queue_size, config.max_message)
        self.office: Office | None = None  # if I am the sequencer
        self.cut: Cut | None = None
        self.highest = 0  # largest number seen in any view (TL-4)

        self.frame_budget = config.frame_budget
        self.outbox: Outbox[Level] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        self.pending: deque[Asked] = deque()  # requests that are not delivered, in r order
        self.kept = 0  # of these, delivered parts of a message that is not whole yet
        self.requests = 0  # r given out so far
        self.carried = 0  # last request that came from an earlier view; 0: settled
        self.request_interval_us = config.request_us
        self.progress_us = 0  # when a request of ours was last delivered
        self.request_on = False

        self.ack_on = False
        self.repeat_us = config.status_us  # until the last CUM_SEQ_ACK is repeated
        self.asked: dict[int, Missing] = {}
        self.lasting = 0  # what is missing up to here has been for a tick
        self.trip_us = 0  # smoothed time from RESEND to the number (TL-21)
        self.resend_on = False

    @abstractmethod
    def hear(self, env: Env, heard: Heard) -> None:
        """The group below has something to say."""

    @property
    def ready(self) -> bool:
        """Whether a submission will be accepted."""
        return self.outbox.ready

    @property
    def sequencer(self) -> NodeId:
        """TL-3: the first listed member, known to all without a word."""
        return self.members[0]

    @property
    def primary(self) -> bool:
        """G-5: whether this view may deliver."""
        return len(self.members) >= self.config.quorum

    @property
    def blocked(self) -> str:
        """G-5: without a quorum nothing is delivered."""
        if self.primary:
            return ""
        return f"members here: {len(self.members)}, quorum: {self.config.quorum}"

    def post(self, env: Env, to: NodeId, payload: Message) -> None:
        """Send something through the channel of the group below."""
        self.below.call(env, self.below.machine.post, to, payload)

    def change_phase(self, env: Env, phase: Phase, rule: str, cause: str) -> None:
        """The one place where the phase changes, and says why."""
        if phase is not self.phase:
            env.note(rule, "phase", f"{self.phase} -> {phase} ({cause})")
            self.phase = phase

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        numbers, office = self.numbers, self.office
        return {
            "phase": self.phase.value,
            "view": str(self.view),
            "members": self.members,
            "sequencer": self.sequencer,
            "first": numbers.first,
            "next": numbers.got + 1,
            "delivered": numbers.delivered,
            "stable": numbers.stable,
            "stored": len(numbers.store),
            "queue": tuple(sorted(seq for seq in numbers.store if seq > numbers.got)),
            "pending": len(self.pending),
            "queued": len(self.outbox),
            "early": len(self.early),
            "requests": self.requests,
            "missing": tuple(sorted(self.asked)),
            "top": numbers.top,
            "acked": numbers.acked,
            "highest": self.highest,
            "assigned": office.next_assign - 1 if office else 0,
            "waiting": len(office.waiting) if office else 0,
            "acks": dict(sorted(office.acked.items())) if office else {},
            "expected": dict(sorted(office.expected.items())) if office else {},
            "unaware": tuple(sorted(office.unaware)) if office else (),
            "announced": office.announced if office else 0,
            "settled": not self.carried,
            "group": self.group.snapshot(),
        }

"""What a member knows, by subject; and the phases and timers of the log and epoch core."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from ringcast.blocks.packing import Assembler, Outbox
from ringcast.core.effects import Departure
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.machine import Machine
from ringcast.protocols.rbp.config import Config
from ringcast.protocols.rbp.epochs import Chooser, Data, Entry, EpochConfig, Extent
from ringcast.protocols.rbp.log import Log
from ringcast.protocols.rbp.messages import Ack

LIVES = 1 << 10
"""Lives that one incarnation of a site may have."""


class Phase(StrEnum):
    """Whether this site takes part in an epoch, and whether its ring moves."""

    OUT = "Out"
    """It is in no epoch: new, or its view has gone on without it."""
    MEMBER = "Member"
    FROZEN = "Frozen"
    """F5, I5: it issues nothing in its epoch any more; another one is being chosen."""


class Timer(StrEnum):
    """The timers of the log and epoch core. L2: whatever is repeated has one, which an answer
    cancels; nothing is sent in a loop."""

    TOKEN = "rbp token"
    """R8: nobody has answered our ACK."""
    DATA = "rbp data"
    """R1: bodies of ours have no number yet."""
    NACK = "rbp nack"
    """R9: something is missing."""
    IDLE = "rbp idle"
    """R17: the token has rested."""
    ACT = "rbp act"
    """R18: no new number for too long."""


class Mine(msgspec.Struct):
    """A body of mine that is sent and not delivered, and the messages that end with it (R2)."""

    data: Data
    whole: tuple[bytes, ...]


class Sending:
    """From the application's queue to bodies with counters (R1, R2, K6)."""

    def __init__(self, config: Config) -> None:
        self.queue: Outbox[Level] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        self.counter = 0
        """Of my last body in this view."""
        self.mine: deque[Mine] = deque()
        """Sent and not delivered, oldest first."""
        self.named = 0
        """R2: an ACK names my bodies up to this one, so they are not repeated."""


class Ring:
    """The ring of the current epoch: its numbers (2.2, K1)."""

    def __init__(self, start: int) -> None:
        self.seen = start
        """K(p): the highest number seen, whether or not those before it are held."""
        self.acks: dict[int, Ack] = {}
        """Frames of the epoch, for those that ask (R11)."""
        self.issued = 0
        """The last number that we issued ourselves."""
        self.tries = 0
        """R19: how often its ACK was repeated."""
        self.answered: dict[NodeId, tuple[int, int]] = {}
        """R12: the last repeat of each issuer that was answered, and when: an answer is not taken
        for a repeat for ever."""
        self.resting = False
        """R17: we hold the token, and nothing is to be done."""


class Asking:
    """R9, R10: what is asked for, and of whom."""

    def __init__(self) -> None:
        self.tries = 0
        """Requests since the log grew last."""
        self.armed = False
        self.helper: NodeId | None = None
        """Who is known to hold what a recovery needs."""
        self.to = 0
        """Entries of the present view are needed up to here, besides those of its ring."""


class Processor(Machine):
    """The state that the rules share; with ``chooser``, it is an ``EpochCore``."""

    chooser: Chooser

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me = me
        self.config = config
        self.phase: Phase = Phase.OUT
        self.members = config.members or (me,)
        self.group = config.group
        self.budget = config.frame_budget
        self.boot = 0
        self.life = 0
        self.lives = 0
        """How many lives this incarnation has had."""

        self.current: EpochConfig | None = None
        self.log = Log()
        self.ring = Ring(0)
        self.delivered = 0
        """The last number delivered."""
        self.sending = Sending(config)
        self.asking = Asking()
        self.assembler = Assembler(config.max_message)

        self.view: ViewId | None = None
        """The view that the application is in."""
        self.in_view: dict[NodeId, int] = {}
        """Its members, and the lives they are in."""
        self.children: dict[ViewId, EpochConfig] = {}
        """F15: views that have ended here, and what followed, for members that were away."""
        self.farewells: dict[NodeId, Departure] = {}
        """Members that said that they leave."""
        self.told_us: dict[NodeId, int] = {}
        """R16: when a site was last told of our epoch, or asked for its."""

    # --- the token ----------------------------------------------------------------------------

    @property
    def next(self) -> NodeId | None:
        """Whose turn it is, as far as we know: first(e), or whom the last ACK names (R6)."""
        if self.current is None:
            return None
        if self.ring.seen == self.current.start:
            return self.current.core[0]
        last = self.ring.acks.get(self.ring.seen)
        return last.next if last else None

    @property
    def holds_token(self) -> bool:
        """R6: whether we may issue the next number. Nothing else lets anybody issue one."""
        if self.phase is not Phase.MEMBER or self.next != self.me:
            return False
        return self.log.held == self.ring.seen

    @property
    def alone(self) -> bool:
        """A6: a group of one needs no frames."""
        return self.current is not None and len(self.current.core) == 1

    @property
    def ready(self) -> bool:
        """Whether a submission will be accepted."""
        return self.sending.queue.ready

    # --- the core, as the chooser sees it (``epochs.EpochCore``) ---------------------------------

    def extent(self) -> Extent:
        """How far the log reaches."""
        log = self.log
        return Extent(log.tail, log.held, self.delivered, log.floor)

    def aligned(self, config: EpochConfig) -> bool:
        """2.0: whether the log reaches the start with the right tag there."""
        log = self.log
        if config.start == 0:
            return True
        return log.held >= config.start >= log.floor and log.tag_at(config.start) == config.base

    def read(self, after: int, to: int, most: int) -> tuple[Entry, ...] | None:
        """Held entries after ``after``; None if they were let go."""
        return self.log.read(after, to, most)

    def bodies(self, entries: Iterable[Entry]) -> tuple[Data, ...]:
        """Every body that held entries name."""
        return self.log.bodies(tuple(entries))

    def enter(self, env: Env, phase: Phase, why: str) -> None:
        """Change the phase, and note it."""
        if phase is not self.phase:
            env.note("rbp F5", "phase", f"{self.phase} -> {phase} ({why})")
            self.phase = phase

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        current = self.current
        return {
            "phase": self.phase.value,
            "view": str(self.view) if self.view else "-",
            "memb": tuple(sorted(self.in_view)),
            "epoch": str(current.epoch) if current else "-",
            "core": current.core if current else (),
            "start": current.start if current else 0,
            "K": self.ring.seen,
            "held": self.log.held,
            "delivered": self.delivered,
            "floor": self.log.floor,
            "next": self.next,
            "under_way": len(self.sending.mine),
            "queued": len(self.sending.queue),
            "token_held": self.holds_token,
            **self.chooser.snapshot(),
        }

"""The variables of one processor, under the paper's names (dossier section 2.3).

Two ring records are kept apart: ``old``, the last *installed* ring, and ``new``, the ring being
formed. Most traps of this protocol come from sharing one record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from enum import StrEnum
from typing import Any

from ringcast.blocks.packing import Outbox
from ringcast.core.effects import Departure, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.machine import Machine
from ringcast.protocols.totem_single.config import Config
from ringcast.protocols.totem_single.hearing import Ears
from ringcast.protocols.totem_single.messages import (
    CommitToken,
    Entry,
    Join,
    Regular,
    RingId,
    Token,
)
from ringcast.protocols.totem_single.rider import Rider
from ringcast.protocols.totem_single.ring import Ring


class Phase(StrEnum):
    """The four states of F4.3."""

    OPERATIONAL = "Operational"
    GATHER = "Gather"
    COMMIT = "Commit"
    RECOVER = "Recover"


class Timer(StrEnum):
    """Every timer of the protocol."""

    TOKEN_RETRANSMIT = "token_retransmit"
    TOKEN_LOSS = "token_loss"
    JOIN = "join"
    CONSENSUS = "consensus"
    HOLD = "hold"
    ANNOUNCE = "announce"


class Cause(StrEnum):
    """Why a processor entered Gather; the trace says it, and an incident report starts with it."""

    START = "start"
    TOKEN_LOSS = "token-loss"
    TOKEN_LOSS_IN_GATHER = "no Commit token came"
    TOKEN_LOSS_IN_COMMIT = "Commit token lost"
    TOKEN_LOSS_IN_RECOVER = "token lost in Recover"
    FAILED_TO_RECEIVE = "failed to receive"
    FOREIGN = "foreign message"
    MEMBER_MOVED = "a member moved on"
    JOIN = "Join"
    SETS_CHANGED = "sets changed"
    CONSENSUS_TIMEOUT = "consensus-timeout"
    REPEATED = "repeated membership"
    LEFT = "a member leaves"


ANOTHER_LIFE = "a frame of a member's other life"
"""G38 ext: of one before it signed, or after it restarted; why such a frame is dropped."""

COUNTS_APART = 2
"""R92 ext: idle visits by which members of a ring differ: some find the token quiet a rotation
before the others do, and are a visit ahead in the present one besides."""

Sets = tuple[tuple[NodeId, ...], tuple[NodeId, ...]]
"""A pair (proc_set, fail_set) as it travels in a Join."""


class GatherState:
    """Membership, R33-R46: candidates and failed grow only, until the next install (R77)."""

    __slots__ = (
        "departures",
        "ears",
        "given_up",
        "max_ring_seq",
        "my_fail_set",
        "my_last",
        "my_proc_set",
        "shunned",
        "tried",
        "waiting",
    )

    def __init__(self, me: NodeId) -> None:
        self.my_proc_set: frozenset[NodeId] = frozenset((me,))
        self.my_fail_set: frozenset[NodeId] = frozenset()
        self.departures: dict[NodeId, Departure] = {}  # why each was put into my_fail_set
        self.my_last: dict[NodeId, Join] = {}
        self.max_ring_seq = 0
        self.tried: set[Sets] = set()
        self.given_up: set[Sets] = set()
        self.waiting = False  # consensus reached, the Commit token has not come yet (R44)
        self.ears = Ears(me)
        self.shunned: dict[NodeId, tuple[int, int]] = {}  # R95: until when, next interval

    @property
    def sets(self) -> Sets:
        """My two sets as they travel in a Join."""
        return tuple(sorted(self.my_proc_set)), tuple(sorted(self.my_fail_set))

    @property
    def candidates(self) -> tuple[NodeId, ...]:
        """P of R44: my_proc_set less my_fail_set, ascending, so the representative comes first."""
        return tuple(sorted(self.my_proc_set - self.my_fail_set))

    def begin_anew(self, memb: tuple[NodeId, ...], failed: frozenset[NodeId] = frozenset()) -> None:
        """R77, R68 ext: a ring was installed, here or elsewhere; only here the sets shrink."""
        self.my_proc_set = failed.union(memb)
        self.my_fail_set = failed
        self.my_last.clear()
        self.tried.clear()
        self.given_up.clear()

    def settle(self, memb: tuple[NodeId, ...]) -> None:
        """R77: it was installed here: its view has told who departed."""
        self.departures.clear()
        for q in memb:
            self.shunned.pop(q, None)


class TokenState:
    """The token, R10-R25 and R92: where it is, and what my visits saw."""

    __slots__ = (
        "answered",
        "heard_us",
        "held_token",
        "idle_visits",
        "last_aru_seen",
        "last_sent",
        "my_aru_count",
        "my_rotation_count",
        "my_token_seq",
        "seen_seqs",
        "token_away",
    )

    def __init__(self, miss_visits: int) -> None:
        self.my_token_seq = 0
        self.last_sent: tuple[NodeId, Token | CommitToken]  # the token as passed on, for R25
        self.token_away = False  # passed on, and nothing yet shows that it arrived (R23)
        self.heard_us = -1  # when a frame of my ring last set the token loss timer (R23)
        self.held_token: Token | None = None  # R92
        self.idle_visits = 0
        self.my_rotation_count = 0
        self.last_aru_seen = 0
        self.my_aru_count = 0
        self.seen_seqs: deque[int] = deque(maxlen=miss_visits + 1)
        self.answered: frozenset[int] = frozenset()  # R12 ext

    def restart(self) -> None:
        """R56: the visits of another ring say nothing about this one."""
        self.last_aru_seen = self.my_aru_count = 0
        self.seen_seqs.clear()
        self.answered = frozenset()


class FlowState:
    """Flow control (§4.4): the window, and my last visit of the token."""

    __slots__ = ("last_retrans", "last_token_seq", "last_visit_us", "window")

    def __init__(self, window_size: int) -> None:
        self.window = window_size
        self.last_token_seq = 0
        self.last_retrans = 0
        self.last_visit_us = 0

    def restart(self) -> None:
        """R56: on a new ring nothing was sent yet."""
        self.last_token_seq = self.last_retrans = 0


class RecoveryState:
    """Commit and Recover, R49-R64: what I signed, and the exchange of old-ring messages."""

    __slots__ = (
        "high_ring_delivered",
        "i_set_flg",
        "low_ring_aru",
        "my_deliver_memb",
        "my_install_seq",
        "my_received_flg",
        "my_retrans_flg_count",
        "my_signature",
        "my_trans_memb",
        "received_in",
        "retrans_message_queue",
    )

    def __init__(self, me: NodeId) -> None:
        self.my_signature: Entry | None = None  # my entry in the Commit token (R49)
        self.my_trans_memb: tuple[NodeId, ...] = (me,)
        self.my_deliver_memb: tuple[NodeId, ...] = (me,)
        self.my_received_flg = False
        self.received_in: RingId | None = None
        self.low_ring_aru = 0
        self.high_ring_delivered = 0
        self.my_retrans_flg_count = 0
        self.my_install_seq = 0
        self.i_set_flg = False
        self.retrans_message_queue: dict[int, Regular] = {}

    def restart(self) -> None:
        """R56: count the visits of this pass anew; what was exchanged stays (R58)."""
        self.my_retrans_flg_count = self.my_install_seq = 0
        self.i_set_flg = False
        self.retrans_message_queue = {}

    def settle(self) -> None:
        """R75: the exchange is over."""
        self.my_received_flg = False
        self.received_in = None
        self.retrans_message_queue = {}


class Processor(Machine):
    """The state of one processor, by phase. What a phase may do with it is in the phase's file."""

    def __init__(self, me: NodeId, config: Config, rider: Rider | None = None) -> None:
        super().__init__()
        self.me = me
        self.config = config
        self.boot = 0
        self.phase: Phase = Phase.GATHER
        self.rider = rider

        # Rings. my_ring_id is the ring of the last Commit token accepted, installed or not.
        start = RingId(0, me)
        self.my_ring_id = start
        self.old = Ring(me, start, {me: 0}, config.max_message)
        self.new = self.old
        self.my_new_memb: tuple[NodeId, ...] = (me,)

        self.gather = GatherState(me)
        self.token = TokenState(config.miss_visits)
        self.flow = FlowState(config.window_size)
        self.recovery = RecoveryState(me)
        self.new_message_queue: Outbox[Any] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        """By level; with a rider, by what that tells messages apart by."""
        self.ring_seen_alive = False  # R94: a regular broadcast since the last Announce timer

    @abstractmethod
    def enter_gather(self, env: Env, cause: Cause) -> None:
        """R33, F4.5: the way out of every phase."""

    @abstractmethod
    def merge_join(self, env: Env, join: Join) -> None:
        """R37-R40: take a Join into my sets, in a phase that does not gather."""

    def agrees(self, q: NodeId) -> bool:
        """The paper's consensus[q]: q has shown exactly my two sets."""
        if q == self.me:
            return True
        join = self.gather.my_last.get(q)
        return join is not None and (join.proc_set, join.fail_set) == self.gather.sets

    @property
    def my_memb(self) -> tuple[NodeId, ...]:
        """Members of the last installed ring."""
        return self.old.memb

    @property
    def ready(self) -> bool:
        """R79: whether a submission will be accepted."""
        return self.new_message_queue.ready

    @property
    def may_rest(self) -> bool:
        """R92: the ring has had nothing to do for so long that the token rests wherever it is."""
        return self.token.idle_visits > self.config.max_fast_rounds and self.config.hold_us > 0

    @property
    def may_rest_elsewhere(self) -> bool:
        """R92 ext: the others may have counted ``COUNTS_APART`` idle visits more than this one."""
        idle = self.token.idle_visits + COUNTS_APART
        return idle > self.config.max_fast_rounds and self.config.hold_us > 0

    def successor(self, memb: tuple[NodeId, ...]) -> NodeId:
        """R20: the next processor on the ring: ascending ids, wrapping."""
        return memb[(memb.index(self.me) + 1) % len(memb)]

    def blame(self, q: NodeId, reason: Reason, judged_by: str) -> None:
        """Why q will not be in the next view; what was judged first counts."""
        self.gather.departures.setdefault(q, Departure(q, reason, judged_by))

    def departed(self) -> tuple[Departure, ...]:
        """Those of the old ring that do not come along."""
        gone = [q for q in self.old.memb if q not in self.recovery.my_trans_memb]
        moved = {
            q: Departure(q, Reason.MOVED, "it comes from another ring")
            for q in gone
            if q in self.my_new_memb
        }
        known = moved | self.gather.departures
        what = "the Commit token: it is not on the new ring"
        return tuple(known.get(q, Departure(q, Reason.UNKNOWN, what)) for q in gone)

    def change_phase(self, env: Env, phase: Phase, rule: str, cause: str) -> None:
        """The one place where the phase changes, and says why."""
        env.note(rule, "phase", f"{self.phase} -> {phase} ({cause})")
        self.phase = phase

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "ring_id": str(self.my_ring_id),
            "old_ring_id": str(self.old.ring_id),
            "memb": self.my_memb,
            "new_memb": self.my_new_memb,
            "trans_memb": self.recovery.my_trans_memb,
            "deliver_memb": self.recovery.my_deliver_memb,
            "proc_set": tuple(sorted(self.gather.my_proc_set)),
            "fail_set": tuple(sorted(self.gather.my_fail_set)),
            "consensus": tuple(filter(self.agrees, sorted(self.gather.my_proc_set))),
            "last": tuple(sorted(self.gather.my_last)),
            "max_ring_seq": self.gather.max_ring_seq,
            "tried": len(self.gather.tried),
            "my_aru": self.old.my_aru,
            "my_high_delivered": self.old.my_high_delivered,
            "new_aru": self.new.my_aru,
            "my_token_seq": self.token.my_token_seq,
            "last_aru_seen": self.token.last_aru_seen,
            "my_aru_count": self.token.my_aru_count,
            "my_received_flg": self.recovery.my_received_flg,
            "my_rotation_count": self.token.my_rotation_count,
            "low_ring_aru": self.recovery.low_ring_aru,
            "high_ring_delivered": self.recovery.high_ring_delivered,
            "my_retrans_flg_count": self.recovery.my_retrans_flg_count,
            "my_install_seq": self.recovery.my_install_seq,
            "i_set_flg": self.recovery.i_set_flg,
            "to_retransmit": tuple(sorted(self.recovery.retrans_message_queue)),
            "last_token_seq": self.flow.last_token_seq,
            "last_retrans": self.flow.last_retrans,
            "queued": len(self.new_message_queue),
            "stored": sum(len(ring.store) for ring in {self.old, self.new}),
            "window": self.flow.window,
            "token_held": self.token.held_token is not None,
            "barred": self.gather.ears.barred_ids(),
        }

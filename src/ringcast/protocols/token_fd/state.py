"""The variables of one member, under the source's names where it has them."""

from __future__ import annotations

from abc import abstractmethod
from enum import StrEnum

from ringcast.blocks.packing import Assembler, Outbox
from ringcast.blocks.ring_detector import RingDetector
from ringcast.blocks.token_ring import FixedRing, TokenRing
from ringcast.core.effects import Effect
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.machine import Machine
from ringcast.core.owned import Heard, Owned
from ringcast.protocols.token_fd.config import Config
from ringcast.protocols.token_fd.messages import Body, Token
from ringcast.protocols.token_fd.order import DecidedOrder


class Phase(StrEnum):
    """What the detector thinks of the predecessor; it decides which tokens may be taken (TF-7)."""

    TRUSTING = "Trusting"
    SUSPECTING = "Suspecting"


class Timer(StrEnum):
    """Every timer of the protocol but the detector's."""

    HOLD = "hold"
    RESEND = "resend"
    REQUEST = "request"
    FETCH = "fetch"


class Processor(Machine):
    """The state that the rules share."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me = me
        self.config = config
        self.phase: Phase = Phase.TRUSTING
        members = config.members or (me,)
        self.ring = ring = FixedRing(members, me, config.faults)
        self.view = ViewId(config.epoch, ring.ids[0])
        # What follows from the settings, worked out once.
        self.group = config.group
        self.lag = config.lag
        self.history = config.history
        self.budget = config.frame_budget
        self.boot = 0
        self.boots: dict[NodeId, int] = {}
        """TF-42: the incarnation of each member that takes part."""
        detector = RingDetector(ring.predecessor, ring.after(1), config.patience, self.group)
        self.detector = Owned(detector, self.hear, book="token-fd")

        # The token.
        self.tokens: TokenRing[Token] = TokenRing(ring)
        self.sent: Token | None = None
        """The last one sent, or the dummy (TF-35)."""
        self.unheard: set[NodeId] = set()
        """TF-39: who is to get it again, unless it is known to have arrived."""
        self.asked: set[NodeId] = set()
        """TF-34: who wants the next one."""
        self.holding = False
        self.rests = False
        """TF-31: whether the token is idle, as far as we know; then it is longer on its way."""

        # What is ordered.
        self.order = DecidedOrder(ring.n)
        self.known = [0] * ring.n
        """TF-37: how far each member is known to have delivered."""
        self.moved_us = [0] * ring.n
        """When that last rose."""
        self.assembler = Assembler(config.max_message)
        self.ups: list[Effect] = []
        """Deliveries of this input. They go up when the token has left: nobody waits for them."""

        # Bodies: what is held of each member's frames, and where everybody stands with them.
        self.frames: list[dict[int, Body]] = [{} for _ in ring.ids]
        self.have = [0] * ring.n
        """TF-32: every frame of a member up to this number is here, or was."""
        self.held = [0] * (ring.n * ring.n)
        self.wanted = [0] * ring.n
        """TF-41: what had been heard of when the fetch timer was set."""
        self.fetching = False
        self.attempts = 0
        self.due: set[tuple[int, int]] = set()
        """Bodies that were asked for."""
        self.asked_after = -1
        """TF-38: the length of the order for which its continuation has been asked for."""
        self.gone: set[NodeId] = set()
        """TF-38: members that do not keep what we lack now."""
        self.queue: Outbox[Level] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )

    @abstractmethod
    def hear(self, env: Env, said: Heard) -> None:
        """The detector has changed its mind."""

    @property
    def place(self) -> int:
        """Where on the ring this member is."""
        return self.ring.me

    @property
    def suspecting(self) -> bool:
        """Whether the predecessor is suspected."""
        return self.phase is Phase.SUSPECTING

    @property
    def ready(self) -> bool:
        """Whether a submission will be accepted."""
        return self.queue.ready

    @property
    def heard_of(self) -> list[int]:
        """How many frames of each member somebody is known to hold."""
        n = self.ring.n
        return [max(self.held[place::n]) for place in range(n)]

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        order = self.order
        return {
            "phase": self.phase.value,
            "view": str(self.view),
            "memb": self.ring.ids,
            "hop": self.tokens.last_hop,
            "votes": self.sent.votes if self.sent else 0,
            "decided": order.length,
            "delivered": order.delivered,
            "told": sum(self.sent.adeliv[1::2]) if self.sent else 0,
            "known": tuple(self.known),
            "open": sum(self.heard_of) - order.length,
            "kept": sum(map(len, self.frames)),
            "queued": len(self.queue),
            "token_held": self.holding,
            "suspect_us": self.detector.machine.suspect_us,
            "mistakes": self.detector.machine.mistakes,
        }

"""The ring detector R: each member watches its predecessor on a ring, and nobody else.

Complete: a predecessor that crashed is suspected for good. Accurate in the end: the time of
silence that makes a suspicion grows with every mistake, so once delays are bounded a correct
predecessor is no longer suspected. n frames a period, whatever n is.

Rules: TF-1, TF-2.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Discard, Impossible, Machine, Table


class Phase(StrEnum):
    """What is thought of the predecessor."""

    TRUSTING = "Trusting"
    SUSPECTING = "Suspecting"


class Timer(StrEnum):
    """The period of heartbeats, and the patience with the predecessor's."""

    BEAT = "ring detector beat"
    WATCH = "ring detector watch"


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=40, gc=False):
    """The sender lives, and takes part in this group."""

    group: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0


class Suspicion(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the mind has changed about the predecessor."""

    suspected: bool


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the detector."""

    beat_us: int
    suspect_us: int
    """Silence that makes a suspicion, to begin with."""
    grow_us: int
    """How much longer it must be after each mistake …"""
    most_us: int
    """… up to this."""


class RingDetector(Machine):
    """One member's eye on its predecessor; it sends heartbeats to its successor."""

    table: ClassVar[Table]

    def __init__(
        self, predecessor: NodeId, successor: NodeId, patience: Patience, group: int = 0
    ) -> None:
        super().__init__()
        self._alive = Alive(group)
        self.phase: Phase = Phase.TRUSTING
        self.predecessor = predecessor
        self.patience = patience
        self.suspect_us = patience.suspect_us
        self.mistakes = 0
        self._successor = successor
        self._heard_us = -1

    @property
    def suspected(self) -> bool:
        """Whether the predecessor is suspected now."""
        return self.phase is Phase.SUSPECTING

    @property
    def ready(self) -> bool:
        """A detector carries no messages."""
        return False

    def start(self, env: Env, event: Started) -> None:
        """TF-1: a first heartbeat, and from now on the predecessor is expected to send its own."""
        self.beat(env, event)
        env.set_timer(Timer.WATCH, self.suspect_us)

    def admit(self, env: Env, event: Received) -> bool:
        """TF-1: nobody but the predecessor reports here."""
        if event.src != self.predecessor:
            env.drop("TF-1", "a heartbeat that is not the predecessor's")
            return False
        return True

    def beat(self, env: Env, event: object) -> None:
        """TF-1: say to the successor, and to nobody else, that we live."""
        env.send(self._successor, self._alive)
        env.set_timer(Timer.BEAT, self.patience.beat_us)

    def on_alive(self, env: Env, event: Received) -> None:
        """A heartbeat is a frame like any other."""
        self.heard(env)

    def stale(self, now_us: int) -> bool:
        """Whether a frame that arrives now is news: the first of this instant."""
        return self.suspected or self._heard_us != now_us

    def heard(self, env: Env) -> None:
        """TF-1: any frame of the predecessor shows that it lives; a mistake makes us patient."""
        if self.suspected:
            self.phase = Phase.TRUSTING
            self.mistakes += 1
            longer_us = self.suspect_us + self.patience.grow_us
            self.suspect_us = min(longer_us, max(self.patience.most_us, self.suspect_us))
            env.up(Suspicion(False))
        elif not self.stale(env.now_us):
            return
        self._heard_us = env.now_us
        env.set_timer(Timer.WATCH, self.suspect_us)

    def on_watch(self, env: Env, event: TimerFired) -> None:
        """TF-1: it has been silent for too long."""
        self.phase = Phase.SUSPECTING
        env.up(Suspicion(True))

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "suspect_us": self.suspect_us,
            "mistakes": self.mistakes,
        }


NO_MESSAGES = Impossible("a detector carries no messages of applications")

RingDetector.table = Table(
    Phase,
    (Alive,),
    Timer,
    {
        (Phase.TRUSTING, Timer.WATCH): RingDetector.on_watch,
        (Phase.SUSPECTING, Timer.WATCH): Impossible("the timer is set by the next frame (TF-1)"),
        **{(phase, Alive): RingDetector.on_alive for phase in Phase},
        **{(phase, Timer.BEAT): RingDetector.beat for phase in Phase},
        **{(phase, Submitted): NO_MESSAGES for phase in Phase},
        **{(phase, Leaving): Discard("TF-1", "silence will tell") for phase in Phase},
    },
)

"""From the ring detector R to the detector ◇S2: two members that all agree to trust in the end.

Each member tells the others whenever it changes its mind about its predecessor. Whoever crashed is
suspected by all in the end, and two correct members by nobody, if n >= f(f+1)+1. A member's
opinions come one after another about one other, so the number of times it changed its mind says
all: even, it trusts; odd, it suspects. Members tell each other all the numbers they know, again
and again, and keep the larger: that is a FIFO reliable broadcast over links that lose frames, in
n numbers.

Source: IC/2003/39, section III.C, with the correction A1. Rules: TF-3 to TF-5.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from ringcast.blocks.ring_detector import Alive, Patience, RingDetector, Suspicion
from ringcast.blocks.ring_detector import Timer as DetectorTimer
from ringcast.blocks.token_ring import FixedRing, check_group
from ringcast.core.effects import Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, Seq
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Discard, Impossible, Machine, Table
from ringcast.core.owned import Heard, Owned

MAX_MEMBERS = 255


class Phase(StrEnum):
    """There is only one."""

    WATCHING = "Watching"


class Timer(StrEnum):
    """When to tell the others again."""

    TELL = "trusted pair tell"


class Opinions(msgspec.Struct, frozen=True, array_like=True, tag=41, gc=False):
    """How often each member changed its mind about its predecessor, as far as the sender knows."""

    changes: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MAX_MEMBERS)]


class Pair(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the two members that are trusted now; all others are suspected."""

    first: NodeId
    second: NodeId


def choose(correct: Collection[int], n: int, f: int) -> int | None:
    """TF-4: the place k whose member and the next one are trusted, or None if there is none.

    The first k after a member thought faulty from which f members in a row are thought correct,
    k itself among them, which the source forgets to ask (A1): a crashed k would be chosen.
    """
    if len(correct) == n:
        return 0
    for k in range(n):
        if (k - 1) % n not in correct and all((k + i) % n in correct for i in range(f)):
            return k
    return None


class TrustedPair(Machine):
    """One member's output of ◇S2."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, members: tuple[NodeId, ...], f: int, patience: Patience) -> None:
        super().__init__()
        check_group(members, f)
        self.phase: Phase = Phase.WATCHING
        self.ring = ring = FixedRing(members, me, f)
        self.patience = patience
        self.changes = [0] * ring.n
        self.place = 0
        detector = RingDetector(ring.predecessor, ring.after(1), patience)
        self.detector = Owned(detector, self.hear)

    @property
    def pair(self) -> Pair:
        """TF-4: the members trusted now; p_0 and p_1 to begin with."""
        ids = self.ring.ids
        return Pair(ids[self.place], ids[(self.place + 1) % len(ids)])

    @property
    def correct(self) -> frozenset[int]:
        """TF-3: places that the one after them does not think faulty."""
        n = self.ring.n
        return frozenset((i - 1) % n for i, changes in enumerate(self.changes) if not changes % 2)

    @property
    def ready(self) -> bool:
        """A detector carries no messages."""
        return False

    def start(self, env: Env, event: Started) -> None:
        """TF-3: all are thought correct to begin with."""
        self.detector.handle(env, event)
        env.set_timer(Timer.TELL, self.patience.beat_us)

    def admit(self, env: Env, event: Received) -> bool:
        """Only members have opinions, and all have as many."""
        message = event.message
        known = event.src in self.ring.places and event.src != self.ring.ids[self.ring.me]
        if not known or (type(message) is Opinions and len(message.changes) != self.ring.n):
            env.drop("TF-3", "opinions of another group")
            return False
        return True

    def hear(self, env: Env, said: Heard) -> None:
        """TF-3: the mind has changed about the predecessor: tell everybody."""
        assert isinstance(said, Up) and isinstance(said.what, Suspicion)
        self.changes[self.ring.me] += 1
        self.tell(env, said)
        self.judge(env)

    def tell(self, env: Env, event: object) -> None:
        """TF-3: all that is known, also of members that may not be able to say it any more."""
        env.broadcast(Opinions(tuple(self.changes)))
        env.set_timer(Timer.TELL, self.patience.beat_us)

    def on_opinions(self, env: Env, event: Received) -> None:
        """TF-3: of two states of the same mind, the later counts."""
        opinions = event.message
        assert isinstance(opinions, Opinions)
        mine = self.ring.me
        own = self.changes[mine]
        self.changes = list(map(max, self.changes, opinions.changes))
        self.changes[mine] = own  # nobody knows our mind better than we do
        self.judge(env)

    def judge(self, env: Env) -> None:
        """TF-4: choose again; while nobody can be chosen, the choice stands."""
        place = choose(self.correct, self.ring.n, self.ring.f)
        if place is not None and place != self.place:
            self.place = place
            env.note("TF-4", "pair", f"{self.pair.first} {self.pair.second}")
            env.up(self.pair)

    def pass_on(self, env: Env, event: Received | Started) -> None:
        """What is the detector's."""
        self.detector.handle(env, event)

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "correct": tuple(sorted(self.ring.ids[place] for place in self.correct)),
            "pair": (self.pair.first, self.pair.second),
            "suspected": self.detector.machine.suspected,
        }


MESSAGES = (Alive, Opinions)

TrustedPair.table = Table(
    Phase,
    MESSAGES,
    (*Timer, *DetectorTimer),
    {
        (Phase.WATCHING, Alive): TrustedPair.pass_on,
        (Phase.WATCHING, Opinions): TrustedPair.on_opinions,
        (Phase.WATCHING, Timer.TELL): TrustedPair.tell,
        (Phase.WATCHING, DetectorTimer.BEAT): TrustedPair.pass_on,
        (Phase.WATCHING, DetectorTimer.WATCH): TrustedPair.pass_on,
        (Phase.WATCHING, Submitted): Impossible("a detector carries no messages of applications"),
        (Phase.WATCHING, Leaving): Discard("TF-3", "silence will tell"),
    },
)

"""Consensus by a token that gathers votes, with the ring detector R and no other traffic.

The token carries an estimate; whoever takes it from its predecessor votes for the estimate, and
f+1 votes in a row decide. A token taken across a gap, past a suspected member, has lost its votes.
So two chains of votes cannot both be long enough, whatever the detector says; with an accurate
detector and n >= f(f+1)+1 members one of them is, in the end.

Links may lose, double and reorder frames: a ballot is sent again until its receivers have it, or
until the next one takes its place.

Source: IC/2003/39, section IV. Rules: TF-11 to TF-21; places and hops: token_ring.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from ringcast.blocks.ring_detector import Alive, Patience, RingDetector
from ringcast.blocks.ring_detector import Timer as DetectorTimer
from ringcast.blocks.token_ring import FixedRing, TokenRing, check_group
from ringcast.core.env import Env
from ringcast.core.ids import LIMIT, NodeId, Seq
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Discard, Impossible, Key, Machine, Table
from ringcast.core.owned import Heard, Owned

Hop = Annotated[int, msgspec.Meta(ge=-255, le=LIMIT)]


class Phase(StrEnum):
    """How far a member has come."""

    WAITING = "Waiting"
    """It has not proposed anything yet."""
    VOTING = "Voting"
    DECIDED = "Decided"


class Timer(StrEnum):
    """When to send the last ballot again."""

    RESEND = "token consensus resend"


class Ballot(msgspec.Struct, frozen=True, array_like=True, tag=42, gc=False):
    """TF-11: the token. Without an estimate it is a dummy, whose votes are 0."""

    hop: Hop
    estimate: bytes | None
    votes: Seq
    gap: Seq
    decided: bool


class BallotAck(msgspec.Struct, frozen=True, array_like=True, tag=43, gc=False):
    """The ballot of this hop has arrived and need not be sent again."""

    hop: Hop


class Decided(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the value."""

    value: bytes


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What all members must have in common, and how often to send again."""

    members: tuple[NodeId, ...]
    f: int
    gap_threshold: int = 0
    vote_threshold: int | None = None
    """TF-12: the least that is safe, if not given."""
    resend_us: int = 20_000

    @property
    def votes_needed(self) -> int:
        """TF-12: votes that decide."""
        least = (self.gap_threshold + 1) * self.f + 1
        return least if self.vote_threshold is None else self.vote_threshold

    def check(self) -> None:
        """TF-12: ValueError if agreement or termination would not be certain."""
        check_group(self.members, self.f)
        least = (self.gap_threshold + 1) * self.f + 1
        if self.votes_needed < least:
            raise ValueError(
                f"vote_threshold = {self.votes_needed} is too low for f = {self.f} and "
                f"gap_threshold = {self.gap_threshold}: members could decide differently; "
                f"(gap_threshold + 1) * f + 1 = {least} is safe"
            )
        if self.votes_needed > len(self.members):
            raise ValueError(
                f"vote_threshold = {self.votes_needed} is more than the {len(self.members)} "
                "members, so nothing would ever be decided"
            )


def count(token: Ballot, distance: int, n: int, gap_threshold: int) -> tuple[int, int]:
    """TF-16: votes and gap of the ballot that ``token`` becomes after ``distance`` hops.

    The gap is counted before the test, as in the prose (A4), and the tests are at most and at
    least (A5).
    """
    gap = token.gap + distance - 1
    if gap <= gap_threshold and gap + token.votes < n:
        return token.votes + 1, gap
    return 1, 0


class TokenConsensus(Machine):
    """One member, for one decision."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, terms: Terms, patience: Patience) -> None:
        super().__init__()
        terms.check()
        self.phase: Phase = Phase.WAITING
        self.terms = terms
        self.ring = ring = FixedRing(terms.members, me, terms.f)
        self.detector = Owned(
            RingDetector(ring.predecessor, ring.after(1), patience), self.on_suspicion
        )
        self.tokens: TokenRing[Ballot] = TokenRing(ring)
        self.estimate: bytes | None = None
        self.sent: Ballot | None = None
        self.halted = False
        self._unheard: set[NodeId] = set()

    @property
    def ready(self) -> bool:
        """Values come through ``propose``."""
        return False

    def start(self, env: Env, event: Started) -> None:
        """TF-14: the last f members send dummies, which replace those that crashed before."""
        self.detector.handle(env, event)
        ring = self.ring
        if ring.me >= ring.n - ring.f:
            # A2: the destinations are those of TF-6, without the members before p_1.
            receivers = [ring.ids[i] for i in range(1, ring.me + ring.f + 2 - ring.n)]
            self._send(env, Ballot(ring.me - ring.n, None, 0, 0, False), receivers)

    def propose(self, env: Env, value: bytes) -> None:
        """TF-13: have an estimate; the first member's is the first ballot, and its turn."""
        if self.phase is not Phase.WAITING:
            return  # the decision came first, or this is a second proposal
        self.phase, self.estimate = Phase.VOTING, value
        if self.ring.me == 0:
            self.tokens.last_hop = 0  # A3: or else it would wait for tokens that never come
            if self.terms.votes_needed == 1:
                self._decide(env, value)  # A20: where nobody fails, the first vote is enough
            self._send(env, Ballot(0, value, 1, 0, self.phase is Phase.DECIDED))
        self._go_on(env)

    def admit(self, env: Env, event: Received) -> bool:
        """Members only, and a hop of the sender's own."""
        message, place = event.message, self.ring.places.get(event.src)
        if place is None or place == self.ring.me:
            env.drop("TF-11", "not from another member")
            return False
        if type(message) is Ballot and message.hop % self.ring.n != place:
            env.drop("TF-11", "a hop that is not the sender's")
            return False
        if event.src == self.ring.predecessor and type(message) is not Alive:
            self.detector.call(env, self.detector.machine.heard)
        return True

    def on_ballot(self, env: Env, event: Received) -> None:
        """TF-9, TF-20: learn a decision from any ballot, old or new, then see if it is to take."""
        ballot = event.message
        assert isinstance(ballot, Ballot)
        env.send(event.src, BallotAck(ballot.hop))
        if ballot.decided and ballot.estimate is not None:
            self._decide(env, ballot.estimate)
        self.tokens.offer(self.ring.places[event.src], ballot)
        self._go_on(env)

    def on_suspicion(self, env: Env, said: Heard) -> None:
        """TF-7: what waits may be taken the moment suspicion starts, and while it lasts."""
        self._go_on(env)

    def _go_on(self, env: Env) -> None:
        """TF-15 to TF-18: take a ballot if there is one to take."""
        if self.phase is Phase.WAITING or self.halted:
            return
        found = self.tokens.eligible(self.detector.machine.suspected)
        if found is None:
            return
        distance, ballot = found
        hop = self.tokens.take(distance, ballot)
        votes, gap = count(ballot, distance, self.ring.n, self.terms.gap_threshold)
        if self.phase is Phase.VOTING:
            if ballot.estimate is not None:  # TF-15: a dummy's place is taken by our own
                self.estimate = ballot.estimate
            assert self.estimate is not None
            if votes >= self.terms.votes_needed:
                self._decide(env, self.estimate)  # TF-17
        decided = self.phase is Phase.DECIDED
        self._send(env, Ballot(hop, self.estimate, votes, gap, decided))  # TF-18, TF-19
        self.halted = decided  # TF-21: one correct member of the next f+1 repeats it

    def _decide(self, env: Env, value: bytes) -> None:
        if self.phase is not Phase.DECIDED:
            self.phase, self.estimate = Phase.DECIDED, value
            env.note("TF-17", "decide", value.decode(errors="replace"))
            env.up(Decided(value))

    def _send(self, env: Env, ballot: Ballot, receivers: list[NodeId] | None = None) -> None:
        """TF-6: to the f+1 after us, again and again until they have it or there is a newer one."""
        self.sent = ballot
        after = self.ring.successors if receivers is None else receivers
        self._unheard = {node for node in after if node != self.ring.ids[self.ring.me]}
        self.on_resend(env, ballot)

    def on_resend(self, env: Env, event: object) -> None:
        """TF-39: links lose frames."""
        assert self.sent is not None
        for node in sorted(self._unheard):
            env.send(node, self.sent)
        if self._unheard:
            env.set_timer(Timer.RESEND, self.terms.resend_us)

    def on_ack(self, env: Env, event: Received) -> None:
        """TF-39: this one has it."""
        ack = event.message
        assert isinstance(ack, BallotAck)
        if self.sent is not None and ack.hop == self.sent.hop:
            self._unheard.discard(event.src)
            if not self._unheard:
                env.cancel_timer(Timer.RESEND)

    def pass_on(self, env: Env, event: Received | TimerFired) -> None:
        """What is the detector's."""
        self.detector.handle(env, event)

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "hop": self.tokens.last_hop,
            "estimate": self.estimate.decode(errors="replace") if self.estimate else "-",
            "votes": self.sent.votes if self.sent else 0,
            "suspected": self.detector.machine.suspected,
        }


MESSAGES = (Ballot, BallotAck, Alive)

EVERYWHERE: dict[Key, Cell] = {
    Ballot: TokenConsensus.on_ballot,
    BallotAck: TokenConsensus.on_ack,
    Alive: TokenConsensus.pass_on,
    Timer.RESEND: TokenConsensus.on_resend,
    DetectorTimer.BEAT: TokenConsensus.pass_on,
    DetectorTimer.WATCH: TokenConsensus.pass_on,
    Submitted: Impossible("values come through propose, not as submissions"),
    Leaving: Discard("TF-21", "silence will tell"),
}
"""Phases differ in what a handler makes of an input, not in which handler it is."""

TokenConsensus.table = Table(
    Phase,
    MESSAGES,
    (*Timer, *DetectorTimer),
    {(phase, key): cell for phase in Phase for key, cell in EVERYWHERE.items()},
)

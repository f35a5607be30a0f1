"""The machine: start, admission of frames, and the table of phases and inputs (F4.3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from ringcast.core.effects import InstallView
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Cell, Discard, Impossible, Key, Table
from ringcast.protocols.totem_single import (
    commit,
    gather,
    leave,
    operational,
    recovery,
    sending,
    tokens,
)
from ringcast.protocols.totem_single.commit import RING_SEQ
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Join,
    Leave,
    Regular,
    RingId,
    Token,
    malformed,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import Cause, Phase, Processor, Timer

MESSAGES = (Regular, Encapsulated, Token, Join, CommitToken, Announce, Leave)

RIDDEN = frozenset((Token, CommitToken, Join))
"""Frames that carry a ride (rider.py)."""

OPERATIONAL, GATHER, COMMIT, RECOVER = Phase
NO_JOIN = Impossible("no Join is sent here, so its timers are not set (totem R27, R53)")
NO_HOLD = Impossible("the token rests only in Operational (totem R92, R93)")
NO_ANNOUNCE = Impossible("only an installed ring announces itself (totem R94)")

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    (OPERATIONAL, Submitted): operational.on_submitted,
    (OPERATIONAL, Regular): operational.on_regular,
    (OPERATIONAL, Encapsulated): operational.on_encapsulated,
    (OPERATIONAL, Token): operational.on_token,
    (OPERATIONAL, Join): operational.on_join,
    (OPERATIONAL, CommitToken): Discard("totem R27", "a Commit token in Operational"),
    (OPERATIONAL, Announce): operational.on_announce,
    (OPERATIONAL, Timer.TOKEN_RETRANSMIT): tokens.on_token_retransmit,
    (OPERATIONAL, Timer.TOKEN_LOSS): operational.on_token_loss,
    (OPERATIONAL, Timer.JOIN): NO_JOIN,
    (OPERATIONAL, Timer.CONSENSUS): NO_JOIN,
    (OPERATIONAL, Timer.HOLD): operational.on_hold,
    (OPERATIONAL, Timer.ANNOUNCE): operational.on_announce_timer,
    (GATHER, Submitted): sending.on_submitted,
    (GATHER, Regular): gather.on_regular,
    (GATHER, Encapsulated): Discard("totem R35", "another ring's recovery"),
    (GATHER, Token): Discard("totem R34", "a regular token in Gather"),
    (GATHER, Join): gather.on_join,
    (GATHER, CommitToken): gather.on_commit_token,
    (GATHER, Announce): gather.on_announce,
    (GATHER, Timer.TOKEN_RETRANSMIT): Impossible("no token was sent in Gather (totem R33)"),
    (GATHER, Timer.TOKEN_LOSS): gather.on_token_loss,
    (GATHER, Timer.JOIN): gather.on_join_timer,
    (GATHER, Timer.CONSENSUS): gather.on_consensus_timer,
    (GATHER, Timer.HOLD): NO_HOLD,
    (GATHER, Timer.ANNOUNCE): NO_ANNOUNCE,
    (COMMIT, Submitted): sending.on_submitted,
    (COMMIT, Regular): commit.on_regular,
    (COMMIT, Encapsulated): Discard("totem R50", "a foreign message while forming a ring"),
    (COMMIT, Token): Discard("totem R50", "a regular token in Commit"),
    (COMMIT, Join): recovery.on_join,
    (COMMIT, CommitToken): commit.on_commit_token,
    (COMMIT, Announce): Discard("totem R50", "an Announce while forming a ring"),
    (COMMIT, Timer.TOKEN_RETRANSMIT): tokens.on_token_retransmit,
    (COMMIT, Timer.TOKEN_LOSS): commit.on_token_loss,
    (COMMIT, Timer.JOIN): NO_JOIN,
    (COMMIT, Timer.CONSENSUS): NO_JOIN,
    (COMMIT, Timer.HOLD): NO_HOLD,
    (COMMIT, Timer.ANNOUNCE): NO_ANNOUNCE,
    (RECOVER, Submitted): sending.on_submitted,
    (RECOVER, Regular): recovery.on_regular,
    (RECOVER, Encapsulated): recovery.on_encapsulated,
    (RECOVER, Token): recovery.on_token,
    (RECOVER, Join): recovery.on_join,
    (RECOVER, CommitToken): recovery.on_commit_token,
    (RECOVER, Announce): Discard("totem R67", "an Announce while forming a ring"),
    (RECOVER, Timer.TOKEN_RETRANSMIT): tokens.on_token_retransmit,
    (RECOVER, Timer.TOKEN_LOSS): recovery.on_token_loss,
    (RECOVER, Timer.JOIN): NO_JOIN,
    (RECOVER, Timer.CONSENSUS): NO_JOIN,
    (RECOVER, Timer.HOLD): NO_HOLD,
    (RECOVER, Timer.ANNOUNCE): NO_ANNOUNCE,
    **{(phase, Leaving): leave.on_leaving for phase in Phase},
    **{(phase, Leave): leave.on_leave for phase in Phase},
}


class TotemSingle(Processor):
    """One processor of a Totem ring."""

    table: ClassVar[Table] = Table(Phase, MESSAGES, Timer, CELLS)

    def start(self, env: Env, event: Started) -> None:
        """R5, R6: a ring of one with a number never used before; then look for the others."""
        self.boot = event.boot
        ring_id = RingId(event.stable.get(RING_SEQ, 0) + 4, self.me)
        env.persist(RING_SEQ, ring_id.seq)
        self.my_ring_id = ring_id
        self.gather.max_ring_seq = ring_id.seq
        alone = {self.me: self.boot}
        self.old = self.new = Ring(
            self.me, ring_id, alone, self.config.max_message, rider=self.rider
        )
        env.install_view(InstallView(ring_id, (self.me,), False, ring_id, 0, None))
        self.enter_gather(env, Cause.START)

    def admit(self, env: Env, event: Received) -> bool:
        """R1, R2, R4: own frames, an impostor's, and malformed ones go no further."""
        message = event.message
        if event.src == self.me:
            self.refuse_own(env, event, copy="totem R1", twin="totem R2")
            return False
        if why := malformed(message, event.src):
            env.drop("totem R4", why)
            return False
        kind = type(message)
        if kind is Regular:
            return True
        if kind in RIDDEN and (why := self.bad_ride(message)):
            env.drop("totem R4", why)
            return False
        if kind is Join:
            assert isinstance(message, Join)
            if self.rider is not None:
                self.rider.join_received(env, message)
            gather.raise_ring_seq(self, env, message)  # R32
            if self.config.mutual:
                self.gather.ears.hear(event.src)
                self.gather.ears.learn(message, self.my_memb)
        return True

    def bad_ride(self, frame: Any) -> str | None:
        """R4: why the ride of a frame, or its lack, is not acceptable; the rider knows."""
        if self.rider is not None:
            return self.rider.malformed(frame)
        return "a ride on a ring without a rider" if frame.ride is not None else None

    def carry(self, env: Env, bodies: tuple[bytes, ...], sort: int) -> None:
        """What the owner of the rider has to say; it bounds the queue itself, and messages of
        different sorts share no frame."""
        self.new_message_queue.put(bodies, sort)
        if self.phase is OPERATIONAL:
            operational.serve(self, env)

    def carry_first(self, env: Env, body: bytes, sort: int) -> None:
        """The same of what must not wait for the messages of applications."""
        self.new_message_queue.put_first(body, sort)
        if self.phase is OPERATIONAL:
            operational.serve(self, env)

    def enter_gather(self, env: Env, cause: Cause) -> None:
        """R33; R69: whatever ring was being formed is abandoned."""
        recovery.abandon(self)
        gather.enter(self, env, cause)

    def merge_join(self, env: Env, join: Join) -> None:
        """R52, R68: take over the sets of a Join that ends an attempt."""
        gather.merge(self, env, join)

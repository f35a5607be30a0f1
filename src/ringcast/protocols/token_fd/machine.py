"""The machine: start, admission of frames, suspicion, and the table of phases and inputs."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from ringcast.blocks.ring_detector import Alive, Suspicion
from ringcast.blocks.ring_detector import Timer as DetectorTimer
from ringcast.core.effects import InstallView, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Impossible, Key, Table
from ringcast.core.owned import Heard
from ringcast.protocols.token_fd import arrivals, bodies, catchup, tokens
from ringcast.protocols.token_fd.messages import (
    MESSAGES,
    Body,
    Fetch,
    LogRep,
    LogReq,
    Token,
    TokenAck,
    TokenReq,
    malformed,
    oversize,
)
from ringcast.protocols.token_fd.state import Phase, Processor, Timer

EPOCH = "token_fd_epoch"
"""Stable storage: the last life of the group in which this member took part."""


class TokenFd(Processor):
    """One member of a group."""

    table: ClassVar[Table]

    def start(self, env: Env, event: Started) -> None:
        """TF-23, TF-35, TF-42: the one view there is; the first token, or a dummy, or neither."""
        config, ring = self.config, self.ring
        earlier = event.stable.get(EPOCH, 0)
        if earlier >= config.epoch:
            env.stop(
                f"member {self.me} took part in epoch {earlier} of this group before, and has "
                "lost what it knew: it stays out, and the others go on without it. To begin "
                f"anew, give all members epoch = {earlier + 1} or more in their settings "
                "(token-fd TF-42)"
            )
            return
        env.persist(EPOCH, config.epoch)
        self.boot = event.boot
        env.install_view(InstallView(self.view, ring.ids, False, self.view, 0, None))
        env.note("token-fd TF-5", "group", f"n={ring.n} f={ring.f}", data=(ring.n, ring.f))
        if ring.n > 1:
            self.detector.handle(env, event)
        if ring.me == 0:
            self.tokens.last_hop = 0  # A3: or else it would wait for tokens that never come
            tokens.pass_on(self, env, 0, 0, 1, ())
            arrivals.go_on(self, env)
        elif ring.me >= ring.n - ring.f:
            nothing = (0,) * ring.n
            hop = ring.me - ring.n
            dummy = Token(self.group, hop, hop, 0, (), nothing, (), nothing, nothing * ring.n)
            self.sent = dummy
            if config.copies:  # A2: the destinations of TF-6 from p_1 on
                self.unheard = set(ring.ids[1 : ring.me + ring.f + 2 - ring.n])
                tokens.on_resend(self, env, TimerFired(Timer.RESEND))

    @property
    def blocked(self) -> str:
        """TF-38: whether it waits for members that may still keep what it missed."""
        return catchup.waiting(self)

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of the other members of this group, in the life in which they take part."""
        message, src = event.message, event.src
        if src == self.me:
            self.refuse_own(env, event, copy="token-fd TF-11", twin="token-fd TF-42")
            return False
        place = self.ring.places.get(src)
        if place is None or getattr(message, "group", self.group) != self.group:
            env.drop("token-fd TF-11", "a frame of another group")
            return False
        if self.boots.setdefault(src, event.boot) != event.boot:
            env.drop("token-fd TF-42", "a member that has lost its memory")
            return False
        if why := malformed(message, self.ring.n, place):
            env.drop("token-fd TF-11", why)
            return False
        if oversize(message, self.config.max_packet):
            env.drop("token-fd TF-38", "a body larger than max_packet")
            return False
        if src == self.ring.predecessor and type(message) is not Alive:
            detector = self.detector
            if detector.machine.stale(env.now_us):
                detector.call(env, detector.machine.heard)
        return True

    def hear(self, env: Env, said: Heard) -> None:
        """TF-7: what waits may be taken the moment suspicion starts; TF-34: or is asked for."""
        assert isinstance(said, Up) and isinstance(said.what, Suspicion)
        suspected = said.what.suspected
        self.phase = Phase.SUSPECTING if suspected else Phase.TRUSTING
        env.note("token-fd TF-1", "suspect" if suspected else "trust", f"{self.ring.predecessor}")
        if not suspected:
            env.cancel_timer(Timer.REQUEST)
            return
        tokens.request(self, env)
        arrivals.go_on(self, env)

    def pass_on(self, env: Env, event: Received | TimerFired) -> None:
        """What is the detector's."""
        self.detector.handle(env, event)


EVERYWHERE: dict[Key, Cell] = {
    Submitted: arrivals.on_submitted,
    Leaving: arrivals.on_leaving,
    Body: arrivals.on_body,
    Token: arrivals.on_token,
    TokenReq: tokens.on_token_req,
    TokenAck: tokens.on_ack,
    Fetch: bodies.on_fetch,
    LogReq: catchup.on_log_req,
    LogRep: arrivals.on_log_rep,
    Alive: TokenFd.pass_on,
    Timer.HOLD: arrivals.on_hold,
    Timer.RESEND: tokens.on_resend,
    Timer.FETCH: arrivals.on_fetch_timer,
    DetectorTimer.BEAT: TokenFd.pass_on,
}

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **{(phase, key): cell for phase in Phase for key, cell in EVERYWHERE.items()},
    (Phase.TRUSTING, Timer.REQUEST): Impossible("trust cancels the timer (token-fd TF-34)"),
    (Phase.SUSPECTING, Timer.REQUEST): tokens.on_request_timer,
    (Phase.TRUSTING, DetectorTimer.WATCH): TokenFd.pass_on,
    (Phase.SUSPECTING, DetectorTimer.WATCH): Impossible(
        "the next frame of the predecessor sets the timer, and ends the suspicion (token-fd TF-1)"
    ),
}

TokenFd.table = Table(Phase, MESSAGES, (*Timer, *DetectorTimer), CELLS)

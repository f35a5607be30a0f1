"""The machine: start, admission of frames, and the table of phases and inputs."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Cell, Discard, Impossible, Key, Table
from ringcast.protocols.counter import (
    commit,
    epoch,
    losses,
    membership,
    recovery,
    reformation,
    sending,
    tokens,
)
from ringcast.protocols.counter.messages import (
    MESSAGES,
    Ackd,
    Acpt,
    Ask,
    Fetch,
    Join,
    Leave,
    Msg,
    Nack,
    Newl,
    Prep,
    Prom,
    Req,
    Stranger,
    Token,
    Told,
    malformed,
)
from ringcast.protocols.counter.reach import out_of_reach
from ringcast.protocols.counter.state import LIVES, Phase, Processor, Timer

OF_MEMBERS = (Token, Msg, Req, Prom)
"""Frames with which a processor acts as the member it is."""

EPOCH = "counter_epoch"
"""Stable storage: 1 since this processor first took part."""


class CounterBased(Processor):
    """One processor of a group."""

    table: ClassVar[Table]

    @property
    def blocked(self) -> str:
        """CB-38: a list is a majority; CB-42: so is a new beginning."""
        if self.phase is Phase.MEMBER:
            return ""
        listed, least = self.config.members, self.config.majority
        here = {self.me, *listed}
        if self.phase is Phase.OUT:
            here = {*self.here} or here
        elif self.phase is Phase.FROZEN and (promised := self.reform.promised):
            here = {self.me, promised.node, *self.reform.proms}
        if len(here) >= least:
            return ""
        unheard = ", ".join(str(node) for node in listed if node not in here)
        return f"members here: {len(here)}, majority: {least}; waiting for some of {unheard}"

    def start(self, env: Env, event: Started) -> None:
        """CB-5: all begin as members of one list, and the first of them with a virtual token;
        CB-42: one that comes back remembers nothing, and asks to be taken in."""
        self.boot = event.boot
        stable = event.stable
        if EPOCH in stable:
            self.phase = Phase.OUT
            self.ring_no = stable.get(commit.VIEW_NO, 1)
            last = self.ring_no // membership.LISTS
            self.reform.stored = max(last, stable.get(reformation.PROMISED, 0))
            self.reform.spent = stable.get(reformation.VOTED, 0)
            env.note("counter CB-42", "phase", "Out (restarted)")
            recovery.go_out(self, env)
            return
        env.persist(EPOCH, 1)
        commit.install(self, env, self.list)
        first = reformation.first_token(self)
        if first.n == self.me:
            tokens.hear(self, env, first)
        else:
            tokens.listen(self, env, first)

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of the others of this group; CB-42: of their latest incarnation."""
        message, src = event.message, event.src
        if src == self.me:
            self.refuse_own(env, event, copy="counter CB-8", twin="counter CB-42")
            return False
        if src not in self.members or getattr(message, "group", self.group) != self.group:
            env.drop("counter CB-8", "a frame of another group")
            return False
        if why := malformed(message, self.members):
            env.drop("counter CB-8", why)
            return False
        if out_of_reach(self, message):
            env.drop("counter CB-37", "numbers beyond all that can follow")
            return False
        if type(message) is Prom and (message.token is None or message.token.epoch > self.epoch):
            return True  # it knows that it remembers nothing, or more than our list does
        acts = type(message) in OF_MEMBERS
        if (acts or type(message) is Prep) and not self.same(src, event.boot):
            env.send(src, Stranger(self.group, event.boot))  # perhaps it does not know
            if acts:
                env.drop("counter CB-42", "a member that has lost its memory")
                return False
        return True

    def same(self, src: NodeId, boot: int) -> bool:
        """CB-42: whether this is the incarnation that is a member, if one is. Of those that began
        with the group it is the one we heard first."""
        life = self.list.lives.get(src)
        if life is None:
            return True
        return (self.boots.setdefault(src, boot) if not life else life // LIVES) == boot

    def enter(self, env: Env, phase: Phase, why: str) -> None:
        """Change the phase, and note it."""
        if phase is not self.phase:
            env.note("counter CB-37", "phase", f"{self.phase} -> {phase} ({why})")
            self.phase = phase


NO_TOKEN = Impossible("who is no member has no token, and watches over none (counter CB-41)")
HALTED = Impossible("a promise cancels the timers of the token (counter CB-37)")

SHARED: dict[Key, Cell] = {
    Submitted: sending.on_submitted,
    Leaving: membership.on_leaving,
    Msg: losses.on_msg,
    Req: losses.on_req,
    Join: membership.on_join,
    Leave: membership.on_leave,
    Prep: reformation.on_prep,
    Prom: reformation.on_prom,
    Nack: reformation.on_nack,
    Acpt: reformation.on_acpt,
    Ackd: reformation.on_ackd,
    Newl: epoch.on_newl,
    Ask: epoch.on_ask,
    Fetch: recovery.on_fetch,
    Stranger: recovery.on_stranger,
    Told: Discard("counter CB-42", "an answer to nothing"),
    Timer.REQUEST: losses.on_request_timer,
    Timer.ANSWER: losses.on_answer_timer,
    Timer.REFORM: reformation.on_reform_timer,
    Timer.LEAVE: membership.on_leave_timer,
    Timer.JOIN: Impossible("a member does not ask to be one (counter CB-31)"),
}

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **{(Phase.MEMBER, key): cell for key, cell in SHARED.items()},
    (Phase.MEMBER, Token): tokens.on_token,
    (Phase.MEMBER, Timer.OWNER): tokens.on_owner_timer,
    (Phase.MEMBER, Timer.MONITOR): tokens.on_monitor,
    (Phase.MEMBER, Timer.SILENCE): tokens.on_silence,
    (Phase.MEMBER, Timer.REFORM): Impossible("a decision ends the wait for it (counter CB-38)"),
    **{(Phase.FROZEN, key): cell for key, cell in SHARED.items()},
    (Phase.FROZEN, Token): tokens.on_token_frozen,
    (Phase.FROZEN, Timer.OWNER): HALTED,
    (Phase.FROZEN, Timer.MONITOR): HALTED,
    (Phase.FROZEN, Timer.SILENCE): HALTED,
    **{(Phase.OUT, key): cell for key, cell in SHARED.items()},
    (Phase.OUT, Token): recovery.on_token,
    (Phase.OUT, Msg): Discard("counter CB-41", "a message for members"),
    (Phase.OUT, Req): Discard("counter CB-41", "a request for members"),
    (Phase.OUT, Join): recovery.on_join,
    (Phase.OUT, Leave): Discard("counter CB-41", "a farewell to members"),
    (Phase.OUT, Timer.LEAVE): Impossible("who leaves and is excluded goes (counter CB-41)"),
    (Phase.OUT, Fetch): recovery.on_fetch,
    (Phase.OUT, Told): recovery.on_told,
    (Phase.OUT, Stranger): Discard("counter CB-42", "news that are known"),
    (Phase.OUT, Ask): Discard("counter CB-41", "a question for members"),
    (Phase.OUT, Timer.JOIN): recovery.on_join_timer,
    **{
        (Phase.OUT, timer): NO_TOKEN
        for timer in (Timer.OWNER, Timer.MONITOR, Timer.SILENCE, Timer.REQUEST, Timer.ANSWER)
    },
}

CounterBased.table = Table(Phase, MESSAGES, Timer, CELLS)

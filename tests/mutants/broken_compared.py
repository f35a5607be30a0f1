"""Mutants of the machines that are there to be compared."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.protocols.compared.centralised import Centralised
from ringcast.protocols.compared.fast_message import FastMessage
from ringcast.protocols.compared.member import Member, Phase
from ringcast.protocols.compared.messages import BatchToken, FastToken, Nack
from ringcast.protocols.compared.optimistic import Optimistic
from ringcast.protocols.compared.two_phase import RANK_BITS, TwoPhase


@mutant("centralised", "D9", "total-order", "fifo", "agreement")
def skips_a_place(patch: MonkeyPatch) -> None:
    """Delivers the next message that is here, though one before it is missing."""
    whole = Centralised.deliver_ready

    def deliver_ready(self: Centralised, env: Env) -> None:
        whole(self, env)
        ready = [seq for seq, key in self.order.items() if key in self.data]
        if self.me != self.site and ready and min(ready) > self.delivered + 1:
            self.delivered = min(ready) - 1
            whole(self, env)

    patch.setattr(Centralised, "deliver_ready", deliver_ready)


@mutant("centralised", "progress")
def the_site_answers_nobody(patch: MonkeyPatch) -> None:
    """Does not send again what a member asks for."""
    patch.setitem(Centralised.table.rows[Phase.UP], Nack, lambda self, env, event: None)


@mutant("two-phase", "total-order", "D9", "no-crash", "D12", "causal")
def delivers_what_is_final(patch: MonkeyPatch) -> None:
    """Delivers a message as soon as its priority is final, whatever may still precede it."""

    def conclude(self: TwoPhase, env: Env, sender: int, k: int, priority: int) -> None:
        key = (sender, k)
        if key not in self.data or k <= self.done[sender]:
            return
        self.clock = max(self.clock, priority >> RANK_BITS)
        self.ended[sender] = max(self.ended[sender], k)
        self.priority.pop(key, None)
        self.hand_up(env, priority, self.data.pop(key))

    patch.setattr(TwoPhase, "conclude", conclude)


@mutant("two-phase", "total-order", "D9", "D12", "D2", "causal", "no-crash")
def priorities_from_a_clock_of_its_own(patch: MonkeyPatch) -> None:
    """Proposes priorities that may be below final ones that it has seen."""
    whole = TwoPhase.conclude

    def conclude(self: TwoPhase, env: Env, sender: int, k: int, priority: int) -> None:
        clock = self.clock
        whole(self, env, sender, k, priority)
        self.clock = clock

    patch.setattr(TwoPhase, "conclude", conclude)


@mutant("optimistic", "rollback", "no-crash")
def never_undoes(patch: MonkeyPatch) -> None:
    """Leaves tentative deliveries in the order in which they came."""

    def undo(self: Optimistic, env: Env, kept: int) -> list[Any]:
        undone = [self.tentative.pop() for _ in range(len(self.tentative) - kept)]
        return undone[::-1]

    patch.setattr(Optimistic, "undo", undo)


@mutant("optimistic", "held", "no-crash", "D9", "total-order")
def says_it_has_what_is_listed(patch: MonkeyPatch) -> None:
    """Says of everything that is listed that it has it."""
    whole = Optimistic.next_token

    def next_token(self: Optimistic, env: Env, token: BatchToken) -> BatchToken:
        found = whole(self, env, token)
        have = list(found.have)
        have[self.place] = found.base + len(found.order) // 2
        return replace(found, have=tuple(have))

    patch.setattr(Optimistic, "next_token", next_token)


@mutant("fast-message", "held")
def delivers_what_it_has(patch: MonkeyPatch) -> None:
    """Delivers a message as soon as it has all before it: agreed, and not safe."""
    whole = FastMessage.look

    def look(self: FastMessage, env: Env, token: FastToken) -> None:
        mine = max(self.aru, min(token.have))
        whole(self, env, replace(token, have=(mine,) * len(token.have)))

    patch.setattr(FastMessage, "look", look)


@mutant("fast-message", "progress", "no-crash")
def nobody_sends_again(patch: MonkeyPatch) -> None:
    """Lets the token ask in vain."""
    whole = FastMessage.own

    def own(self: FastMessage, env: Env, token: FastToken) -> FastToken:
        return whole(self, env, replace(token, rtr=()))

    patch.setattr(FastMessage, "own", own)


@mutant("centralised", "fifo", "integrity", "content", "D1-own", "validity", "progress", "D9")
def numbers_its_messages_twice(patch: MonkeyPatch) -> None:
    """Gives every tenth message the number of the one before it."""
    whole = Member.next_frame

    def next_frame(self: Member, env: Env, seq: int = 0) -> Any:
        if self.last_k % 10 == 9:
            self.last_k -= 1
        return whole(self, env, seq)

    patch.setattr(Centralised, "next_frame", next_frame)

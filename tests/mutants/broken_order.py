"""Mutants of ordering and delivery: the token, flow of messages, queues, fragments."""

from __future__ import annotations

from typing import Any

from mutant import after, handle, mutant
from pytest import MonkeyPatch

from ringcast.blocks.packing import Outbox
from ringcast.core.effects import InstallView
from ringcast.core.env import Env
from ringcast.core.inputs import TimerFired
from ringcast.protocols.totem_single import delivery, gather, install, sending, tokens
from ringcast.protocols.totem_single.messages import CommitToken, Regular, RingId, Token
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import Phase, Processor, Timer


@mutant("R18 G3", "D10")
def safe_after_one_rotation(patch: MonkeyPatch) -> None:
    """Takes a message for safe when the token's aru covers it once, not twice."""

    def spoil(passed_on: Token | None, p: Processor, env: Env, ring: Ring, *rest: Any) -> Any:
        if passed_on is not None and p.phase is Phase.OPERATIONAL:
            ring.safe_bound = max(ring.safe_bound, passed_on.aru)
        return passed_on

    after(patch, tokens, "visit", spoil)


@mutant("R24", "D10", "D9")
def safe_as_agreed(patch: MonkeyPatch) -> None:
    """Delivers safe messages like agreed ones."""

    def deliver_ready(env: Env, ring: Ring) -> None:
        while (message := ring.store.get(ring.my_high_delivered + 1)) is not None:
            if type(message) is Regular:
                delivery.upcall(env, ring, ring.ring_id, message)
            ring.my_high_delivered += 1

    patch.setattr(delivery, "deliver_ready", deliver_ready)


@mutant("R24", "D7", "D9", "fifo", "total-order")
def safe_does_not_block(patch: MonkeyPatch) -> None:
    """Lets agreed messages overtake a safe one that is not safe yet."""

    def deliver_ready(env: Env, ring: Ring) -> None:
        seq = ring.my_high_delivered + 1
        held = []
        while (message := ring.store.get(seq)) is not None:
            if type(message) is Regular:
                if message.service and seq > ring.safe_bound:
                    held.append(message)
                else:
                    delivery.upcall(env, ring, ring.ring_id, message)
            seq += 1
        for message in held:
            delivery.upcall(env, ring, ring.ring_id, message)
        ring.my_high_delivered = seq - 1

    patch.setattr(delivery, "deliver_ready", deliver_ready)


@mutant("R24", "D9", "D6", "D7")
def delivery_skips_a_hole(patch: MonkeyPatch) -> None:
    """Delivers what it has, in order, without waiting for a number that is missing."""

    def deliver_ready(env: Env, ring: Ring) -> None:
        for seq in sorted(seq for seq in ring.store if seq > ring.my_high_delivered):
            message = ring.store[seq]
            if type(message) is Regular:
                if message.service and seq > ring.safe_bound:
                    return
                delivery.upcall(env, ring, ring.ring_id, message)
            ring.my_high_delivered = seq

    def release_safe(ring: Ring) -> None:
        upto = min(ring.safe_bound, ring.my_high_delivered)
        for seq in range(ring.released + 1, upto + 1):
            ring.store.pop(seq, None)
        ring.released = max(ring.released, upto)

    patch.setattr(delivery, "deliver_ready", deliver_ready)
    patch.setattr(Ring, "release_safe", release_safe)


@mutant("R14", "D9", "D10", "progress", "no-crash")
def aru_jumps_over_a_hole(patch: MonkeyPatch) -> None:
    """Counts everything up to the highest number as received, so a hole is never requested."""

    def spoil(kept: bool, ring: Ring, seq: int, message: Regular) -> bool:
        if kept:
            ring.got = max(ring.got, seq)
        return kept

    after(patch, Ring, "put", spoil)
    after(patch, Ring, "keep", spoil)


@mutant("R21", "D6", "progress", "no-crash")
def released_before_safe(patch: MonkeyPatch) -> None:
    """Forgets a message once it is delivered here, although others may still miss it."""

    def release_safe(ring: Ring) -> None:
        for seq in range(ring.released + 1, ring.my_high_delivered + 1):
            del ring.store[seq]
        ring.released = max(ring.released, ring.my_high_delivered)

    patch.setattr(Ring, "release_safe", release_safe)


@mutant("R12", "progress")
def requests_unanswered(patch: MonkeyPatch) -> None:
    """Never sends a requested message again."""
    patch.setattr(tokens, "retransmit", lambda p, env, ring, rtr, allowed: (rtr, 0))


@mutant("R15", "D10", "D6", "progress", "no-crash")
def aru_raised_by_anyone(patch: MonkeyPatch) -> None:
    """Raises the token's aru to its own although somebody else lags."""
    patch.setattr(
        tokens,
        "next_aru",
        lambda token, my_aru, seq, me: (my_aru, None if my_aru == seq else me),
    )


@mutant("R10 G2", "D1", "integrity", "D9")
def token_copy_accepted(patch: MonkeyPatch) -> None:
    """Accepts any regular token of its ring, copies too, so that two tokens go round."""
    whole = tokens.stale

    def stale(p: Processor, token: Token | CommitToken) -> bool:
        if isinstance(token, Token):
            return token.ring_id != p.my_ring_id
        return whole(p, token)

    patch.setattr(tokens, "stale", stale)


@mutant("R26", "progress")
def token_loss_ignored(patch: MonkeyPatch) -> None:
    """Waits for ever for a token that was lost."""
    handle(patch, Phase.OPERATIONAL, Timer.TOKEN_LOSS, _nothing)


@mutant(
    "R25",
    survives=("Slower only: the token loss timeout forms a new ring."),
)
def token_never_sent_again(patch: MonkeyPatch) -> None:
    """Leaves every lost token to the token loss timeout."""
    phases = (Phase.OPERATIONAL, Phase.COMMIT, Phase.RECOVER)
    handle(patch, phases, Timer.TOKEN_RETRANSMIT, _nothing)


@mutant("R93", "D1", "progress")
def held_token_survives_gather(patch: MonkeyPatch) -> None:
    """Keeps a token that was resting when it went to Gather, and passes it on afterwards."""

    whole = gather.enter

    def enter(p: Processor, env: Env, cause: Any) -> None:
        held = p.token.held_token
        whole(p, env, cause)
        p.token.held_token = held

    patch.setattr(gather, "enter", enter)


@mutant("R94 G33", "progress")
def no_announce(patch: MonkeyPatch) -> None:
    """An idle ring never says that it exists."""
    handle(patch, Phase.OPERATIONAL, Timer.ANNOUNCE, _nothing)


@mutant("R81", "fifo", "D8", "causal", "D7")
def frames_numbered_backwards(patch: MonkeyPatch) -> None:
    """Takes several frames from the queue in one visit and numbers the last one first."""

    def number_new(p: Processor, env: Env, seq: int, allowed: int) -> int:
        frames: list[Any] = []
        while len(frames) < allowed and (frame := p.new_message_queue.take(p.config.frame_budget)):
            frames.append(frame)
        for level, contents, whole in reversed(frames):
            seq += 1
            message = Regular(p.me, p.old.ring_id, seq, level, contents)
            p.old.put(message.seq, message)
            if whole:
                env.originate(delivery.batch_of(message, whole))
            env.broadcast(message)
        return len(frames)

    patch.setattr(sending, "number_new", number_new)


@mutant("R78 R81", "content")
def queue_served_from_the_wrong_end(patch: MonkeyPatch) -> None:
    """Lets a message overtake those that were submitted before it and wait in the queue."""

    def put(self: Outbox[Any], bodies: tuple[bytes, ...], level: Any) -> None:
        for body in bodies:
            self._queue.insert(1 if self._part else 0, (body, level))
            self.size += len(body)

    patch.setattr(Outbox, "put", put)


@mutant("R99", "D3", "D7", "D9", "progress", "validity")
def sender_does_not_rewind(patch: MonkeyPatch) -> None:
    """Goes on, on the new ring, with the fragments that the old ring did not number."""
    patch.setattr(Outbox, "rewind", lambda self: None)


@mutant("R99", "D1", "D7", "D9", "progress", "validity")
def fragments_joined_across_rings(patch: MonkeyPatch) -> None:
    """Sends the rest of a message on the new ring, where receivers join it to the beginning
    they have from the old one; whoever was not there has no beginning."""
    patch.setattr(Outbox, "rewind", lambda self: None)
    whole = install.become_operational

    def become_operational(p: Processor, env: Env, cause: str) -> None:
        p.new.assembler = p.old.assembler
        whole(p, env, cause)

    patch.setattr(install, "become_operational", become_operational)


@mutant("R72 G25", "D12", "D12-graph", "M7")
def position_of_the_change_is_aru(patch: MonkeyPatch) -> None:
    """Places the transitional configuration after the last number received, not delivered."""
    _change(patch, lambda p, seq: p.old.my_aru)


@mutant("R72 G25", "D12", "D12-graph", "M7")
def position_of_the_change_is_one_off(patch: MonkeyPatch) -> None:
    """Places the transitional configuration after the first number that was not delivered."""
    _change(patch, lambda p, seq: seq + 1)


def _change(patch: MonkeyPatch, position: Any) -> None:
    """Let the transitional configuration have another position."""
    whole = install.install

    def spoiled(p: Processor, env: Env, cause: str) -> bool:
        def view(
            view: RingId,
            members: Any,
            transitional: bool,
            ring: RingId,
            seq: int,
            conf: RingId,
            *more: Any,
        ) -> InstallView:
            at = position(p, seq) if transitional else seq
            return InstallView(view, members, transitional, ring, at, conf, *more)

        with MonkeyPatch.context() as inner:
            inner.setattr(install, "InstallView", view)
            return whole(p, env, cause)

    patch.setattr(install, "install", spoiled)


def _nothing(p: Processor, env: Env, event: TimerFired) -> None:
    """A handler that forgot its rule."""

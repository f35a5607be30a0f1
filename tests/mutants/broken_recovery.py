"""Mutants of recovery: the exchange of old messages and the step between two configurations."""

from __future__ import annotations

from msgspec.structs import replace
from mutant import after, handle, mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.inputs import Received
from ringcast.protocols.totem_single import delivery, gather, install, recovery, tokens
from ringcast.protocols.totem_single.messages import Encapsulated, Entry, Regular, RingId, Token
from ringcast.protocols.totem_single.state import Phase, Processor

Entries = tuple[Entry, ...]


@mutant("R67", "M7", "D6", "D9", "D11")
def old_message_accepted_in_recover(patch: MonkeyPatch) -> None:
    """Keeps an old-ring message that arrives directly after the exchange was set up."""
    whole = recovery.on_regular

    def on_regular(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, Regular)
        if message.ring_id == p.old.ring_id:
            p.old.put(message.seq, message)
        else:
            whole(p, env, event)

    handle(patch, Phase.RECOVER, Regular, on_regular)


@mutant("R35 R51 G16", "M7", "D6", "D9", "D11")
def old_message_accepted_after_the_exchange(patch: MonkeyPatch) -> None:
    """Keeps, in Gather and Commit, an old-ring message although the exchanged set is fixed."""

    def in_gather(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, Regular)
        if message.ring_id != p.old.ring_id:
            gather.on_stranger(p, env, event.src)
        elif p.old.put(message.seq, message):
            delivery.deliver_ready(env, p.old)

    def in_commit(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, Regular)
        if message.ring_id == p.old.ring_id:
            p.old.put(message.seq, message)

    handle(patch, Phase.GATHER, Regular, in_gather)
    handle(patch, Phase.COMMIT, Regular, in_commit)


@mutant("R56 G23", "M2", "M4", "M6", "D6")
def transitional_is_the_intersection(patch: MonkeyPatch) -> None:
    """Takes all who were in the old ring and are in the new one for its transitional
    configuration, wherever they come from."""

    def spoil(fine: bool, p: Processor, entries: Entries) -> bool:
        p.recovery.my_trans_memb = tuple(sorted(set(p.old.memb) & set(p.my_new_memb)))
        return fine

    after(patch, recovery, "begin", spoil)


@mutant("R58 G17", "D11", "D13", "D6", "no-crash")
def exchange_repeated_although_complete(patch: MonkeyPatch) -> None:
    """Computes my_deliver_memb anew although all hold everything from an earlier pass."""
    whole = recovery.begin

    def begin(p: Processor, entries: Entries) -> bool:
        undone = tuple(replace(e, my_received_flg=False, received_in=None) for e in entries)
        return whole(p, undone)

    patch.setattr(recovery, "begin", begin)


@mutant("R57", "D6", "D7", "D9", "D11", "no-crash", "progress")
def exchange_starts_at_the_highest_aru(patch: MonkeyPatch) -> None:
    """Sends again only what lies above the highest aru of the old ring's members."""

    def spoil(fine: bool, p: Processor, entries: Entries) -> bool:
        mine = [e for e in entries if e.my_old_ring_id == p.old.ring_id]
        high = max(e.old_ring_my_aru for e in mine)
        p.recovery.retrans_message_queue = {
            s: m for s, m in p.recovery.retrans_message_queue.items() if s > high
        }
        return fine

    after(patch, recovery, "begin", spoil)


@mutant("R57", "M7", "D6", "D9", "D10")
def lowest_delivered_counts(patch: MonkeyPatch) -> None:
    """Takes the least, not the most, that a member delivered in the old ring as the bound up
    to which its messages are delivered there."""

    def spoil(fine: bool, p: Processor, entries: Entries) -> bool:
        mine = [e for e in entries if e.my_old_ring_id == p.old.ring_id]
        if not all(e.my_received_flg for e in mine):
            p.recovery.high_ring_delivered = min(e.my_high_delivered for e in mine)
        return fine

    after(patch, recovery, "begin", spoil)


@mutant("R66", "D6", "D7", "D9", "D11", "no-crash")
def exchanged_message_not_kept(patch: MonkeyPatch) -> None:
    """Stores an encapsulated message under its new number, but not the message inside."""

    def on_encapsulated(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, Encapsulated)
        if message.ring_id == p.my_ring_id:
            p.new.put(message.seq, message)

    handle(patch, Phase.RECOVER, Encapsulated, on_encapsulated)


@mutant("R62 R64", "D11", "D6", "D13", "no-crash")
def installs_one_visit_early(patch: MonkeyPatch) -> None:
    """Installs at the second visit without the flag, when others do not know yet that the
    exchange is complete."""

    def spoil(token: Token, p: Processor, passed_on: Token) -> Token:
        if p.recovery.my_retrans_flg_count == 2:
            p.recovery.my_retrans_flg_count = 3
        return token

    after(patch, recovery, "mark", spoil)


@mutant("R64", "D4", "D6", "D7", "D9", "D10", "D11", "no-crash")
def installs_before_all_hold_everything(patch: MonkeyPatch) -> None:
    """Installs at the first visit without the flag, whatever the others hold."""

    def on_token(p: Processor, env: Env, event: Received) -> None:
        token = event.message
        assert isinstance(token, Token)
        if tokens.stale(p, token):
            return
        tokens.accept(p, env, token)
        passed_on = tokens.visit(p, env, p.new, token, recovery.send_old)
        if passed_on is None:
            return
        passed_on = recovery.mark(p, passed_on)
        if p.recovery.my_retrans_flg_count and p.new.my_aru == passed_on.seq:
            p.recovery.my_install_seq = passed_on.seq
            install.install(p, env, "recovered")
        tokens.forward(p, env, passed_on, p.my_new_memb)
        if p.phase is Phase.OPERATIONAL:
            install.resume(p, env)

    handle(patch, Phase.RECOVER, Token, on_token)


@mutant("R61", "D6", "D7", "D9", "D11", "no-crash")
def flag_cleared_by_anyone(patch: MonkeyPatch) -> None:
    """Clears the retransmission flag although another processor set it and has to send."""
    whole = recovery.mark

    def mark(p: Processor, token: Token) -> Token:
        p.recovery.i_set_flg = True
        return whole(p, token)

    patch.setattr(recovery, "mark", mark)


@mutant("R63 G20", "D6", "D11", "no-crash")
def exchange_complete_with_holes(patch: MonkeyPatch) -> None:
    """Declares the exchange complete without looking whether it holds everything."""

    def complete_exchange(p: Processor) -> None:
        p.recovery.my_received_flg = True
        p.recovery.received_in = p.my_ring_id
        p.recovery.my_deliver_memb = p.recovery.my_trans_memb

    patch.setattr(recovery, "complete_exchange", complete_exchange)


@mutant(
    "R71",
    survives=(
        "Changes nothing: what a processor knows to be safe it has delivered in the same "
        "visit of the token."
    ),
)
def own_safe_bound_decides(patch: MonkeyPatch) -> None:
    """Delivers in the old configuration what it alone knows to be safe, not what all know."""
    whole = install.finish_old

    def finish_old(p: Processor, env: Env, waiting: list[Regular]) -> list[Regular]:
        shared = p.recovery.high_ring_delivered
        p.recovery.high_ring_delivered = max(shared, p.old.safe_bound)
        rest = whole(p, env, waiting)
        p.recovery.high_ring_delivered = shared
        return rest

    patch.setattr(install, "finish_old", finish_old)


@mutant("R71", "D10")
def safe_delivered_in_the_old_configuration(patch: MonkeyPatch) -> None:
    """Delivers all that has no gap in the old configuration, safe or not."""
    whole = install.finish_old

    def finish_old(p: Processor, env: Env, waiting: list[Regular]) -> list[Regular]:
        shared = p.recovery.high_ring_delivered
        p.recovery.high_ring_delivered = 2**62
        rest = whole(p, env, waiting)
        p.recovery.high_ring_delivered = shared
        return rest

    patch.setattr(install, "finish_old", finish_old)


@mutant("R73 G24", "D13", "D7")
def everything_delivered_beyond_the_gap(patch: MonkeyPatch) -> None:
    """Delivers in the transitional configuration whatever is there, beyond a gap too."""

    def deliver_transitional(
        p: Processor, env: Env, transitional: RingId, rest: list[Regular]
    ) -> None:
        for message in rest:
            delivery.upcall(env, p.old, transitional, message)

    patch.setattr(install, "deliver_transitional", deliver_transitional)


@mutant("R73 G24", "D3", "D11", "validity")
def nothing_delivered_beyond_the_gap(patch: MonkeyPatch) -> None:
    """Stops at the first gap in the transitional configuration, own messages included."""

    def deliver_transitional(
        p: Processor, env: Env, transitional: RingId, rest: list[Regular]
    ) -> None:
        expected = p.old.my_high_delivered + 1
        for message in rest:
            if message.seq != expected:
                return
            expected += 1
            delivery.upcall(env, p.old, transitional, message)

    patch.setattr(install, "deliver_transitional", deliver_transitional)


@mutant("R69", "D6", "D3", "no-crash")
def old_messages_lost_with_the_attempt(patch: MonkeyPatch) -> None:
    """Forgets, when it gives a new ring up, what it had not delivered of the old one."""
    whole = recovery.abandon

    def abandon(p: Processor) -> None:
        if p.phase is Phase.RECOVER:
            old = p.old
            for seq in [seq for seq in old.store if seq > old.my_high_delivered]:
                del old.store[seq]
            old.got = old.my_high_delivered
        whole(p)

    patch.setattr(recovery, "abandon", abandon)


@mutant("R74 R8", "M3", "D5")
def no_transitional_configuration(patch: MonkeyPatch) -> None:
    """Goes from one regular configuration straight to the next."""
    whole = install.install

    def spoiled(p: Processor, env: Env, cause: str) -> bool:
        before = len(env.effects)
        done = whole(p, env, cause)
        env.effects[before:] = [
            effect for effect in env.effects[before:] if not getattr(effect, "transitional", False)
        ]
        return done

    patch.setattr(install, "install", spoiled)


@mutant(
    "R65 R76",
    survives=(
        "Never happens: a processor that installs sends no message before its next visit of "
        "the token, and by then every member has installed."
    ),
)
def early_message_delivered_before_installing(patch: MonkeyPatch) -> None:
    """Delivers messages of the new ring as they come, before it has installed that ring."""
    whole = recovery.on_regular

    def on_regular(p: Processor, env: Env, event: Received) -> None:
        whole(p, env, event)
        if any(type(message) is Regular for message in p.new.store.values()):
            delivery.deliver_ready(env, p.new)

    handle(patch, Phase.RECOVER, Regular, on_regular)

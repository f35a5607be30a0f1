"""Mutants of membership: ring numbers, Joins, consensus, the Commit token."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import after, handle, mutant
from pytest import MonkeyPatch

from ringcast.core.effects import Persist
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, Started, TimerFired
from ringcast.protocols.totem_single import commit, gather, operational, recovery, tokens
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.protocols.totem_single.messages import CommitToken, Entry, Join, Regular, RingId
from ringcast.protocols.totem_single.state import Cause, Phase, Processor, Timer


def nowhere(q: NodeId) -> Entry:
    """An entry that nobody filled."""
    return Entry(RingId(0, q), 0, 0, False, 0, None, 0)


@mutant("R5 G7", "M2", "M3", "D1")
def number_reused_after_restart(patch: MonkeyPatch) -> None:
    """Starts again with the stored ring number instead of one never used."""
    whole = TotemSingle.start

    def start(self: TotemSingle, env: Env, event: Started) -> None:
        stable = {key: value - 4 for key, value in event.stable.items()}
        whole(self, env, Started(event.boot, stable))

    patch.setattr(TotemSingle, "start", start)


@mutant("R49 G7", "M2", "M3", "D1")
def ring_number_not_persisted(patch: MonkeyPatch) -> None:
    """Signs a Commit token without writing its number down."""

    def spoil(none: None, p: Processor, env: Env, token: CommitToken) -> None:
        env.effects = [effect for effect in env.effects if not isinstance(effect, Persist)]

    after(patch, commit, "adopt", spoil)


@mutant("R49 G7", "M2", "M3", "D1")
def ring_number_persisted_last(patch: MonkeyPatch) -> None:
    """Writes the number of a ring down only after everything else, so a crash comes between."""
    whole = TotemSingle.handle

    def handle(self: TotemSingle, env: Env, event: Any) -> None:
        whole(self, env, event)
        env.effects.sort(key=lambda effect: isinstance(effect, Persist))

    patch.setattr(TotemSingle, "handle", handle)


@mutant(
    "R32",
    survives=(
        "Slower only: others refuse a number that is too low, and every refused attempt "
        "raises it by four."
    ),
)
def ring_numbers_of_others_ignored(patch: MonkeyPatch) -> None:
    """Numbers a new ring above its own ring only, whatever the Joins of the others said."""

    def spoil(well: bool, self: TotemSingle, env: Env, event: Received) -> bool:
        self.gather.max_ring_seq = self.my_ring_id.seq
        return well

    after(patch, TotemSingle, "admit", spoil)


@mutant("R52 R68 G1", "progress")
def join_must_be_newer(patch: MonkeyPatch) -> None:
    """In Commit and Recover, heeds only a Join with a higher number than its ring's."""

    def on_join(p: Processor, env: Env, event: Received) -> None:
        join = event.message
        assert isinstance(join, Join)
        if join.sender_id in p.my_new_memb and join.ring_seq > p.my_ring_id.seq:
            p.merge_join(env, join)
            p.enter_gather(env, Cause.JOIN)

    handle(patch, (Phase.COMMIT, Phase.RECOVER), Join, on_join)


@mutant(
    "R77 R75",
    survives=(
        "Slower only: whoever does not answer is failed again, and the bound on the time has "
        "room for that."
    ),
)
def failed_set_forgotten_in_gather(patch: MonkeyPatch) -> None:
    """Forgets whom it failed whenever an attempt to form a ring is given up."""
    whole = gather.enter

    def enter(p: Processor, env: Env, cause: Cause) -> None:
        if p.phase in (Phase.COMMIT, Phase.RECOVER):
            p.gather.my_fail_set = frozenset()
        whole(p, env, cause)

    patch.setattr(gather, "enter", enter)


@mutant("R41 G12", "progress")
def consensus_timer_reset_by_every_join(patch: MonkeyPatch) -> None:
    """Starts the Consensus timer anew at each Join, although nothing changed."""
    whole = gather.on_join

    def on_join(p: Processor, env: Env, event: Received) -> None:
        if not p.gather.waiting:
            env.set_timer(Timer.CONSENSUS, p.config.consensus_us)
        whole(p, env, event)

    handle(patch, Phase.GATHER, Join, on_join)


@mutant("R43", "progress")
def nobody_fails_at_the_timeout(patch: MonkeyPatch) -> None:
    """Asks again for ever instead of failing those who do not agree."""

    def on_consensus_timer(p: Processor, env: Env, event: Any) -> None:
        if p.gather.my_proc_set == {p.me}:
            commit.start(p, env)
        else:
            p.enter_gather(env, Cause.CONSENSUS_TIMEOUT)

    handle(patch, Phase.GATHER, Timer.CONSENSUS, on_consensus_timer)


@mutant("R44 R49 R20", "M8", "D1", "M5", "no-crash")
def silent_member_skipped(patch: MonkeyPatch) -> None:
    """When a token is not passed on, hands it to the one after, entry left empty, who takes it
    from anybody, so that a ring is installed with a member that never agreed."""

    def on_token_retransmit(p: Processor, env: Env, event: TimerFired) -> None:
        to, token = p.token.last_sent
        beyond = p.my_new_memb[(p.my_new_memb.index(to) + 1) % len(p.my_new_memb)]
        if beyond != p.me:
            if isinstance(token, CommitToken) and token.memb_index < len(token.memb):
                token = replace(token, entries=(*token.entries, nowhere(to)))
            token = replace(token, token_seq=token.token_seq + 1)
            p.token.last_sent = (beyond, token)
        tokens.on_token_retransmit(p, env, event)

    patch.setattr(tokens, "passed_on", lambda ring, event: True)
    patch.setattr(tokens, "passed_from", lambda at, event: True)
    phases = (Phase.COMMIT, Phase.RECOVER)
    handle(patch, phases, Timer.TOKEN_RETRANSMIT, on_token_retransmit)


@mutant("R46", "progress")
def tried_membership_waits(patch: MonkeyPatch) -> None:
    """Neither drops a member of a membership that failed before nor tries it again."""
    patch.setattr(gather, "drop_slowest", lambda p, env: None)


@mutant(
    "R46 G13",
    survives=(
        "The healed core's links work, so the next attempt succeeds; scenario S21, where a hop "
        "stays dead, shows the rule."
    ),
)
def tried_membership_tried_again(patch: MonkeyPatch) -> None:
    """Tries a membership that failed before again and again."""

    def drop_slowest(p: Processor, env: Env) -> None:
        p.gather.tried.discard(p.gather.sets)
        gather.check_consensus(p, env)

    patch.setattr(gather, "drop_slowest", drop_slowest)


@mutant(
    "R45 G15",
    survives=("Slower only: the attempt fails and the token loss timeout ends it."),
)
def given_up_token_accepted(patch: MonkeyPatch) -> None:
    """Signs the Commit token of an attempt it had given up."""
    whole = gather.on_commit_token

    def on_commit_token(p: Processor, env: Env, event: Received) -> None:
        p.gather.given_up.clear()
        whole(p, env, event)

    handle(patch, Phase.GATHER, CommitToken, on_commit_token)


@mutant(
    "R48",
    survives=(
        "Harmless as far as the properties go: to sign is to agree, and nobody signs two rings "
        "of one number."
    ),
)
def commit_token_of_any_membership(patch: MonkeyPatch) -> None:
    """Signs a Commit token that names it, whatever it proposed itself."""

    def on_commit_token(p: Processor, env: Env, event: Received) -> None:
        token = event.message
        assert isinstance(token, CommitToken)
        if (
            token.ring_id.seq > p.my_ring_id.seq
            and token.memb_index < len(token.memb)
            and token.memb[token.memb_index] == p.me
        ):
            commit.enter(p, env, token)

    handle(patch, Phase.GATHER, CommitToken, on_commit_token)


@mutant("R55 G2", "M4", "M6", "D6", "D11", "no-crash", "progress")
def first_rotation_taken_for_the_second(patch: MonkeyPatch) -> None:
    """In Commit, takes a copy of the first rotation's Commit token for the second rotation;
    the entries that are missing read as processors from nowhere."""

    def on_commit_token(p: Processor, env: Env, event: Received) -> None:
        token = event.message
        assert isinstance(token, CommitToken)
        if token.ring_id == p.my_ring_id and token.token_seq + 1 >= p.token.my_token_seq:
            missing = token.memb[len(token.entries) :]
            empty = [nowhere(q) for q in missing]
            if p.me in missing:
                empty[missing.index(p.me)] = commit.my_entry(p)
            entries = (*token.entries, *empty)
            full = CommitToken(token.ring_id, token.token_seq, token.memb, entries)
            recovery.enter(p, env, full)

    handle(patch, Phase.COMMIT, CommitToken, on_commit_token)


@mutant(
    "R28 G19",
    survives=(
        "Slower only: a dead originator is a candidate until the Consensus timeout, and the "
        "ring that sent the message again is found by its Announce."
    ),
)
def foreign_frame_judged_by_originator(patch: MonkeyPatch) -> None:
    """Looks at who originated a message of another ring, not at who put it on the wire."""
    whole = operational.on_regular

    def on_regular(p: Processor, env: Env, event: Received) -> None:
        message = event.message
        assert isinstance(message, Regular)
        if message.ring_id != p.my_ring_id:
            operational.on_other_ring(p, env, message.sender_id, message.ring_id.seq)
        else:
            whole(p, env, event)

    handle(patch, Phase.OPERATIONAL, Regular, on_regular)


@mutant(
    "R29 G18",
    survives=("Slower only: one ring more is formed."),
)
def late_frame_of_a_member_ends_the_ring(patch: MonkeyPatch) -> None:
    """Takes a member's late frame of an older ring for a sign that it has left."""

    def on_other_ring(p: Processor, env: Env, src: NodeId, ring_seq: int) -> None:
        p.gather.my_proc_set |= {src}
        p.enter_gather(env, Cause.FOREIGN)

    patch.setattr(operational, "on_other_ring", on_other_ring)


@mutant("R30 G10", "progress")
def late_join_ends_the_ring(patch: MonkeyPatch) -> None:
    """Heeds a late Join of an earlier attempt, from before the ring was formed."""

    def on_join(p: Processor, env: Env, event: Received) -> None:
        join = event.message
        assert isinstance(join, Join)
        gather.merge(p, env, join)
        p.enter_gather(env, Cause.JOIN)

    handle(patch, Phase.OPERATIONAL, Join, on_join)


@mutant(
    "R30",
    survives=(
        "Slower only since a processor that others excluded waits before it is a ring of one "
        "(R7 ext); the rule keeps a working ring from being ended for nothing."
    ),
)
def disturbing_join_heeded(patch: MonkeyPatch) -> None:
    """Ends its ring for a Join of an outsider that has given up a member and cannot agree."""

    def on_join(p: Processor, env: Env, event: Received) -> None:
        join = event.message
        assert isinstance(join, Join)
        late = join.sender_id in p.gather.my_proc_set and join.ring_seq < p.my_ring_id.seq
        if p.me not in join.fail_set and not late and not gather.keep_out(p, env, event.src):
            gather.merge(p, env, join)
            p.enter_gather(env, Cause.JOIN)

    handle(patch, Phase.OPERATIONAL, Join, on_join)

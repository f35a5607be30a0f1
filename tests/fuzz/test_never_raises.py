"""A peer may send anything well-typed: a machine never raises and never grows without bound.

Machines are brought into each phase with the bench of the rule tests, then fed hostile frames of
every type, timers that are really set, and submissions, in any order. A processor may stop only
because its id is taken or because an invariant was broken by what it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec
import pytest
from driver import Bench, Phase, Timer, stops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, Effect, Send
from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.core.inputs import Received, Submitted
from ringcast.protocols.totem_single import Config, TotemSingle, commit, messages
from ringcast.protocols.totem_single.messages import (
    MAX_MEMBERS,
    Announce,
    CommitToken,
    Encapsulated,
    Entry,
    Frame,
    Hearing,
    Join,
    Regular,
    Token,
)
from ringcast.protocols.totem_single.ring import AHEAD

MAY_STOP = ("another processor uses the id", "broken invariant")
ME = 2
LAN = Config(hold_us=10_000, max_fast_rounds=3, fail_rcv_const=2, max_message=4096, max_queue=20,
             min_queue=10, max_queue_bytes=8192, merge_backoff_us=1000)  # fmt: skip

# --- hostile values: near what the machine knows, and far from anything ----------------------

ids = st.sampled_from([1, 2, 3, 4, 9, 2**32 - 1])
seqs = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 12, 21, 100, AHEAD, 2**62, LIMIT])
near = st.integers(0, 8)
token_seqs = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 15, 17, 19, 21, 25, 40, 1000, LIMIT - 1])
rings = st.sampled_from(
    [ViewId(seq, rep) for seq in (4, 8, 12, 16, 100) for rep in (1, 2)]
    + [ViewId(0, 9), ViewId(LIMIT, 1), ViewId(LIMIT - 2**20, 1)]
)
id_sets = st.sampled_from(
    [(), (1,), (2,), (1, 2), (1, 3), (2, 3), (1, 2, 3), (1, 2, 3, 9), (3, 1), (2, 2), (9,)]
) | st.just(tuple(range(1, 13)))
contents = st.builds(
    Contents,
    seqs,
    st.sampled_from([(), (b"",), (b"x",), (b"x", b"y"), (bytes(3000),)]),
    st.sampled_from([0, 0, 1, 2, 2**31]),
    st.booleans(),
)
regulars = st.builds(Regular, ids, rings, near | seqs, st.sampled_from(Level), contents)
entries = st.builds(
    Entry,
    rings,
    st.sampled_from([0, Bench().to_ring()[1].old.memb_crc]),
    near | seqs,
    st.booleans(),
    near | seqs,
    st.none() | rings,
    st.sampled_from([1, 1, 1, 2]),
)
rides = st.sampled_from([None, None, b"", bytes(8)])
hearing = st.builds(Hearing, ids, seqs, seqs, id_sets)

HOSTILE: dict[type, dict[str, st.SearchStrategy[object]]] = {
    Regular: {
        "sender_id": ids,
        "ring_id": rings,
        "seq": near | seqs,
        "service": st.sampled_from(Level),
        "contents": contents,
    },
    Encapsulated: {"ring_id": rings, "seq": near | seqs, "inner": regulars},
    Token: {
        "ring_id": rings,
        "token_seq": token_seqs,
        "seq": near | seqs,
        "aru": near | seqs,
        "aru_id": st.none() | ids,
        "rtr": st.sampled_from([(1,), (1, 2, 3), (5, 4), (0,), (LIMIT,), tuple(range(1, 91))]),
        "retrans_round": seqs,
        "retrans_flg": st.booleans(),
        "ride": rides,
    },
    Join: {
        "sender_id": ids,
        "ring_seq": near | seqs,
        "proc_set": id_sets,
        "fail_set": id_sets,
        "rotation_count": seqs,
        "window_size": seqs,
        "hearing": st.lists(hearing, max_size=3).map(tuple),
        "ride": rides,
    },
    CommitToken: {
        "ring_id": rings,
        "token_seq": token_seqs,
        "memb": id_sets,
        "entries": st.lists(entries, max_size=4).map(tuple),
        "ride": rides,
    },
    Announce: {
        "ring_id": rings,
        "sender_id": ids,
        "memb": id_sets,
        "heard": id_sets,
        "apart": st.lists(st.tuples(ids, ids), max_size=3).map(tuple),
    },
}


class Twist(NamedTuple):
    """A frame that would be right now, with some fields replaced: the hardest to refuse."""

    kind: type
    src: int
    boot: int
    changes: dict[str, object]


def twists(kind: type) -> st.SearchStrategy[Twist]:
    fields = st.fixed_dictionaries({}, optional=HOSTILE[kind])
    few = fields.filter(lambda changes: len(changes) <= 3)
    passed = kind in (Token, CommitToken)  # only the predecessor does that
    sources = st.sampled_from([1, 1, 1, 1, 3, 9] if passed else [1, 3, 3, 4, 9, ME])
    return st.builds(Twist, st.just(kind), sources, st.sampled_from([1] * 9 + [2]), few)


submitted = st.builds(
    Submitted,
    st.sampled_from([(), (b"x",), (b"x",) * 5, (bytes(4000),), (bytes(10_000),)]),
    st.sampled_from(Level),
)
fired = st.integers(0, 5)
"""Which of the timers that are set runs out, counted by name."""
Step = Twist | Submitted | int
steps = st.lists(st.one_of(*map(twists, HOSTILE), submitted, fired), min_size=1, max_size=25)


def honest(p: TotemSingle, kind: type, src: int) -> msgspec.Struct:
    """The frame of this kind that ``src`` might rightly send to ``p`` now."""
    ring, seq = p.my_ring_id, p.new.my_aru + 1
    whole = Contents(1, (b"x",))
    match kind:
        case messages.Regular:
            return Regular(src, p.new.ring_id, seq, Level.AGREED, whole)
        case messages.Encapsulated:
            inner = Regular(src, p.old.ring_id, p.old.my_aru + 1, Level.AGREED, whole)
            return Encapsulated(ring, seq, inner, 0)
        case messages.Token:
            return Token(ring, p.token.my_token_seq + 2, seq - 1, seq - 1, None, (), 0, False)
        case messages.Join:
            proc_set = tuple(sorted(p.gather.my_proc_set | {src}))
            fail_set = tuple(sorted(p.gather.my_fail_set - {src}))
            return Join(src, ring.seq, proc_set, fail_set, 0, p.config.window_size)
        case messages.CommitToken:
            memb, signed = p.my_new_memb, len(p.my_new_memb)
            if p.phase is Phase.GATHER:
                memb = p.gather.candidates
                signed = memb.index(p.me)
                ring = ViewId(p.gather.max_ring_seq + 4, memb[0])
            hops = signed - 1 if p.phase is Phase.GATHER else p.token.my_token_seq + 1
            mine = p.recovery.my_signature if p.phase is Phase.COMMIT else None
            return CommitToken(ring, max(hops, 0), memb, (mine or commit.my_entry(p),) * signed)
        case _:
            return Announce(ViewId(8, src), src, (src,))


# --- where a machine can be -------------------------------------------------------------------


def alone() -> Bench:
    bench = Bench(3, LAN)
    bench.start(ME)
    bench.lose()
    bench.fire(ME, Timer.CONSENSUS)
    return bench


def waiting() -> Bench:
    bench = Bench(3, LAN).to_ring().to_gather()
    bench.run(until=lambda: bench[ME].gather.waiting)
    return bench


def resting() -> Bench:
    bench = Bench(3, LAN).to_ring()
    bench.lose()
    for _ in range(4):
        bench.receive(ME, bench.token(ME), src=1)
    return bench


def forming(phase: Phase) -> Callable[[], Bench]:
    def build() -> Bench:
        bench = Bench(3, LAN).to_ring()
        bench.lose()
        bench.receive(ME, bench.message(1), src=3)
        bench.receive(ME, bench.message(3, level=Level.SAFE), src=3)
        return bench.to_gather().to_phase(ME, phase)

    return build


PLACES: dict[str, Callable[[], Bench]] = {
    "alone": alone,
    "operational": lambda: Bench(3, LAN).to_ring(),
    "resting": resting,
    "gather": lambda: Bench(3, LAN).to_ring().to_gather(ME),
    "waiting": waiting,
    "commit": forming(Phase.COMMIT),
    "recover": forming(Phase.RECOVER),
}

# --- the test ---------------------------------------------------------------------------------

WIRE = msgspec.msgpack.Decoder(Frame)


def feed(bench: Bench, step: Step) -> list[Effect]:
    """Let the machine have one input, made for the state it is in."""
    machine = bench[ME]
    bench.now_us += 1000
    match step:
        case Twist(kind, src, boot, changes):
            if "memb" in changes and kind is CommitToken:  # signed by all it names
                signed = (machine.recovery.my_signature or commit.my_entry(machine),) * len(
                    cast("tuple[int]", changes["memb"])
                )
                changes = {"entries": signed, **changes}
            frame = msgspec.structs.replace(honest(machine, kind, src), **changes)
            return bench.handle(ME, Received(src, boot, frame))
        case Submitted():
            return bench.handle(ME, step)
        case at:
            timers = sorted(bench.timers[ME])
            return bench.fire(ME, timers[at % len(timers)]) if timers else []


def well_typed(effects: list[Effect]) -> None:
    """What a machine sends can be read by its peers."""
    for effect in effects:
        if isinstance(effect, Send | Broadcast):
            message = effect.message
            assert WIRE.decode(msgspec.msgpack.encode(message)) == message


def bounded(machine: TotemSingle, config: Config, steps: int) -> None:
    """Nothing grows beyond what it was told, nor beyond its bounds."""
    assert len(machine.gather.my_proc_set) <= MAX_MEMBERS
    for ring in (machine.old, machine.new):
        assert len(ring.store) <= 3 + 20 * steps
        assert all(seq <= ring.got + AHEAD for seq in ring.store)
        assert ring.assembler.held <= config.max_message * (steps + 3)
    assert len(machine.new_message_queue) < config.max_queue + 5
    assert config.min_window <= machine.flow.window <= config.max_window
    assert len(machine.gather.tried) + len(machine.gather.given_up) <= 2 * steps + 3


@pytest.mark.parametrize("place", PLACES)
def test_a_machine_survives_anything_well_typed(place: str) -> None:
    @settings(
        max_examples=250,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(steps)
    def survives(script: list[Step]) -> None:
        bench = PLACES[place]()
        bench.lose()
        for step in script:
            effects = feed(bench, step)
            reasons = stops(effects)
            if reasons:
                assert reasons[0].startswith(MAY_STOP), reasons
                return
            well_typed(effects)
            bounded(bench[ME], bench.config, len(script))
            bench.lose()

    survives()


def test_the_places_are_where_they_say() -> None:
    phases = {place: build()[ME].phase for place, build in PLACES.items()}
    assert phases == {
        "alone": Phase.OPERATIONAL,
        "operational": Phase.OPERATIONAL,
        "resting": Phase.OPERATIONAL,
        "gather": Phase.GATHER,
        "waiting": Phase.GATHER,
        "commit": Phase.COMMIT,
        "recover": Phase.RECOVER,
    }
    assert resting()[ME].snapshot()["token_held"]
    assert waiting()[ME].gather.waiting

"""Swarms on networks of rings: some seeds here, thousands by hand (docs/simulator.md)."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from redundant import WHOLE_US, Unbroken, broken, redundant

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.rings import SHAPES, shaped
from ringcast.core.trace import Delivered, Installed
from ringcast.protocols.totem_multi import TotemMulti
from ringcast.protocols.totem_multi.messages import Said, Sort, written
from ringcast.sim.faults import NetworkPartition, NodeCrash, Restart
from ringcast.sim.rings import PORT, attached, connected, in_domain
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson


@pytest.mark.parametrize("seed", range(4))
def test_a_swarm_finds_nothing(seed: int) -> None:
    """S-37: random networks and faults, all properties; some seeds of the many."""
    assert not run(draw(seed, "totem-multi")).violations


STOOD_STILL = [
    *((3200311, 7), (3100182, 8), (3400246, 6), (3400677, 6), (3400253, 10), (3400131, 7)),
    *((3700222, 6), (3000834, 12), (3800099, 10), (3001058, 10)),
    *((3001533, 16), (3007202, 13), (3006714, 6), (3003112, 10), (3005164, 16), (3000563, 11)),
    (3004223, 7),
]


@pytest.mark.parametrize(("seed", "nodes"), STOOD_STILL)
def test_runs_that_stood_still(seed: int, nodes: int) -> None:
    """G-25: a gateway skipped rings that others had installed with it; it was to tell how one of
    them went on, or was lost with one. A4 ext, A7: safe messages that a gateway had refused were
    taken for the stream of their ring, on a cycle. G-20: a word was waited for that nobody had to
    say; and one was not that only a gateway could say, twice. A3: one was waited for that had been
    said on another ring. MR-29: between two changes of a merge a stream was forgotten. MR-12: a
    late message was taken for a copy. A11: a late change came back. MR-40: nobody looked. G-18 ext:
    a Topology Change was taken for which nobody waited. G-25 ext: a ring was applied with gateways
    that never came, and what lay beyond them was lost for a moment, or was by one processor alone,
    when somebody told it of them."""
    assert not run(draw(seed, "totem-multi", nodes)).violations


@pytest.mark.parametrize("seed", [3100222, 3100553])
def test_runs_that_stood_still_under_load(seed: int) -> None:
    """G-14: a ring was lost and came back before one processor had come to either. A4 ext: one
    waited for a Topology Change, and its sender for a refusal."""
    spec = draw(seed, "totem-multi")
    more = (*spec.workload, Poisson(rate=100, safe=0.5))
    assert not run(msgspec.structs.replace(spec, workload=more)).violations


def test_a_life_without_storage_says_nothing_of_the_groups_of_the_one_before() -> None:
    """P-18 held a processor to a group by places of a life that began again below the last one."""
    assert not run(draw(3800200, "totem-multi")).violations


def test_a_cycle_of_seven_on_which_a_message_was_lost() -> None:
    """MR-32 ext: a gateway came with one change, told nothing, and was told of at the next one."""
    assert not run(draw(3500040, "totem-multi")).violations


def test_a_tree_on_which_a_cause_was_overtaken() -> None:
    """MR-10 ext: a gateway's own message had waited longer than what it had to pass on."""
    assert not run(draw(3500133, "totem-multi", 7)).violations


def test_a_triangle_on_which_a_cause_was_overtaken() -> None:
    """T5: a gateway had delivered what it left to another one to pass on."""
    assert not run(draw(3006476, "totem-multi", 6)).violations


@pytest.mark.parametrize(("seed", "nodes"), [(3006559, 7), (3002101, 11)])
def test_queues_that_are_full_take_time(seed: int, nodes: int) -> None:
    """What waits when the last fault is over belongs to the time that a network may take."""
    assert not run(draw(seed, "totem-multi", nodes)).violations


def test_a_tree_on_which_a_gateway_was_lost_that_had_withheld_a_message() -> None:
    """F7: a member of its group went on without it, in a topology where others delivered it."""
    assert not run(draw(3600124, "totem-multi", 7)).violations


def test_a_cycle_on_which_a_change_overtook_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A8 ext. The seed shows it with the one queue of MR-10 as printed."""

    def say(self: TotemMulti, env: Env, pid: NodeId, said: Said) -> None:
        ring = self.ports[pid].part
        ring.call(env, ring.machine.carry, (written(said),), Sort.SAID)

    monkeypatch.setattr(TotemMulti, "_say", say)
    assert not run(draw(3500087, "totem-multi", 6)).violations


def test_a_chain_on_which_one_comes_to_a_safe_message_long_after_another() -> None:
    """P-14: the other one went on alone since, with thousands of messages."""
    assert not run(draw(3000758, "totem-multi", 10)).violations


def test_a_run_can_be_repeated_from_its_number_of_processors() -> None:
    spec = draw(3, "totem-multi")
    assert draw(3, "totem-multi", spec.nodes) == spec
    assert run(spec).digest == run(spec).digest


@pytest.mark.parametrize("seed", range(6))
def test_either_of_two_gateways_may_be_killed_at_any_moment(seed: int) -> None:
    """S-12: nothing is lost, nothing is delivered twice, no topology loses anybody else."""
    assert broken(seed) == []


def test_a_loss_behind_redundant_gateways_would_be_seen() -> None:
    """Both gateways of a pair are killed, so one side delivers what the other never hears of."""
    spec = redundant(0)
    both = tuple(NodeCrash(WHOLE_US, node) for node in spec.rings[0] if node in spec.rings[1])
    spec = msgspec.structs.replace(spec, faults=both, duration_us=WHOLE_US * 2, settle=False)
    seen = Unbroken(spec)
    assert not run(spec, [seen]).violations
    found = " ".join(seen.judge())
    assert "topology without" in found and "lost: " in found and "otherwise than" in found


def test_a_message_that_two_gateways_deliver_twice_would_be_seen() -> None:
    seen = Unbroken(redundant(0))
    for node in seen.stay:
        ring = ViewId(4, node)
        seen(Installed(node, 1, 0, ring, seen.all, False, ring, 0, None, None))
        for n in (2, 3):
            seen(Delivered(node, n, 1, ring, ViewId(4, 1), 7, 1, Level.AGREED, 1, (5,)))
    assert seen.judge() == ["a message was delivered twice"]


def test_rings_are_placed_and_joined() -> None:
    rings = shaped("chain", 3, 1, Random(0))
    assert rings == ((1, 4), (2, 4, 5), (3, 5))
    assert attached(rings)[4] == ((0, 4), (1, 4 + PORT))
    assert in_domain(rings, 1, (2, 4)) == (2, 4 + PORT)
    assert connected(rings, (1, 2, 4)) and not connected(rings, (1, 2))
    for shape in SHAPES:
        found = shaped(shape, 4, 2, Random(1))
        assert connected(found, {node for ring in found for node in ring})


def test_what_does_not_fit_a_network_of_rings_is_refused() -> None:
    rings = ((1, 3), (2, 3))
    spec = RunSpec(protocol="totem-multi", nodes=3, rings=rings)
    prepare(spec)
    faults = (NetworkPartition(5, ((2,), (3 + PORT,)), 1), Restart(6, 3))
    prepare(msgspec.structs.replace(spec, faults=faults))
    for wrong, why in (
        (msgspec.structs.replace(spec, protocol="totem"), "one processor is in 2 of them"),
        (msgspec.structs.replace(spec, nodes=4), "each somewhere"),
        (msgspec.structs.replace(spec, faults=(NodeCrash(5, 9),)), "no such processors"),
        (msgspec.structs.replace(spec, faults=(NodeCrash(5, 3 + PORT),)), "no such processors"),
        (
            msgspec.structs.replace(spec, faults=(NetworkPartition(5, ((2,), (3,)), 1),)),
            r"no such processors in domain 1, which has \[2, 1003\]: \[3\]",
        ),
        (
            msgspec.structs.replace(spec, faults=(NetworkPartition(5, ((2,), (3,)), 2),)),
            "domain 2 is none of 0 .. 1",
        ),
        (
            msgspec.structs.replace(spec, nodes=5, rings=(*rings, (4, 5))),
            r"no gateways lead from the first ring to \[\[4, 5\]\]",
        ),
    ):
        with pytest.raises(ValueError, match=why):
            prepare(wrong)

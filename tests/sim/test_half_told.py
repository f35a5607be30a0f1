"""A gateway goes between two words: it has told the others that a ring broke, and not how that ring
went on. Random faults meet that moment in one run of thousands; here it is waited for."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from ringcast.checks import suite
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi import SHEET, Config, TotemMulti
from ringcast.protocols.totem_multi.messages import Change, Sort, read
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached

MS = 1_000
NETWORKS: tuple[tuple[tuple[NodeId, ...], ...], ...] = (
    ((1, 2, 5, 6), (3, 4, 5, 6)),
    ((1, 5, 6, 7), (3, 5, 6, 7)),
    ((1, 5, 6), (2, 5, 7), (3, 6, 7)),
    ((1, 5, 6, 7), (3, 4, 5, 6, 8), (2, 7, 8)),
)
QUICK = Config(
    token_loss_us=60 * MS,
    token_retransmit_us=10 * MS,
    join_us=10 * MS,
    consensus_us=72 * MS,
    announce_us=100 * MS,
    gv_min_us=1 * MS,
    hold_us=5 * MS,
)


class Network:
    """One run, and what its members must come to."""

    def __init__(self, rings: tuple[tuple[NodeId, ...], ...], config: Config, seed: int) -> None:
        self.places = attached(rings)
        self.checks = suite(SHEET.claims(config))
        self.cluster = Cluster(
            SHEET, config, self.places, preset("ideal"), seed, [self.checks.feed], self.places
        )
        self.cluster.start()
        self.sent = 0

    def say(self, node: NodeId, level: Level = Level.AGREED, size: int = 300) -> None:
        self.sent += 1
        self.cluster.submit(node, (b"%d." % self.sent * (size // 4),), level)

    def machine(self, node: NodeId) -> TotemMulti:
        found = self.cluster.machine(node)
        assert isinstance(found, TotemMulti)
        return found

    def half_told(self, node: NodeId, within_us: int) -> NodeId | None:
        """Go on until a gateway has told a transitional change, and the regular one waits at an
        interface of it."""
        cluster = self.cluster
        end_us = cluster.now_us + within_us
        while cluster.now_us < end_us and cluster.step():
            for pid, port in self.machine(node).ports.items():
                queue = port.part.machine.new_message_queue._queue
                told = [read(body) for body, sort in queue if sort == Sort.SAID]
                changes = [each for each in told if type(each) is Change]
                if changes and not changes[0].transitional:
                    return pid
        return None

    def judge(self) -> None:
        """All that are up have one topology, nothing waits, and the checks have seen nothing."""
        assert not self.checks.violations and not self.cluster.recorder.violations
        cores = {node: self.machine(node).order for node in self.cluster.up()}
        assert len({frozenset(core.topology) for core in cores.values()}) == 1
        for node, core in cores.items():
            assert not core.pending and not any(e.items for e in core.entries.values()), node
            assert not core.late, node


@pytest.mark.parametrize("back", ["from a crash", "from a cut"])
def test_g_16_ext_a_gateway_that_had_told_half_a_change_comes_back(back: str) -> None:
    """6 was alone on ring B, and what it told of that came too late at the others. When it was
    there again, they waited for it to tell how its former ring went on."""
    network = Network(NETWORKS[0], Config(), 0)
    cluster = network.cluster
    cluster.run_for(1_500 * MS)
    for _ in range(21):
        for node in (1, 3, 4):
            network.say(node)
        cluster.run_for(1 * MS)
    cluster.partition([[3, 4, 1005], [1006]], domain=1)
    assert network.half_told(6, 1_500 * MS) == 6
    if back == "from a crash":
        cluster.crash(6)
        cluster.heal()
        cluster.run_for(1_500 * MS)
        cluster.restart(6)
    else:
        cluster.heal()
        cluster.partition([[1, 2, 5], [6]], domain=0)
        cluster.run_for(2_000 * MS)
        cluster.heal()
    cluster.run_for(2_000 * MS)
    for node in (1, 3, 4):
        network.say(node)
    cluster.run_for(1_000 * MS)
    network.judge()


@pytest.mark.parametrize("seed", [*range(6), 19, 115, 134, 141])
def test_gateways_that_tell_half_a_change(seed: int) -> None:
    """The last four stood still: G-16 ext, and A3 ext in the last one."""
    rng = Random(seed)
    rings = rng.choice(NETWORKS)
    each_time = rng.choice((2, 10))
    config = replace(QUICK, packing=rng.random() < 0.5, each_time=each_time)
    network = Network(rings, config, seed)
    cluster, places = network.cluster, network.places
    cluster.run_for(600 * MS)
    levels = (Level.AGREED, Level.AGREED, Level.SAFE)
    for _ in range(rng.choice((1, 2, 3))):
        for _ in range(18):
            network.say(rng.choice(list(places)), rng.choice(levels), rng.choice((4, 240)))
            cluster.run_for(rng.randrange(500))
        domain = rng.randrange(len(rings))
        ids = [pid for ports in places.values() for at, pid in ports if at == domain]
        rng.shuffle(ids)
        parts = rng.randrange(1, len(ids))
        cluster.partition([ids[:parts], ids[parts:]], domain=domain)
        gateway = rng.choice([node for node, ports in places.items() if len(ports) > 1])
        pid = network.half_told(gateway, 400 * MS)
        if crashes := pid is None or rng.random() >= 0.5:
            cluster.crash(gateway)
        else:
            cut = next(at for at, own in places[gateway] if own == pid)
            others = [own for each in places.values() for at, own in each if at == cut]
            cluster.partition(
                [[own for own in others if own != pid], [own for own in others if own == pid]],
                domain=cut,
            )
        cluster.run_for(rng.choice((0, 20, 200, 400)) * MS)
        if rng.random() < 0.5:
            cluster.heal()
        if crashes:
            cluster.run_for(rng.choice((0, 100, 400)) * MS)
            cluster.restart(gateway)
    cluster.heal()
    cluster.run_for(2_500 * MS)
    network.say(1)
    cluster.run_for(1_500 * MS)
    network.judge()

"""Detector, channel, reliable broadcast and consensus together, over links that lose frames."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from deciders import DECIDERS, MESSAGES, Config, Deciders, Offer

from ringcast.core.inputs import Received
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Loss, inflict
from ringcast.sim.model import LinkModel, NetworkModel, Uniform


def group(n: int, seed: int, **settings: int) -> Cluster:
    config = Config(members=tuple(range(1, n + 1)), **settings)  # type: ignore[arg-type]
    model = NetworkModel(link=LinkModel(delay=Uniform(50, 400)))
    cluster = Cluster(DECIDERS, config, config.members, model, seed)
    for node in cluster.ids:
        cluster.start(node)
    return cluster


def logs(cluster: Cluster) -> dict[int, list[Offer]]:
    found = {}
    for node in cluster.up():
        machine = cluster.machine(node)
        assert isinstance(machine, Deciders)
        found[node] = machine.log
    return found


@pytest.mark.parametrize("n", [1, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_all_decide_the_same_again_and_again(n: int, seed: int) -> None:
    """Loss, wrong suspicions, crashes of a minority; then calm, and all is decided once."""
    rng = Random(f"{n}/{seed}")
    cluster = group(n, seed, suspect_us=2_500)
    inflict(Loss(0, 0.3, 0.3), cluster)
    for number in range(6):
        node = rng.choice(cluster.up())
        cluster.submit(node, (b"%d" % number,))
        cluster.run_for(rng.randrange(8_000))
        if rng.random() < 0.2 and len(cluster.up()) > n // 2 + 1:
            cluster.crash(rng.choice(cluster.up()))
    cluster.calm()
    cluster.run_for(1_000_000)
    found = logs(cluster)
    assert len(set(map(tuple, found.values()))) == 1
    decided = found[cluster.up()[0]]
    assert len(decided) == len(set(decided))
    for node in cluster.up():
        machine = cluster.machine(node)
        assert isinstance(machine, Deciders)
        assert not machine.pending and list(machine.parts) == ["offers"]
        own = [offer.number for offer in decided if offer.node == node]
        assert sorted(own) == list(range(1, machine.submitted + 1))


def test_large_values_travel_in_pieces() -> None:
    cluster = group(3, 1, piece_bytes=1_000)
    inflict(Loss(0, 0.2, 0.2), cluster)
    cluster.submit(2, (b"x" * 10_000,))
    cluster.run_for(500_000)
    assert {len(log[-1].body) for log in logs(cluster).values()} == {10_000}


def test_every_frame_survives_the_wire() -> None:
    """What is nested in a packet is decoded to the types that were sent."""
    cluster = group(3, 1)
    frames: list[msgspec.Struct] = []
    network = cluster.networks[0]
    original = network.send

    def send(to: int, frame: Received) -> None:
        frames.append(frame.message)
        original(to, frame)

    network.send = send  # type: ignore[method-assign]
    cluster.submit(1, (b"x",))
    cluster.run_for(50_000)
    decode = msgspec.msgpack.Decoder(MESSAGES[0] | MESSAGES[1] | MESSAGES[2]).decode
    assert len(frames) > 10
    assert [decode(msgspec.msgpack.encode(frame)) for frame in frames] == frames

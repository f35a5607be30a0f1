"""Named networks; above all the one that the published figures were measured on."""

from __future__ import annotations

import pytest

from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import PRESETS, preset
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import Poisson, Saturate, Sizes


@pytest.mark.parametrize("name", ["ideal", "lan", "lossy"])
def test_totem_works_on_every_fast_network(name: str) -> None:
    spec = RunSpec(nodes=3, network=name, duration_us=300_000, workload=(Poisson(rate=100),))
    result = run(spec)
    assert result.violations == ()
    assert result.deliveries >= 2 * result.submitted


def throughput(size: int, senders: tuple[int, ...] = (), each_time: int = 14) -> float:
    """Messages a second on five Sun IPCs with full queues, as one of them delivers them."""
    config = {"packing": False, "each_time": each_time}
    spec = RunSpec(nodes=5, network="sun-ipc-ethernet", profile="measured", config=config)
    setup = prepare(spec)
    cluster = Cluster(setup.sheet, setup.config, spec.ids, setup.model)
    cluster.start()
    workload.start((Saturate(sizes=(Sizes(size, size),), senders=senders),), cluster, 0)
    cluster.run_until(1_000_000)
    before = cluster.counts.deliveries
    cluster.run_for(4_000_000)
    return (cluster.counts.deliveries - before) / 5 / 4


@pytest.mark.parametrize(("size", "published"), [(1024, 810), (600, 918), (4, 1130)])
def test_published_throughput(size: int, published: float) -> None:
    assert throughput(size) == pytest.approx(published, rel=0.05)


def test_one_sender_is_as_fast_as_five() -> None:
    assert throughput(1024, (1,), each_time=70) == pytest.approx(810, rel=0.05)


def test_an_unknown_network_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match="known: ideal, lan, wan, lossy, sun-ipc-ethernet"):
        preset("moon")
    assert preset("lan") is PRESETS["lan"]

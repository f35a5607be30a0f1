"""What one slow ring costs the others (docs/protocols.md, a slow ring)."""

from __future__ import annotations

from random import Random

import pytest

from ringcast.core.rings import shaped
from ringcast.core.trace import Delivered, Submit, TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached


@pytest.mark.parametrize("gap_us", [700, 9_000])
@pytest.mark.parametrize("hop_us", [500, 4_000])
def test_g_33_a_slow_ring_delays_the_others_by_no_more_than_its_bound(
    hop_us: int, gap_us: int
) -> None:
    """gv_min_us, two rotations and a hop (docs/protocols.md, a slow ring); in simulated time."""
    config = Config(acyclic=True)
    rings = shaped("star", 3, 2, Random(0))
    places = attached(rings)
    slow = rings[-1]

    def worst_us(hop_us: int) -> int:
        sent: dict[int, int] = {}
        last: dict[int, int] = {}

        def see(event: TraceEvent) -> None:
            if isinstance(event, Submit) and event.node == 1:
                sent[event.first] = event.t_us
            elif isinstance(event, Delivered) and event.node not in slow and event.sender == 1:
                last.update(
                    dict.fromkeys(range(event.first, event.first + len(event.digests)), event.t_us)
                )

        cluster = Cluster(SHEET, config, places, preset("ideal"), 1, [see], places)
        cluster.networks[-1].become(NetworkModel(link=LinkModel(delay=Constant(hop_us))))
        cluster.start()
        cluster.run_until(3_000_000)
        for number in range(40):
            assert cluster.submit(1, (b"%d" % number,))
            cluster.run_for(gap_us)
        cluster.run_for(100 * hop_us)
        assert len(sent) == len(last) == 40
        return max(last[first] - sent[first] for first in sent)

    added_us = worst_us(hop_us) - worst_us(100)
    assert hop_us < added_us <= config.gv_min_us + (2 * len(slow) + 1) * hop_us

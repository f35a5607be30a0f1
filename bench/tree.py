"""Frames on each ring with the tree of T1 to T4 and without it, in the simulator.

``tree.py`` prints a table: two rings with two gateways between them, and a cycle of four rings; one
processor on each ring sends 200 messages of 1,000 bytes a second to all, for a second.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest.mock import patch

from ringcast.core.effects import Broadcast, Effect
from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings, shaped
from ringcast.protocols.totem_multi.routing import TreeRouting
from ringcast.protocols.totem_single.messages import Regular
from ringcast.sim.rings import attached
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson, Sizes

FROM_US, UPTO_US = 200_000, 1_200_000
"""What is counted: the rings have formed by then."""

SHAPES = {"two gateways between two rings": ("chain", 2, True), "cycle of 4": ("cycle", 4, False)}


class Frames:
    """Counts messages' frames, and their bytes, by ring."""

    def __init__(self, rings: Rings) -> None:
        self._ports = attached(rings)
        self.frames: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """What a processor does."""
        for each in effects:
            if type(each) is Broadcast and type(each.message) is Regular and now_us >= FROM_US:
                ring = self._ports[node][each.port][0]
                self.frames[ring] += 1
                self.bytes[ring] += sum(map(len, each.message.contents.bodies))
        return effects


def measured(rings: Rings) -> tuple[list[int], list[int], float]:
    """Frames and kilobytes of each ring in a second, and milliseconds until a message is
    delivered."""
    seen = Frames(rings)
    load = Poisson(rate=200, sizes=(Sizes(1000, 1000),), senders=tuple(ring[0] for ring in rings))
    spec = RunSpec(
        protocol="totem-multi",
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        duration_us=UPTO_US,
        measure_from_us=FROM_US,
        network="lan",
        workload=(load,),
        settle=False,
    )
    result = run(spec, taps=[seen])
    assert not result.violations
    size = range(len(rings))
    kilobytes = [round(seen.bytes[at] / 1000) for at in size]
    return [seen.frames[at] for at in size], kilobytes, result.measures.agreed.mean_ms


def main() -> None:
    """Print the table."""
    print("| network | | frames on each ring | kB | ms to delivery |")
    print("| --- | --- | --- | --- | ---: |")
    for name, (kind, count, twice) in SHAPES.items():
        rings = shaped(kind, count, 2, Random(0), twice)
        with patch.object(TreeRouting, "keeps", lambda *_: False):
            without = measured(rings)
        for how, found in (("every gateway", without), ("tree", measured(rings))):
            frames, kilobytes = (", ".join(map(str, some)) for some in found[:2])
            print(f"| {name} | {how} | {frames} | {kilobytes} | {found[2]:.1f} |")


if __name__ == "__main__":
    main()

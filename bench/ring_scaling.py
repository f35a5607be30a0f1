"""What joined rings carry, simulated on the preset ``lan``: stars of rings, chains of them.

``python bench/ring_scaling.py`` prints two tables and takes some minutes on a quiet core:

- ``star``: R rings of four senders, each sending to its own ring (``local``) or to all, over one
  ring of four senders and a silent member in the gateway's place. Each sender has so many messages
  of 1,000 bytes under way as fill the ring, and no more: a full queue would block all (MR-39).
- ``chain``: latency of agreed and safe delivery by the length of the chain and ``gv_min_us``, with
  one sender at the first ring and nothing else to say.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

from ringcast.core.rings import Rings, shaped
from ringcast.sim.meter import Measures
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import ClosedLoop, Poisson, Sizes, Workload

SENDERS = 4
FORMED_US = 400_000
"""By then all rings are joined."""


def star(count: int, local: bool, under_way: int, measured_us: int) -> float:
    """Messages a second over all rings."""
    rings = shaped("star", count, SENDERS, Random(0))
    if count == 1:
        rings = (tuple(range(1, SENDERS + 2)),)
    loads = tuple(
        ClosedLoop(
            senders=ring[:SENDERS],
            to=tuple(sorted(ring)) if local else (),
            sizes=(Sizes(1000, 1000),),
            outstanding=under_way,
            think_us=1,
        )
        for ring in rings
    )
    return measure(rings, loads, FORMED_US, measured_us).messages_per_s


def chain(count: int, gv_min_us: int, safe: float) -> float:
    """Milliseconds from sending to delivery, averaged over receivers."""
    rings = shaped("chain", count, 1, Random(0))
    if count == 1:
        rings = ((1, 2),)
    load = Poisson(rate=50, senders=(1,), safe=safe)
    settings = {"gv_min_us": gv_min_us}
    measures = measure(rings, (load,), 2 * FORMED_US, 1_000_000, settings)
    return (measures.safe if safe else measures.agreed).mean_ms


def measure(
    rings: Rings,
    loads: tuple[Workload, ...],
    from_us: int,
    measured_us: int,
    settings: dict[str, Any] | None = None,
) -> Measures:
    """One run."""
    spec = RunSpec(
        protocol="totem-multi",
        nodes=max(node for ring in rings for node in ring),
        rings=rings if len(rings) > 1 else (),
        duration_us=from_us + measured_us,
        measure_from_us=from_us,
        config={"acyclic": True, **(settings or {})},
        workload=loads,
        settle=False,
    )
    result = run(spec)
    assert not result.violations, result.violations
    assert result.measures is not None
    return result.measures


def main() -> None:
    """Both tables, or one."""
    parser = argparse.ArgumentParser(description="rates and latencies of joined rings, simulated")
    parser.add_argument("tables", nargs="*", default=["star", "chain"])
    parser.add_argument("--rings", type=int, default=8, help="of the largest star or chain")
    parser.add_argument("--measured-ms", type=int, default=150)
    args = parser.parse_args()
    counts = [count for count in (1, 2, 4, 8, 16) if count <= args.rings]
    if "star" in args.tables:
        print("rings  under way  local/s  per ring  all/s   over one", flush=True)
        one = 0.0
        for count in counts:
            for under_way in (20, 40):
                local = star(count, True, under_way, args.measured_ms * 1000)
                both = star(count, False, under_way // count or 1, args.measured_ms * 1000)
                one = max(one, both) if count == 1 else one
                share = local / (count * one)
                print(
                    f"{count:5}  {under_way:9}  {local:7.0f}  {share:8.2f}  {both:6.0f}  "
                    f"{both / one:.2f}",
                    flush=True,
                )
    if "chain" in args.tables:
        print("rings  gv_min_us  agreed ms  safe ms", flush=True)
        for count in counts:
            for gv_min_us in (1_000, 5_000, 20_000):
                agreed, safe = (chain(count, gv_min_us, share) for share in (0.0, 1.0))
                print(f"{count:5}  {gv_min_us:9}  {agreed:9.2f}  {safe:7.2f}", flush=True)


if __name__ == "__main__":
    main()

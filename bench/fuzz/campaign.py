"""Hostile frames and bytes by the million: no exception, no growth, no long step.

``campaign.py totem`` gives structured frames to a machine in a group, ``sockets`` to live nodes,
``bytes`` gives spoilt records, manifests and journals to what reads them. A run goes on from where
the last one of the same kind ended (``bench/results/fuzz.json``), until ``--upto`` are done in all
or ``--minutes`` have passed. ``--seed`` repeats one round and stops at what it finds.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import over_sockets
import spoilt_files
from world import World, weight

import ringcast.protocols  # noqa: F401  # registers them
from ringcast.core.registry import protocol, protocols

sys.path.insert(0, str(Path(__file__).parent.parent))
from record import RESULTS, commit, write

ROUND = 3000
"""Frames, or spoilt files, of one seed."""
STEP_NS = 5_000_000
MOST_OBJECTS, MOST_BYTES = 400_000, 64 * 2**20
"""What hangs together with a machine of the default settings, at most."""
LIVE = [each.name for each in protocols() if each.live]
MAY_STOP = (
    "another processor uses the id",
    "broken invariant",
    "left",
    "excluded too often",
    "fell behind",
)


def frames(name: str, seed: int) -> dict[str, Any]:
    """One round; AssertionError if something is wrong."""
    world = World(protocol(name), seed)
    gc.freeze()
    world.live(150)
    heaviest = (0, 0)
    for number in range(ROUND):
        world.attack()
        if number % 3 == 0:
            world.live(world.pace)
        if number % 100 == 0:
            world.aim()
        if number % 1000 == 999:
            heaviest = max(heaviest, weight(world.victim.machine))
    gc.unfreeze()
    objects, size = heaviest
    assert objects <= MOST_OBJECTS and size <= MOST_BYTES, f"{objects} objects, {size} bytes"
    strange = [reason for reason in world.stops if not reason.startswith(MAY_STOP)]
    assert not strange, strange
    return {
        "done": world.sent,
        "refused": world.refused,
        "stops": sum(world.stops.values()),
        "longest_us": world.longest_ns // 1000,
        "slowest": world.slowest,
        "objects": objects,
        "bytes": size,
    }


def together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two results as one: counts are added, extremes kept."""
    if not one:
        return other
    found = {name: one[name] + other[name] for name in ("done", "refused", "stops")}
    slower = max(one, other, key=lambda each: int(each["longest_us"]))
    found |= {name: slower[name] for name in ("longest_us", "slowest")}
    return found | {name: max(one[name], other[name]) for name in ("objects", "bytes")}


def one_round(kind: str, seed: int) -> dict[str, Any]:
    """A round of any kind."""
    if kind == "bytes":
        return spoilt_files.round_of(seed, ROUND)
    if kind == "sockets":
        return over_sockets.round_of(LIVE, seed, 10 * ROUND)
    return frames(kind, seed)


def main() -> None:
    """Run, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*LIVE, "sockets", "bytes"])
    parser.add_argument("--upto", type=float, default=3e7)
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    if asked.seed is not None:
        print(json.dumps(one_round(asked.kind, asked.seed), indent=2))
        return
    deadline = time.monotonic() + 60 * asked.minutes
    file = RESULTS / "fuzz.json"
    record = json.loads(file.read_text("utf-8")) if file.exists() else {}
    found = dict(record.get(asked.kind, {}))
    seed, slow = found.pop("seeds", 0), found.pop("slow", [])
    found.pop("commit", None)
    while found.get("done", 0) < asked.upto and time.monotonic() < deadline:
        try:
            result = one_round(asked.kind, seed)
        except Exception as error:
            error.add_note(f"repeats with: {asked.kind} --seed {seed}")
            raise
        if result["longest_us"] * 1000 > STEP_NS:  # the machine's doing, unless it is again
            result["longest_us"] = min(
                result["longest_us"], one_round(asked.kind, seed)["longest_us"]
            )
        if result["longest_us"] * 1000 > STEP_NS:
            slow = [*slow, seed][-20:]
        found = together(found, result)
        seed += 1
    found |= {"seeds": seed, "slow": slow, "commit": commit()}
    record = {name: each for name, each in record.items() if name not in ("commit", "machine")}
    print(write("fuzz", record | {asked.kind: found}), json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

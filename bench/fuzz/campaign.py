"""Hostile frames and bytes by the million: no exception, no growth, no long step.

``campaign.py totem`` gives structured frames to a machine in a group, ``sockets`` to live nodes,
``bytes`` gives spoilt records, manifests and journals to what reads them; ``all`` is each of them
in turn. A run goes on from where the last one of the same kind ended (``bench/results/fuzz.json``),
until ``--upto`` are done in all or ``--minutes`` have passed. What a seed finds is noted in the
record, ``--seed`` repeats it, and the next run drops it if it finds nothing any more. Several runs
may go on at once if each has kinds of its own.
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
from steps import together
from world import World, weighed

import ringcast.protocols  # noqa: F401  # registers them
from ringcast.core.registry import protocol, protocols

sys.path.insert(0, str(Path(__file__).parent.parent))
from record import alone, commit, read, write

ROUND = 3000
"""Frames of one seed; of bytes ten times as many, over sockets thirty times."""
AIMED, REST = 120, 24
"""Frames of one kind in a row, and what the group may do before the next."""
WEIGHED = 1500
"""Frames between two looks at how much a machine holds."""
STEP_US = 5000
SLICE_S = 15.0
"""For which a kind is run, before it is the next one's turn."""
LIVE = [each.name for each in protocols() if each.live]
UPTO = {**dict.fromkeys(LIVE, 3e7), "sockets": 1e7, "bytes": 1e7}
"""Of each kind, how many are asked."""
NOTES: dict[str, Any] = {"seeds": 0, "slow": [], "failed": {}}
"""What a record holds besides counts: the next seed, seeds with long steps, and what failed."""
MOST_FAILED = 20
MAY_STOP = (
    "another processor uses the id",
    "broken invariant",
    "diverged",
    "left",
    "excluded too often",
    "fell behind",
    "gap",
)


def frames(name: str, seed: int) -> dict[str, Any]:
    """One round; AssertionError if something is wrong."""
    world = World(protocol(name), seed)
    gc.freeze()
    world.live(150)
    heaviest = (0, 0)
    while world.sent < ROUND:
        if world.sent % AIMED == 0:
            world.aim()
            world.live(REST)
        world.attack()
        world.live(world.pace)
        if world.sent % WEIGHED == 0:
            heaviest = max(heaviest, weighed(world.victim.machine))
    gc.unfreeze()
    objects, size = heaviest
    strange = [reason for reason in world.stops if not reason.startswith(MAY_STOP)]
    assert not strange, strange
    return {
        "done": world.sent,
        "refused": world.refused,
        "stops": sum(world.stops.values()),
        "longest_us": world.steps.longest_ns // 1000,
        "slowest": world.steps.slowest,
        "objects": objects,
        "bytes": size,
    }


def one_round(kind: str, seed: int) -> dict[str, Any]:
    """A round of any kind."""
    if kind == "bytes":
        return spoilt_files.round_of(seed, 10 * ROUND)
    if kind == "sockets":
        return over_sockets.round_of(LIVE, seed, 30 * ROUND)
    return frames(kind, seed)


def go_on(kind: str, so_far: dict[str, Any], upto: float, until: float) -> dict[str, Any]:
    """Rounds of a kind from where it ended, until so many pieces are done, or that time."""
    found = dict(so_far)
    seed, slow, failed = (found.pop(name, none) for name, none in NOTES.items())
    found.pop("commit", None)
    while found.get("done", 0) < upto and time.monotonic() < until:
        try:
            result = one_round(kind, seed)
            if result["longest_us"] > STEP_US:  # the computer's doing, unless it is again
                again = one_round(kind, seed)["longest_us"]
                result["longest_us"] = min(result["longest_us"], again)
        except Exception as error:
            if len(failed) < MOST_FAILED:
                failed = failed | {str(seed): repr(error)[:300]}
            print(f"{kind} --seed {seed}: {error!r}"[:300], flush=True)
        else:
            if result["longest_us"] > STEP_US:
                slow = [*slow, seed][-MOST_FAILED:]
            found = together(found, result)
        seed += 1
    return found | {"seeds": seed, "slow": slow, "failed": failed, "commit": commit()}


def still_failing(kind: str, failed: dict[str, str]) -> dict[str, str]:
    """What seeds that failed find now."""
    found: dict[str, str] = {}
    for seed in failed:
        try:
            one_round(kind, int(seed))
        except Exception as error:
            found[seed] = repr(error)[:300]
    return found


def recorded() -> dict[str, Any]:
    """What was found so far, by kind."""
    return {name: each for name, each in read("fuzz").items() if name in UPTO}


def note(kind: str, found: dict[str, Any]) -> None:
    """Put what a kind came to into the record; another run may write those of others."""
    with alone():
        write("fuzz", recorded() | {kind: found})


def main() -> None:
    """Run, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", choices=[*UPTO, "all"])
    parser.add_argument("--upto", type=float)
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    kinds = list(UPTO) if "all" in asked.kinds else asked.kinds
    if asked.seed is not None:
        print(json.dumps({kind: one_round(kind, asked.seed) for kind in kinds}, indent=2))
        return
    upto = {kind: asked.upto or UPTO[kind] for kind in kinds}
    deadline = time.monotonic() + 60 * asked.minutes
    record = {kind: each for kind, each in recorded().items() if kind in kinds}
    for kind in record:
        record[kind]["failed"] = still_failing(kind, record[kind]["failed"])
    missing = list(kinds)
    while missing and time.monotonic() < deadline:
        for kind in missing:
            until = min(deadline, time.monotonic() + SLICE_S)
            record[kind] = go_on(kind, record.get(kind, {}), upto[kind], until)
            note(kind, record[kind])
            gc.collect()  # while a round runs, those before it are frozen
        missing = [kind for kind in missing if record[kind].get("done", 0) < upto[kind]]
    print(json.dumps({kind: record[kind] for kind in kinds}, indent=2))
    sys.exit(any(record[kind]["failed"] for kind in kinds))


if __name__ == "__main__":
    main()

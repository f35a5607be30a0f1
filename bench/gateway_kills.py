"""Two gateways between the same rings, either killed at any moment: is anything lost or doubled?

``gateway_kills.py --seeds 1000 --live 20`` draws so many simulated runs
(``tests/sim/redundant.py``) and lets so many groups of processes lose a gateway and get it back. It
writes ``bench/results/gateway-kills.json``. What was found is kept in a folder named after the
commit, run by run: with ``--minutes`` no run begins later than that, and the next call of the same
commit goes on. Of a kind of which no runs are asked for, what is recorded stays.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from record import commit, read, write

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "sim"), str(ROOT / "tests" / "live")]

from redundant import Unbroken, broken  # noqa: E402
from trial import Trial  # noqa: E402

from ringcast.core.errors import RingcastError  # noqa: E402
from ringcast.sim.faults import NodeCrash  # noqa: E402
from ringcast.sim.spec import RunSpec  # noqa: E402

KINDS = ("live", "simulated")

RINGS = ((1, 3, 4), (2, 3, 4))
"""Of the live runs: a member in each ring, and two gateways."""


def killed_live(seed: int) -> list[str]:
    """One group of processes: what a gateway that is killed, and comes back, breaks."""
    rng = Random(f"{seed}/killed")
    victim = rng.choice((3, 4))
    rest = tuple(node for node in (1, 2, 3, 4) if node != victim)
    seen = Unbroken(RunSpec(nodes=4, rings=RINGS, faults=(NodeCrash(1, victim),)))
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(RINGS, Path(folder), protocol="totem-multi")
        with trial.band:
            try:
                trial.start()
                trial.together()
                trial.work(messages=rng.randint(50, 300))
                trial.band.listen(rng.random() / 2)
                trial[victim].kill()
                trial.together(*rest)
                trial.work(*rest)
                trial.start(victim)
                trial.together()
                trial.work()
                for event in trial.judge():
                    seen(event)
            except (AssertionError, RingcastError) as reason:
                return [str(reason)[:2000]]
    return seen.judge()


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--live", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10**6)
    asked = parser.parse_args()
    folder = ROOT / "out" / f"gateway-kills-{commit()}"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * asked.minutes
    record = {kind: told for kind, told in read("gateway-kills").items() if kind in KINDS}
    for kind, count, act in zip(
        KINDS, (asked.live, asked.seeds), (killed_live, broken), strict=True
    ):
        if not count:
            continue
        file = folder / f"{kind}.json"
        found: dict[str, list[str]] = json.loads(file.read_text()) if file.exists() else {}
        for seed in range(count):
            if str(seed) not in found and time.monotonic() < deadline:
                found[str(seed)] = act(seed)
                file.write_text(json.dumps(found))
                if found[str(seed)]:
                    print(f"{kind} {seed}", *found[str(seed)], sep="\n  ", flush=True)
        bad = {seed: what for seed, what in found.items() if what}
        record[kind] = {"at": commit(), "runs": len(found), "broken": bad}
        print(f"{kind}: {len(found)} runs, {len(bad)} broken", flush=True)
    print(write("gateway-kills", {"command": "python bench/gateway_kills.py", **record}))


if __name__ == "__main__":
    main()

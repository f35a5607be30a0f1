"""The recorded swarms: all seeds that were promised, no violation, every cell reached.

The page docs/simulator.md is made from the records, so what it says need not be compared.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ringcast.core.machine import Impossible, Machine, name
from ringcast.core.registry import protocol
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.irbp.machine import Irbp
from ringcast.protocols.rbp.machine import Rbp
from ringcast.protocols.token_fd.machine import TokenFd
from ringcast.protocols.total import Total
from ringcast.protocols.totem_multi import TotemMulti
from ringcast.protocols.totem_single.machine import TotemSingle

RESULTS = Path(__file__).parents[2] / "bench" / "results"

NEVER = {"Active/Unicast", "Blocked/Unicast", "Blocked/announce"}
"""What only an owner of a machine of TOTAL asks for, and a timer that a proposal cancels."""

SELDOM = {"Out/Ordered", "Out/nack"}
"""An answer of RBP that few runs need, and a timer that whoever leaves a list cancels; whoever
leaves a view of iRBP cancels more."""


@pytest.mark.parametrize(
    ("which", "machine", "modes", "runs", "unreached"),
    [
        ("totem", TotemSingle, {"totem": "lan"}, 30_000, set()),
        ("total", Total, {m: m for m in ("agreed", "prefix", "uniform")}, 10_000, NEVER),
        ("token-fd", TokenFd, {"token-fd": ""}, 30_000, set()),
        ("counter", CounterBased, {"counter": ""}, 30_000, set()),
        ("rbp", Rbp, {"rbp": ""}, 30_000, SELDOM | {"Frozen/Ordered"}),
        ("irbp", Irbp, {"irbp": ""}, 30_000, SELDOM | {"Out/catch", "Out/ready", "Out/resend"}),
        ("totem-multi", TotemMulti, {"totem-multi": ""}, 8_000, set()),
    ],
)
def test_the_record_is_whole_and_clean(
    which: str, machine: type[Machine], modes: dict[str, str], runs: int, unreached: set[str]
) -> None:
    record = json.loads((RESULTS / f"swarm-{which}.json").read_text("utf-8"))
    sheet = protocol(which)
    cells = {f"{phase}/{name(key)}": cell for (phase, key), cell in machine.table.cells.items()}
    visits: Counter[str] = Counter()
    assert record["modes"].keys() == modes.keys()
    for mode, found in record["modes"].items():
        profile = modes[mode] or next(iter(sheet.profiles))
        assert (found["runs"], found["violations"]) == (runs, [])
        claimed = set(sheet.claims(sheet.profiles[profile]))
        assert found["judged"].keys() == claimed
        assert all(valid > runs / 2 for valid, _ in found["judged"].values())
        visits.update({f"{r['phase']}/{r['input']}": r["visits"] for r in found["coverage"]})
    assert visits.keys() == cells.keys(), "the table has changed: run the seeds again"
    impossible = {at for at, cell in cells.items() if isinstance(cell, Impossible)}
    assert {at for at, times in visits.items() if not times} == impossible | unreached


def test_ten_thousand_edits_are_judged_alike_by_three_engines() -> None:
    """``python tests/pipeline/edits.py 400000..410000 --record``."""
    record = json.loads((RESULTS / "edits.json").read_text("utf-8"))
    assert (record["edits"], record["differences"]) == (10_000, 0)
    assert all(each["queries"] for each in record["passes"])

"""The ticket shop under fire. ``python bench/replica/shop_runs.py`` runs fifty seeds over each
protocol."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ticket_run import EXAMPLES, Run, Wrong


@pytest.mark.parametrize(("seed", "protocol"), [(0, "totem"), (1, "counter")])
def test_no_seat_is_sold_twice_and_no_sale_is_lost(
    seed: int, protocol: str, tmp_path: Path
) -> None:
    assert Run(seed, tmp_path, seats=30, faults=4, protocol=protocol).go() > 0


@pytest.mark.slow
def test_a_shop_without_a_quorum_is_caught(tmp_path: Path) -> None:
    """The run can see the fault: each part of a partition sells, and a merge picks one buyer."""
    shop = tmp_path / "shop"
    shop.mkdir()
    text = (EXAMPLES / "tickets.py").read_text()
    for old, new in (
        (
            'Seats(), {1, 2, 3}, PLACE / f"tickets{me}")',
            'Seats(), consistency="available", merge=max)',
        ),
        ("await self._replica.read(lambda m: m.sold, PATIENCE_S)", "self._replica.machine.sold"),
        (", client=client, request=number, timeout=PATIENCE_S", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    (shop / "tickets.py").write_text(text)
    (shop / "local.py").write_text((EXAMPLES / "local.py").read_text())

    def runs() -> None:
        for seed in range(5):
            Run(seed, tmp_path / f"{seed}", 30, 6, shop / "tickets.py").go()

    with pytest.raises(Wrong, match=r"seat \d+"):
        runs()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
def test_nor_in_longer_runs(seed: int, tmp_path: Path) -> None:
    assert Run(seed, tmp_path).go() > 0

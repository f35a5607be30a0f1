"""No seat is sold twice, no confirmed sale is lost, and after healing every seat can be sold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import ticket_shop
from ticket_shop import FAULTS, FIXED, RETURNING, SPAN_S, ShopTest, settings_of

from ringcast.api import quorum
from ringcast.replica.engine import Engine
from ringcast.replica.sessions import Sessions
from ringcast.testing import World, simtest

sys.path.insert(0, str(Path(__file__).parents[1] / "replica"))

from wrong_engines import CountsBlankDisks, ReadsAtOnce, TooFewDisks

SEEDS = 2
"""In the suite; ``bench/simulated.py shops`` runs thousands."""


@pytest.mark.parametrize("protocol", [*RETURNING, *FIXED])
def test_no_seat_is_sold_twice(protocol: str) -> None:
    async def test(world: World) -> None:
        await ShopTest(world, protocol).run()

    settings = settings_of(protocol)
    simtest(seeds=SEEDS, faults=FAULTS, span=SPAN_S, settings=settings)(test)()


def caught(first: int, **wrong: bool) -> str:
    """What is found by a seed that once showed it or, when a change makes that take another course,
    by one of the first ones."""
    for seed in (first, *range(100)):
        if (error := ticket_shop.one(seed, "totem", **wrong).error) is not None:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("engine", "seed", "text"),
    [
        (TooFewDisks, 69, "seat"),
        (CountsBlankDisks, 1, "and was"),
        (ReadsAtOnce, 4, "reads nothing of the confirmed"),
    ],
)
def test_a_wrong_engine_is_caught(
    engine: type[Engine], seed: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum, "Engine", engine)
    assert text in caught(seed)


def test_clients_that_do_not_number_their_orders_are_served_twice() -> None:
    """Fault 4 of the shop that was tried: a client repeats an order because no answer came."""
    assert "is carried out again" in caught(0, numbered=False)


def test_a_table_of_requests_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "recall", lambda *_: None)
    assert "is carried out again" in caught(0)

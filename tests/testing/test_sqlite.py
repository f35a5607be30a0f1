"""SQLite in a world: what was committed survives a crash, and nothing else does."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from ringcast.testing import Host, World
from ringcast.testing.disk import Loss
from ringcast.testing.run import RunSetup, run

BEGIN, INSERT = "begin immediate", "insert into orders values (?, zeroblob(4000))"


async def shop(host: Host, mode: str) -> None:
    """Commits orders, and leaves a transaction open that has outgrown its cache."""
    database = sqlite3.connect(host.folder / "shop.db", isolation_level=None)
    database.execute(f"pragma journal_mode = {mode}")
    database.execute("pragma cache_size = 2")
    database.execute("create table if not exists orders (number integer, data blob)")
    rows = database.execute("select number from orders order by number").fetchall()
    host.found.append([number for (number,) in rows])  # type: ignore[attr-defined]
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    for number in range(3):
        database.execute(INSERT, (10 * host.lives + number,))
    database.execute(BEGIN)
    for _ in range(20):
        database.execute(INSERT, (1000,))
    host.open.append(database)  # type: ignore[attr-defined]
    await asyncio.sleep(1000)


@pytest.mark.parametrize("mode", ["delete", "truncate", "wal"])
@pytest.mark.parametrize("loss", ["unsynced", "torn", "nothing"])
def test_what_was_committed_survives_a_crash(mode: str, loss: Loss) -> None:
    found: list[list[int]] = []

    async def test(world: World) -> None:
        host: Any = world.host("shop", shop, mode)
        host.found, host.open = found, []
        for _ in range(3):
            await world.sleep(1)
            host.crash(loss)
            host.start()
        await world.sleep(1)

    outcome = run(test, RunSetup(seed=0))
    assert outcome.error is None, outcome.error
    first, second, third = [10, 11, 12], [20, 21, 22], [30, 31, 32]
    assert found == [[], first, first + second, first + second + third]

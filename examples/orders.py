"""A shop: orders broadcast by three members, each of which keeps the stock, and a journal.

Of each item there are ``STOCK`` pieces, and who comes first in the order gets them. Members agree
on what is left only if all of them go through the same orders, each once, in one order.

    python examples/orders.py shop              (leaves journals and the members' states in shop/)
    python examples/orders_spark.py shop        (has Spark do it all once more, and compares)
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from local import settings

import ringcast

ITEMS, STOCK, ORDERS = ("apple", "pear", "plum"), 800, 300


async def member(me: int, folder: Path) -> dict[str, Any]:
    """Order at random and carry out the orders of all; the state at the end."""
    shelves = {item: (STOCK, 0) for item in ITEMS}  # pieces left, orders refused
    asked: Counter[str] = Counter()  # pieces, by the second in which they were ordered
    random = Random(me)
    mine = {"state_dir": str(folder / f"state-{me}"), "journal": str(folder / f"journal-{me}")}
    async with ringcast.Node.open(settings(me) | mine) as node, node.join("orders") as group:
        async for event in group:  # an order is for those who are there
            if isinstance(event, ringcast.View) and len(event.members) == 3:
                break
        for _ in range(ORDERS):
            order = {"item": random.choice(ITEMS), "count": random.randint(1, 5), "at": time.time()}
            await group.send(json.dumps(order).encode(), durable=True)
        expected = 3 * ORDERS
        async for event in group:
            if isinstance(event, ringcast.Message):
                order = json.loads(event.body)
                left, refused = shelves[order["item"]]
                if order["count"] <= left:
                    shelves[order["item"]] = left - order["count"], refused
                else:
                    shelves[order["item"]] = left, refused + 1
                asked[f"{int(order['at'])} {order['item']}"] += order["count"]
                expected -= 1
                if not expected:
                    break
    return {"shelves": shelves, "asked": asked}


async def main(folder: Path) -> None:
    """Three members in one process, to be short; any three processes would do."""
    states = await asyncio.gather(*(member(me, folder) for me in (1, 2, 3)))
    for me, state in enumerate(states, 1):
        (folder / f"member-{me}.json").write_text(json.dumps(state, sort_keys=True))
        print(f"member {me}: {state['shelves']}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit(f"usage: python {sys.argv[0]} FOLDER (a new one)")
    Path(sys.argv[1]).mkdir()
    asyncio.run(main(Path(sys.argv[1])))

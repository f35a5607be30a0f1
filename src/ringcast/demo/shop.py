"""The shop of ``ringcast demo --stream``: members that take orders and keep the stock.

Of each item there are a few pieces, and who comes first in the order gets them, so what is left
tells whether everybody went through the same orders, each once, in one order. A member that was
killed has its stock back from its journal: the journal is the state, written as it came about.

    python -m ringcast.demo.shop node -c node.toml --json --rate 50
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
import typer

from ringcast.api.events import Batch, EventsLost, View
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.core.errors import DeliveryUncertain, RingcastError
from ringcast.core.ids import START, Position
from ringcast.journal.merged_reader import whole
from ringcast.members.program import until_signal
from ringcast.members.words import Lines, MemberStatus, Stopped, Viewed, wall_us
from ringcast.runtime.config import load

GROUP = "orders"
ITEMS = ("apple", "pear", "plum", "quince")
STOCK = 100
ENOUGH = 2
"""Members without whom no order is given: a shop of one would sell what others sell too."""

PERIOD_S = 0.5


class ShopOrder(msgspec.Struct, frozen=True):
    """So many pieces of an item; ``at`` is the time of day at whoever wants them."""

    item: str
    count: int
    at: float


class Shelf(msgspec.Struct):
    """What the shop has of an item, and had to do with it."""

    left: int = STOCK
    refused: int = 0
    orders: int = 0

    def take(self, count: int) -> None:
        """An order comes; if there is not enough, it is refused, and the shelf is filled up."""
        self.orders += 1
        if count <= self.left:
            self.left -= count
        else:
            self.refused += 1
            self.left += STOCK


class Shop(msgspec.Struct):
    """The state of a member, or of Spark."""

    shelves: dict[str, Shelf] = {}
    asked: dict[str, int] = {}
    """Pieces that were asked for, by second and item, as in ``1760000000 pear``."""

    def carry_out(self, body: bytes) -> None:
        """The next message of the group. An empty one is no order."""
        if body:
            order = msgspec.json.decode(body, type=ShopOrder)
            self.shelves.setdefault(order.item, Shelf()).take(order.count)
            key = f"{int(order.at)} {order.item}"
            self.asked[key] = self.asked.get(key, 0) + order.count


class Keeper:
    """One member: orders, carries out, and tells how it goes."""

    def __init__(self, node: Node, group: Group, rate: float, tell: Lines) -> None:
        self._node, self._group, self._rate, self._tell = node, group, rate, tell
        self._random = Random(f"shop/{node.config.id}")
        self._shop = Shop()
        self._upto = START
        self._acknowledged = self._delivered = 0
        self._ordering: asyncio.Task[None] | None = None

    async def order(self) -> None:
        """Orders at random moments; each is on disk here before the next one."""
        while True:
            await asyncio.sleep(self._random.expovariate(self._rate))
            if len(self._group.members) >= ENOUGH:
                order = ShopOrder(
                    self._random.choice(ITEMS), self._random.randint(1, 5), time.time()
                )
                try:
                    await self._group.send(msgspec.json.encode(order), "safe", durable=True)
                except DeliveryUncertain:
                    continue  # it may be in the journals or not; it was not acknowledged
                self._acknowledged += 1

    def rest(self) -> None:
        """No more orders."""
        if self._ordering is not None:
            self._ordering.cancel()

    async def recover(self) -> None:
        """Go through the journal. What comes behind the word sent here comes from the group."""
        await self._group.send(b"", durable=True)
        await self._node.caught_up()
        for batch in whole([Path(self._node.config.journal)]):
            for group, body in zip(batch["group"].to_pylist(), batch["body"], strict=True):
                if group == GROUP:
                    self._shop.carry_out(body.as_py())
            self._upto = Position(**batch["position"][-1].as_py())

    async def keep(self) -> None:
        """Until the node ends."""
        await self.recover()
        tasks = [asyncio.create_task(self.report()), asyncio.create_task(self.order())]
        self._ordering = tasks[1]
        try:
            async for events in self._group.batches():
                for event in events:
                    self._on_event(event)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_event(self, event: Batch | View | EventsLost) -> None:
        match event:
            case Batch():
                for message in event:
                    if message.position > self._upto:
                        self._shop.carry_out(message.body)
                        self._delivered += 1
            case View(members=members, transitional=transitional, ring=ring):
                me = self._node.config.id
                self._tell(Viewed(wall_us(), me, str(ring), members, transitional))
            case EventsLost():
                raise RingcastError("events were lost, so the stock is not known any more")

    async def report(self) -> None:
        """How it goes, for ever."""
        then_s, before = time.monotonic(), 0
        while True:
            await asyncio.sleep(PERIOD_S)
            now_s = time.monotonic()
            metrics: dict[str, Any] = self._node.metrics()
            shop = msgspec.to_builtins(self._shop)
            self._tell(
                MemberStatus(
                    t_us=wall_us(),
                    id=self._node.config.id,
                    phase=str(metrics["machine"].get("phase", "")),
                    ring=self._node.ring,
                    members=self._group.members,
                    sent=self._acknowledged,
                    delivered=self._delivered,
                    messages_per_s=round((self._delivered - before) / (now_s - then_s), 1),
                    mb_per_s=0.0,
                    lost=0,
                    idle=self._node.outgoing.idle,
                    metrics={"shop": shop, "journal": metrics["journal"]},
                )
            )
            then_s, before = now_s, self._delivered


async def serve(config: Path, rate: float, tell: Lines) -> None:
    """A member until it is cancelled; SIGUSR1 ends the ordering only."""
    async with Node.open(config) as node, node.join(GROUP) as group:
        keeper = Keeper(node, group, rate, tell)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, keeper.rest)
        await keeper.keep()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """The programs of the demonstration."""


@app.command("node")
def member(
    config: Annotated[Path, typer.Option("--config", "-c")],
    json: Annotated[bool, typer.Option("--json")] = False,
    rate: float = 50.0,
) -> None:
    """One member, told about in lines as by ``ringcast node``."""
    tell, reason = Lines(json), ""

    async def work() -> None:
        await until_signal(asyncio.create_task(serve(config, rate, tell)))

    try:
        asyncio.run(work())
    except RingcastError as error:
        reason = str(error)
    tell(Stopped(wall_us(), load(config).id, reason or "left"))


if __name__ == "__main__":
    app()

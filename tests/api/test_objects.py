"""Shared objects over a real ring."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from loopback import eventually, ring, run

from ringcast.api.node import Node
from ringcast.api.objects import (
    Counter,
    Election,
    Lock,
    Queue,
    ReplicatedDict,
    _Dict,
    _Queue,
)
from ringcast.api.shared import Shared

S = TypeVar("S", bound=Shared)


async def opened(
    kind: type[S], nodes: list[Node], root: Path, stack: AsyncExitStack, life: str = ""
) -> list[S]:
    name = kind.__name__
    return [
        await stack.enter_async_context(
            kind(node.join(name), 3, root / f"{name}{node.config.id}", 20)  # type: ignore[call-arg, arg-type]
        )
        for node in nodes
    ]


def test_dict_counter_and_queue(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes, AsyncExitStack() as stack:
            a, b, c = await opened(ReplicatedDict, nodes, tmp_path, stack)
            await a.set("colour", ["red", 1, None])
            assert await b.get("colour") == ["red", 1, None]
            assert await b.compare_and_set("colour", "blue", 1) is False
            assert await b.compare_and_set("size", None, 7) is True
            assert await c.items() == {"colour": ["red", 1, None], "size": 7}
            assert [await c.delete("size"), await c.delete("size")] == [True, False]
            assert c.local("size").value is None

            counters = await opened(Counter, nodes, tmp_path, stack)
            values = await asyncio.gather(*(each.add() for each in counters * 10))
            assert sorted(values) == list(range(1, 31))
            assert await counters[0].value() == 30

            queues = await opened(Queue, nodes, tmp_path, stack)
            taking = [asyncio.ensure_future(each.get()) for each in queues * 5]
            for n in range(15):
                await queues[n % 3].put(n)
            assert sorted(await asyncio.gather(*taking)) == list(range(15))

    run(story)


def test_a_lock_goes_on_to_the_next_with_a_larger_token(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes, AsyncExitStack() as stack:
            a, b, c = await opened(Lock, nodes, tmp_path, stack)
            tokens = [await a.acquire()]
            second, third = (asyncio.ensure_future(each.acquire()) for each in (b, c))
            await eventually(lambda: len(a._line.state) == 3)
            assert not second.done()
            await a.release()
            done, _ = await asyncio.wait((second, third), return_when="FIRST_COMPLETED")
            tokens.append(done.pop().result())
            holder = await a.holder()
            assert holder is not None
            assert holder.token == tokens[1]
            lost = nodes[holder.member - 1]._host
            assert lost is not None
            lost.close("killed")
            last = third if holder.member == 2 else second
            tokens.append(await last)
            assert tokens == sorted(set(tokens))

    run(story)


def test_an_election(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes, AsyncExitStack() as stack:
            a, b, c = await opened(Election, nodes, tmp_path, stack)
            first = await b.campaign()
            assert await a.leader() == (2, first)
            following = asyncio.ensure_future(c.campaign())
            await eventually(lambda: len(a._line.state) == 2)
            await b.resign()
            assert await following > first
            assert await a.leader() == (3, following.result())
            await c.resign()
            assert await a.leader() is None

    run(story)


@pytest.mark.parametrize("count", [0, 15, 999, 1000, 1001, 1015, 1016, 2000, 70_000])
def test_large_objects_are_encoded_in_pieces(count: int) -> None:
    """What changes while the pieces are asked for does not show in them."""
    for machine in (_Dict({f"k{n}": n for n in range(count)}), _Queue(list(range(count)))):
        before = machine.snapshot()
        pieces = machine.pieces()
        machine.state.clear()
        parts = list(pieces)
        assert len(parts) == (1 if count <= 1000 else 2 + (count - 1) // 1000)
        machine.restore(b"".join(parts))
        assert machine.snapshot() == before

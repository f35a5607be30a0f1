"""Groups over TOTAL: the same interface, whatever the protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from loopback import ring

import ringcast


def test_members_see_the_same_messages_in_the_same_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(120),
            ring(tmp_path, 3, protocol="total", insecure=True) as nodes,
        ):
            groups = [node.join("g") for node in nodes]
            for group in groups:
                await group.join()
            sends = [
                group.send(b"%d.%d" % (at, k), ringcast.SAFE if k % 3 else ringcast.AGREED)
                for at, group in enumerate(groups)
                for k in range(10)
            ]
            large = groups[1].send(bytes(300_000))
            positions = await asyncio.gather(*sends, large)
            seen: list[list[tuple[bytes, ringcast.Position]]] = []
            for group in groups:
                mine: list[tuple[bytes, ringcast.Position]] = []
                async for event in group:
                    if isinstance(event, ringcast.Message):
                        mine.append((event.body, event.position))
                        if len(mine) == len(positions):
                            break
                seen.append(mine)
            assert seen[0] == seen[1] == seen[2]
            assert sorted(position for _, position in seen[0]) == sorted(positions)

    asyncio.run(main())


def test_without_its_quorum_a_member_is_told_that_its_message_is_uncertain(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"quorum": 2, "suspect_us": 200_000, "beat_us": 40_000}
        async with (
            asyncio.timeout(120),
            ring(tmp_path, 2, protocol="total", insecure=True, settings=settings) as nodes,
        ):
            group = nodes[1].join("g")
            await group.join()
            assert nodes[0]._host is not None
            nodes[0]._host.close()  # the sequencer falls silent
            with pytest.raises(ringcast.DeliveryUncertain):
                await group.send(b"to nobody")

    asyncio.run(main())

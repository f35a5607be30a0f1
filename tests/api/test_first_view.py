"""When ``join`` returns, the members of the group know of each other, even if rings break early."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loopback import configs, run

from ringcast.api.node import Node
from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.ids import Level, ViewId
from ringcast.wire import envelope
from ringcast.wire.envelope import Enter, Envelope, Groups

R1, R2 = ViewId(4000, 1), ViewId(4004, 1)


def test_a_ring_that_breaks_before_all_have_spoken_completes_no_join(tmp_path: Path) -> None:
    """It returned with a view of this member alone, though the other one of the ring was in the
    group and about to say so."""

    async def story() -> None:
        async with Node.open(configs(tmp_path, 2)[0]) as node:
            await node.wait_for_ring(1)
            group = node.join("g")

            def view(ring: ViewId) -> None:
                node.on_view(InstallView(ring, (1, 2), False, ring, 0, None))

            def order(ring: ViewId, seq: int, sender: int, word: Envelope) -> None:
                bodies = (envelope.encode(word),)
                node.on_deliver(
                    ring, PackedMessages(ring, seq, sender, Level.AGREED, 2**40 + seq, bodies)
                )

            view(R1)
            joining = asyncio.ensure_future(group.join())
            await asyncio.sleep(0)
            order(R1, 1, 1, Groups(R1, (), ()))
            order(R1, 2, 1, Enter("g"))
            view(R2)  # node 2 had not spoken
            await asyncio.sleep(0)
            assert not joining.done()
            order(R2, 1, 1, Groups(R2, ("g",), ()))
            order(R2, 2, 2, Groups(R2, ("g",), ()))
            await asyncio.sleep(0)
            assert joining.done() and group.members == (1, 2)

    run(story)

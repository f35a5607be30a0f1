"""Members that have the key and are wrong, by mistake or on purpose, against live nodes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from adversary import keyed
from loopback import eventually, run

from ringcast.api.node import Node


def test_members_with_other_settings_do_not_meet_and_say_why(tmp_path: Path) -> None:
    """A smaller ``max_message`` at one member lost it an acknowledged message, without a word."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        settings[2]["settings"] = {"max_message": 2**20}
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
            for node in nodes[:2]:
                await node.wait_for_ring(2)
            wanted = {
                0: "max_message is 1048576 at node 3 and 67108864 at this node",
                2: "max_message is 67108864 at node 1 and 1048576 at this node",
            }
            for index, text in wanted.items():
                await eventually(
                    lambda index=index, text=text: (
                        text in str(nodes[index].metrics()["frames_refused"])
                    )
                )
            assert [node.ring for node in nodes] == [(1, 2), (1, 2), (3,)]

    run(story)

"""Leader election: one leader at a time, with a term that grows.

Whatever the leader commands carries its term, and is refused if a larger term was seen: a leader
that was paused or cut off may not know yet that it leads no longer.

    python examples/leader.py 1        (and 2, and 3, in other terminals)

Press Enter to see who leads. Without a majority nobody does.
"""

from __future__ import annotations

from local import PLACE, lasting, lines, settings, start

from ringcast.api.node import Node
from ringcast.api.objects import Election
from ringcast.api.state_machine import NoQuorum


async def campaign(election: Election) -> None:
    """Try to lead, however long it takes until a majority is there."""
    while True:
        try:
            print(f"I lead, term {await election.campaign()}", flush=True)
            return
        except NoQuorum:
            continue


async def main(me: int) -> None:
    """Campaign until the input ends."""
    async with (
        Node.open(settings(me)) as node,
        Election(node.join("leader"), 3, PLACE / f"leader{me}", timeout=2) as election,
        lasting(election.replica.wait()),
        lasting(campaign(election)),
    ):
        print("ready", flush=True)
        async for _ in lines():
            try:
                leader = await election.leader()
                answer = f"leader {leader.member}, term {leader.token}" if leader else "no leader"
            except NoQuorum:
                answer = "nobody leads: no majority"
            print(answer, flush=True)


if __name__ == "__main__":
    start(main)

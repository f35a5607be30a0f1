"""Leader election without an election: the smallest member of the view leads.

Every member computes the same leader from the same view. The view's position is the term: it
grows with every change, so whatever the leader commands is refused if a larger term was seen.
In a partition each side has a leader; ``MAJORITY`` keeps the smaller side without one.

    python examples/leader.py 1        (and 2, and 3, in other terminals)
"""

from __future__ import annotations

import asyncio

from local import lines, settings, start

from ringcast import Position
from ringcast.api.events import View
from ringcast.api.group import Group
from ringcast.api.node import Node

MAJORITY = 2
"""Of the three members there are."""


class Leadership:
    """Who leads, according to the newest view."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.leader: int | None = None
        self.term: Position | None = None

    def on_view(self, view: View) -> None:
        """A transitional view ends a term: until the regular one nobody leads."""
        self.leader = self.term = None
        if not view.transitional and len(view.members) >= MAJORITY:
            self.leader, self.term = min(view.members), view.position
        who = "I lead" if self.leader == self.me else f"{self.leader} leads"
        print(f"{who}, term {self.term}" if self.leader else "nobody leads", flush=True)


async def follow(group: Group, leadership: Leadership) -> None:
    """Keep the leadership up to date."""
    async for event in group:
        if isinstance(event, View):
            leadership.on_view(event)


async def main(me: int) -> None:
    """Follow the views until the input ends."""
    leadership = Leadership(me)
    async with Node.open(settings(me)) as node, node.join("leader") as group:
        following = asyncio.create_task(follow(group, leadership))
        async for _ in lines():
            print(f"leader {leadership.leader}, term {leadership.term}", flush=True)
        following.cancel()


if __name__ == "__main__":
    start(main)

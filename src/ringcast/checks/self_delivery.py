"""D3 self-delivery: a processor delivers what it originated.

``originate(p,m,C)`` is followed by ``del(p,m,·)`` inside p's span of C, unless p crashes first.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Delivered, Ended, Installed, Originated


class SelfDelivery(Property):
    """D3."""

    tag = "D3"
    title = "self-delivery"
    reads = Reads.ORIGINS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._open: dict[NodeId, dict[int, PlacedFrame]] = {}  # own frames not delivered, by index

    def on_originated(self, event: Originated) -> None:
        """An obligation begins, unless the messages are another's."""
        history = self.history
        if event.owner != event.node:
            return
        if not history.again and history.span is history.node.span:
            self._open.setdefault(event.node, {})[history.frame.index] = history.frame

    def on_delivered(self, event: Delivered) -> None:
        """An obligation is met."""
        if event.sender == event.node:
            frame = self.history.frame
            mine = self._open.get(event.node)
            if mine and mine.get(frame.index) is frame:
                del mine[frame.index]

    def on_installed(self, event: Installed) -> None:
        """The span has ended: nothing may be open."""
        if event.transitional:
            return
        for frame in self._open.pop(event.node, {}).values():
            self.violate(
                f"Processor {event.node} originated {frame} at {frame.origin_us} us and went on "
                f"to {event.view} at {event.t_us} us without delivering it.",
                (event.node,),
                (frame,),
                event.t_us,
            )

    def on_crashed(self, event: Crashed) -> None:
        """A crash ends all obligations."""
        self._open.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """What is open is unknown, unless the processor is settled."""
        for node in sorted(self._open):
            for frame in self._open[node].values():
                self.owed(
                    node in event.settled,
                    f"Processor {node} originated {frame} at {frame.origin_us} us and did not "
                    f"deliver it by the end.",
                    (node,),
                    (frame,),
                    event.t_us,
                )

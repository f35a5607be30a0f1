"""causal: messages related by causality between submissions keep that order.

m2 depends on m1 if its sender had submitted or delivered m1, or something that depends on m1, when
it submitted m2. A processor that delivers both delivers m1 first. Unlike D8 this does not look at
when a protocol numbers a message, so it suits every protocol.
"""

from __future__ import annotations

from collections import deque

from ringcast.checks.history import History
from ringcast.checks.lamport import Clock, Lamport
from ringcast.checks.property import Reads
from ringcast.checks.stretch import Share
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Originated, Restarted, Submit

INCARNATION = 1 << 48
"""Messages are numbered per incarnation; this keeps later incarnations above earlier ones."""


class Causal(Lamport):
    """Causal order of submissions."""

    tag = "causal"
    title = "causal order of submissions"
    reads = Reads.PASTS
    origin_first = False

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # The numbers of a submission's first and last message, and its past.
        self._waiting: dict[NodeId, deque[tuple[int, int, Clock]]] = {}

    def on_submit(self, event: Submit) -> None:
        """Keep the submitter's past until the messages get their place."""
        last = event.first + len(event.sizes) - 1
        queue = self._waiting.setdefault(event.node, deque())
        queue.append((event.first, last, self.clock(event.node)))

    def on_originated(self, event: Originated) -> None:
        """The messages have their place."""
        self._mark()

    def on_delivered(self, event: Delivered) -> None:
        """They may have it elsewhere before their sender hears of it."""
        self._mark()
        super().on_delivered(event)

    def _mark(self) -> None:
        """The frame depends on what its last message depends on.

        A message may be numbered again, in another ring; its past has been let go by then. Of a
        ring that is not known, or not any more, nobody can tell: D5 and integrity speak of it.
        """
        frame = self.history.frame
        if self.tag in frame.marks or not frame.ring.members:
            return
        if frame.incarnation != self.history.incarnation(frame.sender):
            return
        last = frame.first + len(frame.digests) - 1
        queue = self._waiting.get(frame.sender)
        while queue and queue[0][1] < last:
            queue.popleft()
        clock = queue[0][2] if queue and queue[0][0] <= last else {}
        base = frame.incarnation * INCARNATION
        frame.marks[self.tag] = (base + frame.first, base + last, clock)

    def number(self, share: Share) -> int:
        """The sender's own number of its last message."""
        return self.history.nodes[share.sender].incarnation * INCARNATION + share.last

    def on_restarted(self, event: Restarted) -> None:
        """What was not numbered is lost. Until then others may number what it had sent."""
        self._waiting.pop(event.node, None)

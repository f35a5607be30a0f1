"""fifo: messages of one sender are delivered in the order in which it submitted them.

Numbers of a sender's incarnation rise at every receiver, and a later incarnation comes after an
earlier one. Numbers may be missing: a receiver need not have been in every configuration. And a
number means the message that was submitted under it: nothing overtakes inside the sender either.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import Frame
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Originated, Restarted, Submit

QUEUED = 1 << 16
"""Messages of a sender that wait to be compared, before the older ones are let go."""


class Fifo(Property):
    """Per sender, in order of submission."""

    tag = "fifo"
    title = "submission order of each sender"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, dict[NodeId, tuple[int, int, Frame]]] = {}
        self.queued: dict[NodeId, dict[int, int]] = {}
        """What was submitted and not originated so far: digests by number, oldest first."""

    def on_restarted(self, event: Restarted) -> None:
        """Queues do not survive."""
        self.queued.pop(event.node, None)

    def on_submit(self, event: Submit) -> None:
        """Messages wait for their place in the order."""
        queued = self.queued.setdefault(event.node, {})
        queued.update(enumerate(event.digests, event.first))
        if len(queued) > QUEUED:
            for number in list(queued)[: -QUEUED // 2]:
                del queued[number]

    def on_originated(self, event: Originated) -> None:
        """Compare with what was submitted under these numbers."""
        queued, frame = self.queued.get(event.owner), self.history.frame
        if not queued or frame.incarnation != self.history.known(event.owner).incarnation:
            return  # a message of an earlier life, whose queue is gone
        for number, digest in enumerate(event.digests, event.first):
            if queued.get(number, digest) != digest:
                real = next((k for k, waiting in queued.items() if waiting == digest), "no message")
                self.violate(
                    f"Processor {event.owner} originated {frame} at {event.t_us} us "
                    f"with its number {number}, which is not the message it had submitted under "
                    f"that number; waiting with these contents: {real}.",
                    (event.owner,),
                    (frame,),
                    event.t_us,
                )
        for number in range(event.first, event.first + len(event.digests)):
            queued.pop(number, None)

    def on_stretch(self, stretch: Stretch) -> None:
        """Every sender's numbers went on by one each time."""
        ring, nodes = self.history.ring, self.history.nodes
        for share in stretch.shares:
            incarnation = nodes[share.sender].incarnation
            last = (incarnation, share.last, self.history.last_frame(share))
            for member in ring.members:
                self._last.setdefault(member, {})[share.sender] = last

    def on_delivered(self, event: Delivered) -> None:
        """Compare with the last message of the same sender."""
        if self.history.again:
            return  # D2 speaks of it
        frame = self.history.frame
        senders = self._last.get(event.node)
        if senders is None:
            senders = self._last[event.node] = {}
        last = senders.get(event.sender)
        senders[event.sender] = (frame.incarnation, event.first + len(event.digests) - 1, frame)
        if last is not None and (
            event.first <= last[1] if frame.incarnation == last[0] else frame.incarnation < last[0]
        ):
            self.violate(
                f"Processor {event.node} delivered {frame}, number {event.first} of processor "
                f"{event.sender}'s incarnation {frame.incarnation}, at {event.t_us} us, after "
                f"{last[2]}, up to number {last[1]} of its incarnation {last[0]}.",
                (event.node, event.sender),
                (last[2], frame),
                event.t_us,
            )

"""content: one place holds one message at all processors, the one that its sender submitted.

The first event that names a place says what it holds: sender, number, level and contents. Every
other origination or delivery of the place must say the same, and what is said first must be what
the sender submitted under that number. It does not rest on who numbers messages or when, so it
suits every protocol. Only a weaker level than was asked for is wrong: a protocol may treat all
messages as safe ones, and D10 and D11 then hold it to that.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.origin import contents
from ringcast.checks.property import Property, Reads
from ringcast.core.ids import Level, NodeId
from ringcast.core.trace import Delivered, Originated, Submit

KEPT = 3
"""Incarnations of a sender whose submissions are remembered."""

REMEMBERED = 1 << 16
"""Messages that wait for their sender to deliver them, before the older ones are let go."""

Submitted = tuple[int | None, Level]
"""Checksum, if it is known, and level."""


class Content(Property):
    """One place, one message, as submitted."""

    tag = "content"
    title = "one place, one message"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._submitted: dict[NodeId, dict[int, dict[int, Submitted]]] = {}

    def on_submit(self, event: Submit) -> None:
        """Remember what stands under these numbers."""
        lives = self._submitted.setdefault(event.node, {})
        mine = lives.get(event.incarnation)
        if mine is None:
            mine = lives[event.incarnation] = {}
            while len(lives) > KEPT:
                del lives[min(lives)]
        digests = event.digests or (None,) * len(event.sizes)
        for number, digest in enumerate(digests, event.first):
            mine[number] = (digest, event.level)
        if len(mine) > REMEMBERED:
            for number in list(mine)[: -REMEMBERED // 2]:
                del mine[number]

    def on_originated(self, event: Originated) -> None:
        """It is what others delivered, if anybody did, and what was submitted."""
        self._compare(event, event.owner, "originated")

    def on_delivered(self, event: Delivered) -> None:
        """It is what the others delivered. What its sender has delivered is not numbered again."""
        self._compare(event, event.sender, "delivered")
        if event.sender == event.node:
            frame = self.history.frame
            mine = self._submitted.get(event.sender, {}).get(frame.incarnation, {})
            for number in range(event.first, event.first + len(event.digests)):
                mine.pop(number, None)

    def _compare(self, event: Originated | Delivered, sender: NodeId, verb: str) -> None:
        history = self.history
        frame = history.frame
        if history.differs:
            self.violate(
                f"Processor {event.node} {verb} {frame} at {event.t_us} us as "
                f"{contents(sender, event)}; at processor {frame.told_by} it is "
                f"{contents(frame.sender, frame)}.",
                (frame.told_by, event.node),
                (frame,),
                event.t_us,
            )
        elif type(event) is Originated or (history.fresh and frame.ring.members):
            self._as_submitted(event, sender, verb)

    def _as_submitted(self, event: Originated | Delivered, sender: NodeId, verb: str) -> None:
        frame = self.history.frame
        mine = self._submitted.get(sender, {}).get(frame.incarnation)
        if not mine:
            return  # integrity speaks of it
        for number, digest in enumerate(event.digests, event.first):
            known = mine.get(number)
            if known is None or (known[0] in (None, digest) and known[1] <= event.level):
                continue
            real = next((k for k, (its, _) in mine.items() if its == digest), "no message")
            self.violate(
                f"Processor {event.node} {verb} {frame} at {event.t_us} us with number {number} of "
                f"processor {sender}, {event.level.name.lower()}, checksum {digest:08x}. That is "
                f"not what was submitted under the number, {known[1].name.lower()}"
                f"{'' if known[0] is None else f', {known[0]:08x}'}; submitted with these "
                f"contents: {real}.",
                (event.node,) if event.node == sender else (event.node, sender),
                (frame,),
                event.t_us,
            )
            return

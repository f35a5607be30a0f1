"""content: one place holds one message at all processors, the one that its sender submitted.

The first event that names a place says what it holds: sender, number, level and contents. Every
other origination or delivery of the place must say the same, and what is said must be what the
sender submitted under that number, from the first event on that comes after the submission; of two
submissions the first counts. It does not rest on who numbers messages or when, so it suits every
protocol. A place in a ring that is no configuration may be given again if whoever gives it, the
ring's representative, the sender before or the new one, has lost its storage since what the place
held last was first told. Nobody can tell that from an altered message, so it leaves the answer
unknown; the place then holds either, and a loss excuses nothing that was told after it. Only a
weaker level than was asked for is wrong: a protocol may treat all messages as safe ones, and D10
and D11 then hold it to that. Submissions without checksums leave it unknown.

It remembers what waits for its sender to deliver it, which is as much as a protocol lets wait, and
lets go of nothing else: the other engines would judge by what it had forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from ringcast.checks.history import History
from ringcast.checks.origin import contents
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import Level, NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Delivered, Originated, Restarted, Submit

Submitted = tuple[int | None, Level]
"""Checksum, if it is known, and level."""


class Sender:
    """What is known of one incarnation's messages."""

    __slots__ = ("delivered", "submitted")

    def __init__(self) -> None:
        self.submitted: dict[int, Submitted] = {}  # and not delivered by it
        self.delivered = SeqSet()  # by itself

    def submit(self, first: int, messages: Iterable[Submitted]) -> None:
        """Remember those that it has neither delivered nor submitted before."""
        new = dict(enumerate(messages, first))
        if self.delivered.lowest(first, first + len(new) - 1) is not None:
            new = {k: each for k, each in new.items() if k not in self.delivered}
        if not new.keys().isdisjoint(self.submitted.keys()):
            new = {k: each for k, each in new.items() if k not in self.submitted}
        self.submitted.update(new)

    def deliver(self, first: int, last: int) -> None:
        """They are not numbered again, so what they are is of no consequence any more."""
        self.delivered.add_range(first, last)
        mine = self.submitted
        if last - first < len(mine):
            for number in range(first, last + 1):
                mine.pop(number, None)
        else:
            self.submitted = {k: each for k, each in mine.items() if not first <= k <= last}


class Content(Property):
    """One place, one message, as submitted."""

    tag = "content"
    title = "one place, one message"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._senders: dict[NodeId, dict[int, Sender]] = {}

    def on_submit(self, event: Submit) -> None:
        """Remember what stands under these numbers."""
        sender = self._sender(event.node, event.incarnation)
        digests = event.digests or (None,) * len(event.sizes)
        if not event.digests:
            self.undecided = True
        sender.submit(event.first, zip(digests, repeat(event.level)))

    def on_restarted(self, event: Restarted) -> None:
        """Forget what is of no consequence any more."""
        self.history.drop_past(event.node, self._senders.get(event.node, {}))

    def _sender(self, id: NodeId, incarnation: int) -> Sender:
        lives = self._senders.setdefault(id, {})
        sender = lives.get(incarnation)
        if sender is None:
            sender = lives[incarnation] = Sender()
        return sender

    def on_originated(self, event: Originated) -> None:
        """It is what others delivered, if anybody did, and what was submitted."""
        self._compare(event, event.owner, "originated")

    def on_delivered(self, event: Delivered) -> None:
        """It is what the others delivered. What its sender has delivered is not numbered again."""
        self._compare(event, event.sender, "delivered")
        if event.sender == event.node:
            sender = self._sender(event.sender, self.history.life)
            sender.deliver(event.first, event.first + len(event.digests) - 1)

    def on_stretch(self, stretch: Stretch) -> None:
        """Its senders have delivered these messages, too. Of some the submission is shown, and
        that may come after the stretch."""
        spans = self.history.ring.spans
        for share in stretch.shares:
            sender = self._sender(share.sender, spans[share.sender].incarnation)
            sender.deliver(share.first, share.last)

    def _compare(self, event: Originated | Delivered, sender: NodeId, verb: str) -> None:
        history = self.history
        frame, first = history.frame, history.other
        if history.differs:
            first = frame
        elif first is not None and history.given_again:
            first, self.undecided = None, True
        if first is not None:
            self.violate(
                f"Processor {event.node} {verb} {frame} at {event.t_us} us as "
                f"{contents(sender, event)}; at processor {first.told_by} it is "
                f"{contents(first.sender, first)}.",
                (first.told_by, event.node),
                (frame,),
                event.t_us,
            )
        elif (
            type(event) is Originated
            or (history.fresh and frame.ring.members)
            or self.tag in frame.marks
        ):
            self._as_submitted(event, sender, verb)

    def _as_submitted(self, event: Originated | Delivered, sender: NodeId, verb: str) -> None:
        """Look again at the next event of the place if nothing was submitted so far."""
        frame = self.history.frame
        own = self._sender(sender, frame.incarnation)
        mine = own.submitted
        for number, digest in enumerate(event.digests, event.first):
            known = mine.get(number)
            if known is None:
                if number not in own.delivered:
                    frame.marks[self.tag] = True
                continue
            if known[0] in (None, digest) and known[1] <= event.level:
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

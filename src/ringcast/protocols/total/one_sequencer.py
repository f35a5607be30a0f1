"""one-sequencer: where one processor numbers the messages of others, it alone numbers, and rising.

It is the representative of the ring (Q1 and Q2). A number that is left out shows in D4 and
in the simulator's ``progress``: nobody can deliver what follows it. In a ring whose members all
number their own messages there is nothing to be said.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.trace import Originated


class OneSequencer(Property):
    """One processor gives all numbers of a ring, in ascending order."""

    tag = "one-sequencer"
    title = "one sequencer, rising numbers"
    reads = Reads.ORIGINS

    def on_originated(self, event: Originated) -> None:
        """A fault counts once the ring is known to have a sequencer."""
        marks = self.history.span.ring.marks
        sequenced, last, fault = marks.get(self.tag, (False, 0, ""))
        sequenced = sequenced or event.owner != event.node
        if not fault and event.node != event.ring.rep:
            fault = f"processor {event.node} numbers, although {event.ring.rep} is the sequencer"
        if not fault and event.seq <= last:
            fault = f"number {event.seq} is given after number {last}"
        if sequenced and fault:
            frame = self.history.frame
            self.violate(
                f"Processor {event.node} gave {frame} to a message of processor {event.owner} at "
                f"{event.t_us} us; in {event.ring} {fault}.",
                (event.node, event.owner),
                (frame,),
                event.t_us,
            )
        marks[self.tag] = (sequenced, max(last, event.seq), fault)

    def on_stretch(self, stretch: Stretch) -> None:
        """Its heads have told who numbers."""
        marks = self.history.ring.marks
        sequenced, last, fault = marks.get(self.tag, (False, 0, ""))
        marks[self.tag] = (sequenced, max(last, stretch.seq), fault)

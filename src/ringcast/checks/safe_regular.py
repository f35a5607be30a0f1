"""D10 safe(C), regular: a safe message delivered in a ring reaches every member of the ring.

``del(p,m,C)`` with m safe and C regular means that every q in C installs C and delivers m inside
its span of C, or crashes first.
"""

from __future__ import annotations

from typing import ClassVar

from ringcast.checks.property import Property, Reads, rings
from ringcast.checks.ring import CheckedRing, RingStay, State
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import Delivered, Ended, Installed

GONE = (State.LEFT, State.SKIPPED, State.STRAY)
"""A member that will not deliver in the ring any more, and is not excused by a crash."""


class SafePromise:
    """The safe messages that somebody delivered in one configuration, by index."""

    __slots__ = ("made", "members")

    def __init__(self, members: tuple[NodeId, ...]) -> None:
        self.members = members
        self.made: dict[int, Delivered] = {}


class SafeRegular(Property):
    """D10. A safe delivery is a promise about all members; it is broken once one cannot keep it."""

    tag = "D10"
    title = "safe in a regular configuration"
    reads = Reads.ORIGINS
    transitional: ClassVar[bool] = False
    kind: ClassVar[str] = "safe"
    """What the messages are called that promise so."""

    def promises(self, event: Delivered) -> bool:
        """Whether a delivery says that all members deliver it."""
        return event.level is Level.SAFE

    def on_delivered(self, event: Delivered) -> None:
        """A promise is made: have some already failed to keep it?"""
        if not self.promises(event):
            return
        history = self.history
        conf, span = history.node.current, history.span
        if conf is None or span is not history.node.span or conf.transitional != self.transitional:
            return
        index = history.frame.index
        promises: dict[ViewId, SafePromise] = span.ring.marks.setdefault(self.tag, {})
        promise = promises.get(conf.view)
        if promise is None:
            promise = promises[conf.view] = SafePromise(conf.members)
        if index == 0 or index in promise.made:
            return
        promise.made[index] = event
        for member in promise.members:
            its = span.ring.spans.get(member)
            if its is None or (its.state in GONE and not its.keeps(index)):
                self._broken(event, span.ring, index, member, event.t_us)

    def on_installed(self, event: Installed) -> None:
        """A stay has ended, or rings were passed by: were the promises kept?"""
        left = self.history.node.left
        if left is not None:
            self._review(left, event.t_us)
        if not event.transitional:
            for ring in (*rings(self.history), *self.history.over):
                span = ring.spans.get(event.node)
                if span is not None and span.state is State.SKIPPED:
                    self._review(span, event.t_us)

    def _review(self, span: RingStay, t_us: int) -> None:
        """Report the first promise that ``span`` did not keep."""
        promises: dict[ViewId, SafePromise] = span.ring.marks.get(self.tag, {})
        for promise in promises.values():
            if span.node in promise.members:
                for index, made in promise.made.items():
                    if not span.keeps(index):
                        self._broken(made, span.ring, index, span.node, t_us)
                        return

    def _broken(
        self, made: Delivered, ring: CheckedRing, index: int, member: NodeId, t_us: int
    ) -> None:
        message = ring.name(index)
        self.violate(self._text(made, message, member), (made.node, member), (message,), t_us)

    def _text(self, made: Delivered, message: str, member: NodeId) -> str:
        return (
            f"Processor {made.node} delivered {self.kind} {message} in {made.view} at "
            f"{made.t_us} us, "
            f"but processor {member} did not deliver it while it was in {made.ring} or right after."
        )

    def on_ended(self, event: Ended) -> None:
        """Promises that can still be kept are open, unless their processor is settled."""
        for ring in rings(self.history):
            promises: dict[ViewId, SafePromise] = ring.marks.get(self.tag, {})
            for promise in promises.values():
                for member in promise.members:
                    span = ring.spans.get(member)
                    if span is None or span.state > State.OPEN:
                        continue
                    for index, made in promise.made.items():
                        if not span.keeps(index):
                            name = ring.name(index)
                            self.owed(
                                member in event.settled,
                                self._text(made, name, member),
                                (made.node, member),
                                (name,),
                                event.t_us,
                            )

    def ring_trimmed(self, ring: CheckedRing) -> None:
        """Promises that all have kept are forgotten."""
        for promise in ring.marks.get(self.tag, {}).values():
            promise.made = {i: e for i, e in promise.made.items() if i > ring.trimmed}

"""D9 agreed: within a configuration all deliver one sequence, without holes.

The first processor to deliver its k-th message in a configuration fixes what everybody's k-th
message there must be. Two different k-th messages mean that one of the two processors has a hole
there or another order. In a regular configuration the numbers ascend besides, and a number that
is skipped belongs to no message of an application.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import CheckedRing, PlacedFrame
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Crashed, Delivered, Installed


class Track:
    """The one sequence of a configuration, as far as somebody has delivered it."""

    __slots__ = ("base", "order", "regular")

    def __init__(self, regular: bool) -> None:
        self.regular = regular
        self.base = 0  # how many at the front are forgotten
        self.order: list[tuple[PlacedFrame, NodeId]] = []


class Agreed(Property):
    """D9."""

    tag = "D9"
    title = "agreed"
    reads = Reads.ORIGINS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._track: dict[NodeId, Track] = {}  # of the configuration each processor is in

    def on_installed(self, event: Installed) -> None:
        """Find or begin the sequence of the new configuration."""
        span = self.history.node.span
        if span is not None:
            tracks: dict[ViewId, Track] = span.ring.marks.setdefault(self.tag, {})
            self._track[event.node] = tracks.setdefault(event.view, Track(not event.transitional))

    def on_crashed(self, event: Crashed) -> None:
        """It is in no configuration any more."""
        self._track.pop(event.node, None)

    def on_delivered(self, event: Delivered) -> None:
        """Compare with the sequence, or make it longer."""
        history = self.history
        span = history.span
        track = self._track.get(event.node)
        if track is None or span is not history.node.span:
            return  # M1 and D5 speak of it
        frame = history.frame
        at = span.count - 1 - track.base
        if at < 0:
            if history.again:  # of a frame that is forgotten
                self._repeat(event)
            return
        if at < len(track.order):
            other, node = track.order[at]
            if other is not frame:
                self._differ(event, other, node)
            return
        if track.regular:
            self._follow(event, track, frame)
        elif history.again:
            self._repeat(event)
        track.order.append((frame, event.node))

    def on_stretch(self, stretch: Stretch) -> None:
        """All members, with one sequence up to here, are past these messages."""
        ring = self.history.ring
        track: Track = ring.marks[self.tag][ring.view]
        track.order.clear()
        track.base = ring.spans[ring.members[0]].count

    def _follow(self, event: Delivered, track: Track, frame: PlacedFrame) -> None:
        """``frame`` is the next one of a regular configuration: what was left out?"""
        ring = frame.ring
        last = track.order[-1][0].seq if track.order else max(ring.trimmed_seq, ring.stretched_seq)
        if frame.seq <= last:
            self._repeat(event)
        elif frame.seq > last + 1:
            frames = ring.frames
            gap = range(last + 1, frame.seq)
            found = (n for n in gap if n in frames) if len(gap) < len(frames) else frames
            left_out = min((n for n in found if last < n < frame.seq), default=None)
            if left_out is not None:
                self.violate(
                    f"Processor {event.node} delivered {frame} in {event.view} at "
                    f"{event.t_us} us, but left out {frames[left_out]} of processor "
                    f"{frames[left_out].sender}.",
                    (event.node, frames[left_out].sender),
                    (frames[left_out], frame),
                    event.t_us,
                )

    def _repeat(self, event: Delivered) -> None:
        self.violate(
            f"Processor {event.node} delivered {self.history.frame} in {event.view} at "
            f"{event.t_us} us, after messages with higher numbers or for the second time.",
            (event.node,),
            (self.history.frame,),
            event.t_us,
        )

    def _differ(self, event: Delivered, other: PlacedFrame, node: NodeId) -> None:
        frame = self.history.frame
        self.violate(
            f"In {event.view} message number {self.history.span.count} is {other} at processor "
            f"{node} and {frame} at processor {event.node} ({event.t_us} us).",
            (node, event.node),
            (other, frame),
            event.t_us,
        )

    def ring_trimmed(self, ring: CheckedRing) -> None:
        """All members have passed the front of the sequence."""
        track: Track | None = ring.marks.get(self.tag, {}).get(ring.view)
        if track is not None:
            order = track.order
            cut = next((k for k, (f, _) in enumerate(order) if f.index > ring.trimmed), len(order))
            del order[:cut]
            track.base += cut

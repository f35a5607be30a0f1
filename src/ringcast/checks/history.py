"""History: what several properties need to know of a trace, kept up once per event.

Bounded: a ring in which all members are is trimmed behind the slowest of them; a ring that is
ending is kept whole until it is over (every member has left it, crashed, or gone past it), then
forgotten. What stays for ever is a few numbers per processor, and the places in rings that are no
configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ringcast.checks.ring import CheckedMember, CheckedRing, PlacedFrame, RingStay, State
from ringcast.checks.stretch import Share, Stretch
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
    Noted,
    Originated,
    Restarted,
    TraceEvent,
)

TRIM_EVERY = 1024
"""Frames of a ring between two looks at what all members have delivered."""

REMEMBERED = 1024
"""Configurations whose first ``conf`` is kept before a look at which can go."""


class History:
    """Follows a trace. ``node``, ``span``, ``frame`` and ``again`` are about the latest event."""

    def __init__(self, bound_us: int | None = None) -> None:
        self.bound_us = bound_us  # a ring that has ceased is left within this time (M5)
        self.nodes: dict[NodeId, CheckedMember] = {}
        self.rings: dict[ViewId, CheckedRing] = {}
        self.first_conf: dict[ViewId, Installed] = {}
        self.earlier: Installed | None = None  # first conf of the latest one's configuration
        self.node: CheckedMember
        self.span: RingStay
        self.ring: CheckedRing  # of the latest stretch
        self.frame: PlacedFrame
        self.again = False  # the latest origination or delivery repeats one
        self.differs = False  # it tells something else of its frame than the first that named it
        self.fresh = False  # it is a delivery, and no event named its frame before
        self.other: PlacedFrame | None = None
        """What the latest event's place held last, if its ring is no configuration and the place
        never held what the event says."""
        self.given_again = False
        """If so: whoever gives such a place has lost its storage since then."""
        self._elsewhere: dict[tuple[ViewId, int], PlacedFrame] = {}
        """What was first told of each place in such a ring: where configurations are topologies,
        there are no others."""
        self._later: dict[tuple[ViewId, int], list[PlacedFrame]] = {}
        """What places that were given again held then. There is a loss for each, so they are few,
        and nothing else is kept: one that nothing excuses breaks what is about places."""
        self.life = 1  # of a delivery: the incarnation of its sender
        self.over: list[CheckedRing] = []  # rings that ended with the latest event
        self.trimmed: CheckedRing | None = None
        self.forgotten: ViewId | None = None  # largest ring forgotten
        self.broken = False  # a property has been violated by the latest event
        self.lost: set[NodeId] = set()  # who came back without its stable storage
        self.losses = 0  # how often somebody did
        self._last_loss: dict[NodeId, int] = {}  # which of these was a processor's last
        self.ids_reused = False
        self.deliveries = 0
        self.configurations = 0
        self.noted: set[str] = set()  # kinds of notes that occur
        self._remember = REMEMBERED
        self._update: dict[type, Callable[[Any], None]] = {
            Originated: self._originated,
            Delivered: self._delivered,
            Installed: self._installed,
            Crashed: self._crashed,
            Restarted: self._restarted,
            Noted: self._note,
            Stretch: self._stretched,
        }

    def update(self, event: TraceEvent | Stretch) -> None:
        """Take in the next event of the trace, or many at once."""
        act = self._update.get(type(event))
        if act is not None:
            act(event)

    def known(self, id: NodeId) -> CheckedMember:
        """The processor, met now or earlier."""
        node = self.nodes.get(id)
        if node is None:
            node = self.nodes[id] = CheckedMember(id)
        return node

    def last_frame(self, share: Share) -> PlacedFrame:
        """The last frame of a sender in the latest stretch, for explanations."""
        frame = PlacedFrame(self.ring, share.seq, 0)
        frame.sender = share.sender
        return frame

    def forgot(self, view: ViewId) -> bool:
        """Whether a ring that is not known may have been known once."""
        return self.forgotten is not None and view <= self.forgotten

    # messages

    def _place(self, id: NodeId, view: ViewId) -> RingStay:
        """The span of processor ``id`` in ring ``view``; a stray one if it never had any."""
        node = self.node = self.known(id)
        span = node.span
        if span is not None and (span.ring.view is view or span.ring.view == view):
            return span
        ring = self.rings.get(view) or CheckedRing(view, ())
        span = ring.spans.get(id)
        if span is None:
            span = RingStay(ring, node, State.STRAY)
            if ring.members:
                ring.spans[id] = span
        return span

    def _new_frame(
        self, ring: CheckedRing, event: Originated | Delivered, sender: NodeId
    ) -> PlacedFrame:
        index = 0  # everybody has had it, so this is a repetition
        if event.seq > ring.trimmed_seq:
            index = ring.last_index = ring.last_index + 1
        frame = PlacedFrame(ring, event.seq, index)
        frame.fill(event, sender, self._sender(ring, sender), self.losses)
        if not ring.members:
            self._compare(frame, event, sender)
        elif index:
            ring.frames[event.seq] = frame
        return frame

    def _compare(self, frame: PlacedFrame, event: Originated | Delivered, sender: NodeId) -> None:
        """Whether the place of ``frame``, in a ring that is no configuration, held this before."""
        key = (frame.ring.view, frame.seq)
        first = self._elsewhere.setdefault(key, frame)
        if first.holds(event, sender):
            return
        later = self._later.get(key, [])
        if any(each.holds(event, sender) for each in later):
            return
        other = self.other = later[-1] if later else first
        self.given_again = self.lost_since(other.losses, (key[0].rep, other.sender, sender))
        if self.given_again:
            self._later[key] = [*later, frame]

    def lost_since(self, losses: int, ids: Iterable[NodeId]) -> bool:
        """Whether one of these has lost its storage since there were so many losses."""
        return any(self._last_loss.get(id, 0) > losses for id in ids)

    def _sender(self, ring: CheckedRing, sender: NodeId) -> int:
        """Which incarnation of ``sender`` is meant: the one that is or was in the ring."""
        span = ring.spans.get(sender)
        return self.incarnation(sender) if span is None else span.incarnation

    def incarnation(self, id: NodeId) -> int:
        """Of a processor; one of which there is nothing but a name does not become one by that."""
        node = self.nodes.get(id)
        return 1 if node is None else node.incarnation

    def drop_past(self, id: NodeId, lives: dict[int, Any]) -> None:
        """Remove from ``lives``, by incarnation, what no event can be about any more.

        The present incarnation stays, the one before, which may have agreed to a ring that is to
        come, and those that were in a ring which is not over."""
        spans = (ring.spans.get(id) for ring in self.rings.values())
        known = {span.incarnation for span in spans if span is not None}
        for incarnation in sorted(lives):
            if incarnation < self.incarnation(id) - 1 and incarnation not in known:
                del lives[incarnation]

    def _originated(self, event: Originated) -> None:
        span = self.span = self._place(event.node, event.ring)
        ring, sender = span.ring, event.owner
        frame, self.other = ring.frames.get(event.seq), None
        self.differs = frame is not None and not frame.holds(event, sender)
        if frame is None:
            frame = self._new_frame(ring, event, sender)
            if frame.index % TRIM_EVERY == 0:
                self._trim(ring)
        self.again = frame.index == 0 or frame.origin_us is not None
        if not self.again:
            frame.origin_us = event.t_us
        self.frame = frame

    def _delivered(self, event: Delivered) -> None:
        self.deliveries += 1
        span = self.span = self._place(event.node, event.ring)
        ring = span.ring
        frame, self.other = ring.frames.get(event.seq), None
        self.differs = frame is not None and not frame.holds(event, event.sender)
        self.fresh = frame is None
        if frame is None:
            frame = self._new_frame(ring, event, event.sender)
        self.frame = frame
        # Whoever named the frame first may have named another sender.
        same = frame.sender == event.sender
        self.life = frame.incarnation if same else self._sender(ring, event.sender)
        index = frame.index
        self.again = index <= span.highest and span.holds(index)
        if index:
            span.add(index)

    def _stretched(self, stretch: Stretch) -> None:
        """All members have delivered these frames, which are not worth remembering."""
        ring = self.ring = self.rings[stretch.ring]
        first = ring.last_index + 1
        ring.last_index += stretch.frames
        for member in ring.members:
            ring.spans[member].add_range(first, ring.last_index)
        self.deliveries += stretch.frames * len(ring.members)
        ring.stretched_seq = max(ring.stretched_seq, stretch.seq)

    def _trim(self, ring: CheckedRing) -> None:
        """Forget the frames that every member of a running ring has delivered."""
        running = [s for s in ring.spans.values() if s.state is not State.CRASHED]
        if any(s.state is not State.OPEN or s.then for s in running):
            return  # it is ending: explanations may need all of it, and it will be over soon
        low = min((s.prefix for s in running), default=0)
        if low > ring.trimmed:
            gone = [f.seq for f in ring.frames.values() if f.index <= low]
            for seq in gone:
                del ring.frames[seq]
            ring.trimmed, ring.trimmed_seq = low, max(ring.trimmed_seq, *gone)
            self.trimmed = ring

    # configurations

    def _installed(self, event: Installed) -> None:
        self.configurations += 1
        node = self.node = self.known(event.node)
        node.previous, node.current, node.left = node.current, event, None
        self.earlier = self.first_conf.setdefault(event.view, event)
        if event.transitional:
            if node.span is not None:
                node.span.enter(event)
            return
        self._leave(node, State.LEFT)
        self._pass_by(node, event.view)
        ring = self.rings.get(event.view)
        if ring is None:
            ring = self._new_ring(event)
        elif ring.members != event.members or event.view not in node.waiting:
            # Another membership, or here for the second time: two rings share an id, if who gave
            # it or who is here has forgotten the first.
            forgot = not self.lost.isdisjoint((event.view.rep, event.node))
            self.ids_reused = self.ids_reused or forgot
        before = span = ring.spans.get(node.id)
        if span is None or span.state is not State.WAITING:
            span = ring.spans[node.id] = RingStay(ring, node, State.OPEN)
            if before is not None and before.state is State.LEFT:
                span.follow(before)
        span.state, span.conf, span.incarnation = State.OPEN, event, node.incarnation
        span.enter(None)
        node.waiting.pop(event.view, None)
        node.span = span
        node.last_seq = max(node.last_seq, event.view.seq)
        if node.previous is None:
            node.born_seq = event.view.seq
        if len(self.first_conf) > self._remember:
            self._forget_confs()

    def _new_ring(self, event: Installed) -> CheckedRing:
        """The ring that ``event`` installs, made known with one span for each member."""
        ring = self.rings[event.view] = CheckedRing(event.view, event.members)
        for id in event.members:
            node = self.known(id)
            if id == event.node or (node.up and node.last_seq < event.view.seq):
                span = node.waiting[event.view] = RingStay(ring, node, State.WAITING)
            elif not node.up or node.born_seq > event.view.seq:
                span = RingStay(ring, node, State.CRASHED)
                span.incarnation -= node.up  # it has started again since it agreed to the ring
            else:
                span = RingStay(ring, node, State.SKIPPED)
            ring.spans[id] = span
        return ring

    def _leave(self, node: CheckedMember, state: State) -> None:
        """End the present span of ``node``."""
        span = node.span
        if span is not None:
            span.state = state
            node.left, node.span = span, None
            self._end_if_over(span.ring)

    def _pass_by(self, node: CheckedMember, view: ViewId | None) -> None:
        """Rings that wait for ``node`` do so in vain, once it installs ``view`` or crashes."""
        # A first conf means that it has crashed between agreeing to the ring and now.
        state = State.CRASHED if view is None or node.previous is None else State.SKIPPED
        for old, span in list(node.waiting.items()):
            if view is None or old < view:
                span.state = state
                del node.waiting[old]
                self._end_if_over(span.ring)

    def _end_if_over(self, ring: CheckedRing) -> None:
        if ring.over and self.rings.get(ring.view) is ring:
            del self.rings[ring.view]
            self.forgotten = max(self.forgotten or ring.view, ring.view)
            self.over.append(ring)

    def _forget_confs(self) -> None:
        """Drop first confs that no processor can repeat without going back in number (M3)."""
        low = min(node.last_seq for node in self.nodes.values())
        self.first_conf = {v: e for v, e in self.first_conf.items() if v.seq >= low}
        self._remember = max(REMEMBERED, 2 * len(self.first_conf))

    def _note(self, event: Noted) -> None:
        self.noted.add(event.what)

    # crashes

    def _crashed(self, event: Crashed) -> None:
        node = self.node = self.known(event.node)
        node.up = False
        node.crashes += 1
        node.current = node.previous = node.left = None
        self._leave(node, State.CRASHED)
        self._pass_by(node, None)

    def _restarted(self, event: Restarted) -> None:
        node = self.node = self.known(event.node)
        node.up = True
        node.incarnation = event.incarnation
        node.left = None
        if not event.storage_kept:
            self.lost.add(node.id)
            self.losses += 1
            self._last_loss[node.id] = self.losses
            node.last_seq = node.born_seq = 0

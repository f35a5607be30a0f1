"""M5 termination: nobody stays behind in a ring that has ceased.

A ring ceases when a member crashes or goes on to another configuration. Everyone else in it then
gets another configuration or crashes: by the end of the trace if it is settled, and, where the
history has a bound, within that time of the last fault (Th 4.3). A paused processor is excused.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads, rings
from ringcast.checks.ring import CheckedRing, State
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Ended, Faulted, Installed, Restarted


class Termination(Property):
    """M5."""

    tag = "M5"
    title = "termination"
    reads = Reads.NOTHING
    about_deliveries = False

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last_fault_us = 0
        self._paused: set[NodeId] = set()

    def on_installed(self, event: Installed) -> None:
        """A member has gone on."""
        self._watch(event.t_us)

    def on_crashed(self, event: Crashed) -> None:
        """A member is gone."""
        self._paused.discard(event.node)
        self._fault(event.t_us)

    def on_restarted(self, event: Restarted) -> None:
        """A fault as well: the others have to take it in."""
        self._fault(event.t_us)

    def on_faulted(self, event: Faulted) -> None:
        """The bound counts from the last fault."""
        self._fault(event.t_us)
        if event.kind == "pause":
            self._paused.add(event.node)
        elif event.kind == "resume":
            self._paused.discard(event.node)

    def on_ended(self, event: Ended) -> None:
        """Nobody settled is left behind."""
        self._watch(event.t_us)
        for ring in rings(self.history):
            if gone := _gone(ring):
                for node in _behind(ring):
                    self.owed(
                        node in event.settled,
                        f"Processor {node} is still in {ring.view} at the end, although processor "
                        f"{gone} left it or crashed.",
                        (node, gone),
                        (),
                        event.t_us,
                    )

    def _fault(self, t_us: int) -> None:
        self._watch(t_us)
        self._last_fault_us = t_us

    def _watch(self, t_us: int) -> None:
        """Note which rings have ceased, and who stayed too long."""
        bound_us = self.history.bound_us
        if bound_us is None:
            return
        for ring in rings(self.history):
            if gone := _gone(ring):
                since_us = max(ring.marks.setdefault(self.tag, t_us), self._last_fault_us)
                if t_us - since_us > bound_us:
                    for node in _behind(ring):
                        if node not in self._paused:
                            self.violate(
                                f"Processor {node} is still in {ring.view} at {t_us} us; processor "
                                f"{gone} left it or crashed, and nothing was disturbed since "
                                f"{since_us} us.",
                                (node, gone),
                                (),
                                t_us,
                            )


def _gone(ring: CheckedRing) -> NodeId | None:
    """A member that left the ring or crashed."""
    for span in ring.spans.values():
        if span.state in (State.LEFT, State.SKIPPED, State.CRASHED) or span.then is not None:
            return span.node
    return None


def _behind(ring: CheckedRing) -> list[NodeId]:
    """The members that are still in the ring itself."""
    return [s.node for s in ring.spans.values() if s.state is State.OPEN and s.then is None]

"""Are the logs of a group whole? What a log that stops too early, or is not there, could explain
is neither kept nor broken.

A life is told to its end if its log has the process's last word (``Crashed``), or if its end was
noticed: the processor started again, or somebody who was in its last configuration went on without
it. Then it was killed, and what it had sent is in its log. If others list it in a later
configuration, or delivered more of it than that, the log was cut.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)

NOT_TOLD = "not told"
"""Why a life ended that could not say so: the reason in a ``Crashed`` that nobody wrote."""

OWN = (Submit, Originated, Delivered, Installed, ReportedUncertain, Crashed, Restarted, Noted)
"""Events of a processor."""


class _Life:
    """What the log of a processor tells of one of its lives."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.views: list[ViewId] = []
        """The regular configurations it was in."""
        self.submitted = 0
        self.over = False
        """It says itself that it ended, or somebody saw it."""


class Wholeness:
    """Follows a trace made of logs; ``lacks`` says at its end what is not told."""

    def __init__(self) -> None:
        self._lives: dict[NodeId, list[_Life]] = {}
        self._now: dict[NodeId, Installed] = {}
        """The regular configuration that each is in."""
        self._listed: dict[NodeId, ViewId] = {}
        """The last configuration in which others list it."""
        self._left: dict[NodeId, ViewId] = {}
        """The last one out of which others went on without it."""
        self._heard: dict[tuple[NodeId, ViewId], int] = {}
        """The last number of each that others delivered in a configuration."""
        self._lost: dict[NodeId, str] = {}

    def logged(self, nodes: Iterable[NodeId]) -> None:
        """Whose logs there are; 0 is the world's."""
        for node in nodes:
            if node:
                self._lives[node] = []

    def take(self, event: TraceEvent) -> None:
        """The next event."""
        if not isinstance(event, OWN) or event.node not in self._lives:
            return
        node = event.node
        lives = self._lives[node]
        if type(event) is Restarted:
            self._started(event)
            return
        if not lives:
            lives.append(_Life(0))
        lives[-1].over = type(event) is Crashed and event.reason != NOT_TOLD
        match event:
            case Submit(first=first, sizes=sizes):
                lives[-1].submitted = first + len(sizes) - 1
            case Installed():
                self._installed(event)
            case Delivered():
                self._delivered(node, event)
            case Noted():
                if (asked := SubmittedTo.read(event)) is not None:
                    lives[-1].submitted = asked.first + len(asked.digests) - 1
                elif (got := DeliveredTo.read(event)) is not None:
                    self._delivered(node, got)

    def _delivered(self, node: NodeId, event: Delivered | DeliveredTo) -> None:
        here = self._now.get(node)
        if here is not None and node != event.sender:
            key = (event.sender, here.view)
            last = event.first + len(event.digests) - 1
            self._heard[key] = max(last, self._heard.get(key, 0))

    def _started(self, event: Restarted) -> None:
        node, lives = event.node, self._lives[event.node]
        before = lives[-1].incarnation if lives else 0
        if not before:
            lives.clear()  # what is told before the first start is no life
        if event.incarnation > before + 1 and (lives or node in self._listed):
            self._lost.setdefault(node, f"the log of its life {before + 1} is missing")
        lives.append(_Life(event.incarnation))
        self._now.pop(node, None)

    def _installed(self, event: Installed) -> None:
        before = self._now.get(event.node)
        for other in before.members if before else ():
            if before and other not in event.members:
                self._left[other] = max(before.view, self._left.get(other, before.view))
        if event.transitional:
            return
        self._now[event.node] = event
        self._lives[event.node][-1].views.append(event.view)
        for other in event.members:
            if other != event.node:
                self._listed[other] = max(event.view, self._listed.get(other, event.view))

    def lacks(self) -> dict[NodeId, str]:
        """Of which processors not everything is told, and what not."""
        found = dict.fromkeys(self._listed.keys() - self._lives.keys(), "it has no log")
        found |= self._lost
        for node, lives in self._lives.items():
            last = lives[-1] if lives else _Life(0)
            if not last.over and not self._noticed(node, last):
                found.setdefault(node, "its log has no end")
        for (node, view), number in self._heard.items():
            if node in self._lives and not self._tells(self._lives[node], view, number):
                found.setdefault(node, f"its log stops before message {number}, which others have")
        return {node: found[node] for node in sorted(found)}

    def _noticed(self, node: NodeId, life: _Life) -> bool:
        """Whether others went on without it, from the last configuration that it was in."""
        if not life.views:
            return False
        last = life.views[-1]
        return self._left.get(node) == last >= self._listed.get(node, last)

    @staticmethod
    def _tells(lives: list[_Life], view: ViewId, number: int) -> bool:
        """Whether a message can be of one of these lives. What one that says how it ended has not
        submitted was made up: that is not the log's fault."""
        present = [life for life in lives if view in life.views] or lives
        return any(life.over or number <= life.submitted for life in present)

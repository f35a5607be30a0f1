"""What frames that nobody could open say of their senders.

Anybody can send such a frame in any name. It may come from a member with another key, protocol or
release, which is worth a line to the operator, and it proves nothing.
"""

from __future__ import annotations

from ringcast.core.ids import NodeId

MOST = 16
"""Processors of which such a frame is remembered: the newest."""

PATIENCE = 10
"""Calls of ``age`` for which it is, unless it is repeated. A member says Hello at each of them."""


class Unproven:
    """How processors seem to be set up, by frames that anybody could have sent."""

    def __init__(self) -> None:
        self._said: dict[NodeId, tuple[str, int]] = {}
        """The words, and for how long they are remembered, oldest first."""

    def note(self, src: NodeId, why: str) -> None:
        """A frame in the name of ``src`` came that does not fit."""
        self._said.pop(src, None)
        self._said[src] = why, PATIENCE
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]

    def forget(self, src: NodeId) -> None:
        """It was met."""
        self._said.pop(src, None)

    def age(self) -> None:
        """Once in a while: what is not repeated is forgotten."""
        self._said = {src: (why, left - 1) for src, (why, left) in self._said.items() if left > 1}

    def said(self) -> dict[NodeId, str]:
        """By processor, worded as what it is."""
        end = "by frames that anybody could have sent"
        return {src: f"{why} ({end})" for src, (why, _) in self._said.items()}

"""What frames say of their senders without proof.

Anybody can send a frame that cannot be opened in any name. It may come from a member with another
key, protocol or release. A Hello that was opened, but has not this node's challenge in it, may be a
recorded one. Both are worth a line to the operator, and prove nothing.
"""

from __future__ import annotations

from ringcast.core.ids import NodeId

MOST = 16
"""Processors of which such a frame is remembered: the newest."""

PATIENCE = 10
"""Calls of ``age`` for which it is, unless it is repeated. A member says Hello at each of them."""

ANYBODY = "by frames that anybody could have sent"
OLD = "by a Hello that may be an old one"


class Unproven:
    """How processors seem to be set up, by frames that prove nothing."""

    def __init__(self) -> None:
        self._said: dict[NodeId, tuple[str, str, int]] = {}
        """The words, how they came, and for how long they are remembered, oldest first."""

    def note(self, src: NodeId, why: str, by: str = ANYBODY) -> None:
        """A frame in the name of ``src`` came that does not fit."""
        self._said.pop(src, None)
        self._said[src] = why, by, PATIENCE
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]

    def forget(self, src: NodeId) -> None:
        """It was met."""
        self._said.pop(src, None)

    def age(self) -> None:
        """Once in a while: what is not repeated is forgotten."""
        said = self._said.items()
        self._said = {src: (why, by, left - 1) for src, (why, by, left) in said if left > 1}

    def said(self, *by: str) -> dict[NodeId, str]:
        """By processor, worded as what it is: all, or what came in one of these ways."""
        said = self._said.items()
        return {src: f"{why} ({how})" for src, (why, how, _) in said if not by or how in by}

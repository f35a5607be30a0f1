"""What processors say of themselves that does not fit.

A Hello with this node's challenge in it proves it. Anybody can send a frame that cannot be opened
in any name: it may come from a member with another key, protocol or release. A Hello that was
opened, but has another challenge in it, may be a recorded one. These are worth a line to the
operator, and prove nothing.
"""

from __future__ import annotations

from collections.abc import Container

from ringcast.core.ids import NodeId

MOST = 16
"""Processors of which words without proof are remembered."""

PATIENCE = 10
"""Calls of ``age`` for which words are, unless they are repeated. A member that was not met says
Hello at each of them."""

PROVEN = ""
ANYBODY = " (by frames that anybody could have sent)"
OLD = " (by a Hello that may be an old one)"


class Misfits:
    """How processors are, or seem to be, set up otherwise than this one: the ``most`` newest."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._said: dict[NodeId, tuple[str, str, int]] = {}
        """The words, how they came, and for how long they are remembered, oldest first."""

    def __contains__(self, src: object) -> bool:
        return src in self._said

    def __len__(self) -> int:
        return len(self._said)

    def note(self, src: NodeId, why: str, by: str) -> None:
        """A frame in the name of ``src`` came that does not fit."""
        self._said.pop(src, None)
        self._said[src] = why, by, PATIENCE
        if len(self._said) > self._most:
            del self._said[next(iter(self._said))]

    def forget(self, src: NodeId) -> None:
        """It fits, or was met."""
        self._said.pop(src, None)

    def age(self, keep: Container[NodeId] = ()) -> None:
        """Once in a while: what is not repeated is forgotten, except of those to ``keep``."""
        for src, (why, by, left) in list(self._said.items()):
            if src in keep:
                continue
            if left > 1:
                self._said[src] = why, by, left - 1
            else:
                del self._said[src]

    def said(self, *by: str) -> dict[NodeId, str]:
        """By processor, worded as what it is: all, or what came in one of these ways."""
        said = self._said.items()
        return {src: why + how for src, (why, how, _) in said if not by or how in by}

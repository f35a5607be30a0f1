"""Rows that are published once each, also when their writer repeats a batch after a failure.

A writer numbers its batches, and the rows of a batch; it publishes them in order. Everybody
remembers, for each writer, how far it has come, and drops what came before. This is a function of
the total order: on a new ring each node says what it remembers, and rows are taken only on the
ring they were sent on, behind all of those words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringcast.wire.envelope import Known, NumberedRows

MOST = 256
"""Writers remembered; whoever has been silent longest is forgotten first."""


class WriterDedup:
    """How far each writer has come."""

    def __init__(self) -> None:
        self._reached: dict[tuple[str, str], tuple[int, int]] = {}

    def fresh(self, word: NumberedRows) -> int:
        """How many of the rows at the beginning were delivered before; the others are now."""
        batch, done = self._reached.get((word.group, word.stream), (-1, 0))
        if word.batch < batch:
            return len(word.bodies)
        known = max(0, done - word.first) if word.batch == batch else 0
        end = word.first + len(word.bodies)
        self._note(word.group, word.stream, word.batch, max(end, done if known else 0))
        return min(known, len(word.bodies))

    def known(self) -> tuple[Known, ...]:
        """What this node remembers, for the others."""
        return tuple(Known(*key, *reached) for key, reached in self._reached.items())

    def learn(self, words: Iterable[Known]) -> None:
        """What others remember, in an order that is the same everywhere."""
        for each in words:
            if (each.batch, each.rows) > self._reached.get((each.group, each.stream), (-1, 0)):
                self._note(each.group, each.stream, each.batch, each.rows)

    def _note(self, group: str, stream: str, batch: int, rows: int) -> None:
        self._reached.pop((group, stream), None)
        self._reached[group, stream] = (batch, rows)
        if len(self._reached) > MOST:
            del self._reached[next(iter(self._reached))]

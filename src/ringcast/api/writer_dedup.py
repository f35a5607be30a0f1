"""Rows that are published once each, also when their writer repeats a batch after a failure.

A writer numbers its batches, and the rows of a batch; it publishes them in order. Everybody
remembers, for each writer, how far it has come, and drops what came before. This is a function of
the total order: on a new ring each node says what it remembers, and rows are taken only on the
ring they were sent on, behind all of those words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringcast.wire.envelope import MOST_WRITERS, MOST_WRITTEN, Known, NumberedRows


class WriterDedup:
    """How far each writer has come."""

    def __init__(self) -> None:
        self._reached: dict[str, dict[str, tuple[int, int]]] = {}
        """By writer and group, both oldest first."""

    def _last(self, group: str, stream: str) -> tuple[int, int]:
        return self._reached.get(stream, {}).get(group, (-1, 0))

    def fresh(self, word: NumberedRows) -> int:
        """How many of the rows at the beginning were delivered before; the others are now."""
        batch, done = self._last(word.group, word.stream)
        if word.batch < batch:
            return len(word.bodies)
        known = max(0, done - word.first) if word.batch == batch else 0
        end = word.first + len(word.bodies)
        self._note(word.group, word.stream, word.batch, max(end, done if known else 0))
        return min(known, len(word.bodies))

    def known(self) -> tuple[Known, ...]:
        """What this node remembers, for the others."""
        return tuple(
            Known(group, stream, *reached)
            for stream, groups in self._reached.items()
            for group, reached in groups.items()
        )

    def learn(self, words: Iterable[Known]) -> None:
        """What others remember, in an order that is the same everywhere."""
        for each in words:
            if (each.batch, each.rows) > self._last(each.group, each.stream):
                self._note(each.group, each.stream, each.batch, each.rows)

    def _note(self, group: str, stream: str, batch: int, rows: int) -> None:
        groups = self._reached.pop(stream, {})
        groups.pop(group, None)
        groups[group] = (batch, rows)
        self._reached[stream] = groups
        for found, most in ((groups, MOST_WRITTEN), (self._reached, MOST_WRITERS)):
            if len(found) > most:
                del found[next(iter(found))]

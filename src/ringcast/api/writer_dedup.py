"""Rows that are published once each, also when their writer repeats a batch after a failure.

A writer numbers its batches, and the rows of a batch; it publishes them in order. Everybody
remembers, for each writer, how far it has come, and drops what came before. This is a function of
the total order: on a new ring each node says what it remembers, as much as a message takes. What
was said is what counts, and rows are taken only on the ring they were sent on, behind all of those
words; and in what is left of it when members only went (``InstallView.narrows``), for those who
stay remember the same.

What others say may be wrong, and cannot be checked: a writer may come far while rings are apart.
All drop the same rows all the same, but a node acknowledges none of them that it drops by the word
of others alone, unless they are of the very batch that these speak of. That is the one a writer
repeats. A node with a journal acknowledges that batch, too, only when its journal ``has`` the rows:
those who said that they came may have lost them since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringcast.core.errors import RingcastError
from ringcast.wire.envelope import MOST_WRITERS, MOST_WRITTEN, Known, NumberedRows


class Had(NamedTuple):
    """Rows of a batch that this node has taken itself, or its journal has, without a gap."""

    batch: int
    first: int
    end: int


class Reached(NamedTuple):
    """How far a writer has come in a group."""

    batch: int
    rows: int
    had: Had
    """Of the last batch of which this node has any."""


NOWHERE = Reached(-1, 0, Had(-1, 0, 0))


class WriterDedup:
    """How far each writer has come."""

    def __init__(self) -> None:
        self._reached: dict[str, dict[str, Reached]] = {}
        """By writer and group, both oldest first."""
        self._unsaid: list[tuple[str, str, Reached]] = []
        """What came since the members of the ring have said what they remember."""

    def _last(self, group: str, stream: str) -> Reached:
        return self._reached.get(stream, {}).get(group, NOWHERE)

    def check(self, group: str, stream: str, batch: int) -> None:
        """RingcastError if rows of the batch would be dropped by the word of others alone."""
        last = self._last(group, stream)
        if last.had.batch < batch < last.batch:
            raise RingcastError(
                f"batch {batch} of writer {stream!r} is not published in group {group!r}: another "
                f"member has said that batch {last.batch} came before, and this node has not seen "
                "it. Repeat an earlier batch at a node that has; if none has, choose another name "
                "for the writer"
            )

    def fresh(self, word: NumberedRows, unsaid: bool = False) -> int:
        """How many of the rows at the beginning were delivered before; the others are now.
        ``unsaid``: what the members remember is being said, without these."""
        batch, done, had = self._last(word.group, word.stream)
        if word.batch < batch:
            return len(word.bodies)
        known = max(0, done - word.first) if word.batch == batch else 0
        end = word.first + len(word.bodies)
        if known < len(word.bodies):
            had = joined(had, Had(word.batch, word.first + known, end))
        reached = Reached(word.batch, max(end, done if known else 0), had)
        self._note(word.group, word.stream, reached)
        if unsaid:
            self._unsaid.append((word.group, word.stream, reached))
        return min(known, len(word.bodies))

    def has(self, group: str, stream: str, rows: Had) -> bool:
        """Whether this node has rows, or later ones, and not only the word of others."""
        had = self._last(group, stream).had
        return rows.batch < had.batch or joined(had, rows) == had

    def hold(self, words: Iterable[Known]) -> None:
        """What the node's journal has got from others. What all drop does not change."""
        for each in words:
            groups = self._reached.get(each.stream, {})
            if (last := groups.get(each.group)) is not None:
                got, had = Had(each.batch, 0, each.rows), last.had
                if got.batch > had.batch:
                    groups[each.group] = last._replace(had=got)
                elif got.batch == had.batch:
                    groups[each.group] = last._replace(had=joined(got, had))

    def known(self) -> tuple[Known, ...]:
        """What this node remembers, for the others."""
        return tuple(
            Known(group, stream, reached.batch, reached.rows)
            for stream, groups in self._reached.items()
            for group, reached in groups.items()
        )

    def learn(self, words: Iterable[Known], own: bool = False) -> None:
        """What others remember, in an order that is the same everywhere; ``own``: what this node
        does."""
        for each in words:
            batch, rows, had = self._last(each.group, each.stream)
            if (each.batch, each.rows) > (batch, rows):
                had = Had(each.batch, 0, each.rows) if own else had
                self._note(each.group, each.stream, Reached(each.batch, each.rows, had))

    def new_ring(self) -> None:
        """Its members say what they remember."""
        self._unsaid.clear()

    def agree(self, words: Iterable[Known]) -> None:
        """What the members of a new ring remember, in an order that is the same everywhere. What
        nobody said is forgotten: others do not know it, and all have to drop the same rows."""
        before, self._reached = self._reached, {}
        self.learn(words)
        for stream, groups in self._reached.items():
            for group, reached in groups.items():
                last = before.get(stream, {}).get(group, NOWHERE)
                groups[group] = reached._replace(had=last.had)
        for group, stream, reached in self._unsaid:
            self._note(group, stream, max(reached, self._last(group, stream)))
        self._unsaid.clear()

    def _note(self, group: str, stream: str, reached: Reached) -> None:
        groups = self._reached.pop(stream, {})
        groups.pop(group, None)
        groups[group] = reached
        self._reached[stream] = groups
        for found, most in ((groups, MOST_WRITTEN), (self._reached, MOST_WRITERS)):
            if len(found) > most:
                del found[next(iter(found))]


def joined(had: Had, more: Had) -> Had:
    """With more rows of a batch; without what lies before a gap, or is of another batch."""
    if more.batch != had.batch or not had.first <= more.first <= had.end:
        return more
    return had._replace(end=max(had.end, more.end))

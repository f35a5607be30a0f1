"""token-lineage: tokens follow from each other one by one, and count who counted.

P9 and P10 of the counter-based protocol. Members note ``pass`` for each token that they pass on
(``Passed``), beginning in each epoch with the first one. A hop is passed on once, by the member
that the hop before it named; a member counts an entry once, and removes one when everybody counts.
What a member holds is not in its notes: ``tests/sim/counter_watch.py`` looks into the machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Ended, Noted
from ringcast.protocols.counter.messages import Token

KEPT = 4096
"""Hops remembered before the older half is let go; what is older is not compared."""

Key = tuple[int, int, tuple[int, ...]]
"""Of an entry: sender, cycle and destinations."""


class Listed(msgspec.Struct, frozen=True):
    """An entry as noted: its message numbers, those whose ids it bears, and its counter."""

    ids: tuple[int, ...]
    acks: tuple[int, ...]
    counter: int

    @property
    def number(self) -> int:
        """How many have counted it, whichever way."""
        return len(self.acks) or self.counter


class Passed(msgspec.Struct, frozen=True):
    """A token, as the member that passed it on noted it. ``first``: no hop of the epoch was noted
    before it. ``since`` is its list: from which cycle on each member counts."""

    node: NodeId
    epoch: int
    hop: int
    t: int
    n: NodeId
    first: bool
    since: dict[NodeId, int]
    entries: dict[Key, Listed]

    @classmethod
    def of(cls, node: NodeId, data: tuple[int, ...]) -> Passed:
        """From the numbers of a note; ValueError if they make no sense."""
        words = iter(data)
        try:
            epoch, hop, t, n, first = (next(words) for _ in range(5))
            since = {next(words): next(words) for _ in range(next(words))}
            entries: dict[Key, Listed] = {}
            for _ in range(next(words)):
                sender, cycle, counter = next(words), next(words), next(words)
                to, acks, ids = _some(words), _some(words), _some(words)
                entries[sender, cycle, to] = Listed(ids, acks, counter)
        except (StopIteration, RuntimeError) as error:
            raise ValueError("a note of a token breaks off") from error
        return cls(node, epoch, hop, t, n, bool(first), since, entries)


def _some(words: Iterator[int]) -> tuple[int, ...]:
    return tuple([next(words) for _ in range(next(words))])


def told(token: Token, first: bool) -> tuple[int, ...]:
    """What ``Passed.of`` reads."""
    words = [token.epoch, token.hop, token.t, token.n, int(first), len(token.list.seats)]
    for seat in token.list.seats:
        words += (seat.node, seat.since)
    words.append(len(token.S))
    for e in token.S:
        words += (e.sender, e.cycle, e.counter, len(e.to), *e.to)
        words += (len(e.acks), *e.acks, len(e.ids), *e.ids)
    return tuple(words)


class Lineage(Property):
    """P9, P10."""

    tag = "token-lineage"
    title = "tokens count who counted"
    about_deliveries = False
    needs_storage = True
    notes = ("pass",)
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._passed: dict[tuple[int, int], Passed] = {}
        self._counted: dict[tuple[int, Key], set[NodeId]] = {}
        """Who has counted an entry in an epoch; of entries that are in its last token."""
        self._turns: dict[tuple[int, NodeId], int] = {}
        self._early: dict[tuple[int, int], tuple[Noted, Passed]] = {}
        """Tokens noted before the one they follow from: clocks of live members differ."""
        self._let_go = (0, -1)
        """What was forgotten goes up to this epoch and hop."""
        self._crashed: set[NodeId] = set()

    def on_noted(self, event: Noted) -> None:
        """Read what a member tells of its token."""
        if event.what != "pass":
            return
        try:
            token = Passed.of(event.node, event.data or ())
        except ValueError:
            self.undecided = True  # a note that another program wrote
            return
        at = (token.epoch, token.hop)
        if at in self._passed or at in self._early:
            self._wrong(event, token, "P10: that hop was passed on before")
        self._early[at] = (event, token)
        while at in self._early:
            event, token = self._early[at]
            before = self._passed.get((token.epoch, token.hop - 1))
            if before is None and not token.first:
                break
            del self._early[at]
            self._follow(event, token, before)
            at = (at[0], at[1] + 1)

    def on_crashed(self, event: Crashed) -> None:
        """What it noted last may be lost."""
        self._crashed.add(event.node)

    def on_ended(self, event: Ended) -> None:
        """Tokens that follow from one of which nothing is known."""
        for (epoch, hop), (noted, token) in sorted(self._early.items()):
            before = self._passed.get((epoch, hop - 1))
            if before is not None:
                self._follow(noted, token, before)
            elif self._lost(epoch, hop):
                self._resume(token)
            elif self._crashed or (epoch, hop - 1) <= self._let_go:
                self.undecided = True
            else:
                self._wrong(noted, token, f"P10: nobody passed on hop {hop - 1}")

    def _lost(self, epoch: int, hop: int) -> bool:
        """Whether the notes before a hop may be lost with members that crashed: the first of them
        was the turn of one that did, and there are as many such members as notes."""
        for at in range(hop - 2, hop - 2 - len(self._crashed), -1):
            if (last := self._passed.get((epoch, at))) is not None:
                return last.n in self._crashed
        return False

    def _resume(self, token: Passed) -> None:
        """Notes were lost with their makers, so nothing can be said of the token that follows; from
        it on everything is compared again. Bare counters do not tell whom those members counted."""
        for key, entry in token.entries.items():
            self._counted[token.epoch, key] = set(entry.acks)
            self.undecided |= len(entry.acks) != entry.number
        self._turns[token.epoch, token.node] = token.t
        self._passed[token.epoch, token.hop] = token

    def _follow(self, event: Noted, token: Passed, before: Passed | None) -> None:
        turn = (token.epoch, token.node)
        if before is not None:
            if before.n != token.node:
                self._wrong(event, token, f"P10: the next owner was {before.n}")
            elif token.t not in (before.t, before.t + 1):
                self._wrong(event, token, f"P10: rotation {token.t} after {before.t}")
            for key, entry in before.entries.items():
                if key not in token.entries:
                    self._removed(event, token, before, key, entry)
        if self._turns.get(turn, -1) >= token.t:
            self._wrong(event, token, f"P10: it had passed on one of rotation {token.t}")
        self._turns[turn] = token.t
        if token.node not in token.since:
            del self._turns[turn]  # CB-33: it leaves; CB-31: who comes back owns this rotation, too
        for key, entry in token.entries.items():
            self._count(event, token, before, key, entry)
        self._passed[token.epoch, token.hop] = token
        if len(self._passed) + len(self._early) > KEPT:
            self._forget()

    def _forget(self) -> None:
        """Let go of the older half, and of epochs that have no part in the rest."""
        tables: tuple[dict[tuple[int, int], Any], ...] = (self._passed, self._early)
        for known in tables:
            for at in sorted(known)[: len(known) // 2]:
                del known[at]
                self._let_go = max(self._let_go, at)
        epoch = self._let_go[0]
        self._turns = {at: t for at, t in self._turns.items() if at[0] >= epoch}
        self._counted = {at: who for at, who in self._counted.items() if at[0] >= epoch}

    def _count(
        self, event: Noted, token: Passed, before: Passed | None, key: Key, entry: Listed
    ) -> None:
        """P9: it counts at most itself, once, and lists its own messages with nobody counted."""
        known = before.entries.get(key) if before is not None else None
        counted = self._counted.setdefault((token.epoch, key), set())
        if known is None:
            if before is not None and (key[0] != token.node or entry.number):
                self._wrong(event, token, f"P9: {_shown(key)} is nobody's to list")
            counted.update(entry.acks)
            if entry.number > len(counted):
                counted.add(token.node)  # the first of an epoch: all count anew
        elif token.node not in token.since:  # CB-33: it leaves, and takes its count back
            counted.discard(token.node)
        elif entry.number > known.number:
            if token.node in counted or token.node == key[0]:
                self._wrong(event, token, f"P9: it counts {_shown(key)} again")
            counted.add(token.node)
        if known is not None and known.ids != entry.ids:
            self._wrong(event, token, f"P9: it changes what {_shown(key)} lists")
        if len(counted) != entry.number or (entry.acks and counted != set(entry.acks)):
            self._wrong(event, token, f"P9: {sorted(counted)} have counted {_shown(key)}")

    def _removed(
        self, event: Noted, token: Passed, before: Passed, key: Key, entry: Listed
    ) -> None:
        """CB-4, CB-16: by its sender, or anybody once that is gone, and when all hold it."""
        sender, cycle, to = key
        expected = {
            node
            for node, since in before.since.items()
            if node != sender and since <= cycle and (not to or node in to)
        }
        missing = expected - self._counted.pop((token.epoch, key), set())
        orphan = before.since.get(sender, cycle + 1) > cycle
        if missing or not (sender == token.node or orphan):
            self._wrong(event, token, f"P9: it removes {_shown(key)}, without {sorted(missing)}")

    def _wrong(self, event: Noted, token: Passed, why: str) -> None:
        self.violate(
            f"Processor {token.node} passed on hop {token.hop} of epoch {token.epoch}, rotation "
            f"{token.t}, at {event.t_us} us; {why}.",
            (token.node,),
            (),
            event.t_us,
        )


def _shown(key: Key) -> str:
    return f"the messages of {key[0]} in cycle {key[1]}"

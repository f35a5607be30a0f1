"""Who has which safe message, by the members' own word (dossier 4.7, A1 to A4).

The dissertation counts what a *ring* received, though a member's multiple-ring layer may discard
it. Here each says itself what it has stored. Bounded: what is known of a message goes when it is
delivered, and what concerns older places is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import Change, Key, Keys, Receipts, SafeKey
from ringcast.protocols.totem_multi.network import path
from ringcast.protocols.totem_single.messages import RingId

LARGE = 2**31
MOST_KEYS = 1024
"""Safe messages that one acknowledgement or one bound speaks of."""


MOST_AWAITED = 65_536
"""Messages of which words are kept, more than all queues of a network hold."""

Words: TypeAlias = dict[SafeKey, dict[tuple[NodeId, RingId], bool]]
"""Of each message, who said in which ring's stream that it has it, or never will."""


class Acknowledged:
    """A3: for each safe message, which interface said in which ring's stream that it has it, or
    that it never will (A4 ext)."""

    def __init__(self) -> None:
        self.version = 0  # rises with each word
        self._passed: SafeKey = (-1, RingId(0, 0))  # words on messages up to here are not needed
        self._said: Words = {}
        self._aside: Words = {}
        self.unreported: dict[RingId, dict[NodeId, dict[SafeKey, bool]]] = {}
        """Said in the stream of a ring of mine, and in no Bound that it carried: what others must
        be told of that ring."""

    def heard(self, pid: NodeId, stream: RingId, keys: Keys, refused: Keys) -> None:
        """A3: what ``pid`` said in the stream of a ring; having it outweighs a refusal."""
        self._note(self._said, pid, stream, keys, refused)

    def hear_aside(self, stream: RingId, receipts: Receipts) -> None:
        """A3 ext: what is told by a Bound or a change that is put aside (A7). It stays news
        (MR-12 ext): others, to whom it was passed on, may have taken that for a copy."""
        for pid, keys, refused in receipts:
            self._note(self._aside, pid, stream, keys, refused)

    def _note(self, words: Words, pid: NodeId, stream: RingId, keys: Keys, refused: Keys) -> None:
        self.version += 1
        if len(words) >= MOST_AWAITED:
            self._let_go(words)
        for key in refused:
            if key > self._passed:
                words.setdefault(key, {}).setdefault((pid, stream), False)
        for key in keys:
            if key > self._passed:
                words.setdefault(key, {})[pid, stream] = True

    @staticmethod
    def _let_go(words: Words) -> None:
        """Messages come in about the order of their places: the words furthest ahead are those of
        somebody who makes them up."""
        for key in sorted(words)[MOST_AWAITED // 2 :]:
            del words[key]

    def hear_own(self, pid: NodeId, stream: RingId, keys: Keys, refused: Keys) -> None:
        """The same, heard on a ring of mine, of which I tell others."""
        self.heard(pid, stream, keys, refused)
        waiting = self.unreported.setdefault(stream, {}).setdefault(pid, {})
        for key in refused:
            waiting.setdefault(key, False)
        waiting |= dict.fromkeys(keys, True)

    def hear_closed(self, stream: RingId, receipts: Receipts) -> None:
        """What somebody tells of a stream with its end. A3 ext: a gateway of that ring still tells
        it, too: some may not listen to the other one yet (MR-31)."""
        for pid, keys, refused in receipts:
            self.heard(pid, stream, keys, refused)

    def hear_bound(self, stream: RingId, receipts: Receipts) -> None:
        """A Bound of ``stream``, which all its gateways pass on, tells others of these."""
        self.hear_closed(stream, receipts)
        waiting = self.unreported.get(stream, {})
        for pid, keys, refused in receipts:
            mine = waiting.get(pid, {})
            for key in keys:
                mine.pop(key, None)
            for key in refused:
                if mine.get(key) is False:
                    del mine[key]
            if not mine:
                waiting.pop(pid, None)

    def is_news(self, stream: RingId, receipts: Receipts) -> bool:
        """Whether a Bound has a word that was not heard here, on a message not yet delivered."""
        return any(
            key > self._passed and self._said.get(key, {}).get((pid, stream)) is None
            for pid, keys, refused in receipts
            for key in (*keys, *refused)
        )

    def report(self, stream: RingId, most: int) -> Receipts:
        """Up to ``most`` of what others have to be told of a stream."""
        told: list[tuple[NodeId, Keys, Keys]] = []
        for pid, words in sorted(self.unreported.get(stream, {}).items()):
            some = list(words.items())[:most]
            most -= len(some)
            if some:
                has, lacks = (tuple(k for k, yes in some if yes is each) for each in (True, False))
                told.append((pid, has, lacks))
        return tuple(told)

    def close(self, stream: RingId) -> Receipts:
        """Everything, as the stream ends."""
        told = self.report(stream, LARGE)
        self.unreported.pop(stream, None)
        return told

    def said(self, key: SafeKey, pid: NodeId, line: Iterable[RingId]) -> bool | None:
        """A3: what ``pid`` said of it in these streams; None: nothing yet."""
        words = [each for some in (self._said, self._aside) if (each := some.get(key))]
        if not words:
            return None
        found: bool | None = None
        for ring in line:
            for each in words:
                if (word := each.get((pid, ring))) is not None:
                    found = found or word
        return found

    def delivered(self, key: SafeKey) -> None:
        """Nobody has to be asked any more. A3 ext: a word may still come."""
        self._said.pop(key, None)
        self._aside.pop(key, None)
        self._passed = key

    def forget(self, last: Key, streams: Iterable[RingId]) -> None:
        """Drop what concerns places that were passed, and streams that are over."""
        self._passed = upto = (last.timestamp, last.ring)
        self._said = {key: said for key, said in self._said.items() if key > upto}
        self._aside = {key: said for key, said in self._aside.items() if key > upto}
        kept = set(streams)
        self.unreported = {ring: each for ring, each in self.unreported.items() if ring in kept}


def line(pid: NodeId, ring: RingId, changes: Iterable[Change]) -> list[RingId]:
    """A3: the ring, and those that ``pid`` went on to from it, as far as known."""
    found = [ring]
    for change in changes:
        if change.conf in found and change.ring not in found and change.lists(pid):
            found.append(change.ring)
    return found


class Survey:
    """A4: who of a closed ring has a message, seen through the changes that followed it."""

    def __init__(
        self,
        key: SafeKey,
        said: Acknowledged,
        own: frozenset[NodeId],
        changes: tuple[Change, ...],
        followed: frozenset[RingId],
        live: frozenset[NodeId],
        at: Mapping[NodeId, RingId],
        siblings: Mapping[NodeId, tuple[tuple[NodeId, RingId], ...]],
    ) -> None:
        self._key, self._said, self._own = key, said, own
        self._changes = changes  # P, H and done, in key order
        self._followed = followed  # rings whose regular successor is known
        self._live = live  # interfaces of live gateways
        self._at = at  # where these and mine are in the delivered graph
        self._siblings = siblings  # other interfaces of the same gateway, in the topology

    def word(self, pid: NodeId, ring: RingId) -> bool | None:
        """A3: whether ``pid`` of ``ring`` has it, by its own word; None: it has not said."""
        if pid in self._own:
            return True  # it is here, or nobody would ask
        word = self._on_line(pid, ring)
        if word is None and any(self._on_line(*each) for each in self._siblings.get(pid, ())):
            return True  # A3 ext: what it has, it has at all its interfaces
        return word

    def _on_line(self, pid: NodeId, ring: RingId) -> bool | None:
        word = self._said.said(self._key, pid, (ring,))
        if word is None:
            word = self._said.said(self._key, pid, line(pid, ring, self._changes))
        return word

    def survivors(
        self, of: RingId, ring: RingId, pids: frozenset[NodeId]
    ) -> frozenset[NodeId] | None:
        """A4's surv: those members of ``of`` that went on to ``ring``, and have it; None: wait."""
        words = {pid: self.word(pid, of) for pid in pids}
        if None not in words.values():
            return frozenset(pid for pid, has in words.items() if has)
        after = [
            change
            for change in self._changes
            if change.conf == ring and (not change.transitional or change.ring in self._followed)
        ]
        if not after:
            tell = any(self._is_on(pid, ring) for pid in pids & (self._own | self._live))
            return None if tell else frozenset()
        found: frozenset[NodeId] = frozenset()
        for change in after:
            went = pids & {member.pid for member in change.members}
            part = self.survivors(of, change.ring, went)
            if part is None:
                return None
            found |= part
        return found

    def _is_on(self, pid: NodeId, ring: RingId) -> bool:
        """G-25: whether ``pid`` may tell how ``ring`` went on. Others may have installed a ring
        with one that never came: where that is now is its own word."""
        if pid not in self._at:
            return True
        went = (c for c in self._changes if not c.transitional or c.ring in self._followed)
        return path(pid, self._at[pid], went)[-1] == ring

"""Who hears whom: membership on networks where a link is dead in one direction (beyond §4.2).

The paper assumes that hearing is mutual and transitive (G29, G30). When A hears B but B does not
hear A, its rules re-form the ring for ever. Here every Join carries the rows of the who-hears-
whom matrix that its sender knows. Consensus (R44) needs, besides equal sets, that all are known
to hear each other. When it fails, R43 excludes, instead of everybody who has not agreed, the
processors outside one deterministic set whose members all hear each other; with the same matrix
all choose the same set. Whoever is excluded for a bad link is *barred*: its
frames do not disturb the ring until there is evidence that the link is whole again.

A bad link is a pair ``(deaf, mute)``: ``deaf`` does not hear ``mute``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringcast.core.ids import NodeId
from ringcast.protocols.totem_single.messages import MAX_MEMBERS, Announce, Hearing, Join

Pair = tuple[NodeId, NodeId]
Rows = Mapping[NodeId, frozenset[NodeId]]
"""Whom each processor hears. A processor without a row is taken to hear nobody."""

NOBODY: frozenset[NodeId] = frozenset()


def broken(a: NodeId, b: NodeId, rows: Rows) -> list[Pair]:
    """The directions in which the link between two processors does not work."""
    pairs = []
    if b not in rows.get(a, NOBODY):
        pairs.append((a, b))
    if a not in rows.get(b, NOBODY):
        pairs.append((b, a))
    return pairs


def groups(nodes: Iterable[NodeId], rows: Rows) -> list[tuple[NodeId, ...]]:
    """Split processors into sets whose members all hear each other, the same way everywhere.

    From those left, the one with most broken links leaves (of equals the largest id) until no
    link is broken; whoever then fits is taken back, so that a group cannot be enlarged. This is
    not always the largest set, which would be NP-hard to find, but one bad link costs one member.
    """
    left = sorted(set(nodes))
    friends = {
        a: {b for b in rows.get(a, NOBODY) if b != a and a in rows.get(b, NOBODY)} for a in left
    }
    result: list[tuple[NodeId, ...]] = []
    while left:
        keep = set(left)
        good = {a: len(friends[a] & keep) for a in left}  # whole links among those kept
        while True:
            worst = min(keep, key=lambda node: (good[node], -node))
            if good[worst] == len(keep) - 1:
                break
            keep.remove(worst)
            for friend in friends[worst] & keep:
                good[friend] -= 1
        for node in left:
            if node not in keep and keep <= friends[node]:
                keep.add(node)
        result.append(tuple(sorted(keep)))
        left = [node for node in left if node not in keep]
    return result


class Bar:
    """Processors kept out of my ring, and the bad links that are the reason."""

    __slots__ = ("others", "pairs")

    def __init__(self, others: frozenset[NodeId], pairs: set[Pair]) -> None:
        self.others = others
        self.pairs = pairs


class Ears:
    """What one processor knows of who hears whom."""

    __slots__ = ("_count", "_earlier", "_heard", "_rows", "_said", "bars", "me")

    def __init__(self, me: NodeId) -> None:
        self.me = me
        self.bars: list[Bar] = []
        self._count = 0
        self._heard: set[NodeId] = set()  # since the last turn …
        self._earlier: set[NodeId] = set()  # … and in the one before
        self._rows: dict[NodeId, Hearing] = {}
        self._said: tuple[NodeId, ...] = ()  # my row as I last sent it

    # --- hearing ---------------------------------------------------------------------------

    def forget(self, memb: tuple[NodeId, ...]) -> None:
        """A new attempt starts from Operational: rows of earlier attempts say nothing now.

        Nor does having heard a member, which may have died since; outsiders heard lately stay,
        so that my first Join tells a ring that keeps me out that I hear it.
        """
        self._rows.clear()
        self._heard = (self._heard | self._earlier).difference(memb)
        self._earlier = set()

    def turn(self) -> None:
        """A period is over; what was not heard for two periods is not heard any more."""
        self._earlier, self._heard = self._heard, set()

    def hear(self, src: NodeId) -> None:
        """A frame of ``src`` arrived: evidence against any claim that I do not hear it."""
        if len(self._heard) < MAX_MEMBERS:
            self._heard.add(src)
        if self.bars:
            self._mend((self.me, src))

    def learn(self, join: Join, memb: tuple[NodeId, ...]) -> None:
        """Take over the rows of a Join that are newer than those known.

        Its sets also say with whom its sender is, or wants to be.
        """
        if self.bars:
            self.part(join.sender_id, frozenset(join.proc_set).difference(join.fail_set, memb))
        for row in join.hearing:
            known = self._rows.get(row.node)
            room = known is not None or len(self._rows) < MAX_MEMBERS - 1  # my own goes with them
            if (
                room
                and row.node != self.me
                and row.node in join.proc_set
                and (known is None or (known.ring_seq, known.count) < (row.ring_seq, row.count))
            ):
                self._rows[row.node] = row
                if self.bars:
                    for other in row.hears:
                        self._mend((row.node, other))

    @property
    def lately(self) -> tuple[NodeId, ...]:
        """Whom I heard in the last two periods."""
        return tuple(sorted(self._heard | self._earlier)[:MAX_MEMBERS])

    def report(self, ring_seq: int) -> tuple[Hearing, ...]:
        """The rows for my next Join, my own first."""
        self._count += 1
        self._said = self.lately
        mine = Hearing(self.me, ring_seq, self._count, self._said)
        return (mine, *(self._rows[node] for node in sorted(self._rows)))

    def mutual(self, nodes: tuple[NodeId, ...]) -> bool:
        """Whether these processors, as far as I know, all hear each other."""
        rows = self.rows()
        return all(rows.get(a, NOBODY).issuperset(b for b in nodes if b != a) for a in nodes)

    def unsaid(self, nodes: tuple[NodeId, ...]) -> bool:
        """Whether I hear all of them and my last Join did not say so."""
        others = {node for node in nodes if node != self.me}
        return others.issubset(self.lately) and not others.issubset(self._said)

    def rows(self) -> dict[NodeId, frozenset[NodeId]]:
        """The matrix as far as I know it."""
        known = {node: frozenset(row.hears) for node, row in self._rows.items()}
        known[self.me] = frozenset(self.lately)
        return known

    # --- barring ---------------------------------------------------------------------------

    def settle(self, memb: tuple[NodeId, ...], excluded: Iterable[NodeId]) -> None:
        """At an install: bar those who are alive but have a bad link into my ring.

        Earlier bars stay while both ends of one of their links are still apart.
        """
        rows = self.rows()
        audible = rows.keys() | rows[self.me]
        members = frozenset(memb)
        kept = [bar for bar in self.bars if not bar.others & members]
        for bar in kept:
            bar.pairs = {(a, b) for a, b in bar.pairs if (a in members) != (b in members)}
        self.bars = [bar for bar in kept if bar.pairs]
        known = self._barred()
        for group in groups((n for n in excluded if n in audible and n not in known), rows):
            pairs = {p for a in memb for b in group for p in broken(a, b, rows)}
            if pairs:
                self.bars.append(Bar(frozenset(group), pairs))

    def _barred(self) -> frozenset[NodeId]:
        return NOBODY.union(*(bar.others for bar in self.bars))

    def barred_ids(self) -> tuple[NodeId, ...]:
        """Everybody whose frames are not acted upon for now."""
        return tuple(sorted(self._barred()))

    def barred(self, src: NodeId) -> str | None:
        """Why ``src`` is kept out, in words, or None."""
        for bar in self.bars:
            if src in bar.others:
                return reason(bar.pairs)
        return None

    @property
    def apart(self) -> tuple[Pair, ...]:
        """Every bad link that keeps somebody out, for Announce."""
        return tuple(sorted({pair for bar in self.bars for pair in bar.pairs}))

    def heed(self, announce: Announce, memb: tuple[NodeId, ...]) -> None:
        """What another ring, or a member of mine, says about links.

        ``heard`` mends links. A bad link with me at one end counts here too, so that one who
        forgot why it is kept out (it restarted) rests as well; links of others are not taken
        over, or two rings would keep telling each other of one that is whole again.
        """
        src = announce.sender_id
        for other in announce.heard:
            self._mend((src, other))
        if src in memb:
            return
        theirs = frozenset(announce.memb)
        self.part(src, theirs)
        if self.barred(src) is None and theirs.isdisjoint(memb):
            lately = self._heard | self._earlier
            pairs = {
                (a, b)
                for a, b in announce.apart
                if (a == self.me and b in theirs and b not in lately)
                or (b == self.me and a in theirs and not (a == src and b in announce.heard))
            }
            if pairs:
                self.bars.append(Bar(theirs, pairs))

    def part(self, src: NodeId, company: frozenset[NodeId]) -> None:
        """``src`` is now with ``company``, none of them mine.

        If no end of a bad link is among them, nothing keeps them and me apart any more; whoever
        they left behind stays barred.
        """
        for bar in self.bars:
            if src in bar.others and not any(company.intersection(pair) for pair in bar.pairs):
                bar.others -= company
        self._tidy()

    def _mend(self, pair: Pair) -> None:
        for bar in self.bars:
            bar.pairs.discard(pair)
        self._tidy()

    def _tidy(self) -> None:
        if any(not bar.pairs or not bar.others for bar in self.bars):
            self.bars = [bar for bar in self.bars if bar.pairs and bar.others]


def reason(pairs: Iterable[Pair]) -> str:
    """Bad links in words, for the trace and the operator."""
    return ", ".join(f"{deaf} does not hear {mute}" for deaf, mute in sorted(pairs))

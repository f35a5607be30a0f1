"""MergeCandidates: other views that were heard of, and whom to keep away from for a while.

Of two views that meet, the larger leads; of equal ones, the one with the smaller coordinator. A
processor that was lost is kept away for a while, longer each time, or a link that carries frames
one way only would make and break a view without end. A leader that does not lead is treated alike.
"""

from __future__ import annotations

from ringcast.blocks.view_messages import MAX_MEMBERS, RankedView
from ringcast.core.ids import NodeId

FRESH = 3
"""Announcements that may be missed before a view is forgotten."""

MOST_HEARD = 256
"""Views remembered."""


def leads(view: RankedView) -> tuple[int, NodeId]:
    """Sorts views; the smallest leads."""
    return -len(view.members), view.id.rep


class MergeCandidates:
    """What one coordinator knows of others."""

    def __init__(self, announce_us: int, away_us: int, away_max_us: int) -> None:
        self._fresh_us = FRESH * announce_us
        self._away_us = away_us
        self._away_max_us = away_max_us
        self._heard: dict[NodeId, tuple[RankedView, int, int]] = {}
        """By coordinator: its view, when it was announced last, and how often of late."""
        self._away: dict[NodeId, tuple[int, int]] = {}
        """Until when a processor is kept away, and how long that was."""

    def hear(self, view: RankedView, now_us: int) -> None:
        """A view was announced."""
        known, _, times = self._heard.pop(view.id.rep, (view, 0, 0))
        if len(self._heard) >= MOST_HEARD:
            del self._heard[next(iter(self._heard))]
        self._heard[view.id.rep] = (view, now_us, times + 1 if known == view else 1)

    def begin(self, members: tuple[NodeId, ...]) -> None:
        """These are in one view now: it takes time to be taken in by another one."""
        self._heard = {
            rep: (view, at_us, 0)
            for rep, (view, at_us, _) in self._heard.items()
            if rep not in members
        }

    def forget(self, node: NodeId) -> None:
        """``node`` is no longer in the view it was heard of in."""
        self._heard = {rep: it for rep, it in self._heard.items() if node not in it[0].members}

    def keep_away(self, node: NodeId, now_us: int) -> None:
        """``node`` was lost, or does not do its part. If nothing was wrong with it for as long
        as it may be kept away at most, the intervals begin anew."""
        until_us, interval_us = self._away.pop(node, (0, 0))
        if now_us - until_us > self._away_max_us:
            interval_us = 0
        interval_us = min(2 * interval_us or self._away_us, self._away_max_us)
        if len(self._away) >= MOST_HEARD:
            del self._away[next(iter(self._away))]
        self._away[node] = (now_us + interval_us, interval_us)

    def away_us(self, view: RankedView, now_us: int) -> int:
        """How much longer a member of ``view`` is kept away."""
        away = self._away
        return max((away[m][0] - now_us for m in view.members if m in away), default=0)

    def wait_us(self, now_us: int) -> int:
        """How long until a view that was heard of lately is no longer kept away; 0 if none is."""
        waits = [
            self.away_us(view, now_us)
            for view, at_us, _ in self._heard.values()
            if now_us - at_us <= self._fresh_us
        ]
        return min((wait_us for wait_us in waits if wait_us > 0), default=0)

    def candidates(self, mine: RankedView, now_us: int) -> list[RankedView]:
        """Views to go together with ``mine``, if that one leads them all; else none.

        A view that should lead and does not, although it is heard of again and again, is kept
        away: it may not hear us, and the others must not wait for it.
        """
        taken = set(mine.members)
        found: list[RankedView] = []
        for view, at_us, times in sorted(self._heard.values(), key=lambda each: leads(each[0])):
            old = now_us - at_us > self._fresh_us
            if old or self.away_us(view, now_us) > 0 or not taken.isdisjoint(view.members):
                continue
            if leads(view) < leads(mine):
                if times <= FRESH:
                    return []
                self.keep_away(view.id.rep, now_us)
            elif len(taken) + len(view.members) <= MAX_MEMBERS:
                taken.update(view.members)
                found.append(view)
        return found

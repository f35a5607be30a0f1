"""P-14: a safe message that is delivered in a topology is delivered by all its members, in whatever
topology, or they crash.

A trace does not show receipts, which the dossier also asks for. They are implied: a processor that
has not received a message cannot deliver it later, for its clock has passed it.

One may come to a message long after another, which has gone on by itself since: what a processor
delivered is remembered until all others have passed it too. A ring begins above all that its
members have seen (G-7), so nobody who starts after that can come to it any more.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import Level, NodeId
from ringcast.core.trace import Crashed, Delivered, Ended, Installed
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)

LOOKED_AT = 4096
"""From so many safe messages on, those that all processors have passed are removed."""

REMEMBERED = 2**16
"""The most safe messages that are remembered, however far behind a processor is."""


class SafeForAll(TopologyProperty):
    """Safe messages reach all members."""

    tag = "P-14"
    title = "safe delivery"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, PlaceKey] = {}
        self._began: dict[NodeId, PlaceKey] = {}
        """Where each processor's present life begins: what is older concerned one before."""
        self._owes: dict[NodeId, dict[PlaceKey, NodeId]] = {}
        """What each has to deliver, and who relies on it."""
        self._had: dict[PlaceKey, set[NodeId]] = {}
        self._look_at = LOOKED_AT
        self._forgotten: PlaceKey | None = None
        """The last place of those that not all had passed, and that were too many."""

    def on_delivered(self, event: Delivered) -> None:
        """Whoever is in this topology must do the same, or have done it."""
        node, key = event.node, place(event)
        self._pass(node, key, event.t_us)
        if event.level is not Level.SAFE:
            return
        had = self._who_had(key)
        if had is not None:
            had.add(node)
        note = self.now.get(node)
        for member in note.members if note else ():
            if member == node or (had is not None and member in had):
                continue
            if member not in self.now or self._began[member] > key:
                continue  # it has told nothing, or has crashed since
            last = self._last.get(member)
            if had is None and last is not None and last >= key:
                continue  # whether it had it is forgotten
            self._owes.setdefault(member, {})[key] = node
            if last is not None and last > key:
                self._failed(member, key, node, event.t_us)

    def _who_had(self, key: PlaceKey) -> set[NodeId] | None:
        """Who has delivered it; None: that is not known any more."""
        had = self._had.get(key)
        if had is None and (self._forgotten is None or key > self._forgotten):
            had = self._had[key] = set()
            if len(self._had) > self._look_at:
                self._forget()
        return had

    def _forget(self) -> None:
        """What all have passed is over; of the rest the older half, if it is too much."""
        passed = min((self._last[node] for node in self.now), default=None)
        if passed is not None:
            self._had = {key: had for key, had in self._had.items() if key >= passed}
        if len(self._had) > REMEMBERED:
            for oldest in list(self._had)[: REMEMBERED // 2]:
                del self._had[oldest]
                self._forgotten = max(oldest, self._forgotten or oldest)
        self._look_at = min(max(LOOKED_AT, 2 * len(self._had)), REMEMBERED)

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """What is older can never be delivered any more."""
        if old is None:
            self._began[event.node] = new.key
        self._pass(event.node, new.key, event.t_us)

    def _pass(self, node: NodeId, key: PlaceKey, t_us: int) -> None:
        owed = self._owes.get(node)
        if owed:
            owed.pop(key, None)
            passed = [each for each in owed if each < key]
            if passed:
                self._failed(node, passed[0], owed[passed[0]], t_us)
        self._last[node] = key

    def _failed(self, node: NodeId, key: PlaceKey, relies: NodeId, t_us: int) -> None:
        self.violate(
            f"Processor {relies} delivered the safe {shown(key)} in a topology with {node}, which "
            f"went past it without it by {t_us} us.",
            (relies, node),
            (shown(key),),
            t_us,
        )

    def on_crashed(self, event: Crashed) -> None:
        """A crash ends all obligations."""
        self._owes.pop(event.node, None)
        self._last.pop(event.node, None)
        self.now.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """What is open is owed by those that are settled."""
        for node, owed in sorted(self._owes.items()):
            for key, relies in sorted(owed.items()):
                self.owed(
                    node in event.settled,
                    f"Processor {relies} delivered the safe {shown(key)} in a topology with "
                    f"{node}, which has not delivered it by the end.",
                    (relies, node),
                    (shown(key),),
                    event.t_us,
                )

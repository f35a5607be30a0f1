"""P-14: a safe message that is delivered in a topology is delivered by all its members, in whatever
topology, or they crash.

A trace does not show receipts, which the dossier also asks for. They are implied: a processor that
has not received a message cannot deliver it later, for its clock has passed it.
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

    def on_delivered(self, event: Delivered) -> None:
        """Whoever is in this topology must do the same, or have done it."""
        node, key = event.node, place(event)
        self._pass(node, key, event.t_us)
        if event.level is not Level.SAFE:
            return
        had = self._had.get(key)
        if had is None:
            had = self._had[key] = set()
            while len(self._had) > 4096:
                del self._had[next(iter(self._had))]
        had.add(node)
        note = self.now.get(node)
        for member in note.members if note else ():
            if member in had or member == node:
                continue
            if member not in self.now or self._began[member] > key:
                continue  # it has told nothing, or has crashed since
            self._owes.setdefault(member, {})[key] = node
            last = self._last.get(member)
            if last is not None and last > key:
                self._failed(member, key, node, event.t_us)

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

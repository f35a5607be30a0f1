"""What the checks of multiple-ring read of a trace: places, and topologies with their keys.

A message is named by the ring it originated on and its timestamp (``ring`` and ``seq`` of the
trace), and a topology by its view. The note ``topology`` before each ``Installed`` has the key
of the change and the list of rings.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Installed, Noted, Originated

PlaceKey = tuple[int, int, int, int, int, int, int]
"""Timestamp, ring, rank, old ring and digest: compared as the protocol's keys are."""

KEY_FIELDS = 7

TOPOLOGY = "topology"


class TopologyNote:
    """One topology, as a processor told of it."""

    __slots__ = ("key", "members", "rings", "view")

    def __init__(self, event: Noted) -> None:
        data = tuple(event.data) if event.data else ()
        assert event.view is not None
        self.view: ViewId = event.view
        self.members: tuple[NodeId, ...] = event.members
        self.key: PlaceKey = data[:KEY_FIELDS]  # type: ignore[assignment]
        numbers = data[KEY_FIELDS:]
        self.rings = tuple(zip(numbers[::2], numbers[1::2], strict=False))


def place(event: Originated | Delivered | DeliveredTo) -> PlaceKey:
    """The key of a message."""
    return (event.seq, event.ring.seq, event.ring.rep, 1, 0, 1, 0)


def shown(key: PlaceKey) -> str:
    """A key for people."""
    return f"{key[0]}@({key[1]},{key[2]})" + ("" if key[3] == 1 else f" rank {key[3]}")


class TopologyProperty(Property):
    """A property that follows which topology each processor is in.

    ``told`` is the latest note of each processor, ``now`` the topology it has installed.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.told: dict[NodeId, TopologyNote] = {}
        self.now: dict[NodeId, TopologyNote] = {}

    def on_noted(self, event: Noted) -> None:
        """A topology is about to be installed."""
        if event.what == TOPOLOGY and event.view is not None:
            self.told[event.node] = TopologyNote(event)

    def on_installed(self, event: Installed) -> None:
        """It is."""
        note = self.told.get(event.node)
        if note is None or note.view != event.view:
            return  # P-1 speaks of it
        old = self.now.get(event.node) if event.prev is not None else None
        self.now[event.node] = note
        self.entered(event, old, note)

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """A processor goes from one topology to the next; ``old`` is None after a start."""

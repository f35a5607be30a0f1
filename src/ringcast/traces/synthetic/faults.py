"""Faults put into a made trace, to see that the checks find them and name the right place."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Any

import msgspec
import numpy as np

from ringcast.core.ids import NodeId, ViewId
from ringcast.traces.synthetic.group import Era, MadeStay, MadeStory

UNHEARD = 1 << 40
"""Far above every number a sender reaches."""


class FaultKind(StrEnum):
    """What one processor does wrong with one frame."""

    SWAP = "swap"
    """Delivers it after the next one."""
    DROP = "drop"
    """Does not deliver it."""
    DUPLICATE = "duplicate"
    """Delivers it twice."""
    ALTER = "alter"
    """Delivers one message of it with other contents."""
    WRONG_VIEW = "wrong-view"
    """Delivers it in a configuration it is not in."""
    INVENT = "invent"
    """Delivers another one after it, which nobody ever sent."""


BREAKS = {
    FaultKind.SWAP: "total-order",
    FaultKind.DROP: "D9",
    FaultKind.DUPLICATE: "D2",
    FaultKind.ALTER: "D1",
    FaultKind.WRONG_VIEW: "D5",
    FaultKind.INVENT: "D1",
}
"""The property that must name the processor and the frame."""


class Fault(msgspec.Struct, frozen=True):
    """A fault that is asked for; what is not said is drawn. ``ring`` counts from 0."""

    kind: FaultKind
    node: NodeId | None = None
    ring: int | None = None
    seq: int | None = None


class Injected(msgspec.Struct, frozen=True):
    """A fault that is in the trace."""

    kind: FaultKind
    run: int
    node: NodeId
    ring: ViewId
    seq: int
    """The number that must be named: of the invented frame, if it is one."""

    @property
    def breaks(self) -> str:
        """The property that must name it."""
        return BREAKS[self.kind]

    @property
    def message(self) -> str:
        """The frame as explanations call it."""
        return f"{self.ring}:{self.seq}.0"

    def __str__(self) -> str:
        return f"{self.kind} of {self.message} at processor {self.node} in run {self.run}"


class Spoiler:
    """Finds a place for each fault, and applies it where a part of the trace holds the place."""

    def __init__(self, story: MadeStory, faults: Sequence[Fault], run: int, part: int) -> None:
        self._part = part  # frames that are made together
        self._random = Random(f"{story.shape.seed} {run}")
        self._places: dict[tuple[ViewId, NodeId, int], Injected] = {}
        for fault in faults:
            self._find(story, fault, run)
        self.injected = list(self._places.values())

    def _find(self, story: MadeStory, fault: Fault, run: int) -> None:
        for _ in range(1000):  # another place if there is a fault nearby already
            era, stay, place = self._draw(story, fault)
            if fault.kind is FaultKind.SWAP and (place + 1) % self._part == 0:
                place -= 1
            near = ((era.view, stay.node, place + step) for step in range(-2, 3))
            if not any(key in self._places for key in near):
                break
        else:
            raise ValueError(f"there is no room for another fault ({fault.kind})")
        seq = era.silent + 1 + place
        seen = era.silent + era.frames + 1 if fault.kind is FaultKind.INVENT else seq
        found = Injected(fault.kind, run, stay.node, era.view, seen)
        self._places[era.view, stay.node, place] = found

    def _draw(self, story: MadeStory, fault: Fault) -> tuple[Era, MadeStay, int]:
        eras = story.eras
        if fault.ring is not None and not 0 <= fault.ring < len(eras):
            raise ValueError(f"there is no ring {fault.ring}; there are 0 to {len(eras) - 1}")
        era = eras[self._random.randrange(len(eras)) if fault.ring is None else fault.ring]
        stays = [stay for stay in era.stays if fault.node in (None, stay.node)]
        if not stays:
            raise ValueError(f"processor {fault.node} is not in ring {era.view}")
        stay = self._random.choice(stays)
        if fault.seq is None:
            return era, stay, self._random.randrange(1, stay.delivered - 2)
        place = fault.seq - era.silent - 1
        if not 1 <= place < stay.delivered - 2:
            low, high = era.silent + 2, era.silent + stay.delivered - 2
            raise ValueError(f"in ring {era.view} a fault can be at {low} to {high}")
        return era, stay, place

    def spoil(self, era: Era, node: NodeId, cells: dict[str, Any]) -> dict[str, Any]:
        """The deliveries of ``node`` in ``cells``, with the faults that belong there."""
        first, last = int(cells["seq"][0]), int(cells["seq"][-1])
        for (view, who, place), fault in self._places.items():
            seq = era.silent + 1 + place
            if view == era.view and who == node and first <= seq <= last:
                cells.setdefault("altered", np.zeros(len(cells["seq"]), np.bool_))
                at = int(np.flatnonzero(cells["seq"] == seq)[0])
                _apply(fault, cells, at)
        return cells


def _apply(fault: Injected, cells: dict[str, Any], at: int) -> None:
    """The frame in place ``at`` goes wrong."""
    arrays = [name for name, column in cells.items() if not isinstance(column, int)]
    match fault.kind:
        case FaultKind.SWAP:
            for name in ("seq", "sender", "level", "first", "salt"):
                cells[name][[at, at + 1]] = cells[name][[at + 1, at]]
        case FaultKind.DROP:
            for name in arrays:
                cells[name] = np.delete(cells[name], at)
        case FaultKind.DUPLICATE | FaultKind.INVENT:
            for name in arrays:
                cells[name] = np.insert(cells[name], at + 1, cells[name][at])
            cells["n"][at + 1] += 1
            cells["seq"][at + 1] = fault.seq
            if fault.kind is FaultKind.INVENT:
                cells["first"][at + 1] += UNHEARD
        case FaultKind.ALTER:
            cells["altered"][at] = True
        case FaultKind.WRONG_VIEW:
            cells["view_seq"][at] += 2

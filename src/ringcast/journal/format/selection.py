"""Which records somebody wants, by their kind, group and place.

A message of the ring has all its records in one group, so the choice is made between entries: what
is not wanted is never taken apart.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ringcast.core.ids import Position
from ringcast.journal.format.frame import KINDS, PLACE, Frame
from ringcast.journal.format.layout import MESSAGE

LEAST, MOST = -(2**63), 2**63 - 1

Part = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(PLACE)})\Z")]
"""Of a position."""

MOST_GROUPS = 1024
"""In a question, which is decoded before it is known whether its asker may ask it."""

Number = Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)]
Bounds = tuple[Number, Number]


class Selection(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All conditions together. What is unknown to it is wanted: it may choose too much."""

    group: str = ""
    """Of messages, only those of this group."""
    views: bool = True
    """Configurations and gaps, too."""
    kinds: Annotated[tuple[str, ...], msgspec.Meta(max_length=len(KINDS))] | None = None
    """Only records of these kinds."""
    groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_GROUPS)] | None = None
    """Only records with these groups; configurations have the group ``""``."""
    places: Annotated[dict[Part, Bounds], msgspec.Meta(max_length=len(PLACE))] = {}
    """Smallest and largest value of parts of the position."""

    def of(self, frame: Frame) -> Frame:
        """The entries of a frame that are wanted, perhaps none."""
        if self == EVERYTHING:
            return frame
        return frame.chosen(self._mask(frame))

    def _mask(self, frame: Frame) -> Any:
        import numpy as np

        table = frame.table
        message = table["kind"] == KINDS.index(MESSAGE)
        found = np.ones(len(frame), bool) if self.views else message
        if self.group:
            found = found & (~message | np.isin(table["group"], self._codes(frame, (self.group,))))
        if self.kinds is not None:
            kinds = [KINDS.index(kind) for kind in self.kinds if kind in KINDS]
            found = found & np.isin(table["kind"], kinds)
        if self.groups is not None:
            found = found & np.isin(table["group"], self._codes(frame, self.groups))
        for name, (low, high) in self.places.items():
            if name != "index":  # differs between the records of an entry
                found = found & (table[name] >= low) & (table[name] <= high)
        return found

    @staticmethod
    def _codes(frame: Frame, groups: tuple[str, ...]) -> list[int]:
        return [code for code, name in enumerate(frame.names.groups) if name in groups]

    def meets(self, first: Position, last: Position) -> bool:
        """Whether records between two places can be wanted: False only if none can.

        Positions compare part by part. As far as both ends agree, all between them do, and at the
        first part that differs they lie between; behind it a part may have any value.
        """
        for name, a, b in zip(PLACE, first, last, strict=True):
            low, high = self.places.get(name, (LEAST, MOST))
            if b < low or a > high:
                return False
            if a != b:
                break
        return True


EVERYTHING = Selection()

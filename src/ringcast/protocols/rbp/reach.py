"""How far one frame may raise the number of a view (2.0): a member that names the last there can be
must not use them all up."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringcast.core.ids import ViewId
from ringcast.protocols.rbp.epochs import Epoch, EpochConfig

LAST_VIEW = 2**46
"""The numbers of views end here."""

LAST_STEP = 2**46
"""The same of the steps within a view."""

REACH = 2**28
"""How much one frame may raise the highest number known."""


def out_of_reach(highest: int, frame: msgspec.Struct) -> bool:
    """Whether a frame tells of a view so far beyond the ``highest`` known that the numbers would
    soon be used up."""
    last = furthest(highest)
    return any(epoch.view.seq > last or epoch.step > LAST_STEP for epoch in epochs_of(frame))


def furthest(highest: int) -> int:
    """The highest number of a view that is heard of."""
    return min(LAST_VIEW, highest + REACH)


def epochs_of(frame: msgspec.Struct) -> Iterator[Epoch]:
    """Every epoch that a frame names; a view is one in its first step."""
    for name in frame.__struct_fields__:
        value = getattr(frame, name)
        for each in value if type(value) is tuple else (value,):
            if type(each) is Epoch:
                yield each
            elif type(each) is ViewId:
                yield Epoch(each)
            elif type(each) is EpochConfig:
                yield each.epoch

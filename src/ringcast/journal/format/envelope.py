"""What travels in the ring's messages: bodies for a group, and who is in which group."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from ringcast.core.ids import ViewId
from ringcast.journal.format.layout import RowNumber

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
"""A group's name."""


class Data(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Messages for the members of one group."""

    group: Name
    bodies: tuple[bytes, ...]


class Once(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Rows ``first`` .. of a writer's batch for a group; what came before is dropped.

    They count only on ``ring``, the one they were sent on (``streams``).
    """

    ring: ViewId
    group: Name
    stream: Name
    batch: RowNumber
    first: RowNumber
    bodies: tuple[bytes, ...]


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far the writer ``stream`` has come in a group: so many rows of this batch."""

    group: Name
    stream: Name
    batch: RowNumber
    rows: int


class Groups(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """All groups the sender is in when ``ring`` begins: its word on a new ring."""

    ring: ViewId
    names: tuple[Name, ...]
    known: tuple[Known, ...] = ()
    """And what it remembers of writers."""


class Enter(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The sender joins a group."""

    group: Name


class Exit(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """The sender leaves a group."""

    group: Name


Envelope: TypeAlias = Data | Groups | Enter | Exit | Once

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Envelope).decode

OVERHEAD = 16
"""Bytes of a Data envelope besides the group's name and the bodies."""

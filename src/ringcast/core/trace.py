"""The one trace schema: what happened, in a form that knows no protocol.

The simulator and the live runtime write these events; ``checks`` and the pipeline read them and
nothing else. Per processor the events are totally ordered by ``n``. Events that concern a frame
of messages carry all its messages (``digests``, one each); files hold one row a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from zlib import crc32

import msgspec

from ringcast.core.ids import Level, NodeId, ViewId

SCHEMA_VERSION = 2
"""1: notes had no ``data``, and what was uncertain was not told."""


class Submit(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The application asked for messages ``first ..`` of this incarnation to be broadcast.

    Without ``digests``, the contents are not known and not compared with what is originated.
    """

    node: NodeId
    n: int
    t_us: int
    incarnation: int
    first: int
    level: Level
    sizes: tuple[int, ...]
    digests: tuple[int, ...] = ()


class Originated(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node`` gave messages of ``sender``, its own or another's, the place ``(ring, seq)``."""

    node: NodeId
    n: int
    t_us: int
    ring: ViewId
    seq: int
    level: Level
    first: int
    digests: tuple[int, ...]
    sender: int = 0  # 0: its own

    @property
    def owner(self) -> NodeId:
        """Whose messages they are."""
        return self.sender or self.node


class Delivered(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node``, in configuration ``view``, handed messages to its application."""

    node: NodeId
    n: int
    t_us: int
    view: ViewId
    ring: ViewId
    seq: int
    sender: NodeId
    level: Level
    first: int
    digests: tuple[int, ...]


class Installed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node`` told its application about configuration ``view`` (a ``conf`` event).

    ``prev`` is the configuration it was in before, none after a start.
    """

    node: NodeId
    n: int
    t_us: int
    view: ViewId
    members: tuple[NodeId, ...]
    transitional: bool
    ring: ViewId
    seq: int
    conf_id: ViewId | None
    prev: ViewId | None


class ReportedUncertain(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node`` told its application that its messages ``first .. first + count - 1`` will not be
    delivered here, and that whether anybody else delivers them is unknown."""

    node: NodeId
    n: int
    t_us: int
    first: int
    count: int


class Crashed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node`` lost all but its stable storage. ``reason`` is empty for an injected crash."""

    node: NodeId
    n: int
    t_us: int
    reason: str = ""


class Restarted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """``node`` starts, as ``incarnation`` 1, 2, …; ``storage_kept`` False voids M2 and M3."""

    node: NodeId
    n: int
    t_us: int
    incarnation: int
    storage_kept: bool = True


class Noted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A rule of the protocol acted in a way worth recording.

    ``text`` is for people. Checks read ``view``, ``members`` and ``data``: numbers whose meaning
    is the note's own.
    """

    node: NodeId
    n: int
    t_us: int
    rule: str
    what: str
    text: str = ""
    view: ViewId | None = None
    members: tuple[NodeId, ...] = ()
    data: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class Faulted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The world did something to the group: a partition, a pause, a heal. ``node`` 0: to all."""

    node: int
    n: int
    t_us: int
    kind: str
    text: str = ""


class Ended(msgspec.Struct, frozen=True, gc=False, tag=True):
    """End of the trace. Obligations still open here are unknown, not violated.

    ``settled`` lists the processors the world promises were up and connected long enough for
    every obligation to be met; for those an open obligation is a violation.
    """

    t_us: int
    settled: tuple[NodeId, ...] = ()


TraceEvent: TypeAlias = (
    Submit
    | Originated
    | Delivered
    | Installed
    | ReportedUncertain
    | Crashed
    | Restarted
    | Noted
    | Faulted
    | Ended
)


def digests(bodies: Iterable[bytes]) -> tuple[int, ...]:
    """One checksum a message, the same on every machine and in every run."""
    return tuple(map(crc32, bodies))

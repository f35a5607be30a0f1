"""Frames of the toy."""

from __future__ import annotations

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.ids import Level, NodeId, Seq

HEADER_BYTES = 64


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Promise me not to follow any epoch before this one."""

    epoch: Seq


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """I do."""

    epoch: Seq


class Leads(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The view of the epoch, and its last number committed. ``beat``: answer, please."""

    epoch: Seq
    members: tuple[NodeId, ...]
    commit: Seq
    beat: bool


class Knock(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Take me in, in an epoch above this one."""

    high: Seq


class Request(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Please number this; ``number`` counts the sender's requests of the epoch."""

    epoch: Seq
    number: Seq
    level: Level
    contents: Contents

    def wire_bytes(self) -> int:
        return HEADER_BYTES + self.contents.wire_bytes()


class Order(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Contents of ``sender`` have the number ``seq``."""

    epoch: Seq
    seq: Seq
    commit: Seq
    sender: NodeId
    level: Level
    contents: Contents

    def wire_bytes(self) -> int:
        return HEADER_BYTES + self.contents.wire_bytes()


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """I have everything up to this number."""

    epoch: Seq
    got: Seq

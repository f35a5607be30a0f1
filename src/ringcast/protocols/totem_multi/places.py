"""The places of what is ordered: as keys of the protocol, and as the application sees them."""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.effects import PackedMessages
from ringcast.core.ids import Position
from ringcast.protocols.totem_multi.messages import Change, Data, Forwarded, Key
from ringcast.protocols.totem_multi.state import Streamed


def batch_of(key: Key, data: Data) -> PackedMessages:
    """Messages as the application and the trace see them."""
    stamp, sent = key.timestamp, (data.sender, data.level, data.first, data.bodies)
    return PackedMessages(key.ring, stamp, *sent, stamp, data.to, data.group)


def key_of(said: Streamed) -> Key:
    """The place of what a gateway passes on."""
    match said:
        case Forwarded(timestamp, ring):
            return Key(timestamp, ring)
        case _:
            return said.key


def joined_by(change: Change | Key, said: Streamed) -> Streamed:
    """Of a stream that a change will join, for those who may not have come to it (``since``)."""
    if not isinstance(said, Forwarded | Change):
        return said
    joined = (change.timestamp, change.ring)
    return replace(said, since=max(said.since or joined, joined))


def position(key: Key) -> Position:
    """The place of a topology change, comparable with those of messages (dossier 1.4)."""
    timestamp, ring, rank, conf, mark = key
    return Position(timestamp, ring.seq, ring.rep, rank, conf.seq % 2**31, (conf.rep << 31) | mark)

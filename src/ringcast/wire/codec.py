"""From messages to datagrams and back. Every check on bytes from outside lives here.

A datagram is a header, then the message as MessagePack, sealed where the group has keys. The
header is authenticated too. msgspec decodes into the union of the protocol's message types, so
a malformed payload is one caught exception: counted, dropped, never more.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message
from ringcast.wire.keys import TAG_BYTES, Bytes, KeyFile, Opener, Sealer

MAGIC = 0x5263  # "Rc"
VERSION = 1
HEADER = struct.Struct("!HBBIQQ")
"""Magic, version and lane, key id (0: none), who sends, its boot number, its frame counter."""

OVERHEAD = HEADER.size + TAG_BYTES

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are no message: of a wrong form, text or depth."""


class Lane(IntEnum):
    """How a message was sent, which decides the order in which a drained socket is served."""

    BROADCAST = 0
    UNICAST = 1


class Codec:
    """Encodes what this incarnation sends and decodes what others send."""

    def __init__(
        self,
        messages: tuple[type[msgspec.Struct], ...],
        src: NodeId,
        boot: int,
        keys: KeyFile | None,
    ) -> None:
        self._src, self._boot = src, boot
        self._counter = 0
        self._encode = msgspec.msgpack.Encoder().encode
        union: Any = reduce(or_, messages)
        self._decode = msgspec.msgpack.Decoder(union).decode
        self._keys = keys
        self._sealer = Sealer(keys, src, boot) if keys else None
        self._opener = Opener(keys) if keys else None
        self.refused: dict[str, int] = {}
        """Datagrams that went no further, by reason."""

    def renew_keys(self) -> None:
        """The key file changed on disk."""
        if self._sealer and self._opener:
            self._sealer.renew()
            self._opener.renew()

    def encode(self, message: Message, lane: Lane) -> bytes:
        """The datagram for a message; the same one may go to several receivers."""
        self._counter += 1
        payload = self._encode(message)
        sealer = self._sealer
        key_id = sealer.key_id if sealer else 0
        header = HEADER.pack(
            MAGIC, VERSION << 4 | lane, key_id, self._src, self._boot, self._counter
        )
        if sealer:
            payload = sealer.seal(self._counter, payload, header)
        return header + payload

    def decode(self, datagram: Bytes) -> tuple[int, int, int, Message] | None:
        """Who sent it, in which incarnation, on which lane, and what; None: it goes no further."""
        try:
            magic, kind, key_id, src, boot, counter = HEADER.unpack_from(datagram)
        except struct.error:
            return self.refuse("too short")
        if magic != MAGIC or kind >> 4 != VERSION or src == 0:
            return self.refuse("not a ringcast frame of this version")
        if src == self._src:
            if boot == self._boot:
                return None  # a multicast of ours came back
            if boot < self._boot:
                # Replayed or late. Passed on, it would look like somebody else with our id.
                return self.refuse("frame of an earlier incarnation")
        if self._opener:
            header = datagram[: HEADER.size]
            opened = self._opener.open(key_id, src, boot, counter, datagram[HEADER.size :], header)
            if isinstance(opened, str):
                return self.refuse(opened)
            payload: Bytes = opened
        elif key_id:
            return self.refuse("sealed, but this node has no key")
        else:
            payload = datagram[HEADER.size :]
        try:
            return src, boot, kind & 15, self._decode(payload)
        except UNREADABLE:
            return self.refuse("malformed")

    def refuse(self, reason: str) -> tuple[int, int, int, Message] | None:
        """Count a datagram that goes no further; None, for ``decode`` to return."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        return None

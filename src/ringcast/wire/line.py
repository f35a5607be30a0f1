"""A sealed conversation over TCP between a node and whoever calls it.

Both sides open with who they are and a number drawn for this connection alone, in the clear. The
keys of the two directions are derived from the group key and both openings, so a recorded
conversation is no caller, an answer is no question, and no frame of one connection fits another
one or UDP. The node says nothing sealed before the caller has proved to have the key, and gives
strangers no room for a long frame. Without keys the same frames go in the clear, where the node
itself may.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Annotated, Any, TypeVar

import msgspec

from ringcast.core.errors import UNREADABLE, RingcastError
from ringcast.core.ids import NodeId
from ringcast.wire.address import Address
from ringcast.wire.keys import Grant, KeySet
from ringcast.wire.seal import (
    CAN_SEAL,
    TAG_BYTES,
    VERSION,
    Bytes,
    Medium,
    Realm,
    derive,
    opened,
)
from ringcast.wire.turns import TURN_S, FrameTurns

if CAN_SEAL:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LONGEST = 256 * 2**20
"""Bytes in a frame, at most: a message of the largest size and what goes with it."""

SHORT = 512
"""Bytes in an opening, at most."""

LONG = 4 * 2**20
"""Bytes in a frame from which on a port receives one at a time."""

PORTION = 2**20
"""Bytes of a long frame that are read at once."""

PATIENCE_S = 20.0
"""Longest silence in a conversation."""

LEAST_RATE = 256 * 2**10
"""Bytes a second in which a long frame comes, after ``PATIENCE_S``: whoever drips one would be
listened to for years."""

NONCE_BYTES = 16

Text = Annotated[str, msgspec.Meta(max_length=64)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]


class NodeOpens(msgspec.Struct, frozen=True, array_like=True, tag="ringcast node"):
    """The node's first word. A field that a later version adds stands behind these."""

    version: int
    node: NodeId
    network: Text
    nonce: Nonce


class CallerOpens(msgspec.Struct, frozen=True, array_like=True, tag="ringcast caller"):
    """The caller's, which tells the key that it seals with."""

    version: int
    node: NodeId
    key_id: Byte
    nonce: Nonce
    grant: tuple[Text, Text] | None = None
    """Of a guest."""


Opening = TypeVar("Opening", NodeOpens, CallerOpens)


class Line:
    """One side of a connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: Any
    ) -> None:
        self._reader, self._writer = reader, writer
        self._decode = msgspec.msgpack.Decoder(messages).decode
        self._seal: AESGCM | None = None
        self._open: AESGCM | None = None
        self._sent = self._received = 0
        self._keys: KeySet | None = None
        self._key_id, self._key, self._network = 0, b"", ""
        self.grant: Grant | None = None
        """What the caller may do; None: everything."""
        self.longest = LONGEST
        """Bytes in a frame of the other side, at most."""
        self.turns: FrameTurns | None = None
        """One is taken while a long frame is at hand."""
        self.tells: FrameTurns | None = None
        """One is taken while a long message is made and told."""
        self.caller: Hashable = None
        """Whose turn it is then."""
        self._has_turn = False
        self.thread: Executor | None = None
        """Where messages are packed and sealed; None: where they are sent."""

    async def greet(self, me: NodeId, keys: KeySet | None, network: str) -> None:
        """The node's side: only who has the key, now, is heard."""
        mine = NodeOpens(VERSION, me, network, secrets.token_bytes(NONCE_BYTES))
        sent = await self._send(msgspec.msgpack.encode(mine))
        theirs, got = await self._opening(CallerOpens)
        self.grant, self._network = Grant(*theirs.grant) if theirs.grant else None, network
        self._agree(keys, theirs.key_id, sent + got, "node", "caller")
        await self._hear_proof()
        await self._send(b"")

    async def answer(
        self, me: NodeId, keys: KeySet | None, network: str | None, node: NodeId | None = None
    ) -> None:
        """The caller's side of it; a network of None is any, and so is a node."""
        theirs, got = await self._opening(NodeOpens)
        if node is not None and theirs.node != node:
            raise RingcastError(f"node {theirs.node} answers at the address of node {node}")
        if network is not None and theirs.network != network:
            raise RingcastError(f"the other side is of network {theirs.network!r}, not {network!r}")
        key_id = keys.sealing if keys else 0
        self.grant, self._network = keys.grant if keys else None, theirs.network
        mine = CallerOpens(VERSION, me, key_id, secrets.token_bytes(NONCE_BYTES), self.grant)
        sent = await self._send(msgspec.msgpack.encode(mine))
        self._agree(keys, key_id, got + sent, "caller", "node")
        await self._send(b"")
        await self._hear_proof()

    async def _opening(self, kind: type[Opening]) -> tuple[Opening, bytes]:
        """The other side's, and its bytes."""
        got = await self._receive(SHORT)
        if got is None:
            raise RingcastError("the other side hung up")
        try:
            found = msgspec.msgpack.decode(got, type=kind)
        except UNREADABLE:
            raise RingcastError("no greeting; is the other side ringcast?") from None
        if found.version != VERSION:
            raise RingcastError(
                f"the other side speaks version {found.version}, this one {VERSION}: run one "
                "release of ringcast"
            )
        return found, bytes(got)

    def _agree(
        self, keys: KeySet | None, key_id: int, openings: bytes, mine: str, theirs: str
    ) -> None:
        """Derive the keys of the two directions."""
        if keys is None:
            if key_id or self.grant:
                raise RingcastError("the other side has a key, this one has none")
            return
        key = keys.key(key_id, self.grant, self._network)
        if key is None:
            raise RingcastError("the other side's key is not known here")
        self._keys, self._key_id, self._key = keys, key_id, key
        realm = Realm(Medium.JOURNAL, self._network)
        self._seal, self._open = (
            AESGCM(derive(key, realm.info(side.encode(), openings))) for side in (mine, theirs)
        )

    async def _hear_proof(self) -> None:
        """That the other side has the key: an empty frame."""
        if await self._receive(SHORT) != b"":
            raise RingcastError(
                "the other side hung up; have both a key of this group and the same network? "
                "A guest's key is of one network, and of the keys that the group had then"
            )

    def _check_key(self) -> None:
        """A key that was retired ends the conversations that began with it."""
        keys = self._keys
        if keys and keys.key(self._key_id, self.grant, self._network) != self._key:
            raise RingcastError("the key of this conversation was retired")

    async def send(self, message: msgspec.Struct) -> None:
        """One message."""
        self._check_key()
        await self._put(*await self._aside(lambda: self._packed(message)))

    async def tell(self, make: Callable[[], msgspec.Struct], size: int) -> None:
        """A message of so many bytes, made where messages are packed; a long one when it is its
        turn, for its bytes are held until the other side has taken them."""
        turns = self.tells if size > LONG else None
        if turns:
            await turns.take(self.caller)
        try:
            self._check_key()
            await self._put(*await self._aside(lambda: self._packed(make())), turns)
        finally:
            if turns:
                turns.give(self.caller)

    async def receive(self) -> Any:
        """The next message; None at the end."""
        payload = await self._receive(self.longest)
        self._check_key()
        if payload is None:
            return None
        try:
            return self._decode(payload)
        except UNREADABLE as error:
            raise RingcastError(f"the other side's frame makes no sense ({error})") from None

    async def _aside(self, pack: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        if self.thread is None:
            return pack()
        return await asyncio.get_running_loop().run_in_executor(self.thread, pack)

    def _packed(self, message: msgspec.Struct) -> tuple[bytes, bytes]:
        return self._sealed(msgspec.msgpack.encode(message))

    def _sealed(self, payload: bytes) -> tuple[bytes, bytes]:
        """Head and rest of the next frame."""
        head = (len(payload) + (TAG_BYTES if self._seal else 0)).to_bytes(4, "big")
        if self._seal:
            payload = self._seal.encrypt(self._sent.to_bytes(12, "big"), payload, head)
            self._sent += 1
        return head, payload

    async def _send(self, payload: bytes) -> bytes:
        """One frame; what was in it."""
        await self._put(*self._sealed(payload))
        return payload

    async def _put(self, head: bytes, sealed: bytes, turns: FrameTurns | None = None) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._write(head)
                for at in range(0, len(sealed), PORTION):
                    self._write(memoryview(sealed)[at : at + PORTION])
                    await self._drained(turns)
                    if turns and turns.contested and clock() - begun > TURN_S:
                        raise TimeoutError
                await self._drained(turns)
        except ConnectionError:
            raise RingcastError("the other side hung up") from None
        except TimeoutError:
            raise RingcastError("the other side did not take a frame in time") from None

    async def _drained(self, turns: FrameTurns | None) -> None:
        """Whoever has the turn may read nothing for long only while nobody waits for it."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN_S if turns else None):
                    await self._writer.drain()
                    return
            if turns and turns.contested:
                raise TimeoutError

    def _write(self, piece: Bytes) -> None:
        if self._writer.is_closing():  # uvloop takes a write then for a mistake of ours
            raise ConnectionResetError
        self._writer.write(piece)

    async def _receive(self, longest: int) -> Bytes | None:
        """What is in the next frame; None at the end. Who is not of the group is not answered."""
        self._let_go()
        frame: Bytes
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await self._reader.readexactly(4)
            length = int.from_bytes(head, "big")
            if length > longest:
                raise RingcastError("a frame that is too long; is the other side ringcast?")
            async with asyncio.timeout(PATIENCE_S):
                frame = await self._reader.readexactly(min(length, LONG))
            if length > LONG:
                frame = await self._rest(frame, length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except TimeoutError:
            raise RingcastError(f"the other side was silent for {PATIENCE_S:.0f} s") from None
        if self._open is None:
            return frame
        payload = opened(self._open, self._received.to_bytes(12, "big"), frame, head)
        if payload is None:
            raise RingcastError("the other side's frame was not sealed with this group's key")
        self._received += 1
        if length > LONG:
            await asyncio.sleep(0)  # opened and then decoded, not both while the ring waits
        return payload

    async def _rest(self, begin: bytes, length: int) -> memoryview:
        """The rest of a long frame, when its beginning has come: a turn takes more than a word."""
        if self.turns:
            await self.turns.take(self.grant)
            self._has_turn = True
        frame, clock = bytearray(begin), asyncio.get_running_loop().time
        begun = clock()
        while len(frame) < length:
            took_s = clock() - begun
            if took_s > PATIENCE_S + len(frame) / LEAST_RATE:
                raise RingcastError(f"a long frame came at less than {LEAST_RATE // 2**10} KiB/s")
            if self.turns and self.turns.contested and took_s > TURN_S:
                raise RingcastError(f"a long frame took more than {TURN_S:.0f} s, and others wait")
            async with asyncio.timeout(TURN_S if self.turns else PATIENCE_S):
                more = await self._reader.read(min(PORTION, length - len(frame)))
            if not more:
                raise asyncio.IncompleteReadError(b"", length)
            frame += more
        return memoryview(frame)

    def _let_go(self) -> None:
        """The frame before this one has been dealt with."""
        if self._has_turn and self.turns:
            self._has_turn = False
            self.turns.give(self.grant)

    def close(self) -> None:
        """Hang up."""
        self._let_go()
        self._writer.close()


async def call(
    address: Address,
    me: NodeId,
    keys: KeySet | None,
    network: str | None,
    messages: Any,
    node: NodeId | None = None,
) -> Line:
    """A connection to a node, the one with this id if one is given; OSError if nobody listens."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=2**22)
    line = Line(reader, writer, messages)
    try:
        await line.answer(me, keys, network, node)
    except BaseException:
        line.close()
        raise
    return line

"""From messages to datagrams and back. Every check on bytes from outside lives here.

A datagram is a header, then the message as MessagePack, sealed where the group has keys. The
header is authenticated too: version, realm, sender and incarnation are in the key, receiver and
counter are the nonce, so a frame sent to one processor is no frame for another. msgspec decodes
into the union of the protocol's message types, so a malformed payload is one caught exception:
counted, dropped, never more.

Nothing is known of a sender before it has been met (``wire.meeting``), and nothing that is known
changes before a frame has been opened and decoded.
"""

from __future__ import annotations

import secrets
import struct
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import LIMIT, NodeId
from ringcast.core.inputs import Message
from ringcast.core.registry import names
from ringcast.wire.keys import KeySet
from ringcast.wire.meeting import Hello, disagreement
from ringcast.wire.misfits import ANYBODY, PATIENCE, PROVEN, Misfits
from ringcast.wire.seal import CAN_SEAL, TAG_BYTES, VERSION, Bytes, Peer, Realm, opened, session

if CAN_SEAL:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = 0x5263  # "Rc"
SENDER = struct.Struct("!HBBHIQ")
"""Magic, version, key id (0: none), the realm's mark, who sends, its boot number: the same in all
its frames."""
NONCE = struct.Struct("!IQ")
"""To whom, and the sender's frame counter: never the same twice in one incarnation."""
HEADER = struct.Struct(SENDER.format + NONCE.format.removeprefix("!"))
TO, BODY = SENDER.size, HEADER.size
"""Where the nonce begins, and where the payload does."""

OVERHEAD = HEADER.size + TAG_BYTES

EVERYBODY: NodeId = 0
"""The receiver of a broadcast frame."""

MOST_PEERS = 1024
"""Senders remembered at once; only holders of a group key get this far."""

MOST_SILENT = 60
"""Calls of ``rest`` after which a sender without a frame makes room, if there is none."""

MOST_STRANGERS = 256
"""Frames of senders not met yet that are opened between two calls of ``rest``: each costs the
derivation of a key, so a flood of them must not cost all there is."""

MOST_OUTLIVED = 16
"""Frames of earlier incarnations in which a Hello is looked for between two looks around."""

MOST_UNMET = 64
"""Incarnations that were not met, but have sealed frames, whose ciphers are kept."""

MOST_REASONS = 100
"""Reasons that are counted apart: some name what a sender said."""

Decoded = tuple[NodeId, int, NodeId, Message]
"""Who sent it, in which incarnation, to whom, and what."""


def drawn() -> int:
    """A challenge that nobody can guess."""
    return 1 + secrets.randbits(62)


class Codec:
    """Encodes what this incarnation sends and decodes what others send."""

    def __init__(
        self,
        messages: tuple[type[msgspec.Struct], ...],
        src: NodeId,
        boot: int,
        keys: KeySet | None,
        realm: Realm,
        terms: dict[str, str] | None = None,
        wishes: dict[str, str] | None = None,
    ) -> None:
        self._src, self._boot, self._realm = src, boot, realm
        # Random, so that state rolled back to an earlier day, and with it the boot number,
        # still repeats no nonce.
        self._counter = secrets.randbits(62)
        self.challenge = drawn()
        """Whoever says it back is alive now."""
        self.terms, self.wishes = terms or {}, wishes or {}
        self._encode = msgspec.msgpack.Encoder().encode
        union: Any = reduce(or_, (*messages, Hello))
        self._decode = msgspec.msgpack.Decoder(union).decode
        self._keys = keys
        self._peers: dict[NodeId, Peer] = {}
        self._silent: dict[NodeId, tuple[int, int]] = {}
        """While all places are taken: the newest frame of each, and for how long there was none."""
        self._strangers, self._outlived = MOST_STRANGERS, MOST_OUTLIVED
        self._unmet: dict[tuple[NodeId, int, int], AESGCM] = {}
        """By id, boot number and key: a member that was not met yet may send thousands of frames
        before its Hello, and must not use up what is there for strangers."""
        self.unmet: dict[NodeId, None] = {}
        """Senders of genuine frames that have to be met before they are heard."""
        self.early = 0
        """Frames of theirs, which are lost."""
        self.refused: dict[str, int] = {}
        """Datagrams that went no further, by reason."""
        self._misfits = Misfits(MOST_PEERS)
        self.unproven = Misfits()
        """What frames say, without proof, of processors that were not met."""
        self.renew_keys()

    def renew_keys(self) -> None:
        """The key file changed on disk: forget the ciphers, keep what was seen."""
        keys, realm = self._keys.keys if self._keys else {0: b""}, self._realm
        for peer in self._peers.values():
            peer.ciphers.clear()
        self._unmet.clear()
        self._marks = {id: realm.mark(key) for id, key in keys.items()}
        others = [realm._replace(protocol=name) for name in names() if name != realm.protocol]
        self._foreign = {each.mark(key): each for key in keys.values() for each in others}
        self._key_id = self._keys.sealing if self._keys else 0
        self._mark = self._marks[self._key_id]
        sender = MAGIC, VERSION << 4, self._key_id, self._mark, self._src, self._boot
        self._sender = SENDER.pack(*sender)
        if self._keys:
            key = self._keys.keys[self._key_id]
            self._seal = session(key, realm, self._src, self._boot).encrypt

    def rest(self) -> None:
        """Once in a while: strangers may be heard again."""
        self._strangers, self._outlived = MOST_STRANGERS, MOST_OUTLIVED
        self.unproven.age()
        self._misfits.age(keep=self._peers)  # those that were met do not say it again
        for node, peer in self._peers.items():
            newest, looks = self._silent.get(node, (0, 0))
            self._silent[node] = peer.high, looks + 1 if newest == peer.high else 0
            if self.hears(node):
                self.unproven.forget(node)
        self._forget_silent()

    def hears(self, src: NodeId) -> bool:
        """Whether a frame of this processor was opened between the last two calls of ``rest``."""
        return src in self._silent and self._silent[src][1] == 0

    def _forget_silent(self) -> None:
        """If all places are taken, senders that are gone make room; one that lives meets again.
        What was recorded of them must not: so there is another challenge from then on."""
        if len(self._peers) < MOST_PEERS:
            return
        for node in list(self._peers):
            if self._silent[node][1] >= MOST_SILENT:
                del self._peers[node], self._silent[node]
                self.challenge = drawn()

    # --- sending ---------------------------------------------------------------------------

    def encode(self, message: Message, to: NodeId) -> bytes:
        """The datagram for a message to one processor, or to everybody."""
        self._counter = counter = self._counter + 1
        payload = self._encode(message)
        nonce = NONCE.pack(to, counter)
        if self._key_id:
            payload = self._seal(nonce, payload, None)
        return self._sender + nonce + payload

    # --- receiving -------------------------------------------------------------------------

    def decode(self, datagram: Bytes) -> Decoded | None:
        """What came and from whom; None: it goes no further."""
        try:
            magic, kind, key_id, mark, src, boot, to, counter = HEADER.unpack_from(datagram)
        except struct.error:
            return self.refuse("too short")
        if magic != MAGIC or kind != VERSION << 4 or self._marks.get(key_id) != mark:
            why, said = self._why_foreign(magic, kind, key_id, mark)
            if said and self._unheard(src) and src != self._src:
                self.unproven.note(src, f"node {src} {said}", ANYBODY)
            return self.refuse(why)
        if to != self._src and to != EVERYBODY:
            return self.refuse("sent to another node")
        peer = self._peers.get(src)
        if peer is None or peer.boot != boot:
            return self._from_stranger(datagram, peer)
        if counter <= peer.high and peer.has(counter):
            return self.refuse("replayed frame")
        payload: Bytes = datagram[BODY:]
        if key_id:
            cipher = peer.ciphers.get(key_id)
            if cipher is None:
                assert self._keys is not None
                cipher = session(self._keys.keys[key_id], self._realm, src, boot)
                peer.ciphers[key_id] = cipher
            try:
                payload = cipher.decrypt(datagram[TO:BODY], payload, None)
            except InvalidTag:
                return self.refuse("not sealed by this group")
        try:
            message = self._decode(payload)
        except UNREADABLE:
            return self.refuse(f"malformed, from node {src}")
        if counter == peer.high + 1:
            peer.high = counter
        else:
            peer.note(counter)
        return src, boot, to, message

    def _from_stranger(self, datagram: Bytes, known: Peer | None) -> Decoded | None:
        """A frame of an incarnation that was not met yet: only a Hello is of interest."""
        _, _, key_id, _, src, boot, to, counter = HEADER.unpack_from(datagram)
        if src == 0 or boot > LIMIT:
            return self.refuse("no such sender")
        if src == self._src and boot == self._boot:
            return None  # a multicast of ours came back
        outlived = known is not None and boot < known.boot
        if outlived:  # of what is late, most is no Hello
            if not self._outlived:
                return self.refuse("frame of an earlier incarnation")
            self._outlived -= 1
        payload: Bytes | None = datagram[BODY:]
        if self._keys:
            cipher = self._unmet.get((src, boot, key_id))
            if cipher is None:
                if not self._strangers:
                    return self.refuse("too many strangers at once")
                self._strangers -= 1
                cipher = session(self._keys.keys[key_id], self._realm, src, boot)
            payload = opened(cipher, datagram[TO:BODY], payload)  # type: ignore[arg-type]
            if payload is None:
                return self.refuse("not sealed by this group")
            self._unmet[src, boot, key_id] = cipher
            if len(self._unmet) > MOST_UNMET:
                del self._unmet[next(iter(self._unmet))]
        try:
            message = self._decode(payload)  # type: ignore[arg-type]
        except UNREADABLE:
            return self.refuse(f"malformed, from node {src}")
        past = outlived or (src == self._src and boot < self._boot)
        if past and type(message) is not Hello:
            # Passed on, it would look like somebody else with our id. A Hello is answered: if that
            # node lives, it has to learn that it is not alone.
            return self.refuse("frame of an earlier incarnation")
        if type(message) is not Hello:
            self.early += 1
            if len(self.unmet) < MOST_PEERS:
                self.unmet[src] = None
            return None
        place = message.places[0]
        fresh = message.echo == self.challenge and not past  # or somebody may have recorded it
        if why := disagreement(self.terms, message.terms, place):
            if fresh:
                self.misfit(src, why)
            self.refuse(why)
        elif fresh:
            if len(self._peers) >= MOST_PEERS and known is None:
                return self.refuse("too many senders")
            self._peers[src] = Peer(boot, counter)
            self.unproven.forget(src)
            self.misfit(src, disagreement(self.wishes, message.wishes, place, must=False))
            self._unmet.pop((src, boot, key_id), None)
        return src, boot, to, message

    def misfit(self, src: NodeId, why: str) -> None:
        """A processor does not fit, or, with nothing to say, it does."""
        if not why:
            self._misfits.forget(src)
        elif src != self._src and (src in self._misfits or len(self._misfits) < MOST_PEERS):
            self._misfits.note(src, why, PROVEN)

    @property
    def misfits(self) -> dict[NodeId, str]:
        """Processors that have the key, if there is one, and are set up otherwise than this one;
        how, for whoever can mend it."""
        return self._misfits.said()

    def met(self, src: NodeId, boot: int) -> bool:
        """Whether frames of this incarnation are heard."""
        peer = self._peers.get(src)
        return peer is not None and peer.boot == boot

    def knows(self, src: NodeId) -> bool:
        """Whether some incarnation of a processor was met."""
        return src in self._peers

    def _unheard(self, src: NodeId) -> bool:
        """Whether it was not met, or has been silent for long: its keys may be others now."""
        return src not in self._peers or self._silent.get(src, (0, 0))[1] >= PATIENCE

    def newest(self, src: NodeId) -> int:
        """The number of the newest frame of a processor; 0 if none was heard."""
        peer = self._peers.get(src)
        return peer.high if peer else 0

    def _why_foreign(self, magic: int, kind: int, key_id: int, mark: int) -> tuple[str, str]:
        """Why a frame is none of this group's; and what its sender has to be told, if it seems to
        be meant for us."""
        if magic != MAGIC:
            return "not a ringcast frame", ""
        if kind != VERSION << 4:
            there = kind >> 4
            why = f"of version {there}, and this node's is {VERSION}: run one release"
            return why, f"runs version {there} of the wire format, this node {VERSION}"
        if self._keys is None and key_id:
            return (
                "sealed, but this node has no key",
                f"seals with key {key_id}, this node has none",
            )
        if self._keys is not None and key_id not in self._keys.keys:
            seals = f"seals with key {key_id}" if key_id else "has no key"
            held = ", ".join(map(str, self._keys.keys))
            return "unknown key", f"{seals}, this node has {held}"
        mine = self._realm.protocol
        if other := self._foreign.get(mark):
            why = f"of protocol {other.protocol}, and this node's is {mine}"
            return why, f"speaks {other.protocol}, this node {mine}"
        why = "of another group: its key or its network is not this node's"
        return why, f"has another key {key_id}, or another network than {self._realm.network!r}"

    def refuse(self, reason: str) -> Decoded | None:
        """Count a datagram that goes no further; None, for ``decode`` to return."""
        if reason not in self.refused and len(self.refused) >= MOST_REASONS:
            reason = "other reasons"
        self.refused[reason] = self.refused.get(reason, 0) + 1
        return None

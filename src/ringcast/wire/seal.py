"""Sealing: AEAD with a key derived for each use, and how a repetition is told.

Each incarnation of a processor on each channel seals with a key of its own, derived from the
group key, what it is for, the processor's id and its boot number. So a plain counter is a nonce
that never repeats, and no bytes of one channel, network or protocol pass for those of another.
"""

from __future__ import annotations

import hmac
from bisect import bisect_left, bisect_right
from enum import StrEnum
from typing import NamedTuple, TypeAlias

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:  # an extra; what needs no keys works without it
    CAN_SEAL = False
else:
    CAN_SEAL = True

Bytes: TypeAlias = bytes | memoryview
"""What came from outside: a view into the receive buffer saves a copy."""

TAG_BYTES = 16
VERSION = 3
"""Of everything that is sent. It is authenticated, too."""

WINDOW = 4096
"""A late frame is told from a replay if it is at most this far behind the sender's newest."""


class Medium(StrEnum):
    """What bytes travel on; those of one are no bytes of another."""

    RING = "ring"
    JOURNAL = "journal"
    GUEST = "guest"


class Realm(NamedTuple):
    """What senders and receivers must have in common, besides a key, to understand each other."""

    channel: Medium
    network: str = ""
    protocol: str = ""

    def info(self, *more: bytes) -> bytes:
        """What a key derived in this realm is for; no two lists of parts give the same bytes."""
        parts = (*(part.encode() for part in self), *more)
        return b"ringcast/%d" % VERSION + b"".join(len(p).to_bytes(4, "big") + p for p in parts)

    def mark(self, key: bytes) -> int:
        """16 bits that frames of this realm carry in the open.

        A stranger who has not seen any cannot guess them, so a blind flood costs a look each;
        and a node of another network or protocol is told from a stranger.
        """
        return int.from_bytes(hmac.digest(key, self.info(b"mark"), "sha256")[:2], "big")


def derive(key: bytes, info: bytes) -> bytes:
    """A key for one purpose."""
    return HKDF(SHA256(), len(key), None, info).derive(key)


def session(key: bytes, realm: Realm, src: int, boot: int) -> AESGCM:
    """The cipher of one incarnation of one processor in a realm."""
    info = realm.info(src.to_bytes(4, "big"), boot.to_bytes(8, "big"))
    return AESGCM(derive(key, info))


def opened(
    cipher: AESGCM, nonce: Bytes, sealed: Bytes, header: Bytes | None = None
) -> bytes | None:
    """The payload; None if somebody else sealed it, or it was altered."""
    try:
        return cipher.decrypt(nonce, sealed, header)
    except InvalidTag:
        return None


class Peer:
    """A processor's incarnation that has proved to be alive: its ciphers and what it sent."""

    __slots__ = ("boot", "ciphers", "high", "missing")

    def __init__(self, boot: int, counter: int) -> None:
        self.boot = boot
        self.ciphers: dict[int, AESGCM] = {}
        self.high = counter
        """The newest frame. What was sent before we met may be a replay, so all of that came."""
        self.missing: list[int] = []
        """Frames before it that did not come and still may; frames to others are among them. Said
        by where each gap begins and ends, ascending: a jump costs as much as a step."""

    def has(self, counter: int) -> bool:
        """Whether a frame came before, or is too old to tell."""
        return counter <= self.high and bisect_right(self.missing, counter) % 2 == 0

    def note(self, counter: int) -> None:
        """Remember a frame that was genuine."""
        missing = self.missing
        if counter == self.high + 1:
            self.high = counter
        elif counter > self.high:
            missing += max(self.high + 1, counter - WINDOW), counter
            self.high = counter
        elif not self.has(counter):
            for edge in (counter, counter + 1):  # shortens its gap, ends it, or parts it in two
                at = bisect_left(missing, edge)
                if missing[at] == edge:
                    del missing[at]
                else:
                    missing.insert(at, edge)
        if len(missing) > 2 * WINDOW:
            del missing[: bisect_left(missing, self.high - WINDOW) // 2 * 2]

"""Group keys: AEAD on every frame, rotation without a restart, replay refused.

A key file has one key a line, ``<id> <base64 of 32 bytes>``. Every key is accepted; the first
one seals. Rotation is three edits, each made on all nodes before the next, and each picked up
while the node runs: add the new key at the end, move it to the front, remove the old one.

Each incarnation of a processor seals with a key of its own, derived from the group key, its id
and its boot number, so a plain counter is a nonce that never repeats.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import TypeAlias

from ringcast.core.errors import KeyFileError
from ringcast.files.disk import DISK

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

KEY_BYTES = 32
TAG_BYTES = 16
MOST_KEYS = 255
"""Their ids are one byte, and 0 is no key."""

WINDOW = 4096
"""How far behind the newest frame of a sender a late one may be and still be told from a replay."""

ALL = (1 << WINDOW) - 1


class KeyFile:
    """The keys of a group, read again whenever the file changes."""

    def __init__(self, path: Path) -> None:
        if not CAN_SEAL:
            raise KeyFileError(
                "keys need the package cryptography, which is not installed: "
                "pip install 'ringcast[live]'"
            )
        self.path = path
        self._stamp = (0, 0, 0)
        self.keys: dict[int, bytes] = {}
        self.reload()

    @property
    def sealing(self) -> int:
        """The id of the key that seals: the first of the file."""
        return next(iter(self.keys))

    def reload(self) -> bool:
        """Read the file if it changed; whether it did."""
        try:
            status = self.path.stat()
            # Not the time of modification, which copying may keep to the second.
            stamp = status.st_ino, status.st_ctime_ns, status.st_size
            if stamp == self._stamp:
                return False
            if status.st_mode & 0o077:
                raise KeyFileError(f"{self.path} can be read by others; run: chmod 600 {self.path}")
            keys = parse(self.path.read_text("ascii"), self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise KeyFileError(
                f"cannot read the key file {self.path}: {error}; make one with: "
                f"ringcast keygen {self.path}"
            ) from None
        self.keys, self._stamp = keys, stamp
        return True


def parse(text: str, path: Path) -> dict[int, bytes]:
    """The keys of a key file, in the order of its lines."""
    keys: dict[int, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, coded = line.split()
            key_id, key = int(name), base64.b64decode(coded, validate=True)
        except ValueError:
            raise KeyFileError(f"{path}, line {number}: expected '<id> <base64 key>'") from None
        if not 1 <= key_id <= 255 or len(key) != KEY_BYTES or key_id in keys:
            raise KeyFileError(
                f"{path}, line {number}: ids are 1..255, each once, and keys are 32 bytes"
            )
        keys[key_id] = key
    if not keys:
        raise KeyFileError(f"{path} holds no key; make one with: ringcast keygen {path}")
    return keys


def write(path: Path, keys: dict[int, bytes]) -> None:
    """Replace a key file in one step, readable by its owner only."""
    lines = ["# ringcast group keys: all are accepted, the first one seals"]
    lines += [f"{key_id} {base64.b64encode(key).decode()}" for key_id, key in keys.items()]
    DISK.replace(path, ("\n".join(lines) + "\n").encode(), 0o600)


def add(keys: dict[int, bytes]) -> dict[int, bytes]:
    """First step of a rotation: a new key at the end, accepted but not yet used.

    Its id follows that of the sealing key, round and round, so that ``waiting`` can tell.
    """
    after = next(iter(keys), 0)
    ids = ((after + step) % MOST_KEYS + 1 for step in range(MOST_KEYS))
    free = next((id for id in ids if id not in keys), None)
    if free is None:
        raise KeyFileError("all 255 key ids are taken; retire the old keys first")
    return {**keys, free: secrets.token_bytes(KEY_BYTES)}


def waiting(keys: dict[int, bytes]) -> bool:
    """Whether the newest key was added and does not seal yet."""
    ids = list(keys)
    return 0 < (ids[-1] - ids[0]) % MOST_KEYS <= MOST_KEYS // 2


def promote(keys: dict[int, bytes]) -> dict[int, bytes]:
    """Second step: the newest key seals."""
    newest = list(keys)[-1]
    return {newest: keys[newest], **keys}


def retire(keys: dict[int, bytes]) -> dict[int, bytes]:
    """Third step: only the sealing key is left."""
    sealing = next(iter(keys))
    return {sealing: keys[sealing]}


def session(key: bytes, src: int, boot: int) -> AESGCM:
    """The cipher of one incarnation of one processor."""
    info = b"ringcast/1" + src.to_bytes(4, "big") + boot.to_bytes(8, "big")
    return AESGCM(HKDF(SHA256(), KEY_BYTES, None, info).derive(key))


class Sealer:
    """Seals the frames of this incarnation."""

    def __init__(self, file: KeyFile, src: int, boot: int) -> None:
        self._file, self._src, self._boot = file, src, boot
        self.key_id = 0
        self.renew()

    def renew(self) -> None:
        """Take the sealing key from the file."""
        self.key_id = self._file.sealing
        self._encrypt = session(self._file.keys[self.key_id], self._src, self._boot).encrypt

    def seal(self, counter: int, payload: bytes, header: bytes) -> bytes:
        """Encrypt ``payload``; ``header`` is authenticated with it."""
        return self._encrypt(counter.to_bytes(12, "big"), payload, header)


class Peer:
    """What is known of one sender's present incarnation: its ciphers and what it sent."""

    __slots__ = ("boot", "ciphers", "high", "seen")

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.ciphers: dict[int, AESGCM] = {}
        self.high = 0
        self.seen = 0  # bit i: frame high - i was received

    def fresh(self, counter: int) -> bool:
        """Whether a frame was not received before; remembers it."""
        ahead = counter - self.high
        if ahead > 0:
            self.seen = (self.seen << ahead | 1) & ALL if ahead < WINDOW else 1
            self.high = counter
            return True
        if -ahead >= WINDOW or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        return True


class Opener:
    """Opens the frames of others: who is not of the group, or repeats itself, is refused."""

    MOST = 1024
    """Senders remembered at once; only holders of a group key get this far."""

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._peers: dict[int, Peer] = {}

    def renew(self) -> None:
        """The key file changed: forget the ciphers, keep what was seen."""
        for peer in self._peers.values():
            peer.ciphers.clear()

    def open(
        self, key_id: int, src: int, boot: int, counter: int, sealed: Bytes, header: Bytes
    ) -> bytes | str:
        """The payload, or the reason why the frame is refused."""
        key = self._file.keys.get(key_id)
        if key is None:
            return "unknown key"
        peer = self._peers.get(src)
        if peer is None or peer.boot < boot:
            peer = Peer(boot)  # kept only if the frame proves genuine
        elif peer.boot > boot:
            return "frame of an earlier incarnation"
        cipher = peer.ciphers.get(key_id)
        if cipher is None:
            cipher = session(key, src, boot)
        try:
            payload = cipher.decrypt(counter.to_bytes(12, "big"), sealed, header)
        except InvalidTag:
            return "not sealed by this group"
        if len(self._peers) >= self.MOST and src not in self._peers:
            return "too many senders"
        peer.ciphers[key_id] = cipher
        self._peers[src] = peer
        return payload if peer.fresh(counter) else "replayed frame"

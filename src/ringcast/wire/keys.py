"""Group keys: the file they are in, and their rotation without a restart.

A key file has one key a line, ``<id> <base64 of 32 bytes>``. Every key is accepted; the first
one seals. Rotation is three edits, each made on all nodes before the next, and each picked up
while the node runs: add the new key at the end, move it to the front, remove the old one.

No key of the file seals anything itself: ``wire.seal`` derives one for each use.

A guest's file begins with a line ``guest <right> <name>``. Its keys are derived from the group's
for that right and name in one network, so nodes know them without a list, and none leads back to
the group's.
"""

from __future__ import annotations

import base64
import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

from ringcast.core.errors import KeyFileError
from ringcast.files.disk import DISK
from ringcast.wire.seal import CAN_SEAL, Medium, Realm, derive

KEY_BYTES = 32
GUEST = "guest"
RIGHTS = ("read", "write")
"""What a guest may do: read the journal, or publish rows of the writer that has its name."""

MOST_KEYS = 255
"""Their ids are one byte, and 0 is no key."""


class Grant(NamedTuple):
    """What a guest may do, and as whom."""

    right: str
    name: str


class KeySet:
    """The keys of a group or of a guest."""

    def __init__(self, keys: dict[int, bytes], grant: Grant | None = None) -> None:
        self.keys = keys
        self.grant = grant
        """What the holder may do; None: everything."""

    @property
    def sealing(self) -> int:
        """The id of the key that seals: the first one."""
        return next(iter(self.keys))

    def key(self, key_id: int, grant: Grant | None, network: str = "") -> bytes | None:
        """The key of this number for somebody with this grant in a network; None if there is
        none."""
        key = self.keys.get(key_id)
        if key is None or grant == self.grant:
            return key
        return guest_key(key, grant, network) if grant and self.grant is None else None


class KeyFile(KeySet):
    """A set of keys that is read again whenever its file changes."""

    def __init__(self, path: Path) -> None:
        if not CAN_SEAL:
            raise KeyFileError(
                "keys need the package cryptography, which is not installed: "
                "pip install 'ringcast[live]'"
            )
        super().__init__({})
        self.path = path
        self._stamp = (0, 0, 0)
        self.reload()

    def reload(self) -> bool:
        """Read the file if it changed; whether it did."""
        try:
            status = self.path.stat()
            # Not the time of modification, which copying may keep to the second.
            stamp = status.st_ino, status.st_ctime_ns, status.st_size
            if stamp == self._stamp:
                return False
            if not stat.S_ISREG(status.st_mode):  # to read a pipe, a running node would stand still
                raise KeyFileError(f"{self.path} is no ordinary file; put the key file there")
            if status.st_mode & 0o077:
                raise KeyFileError(f"{self.path} can be read by others; run: chmod 600 {self.path}")
            if status.st_uid not in (os.geteuid(), 0):
                raise KeyFileError(f"{self.path} belongs to another user, who can change it")
            text = self.path.read_text("ascii")
            keys, grant = parse(text, self.path), parse_grant(text, self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise KeyFileError(
                f"cannot read the key file {self.path}: {error}; copy the group's there, or, for a "
                f"new group, make one with: ringcast keygen {self.path}"
            ) from None
        if self.keys and grant != self.grant:  # a member must not seal with what a guest has
            raise KeyFileError(
                f"{self.path} is now that of {_holder(grant)}, and was that of "
                f"{_holder(self.grant)}; put the right file back"
            )
        self.keys, self.grant, self._stamp = keys, grant, stamp
        return True


def _holder(grant: Grant | None) -> str:
    return f"a guest that may {grant.right} as {grant.name}" if grant else "the group"


def parse(text: str, path: Path) -> dict[int, bytes]:
    """The keys of a key file, in the order of its lines."""
    keys: dict[int, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", GUEST)):
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


def parse_grant(text: str, path: Path) -> Grant | None:
    """What the holder of a key file may do; None: everything."""
    lines = [line.split() for line in text.splitlines() if line.startswith(GUEST)]
    if not lines:
        return None
    if len(lines) > 1 or len(lines[0]) != 3 or lines[0][1] not in RIGHTS:
        raise KeyFileError(f"{path}: expected one line 'guest read <name>' or 'guest write <name>'")
    return Grant(*lines[0][1:])


def guest_key(key: bytes, grant: Grant, network: str = "") -> bytes:
    """What a guest of a network has instead of a group key."""
    return derive(key, Realm(Medium.GUEST, network).info(*(part.encode() for part in grant)))


def write(path: Path, keys: dict[int, bytes], grant: Grant | None = None) -> None:
    """Replace a key file in one step, readable by its owner only."""
    lines = ["# ringcast group keys: all are accepted, the first one seals"]
    if grant:
        lines = ["# ringcast keys of a guest", f"{GUEST} {grant.right} {grant.name}"]
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

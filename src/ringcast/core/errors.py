"""What can go wrong, each with what to do about it."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are no message: of a wrong form, text or depth."""


UNREADABLE_TOML = (msgspec.DecodeError, ValueError, RecursionError)
"""And on text that is no TOML: numbers longer than Python reads are plain ValueErrors."""


class RingcastError(Exception):
    """Base of every error that ringcast raises for its user. A wrong argument of a call is Python's
    own TypeError or ValueError."""


class ConfigError(RingcastError):
    """The configuration cannot be used; the text names the setting and says what to write."""


class KeyFileError(RingcastError):
    """The key file is missing, readable by others, or not a key file."""


class StorageError(RingcastError):
    """Stable storage cannot be read or written, so the node cannot go on safely."""


class TransportError(RingcastError):
    """A socket cannot be opened: the port is taken or the address is not ours."""


class DeliveryUncertain(RingcastError):
    """A message that was sent may or may not have been delivered, here it was not, and it will
    not be sent again: the ring changed, in a mode of its protocol that cannot tell."""


class NodeStopped(RingcastError):
    """The node has ended, by ``close`` or for the reason given."""


class MemberExcluded(NodeStopped):
    """The others went on without this member, too often to come back by itself: start it again,
    and find out what makes it slow or deaf."""


class MemberFellBehind(NodeStopped):
    """What this member has missed is kept by nobody any more. Start it again: it joins as a new
    member, and its application takes a fresh copy of the state. A longer history bears longer
    absences."""


CLOSED = "closed"
"""The reason of a node that its program ended."""

STORAGE_LOST = "gap: this member took part before and its storage is lost; start it again"
"""How the reason begins with which a processor stops that lost its storage, and finds out."""

HEADS = {"excluded": MemberExcluded, "gap": MemberFellBehind, "fell behind": MemberFellBehind}
"""How a protocol begins its reason to stop, where an application may do something about it."""


def node_stopped(reason: str | None, what: str = "the node has stopped") -> NodeStopped:
    """The error for a node that stopped for a reason."""
    head = next((head for head in HEADS if (reason or "").startswith(head)), None)
    return (HEADS[head] if head else NodeStopped)(f"{what}: {reason}")

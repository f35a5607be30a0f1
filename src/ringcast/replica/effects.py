"""What a replica's engine asks its host to do, in one ordered list, and its phases."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from ringcast.replica.log import Record
from ringcast.replica.words import LogEntry, Ticket, Word


class Phase(StrEnum):
    """Where a replica is between two primary components."""

    APART = "apart"
    """In no view, or in a transitional one: nothing is appended (RS-5)."""
    EXCHANGE = "exchange"
    """Members say what is on their disks; without a quorum it stays like this (RS-6)."""
    TRANSFER = "transfer"
    """The log to go on from is decided, and not on this disk yet (RS-7, RS-8)."""
    READY = "ready"
    """It is; a quorum must say so (RS-9)."""
    PRIMARY = "primary"
    """Commands are appended (RS-10)."""


class Say(msgspec.Struct, frozen=True, gc=False):
    """Send a word to the group."""

    word: Word


class Write(msgspec.Struct, frozen=True, gc=False):
    """Put a record at the end of the disk."""

    record: Record


class Sync(msgspec.Struct, frozen=True, gc=False):
    """Make what was written durable, then call ``synced(ticket)``."""

    ticket: int


class Apply(msgspec.Struct, frozen=True, gc=False):
    """Entry ``index`` is green: carry it out."""

    index: int
    entry: LogEntry


class Restore(msgspec.Struct, frozen=True, gc=False):
    """Take over the state after entry ``at``."""

    at: int
    state: bytes


class BarrierPassed(msgspec.Struct, frozen=True, gc=False):
    """A barrier of ours was passed: a read may see the state after entry ``index`` (RS-14)."""

    ticket: Ticket
    index: int


class Became(msgspec.Struct, frozen=True, gc=False):
    """The phase changed."""

    phase: Phase
    why: str


class Halt(msgspec.Struct, frozen=True, gc=False):
    """This replica must not go on."""

    reason: str


Effect: TypeAlias = Say | Write | Sync | Apply | Restore | BarrierPassed | Became | Halt

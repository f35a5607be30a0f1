"""What replicas say to each other, as messages of their group."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from ringcast.core.ids import LIMIT, NodeId, Position, Seq

Index = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
"""A place in the log: entries are numbered from 1."""

MOST_VOTERS = 100
MOST_RUNS = 1024
MOST_IN_WORD = 2**12
"""Entries in one word; small ones take much more memory than bytes."""
Voters = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MOST_VOTERS)]


class ExactWord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A part of a word. Nothing may stand behind its fields.

    Whether a decoder can pass over what is nested deeply there depends on how much of the stack
    its process has in use: some members would take the message, and others would not.
    """


class Epoch(ExactWord, frozen=True, order=True):
    """An attempt to form a primary component: the view it is made in, and the attempt's number.

    A member's views ascend, over its restarts too, so its epochs do.
    """

    seq: Seq
    rep: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    round: Seq = 0

    def __str__(self) -> str:
        return f"({self.seq},{self.rep})/{self.round}"


NEVER = Epoch(0, 0)
"""Before every epoch."""

LAST_ROUND = 2**62


def after(epoch: Epoch) -> Epoch:
    """RS-4: an epoch just behind this one."""
    if epoch.round < LAST_ROUND:
        return Epoch(epoch.seq, epoch.rep, epoch.round + 1)
    return Epoch(epoch.seq + 1, epoch.rep)


class Ticket(ExactWord, frozen=True):
    """Names a command by who submitted it: the member, its incarnation, and a number."""

    node: NodeId
    boot: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
    number: Seq


class LogEntry(ExactWord, frozen=True):
    """A command with its place in the log; ``epoch`` is the one in which it was appended."""

    epoch: Epoch
    ticket: Ticket
    command: bytes


class Run(ExactWord, frozen=True):
    """Entries ``first .. upto`` of a log, all appended in one epoch."""

    epoch: Epoch
    first: Index
    upto: Index


class Action(ExactWord, frozen=True, tag=1):
    """A command to be appended."""

    ticket: Ticket
    command: bytes


class Status(ExactWord, frozen=True, tag=2):
    """What the sender has on disk, and its promise not to append in any epoch before ``epoch``."""

    epoch: Epoch
    founder: Index
    """Names the group of replicas; 0: the disk is blank."""
    voters: Voters
    """Whose disks count; of a blank one, those it was configured with, if they have names."""
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_VOTERS)]
    """How many they are."""
    log_epoch: Epoch
    length: Index
    green: Index
    trimmed: Index
    runs: Annotated[tuple[Run, ...], msgspec.Meta(max_length=MOST_RUNS)]
    """Of the log behind ``trimmed``, or of its end."""
    boot: Seq
    """The sender's incarnation: what makes the name of a new group of replicas its own."""


class Entries(ExactWord, frozen=True, tag=3):
    """Entries ``first ..`` of the log that goes on in ``epoch``."""

    epoch: Epoch
    first: Index
    entries: Annotated[tuple[LogEntry, ...], msgspec.Meta(max_length=MOST_IN_WORD)]


class Snapshot(ExactWord, frozen=True, tag=4):
    """A piece of the state after entry ``at``, for those whose log ends before it begins."""

    epoch: Epoch
    at: Index
    offset: Index
    body: bytes
    last: bool


class Ready(ExactWord, frozen=True, tag=5):
    """The sender has the log that goes on in ``epoch`` on disk."""

    epoch: Epoch


class Ack(ExactWord, frozen=True, tag=6):
    """The sender has the log of ``epoch`` up to ``length`` on disk, and saw so many barriers."""

    epoch: Epoch
    length: Index
    barriers: Index = 0


class Barrier(ExactWord, frozen=True, tag=7):
    """A read wants to be ordered here."""

    ticket: Ticket


class Again(ExactWord, frozen=True, tag=8):
    """The attempt ``epoch`` does not get on: begin another one."""

    epoch: Epoch


class Lift(ExactWord, frozen=True, tag=9):
    """The sender has promised ``epoch``, which the attempt under way is not after."""

    epoch: Epoch


Word: TypeAlias = Action | Status | Entries | Snapshot | Ready | Ack | Barrier | Again | Lift

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode


def attempt_at(position: Position) -> int:
    """RS-4: the number of the attempt that a view of this place begins; there is room behind it
    for attempts that are given up. Should numbers meet all the same, they are lifted."""
    return min((position.seq << 24) + (position.index << 8), LAST_ROUND)

"""What a replica's log holds: commands of programs, and who is connected. Readers of a journal find
the same in the group of a replica."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from ringcast.core.ids import LIMIT, NodeId
from ringcast.replica import words
from ringcast.replica.words import Action, Epoch


class Command(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Something to apply, perhaps a numbered request of a client."""

    body: bytes
    client: str = ""
    request: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)] = 0


class Present(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Who is in the group's view in which this primary component goes on."""

    epoch: Epoch
    members: tuple[NodeId, ...]


Content: TypeAlias = Command | Present

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Content).decode


class Submission(NamedTuple):
    """A command as it was submitted: the first three name it, however often it is said (RS-11)."""

    member: int
    boot: int
    number: int
    client: str | None
    request: int | None
    command: bytes


def submission(body: bytes) -> Submission | None:
    """The command in a message of a replica's group; None if it is another word of replicas.
    Raises msgspec's errors if it is none at all."""
    word = words.decode(body)
    if not isinstance(word, Action):
        return None
    content = decode(word.command)
    if not isinstance(content, Command):
        return None
    ticket, numbered = word.ticket, bool(content.client)
    return Submission(
        ticket.node,
        ticket.boot,
        ticket.number,
        content.client if numbered else None,
        content.request if numbered else None,
        content.body,
    )

"""What a replica's log holds: commands of programs, who is connected, and who was started anew.
Readers of a journal find the same in the group of a replica."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from ringcast.core.ids import LIMIT, NodeId
from ringcast.replica import words
from ringcast.replica.words import Action, Epoch, ExactWord

COMMAND = "command"
"""The kind of a record with a command, where readers of a journal ask for commands."""

MOST_MEMBERS = 2**16
LONGEST_NAME = 64
"""Characters of a client's name: all members keep thousands of them."""


class Command(ExactWord, frozen=True, tag=1):
    """Something to apply, perhaps a numbered request of a client."""

    body: bytes
    client: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    request: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)] = 0


class Present(ExactWord, frozen=True, tag=2):
    """Who is in the group's view in which this primary component goes on."""

    epoch: Epoch
    members: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MOST_MEMBERS)]


class Started(ExactWord, frozen=True, tag=3):
    """The first command of a replica's life, which its ticket names: the life before is over."""


Content: TypeAlias = Command | Present | Started

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Content).decode


def command_of(body: bytes, client: str | None, request: int | None) -> Command:
    """What a program submits; a TypeError or ValueError says what is wrong with it."""
    if (client is None) != (request is None):
        raise ValueError("client and request belong together: give both or neither")
    if client is None or request is None:
        return Command(body)
    if not isinstance(client, str) or not isinstance(request, int) or isinstance(request, bool):
        raise TypeError("client is a str and request an int")
    if not 1 <= len(client) <= LONGEST_NAME or not 0 <= request < 2**62:
        raise ValueError("a client's name has 1 to 64 characters, requests count from 0")
    return Command(body, client, request)


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


DEEPEST = 100
"""Containers inside each other in a value or a result: msgpack must hold it whatever part of the
stack a member has in use, or members would differ."""
PLAIN = (str, bytes, int, float, type(None))


def too_deep(value: object) -> bool:
    """Whether containers are nested more than ``DEEPEST`` deep. Counts level by level, because
    where a recursion ends depends on the process."""
    if isinstance(value, PLAIN):
        return False
    level = {0: value}
    for _ in range(DEEPEST):
        parts = chain.from_iterable(map(_parts, level.values()))
        level = {id(part): part for part in parts if not isinstance(part, PLAIN)}
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[object]:
    """What msgpack finds in a value."""
    if isinstance(value, dict):
        return chain(value, value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    kind = type(value)
    names = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    return [getattr(value, name, None) for name in names]

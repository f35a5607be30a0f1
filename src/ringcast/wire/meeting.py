"""Meeting: how two incarnations find out that the other one is alive now and of the same mind.

Frames count only from an incarnation that has said a ``Hello`` with this node's challenge in it.
The challenge is drawn at every start, so nothing recorded before can hold it: a node that has
forgotten what it saw, because it started anew, cannot be fed with what was sent to its past.
A Hello also says the settings that must be the same at all members, and where processors are.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.core.ids import NodeId, Seq
from ringcast.wire.address import Address

MOST = 255
"""Places in a Hello, and addresses a node remembers; only holders of a group key add any."""

LINE = "^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\\Z"
"""Text that stays on its line: it comes into logs and onto terminals, where a line break or an
escape sequence would pass for somebody else's words."""

Text = Annotated[str, msgspec.Meta(max_length=64, pattern=LINE)]
Terms = Annotated[dict[Text, Text], msgspec.Meta(max_length=32)]


class Whereabouts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a processor is to be reached, according to its incarnation ``boot``."""

    node: NodeId
    boot: Seq
    host: Annotated[str, msgspec.Meta(max_length=255, pattern=LINE)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=100, gc=False):
    """Where I am, and where I believe the others are; ``wants`` asks for an answer."""

    places: Annotated[tuple[Whereabouts, ...], msgspec.Meta(max_length=MOST, min_length=1)]
    wants: bool
    challenge: Seq = 0
    """A number of this incarnation's own, for the others to say back."""
    echo: Seq = 0
    """The challenge of the one that this Hello answers; 0: nobody's."""
    terms: Terms = {}
    """The settings that must be the same at all members."""
    wishes: Terms = {}
    """Those that should be."""


def disagreement(
    mine: dict[str, str], theirs: dict[str, str], place: Whereabouts, must: bool = True
) -> str:
    """Which setting differs and how, for whoever can mend it; empty if none does."""
    for name in (*mine, *(name for name in theirs if name not in mine)):
        here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
        if here != there:
            return (
                f"{name} is {there} at node {place.node} ({Address(place.host, place.port)}) and "
                f"{here} at this node: it {'must' if must else 'should'} be the same at all members"
            )
    return ""

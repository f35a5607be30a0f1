"""What members say to each other and to the log is read alike by all, or by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from ringcast.api import available
from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import Position, ViewId
from ringcast.replica import contents, words
from ringcast.replica.words import Epoch, LogEntry, Run, Ticket
from ringcast.wire import envelope
from ringcast.wire.envelope import Earlier, Known

RING, EPOCH, TICKET = ViewId(4, 1), Epoch(4, 1, 2), Ticket(1, 7, 3)
PLACE = Position(0, 4, 1, 5, 0, 0)
VERSION = available.Version(1, PLACE, 2)

SAID: dict[Callable[[bytes], Any], list[Any]] = {
    words.decode: [
        words.Action(TICKET, b"command"),
        words.Status(EPOCH, 1, (1, 2), 2, EPOCH, 3, 2, 1, (Run(EPOCH, 2, 3),), 5),
        words.Entries(EPOCH, 1, (LogEntry(EPOCH, TICKET, b""),)),
        words.Snapshot(EPOCH, 1, 0, b"", True),
        words.Ready(EPOCH),
        words.Ack(EPOCH, 1, 2),
        words.Barrier(TICKET),
        words.Again(EPOCH),
        words.Lift(EPOCH),
    ],
    contents.decode: [
        contents.Command(b"", "client", 1),
        contents.Present(EPOCH, (1, 2)),
        contents.Started(),
    ],
    available._decode: [
        available.NumberedCommand(1, b""),
        available.AskAgain(1),
        available.Have(PLACE, VERSION, VERSION, False),
        available.StatePiece(PLACE, VERSION, b"", True),
    ],
    envelope.decode: [
        envelope.Data("g", (b"x",)),
        envelope.NumberedRows(RING, "g", "w", 1, 0, (b"x",)),
        envelope.Groups(RING, ("g",), (Known("g", "w", 1, 1),), (Earlier((RING,), 1),), ("g",)),
        envelope.Enter("g"),
        envelope.Exit("g"),
    ],
}


def lists(value: Any) -> Iterator[list[Any]]:
    """All lists in a value, itself first."""
    if isinstance(value, list):
        yield value
        for part in value:
            yield from lists(part)


@pytest.mark.parametrize(
    ("decode", "said"), [(decode, each) for decode, some in SAID.items() for each in some]
)
def test_nothing_may_stand_behind_the_fields(decode: Callable[[bytes], Any], said: Any) -> None:
    """Of a word with lists that were nested deeply behind its fields it depended on the stack in
    use whether it could be read: one copy appended or applied it, and another one did not."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(said))
    assert decode(msgspec.msgpack.encode(plain)) == said
    for at in range(len(list(lists(plain)))):
        longer = deepcopy(plain)
        list(lists(longer))[at].append([[]])
        with pytest.raises(UNREADABLE):
            decode(msgspec.msgpack.encode(longer))

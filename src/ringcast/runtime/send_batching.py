"""Frames that leave together: broadcasts that wait for each other, and unicasts in a row.

A run of datagrams costs hardly more than one (``segments``). A machine asks for frames one by one,
in an order that must be kept; here is what may wait for what.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringcast.core.effects import Broadcast, Effect, Originate, Send, Stop
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message

BURST = 8
"""Effects of one input from which on it is worth looking for frames to one processor in a row."""


class Letters(msgspec.Struct, frozen=True, gc=False):
    """Unicast frames in a row to one processor; they leave together."""

    to: NodeId
    messages: list[Message]


WITH_FRAMES = frozenset((Broadcast, Originate))
"""Between these, broadcast frames wait for each other."""
LAST = frozenset((Send, Letters, Stop))
"""Nothing overtakes the frames that were broadcast before it."""


def in_runs(effects: list[Effect]) -> Iterator[Effect | Letters]:
    """The effects, with unicast frames in a row to one processor as one."""
    run: list[Message] = []
    to = 0
    for effect in effects:
        if type(effect) is Send and (not run or effect.to == to):
            run.append(effect.message)
            to = effect.to
            continue
        if run:
            yield Letters(to, run)
            run = []
        if type(effect) is Send:
            run, to = [effect.message], effect.to
        else:
            yield effect
    if run:
        yield Letters(to, run)

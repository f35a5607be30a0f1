"""Frames that leave together: broadcasts that wait for each other, and unicasts in a row.

A run of datagrams costs hardly more than one (``udp_offload``). A machine asks for frames one by
one, in an order that must be kept; here is what may wait for what.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringcast.core.effects import Broadcast, Effect, Originate, Send, Stop
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message

BURST = 8
"""Effects of one input from which on it is worth looking for frames to one processor in a row."""


class SendRun(msgspec.Struct, frozen=True, gc=False):
    """Unicast frames in a row to one processor; they leave together."""

    to: NodeId
    messages: list[Message]
    port: int


WITH_FRAMES = frozenset((Broadcast, Originate))
"""Between these, broadcast frames wait for each other."""
LAST = frozenset((Send, SendRun, Stop))
"""Nothing overtakes the frames that were broadcast before it."""


def in_runs(effects: list[Effect]) -> Iterator[Effect | SendRun]:
    """The effects, with unicast frames in a row to one processor as one."""
    run = SendRun(0, [], 0)
    for effect in effects:
        if type(effect) is Send:
            if not run.messages or run.to != effect.to or run.port != effect.port:
                if run.messages:
                    yield run
                run = SendRun(effect.to, [], effect.port)
            run.messages.append(effect.message)
            continue
        if run.messages:
            yield run
            run = SendRun(0, [], 0)
        yield effect
    if run.messages:
        yield run

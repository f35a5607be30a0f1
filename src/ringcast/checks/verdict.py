"""What a check answers: a verdict, and for a broken property who, what and when."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ringcast.core.ids import NodeId


class Verdict(StrEnum):
    """``unknown`` says that the trace shows neither: nothing happened, or it ended too early."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Violation(msgspec.Struct, frozen=True):
    """A property that does not hold, explained in one or two sentences."""

    property: str
    explanation: str
    nodes: tuple[NodeId, ...]
    messages: tuple[str, ...]
    t_us: int

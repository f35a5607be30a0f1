"""Totally ordered group communication for Python, with a deterministic simulator.

Every member of a group sees the same messages and the same membership changes in the same order.
``Node`` and ``Group`` are the application's side (``docs/api.md``). The protocols are machines
without I/O (``ringcast.core``, ``ringcast.protocols``); the simulator (``ringcast.sim``) runs
whole groups of them under faults, and ``ringcast.checks`` says whether what happened is what the
protocol promises.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ringcast.api.events import Batch, Event, EventsLost, Message, View
    from ringcast.api.group import (
        CannotMulticast,
        Group,
        MessageTooLarge,
        NotJoined,
        WouldBlock,
    )
    from ringcast.api.inbox import TwoReaders
    from ringcast.api.node import Node
    from ringcast.api.objects import Counter, Election, Holder, Lock, Queue, ReplicatedDict
    from ringcast.api.replica import Replica
    from ringcast.api.state_machine import Local, NoQuorum, ResultLost, StateMachine
    from ringcast.core.errors import (
        ConfigError,
        DeliveryUncertain,
        KeyFileError,
        MemberExcluded,
        MemberFellBehind,
        NodeStopped,
        RingcastError,
        StorageError,
        TransportError,
    )
    from ringcast.core.ids import Level, Position
    from ringcast.journal.format.layout import JournalError
    from ringcast.replica.sessions import CommandFailed, RequestTooOld
    from ringcast.runtime.config import NodeConfig
    from ringcast.runtime.port_config import PortConfig

    AGREED, SAFE = Level.AGREED, Level.SAFE

_HOMES = {
    "api.events": ("Batch", "Event", "EventsLost", "Message", "View"),
    "api.group": ("CannotMulticast", "Group", "MessageTooLarge", "NotJoined", "WouldBlock"),
    "api.inbox": ("TwoReaders",),
    "api.node": ("Node",),
    "api.objects": ("Counter", "Election", "Holder", "Lock", "Queue", "ReplicatedDict"),
    "api.replica": ("Replica",),
    "api.state_machine": ("Local", "NoQuorum", "ResultLost", "StateMachine"),
    "core.ids": ("Level", "Position"),
    "journal.format.layout": ("JournalError",),
    "replica.sessions": ("CommandFailed", "RequestTooOld"),
    "runtime.config": ("NodeConfig",),
    "runtime.port_config": ("PortConfig",),
    "core.errors": (
        "ConfigError",
        "DeliveryUncertain",
        "KeyFileError",
        "MemberExcluded",
        "MemberFellBehind",
        "NodeStopped",
        "RingcastError",
        "StorageError",
        "TransportError",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AGREED",
    "SAFE",
    "Batch",
    "CannotMulticast",
    "CommandFailed",
    "ConfigError",
    "Counter",
    "DeliveryUncertain",
    "Election",
    "Event",
    "EventsLost",
    "Group",
    "Holder",
    "JournalError",
    "KeyFileError",
    "Level",
    "Local",
    "Lock",
    "MemberExcluded",
    "MemberFellBehind",
    "Message",
    "MessageTooLarge",
    "NoQuorum",
    "Node",
    "NodeConfig",
    "NodeStopped",
    "NotJoined",
    "PortConfig",
    "Position",
    "Queue",
    "Replica",
    "ReplicatedDict",
    "RequestTooOld",
    "ResultLost",
    "RingcastError",
    "StateMachine",
    "StorageError",
    "TransportError",
    "TwoReaders",
    "View",
    "WouldBlock",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: the simulator needs neither asyncio nor keys."""
    if name in ("AGREED", "SAFE"):
        value: object = getattr(import_module("ringcast.core.ids").Level, name)
    elif name in _HOME:
        value = getattr(import_module(f"ringcast.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'ringcast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, including those not loaded yet, so that a prompt can complete them."""
    return sorted({*globals(), *__all__})

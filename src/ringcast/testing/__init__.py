"""Your program under simulated faults.

``simtest`` runs a test in many worlds, one for each seed: hosts with programs on them, a network,
disks and clocks, all in virtual time and all of them faulty. ``docs/testing.md`` shows how.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringcast.testing.calls import Request
    from ringcast.testing.campaign import simtest
    from ringcast.testing.errors import (
        CallFailed,
        Escape,
        HostFailed,
        NeverMet,
        NotDeterministic,
        NotLinearizable,
        NotReached,
        SimFailure,
        Stuck,
        Undecided,
        Violated,
    )
    from ringcast.testing.faults import BadDisk, Crash, Cut, Drift, Jump, Partition, Pause, Swarm
    from ringcast.testing.host import Host
    from ringcast.testing.linearizable import (
        IMPOSSIBLE,
        UNKNOWN,
        Model,
        Operation,
        OperationHistory,
    )
    from ringcast.testing.models import DictModel, LockModel, QueueModel
    from ringcast.testing.run import Outcome
    from ringcast.testing.world import World

_HOMES = {
    "calls": ("Request",),
    "campaign": ("simtest",),
    "errors": (
        "CallFailed",
        "Escape",
        "HostFailed",
        "NeverMet",
        "NotDeterministic",
        "NotLinearizable",
        "NotReached",
        "SimFailure",
        "Stuck",
        "Undecided",
        "Violated",
    ),
    "faults": ("BadDisk", "Crash", "Cut", "Drift", "Jump", "Partition", "Pause", "Swarm"),
    "host": ("Host",),
    "linearizable": ("IMPOSSIBLE", "UNKNOWN", "OperationHistory", "Model", "Operation"),
    "models": ("DictModel", "LockModel", "QueueModel"),
    "run": ("Outcome",),
    "world": ("World",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "IMPOSSIBLE",
    "UNKNOWN",
    "BadDisk",
    "CallFailed",
    "Crash",
    "Cut",
    "DictModel",
    "Drift",
    "Escape",
    "Host",
    "HostFailed",
    "Jump",
    "LockModel",
    "Model",
    "NeverMet",
    "NotDeterministic",
    "NotLinearizable",
    "NotReached",
    "Operation",
    "OperationHistory",
    "Outcome",
    "Partition",
    "Pause",
    "QueueModel",
    "Request",
    "SimFailure",
    "Stuck",
    "Swarm",
    "Undecided",
    "Violated",
    "World",
    "simtest",
]


def __getattr__(name: str) -> object:
    """Load a name when it is first used: pytest imports the plugin, whatever it tests."""
    if name not in _HOME:
        raise AttributeError(f"module 'ringcast.testing' has no attribute {name!r}")
    value: object = getattr(import_module(f"ringcast.testing.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, including those not loaded yet, so that a prompt can complete them."""
    return sorted({*globals(), *__all__})

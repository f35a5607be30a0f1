"""Faults on purpose, for tests and demonstrations on one machine.

A JSON file says which frames this node loses on arrival: ``{"loss": 0.2, "deaf_to": [2, 3]}``.
It is read again whenever it changes, so a test makes and heals partitions by writing files.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec

from ringcast.core.errors import UNREADABLE, ConfigError
from ringcast.core.ids import NodeId


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong."""

    loss: float = 0.0
    deaf_to: tuple[NodeId, ...] = ()


class FaultInjection:
    """Decides for each frame that arrives whether it is lost."""

    def __init__(self, path: Path, seed: str) -> None:
        self._path = path
        self._random = Random(seed)
        self._stamp = -1
        self._faults = Faults()
        self.lost = 0
        self.reload()

    def reload(self) -> None:
        """Read the file if it changed; without a file nothing is lost."""
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            self._faults = msgspec.json.decode(self._path.read_bytes(), type=Faults)
            self._stamp = stamp
        except FileNotFoundError:
            self._faults, self._stamp = Faults(), -1
        except (OSError, *UNREADABLE) as error:
            raise ConfigError(f"fault_file {self._path}: {error}") from None

    def loses(self, src: NodeId) -> bool:
        """Whether a frame of ``src`` is lost here."""
        faults = self._faults
        lost = src in faults.deaf_to or (faults.loss > 0 and self._random.random() < faults.loss)
        self.lost += lost
        return lost

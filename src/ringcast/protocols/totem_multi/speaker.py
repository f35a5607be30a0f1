"""What a processor has to say on its rings, until it is said: forwarded, withheld, acknowledged."""

from __future__ import annotations

from collections import deque

from ringcast.core.ids import NodeId
from ringcast.core.machine import Machine
from ringcast.protocols.totem_multi.messages import (
    Ack,
    Forwarded,
    Key,
    NetworkTopology,
    Promises,
    SafeKey,
    Said,
)
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.receipts import MOST_KEYS
from ringcast.protocols.totem_multi.ring_port import RingPort
from ringcast.protocols.totem_multi.state import Streamed
from ringcast.protocols.totem_multi.withholding import Withholding


class Speaker(Machine):
    """What the core asks to be said (``state.Outlet``), by interface and in order."""

    def __init__(self, acyclic: bool) -> None:
        super().__init__()
        self.ports: dict[NodeId, RingPort] = {}
        self.order: NetworkOrder
        self.withholding = Withholding(acyclic)
        self._to_say: deque[tuple[NodeId, Said]] = deque()
        self._to_ack: list[SafeKey] = []
        self._to_refuse: list[SafeKey] = []

    def forward(self, said: Streamed, came: NodeId | None) -> None:
        """MR-13: on every interface but that one. F2: as far as somebody is there that it is for;
        F3: what was withheld before a change goes ahead of it."""
        for pid in self.ports:
            if pid == came:
                continue
            if type(said) is not Forwarded:
                self._promise(pid)
                self._to_say.append((pid, said))
            elif (part := self.withholding.part(pid, said, self.order)) is not None:
                self._to_say.append((pid, part))

    def _promise(self, pid: NodeId) -> None:
        """F3: say how far the streams have come of which something was withheld."""
        if withheld := self.withholding.take(pid):
            self.ports[pid].promised = True
            self._to_say.append((pid, Promises.of(withheld)))

    def exchange(self, pid: NodeId, said: NetworkTopology) -> None:
        """MR-24."""
        self._to_say.append((pid, said))

    def stored_safe(self, key: Key) -> None:
        """A1."""
        self._to_ack.append((key.timestamp, key.ring))

    def refused_safe(self, key: Key) -> None:
        """A4 ext."""
        self._to_refuse.append((key.timestamp, key.ring))

    def _acknowledge(self) -> None:
        """A1: on every interface, what was stored and what was refused."""
        words = [(key, True) for key in self._to_ack] + [(key, False) for key in self._to_refuse]
        self._to_ack, self._to_refuse = [], []
        for at in range(0, len(words), MOST_KEYS):
            some = words[at : at + MOST_KEYS]
            has, lacks = (tuple(k for k, yes in some if yes is each) for each in (True, False))
            for pid in self.ports:
                self._to_say.append((pid, Ack(has, lacks)))

    def _promise_owed(self) -> None:
        """F3: one word at a time on each interface."""
        for pid in self.withholding.owing():
            if not self.ports[pid].promised:
                self._promise(pid)

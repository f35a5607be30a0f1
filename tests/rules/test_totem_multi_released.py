"""A11 ext, A8 ext: what a gateway kept for a change and gives out with it, at those beyond.

A cycle C - q - A - g - F, where q is 102 and g 103. Gateway 101, on C and B, meets g on N at 20,
and g is lost before it has told what it reaches. It has told on N that its part of A broke at 18,
and a message of that part, A26. Processor 3 hears of all that on C.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from multi_driver import Core, member, ring

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi.machine import TotemMulti
from ringcast.protocols.totem_multi.messages import Bound, Change, Data, Forwarded, Key
from ringcast.protocols.totem_multi.speaker import Speaker
from ringcast.protocols.totem_multi.state import Reported, Streamed

RINGS = {"C": (3, 5, 101, 102), "B": (201,), "A": (202, 103, 6, 7), "F": (203,)}
TRANSITIONAL = ("At", "Au", "Nt")


class Told(Core):
    """A core whose topologies are among what it delivers, by the name that they have (P-4)."""

    def install(self, env: Env, key: Key, reported: Reported, narrows: bool = False) -> None:
        self.delivered.append(f"{self.names[key.ring]} {key.digest}")

    def hear(self, *some: Streamed, at_once: bool = False) -> None:
        """Of its ring, in one input or in several."""
        for said in some:
            self.order.accept(self.env, min(self.order.network.own), said)
            if not at_once:
                self.order.advance(self.env)
        self.order.advance(self.env)


class Gateway(Told):
    """101, with the buffers of a machine and what it says on C."""

    def __init__(self) -> None:
        self._buffers: dict[object, list[object]] = {}
        self._buffered_bytes = 0
        self.config, self.me = SimpleNamespace(acyclic=False), 101
        self.on_c: list[Streamed] = []
        super().__init__(101, {101: "C", 201: "B"}, RINGS)

    def forward(self, said: Streamed, came: NodeId | None) -> None:
        if came != 101:
            self.on_c.append(said)

    release = Speaker.release
    _buffer = Speaker._buffer
    _pass_on_buffered = Speaker._pass_on_buffered
    _see = _heard = lambda *_: None
    _reaches = lambda *_: True  # noqa: E731

    def own(self, new: str, old: str, timestamp: int, *pids: NodeId) -> None:
        """A change of its ring at B."""
        said = change(new, old, timestamp, *pids)
        self.order.claim(said)
        if not said.transitional:
            others = {pid: said.key for pid in pids if pid > 100 and pid != 201}
            self.order.neighbours[201] = others
        self.order.accept(self.env, 201, said)
        self.order.advance(self.env)

    def told(self) -> list[Streamed]:
        """What it says on C since the last time."""
        some, self.on_c = self.on_c, []
        return some


def change(new: str, old: str, timestamp: int, *pids: NodeId) -> Change:
    kind = new in TRANSITIONAL
    return Change(timestamp, ring(new), ring(old), tuple(map(member, pids)), kind)


def message(timestamp: int, of: str, via: str | None = None) -> Forwarded:
    body = Data(6, Level.AGREED, 1, (b"x",))
    return Forwarded(timestamp, ring(of), ring(via) if via else None, body)


def bound(timestamp: int, of: str) -> Forwarded:
    return Forwarded(timestamp, ring(of), None, Bound(ring(of), ()))


@pytest.mark.parametrize("parted", ["early", "late"])
@pytest.mark.parametrize("at_once", [True, False])
def test_a11_ext_those_beyond_deliver_it_at_the_same_place(parted: str, at_once: bool) -> None:
    """P-11, P-13: one took the change of 18 where it stood, and not where 101 did, behind 20."""
    near, far = Gateway(), Told(3, {3: "C"}, RINGS)

    def on_c(*some: Streamed) -> None:
        far.hear(*some)
        near.hear(*some)

    on_c(message(15, "A"), bound(17, "A"), bound(20, "C"), bound(19, "F"))
    near.order.accept(near.env, 201, bound(20, "B"))
    far.hear(*near.told())
    near.own("N", "B", 20, 201, 203)
    far.hear(*near.told())
    on_c(change("N", "F", 20, 201, 203))
    near.order.accept(near.env, 201, bound(22, "N"))
    on_c(bound(21, "C"))
    far.hear(*near.told())
    of_g = change("At", "A", 18, 103, 6), message(25, "A", "At"), message(26, "A", "At")
    for said in (*of_g, change("A2", "At", 30, 103, 6)):
        TotemMulti._hand_up_forwarded(near, near.env, 201, 203, said)  # type: ignore[arg-type]
    of_q: tuple[Streamed, ...] = (
        *(message(25, "A"), change("Au", "A", 25, 202, 7), change("A3", "Au", 35, 202, 7)),
        *(message(31, "C"), bound(46, "C"), bound(46, "A3")),
    )
    if parted == "early":
        far.hear(of_q[0])
    near.own("Nt", "N", 22, 201)
    lost = SimpleNamespace(mine=member(201), members=(member(201), member(203)), together={201})
    near._pass_on_buffered(lost)  # type: ignore[arg-type, misc]
    near.own("N2", "Nt", 40, 201)
    far.hear(*near.told())
    far.hear(*of_q[parted == "early" :], at_once=at_once)
    near.hear(*of_q, at_once=at_once)
    far.hear(*near.told(), at_once=at_once)
    near.order.accept(near.env, 201, bound(60, "N2"))
    far.hear(*near.told())
    on_c(bound(60, "C"), bound(60, "A3"), bound(60, "N2"))
    assert far.delivered == near.delivered and "A26" in far.delivered
    assert not near.order.pending and near.topology == far.topology

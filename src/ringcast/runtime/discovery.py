"""Who is where: addresses from the configuration, and from Hellos that spread what nodes know."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.core.ids import NodeId
from ringcast.wire.address import Address

MOST = 255
"""Addresses a node remembers; only holders of a group key can add any."""

NO_ADDRESS = "somebody looks for this node, but bind names no address: set advertise"


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a processor is to be reached, according to its incarnation ``boot``."""

    node: NodeId
    boot: int
    host: Annotated[str, msgspec.Meta(max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=100, gc=False):
    """Where I am, and where I believe the others are; ``wants`` asks for an answer."""

    places: Annotated[tuple[Place, ...], msgspec.Meta(max_length=MOST, min_length=1)]
    wants: bool


class PeerBook:
    """The addresses of the others. What a later incarnation says wins over an earlier one."""

    def __init__(self, mine: Place, listed: dict[NodeId, Address]) -> None:
        self.mine = mine
        self._places = {
            node: Place(node, 0, place.host, place.port) for node, place in listed.items()
        }

    def learn(self, hello: Hello) -> list[NodeId]:
        """Take over what is new; the processors whose address changed."""
        changed = []
        for place in hello.places:
            known = self._places.get(place.node)
            if place.node == self.mine.node or (known is None and len(self._places) >= MOST):
                continue
            if known is None or known.boot < place.boot:
                self._places[place.node] = place
                if known is None or (known.host, known.port) != (place.host, place.port):
                    changed.append(place.node)
        return changed

    def hello(self, wants: bool) -> Hello:
        """What I can tell."""
        known = [self._places[node] for node in sorted(self._places)]
        return Hello((self.mine, *known[: MOST - 1]), wants)

    def addresses(self) -> dict[NodeId, Address]:
        """Everybody I know of, ascending by id."""
        return {
            node: Address(self._places[node].host, self._places[node].port)
            for node in sorted(self._places)
        }

"""Mutants of Totem multiple-ring: figures of the dissertation as they are printed."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from printed_flow import PrintedSite, PrintedToken
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.totem_multi import machine, state
from ringcast.protocols.totem_multi.clock import ClockRider, TokenRide, _encode, _token
from ringcast.protocols.totem_multi.flow import FULL, Brakes
from ringcast.protocols.totem_multi.messages import Change, Forwarded, Key, digest
from ringcast.protocols.totem_multi.network import RingNetwork, path
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.receipts import Survey
from ringcast.protocols.totem_multi.state import Reported
from ringcast.protocols.totem_single.messages import RingId, Token


@mutant("MR-18 G-13", "progress")
def figure_5_6_drops_the_second_change(patch: MonkeyPatch) -> None:
    """Of rings that merge, the change of the second is discarded: the new ring is known."""
    whole = NetworkOrder._accept_change

    def accept(self: NetworkOrder, env: Env, came: Any, said: Change, again: bool) -> None:
        if all(ring != said.ring for ring, _ in (*self.pending, *self.late, *self.done)):
            whole(self, env, came, said, again)

    patch.setattr(NetworkOrder, "_accept_change", accept)


@mutant("MR-18 G-26", "P-14")
def figure_5_6_claims_receipts(patch: MonkeyPatch) -> None:
    """Members of a new ring are taken to have all that is older than the ring."""
    whole = Survey.word

    def word(self: Survey, pid: NodeId, ring: RingId) -> bool | None:
        said = whole(self, pid, ring)
        later = (c for c in self._changes if c.timestamp >= self._key[0])
        return True if said is None and any(c.lists(pid) for c in later) else said

    patch.setattr(Survey, "word", word)


@mutant("MR-29 G-22", "P-13", "P-14", "P-11")
def figure_5_10_drops_what_waits(patch: MonkeyPatch) -> None:
    """What was received of a ring that is deleted is thrown away with it."""
    whole = NetworkOrder._prune

    def prune(self: NetworkOrder, away: set[RingId]) -> None:
        for ring in [ring for ring in self.entries if not self.knows(ring)]:
            del self.entries[ring]
        whole(self, away)

    patch.setattr(NetworkOrder, "_prune", prune)


@mutant("MR-29 G-8", "P-11", "P-13", "P-15", "P-2")
def topologies_are_named_by_their_rings(patch: MonkeyPatch) -> None:
    """The identifier of a topology is the list of its rings."""

    def view_of(key: Key, reported: Reported) -> ViewId:
        return ViewId(1, digest(reported))

    patch.setattr(machine, "view_of", view_of)


@mutant("MR-29 A9", "P-4")
def a_change_names_its_topology(patch: MonkeyPatch) -> None:
    """The place of a change is the same wherever it leads."""
    patch.setattr(state, "digest", lambda reported: 1)


@mutant("MR-18 G-9", "P-13", "P-11", "progress")
def transitional_rings_are_skipped(patch: MonkeyPatch) -> None:
    """What a transitional ring hands up belongs to the ring before it."""
    whole = NetworkOrder.accept

    def accept(self: NetworkOrder, env: Env, came: Any, said: Any, again: bool = False) -> None:
        whole(self, env, came, replace(said, via=None) if type(said) is Forwarded else said, again)

    patch.setattr(NetworkOrder, "accept", accept)


@mutant("MR-22 G-14", "progress")
def a_merge_is_a_path_before_its_time(patch: MonkeyPatch) -> None:
    """Gateways meet on the ring that they are on now, wherever they came from."""

    def live(self: RingNetwork, changes: Any, mine: Any) -> Any:
        ways = {
            node: [path(pid, ring, changes) for pid, ring in ends.items()]
            for node, ends in self.gateways.items()
        }
        own = [path(pid, ring, mine) for pid, ring in self.own.items()]
        reached, gateways = {way[-1] for way in own}, {self.me}
        while met := {
            node
            for node, some in ways.items()
            if node not in gateways and any(way[-1] in reached for way in some)
        }:
            gateways |= met
            reached |= {way[-1] for node in met for way in ways[node]}
        every = [*own, *(way for node in gateways for way in ways.get(node, ()))]
        return {way[0] for way in every if len(way) == 1}, gateways

    patch.setattr(RingNetwork, "live", live)


@mutant("MR-26 G-21", "progress")
def waits_for_a_topology_that_cannot_come(patch: MonkeyPatch) -> None:
    """Far from a ring, its change waits for the word of a gateway, though all are gone."""
    whole = NetworkOrder.awaited

    def awaited(self: NetworkOrder, change: Change) -> list[NodeId]:
        known = (*self.network.gateways, self.me)
        strange = any(m.gateway and m.node not in known for m in change.members)
        far = not change.transitional and self._own_change(change) is None
        told = (change.ring, change.conf) in self.told
        return whole(self, change) or [self.me] * (strange and far and not told)

    patch.setattr(NetworkOrder, "awaited", awaited)


@mutant("MR-31 A7", "progress")
def a_message_from_nowhere_is_dropped(patch: MonkeyPatch) -> None:
    """What comes of an unknown ring is discarded, though a pending change may bring the ring."""

    def put_aside(self: NetworkOrder, env: Env, came: Any, said: Any, again: bool) -> None:
        self.refuse(env, came, said, "of a ring that is not in the topology")

    patch.setattr(NetworkOrder, "_put_aside", put_aside)


@mutant(
    "MR-43 G-39",
    survives="Since a gateway sends for all beyond it (MR-45), no run of 175 with short queues "
    "blocks both rings at once; the steps of S-36 in `mutants/test_printed_flow.py` show it.",
)
def figure_5_19_as_printed(patch: MonkeyPatch) -> None:
    """One bit on each token says that somebody is congested, and gateways carry it across."""
    sites: dict[int, PrintedSite] = {}

    def site(brakes: Brakes) -> PrintedSite:
        return sites.setdefault(id(brakes), PrintedSite())

    def congested(self: Brakes, level: int) -> None:
        (site(self).reached if level == FULL else site(self).fell)(self._me)

    def received(self: ClockRider, env: Env, token: Token) -> None:
        ride = _token(token.ride or b"")
        self.clock.see(ride.timestamp)
        said = sum(number for _, number in ride.blocks)
        found = PrintedToken(bool(said % 2), said // 2)
        site(self.brakes).visited(self.mine.pid, found)
        self.printed = (token.ring_id, found)  # type: ignore[attr-defined]

    def released(self: ClockRider, env: Env, token: Token) -> bytes | None:
        self.clock.keep(env)
        self.brakes.look()
        ring, found = getattr(self, "printed", (None, PrintedToken()))
        said = found if ring == token.ring_id else PrintedToken()  # G-38
        blocks = ((1, 2 * said.block_seq + said.block),)
        return _encode(TokenRide(self.clock.my_timestamp, blocks))

    patch.setattr(Brakes, "blocked", property(lambda self: site(self).site_block > 0))
    patch.setattr(Brakes, "congested", congested)
    patch.setattr(ClockRider, "token_received", received)
    patch.setattr(ClockRider, "token_released", released)

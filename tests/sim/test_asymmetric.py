"""Links that work in one direction only: whatever is cut, the group comes to rest in bounded time
(totem R43 ext, G29, G30), works in that rest, and merges when the links are whole again.

Every direction of every link is cut once, in running groups and in starting ones of 3 to 6
members. Groups of up to 10, both directions at once, links with load on them and links whose
delays vary are tried with a sample; ``ALL_LINKS=1`` tries every link.
"""

from __future__ import annotations

import os
from itertools import combinations, permutations
from random import Random

import pytest

import ringcast.protocols  # noqa: F401
from ringcast.checks import suite
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.registry import protocol
from ringcast.core.trace import Delivered, Installed, Noted, TraceEvent
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.workload import Poisson

Link = tuple[NodeId, NodeId]
View = tuple[ViewId, tuple[NodeId, ...]]

SHEET = protocol("totem")
CONFIG = next(iter(SHEET.profiles.values()))
REST_US = 20 * CONFIG.announce_us
"""How long nothing may change before it counts as rest."""
WORK_US = 1_000_000
"""How long a ring may take to deliver a safe message of each member."""


class Group:
    """A cluster, and what its processors last told their applications."""

    def __init__(self, n: int, network: str = "ideal") -> None:
        self.views: dict[NodeId, View] = {}
        self.changes = 0
        self.delivered: dict[NodeId, set[NodeId]] = {}
        """Whose messages each processor delivered in the view it is in."""
        self.reasons: set[tuple[NodeId, NodeId]] = set()
        """Who gave a reason for leaving whom out."""
        self.bound_us = SHEET.progress_bound_us(CONFIG, n)
        self.checks = suite(SHEET.claims(SHEET.default), self.bound_us)
        observers = [self.checks.feed, self.watch]
        ids = range(1, n + 1)
        self.cluster = Cluster(SHEET, CONFIG, ids, preset(network), observers=observers)

    def watch(self, event: TraceEvent) -> None:
        match event:
            case Installed():
                self.changes += 1
                self.delivered[event.node] = set()
                if not event.transitional:
                    self.views[event.node] = (event.view, event.members)
            case Delivered():
                self.delivered[event.node].add(event.sender)
            case Noted(what="exclude" | "barred"):
                other, _, reason = event.text.partition(":")
                if reason.strip():
                    self.reasons.add((event.node, int(other)))

    def rings(self) -> list[tuple[NodeId, ...]]:
        """The memberships; members of one agree on it."""
        for view, members in self.views.values():
            assert all(self.views[node] == (view, members) for node in members)
        return sorted({members for _, members in self.views.values()})

    def rest(self) -> None:
        """Nothing changes for long, and everybody can work with its ring."""
        changes = self.changes
        self.cluster.run_for(REST_US)
        assert self.changes == changes, self.views
        for node in self.cluster.ids:
            assert self.cluster.submit(node, (b"%d" % node,), Level.SAFE)
        self.cluster.run_for(WORK_US)
        assert self.changes == changes, self.views
        for node, (_, members) in self.views.items():
            assert self.delivered[node] >= set(members), f"{node} in {members}"


def settle(
    n: int, cuts: list[Link], before_start: bool, network: str = "ideal", rate: float = 0.0
) -> list[tuple[NodeId, ...]]:
    """Cut, come to rest, mend, be one ring again; returns the rings while cut.

    With a ``rate``, every member sends so many messages a second all the time.
    """
    group = Group(n, network)
    cluster = group.cluster
    if rate:
        workload.start([Poisson(rate=rate, safe=0.5)], cluster, f"{n} {cuts}")
    if not before_start:
        cluster.start()
        cluster.run_for(group.bound_us)
        assert group.rings() == [cluster.ids]
    for link in cuts:
        cluster.cut(*link)
    if before_start:
        cluster.start()
    cluster.run_for(group.bound_us)
    group.rest()
    rings = group.rings()
    for one, other in combinations(rings, 2):
        between = {(a, b) for a in one for b in other} | {(b, a) for a in one for b in other}
        assert between & set(cuts), f"{one} and {other} could be one ring"
        if between - set(cuts):  # somebody hears somebody: then there is something to explain
            assert between & group.reasons, f"nobody says why {one} and {other} are apart"
    for link in cuts:
        cluster.mend(*link)
    cluster.run_for(group.bound_us)
    assert group.rings() == [cluster.ids]
    group.rest()
    assert not group.checks.violations
    assert not cluster.recorder.violations
    return rings


def some(links: list[Link], most: int, seed: str) -> list[Link]:
    """All links, or a sample of them where there are many."""
    if len(links) <= most or os.environ.get("ALL_LINKS"):
        return links
    return sorted(Random(seed).sample(links, most))


@pytest.mark.parametrize("before_start", [False, True], ids=["running", "starting"])
@pytest.mark.parametrize(("n", "src"), [(n, src) for n in range(3, 11) for src in range(1, n + 1)])
def test_one_direction_of_one_link(n: int, src: NodeId, before_start: bool) -> None:
    links = [(src, dst) for dst in range(1, n + 1) if dst != src]
    for link in some(links, 5 if n <= 6 else 2, f"one-way {n} {src}"):
        check_one_way(settle(n, [link], before_start), before_start)


def check_one_way(rings: list[tuple[NodeId, ...]], before_start: bool) -> None:
    assert len(rings) <= 2
    if not before_start:  # a ring that worked loses one member at most
        assert len(rings) == 1 or min(map(len, rings)) == 1


@pytest.mark.parametrize("before_start", [False, True], ids=["running", "starting"])
@pytest.mark.parametrize(("n", "rate"), [(n, 0.0) for n in range(3, 11)] + [(3, 5.0), (6, 1.0)])
def test_one_direction_with_jitter_and_load(n: int, rate: float, before_start: bool) -> None:
    """Few have load: the token does not rest where there is work, and to simulate it takes long."""
    for link in some(list(permutations(range(1, n + 1), 2)), 2, f"jitter {n} {rate}"):
        check_one_way(settle(n, [link], before_start, "lan", rate), before_start)


@pytest.mark.parametrize("before_start", [False, True], ids=["running", "starting"])
@pytest.mark.parametrize("n", range(3, 8))
def test_both_directions_of_one_link(n: int, before_start: bool) -> None:
    for a, b in some(list(combinations(range(1, n + 1), 2)), 6, f"two-way {n}"):
        rings = settle(n, [(a, b), (b, a)], before_start)
        assert len(rings) <= 2


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("n", [4, 6])
def test_any_graph_comes_to_rest(n: int, share: float) -> None:
    for seed in range(6):
        rng = Random(f"graph {n} {share} {seed}")
        cuts = [link for link in permutations(range(1, n + 1), 2) if rng.random() < share]
        settle(n, cuts, before_start=bool(seed % 2))

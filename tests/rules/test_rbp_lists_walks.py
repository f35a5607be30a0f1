"""Random walks of real sites through reformations: no list ignores one that is in force (F7, F9,
F14).

A step is one attempt to form a list among some of the sites, which succeeds, or is given up, or is
in force at its originator alone; or a piece of news, a round of the token, or a restart. So some
hundred steps reach what a simulator with time meets once in many thousand runs. ``vote_us`` is so
long that nobody stops for want of patience, and a vote names two lists at most, so that there are
soon too many.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from driver import stops
from rbp import Group, ReformTimer, Timer

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.rbp import delivery, lists, reformation
from ringcast.protocols.rbp.epochs import Entry, Epoch, EpochConfig
from ringcast.protocols.rbp.messages import Ack, Announce, Commit, News, Past
from ringcast.protocols.rbp.state import Processor

STEPS = 16
APART_US = 60_000
"""Between steps: longer than ``nack_us``, so that nobody keeps silent."""
LEVELS: tuple[dict[str, str], ...] = ({}, {}, {"resiliency": "majority"}, {"resiliency": "number"})
QUIET = (News, Ack)
ENDS = ((), (), QUIET, QUIET, (Commit, *QUIET, Past), (Announce, *QUIET, Past))
"""What is lost of an attempt: nothing; what says that the list is in force; the second vote of one
site, or what was announced to it, so that the originator gives up."""


class Walk(Group):
    """Sites, the lists that came in force, and what was delivered under each number."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"lists/{seed}")
        n = rng.choice((3, 3, 3, 4, 5))
        super().__init__(n, vote_us=10**12, **rng.choice(LEVELS))
        self.restarts = rng.choice((0, 0, (n - 1) // 2))
        self.lists: dict[ViewId, EpochConfig] = {}
        self.entries: dict[int, Epoch] = {}
        self.anew = False
        """A majority forgot, and began anew: numbers begin again."""

    def flow(self, here: set[NodeId], lost: tuple[type, ...], victim: NodeId) -> None:
        """Let frames between those that are here arrive, and no other; of ``lost``, second votes of
        the victim do not, nor announcements to it, nor anything else to anybody."""
        for _ in range(300):
            lane = self.broadcasts or self.unicasts
            if not lane:
                break
            to, frame = lane.pop(0)
            kind = type(frame.message)
            spared = (kind is Commit and frame.src != victim) or (kind is Announce and to != victim)
            if {to, frame.src} <= here and (kind not in lost or spared):
                self.handle(to, frame)
                self.look(to)
        self.lose()

    def fire_if(self, node: NodeId, timer: str) -> None:
        if timer in self.timers[node]:
            self.fire(node, timer)
            self.look(node)

    def attempt(self, node: NodeId, away: set[NodeId], lost: tuple[type, ...]) -> None:
        """An originator calls, and waits until its list is in force or it gives up."""
        rng, site, here = self.rng, self[node].chooser, {*self.ids} - away
        victim = rng.choice(sorted(here - {node}))
        tops = (machine.chooser.joined.seq for machine in self.machines.values())
        site.highest = max(site.highest, *tops)
        self.do(node, lambda env: site.forming.originate(env, "a walk"))
        self.flow(here, lost, victim)
        for _ in range(rng.choice((4, 20))):
            self.fire_if(node, ReformTimer.VOTE)
            self.flow(here, lost, victim)

    def tell(self, node: NodeId, to: NodeId) -> None:
        """One that is in a list tells another of it."""
        self.now_us += APART_US
        current = self[node].current
        if current is not None:
            self.receive(to, News(self.config.group, current), node)
            self.look(to)
            self.flow({node, to}, (), to)

    def prologue(self) -> None:
        """Three lists in force at their originators alone; the first of these leaves, for the
        second is without it, after it committed the third."""
        x, y, z, *rest = self.rng.sample(self.ids, len(self.ids))
        self.attempt(x, set(), QUIET)
        self.attempt(y, {x}, QUIET)
        self.attempt(z, {y, *rest[: len(self.ids) - self.config.majority - 1]}, QUIET)
        self.tell(y, x)

    def step_once(self) -> None:
        rng = self.rng
        self.now_us += APART_US
        node, to, what = *rng.sample(self.ids, 2), rng.random()
        others = [each for each in self.ids if each != node]
        if what < 0.6:
            few = len(self.ids) - self.config.majority
            away = {*rng.sample(others, rng.choice((few, rng.randrange(few + 1))))}
            self.attempt(node, away, rng.choice(ENDS))
        elif what < 0.85:
            self.tell(node, to)
        elif what < 0.95:
            self.submit(node, b"x")
            for each in self.ids:
                self.fire_if(each, Timer.IDLE)
                self.fire_if(each, Timer.DATA)
            self.flow({*self.ids} - {to}, (), to)
        elif self.restarts:
            self.restarts -= 1
            self.start(node)

    # --- what must hold -------------------------------------------------------------------------

    def look(self, node: NodeId) -> None:
        """A list follows the one in force before it, or begins in its place."""
        reasons = stops(self.log[node])
        self.log[node].clear()
        assert all(why.startswith("gap") for why in reasons), reasons
        if reasons:
            self.start(node)  # nobody keeps what became of its view
        current = self[node].current
        if current is None or current.epoch.view in self.lists:
            return
        self.lists[current.epoch.view] = current
        self.anew |= current.parent is None and len(self.lists) > 1
        views = sorted(self.lists)
        for before, after in pairwise(views):
            old, new = self.lists[before], self.lists[after]
            replaced = (old.parent, old.start, old.base) == (new.parent, new.start, new.base)
            assert self.anew or new.parent == before or replaced, f"{new} ignores {old}"

    def delivered(self, site: Processor, entry: Entry) -> None:
        """A number has one entry, whoever delivers it."""
        current = site.current
        assert current is not None
        self.anew |= current.parent is None and current.epoch.view.seq > 1
        tag = self.entries.setdefault(entry.number, entry.tag)
        assert self.anew or tag == entry.tag, f"{entry.number} of {tag}, at {site.me} {entry.tag}"


def walk(seed: int, patch: pytest.MonkeyPatch) -> Walk:
    group, hand_up = Walk(seed), delivery.hand_up

    def heard(p: Processor, env: Env, entry: Entry) -> None:
        group.delivered(p, entry)
        hand_up(p, env, entry)

    patch.setattr(delivery, "hand_up", heard)
    for module in (reformation, lists):
        patch.setattr(module, "MOST_PENDING", 2)
    group.up()
    for node in group.ids:
        group.look(node)
    if seed % 2:
        group.prologue()
    for _ in range(STEPS):
        if not group.anew:
            group.step_once()
    return group


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_f14_no_list_ignores_one_that_is_in_force(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 100):
        with monkeypatch.context() as patch:
            walk(seed, patch)

"""iRBP: members that keep little, and those that need what they kept."""

from __future__ import annotations

from typing import Any

from driver import drops, sent, stops
from irbp import Sites
from msgspec.structs import replace

from ringcast.blocks.detector import Heartbeat
from ringcast.core.ids import ViewId
from ringcast.protocols.irbp.messages import Catch, Caught, Kind, Leave, Successor, ViewTimer
from ringcast.protocols.rbp import install
from ringcast.protocols.rbp.epochs import Entry, Epoch, Ids
from ringcast.protocols.rbp.messages import Fetch, Gone, News, Past
from ringcast.protocols.rbp.state import Phase, Timer


def keeping_nothing(**settings: Any) -> Sites:
    """A ring of three that has gone round some times."""
    group = Sites(history_bytes=0, **settings)
    for _ in range(9):
        group.fire(group.holder(), Timer.IDLE)
    return group


def all_in_the_next_ring(group: Sites) -> bool:
    """Whether all of them have come into the first i-view."""
    return all(
        site.phase is Phase.MEMBER and site.current is not None and site.current.epoch.step == 1
        for site in group.machines.values()
    )


def test_i11_i21_who_has_the_last_entry_that_was_let_go_needs_only_what_follows() -> None:
    """What it has not delivered may be void, and is asked for; GONE tells that it is not."""
    group = keeping_nothing()
    best = group.holder()
    group.fire(best, Timer.IDLE)
    group.lose()
    other = best % 3 + 1
    assert group[other].delivered < group[best].log.floor <= group[other].log.held
    group.change(other, Kind.IVIEW)
    group.settle()
    assert sent(group.log[best], Gone)
    assert all_in_the_next_ring(group)


def test_k7_what_a_ring_begins_with_is_kept_until_it_has_gone_round() -> None:
    """The evidence of another ring is none (G36): whoever is in this one may need it still."""
    group = keeping_nothing(resiliency="number", tolerated=0)
    best = group.holder()
    site = group[best]
    group.fire(best, Timer.IDLE)
    group.lose()
    alone = site.delivered
    assert all(group[node].log.held < alone for node in group.ids if node != best)
    group.change(best, Kind.IVIEW)
    group.run(lambda: site.delivered > alone)
    assert site.log.floor < alone
    group.settle()
    assert all_in_the_next_ring(group)
    for _ in range(3):
        group.fire(group.holder(), Timer.IDLE)
    assert site.log.floor > alone


def test_i24_a_ring_that_is_decided_is_told_before_the_log_reaches_it() -> None:
    """Whoever decided it may be gone, and the others would wait for each other in the last one."""
    group = Sites()
    group.settle()
    site, held = group[3], group[3].log.held
    assert site.current is not None
    now = site.current.epoch
    ring = replace(site.current, epoch=Epoch(now.view, 1), core=(1, 2), start=held + 2, base=now)
    group.do(3, lambda env: site.chooser.following.adopt(env, ring))
    assert site.current.epoch == now, "what it lacks has not come"
    (told,) = sent(group.receive(3, Catch(site.group, now, held), 2), News)
    assert told.config == ring


def test_i21_entries_whose_bodies_nobody_keeps_are_gone() -> None:
    """Whoever let an entry go let its bodies go, and says so when it is asked once more."""
    group = Sites()
    group.settle()
    site, held = group[2], group[2].log.held
    assert site.current is not None
    epoch, tag = Epoch(site.current.epoch.view, 1), site.current.epoch
    ring = replace(site.current, epoch=epoch, core=(1, 3), start=held + 2, base=tag)
    group.do(2, lambda env: site.chooser.following.adopt(env, ring))
    after = site.chooser.following.checked
    known = site.log.read(after, held, 99)
    assert known is not None
    entries = (*known, Entry(held + 1, tag, (Ids(1, 9, 9),)))
    group.receive(2, Caught(site.group, epoch, after, entries), 1)
    assert site.log.held == held and site.chooser.following.checked == held + 1
    (again,) = sent(group.fire(2, ViewTimer.CATCH), Catch)
    assert again == Catch(site.group, epoch, held)
    gone = Gone(site.group, epoch.view, held, held + 1, tag, (1,))
    assert not sent(group.receive(2, gone, 1), Leave), "the ring is what was decided"
    assert sent(group.receive(2, gone, 3), Leave)


def test_i11_what_was_filed_of_an_epoch_that_had_ended_is_void() -> None:
    """An ACK of a ring that was passed over may have come before what took its number."""
    group = Sites()
    group.settle()
    site, held = group[2], group[2].log.held
    assert site.current is not None
    view = site.current.epoch.view
    site.log.file(Entry(held + 2, Epoch(view, 1), ()))
    right = (Entry(held + 1, Epoch(view, 1), ()), Entry(held + 2, Epoch(view, 2), ()))
    group.do(2, lambda env: install.keep(site, env, right))
    assert site.log.entry(held + 2) == right[1]


def test_i21_i22_nobody_waits_for_one_that_lacks_the_same() -> None:
    """Heartbeats tell from where to where logs reach. Who goes round with the ring lacks nothing,
    whatever one of them says."""
    group = keeping_nothing()
    site, seen, held = group[2], group[2].ring.seen, group[2].log.held
    assert site.current is not None
    view = site.current.epoch.view

    def beat(src: int, floor: int, to: int) -> list[Leave]:
        assert site.chooser.decided is not None
        news = (site.chooser.decided.epoch.step, seen, floor, to)
        return sent(group.receive(2, Heartbeat(view, news), src), Leave)

    assert not beat(1, held + 2, held + 5)
    assert not beat(3, held - 1, held), "2 has begun this ring"
    ring = replace(site.current, epoch=Epoch(view, 1), start=held + 2, base=site.current.epoch)
    site.chooser.decided = ring
    group.do(2, lambda env: site.chooser.following.adopt(env, ring))
    assert site.current != ring
    assert not beat(1, held + 2, held + 5), "3 may have it"
    assert not beat(3, held - 1, held + 1), "3 has it"
    assert beat(3, held - 1, held) == [Leave(group.config.group, 0, gap=True)]


def test_i20_an_external_member_does_not_leave_for_one_word() -> None:
    """Only if all of the ring have let go of what it lacks."""
    group = keeping_nothing()
    site, held = group[2], group[2].log.held
    assert site.current is not None
    ring = replace(site.current, core=(1, 3))
    site.current = site.chooser.decided = ring

    def beat(src: int, floor: int) -> list[Leave]:
        news = (ring.epoch.step, site.ring.seen, floor, held + 5)
        return sent(group.receive(2, Heartbeat(ring.epoch.view, news), src), Leave)

    assert not beat(1, held + 2)
    assert not beat(3, held - 1), "3 keeps it"
    assert beat(3, held + 1) == [Leave(group.config.group, 0, gap=True)]


class LaterView:
    """Site 2 has heard of a later view, and lacks what came between."""

    def __init__(self) -> None:
        self.group = Sites()
        self.group.settle()
        site = self.group[2]
        self.held, current = site.log.held, site.current
        assert current is not None
        self.view = current.epoch.view
        self.later = Epoch(ViewId(self.view.seq + 2, 1))
        start = self.held + 9
        news = replace(current, epoch=self.later, core=(1, 3), start=start, decided=start)
        self.group.receive(2, News(site.group, news), 1)
        self.after = site.chooser.following.checked

    def gone(self, src: int, *core: int) -> list[str]:
        """It does not keep what we lack, and counts these to its ring."""
        group = self.group[2].group
        frame = Gone(group, self.view, self.after, self.held + 5, self.later, core)
        return stops(self.group.receive(2, frame, src))

    def again(self) -> list[Leave]:
        """Time to ask again; or to leave."""
        return sent(self.group.fire(2, ViewTimer.CATCH), Leave)


def test_i21_of_a_later_view_no_member_alone_can_say_that_what_we_lack_is_gone() -> None:
    """All are asked first, and whoever any of them counts to the ring has to say so."""
    site = LaterView()
    assert not site.gone(1, 1) and not site.again(), "a ring of one, it says; 3 is asked as well"
    assert not site.gone(3, 1, 3)
    (leave,) = site.again()
    assert leave.gap


def test_i21_of_a_later_view_nobody_waits_for_one_that_its_ring_goes_on_without() -> None:
    """Seed 3012750: the last word of each counts."""
    site = LaterView()
    assert not site.gone(1, 1, 3) and not site.again() and not site.again(), "3 has not said so"
    assert not site.gone(1, 1)
    (leave,) = site.again()
    assert leave.gap


def test_i11_what_a_decision_brings_does_not_follow_a_void_entry() -> None:
    """A member that began the first ring alone has given number 1, which the others gave anew: of
    the view that is decided it has what follows, and asks for that number."""
    group = Sites()
    group.settle()
    site, held = group[2], group[2].log.held
    assert site.current is not None and site.delivered < held
    view = site.current.epoch.view
    right = Epoch(view, 1)
    entries = (Entry(held + 1, right, ()), Entry(held + 2, right, ()))
    config = replace(
        site.current, epoch=Epoch(ViewId(view.seq + 1, 1)), start=held + 2, base=right,
        decided=held + 2, parent=view,
    )  # fmt: skip
    value = Successor(config, entries, (), before=right)
    group.do(2, lambda env: site.chooser.following.decided(env, value))
    assert site.log.held == held - 1, "number held has another tag there"
    assert site.current.epoch.view == view
    assert sent(group.log[2], Fetch)[-1] == Fetch(site.group, view, site.delivered)


def test_i11_what_was_filed_beyond_a_hole_does_not_follow_what_is_recovered() -> None:
    group = Sites()
    group.settle()
    site, held = group[2], group[2].log.held
    assert site.current is not None
    ring = replace(site.current, epoch=Epoch(site.current.epoch.view, 1), start=held + 1)
    site.log.file(Entry(held + 2, site.current.epoch, ()))
    group.do(2, lambda env: site.chooser.following.adopt(env, replace(ring, base=ring.epoch)))
    assert site.log.entry(held + 2) is None


def test_i24_whoever_does_not_know_the_end_of_its_view_tells_nothing_of_it() -> None:
    """Its own log may be void."""
    group = Sites()
    group.settle()
    assert group[1].current is not None
    asked = Fetch(group[1].group, group[1].current.epoch.view, 0)
    effects = group.receive(1, asked, 3)
    assert not sent(effects, Past) and drops(effects)

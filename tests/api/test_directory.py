"""Group membership as a function of the total order."""

from __future__ import annotations

from random import Random

import pytest

from ringcast.api import directory
from ringcast.api.directory import Directory
from ringcast.api.events import Batch, View
from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.ids import Level, Position, ViewId
from ringcast.wire.envelope import Data, Enter, Envelope, Exit, Groups, Known, NumberedRows

R1, T1, R2, T2, R3 = (ViewId(seq, 1) for seq in (8, 10, 12, 14, 16))


class Log:
    """A sink."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.views: list[View] = []

    def push(self, event: Batch | View) -> None:
        match event:
            case Batch(sender, bodies, position):
                self.events.append((sender, *bodies, position.seq))
            case View(members, transitional, _, position):
                self.views.append(event)
                self.events.append((("T" if transitional else "V"), members, position))

    def lost(self, count: int) -> None:
        self.events.append(("lost", count))


class Member:
    """One node's directory, fed from a shared order."""

    def __init__(self, me: int, fixed: bool = False) -> None:
        self.directory = Directory(me, lambda: None, fixed)
        self.log = Log()

    def view(self, ring: ViewId, *members: int) -> None:
        self.directory.on_view(InstallView(ring, members, False, ring, 0, None))

    def transitional(self, ring: ViewId, old: ViewId, seq: int, *members: int) -> None:
        self.directory.on_view(InstallView(ring, members, True, old, seq, ring))


def order(ring: ViewId, seq: int, sender: int, word: Envelope, *members: Member) -> None:
    for member in members:
        member.directory.on_envelope(sender, Level.AGREED, Position.at(ring, seq), word)


def on_ring(count: int = 3) -> list[Member]:
    """Members on R1, all in group g."""
    members = [Member(n) for n in range(1, count + 1)]
    for member in members:
        member.view(R1, *range(1, count + 1))
    for n, member in enumerate(members, 1):
        order(R1, n, n, member.directory.word(), *members)
    for n, member in enumerate(members, 1):
        member.directory.enter("g", member.log)
        order(R1, 10 + n, n, Enter("g"), *members)
    for member in members:
        member.log.events.clear()
    return members


def test_the_members_are_those_of_the_last_view_until_there_is_another() -> None:
    a, *_ = on_ring()
    a.transitional(T1, R1, 20, 1, 2)
    assert a.directory.members("g") == (1, 2)
    a.view(R2, 1, 2)
    assert a.directory.members("g") == (1, 2)  # nobody has spoken on the new ring
    order(R2, 1, 1, a.directory.word(), a)
    assert a.directory.members("g") == (1, 2)
    order(R2, 2, 2, Groups(R2, ()), a)
    assert a.directory.members("g") == (1,)


def test_joins_leaves_and_messages_share_one_order() -> None:
    a, b = Member(1), Member(2)
    for each in (a, b):
        each.view(R1, 1, 2)
        assert each.directory.word() == Groups(R1, ())
    order(R1, 1, 1, Groups(R1, ()), a, b)
    order(R1, 2, 1, Data("g", (b"before all",)), a, b)
    order(R1, 3, 2, Groups(R1, ()), a, b)
    a.directory.enter("g", a.log)
    order(R1, 4, 1, Enter("g"), a, b)
    order(R1, 5, 2, Data("g", (b"for 1",)), a, b)
    b.directory.enter("g", b.log)
    order(R1, 6, 2, Enter("g"), a, b)
    order(R1, 7, 1, Data("g", (b"x", b"y")), a, b)
    order(R1, 8, 1, Data("other", (b"not for us",)), a, b)
    order(R1, 9, 1, Exit("g"), a, b)
    order(R1, 10, 2, Data("g", (b"for 2",)), a, b)
    both = [("V", (1, 2), Position.at(R1, 6)), (1, b"x", b"y", 7)]
    assert a.log.events == [("V", (1,), Position.at(R1, 4)), (2, b"for 1", 5), *both]
    assert b.log.events == [*both, ("V", (2,), Position.at(R1, 9)), (2, b"for 2", 10)]
    assert b.directory.members("g") == (2,)


def test_who_joins_or_leaves_after_parting_does_so_where_it_went() -> None:
    """The others took it in, so one place had two views; its own side did not list them."""
    a, b, c = on_ring()
    order(R1, 14, 2, Exit("g"), a, b, c)
    for each in (a, b):
        each.transitional(T1, R1, 15, 1, 2)
    c.transitional(ViewId(9, 3), R1, 15, 3)
    alone = list(c.log.events)
    b.directory.enter("g", b.log)
    order(R1, 16, 2, Enter("g"), a, b, c)
    order(R1, 17, 1, Exit("g"), a, b, c)
    assert b.log.events[-2:] == [
        ("V", (1, 2), Position.at(R1, 16)),
        ("V", (2,), Position.at(R1, 17)),
    ]
    assert c.log.events == alone and c.directory.members("g") == (3,)


def test_on_a_new_ring_messages_wait_until_all_have_spoken() -> None:
    a, b, c = on_ring()
    for each in (a, b):
        each.transitional(T1, R1, 13, 1, 2)
        each.view(R2, 1, 2)
    order(R2, 1, 1, Data("g", (b"early",)), a, b)
    order(R2, 2, 2, b.directory.word(), a, b)
    assert a.log.events == [("T", (1, 2), Position.at(R1, 13).end(R2.rep))]
    order(R2, 3, 1, a.directory.word(), a, b)
    expected = [
        ("T", (1, 2), Position.at(R1, 13).end(R2.rep)),
        ("V", (1, 2), Position.at(R2, 0)),
        (1, b"early", 1),
    ]
    assert a.log.events == b.log.events == expected
    assert c.log.events == []


def test_a_word_for_an_earlier_ring_is_not_heard() -> None:
    """Said on a ring that broke before it was sent, it is sent on the next one."""
    a, b, _ = on_ring()
    stale = a.directory.word()
    for each in (a, b):
        each.transitional(T1, R1, 13, 1, 2)
        each.view(R2, 1, 2)
    order(R2, 1, 1, stale, a, b)
    order(R2, 2, 2, b.directory.word(), a, b)
    assert len(a.log.events) == 1
    order(R2, 3, 1, a.directory.word(), a, b)
    assert a.log.events[-1] == b.log.events[-1] == ("V", (1, 2), Position.at(R2, 0))


def test_a_ring_that_breaks_too_early_has_a_view_of_those_who_spoke() -> None:
    """The one that had not spoken hears how much it missed, and is back on the next ring."""
    members = on_ring()
    a, b, c = members
    for each in members:
        each.transitional(T1, R1, 13, 1, 2, 3)
        each.view(R2, 1, 2, 3)
    order(R2, 1, 1, a.directory.word(), *members)
    order(R2, 2, 1, Data("g", (b"x", b"y")), *members)
    order(R2, 3, 3, c.directory.word(), *members)
    late = b.directory.word()
    for each in members:
        each.transitional(T2, R2, 3, 1, 2, 3)
    order(R2, 4, 2, late, *members)  # delivered in the transitional configuration
    for each in members:
        each.view(R3, 1, 2, 3)
    for n, each in enumerate(members, 1):
        order(R3, n, n, each.directory.word(), *members)
    first = ("T", (1, 2, 3), Position.at(R1, 13).end(R2.rep))
    again = ("V", (1, 2, 3), Position.at(R3, 0))
    spoke = [
        first,
        ("V", (1, 3), Position.at(R2, 0)),
        (1, b"x", b"y", 2),
        ("T", (1, 3), Position.at(R2, 3).end(R3.rep)),
        again,
    ]
    assert a.log.events == c.log.events == spoke
    assert b.log.events == [first, ("lost", 2), again]


def test_leaving_and_joining_again_are_two_memberships() -> None:
    """Events before the second Enter are for the first membership's reader, or for nobody."""
    a, b = on_ring(2)
    second = Log()
    a.directory.enter("g", second)  # asked for at once; both words are on their way
    order(R1, 20, 2, Data("g", (b"one",)), a, b)
    order(R1, 21, 1, Exit("g"), a, b)
    order(R1, 22, 2, Data("g", (b"two",)), a, b)
    order(R1, 23, 1, Enter("g"), a, b)
    order(R1, 24, 2, Data("g", (b"three",)), a, b)
    assert a.log.events == [(2, b"one", 20)]
    assert second.events == [("V", (1, 2), Position.at(R1, 23)), (2, b"three", 24)]


def test_an_enter_that_meets_a_new_ring_counts_where_it_is_ordered() -> None:
    a, b = Member(1), Member(2)
    for each in (a, b):
        each.view(R1, 1, 2)
    a.directory.enter("g", a.log)
    for each in (a, b):
        each.transitional(T1, R1, 0, 1, 2)
        each.view(R2, 1, 2)
    words = [each.directory.word() for each in (a, b)]
    assert words == [Groups(R2, ())] * 2
    order(R2, 1, 1, Enter("g"), a, b)
    order(R2, 2, 2, words[1], a, b)
    order(R2, 3, 1, words[0], a, b)
    assert a.log.events == [("V", (1,), Position.at(R2, 1))]


@pytest.mark.parametrize("seed", range(20))
def test_members_agree_whatever_happens(seed: int) -> None:
    """Random words and ring changes: who is counted in sees the same as the others."""
    rng = Random(f"directory/{seed}")
    members = [Member(n) for n in (1, 2, 3)]
    inside = [False] * 3
    ring, number = ViewId(8, 1), 0
    for member in members:
        member.view(ring, 1, 2, 3)
    pending = {n: member.directory.word() for n, member in enumerate(members, 1)}
    for _ in range(200):
        number += 1
        who = rng.randrange(3)
        draw = rng.random()
        if draw < 0.1:
            late = ViewId(ring.seq + 2, 1)
            fresh = ViewId(ring.seq + 4, 1)
            for member in members:
                member.transitional(late, ring, number - 1, 1, 2, 3)
                member.view(fresh, 1, 2, 3)
            ring, number = fresh, 0
            pending = {n: member.directory.word() for n, member in enumerate(members, 1)}
        elif draw < 0.5 and pending:
            speaker = rng.choice(sorted(pending))
            order(ring, number, speaker, pending.pop(speaker), *members)
        elif draw < 0.6:
            if not inside[who]:
                members[who].directory.enter("g", members[who].log)
            order(ring, number, who + 1, Exit("g") if inside[who] else Enter("g"), *members)
            inside[who] = not inside[who]
        else:
            order(ring, number, who + 1, Data("g", (b"x",)), *members)
    by_place: dict[object, set[object]] = {}
    for n, member in enumerate(members, 1):
        for event in member.log.events:
            assert isinstance(event, tuple)
            if event[0] in ("V", "T"):
                assert n in event[1]
                by_place.setdefault(("view", event[2]), set()).add(event)
    assert by_place
    assert all(len(seen) == 1 for seen in by_place.values())


def test_a_ring_that_ends_without_a_transitional_view_gives_out_what_waited() -> None:
    """The third never spoke on the second ring; the next view comes all the same."""
    members = on_ring()
    for member in members:
        member.log.events.clear()
        member.view(R2, 1, 2, 3)
    words = [member.directory.word() for member in members]
    for n in (1, 2):
        order(R2, n, n, words[n - 1], *members[:2])
    order(R2, 3, 1, Data("g", (b"x",)), *members[:2])
    for member in members[:2]:
        assert member.log.events == []
        member.view(R3, 1, 2)
        assert member.log.events == [("V", (1, 2), Position.at(R2, 0)), (1, b"x", 3)]


def test_where_members_are_fixed_nobody_is_waited_for() -> None:
    """One of three never ran; the other two join, talk and leave all the same."""
    members = [Member(n, fixed=True) for n in (1, 2)]
    for member in members:
        member.view(R1, 1, 2, 3)
    for n, member in enumerate(members, 1):
        member.directory.enter("g", member.log)
        order(R1, n, n, Enter("g"), *members)
    order(R1, 3, 2, Data("g", (b"x",)), *members)
    order(R1, 4, 2, Exit("g"), *members)
    first, second = (member.log.events for member in members)
    assert first == [
        ("V", (1,), Position.at(R1, 1)),
        ("V", (1, 2), Position.at(R1, 2)),
        (2, b"x", 3),
        ("V", (1,), Position.at(R1, 4)),
    ]
    assert second == first[1:3]


def test_where_members_are_fixed_what_they_remember_counts_from_its_place_on() -> None:
    """Each remembers something else of a writer; all judge its rows alike all the same."""
    members = [Member(n, fixed=True) for n in (1, 2)]
    members[1].directory.remember([Known("g", "w", 4, 2)])
    for member in members:
        member.view(R1, 1, 2, 3)
        assert member.directory.open
    words = [member.directory.word() for member in members]
    assert [len(word.known) for word in words] == [0, 1]
    for seq, word in enumerate(words, 1):
        order(R1, seq, seq, word, *members)
    rows = NumberedRows(R1, "g", "w", 4, 0, (b"a", b"b", b"c"))
    assert [member.directory.streams.fresh(rows) for member in members] == [2, 2]


def test_a_protocol_without_transitional_views() -> None:
    """What waits for words that will not come is given out at the next regular view; who went,
    and why, is in the first view of the group after it."""
    member = Member(1)
    silent = Departure(2, Reason.SILENT, "no heartbeat")
    sets = (("core", (1, 2)),)
    on_view, on_envelope = member.directory.on_view, member.directory.on_envelope

    def ring(view: ViewId, members: tuple[int, ...], *gone: Departure) -> None:
        on_view(InstallView(view, members, False, view, 0, None, gone, sets))

    def say(ring: ViewId, seq: int, sender: int, word: Envelope) -> None:
        on_envelope(sender, Level.AGREED, Position.at(ring, seq), word)

    ring(R1, (1, 2))
    for sender in (1, 2):
        say(R1, sender, sender, Groups(R1, ()))
    member.directory.enter("g", member.log)
    for sender in (1, 2):
        say(R1, 2 + sender, sender, Enter("g"))
    ring(R2, (1, 2, 3))
    say(R2, 1, 1, member.directory.word())
    say(R2, 2, 2, Groups(R2, ("g",)))
    say(R2, 3, 2, Data("g", (b"waits for 3",)))
    assert (2, b"waits for 3", 3) not in member.log.events
    ring(R3, (1, 3), silent)
    assert (2, b"waits for 3", 3) in member.log.events
    say(R3, 1, 1, member.directory.word())
    say(R3, 2, 3, Groups(R3, ("g",)))
    view = member.log.views[-1]
    assert (view.members, view.departures) == ((1, 3), (silent,))
    assert view.sets == (("core", (1,)),)
    assert [each.departures for each in member.log.views[:-1]] == [()] * (len(member.log.views) - 1)


def test_nobody_leaves_the_view_of_a_group_without_a_departure() -> None:
    """A member of the new ring has not spoken when that breaks, or speaks of other groups."""
    members = on_ring(4)
    for member in members:
        member.view(R2, 1, 2, 3, 4)
    order(R2, 1, 1, Groups(R2, ("g",)), *members)
    order(R2, 2, 2, Groups(R2, ("h",)), *members)
    order(R2, 3, 4, Groups(R2, ("g",)), *members)
    members[0].transitional(T2, R2, 3, 1, 2, 3, 4)
    assert members[0].log.views[-2].members == members[0].log.views[-1].members == (1, 4)
    left, silent = members[0].log.views[-2].departures
    assert (left.member, left.reason) == (2, Reason.LEFT)
    assert (silent.member, silent.reason) == (3, Reason.SILENT)
    assert left.judged_by and silent.judged_by
    assert members[0].log.views[-1].departures == (), "they were told"


def test_a_departure_is_told_in_the_next_view_that_the_member_gets() -> None:
    """It was lost if this node had not spoken on the ring in between."""
    members = on_ring()
    crashed = Departure(3, Reason.SILENT, "no heartbeat")
    on_view, log = members[0].directory.on_view, members[0].log
    on_view(InstallView(R2, (1, 2), False, R2, 0, None, (crashed,)))
    on_view(InstallView(R3, (1, 2), False, R3, 0, None))
    for sender in (1, 2):
        order(R3, sender, sender, Groups(R3, ("g",)), members[0])
    assert (log.views[-1].members, log.views[-1].departures) == ((1, 2), (crashed,))


def test_a_member_that_leaves_the_group_has_left() -> None:
    members = on_ring()
    order(R1, 20, 2, Exit("g"), *members)
    (left,) = members[0].log.views[-1].departures
    assert (left.member, left.reason) == (2, Reason.LEFT)
    order(R1, 21, 1, Exit("g"), *members)
    members[0].directory.enter("g", members[0].log)
    order(R1, 22, 1, Enter("g"), *members)
    assert members[0].log.views[-1].members == (1, 3)
    assert members[0].log.views[-1].departures == (), "its first view of the group"


def test_a_member_that_never_speaks_is_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited for it grew by 50 MB/s, and no reader got anything."""
    monkeypatch.setattr(directory, "MOST_WAITING", 10_000)
    monkeypatch.setattr(directory, "CROWDED", 5_000)
    members = on_ring()
    for member in members:
        member.view(R2, 1, 2, 3)
    for n, member in enumerate(members[:2], 1):
        order(R2, n, n, member.directory.word(), *members)
    seq = 3
    while not members[0].directory.open:
        assert members[0].directory.waits_for() == (3,)
        assert members[0].directory.crowded == (seq > 8)
        order(R2, seq, 1, Data("g", (b"x" * 600,)), *members)
        seq += 1
    assert seq == 14
    order(R2, seq, 3, Groups(R2, ("g",)), *members)  # too late, for all alike
    order(R2, seq + 1, 1, Data("g", (b"y",)), *members)
    for member in members:
        assert (member.directory.waits_for(), member.directory.left_aside) == ((), 1)
        assert not member.directory.crowded
        assert member.directory.members("g") == (1, 2)
    a, b, c = (member.log.events for member in members)
    assert (
        a
        == b
        == [
            ("V", (1, 2), Position.at(R2, 0)),
            *((1, b"x" * 600, n) for n in range(3, 14)),
            (1, b"y", 15),
        ]
    )
    assert c == [("lost", 1)] * 12


def test_words_in_another_s_name_change_nothing_there() -> None:
    """An Enter that a node had not sent, in its name, ended it with a KeyError."""
    a, b, c = on_ring()
    order(R1, 20, 1, Enter("never asked for"), a, b, c)
    order(R1, 21, 1, Enter("g"), a, b, c)
    assert a.log.events == []
    order(R1, 22, 2, Data("g", (b"x",)), a, b, c)
    assert a.log.events == [(2, b"x", 22)]
    for each in (a, b, c):
        each.view(R2, 1, 2, 3)
        each.directory.on_envelope(9, Level.AGREED, Position.at(R2, 1), Groups(R2, ()))
        assert each.directory.waits_for() == (1, 2, 3), "9 is no member"

"""Group membership as a function of the total order."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ringcast.api import directory
from ringcast.api.directory import Directory
from ringcast.api.events import Batch, View
from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.errors import RingcastError
from ringcast.core.ids import Level, Position, ViewId
from ringcast.wire.envelope import (
    MOST_EARLIER,
    MOST_GROUPS,
    MOST_WRITERS,
    Aside,
    Data,
    Earlier,
    Enter,
    Envelope,
    Exit,
    Groups,
    Known,
    NumberedRows,
    decode,
    encode,
)

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


TOGETHER = ("T", (1, 2, 3), Position.at(R1, 13).end(R2.rep))
AGAIN = ("V", (1, 2, 3), Position.at(R3, 0))


def breaks_early(
    *members: Member, together: tuple[int, ...], heard_last: bool = False, more: int = 0
) -> None:
    """On R2 1 and 3 have spoken, and there are two messages, when it breaks; these go on to R3, and
    speak there, after so many messages. The word of 2 may come in the transitional configuration
    of R2."""
    for each in members:
        each.transitional(T1, R1, 13, 1, 2, 3)
        each.view(R2, 1, 2, 3)
    words = [each.directory.word() for each in members]
    order(R2, 1, 1, words[0], *members)
    order(R2, 2, 1, Data("g", (b"x", b"y")), *members)
    order(R2, 3, 3, words[2], *members)
    some = [members[n - 1] for n in together]
    for each in some:
        each.transitional(T2, R2, 3, *together)
    if heard_last:
        order(R2, 4, 2, words[1], *some)
    for each in some:
        each.view(R3, *together)
    words = [each.directory.word() for each in some]
    for seq in range(1, 1 + more):
        order(R3, seq, 1, Data("g", (b"z",)), *some)
    for n, word in zip(together, words, strict=True):
        order(R3, more + n, n, word, *some)


@pytest.mark.parametrize("heard_last", [False, True])
def test_a_ring_that_breaks_before_all_have_spoken_loses_nothing(heard_last: bool) -> None:
    """One that had not spoken heard how much it missed, though its own messages were among that,
    and the others had a view of this ring without it."""
    members = on_ring()
    breaks_early(*members, together=(1, 2, 3), heard_last=heard_last)
    expected = [
        TOGETHER,
        ("V", (1, 2, 3), Position.at(R2, 0)),
        (1, b"x", b"y", 2),
        ("T", (1, 2, 3), Position.at(R2, 3).end(R3.rep)),
        AGAIN,
    ]
    for each in members:
        assert each.log.events == expected
        assert not any(view.departures for view in each.log.views)
        assert each.directory.complete and each.directory.open


def test_who_parts_before_it_was_heard_is_not_in_the_view_of_the_ring() -> None:
    """Nobody is waited for who did not go on; it gets its own view of the ring with the next."""
    members = on_ring()
    breaks_early(*members, together=(1, 3))
    a, b, c = (each.log.events for each in members)
    spoke = [("V", (1, 3), Position.at(R2, 0)), (1, b"x", b"y", 2)]
    after = [("T", (1, 3), Position.at(R2, 3).end(R3.rep)), ("V", (1, 3), Position.at(R3, 0))]
    assert a == c == [TOGETHER, *spoke, *after]
    assert b == [TOGETHER]
    alone, ring = ViewId(14, 2), ViewId(16, 2)
    members[1].transitional(alone, R2, 3, 2)
    members[1].view(ring, 2)
    order(ring, 1, 2, members[1].directory.word(), members[1])
    assert b[1:] == [
        ("V", (1, 2, 3), Position.at(R2, 0)),
        (1, b"x", b"y", 2),
        ("T", (2,), Position.at(R2, 3).end(ring.rep)),
        ("V", (2,), Position.at(ring, 0)),
    ]


def test_too_much_of_a_ring_that_broke_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that had not spoken hears how much it missed, and is back on the next ring."""
    monkeypatch.setattr(directory, "MOST_WAITING", 1_200)
    members = on_ring()
    breaks_early(*members, together=(1, 2, 3), more=3)
    spoke = [
        TOGETHER,
        ("V", (1, 3), Position.at(R2, 0)),
        (1, b"x", b"y", 2),
        ("T", (1, 3), Position.at(R2, 3).end(R3.rep)),
        AGAIN,
    ]
    rest = [(1, b"z", n) for n in (1, 2, 3)]
    assert members[0].log.events == members[2].log.events == [*spoke, *rest]
    assert members[1].log.events == [TOGETHER, ("lost", 2), AGAIN, *rest]
    for each in members:
        assert each.directory.left_aside == 1
        assert not each.directory.crowded


def test_too_much_to_some_is_told_to_who_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages to some, which others do not see, open no ring. One that is about to enter hears
    what it lost, too, and nobody else does; what was given out counts no more."""
    monkeypatch.setattr(directory, "MOST_WAITING", 1_000)
    monkeypatch.setattr(directory, "CROWDED", 500)
    a, b = on_ring(2)
    other = Log()
    a.directory.enter("h", other)
    for each in (a, b):
        each.view(R2, 1, 2)
    words = [each.directory.word() for each in (a, b)]
    order(R2, 1, 1, Enter("h"), a, b)
    place = Position.at(R2, 2)
    for _ in range(5):
        a.directory.on_envelope(2, Level.AGREED, place, Data("h", (b"x" * 100,)), "", (1,))
    a.directory.on_envelope(2, Level.AGREED, place, Data("nobody's", (b"x" * 900,)), "", (1,))
    crowded = a.directory.crowded
    for n, word in enumerate(words, 1):
        order(R2, 2 + n, n, word, a, b)
    told = [event for event in other.events if isinstance(event, tuple) and event[0] == "lost"]
    assert crowded and told == [("lost", 3)] and len(other.events) == 1 + 2 + 1
    assert ("lost", 3) not in a.log.events
    a.directory.on_envelope(2, Level.AGREED, place, Data("h", (b"y",)), "", (1,))
    assert other.events[-1] == (2, b"y", 2) and a.directory._some_bytes == 0


def test_with_too_much_to_some_a_member_says_so_and_nobody_waits_any_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 never speaks. What 1 gets others do not see; the place of its word is the same for all."""
    monkeypatch.setattr(directory, "MUCH_TO_SOME", 1_000)
    a, b, c = members = on_ring()
    for each in members:
        each.view(R2, 1, 2, 3)
    for n in (1, 2):
        order(R2, n, n, members[n - 1].directory.word(), *members)
    for n in range(3, 6):
        assert a.directory.give_up() is None
        place, body = Position.at(R2, n), Data("g", (b"x" * 100,))
        a.directory.on_envelope(2, Level.AGREED, place, body, filtered=True)
    word = a.directory.give_up()
    assert word == Aside(R2) and a.directory.give_up() is None, "once"
    order(R2, 6, 2, Aside(R1), *members)
    order(R2, 7, 4, word, *members)
    assert a.directory.waits_for() == (3,), "the word is of another ring, or of no member"
    order(R2, 8, 1, decode(encode(word)), *members)
    assert all(each.directory.open and each.directory.left_aside == 1 for each in members)
    assert a.directory.members("g") == b.directory.members("g") == (1, 2)
    assert b.log.events == [("V", (1, 2), Position.at(R2, 0))] and len(a.log.events) == 1 + 3
    order(R2, 9, 3, c.directory.word(), *members)
    order(R2, 10, 1, word, *members)
    assert a.directory.members("g") == (1, 2)


def test_rings_that_break_one_after_the_other_wait_and_not_too_many() -> None:
    """Nobody is heard on any of them; the first is given out when there are too many."""
    members = on_ring(2)
    rings = [ViewId(12 + 4 * n, 1) for n in range(MOST_EARLIER + 1)]
    for n, ring in enumerate(rings):
        for each in members:
            each.view(ring, 1, 2)
        order(ring, 1, 1, Data("g", (b"%d" % n,)), *members)
    words = [each.directory.word() for each in members]
    for word in words:
        assert [*decode(encode(word)).said_earlier()] == [(each, ("g",)) for each in rings[1:-1]]
    for n, word in enumerate(words, 1):
        order(rings[-1], 1 + n, n, word, *members)
    expected: list[object] = [("lost", 1)]
    for n, ring in enumerate(rings[1:], 1):
        expected += [("V", (1, 2), Position.at(ring, 0)), (1, b"%d" % n, 1)]
    assert members[0].log.events == members[1].log.events == expected


def test_joins_and_leaves_on_a_ring_that_broke_count_on_the_next() -> None:
    """1 leaves and 2 joins another group where nobody is heard; their words on the next ring say
    what they would have said, and what came of it."""
    a, b = on_ring(2)
    other = Log()
    b.directory.enter("h", other)
    for each in (a, b):
        each.transitional(T1, R1, 13, 1, 2)
        each.view(R2, 1, 2)
    order(R2, 1, 2, Enter("h"), a, b)
    order(R2, 2, 1, Exit("g"), a, b)
    order(R2, 3, 2, Enter("never asked for"), a, b)
    for each in (a, b):
        each.transitional(T2, R2, 3, 1, 2)
        each.view(R3, 1, 2)
    words = [each.directory.word() for each in (a, b)]
    assert words[0] == Groups(R3, (), (), (Earlier((R2,), 1),), ("g",))
    assert words[1] == Groups(R3, ("g", "h"), (), (Earlier((R2,), 1),), ("g",))
    for n, word in enumerate(words, 1):
        order(R3, n, n, word, a, b)
    left = ("V", (2,), Position.at(R2, 2))
    assert (
        a.log.events
        == b.log.events[:2]
        == [
            ("T", (1, 2), Position.at(R1, 13).end(R2.rep)),
            ("V", (1, 2), Position.at(R2, 0)),
        ]
    )
    assert b.log.events[2:] == [
        left,
        ("T", (2,), Position.at(R2, 3).end(R3.rep)),
        ("V", (2,), Position.at(R3, 0)),
    ]
    assert other.events[0] == ("V", (2,), Position.at(R2, 1))
    assert (a.directory.members("g"), a.directory.members("h")) == ((2,), (2,))


def test_a_word_that_is_too_large_says_the_groups_at_least() -> None:
    """A machine refuses it, and the ring would wait for it for ever."""
    a, _ = on_ring(2)
    a.directory.streams.learn([Known("g", f"writer {n}", 1, 1) for n in range(20)])
    for ring in (R2, R3):
        a.view(ring, 1, 2)
    whole = a.directory.word()
    assert whole.earlier and len(whole.known) == 20
    assert a.directory.word(len(encode(whole)) - 1) == Groups(R3, ("g",), whole.known)
    for most in (10, 30, 100, 101, 200, 300):
        word = a.directory.word(most)
        assert word == Groups(R3, ("g",), whole.known[20 - len(word.known) :]), "the newest"
        assert len(encode(word)) <= max(most, len(encode(Groups(R3, ("g",)))))
    assert 8 <= len(word.known) < 20


def test_what_no_word_had_room_for_is_forgotten_by_all() -> None:
    """A newcomer took a repeated batch that the others dropped. What is left of the words is the
    same everywhere, also where more writers are known than are remembered."""
    a, b = on_ring(2)
    shared = [Known("g", f"writer {n}", 1, 1) for n in range(20)]
    a.directory.streams.learn(shared)
    b.directory.streams.learn(reversed(shared))
    c = Member(3)
    c.directory.remember(Known("g", f"other {n}", 1, 1) for n in range(MOST_WRITERS - 10))
    everybody = (a, b, c)
    for member in everybody:
        member.view(R2, 1, 2, 3)
    words = [a.directory.word(200), b.directory.word(200), c.directory.word()]
    for n, word in enumerate(words, 1):
        order(R2, n, n, word, *everybody)
    known = a.directory.streams.known()
    assert known == b.directory.streams.known() == c.directory.streams.known()
    assert len(known) == MOST_WRITERS
    rows = [NumberedRows(R2, "g", f"writer {n}", 1, 0, (b"x",)) for n in range(20)]
    fresh = [[m.directory.streams.fresh(each) for each in rows] for m in everybody]
    assert fresh[0] == fresh[1] == fresh[2]
    assert {0, 1} == set(fresh[0])


@pytest.mark.parametrize("third", [True, False])
def test_a_ring_that_breaks_makes_nobody_forget_a_writer(third: bool) -> None:
    """1 alone remembers the writer, and 2 was heard in the transitional configuration: all went by
    the word of 2, and took a batch again that had been delivered. 3 had spoken before, or did not
    and is gone."""
    members = on_ring()
    members[0].directory.streams.learn([Known("g", "w", 5, 3)], own=True)
    for each in members:
        each.view(R2, 1, 2, 3)
    words = [each.directory.word() for each in members]
    for n in (1, 3) if third else (1,):
        order(R2, n, n, words[n - 1], *members)
    some = members if third else members[:2]
    together = tuple(range(1, 1 + len(some)))
    for each in some:
        each.transitional(T2, R2, 3, *together)
    order(R2, 4, 2, words[1], *some)
    for each in some:
        each.view(R3, *together)
    words = [each.directory.word() for each in some]
    for n, word in enumerate(words, 1):
        order(R3, n, n, word, *some)
    again = NumberedRows(R3, "g", "w", 5, 0, (b"x",) * 3)
    assert [each.directory.streams.fresh(again) for each in some] == [3] * len(some)


def test_words_that_wait_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 rings broke on which one member never spoke, and another said 16,384 names each time: what
    was kept of that, 357 MB, counted as nothing."""
    monkeypatch.setattr(directory, "MOST_WAITING", 20_000)
    members = on_ring()
    names = tuple(f"{n:064}" for n in range(20))
    rings = [ViewId(12 + 4 * n, 1) for n in range(5)]
    for ring in rings:
        for each in members:
            each.view(ring, 1, 2, 3)
        order(ring, 1, 3, Groups(ring, names), *members)
    for each in members:
        kept = each.directory._unopened
        assert [ring.begins.view for ring in kept] == rings[2:], "6,400 bytes each"
        assert each.directory._bytes == 3 * 20 * (64 + 4 * 64)
        assert each.directory.left_aside == 4
    for number in (1, 2):
        order(rings[-1], 1 + number, number, members[number - 1].directory.word(), *members)
    assert all(each.directory.open and each.directory._bytes == 0 for each in members)


def test_names_are_bounded_over_a_whole_word() -> None:
    """64 earlier rings with 16,384 names each took 74 MB to read."""
    names = tuple(map(str, range(MOST_GROUPS)))
    whole = Groups(R3, names, (), (Earlier((R1,), 1), Earlier((R2,), MOST_GROUPS - 1)), names)
    assert decode(encode(whole)) == whole
    assert [len(some) for _, some in whole.said_earlier()] == [1, MOST_GROUPS - 1]
    more = msgspec.msgpack.decode(encode(whole))
    more[-1].append("one more")
    more[-2][0][1] = 2
    with pytest.raises(msgspec.ValidationError, match="length <= 16384"):
        decode(encode(more))
    for wrong in (0, MOST_GROUPS):
        with pytest.raises(ValueError, match="do not fit"):
            Groups(R3, (), (), (Earlier((R1,), wrong),), ("g",))


def test_a_word_with_too_many_names_says_the_newest_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_GROUPS", 7)
    (a,) = on_ring(1)
    a.directory.on_view(InstallView(R2, (1, 2), False, R2, 0, None))
    rings = [ViewId(16 + 4 * n, 1) for n in range(4)]
    for n, ring in enumerate(rings):
        a.directory.enter(f"h{n}", Log())
        order(ring, 1, 1, Enter(f"h{n}"), a)
        a.view(ring, 1, 2)
    word = a.directory.word()
    assert word.names == ("g", "h0", "h1", "h2", "h3")
    assert [*word.said_earlier()] == [
        (rings[1], ("g", "h0", "h1")),
        (rings[2], ("g", "h0", "h1", "h2")),
    ]
    order(rings[-1], 2, 1, Exit("g"), a)
    for n in range(4):
        order(rings[-1], 3 + n, 1, Exit(f"h{n}"), a)
    for ring in (ViewId(40, 1), ViewId(44, 1), ViewId(48, 1)):
        a.view(ring, 1, 2)
    word = a.directory.word()
    assert word.names == ()
    said = [(ring.seq, len(names)) for ring, names in word.said_earlier()]
    assert said == [(rings[3].seq, 5), (40, 0), (44, 0)]


def test_what_is_said_of_writers_is_kept_for_the_present_ring_alone() -> None:
    """It may be large, and is said again on the next ring."""
    a, _ = on_ring(2)
    a.view(R2, 1, 2)
    order(R2, 1, 2, Groups(R2, ("g",), (Known("g", "w", 1, 1),)), a)
    a.view(R3, 1, 2)
    order(R3, 1, 2, Groups(R3, ("g",), (Known("g", "w", 2, 1),)), a)
    assert [len(ring.known) for ring in a.directory._unopened] == [0, 1]


def test_a_word_of_earlier_rings_counts_only_where_it_was_missing() -> None:
    """Nobody takes back what it said, speaks of rings that others had alone, or comes back to a
    ring from which it parted."""
    a, b, c = on_ring()
    for each in (a, b, c):
        each.view(R2, 1, 2, 3)
    order(R2, 1, 1, a.directory.word(), a, b, c)
    for each in (a, b):
        each.transitional(T2, R2, 1, 1, 2)
        each.view(R3, 1, 2, 3)
    order(R3, 1, 1, Groups(R3, ("g",), (), (Earlier((R2, R1), 0),)), a, b)
    order(R3, 2, 3, Groups(R3, ("g",), (), (Earlier((R2,), 1),), ("g",)), a, b)
    order(R3, 3, 2, b.directory.word(), a, b)
    assert (
        a.log.events
        == b.log.events
        == [
            ("V", (1, 2), Position.at(R2, 0)),
            ("T", (1, 2), Position.at(R2, 1).end(R3.rep)),
            ("V", (1, 2, 3), Position.at(R3, 0)),
        ]
    )


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
    assert words == [Groups(R2, (), (), (Earlier((R1,), 0),))] * 2
    order(R2, 1, 1, Enter("g"), a, b)
    order(R2, 2, 2, words[1], a, b)
    order(R2, 3, 1, words[0], a, b)
    assert a.log.events == [("V", (1,), Position.at(R2, 1))]


class Parting:
    """Four members in rings that part and merge before all, or any, have spoken."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"directory/{seed}")
        self.members = {n: Member(n) for n in (1, 2, 3, 4)}
        self.inside = dict.fromkeys(self.members, False)
        self.due: dict[int, list[object]] = {n: [] for n in self.members}
        """What each reader must get of the messages: all that is ordered while it is inside."""
        self.rings: dict[int, list[ViewId]] = {n: [] for n in self.members}
        """Those that each was on."""
        self.seqs: dict[ViewId, int] = {}
        self.unsaid: dict[int, Envelope] = {}
        self.last = 0
        self.regroup()

    def regroup(self) -> None:
        """Everybody is on a new ring, with whom it was before or with others."""
        sides: dict[int, list[int]] = {}
        for n in self.members:
            sides.setdefault(self.rng.choice((1, 1, 1, 2)), []).append(n)
        for side in sides.values():
            ring = ViewId(self.last + 4, side[0])
            for n in side:
                before = self.rings[n][-1:]
                if before and self.rng.random() < 0.9:
                    some = [q for q in side if self.rings[q][-1:] == before]
                    over = ViewId(self.last + 2, some[0])
                    self.members[n].transitional(over, before[0], self.seqs[before[0]], *some)
            for n in side:
                self.members[n].view(ring, *side)
                self.rings[n].append(ring)
                self.unsaid[n] = self.members[n].directory.word()
            self.seqs[ring] = 0
        self.last += 4

    def order(self, sender: int, word: Envelope) -> None:
        ring = self.rings[sender][-1]
        self.seqs[ring] += 1
        here = [n for n in self.members if self.rings[n][-1] == ring]
        order(ring, self.seqs[ring], sender, word, *(self.members[n] for n in here))
        for n in here:
            if isinstance(word, Data) and self.inside[n]:
                self.due[n].append((sender, *word.bodies, self.seqs[ring]))

    def step(self) -> None:
        who, draw = self.rng.choice(sorted(self.members)), self.rng.random()
        if draw < 0.1:
            self.regroup()
        elif draw < 0.4:
            if self.unsaid:
                who = self.rng.choice(sorted(self.unsaid))
                self.order(who, self.unsaid.pop(who))
        elif draw < 0.5:
            if not self.inside[who]:
                self.members[who].directory.enter("g", self.members[who].log)
            self.inside[who] = not self.inside[who]
            self.order(who, Enter("g") if self.inside[who] else Exit("g"))
        else:
            self.order(who, Data("g", (b"%d" % self.rng.randrange(1000),)))


@pytest.mark.parametrize("seed", range(100))
def test_members_agree_and_nothing_is_lost_whatever_happens(seed: int) -> None:
    """Whoever reads gets all that is ordered, and those who stay together the same views."""
    world = Parting(seed)
    for _ in range(150):
        world.step()
    for who in sorted(world.unsaid):
        world.order(who, world.unsaid[who])
    views: dict[object, tuple[int, object]] = {}
    for n, member in world.members.items():
        assert [e for e in member.log.events if e[0] not in ("V", "T")] == world.due[n]  # type: ignore[index]
        for view in member.log.views:
            assert n in view.members
            at = ViewId(view.position.ring_seq, view.position.ring_rep)
            together = tuple(world.rings[n][world.rings[n].index(at) :])
            other = views.setdefault((view.position, together), (n, view.members))
            assert other[1] == view.members, f"{other[0]} and {n}"
    assert views


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
    members[1].directory.streams.check("g", "w", 3)  # by its own word; for the other it is hearsay
    with pytest.raises(RingcastError, match="another member has said that batch 4 came before"):
        members[0].directory.streams.check("g", "w", 3)
    rows = NumberedRows(R1, "g", "w", 4, 0, (b"a", b"b", b"c"))
    assert [member.directory.streams.fresh(rows) for member in members] == [2, 2]


def test_a_protocol_without_transitional_views() -> None:
    """What waits for one that goes on is given out when that speaks on the next ring; who went, and
    why, is in the first view of the group after it."""
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
    say(R3, 1, 1, member.directory.word())
    assert (2, b"waits for 3", 3) not in member.log.events
    say(R3, 2, 3, Groups(R3, ("g",), (), (Earlier((R2,), 0),)))
    assert (2, b"waits for 3", 3) in member.log.events
    view = member.log.views[-1]
    assert (view.members, view.departures) == ((1, 3), (silent,))
    assert view.sets == (("core", (1,)),)
    assert [each.departures for each in member.log.views[:-1]] == [()] * (len(member.log.views) - 1)


def test_a_view_says_which_sets_came_and_which_went() -> None:
    """As rings do, under totem-multi."""
    member = Member(1)

    def ring(view: ViewId, *names: str) -> None:
        sets = tuple((name, (1,)) for name in names)
        member.directory.on_view(InstallView(view, (1,), False, view, 0, None, (), sets))
        word = member.directory.word()
        member.directory.on_envelope(1, Level.AGREED, Position.at(view, 1), word)

    ring(R1, "ring a")
    member.directory.enter("g", member.log)
    member.directory.on_envelope(1, Level.AGREED, Position.at(R1, 2), Enter("g"))
    ring(R2, "ring a", "ring b")
    ring(R3, "ring b")
    told = [(view.added, view.deleted) for view in member.log.views]
    assert told == [(("ring a",), ()), (("ring b",), ()), ((), ("ring a",))]


def test_nobody_leaves_the_view_of_a_group_without_a_departure() -> None:
    """A member of the new ring parts before it has spoken, or speaks of other groups."""
    members = on_ring(4)
    for member in members:
        member.view(R2, 1, 2, 3, 4)
    order(R2, 1, 1, Groups(R2, ("g",)), *members)
    order(R2, 2, 2, Groups(R2, ("h",)), *members)
    order(R2, 3, 4, Groups(R2, ("g",)), *members)
    members[0].transitional(T2, R2, 3, 1, 2, 4)
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


def test_views_of_a_ring_that_broke_before_all_had_spoken_are_not_complete() -> None:
    """Those who go on have spoken, so it is given out, and ``join`` waits for the next one."""
    a, b = Member(1), Member(2)
    for each in (a, b):
        each.view(R1, 1, 2, 3)
    for n, each in enumerate((a, b), 1):
        order(R1, n, n, each.directory.word(), a, b)
    for each in (a, b):
        each.transitional(T1, R1, 3, 1, 2)
        assert each.directory.open and not each.directory.complete
        each.view(R2, 1, 2)
    for n, each in enumerate((a, b), 1):
        order(R2, n, n, each.directory.word(), a, b)
    assert a.directory.complete and b.directory.complete

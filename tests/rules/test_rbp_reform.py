"""RBP: reformation (F1 to F15)."""

from __future__ import annotations

from typing import Any

from driver import drops, only, sent, stops
from msgspec.structs import replace
from rbp import FIRST, Group, Phase, ReformTimer, Timer, acks, views

from ringcast.core.effects import InstallView, Note, Persist, Reason, Send
from ringcast.core.ids import ViewId
from ringcast.core.inputs import Leaving
from ringcast.protocols.rbp import Config
from ringcast.protocols.rbp.config import Resiliency
from ringcast.protocols.rbp.epochs import NEVER, NOBODY, Entry, Epoch, EpochConfig, Ids, Seat
from ringcast.protocols.rbp.lists import next_list, refutes
from ringcast.protocols.rbp.messages import (
    MOST_PENDING,
    Abort,
    Ack,
    Announce,
    Commit,
    Fetch,
    Gone,
    Invite,
    Join,
    Leave,
    News,
    Past,
    Refuse,
    Vote,
)
from ringcast.protocols.rbp.reach import REACH

OLD, LATER, NEWEST = ViewId(1, 1), ViewId(2, 2), ViewId(9, 1)


def vote(number: int, installed: ViewId | None = OLD, **more: Any) -> Vote:
    """A vote of a site in a list of three; its life is its number."""
    fields: dict[str, Any] = {
        "life": 7,
        "forgot": NOBODY if installed else None,
        "ring": 3 if installed else 0,
        "start": 0 if installed else -1,
        "base": NEVER,
        "tail": Epoch(installed) if installed and number else NEVER,
        "pending": (),
    }
    return Vote(group=0, version=NEWEST, installed=installed, number=number, **(fields | more))


def config(n: int = 3, **settings: Any) -> Config:
    return Config(members=tuple(range(1, n + 1)), **settings)


def pending(view: ViewId, start: int, *members: int, parent: ViewId | None = OLD) -> EpochConfig:
    """A list that was committed."""
    seats = tuple(Seat(node, 7) for node in members)
    return EpochConfig(Epoch(view), seats, members, start, Epoch(OLD), start, parent)


# --- what votes make ----------------------------------------------------------------------------


def test_f7_a_majority_of_the_group_must_vote() -> None:
    """F7: of the whole group, not of the list."""
    assert isinstance(next_list(NEWEST, {1: vote(5)}, config()), str)
    found = next_list(NEWEST, {1: vote(5), 3: vote(4)}, config())
    assert isinstance(found, EpochConfig) and found.members == (1, 3)


def test_f7_a_site_that_cannot_go_on_names_who_is_missing() -> None:
    """G46: and one that is in no list, for whom it waits."""
    group = Group()
    group.start(1)
    assert group[1].blocked == (
        "in no list: it begins when a list takes us in, or most of 1, 2, 3 are here"
    )
    group = Group().up()
    assert group[1].blocked == ""
    group.cut = {(2, 1), (3, 1)}
    group.reform(1)
    group.votes_in(1)
    assert group[1].blocked == "too few members are here to go on without 2, 3 (rbp F7)"


def test_f7_whoever_forgot_what_it_held_is_no_voter() -> None:
    """F7, G47: it may have held what was delivered."""
    blank = vote(0, None)
    assert isinstance(next_list(NEWEST, {1: vote(5), 2: blank}, config()), str)
    found = next_list(NEWEST, {1: vote(5), 2: blank, 3: vote(5)}, config())
    assert isinstance(found, EpochConfig) and found.members == (1, 2, 3)


def test_f7_half_of_an_even_group_is_enough_to_know_of_every_list() -> None:
    """F7: two of four that remember are in any list there was, for it had three; not three are."""
    blank = vote(0, None)
    votes = {1: vote(5, ring=4), 2: vote(5, ring=4), 3: blank, 4: blank}
    found = next_list(NEWEST, votes, config(4))
    assert isinstance(found, EpochConfig) and found.members == (1, 2, 3, 4)
    assert isinstance(next_list(NEWEST, {1: votes[1], 2: votes[2]}, config(4)), str)
    assert isinstance(next_list(NEWEST, {1: votes[1], 3: blank, 4: blank}, config(4)), str)
    majority = config(4, resiliency=Resiliency.MAJORITY)
    assert isinstance(next_list(NEWEST, votes, majority), str), "F8: 3 and 4 may have delivered"


def test_f7_whoever_knows_that_it_was_in_no_later_list_is_a_voter() -> None:
    """F7, G47: after a crash it remembers the last list it was in, and nothing of its log."""
    assert isinstance(
        next_list(NEWEST, {1: vote(5), 2: vote(0, None, forgot=OLD)}, config()), EpochConfig
    )
    for forgot in (LATER, None):
        votes = {1: vote(5), 2: vote(0, None, forgot=forgot)}
        assert isinstance(next_list(NEWEST, votes, config()), str)
    both = {2: vote(0, None, forgot=OLD), 3: vote(0, None, forgot=OLD)}
    found = next_list(NEWEST, both, config())
    assert isinstance(found, EpochConfig) and found.parent is None, "nobody has the log"


def test_f7_a_majority_that_remembers_nothing_begins_anew() -> None:
    """F7 ext: nobody can ever prove any more what was delivered."""
    found = next_list(NEWEST, {1: vote(5), 2: vote(0, None), 3: vote(0, None)}, config())
    assert isinstance(found, EpochConfig)
    assert (found.members, found.start, found.parent) == ((2, 3), 0, None)


def test_f7_whoever_leaves_goes_on_to_tell_what_it_committed() -> None:
    """F15, F7: its next vote says so, and its next life is not in that list."""
    group = Group(3).up()
    site = group[3].chooser
    current = group[3].current
    assert current is not None
    without, later = ViewId(6, 1), replace(current, epoch=Epoch(ViewId(7, 1)))
    group[3].phase = Phase.FROZEN
    site.pending += [replace(current, epoch=Epoch(ViewId(5, 1))), later]
    site.out(group.envs[3], without)
    assert (site.vote().forgot, site.vote().pending) == (NOBODY, (later,))
    site.joined = later.epoch.view
    group.receive(3, News(group[3].group, later), 1)
    assert group[3].phase is Phase.OUT, "the seat is of a former life"


def test_f7_an_originator_that_gives_up_knows_that_its_list_is_void() -> None:
    """F11: nobody else can put it in force, so that its vote need not tell of it."""
    group = Group(3).up()
    group.cut = {(1, 2), (2, 1), (3, 1)}
    site = group[1].chooser
    site.forming.originate(group.envs[1], "a test")
    for node in (2, 3):
        site.forming.votes[node] = replace(group[node].chooser.vote(), version=site.joined)
    site.forming._decide(group.envs[1])
    assert [each.epoch.view for each in site.pending] == [site.joined]
    site.forming.drop(group.envs[1])
    assert site.vote().pending == ()


def test_f7_a_list_too_many_to_name_is_told_as_forgotten() -> None:
    """F10: a vote names 16 lists. Of what it cannot name, its maker says that it cannot tell."""
    group = Group(3).up()
    site, current = group[3].chooser, group[3].current
    assert current is not None
    versions = [ViewId(seq, 1) for seq in range(7, 7 + MOST_PENDING + 1)]
    lists = [replace(current, epoch=Epoch(version)) for version in versions]
    for each in lists:
        site._keep(each)
    assert site.vote().pending == tuple(lists[1:])
    assert site.vote().forgot == lists[0].epoch.view
    site.installed(group.envs[3])
    assert site.forgot == lists[0].epoch.view, "the list in force is an earlier one"


def test_f7_whoever_forgot_a_list_neither_refutes_it_nor_knows_that_it_was_none() -> None:
    oldest = pending(LATER, 4, 1, 2, 3)
    votes = {1: vote(5, pending=(oldest,)), 2: vote(6, forgot=LATER), 3: vote(6, forgot=LATER)}
    found = next_list(NEWEST, votes, config())
    assert isinstance(found, EpochConfig) and found.start == 4
    found = next_list(NEWEST, votes | {3: vote(6)}, config())
    assert isinstance(found, EpochConfig) and found.start == 6, "3 knows that it did not commit it"
    assert isinstance(next_list(NEWEST, {1: vote(5), 3: vote(6, forgot=LATER)}, config()), str)
    many = tuple(pending(ViewId(seq, 1), 4, 1, 3) for seq in range(3, 3 + MOST_PENDING))
    assert not refutes(vote(0, None, pending=many), LATER, 7), "it may have been one too many"
    assert refutes(vote(0, None, pending=many[1:]), LATER, 7)
    assert not refutes(vote(0, None), LATER, 6), "it cannot tell what it did in another life"


def test_f7_whoever_left_refutes_what_it_never_committed() -> None:
    """F15: 4 was in that list, in an earlier life, and its votes name what it committed."""
    five, list_ = config(5, resiliency=Resiliency.MAJORITY), pending(ViewId(4, 1), 1, 1, 2, 3, 4)
    three = vote(0, None, forgot=NOBODY, life=8, pending=(list_,))
    four = vote(0, None, forgot=NOBODY, life=8)
    votes = {3: three, 4: four, 5: vote(1, ViewId(3, 5), tail=Epoch(OLD), start=1, base=Epoch(OLD))}
    found = next_list(NEWEST, votes, config(5))
    assert isinstance(found, EpochConfig) and found.parent == ViewId(3, 5)
    found = next_list(NEWEST, votes | {4: three}, five)
    assert isinstance(found, EpochConfig) and found.parent == OLD, "both committed it"


def test_f11_a_late_no_ends_no_list_that_is_in_force() -> None:
    group = Group().up()
    group.reform(1)
    group.settle()
    current = group[1].current
    assert current is not None and current.epoch > FIRST and group[1].chooser.forming.active
    refuse = Refuse(group.config.group, current.epoch.view, ViewId(70, 2))
    assert drops(group.receive(1, refuse, 2)) and group[1].phase is Phase.MEMBER


def test_f11_a_yes_of_a_site_outside_the_list_does_not_count() -> None:
    """1 and 3 have said yes to a list of 1 and 2."""
    group = Group(3).up()
    group.cut = {(1, 2), (2, 1), (1, 3), (3, 1)}
    site, before = group[1].chooser, group[1].current
    site.forming.originate(group.envs[1], "a test")
    site.forming.votes[2] = replace(group[2].chooser.vote(), version=site.joined)
    site.forming._decide(group.envs[1])
    group.receive(1, Commit(group.config.group, site.joined), 3)
    assert group[1].current == before


def test_f15_a_vote_from_a_later_list_makes_an_originator_ask_for_it() -> None:
    """The later list is empty: the tag at the end of that log is still an earlier one."""
    group = Group(3).up()
    site = group[1].chooser
    site.forming.originate(group.envs[1], "a test")
    later = replace(vote(0, ViewId(5, 2)), group=group.config.group, version=site.joined)
    assert sent(group.receive(1, later, 2), Fetch)


def test_f7_whoever_left_a_list_remembers_it_beyond_one_that_follows_it() -> None:
    """F10: perhaps nobody else here can tell that it is in force."""
    group = Group(3).up()
    site, current = group[3].chooser, group[3].current
    assert current is not None
    left = replace(current, epoch=Epoch(ViewId(7, 1)), start=1)
    other = replace(current, epoch=Epoch(ViewId(8, 1)), start=2)
    follows = replace(current, epoch=Epoch(ViewId(9, 3)), start=4, parent=ViewId(7, 1))
    for each in (left, other):
        site.pending.append(each)
    site._keep(follows)
    assert site.pending == [left, follows]


def test_f9_in_place_of_a_list_goes_on_whoever_begins_where_it_does() -> None:
    """F9 ext: 2 is in another list that began there, in which nothing was delivered."""
    list_, elsewhere = pending(ViewId(4, 1), 1, 1, 3), {"start": 1, "base": Epoch(OLD)}
    two = vote(1, ViewId(3, 2), ring=2, tail=Epoch(OLD), **elsewhere)
    three = vote(0, None, forgot=NOBODY, life=8, pending=(list_,))
    found = next_list(NEWEST, {2: two, 3: three}, config())
    assert isinstance(found, EpochConfig)
    assert (found.core, found.start, found.parent) == ((2, 3), 1, OLD)


def test_f9_a_list_of_another_history_is_not_taken_for_an_empty_one() -> None:
    """F9 ext: numbers are compared with the tags before them; and a list in which something was
    delivered is not one in which nothing was."""
    votes = {n: vote(5, LATER, start=3, base=Epoch(OLD)) for n in (1, 2)}
    for base, members in ((Epoch(LATER), (1, 2, 3)), (Epoch(OLD), (1, 2))):
        third = vote(7, ViewId(1, 3), start=5, base=base)
        found = next_list(NEWEST, votes | {3: third}, config())
        assert isinstance(found, EpochConfig) and found.members == members
    group = Group(3).up()
    assert (group[1].chooser.vote().start, group[1].chooser.vote().base) == (0, NEVER)
    group[1].delivered = 1
    assert group[1].chooser.vote().start == -1


def test_f7_no_new_beginning_while_somebody_remembers() -> None:
    """F7 ext: 3 has all that was delivered, and says so while 1 waits for votes."""
    group = Group(3).up()
    for node in (1, 2):
        group.crash(node)
    group.lose()
    for node in (1, 2):
        group.start(node)
    forming = group[1].chooser.forming
    forming.originate(group.envs[1], "nobody is in a list")
    forming.votes[2] = replace(group[2].chooser.vote(), version=forming.version)
    assert group[3].current is not None
    group.now_us += 1
    group.receive(1, News(group[3].group, group[3].current), 3)
    for _ in range(20):
        if ReformTimer.VOTE in group.timers[1]:
            group.fire(1, ReformTimer.VOTE)
    assert forming.config is None
    assert any("heard of meanwhile" in note.text for note in only(group.log[1], Note))


def test_f8_so_many_vote_that_one_holds_whatever_was_delivered() -> None:
    """F8, G29, T30: with f = 1 four of five must take part, though three are a majority."""
    five = config(5, resiliency=Resiliency.NUMBER, tolerated=1)
    votes = {node: vote(5, ring=5) for node in (1, 2, 3)}
    assert isinstance(next_list(NEWEST, votes, five), str)
    assert isinstance(next_list(NEWEST, votes | {4: vote(5, ring=5)}, five), EpochConfig)
    assert isinstance(next_list(NEWEST, votes, config(5)), EpochConfig), "all of the ring hold it"


def test_f9_the_list_begins_at_the_best_log_of_the_newest_list() -> None:
    """F9, G36: a longer log of an older list is void."""
    votes = {1: vote(9), 2: vote(5, LATER, start=3), 3: vote(6, LATER, start=3)}
    found = next_list(NEWEST, votes, config())
    assert isinstance(found, EpochConfig)
    assert (found.core, found.start, found.base) == ((3, 2), 6, Epoch(LATER))
    assert (found.parent, found.decided) == (LATER, 6)


def test_f9_a_list_that_may_be_in_force_tells_where_the_next_one_begins() -> None:
    """F9 ext: whoever saw it in force closed the view before at its start."""
    later = pending(LATER, 4, 1, 2)
    votes = {1: vote(6, pending=(later,)), 3: vote(6)}
    found = next_list(NEWEST, votes, config())
    assert isinstance(found, EpochConfig)
    assert (found.start, found.parent) == (4, OLD)
    refuted = votes | {2: vote(6)}  # 2 is in it, and never committed it
    found = next_list(NEWEST, refuted, config())
    assert isinstance(found, EpochConfig) and found.start == 6


# --- voting -------------------------------------------------------------------------------------


def test_f1_ordering_stops_with_the_first_invitation() -> None:
    """F1: any site that detects a failure may be the originator."""
    group = Group().up().token_at(2)
    (invite,) = sent(group.reform(1), Invite)
    group.receive(3, invite, 1)
    assert [group[n].phase for n in (1, 3)] == [Phase.FROZEN] * 2
    assert not acks(group.submit(1, b"a")) and not acks(group.submit(3, b"b"))


def test_f2_a_version_is_above_all_seen_and_bears_its_originator() -> None:
    """F2, G26: two originators never share one, also over a restart."""
    group = Group().up()
    (first,) = sent(group.reform(1), Invite)
    group.lose()
    (second,) = sent(group.reform(2), Invite)
    assert first.version == ViewId(2, 1) and second.version == ViewId(2, 2)
    group.lose()
    group.crash(1)
    group.start(1)
    assert group[1].chooser.joined >= first.version, "it votes for no other one of that number"


def test_f2_one_frame_does_not_use_the_numbers_up() -> None:
    """F2: a version far beyond all that is known is not heard of, whatever frame tells of it."""
    group = Group().up()
    for far in (ViewId(2**62, 1), ViewId(1 + REACH + 1, 1)):
        told = [
            Invite(group.config.group, far),
            Refuse(group.config.group, ViewId(1, 1), far),
            News(group.config.group, replace(group.list(1), epoch=Epoch(far))),
            group.ack(1, 1, epoch=Epoch(far)),
        ]
        for frame in told:
            assert drops(group.receive(3, frame, 1)) == ["a view far ahead"]
    (next_one,) = sent(group.reform(3), Invite)
    assert next_one.version == ViewId(2, 3)
    assert sent(group.receive(2, Invite(group.config.group, ViewId(REACH, 1)), 1), Vote)


def test_f3_every_site_of_the_group_is_invited() -> None:
    """F3: also those that are in no list."""
    group = Group().up(1, 2)
    group.start(3)
    group.reform(1)
    assert {node for node, frame in group.broadcasts if isinstance(frame.message, Invite)} == {2, 3}


def test_f4_yes_to_a_higher_version_only() -> None:
    """F4: a higher version overrides an unfinished one; of a lower one nobody is reminded."""
    group = Group().up()
    version = ViewId(5, 1)
    (yes,) = sent(group.receive(3, Invite(group.config.group, version), 1), Vote)
    assert yes.version == version
    (no,) = sent(group.receive(3, Invite(group.config.group, ViewId(4, 2)), 2), Refuse)
    assert no.joined == version
    (yes,) = sent(group.receive(3, Invite(group.config.group, ViewId(5, 2)), 2), Vote)
    assert yes.version == ViewId(5, 2)
    assert drops(group.receive(3, Invite(group.config.group, ViewId(8, 1)), 2))


def test_f5_a_yes_freezes_for_good_and_tells_how_far_the_log_reaches() -> None:
    """F5, G28, G31: after an abort, too; and the vote is on disk before it is told."""
    group = Group().up().token_at(3)
    number = group[3].log.held
    effects = group.receive(3, Invite(group.config.group, ViewId(5, 1)), 1)
    (yes,) = sent(effects, Vote)
    assert (yes.number, yes.installed, yes.tail) == (number, FIRST.view, FIRST)
    kinds = [type(effect).__name__ for effect in effects]
    assert only(effects, Persist) and kinds.index("Persist") < kinds.index("Send")
    group.receive(3, Abort(group.config.group, ViewId(5, 1)), 1)
    assert not acks(group.submit(3, b"a"))
    assert "an ACK while the epoch is frozen" in drops(group.receive(3, group.ack(99, 2), 2))
    assert group[3].ring.seen == number


def test_f12_an_abort_of_the_list_in_force_is_too_late() -> None:
    """F11 ends the wait for good: the site would have stopped at the end of another one."""
    group = Group().up()
    version = group.list(2).epoch.view
    group.receive(2, Abort(group.config.group, version), version.rep)
    assert ReformTimer.WAIT not in group.timers[2] and group[2].phase is Phase.MEMBER


def test_f6_sites_that_are_suspected_are_not_waited_for() -> None:
    """F6, G30: a detector shortens waits, and lowers no count."""
    group = Group(retries=1).up().token_at(2)
    group.crash(3)
    group.submit(2, b"a")
    group.fire(2, Timer.TOKEN)
    group.fire(2, Timer.TOKEN)
    group.settle()
    assert not group.log[2][-1:] or group[2].current is not None
    effects = group.fire(2, ReformTimer.VOTE)
    assert sent(effects, Announce), "with the first tick, not the last"


def test_f6_ext_who_answers_too_late_is_waited_for_the_next_time() -> None:
    """Where a tick is shorter than a round trip, no version would ever have its vote."""
    group = Group(2, retries=1).up().token_at(1)
    group.submit(1, b"a")
    group.fire(1, Timer.TOKEN)
    (invite,) = sent(group.fire(1, Timer.TOKEN), Invite)
    group.lose()
    assert sent(group.fire(1, ReformTimer.VOTE), Abort), "2 is not waited for"
    (vote,) = sent(group.receive(2, invite, 1), Vote)
    assert "a vote for another version" in drops(group.receive(1, vote, 2))
    group.lose()
    (again,) = sent(group.fire(1, ReformTimer.WAIT), Invite)
    group.lose()
    assert not sent(group.fire(1, ReformTimer.VOTE), Abort)
    (vote,) = sent(group.receive(2, again, 1), Vote)
    assert sent(group.receive(1, vote, 2), Announce)


def test_f6_a_no_ends_the_attempt() -> None:
    group = Group().up()
    (invite,) = sent(group.reform(1), Invite)
    group.lose()
    effects = group.receive(1, Refuse(group.config.group, invite.version, ViewId(7, 2)), 2)
    assert sent(effects, Abort)
    assert ReformTimer.WAIT in group.timers[1]
    (again,) = sent(group.fire(1, ReformTimer.WAIT), Invite)
    assert again.version == ViewId(8, 1)


# --- recovering, committing, in force -------------------------------------------------------------


def behind() -> Group:
    """Member 3 has missed the last number, which 1 and 2 hold; 1 is the originator."""
    group = Group().up().token_at(2)
    group.cut = {(1, 3), (2, 3)}
    group.submit(2, b"a")
    group.quiet()
    group.lose()
    group.cut = set()
    return group


def test_f10_a_member_recovers_before_it_commits() -> None:
    """F10, T26: the second yes comes when its log reaches the start."""
    group = behind()
    group.reform(1)
    group.run(until=lambda: len(sent(group.log[1], Announce)) == 2)
    _, announce = sent(group.log[1], Announce)
    group.lose()
    effects = group.receive(3, announce, 1)
    assert sent(effects, Fetch) and not sent(effects, Commit)
    group.votes_in(1)
    assert sent(group.log[3], Commit)
    assert group.list(3).start == announce.config.start
    assert [group.told(node) for node in group.ids] == [[b"a"]] * 3


def test_f10_whoever_has_left_says_no() -> None:
    group = Group().up()
    listed = replace(group.list(1), epoch=Epoch(ViewId(4, 1)))
    group.receive(3, Invite(group.config.group, ViewId(6, 2)), 2)
    (no,) = sent(group.receive(3, Announce(group.config.group, listed), 1), Refuse)
    assert no.joined == ViewId(6, 2)


def test_f11_in_force_with_all_second_votes_and_for_a_member_with_its_first_ack() -> None:
    """F11 ext, G27: or with the originator's word."""
    group = Group().up().token_at(2)
    group.reform(1)
    while len(sent(group.log[3], Commit)) < 2:  # one for the first list
        group.step()
    version = group[3].chooser.joined
    assert group[3].current is not None and group[3].current.epoch == FIRST
    group.run(until=lambda: group.list(1).epoch.view == version)
    group.broadcasts = [item for item in group.broadcasts if item[0] != 3]
    ack = group[1].ring.acks.get(group.list(1).start + 1) or group.ack(
        group.list(1).start + 1, group.list(1).core[0], epoch=Epoch(version)
    )
    group.receive(3, ack, ack.issuer)
    assert group.list(3).epoch.view == version
    assert group[3].ring.seen >= ack.number


def test_f11_an_originator_that_is_not_in_its_list_asks_the_first_of_it() -> None:
    """F11, F15: 2 and 3 remember nothing and begin anew; 1 must not ask itself what came of it."""
    group = Group().up()
    for node in (2, 3):
        group.stable[node].clear()
        group.start(node)
    group.reform(1)
    group.votes_in(1)
    assert group.list(2).members == group.list(3).members == (2, 3)
    asked = [each.to for each in only(group.log[1], Send) if isinstance(each.message, Fetch)]
    assert asked and 1 not in asked


def test_f12_an_abort_is_told_to_all_and_a_higher_version_is_accepted() -> None:
    """F12, T28: one second yes is missing; no ACK ever bears that version."""
    group = Group().up().token_at(2)
    group.reform(1)
    group.run(until=lambda: len(sent(group.log[1], Announce)) == 2)
    group.cut = {(3, 1)}
    for _ in range(20):
        group.settle()
        if ReformTimer.VOTE in group.timers[1]:
            group.fire(1, ReformTimer.VOTE)
    (abort,) = sent(group.log[1], Abort)
    assert not [a for n in group.ids for a in acks(group.log[n]) if a.epoch.view == abort.version]
    group.cut = set()
    group.fire(1, ReformTimer.WAIT)
    group.votes_in(1)
    assert {group.list(node).epoch.view for node in group.ids} == {ViewId(abort.version.seq + 1, 1)}


def test_f13_nothing_comes_of_a_version_so_a_member_tries_itself() -> None:
    """F13: leaving is for ever for that version, and the pauses grow."""
    group = Group().up()
    group.receive(3, Invite(group.config.group, ViewId(5, 1)), 1)
    (own,) = sent(group.fire(3, ReformTimer.WAIT), Invite)
    assert own.version == ViewId(6, 3)
    site = group[3].chooser
    site.tries = 0
    first = max(site.pause_us(group.envs[3]) for _ in range(50))
    site.tries = 4
    assert min(site.pause_us(group.envs[3]) for _ in range(50)) > first


def test_f14_nothing_that_the_old_list_delivered_is_lost() -> None:
    """F14: what one member delivered before it was cut off, all deliver in the same view."""
    group = Group().up().token_at(2)
    group.submit(2, b"a")
    group.run(until=lambda: group.told(1) == [b"a"])
    group.lose()
    group.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    group.reform(2)
    group.votes_in(2)
    assert group.told(2) == group.told(3) == [b"a"]
    assert views(group.log[2]) == [(1, 2, 3), (2, 3)]
    assert group[1].phase is Phase.MEMBER and group.list(1).epoch == FIRST


def excluded() -> Group:
    """Member 1 was cut off while 2 and 3 delivered the rest of the view and formed a list."""
    group = Group().up().token_at(2)
    group.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    group.submit(2, b"a")
    group.settle()
    group.reform(2)
    group.votes_in(2)
    group.submit(3, b"b")
    group.settle()
    group.pass_on(2)
    group.cut = set()
    group.now_us += group.config.nack_us
    return group


def test_f15_an_excluded_member_delivers_its_view_and_comes_back_as_somebody_new() -> None:
    """F15 ext: it lacks what the others delivered without it, and says so by its view."""
    group = excluded()
    assert (group.told(2), group.told(1)) == ([b"a", b"b"], [])
    group.submit(1, b"mine")
    life = group[1].life
    group.pass_on()
    for _ in range(6):
        group.now_us += group.config.nack_us
        group.settle()
        for timer in (Timer.NACK, ReformTimer.JOIN):
            if timer in group.timers[1]:
                group.fire(1, timer)
    group.votes_in(group.list(2).epoch.view.rep)
    while group[1].phase is not Phase.MEMBER:
        group.pass_on()
        group.votes_in(group.list(2).epoch.view.rep)
    group.pass_on(3)
    assert views(group.log[1]) == [(1, 2, 3), (1, 2, 3)]
    assert group[1].life > life
    assert group.told(1) == [b"a", b"mine"]
    assert group.told(2) == [b"a", b"b", b"mine"]
    back = only(group.log[1], InstallView)[-1]
    assert {each.member: each.reason for each in back.departures} == {
        2: Reason.MOVED,
        3: Reason.MOVED,
    }


def test_f15_gone_means_stop_and_says_what_to_do() -> None:
    """GONE, I21, G42: only when every member of the newest list has said so."""
    group = excluded()
    held, view = group[1].log.held, FIRST.view
    gone = Gone(group.config.group, view, held, held + 1, FIRST, (2, 3))
    alone = replace(gone, core=(2,))
    assert drops(group.receive(1, alone, 2)) == ["a list that no majority is in"]
    effects = group.receive(1, gone, 2)
    assert not stops(effects) and sent(effects, Fetch)
    effects = group.receive(1, gone, 2)
    assert not stops(effects) and not sent(effects, Fetch), "the others have been asked"
    (reason,) = stops(group.receive(1, gone, 3))
    assert reason.startswith("gap: ") and "start it again" in reason
    group[2].log.floor = held + 1
    assert sent(group.receive(2, Fetch(group.config.group, view, held), 1), Gone)
    group[3].children.clear()
    assert sent(group.receive(3, Fetch(group.config.group, view, held), 1), Gone)


def test_f15_gone_from_those_who_are_here_means_stop_in_the_end() -> None:
    """GONE, A5: the group may need us, and the one that we have not heard may never come back.
    While our ring moves, or we hear more of it, there is no need."""
    group = excluded()
    gone = Gone(group.config.group, FIRST.view, group[1].log.held, 99, FIRST, (2, 3))
    patience_us = 3 * group.config.vote_us
    assert not stops(group.receive(1, gone, 2))
    group.now_us += patience_us
    assert not stops(group.receive(1, gone, 2)), "whoever says so may be wrong"
    group.reform(1)
    group.lose()
    group[1].log.held += 1
    more = replace(gone, after=gone.after + 1)
    assert not stops(group.receive(1, more, 2)), "it is about another number"
    group.now_us += patience_us - 1
    assert not stops(group.receive(1, more, 2)), "3 may keep what we lack"
    group.now_us += 1
    (reason,) = stops(group.receive(1, more, 2))
    assert reason.startswith("gap: ")


def test_f15_whoever_was_restarted_with_a_gap_goes_on_with_one_of_the_newest_list() -> None:
    """F7, A5: member 1 was in no list since the one that 2 is in, and remembers that."""
    group = excluded()
    group.crash(3)
    group.start(1)
    group.reform(2)
    group.votes_in(2)
    assert group.list(1) == group.list(2) and group.list(2).members == (1, 2)
    assert group.list(2).parent == ViewId(2, 2)


def test_f7_a_site_remembers_the_last_list_that_it_committed() -> None:
    """F7, G47: it is on disk before the second yes is sent; with its storage it forgets that."""
    group = Group().up()
    machine, version = group[2], ViewId(7, 3)
    group.receive(2, Invite(machine.group, version), 3)
    next_one = replace(
        group.list(2),
        epoch=Epoch(version),
        start=machine.log.held,
        base=machine.log.tail,
        parent=FIRST.view,
    )
    effects = group.receive(2, Announce(machine.group, next_one), 3)
    assert [type(each) for each in effects if isinstance(each, Persist | Send)] == [Persist, Send]
    assert sent(effects, Commit) and machine.chooser.vote().forgot == NOBODY
    group.start(2)
    assert group[2].chooser.vote().forgot == version
    group.stable[2].clear()
    group.start(2)
    assert group[2].chooser.vote().forgot is None


def test_f15_entries_whose_bodies_nobody_keeps_are_asked_for_again() -> None:
    """GONE: whoever let an entry go let its bodies go, and says so."""
    group = excluded()
    machine, view = group[1], FIRST.view
    held = machine.log.held
    later = Ack(machine.group, group.list(2).epoch, 99, (), 2, 3)
    (wanted,) = sent(group.receive(1, later, 2), Fetch)
    entry = Entry(held + 1, FIRST, (Ids(2, 9, 9),))
    group.receive(1, Past(machine.group, view, held, (entry,), None), 2)
    for tries in range(3):
        group.now_us += group.config.nack_us
        assert not sent(group.receive(1, later, 2), Fetch), tries
        group.fire(1, Timer.NACK)
    group.now_us += group.config.nack_us
    assert sent(group.receive(1, later, 2), Fetch) == [wanted]


def test_f15_an_invitation_of_one_that_is_excluded_does_not_stop_the_ring() -> None:
    """It hears of the list instead, and learns what became of its own."""
    group = excluded()
    (invite,) = sent(group.reform(1), Invite)
    group.lose()
    effects = group.receive(2, invite, 1)
    (news,) = sent(effects, News)
    assert not sent(effects, Vote) and group[2].phase is Phase.MEMBER
    (fetch,) = sent(group.receive(1, news, 2), Fetch)
    (past,) = sent(group.receive(2, fetch, 1), Past)
    assert past.child is not None and past.child.members == (2, 3)


def test_f15_a_leaver_says_so_and_the_one_behind_it_calls_for_a_list() -> None:
    """F15, I18."""
    group = Group().up().token_at(2)
    effects = group.handle(1, Leaving())
    assert sent(effects, Leave) and stops(effects) == ["left"]
    group.crash(1)
    group.settle()
    group.votes_in(2)
    last = only(group.log[3], InstallView)[-1]
    assert last.members == (2, 3)
    assert [(d.member, d.reason) for d in last.departures] == [(1, Reason.LEFT)]


def test_f1_the_holder_of_the_token_takes_in_whoever_asks() -> None:
    """F1, G47: one originator; a restarted member is replaced, since it has forgotten its part."""
    group = Group().up(1, 2).token_at(2)
    group.start(3)
    (join,) = sent(group.fire(3, ReformTimer.JOIN), Join)
    group.lose()
    assert not sent(group.receive(1, join, 3), Invite)
    assert sent(group.receive(2, join, 3), Invite)
    group.votes_in(2)
    assert group.list(3).members == (1, 2, 3)
    assert group[3].delivered >= group.list(3).start, "a joiner owes nothing before its first view"

"""View membership (total G-1 to G-9, FL-4 to FL-6, TL-22): joins, losses, hand-over, merges."""

from __future__ import annotations

from typing import Any

import pytest
from wire import Wire, drops, sent, words

from ringcast.blocks.channel import Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.detector import Settings as Beats
from ringcast.blocks.membership import Membership
from ringcast.blocks.view_change import VIEW_SEQ, Phase, Settings, Timer
from ringcast.blocks.view_messages import (
    Agree,
    Announce,
    Cancel,
    Complain,
    Install,
    Installed,
    Leave,
    Propose,
    Proposed,
    RankedView,
    Refuse,
)
from ringcast.core.effects import Effect, Persist, Send, Up
from ringcast.core.env import Env
from ringcast.core.ids import ViewId
from ringcast.core.inputs import Leaving

SETTINGS = Settings(
    detector=Beats(beat_us=10_000, suspect_us=30_000, suspect_max_us=30_000),
    change_us=60_000,
    announce_us=50_000,
    merge_us=1_000,
    away_us=1_000,
    away_max_us=200_000,
)


class Group(Wire):
    """Memberships whose owners agree at once and are settled at once, unless a test says no."""

    def __init__(self, n: int) -> None:
        super().__init__(n, lambda node: Membership(node, SETTINGS))
        self.agreeing = self.settling = True
        self.answer = self.as_owner

    def as_owner(self, node: int, env: Env, word: Any) -> None:
        part = self.parts[node]
        if isinstance(word, Proposed) and self.agreeing:
            part.call(env, part.machine.agree, word.proposal.view.id)
        elif isinstance(word, Installed) and self.settling:
            part.call(env, part.machine.settle)

    def together(self) -> Group:
        """All start and form one view, 1 first."""
        self.start()
        self.pass_us(10_000)
        assert self.views() == [self.ids] * len(self.ids)
        return self

    def views(self) -> list[tuple[int, ...]]:
        """The members of each one's view, of those that are up."""
        return [self[node].view.members for node in sorted(self.parts)]

    def say(self, node: int, src: int, *payloads: Any) -> list[Effect]:
        """Let words of ``src`` arrive at ``node`` through the channel."""
        effects: list[Effect] = []
        for payload in payloads:
            effects += self.receive(node, src, Packet(90, self.said_so_far(src), 1, payload))
        return effects

    def said_so_far(self, src: int) -> int:
        self._words = getattr(self, "_words", {})
        self._words[src] = self._words.get(src, 0) + 1
        return int(self._words[src])


def posted(effects: list[Effect], kind: type) -> list[tuple[int, Any]]:
    """Words of one kind that were sent through the channel, and to whom."""
    return [
        (effect.to, effect.message.payload)
        for effect in effects
        if isinstance(effect, Send)
        and isinstance(effect.message, Packet)
        and isinstance(effect.message.payload, kind)
    ]


# --- life -------------------------------------------------------------------------------------


def test_g_1_a_start_takes_a_number_that_was_never_used_and_writes_it_down_first() -> None:
    group = Group(1)
    group.stable[1][VIEW_SEQ] = 40
    kinds: list[type] = []
    group.answer = lambda node, env, word: kinds.append(type(word))
    group.start(1)
    assert group[1].view == RankedView(ViewId(44, 1), (1,), (group.boot(1),))
    assert group.stable[1] == {VIEW_SEQ: 44}
    assert kinds == [Installed]


def test_g_1_numbers_rise_and_survive_a_restart() -> None:
    group = Group(3).together()
    first = group[1].view.id
    group.crash(1)
    group.pass_us(200_000)
    group.start(1)
    alone = group[1].view.id
    assert alone.seq > first.seq
    group.pass_us(200_000)
    assert group[1].view.id.seq > alone.seq
    assert group.stable[1][VIEW_SEQ] == group[1].view.id.seq


def test_g_1_a_proposal_is_on_disk_before_anybody_hears_of_it() -> None:
    group = Group(2)
    group.start()
    group.run()
    effects = group.fire(1, Timer.MERGE)
    kinds = [type(e) for e in effects if isinstance(e, Persist | Send)]
    assert kinds[0] is Persist
    assert Send in kinds


def test_g_2_g_3_the_same_number_is_the_same_list_and_each_is_in_its_own() -> None:
    group = Group(4).together()
    assert len({group[node].view for node in group.ids}) == 1
    for node in group.ids:
        for word in words(group.said[node], Installed):
            assert node in word.view.members


def test_g_7_survivors_keep_their_order_and_newcomers_come_last() -> None:
    group = Group(4).together()
    group.crash(2)
    group.pass_us(200_000)
    assert group.views() == [(1, 3, 4)] * 3
    group.start(2)
    group.pass_us(200_000)
    assert group.views() == [(1, 3, 4, 2)] * 4
    group.crash(1)
    group.pass_us(200_000)
    assert group.views() == [(3, 4, 2)] * 3
    assert group[2].view.id.rep == 3


def test_g_5_the_silent_are_excluded_within_detection_and_one_round() -> None:
    group = Group(3).together()
    group.crash(3)
    group.pass_us(30_000 + 2 * 10_000)
    assert group.views() == [(1, 2), (1, 2)]


def test_g_5_one_who_leaves_is_excluded_at_once() -> None:
    group = Group(3).together()
    effects = group.handle(2, Leaving())
    assert len(sent(effects, Leave)) == 1
    group.crash(2)
    group.run()
    assert group.views() == [(1, 3), (1, 3)]


def test_g_5_a_leave_of_another_view_or_incarnation_is_not_heeded() -> None:
    group = Group(3).together()
    old = ViewId(4, 2)
    assert drops(group.receive(1, 2, Leave(old))) == ["a Leave of another view"]
    now = group[1].view.id
    assert drops(group.receive(1, 2, Leave(now), boot=1)) == ["a Leave of another view"]
    assert group[1].phase is Phase.STEADY


def test_g_5_a_member_lets_the_coordinator_know_whom_it_misses() -> None:
    group = Group(3).together()
    group.cut = {(3, 2)}  # only 2 does not hear 3
    group.pass_us(60_000)
    lists = [word.view.members for word in words(group.said[1], Installed)]
    assert lists[2] == (1, 2)


def test_fl_5_the_next_in_rank_takes_over() -> None:
    group = Group(4).together()
    group.crash(1)
    group.crash(2)
    group.pass_us(100_000)
    assert group.views() == [(3, 4), (3, 4)]


def test_fl_5_a_coordinator_that_dies_while_proposing_is_replaced() -> None:
    group = Group(4).together()
    group.agreeing = False  # nobody gets ready for the first proposal
    group.crash(4)
    for node in (1, 2, 3):
        group.receive(node, 4, Leave(group[1].view.id))
    group.run()
    assert [group[node].phase for node in (1, 2, 3)] == [Phase.CHANGING] * 3
    group.agreeing = True
    group.crash(1)
    group.pass_us(100_000)
    assert group.views() == [(2, 3), (2, 3)]


def test_fl_5_a_coordinator_that_does_not_act_is_passed_over() -> None:
    group = Group(3).together()
    group.crash(3)
    group.cut = {(2, 1)}  # what 2 complains of is not heard
    group[1].detector.machine.settings = Beats(
        beat_us=10_000, suspect_us=10**9, suspect_max_us=10**9
    )
    group.pass_us(300_000)
    assert group[2].view.members == (2,)


def test_fl_6_a_member_that_went_on_without_me_is_no_longer_waited_for() -> None:
    group = Group(3).together()
    later = ViewId(group[1].view.id.seq + 4, 2)
    group.agreeing = False
    for node in (2, 3):
        group.receive(1, node, Heartbeat(later))
    assert group[1].missed == {2, 3}
    assert group[1].proposal.view.members == (1,)


def test_fl_6_an_earlier_view_and_the_one_to_come_prove_nothing() -> None:
    group = Group(2).together()
    group.receive(1, 2, Heartbeat(ViewId(4, 2)))
    group.agreeing = False
    group.call(1, group[1].propose)
    group.run()
    to_come = group[2].proposal.view.id
    group.receive(2, 1, Heartbeat(to_come))
    assert group[2].missed == set()


def test_fl_6_the_excluded_comes_back_as_a_newcomer() -> None:
    group = Group(3).together()
    group.cut = {(3, 1), (3, 2)}
    group.pass_us(100_000)
    assert group.views() == [(1, 2), (1, 2), (3,)]
    group.cut = set()
    group.pass_us(300_000)
    assert group.views() == [(1, 2, 3)] * 3


# --- proposals --------------------------------------------------------------------------------


def proposal(group: Group, proposer: int, seq: int, *members: int) -> Propose:
    view = group[1].view
    chosen = members or (proposer, *(m for m in view.members if m != proposer))
    boots = tuple(group.boot(m) for m in chosen)
    return Propose(RankedView(ViewId(seq, proposer), chosen, boots), (view.id,) * len(chosen))


def test_g_9_the_highest_proposal_counts() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.say(3, 2, proposal(group, 2, 100, 2, 3))
    effects = group.say(3, 1, proposal(group, 1, 96))
    assert posted(effects, Refuse) == [(1, Refuse(ViewId(96, 1), group[3].view.id, ViewId(100, 2)))]
    group.say(3, 1, proposal(group, 1, 104))
    assert group[3].proposal.view.id == ViewId(104, 1)
    assert group.stable[3][VIEW_SEQ] == 104


def test_g_9_a_number_is_promised_once_whoever_proposes_it() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.say(3, 1, proposal(group, 1, 100))
    effects = group.say(3, 2, proposal(group, 2, 100, 2, 3))
    assert posted(effects, Refuse) == [
        (2, Refuse(ViewId(100, 2), group[3].view.id, ViewId(100, 1)))
    ]


def test_g_9_nothing_leads_back_from_a_promise() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.say(3, 2, proposal(group, 2, 100, 2, 3))
    effects = group.say(3, 1, Install(ViewId(96, 1)))
    assert drops(effects) == ["an Install of another proposal"]
    assert group[3].phase is Phase.CHANGING


def test_g_9_all_must_agree_before_anybody_installs() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.call(1, group[1].propose)
    group.run()
    group.agreeing = True
    proposed = group[1].proposal.view.id
    for node in (1, 2):
        group.call(node, group[node].agree, proposed)
    group.run()
    assert group[1].view.id != proposed
    group.call(3, group[3].agree, proposed)
    group.run()
    assert [group[node].view.id for node in group.ids] == [proposed] * 3


def test_g_9_an_agreement_to_an_earlier_proposal_does_not_count() -> None:
    group = Group(2).together()
    group.agreeing = False
    group.call(1, group[1].propose)
    first = group[1].proposal.view.id
    group.call(1, group[1].propose)
    second = group[1].proposal.view.id
    group.call(1, group[1].agree, second)
    group.say(1, 2, Agree(first))
    assert group[1].view.id < first
    group.say(1, 2, Agree(second))
    assert group[1].view.id == second


def test_fl_4_who_does_not_get_ready_is_left_behind() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.call(1, group[1].propose)
    group.run()
    for node in (1, 2):
        group.call(node, group[node].agree, group[1].proposal.view.id)
    group.agreeing = True
    group.run()
    group.fire(1, Timer.CHANGE)
    group.run()
    assert group[1].view.members == (1, 2)


def test_fl_5_a_refusal_makes_a_higher_proposal() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.call(1, group[1].propose)
    mine = group[1].proposal.view.id
    group.say(1, 3, Refuse(mine, group[1].view.id, ViewId(200, 2)))
    assert group.timers[1][Timer.CHANGE] <= group.now_us + 4 * SETTINGS.merge_us
    group.fire(1, Timer.CHANGE)
    assert group[1].proposal.view.id == ViewId(204, 1)
    assert group[1].proposal.view.members == (1, 2, 3)


def test_fl_5_one_that_is_elsewhere_is_left_out() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.call(1, group[1].propose)
    mine = group[1].proposal.view.id
    group.say(1, 3, Refuse(mine, ViewId(8, 3), ViewId(8, 3)))
    assert group[1].proposal.view.members == (1, 2)


def test_fl_5_who_waits_too_long_asks_its_coordinator() -> None:
    group = Group(3).together()
    group.agreeing = False
    group.say(3, 2, proposal(group, 2, 100, 2, 3))
    effects = group.fire(3, Timer.CHANGE)
    assert posted(effects, Complain) == [(1, Complain(group[3].view.id, ()))]
    group.agreeing = True
    group.pass_us(10_000)
    assert group[3].view.id.rep == 1
    assert group[3].view.id.seq > 100


@pytest.mark.parametrize(
    ("members", "boots", "bases", "rep"),
    [
        ((2, 1), (201,), 2, 2),  # a boot is missing
        ((2, 1), (201, 101), 1, 2),  # a base is missing
        ((2, 2, 1), (201, 201, 101), 3, 2),  # somebody twice
        ((1, 2), (101, 201), 2, 2),  # the proposer is not first
        ((2, 3), (201, 301), 2, 2),  # I am not in it
        ((2, 1), (201, 999), 2, 2),  # another incarnation of mine
    ],
)
def test_g_2_malformed_proposals_are_dropped(
    members: tuple[int, ...], boots: tuple[int, ...], bases: int, rep: int
) -> None:
    group = Group(3).together()
    view = RankedView(ViewId(100, rep), members, boots)
    effects = group.say(1, 2, Propose(view, (group[1].view.id,) * bases))
    assert drops(effects) == ["malformed proposal"]
    assert group[1].phase is Phase.STEADY


def test_g_2_malformed_announcements_are_dropped() -> None:
    group = Group(2).together()
    for view in (RankedView(ViewId(8, 3), (3,), ()), RankedView(ViewId(8, 3), (3,), (1,))):
        assert drops(group.receive(1, 2, Announce(view))) == ["malformed announcement"]


# --- going together ---------------------------------------------------------------------------


def apart() -> Group:
    """(1,2) and (3,4), which do not hear each other."""
    group = Group(4)
    sides = ((1, 2), (3, 4))
    group.cut = {
        (a, b) for a in group.ids for b in group.ids for s in sides if (a in s) != (b in s)
    }
    group.start()
    group.pass_us(50_000)
    assert group.views() == [(1, 2), (1, 2), (3, 4), (3, 4)]
    return group


def test_tl_22_views_that_meet_go_together_whole_under_a_number_above_both() -> None:
    group = apart()
    before = max(group[1].view.id.seq, group[3].view.id.seq)
    group.cut = set()
    for node in group.ids:
        group.said[node].clear()
    group.pass_us(100_000)
    assert group.views() == [(1, 2, 3, 4)] * 4
    assert group[4].view.id.seq > before
    together = [words(group.said[node], Installed)[-1].together for node in group.ids]
    assert together == [(1, 2), (1, 2), (3, 4), (3, 4)]


def test_tl_22_the_leader_hears_at_once_of_a_view_that_heard_of_it() -> None:
    group = apart()
    group.cut = set()
    effects = group.receive(3, 1, Announce(group[1].view))
    assert [e.to for e in effects if isinstance(e, Send)] == [1]
    assert sent(effects, Announce) == [Announce(group[3].view)]
    assert sent(group.receive(1, 3, Announce(group[3].view)), Announce) == []


def test_tl_22_a_view_whose_members_are_not_settled_stays_apart() -> None:
    group = Group(2)
    group.settling = False
    group.start()
    group.pass_us(300_000)
    assert group.views() == [(1,), (2,)]
    for node in group.ids:
        group.call(node, group[node].settle)
    group.pass_us(100_000)
    assert group.views() == [(1, 2), (1, 2)]


def test_tl_22_all_members_must_be_settled_before_a_view_is_announced() -> None:
    group = Group(2)
    group.start()
    group.pass_us(3_000)
    group.settling = False
    group.call(1, group[1].propose)
    group.run()
    assert not group[1].open
    group.call(1, group[1].settle)
    group.run()
    assert not group[1].open
    group.call(2, group[2].settle)
    group.run()
    assert group[1].open


def test_tl_22_nobody_is_excluded_and_taken_in_at_once() -> None:
    group = Group(4)
    group.cut = {(4, node) for node in group.ids} | {(node, 4) for node in group.ids}
    group.start()
    group.pass_us(10_000)
    ours, theirs = group[1].view.id, group[4].view.id
    boots = tuple(group.boot(node) for node in (4, 1, 3))
    without_2 = Propose(RankedView(ViewId(100, 4), (4, 1, 3), boots), (theirs, ours, ours))
    effects = group.say(1, 4, without_2)
    assert posted(effects, Refuse) == [(4, Refuse(ViewId(100, 4), ours, ours))]


def test_tl_22_who_waits_for_a_merge_that_is_given_up_is_told() -> None:
    group = apart()
    group.cut = set()
    group.agreeing = False
    group.pass_us(60_000)
    assert [group[node].phase for node in (1, 2, 3, 4)] == [Phase.CHANGING] * 4
    merge = group[1].proposal.view.id
    effects = group.receive(1, 3, Leave(group[3].view.id))
    assert {to for to, word in posted(effects, Cancel) if word.id == merge} == {3, 4}
    assert group[1].proposal.view.members == (1, 2)
    group.agreeing = True
    group.pass_us(400_000)
    assert len(set(group.views())) == 1


def test_tl_22_who_started_again_is_excluded_before_it_is_taken_in() -> None:
    group = Group(3).together()
    group.crash(3)
    group.start(3)
    group.pass_us(100_000)
    assert group.views() == [(1, 2, 3)] * 3
    lists = [word.view.members for word in words(group.said[1], Installed)]
    assert lists[-2:] == [(1, 2), (1, 2, 3)]


def test_what_is_not_of_the_membership_goes_to_the_owner() -> None:
    group = Group(2).together()
    group.call(1, group[1].post, 2, Heartbeat(ViewId(8, 1)))
    group.run()
    payloads = [getattr(word, "payload", None) for word in group.said[2]]
    assert Heartbeat(ViewId(8, 1)) in payloads
    assert not any(isinstance(effect, Up) for effect in group.handle(1, Leaving()))

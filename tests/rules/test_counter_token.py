"""The token of the counter-based protocol: hearing, owning, passing on, watching over it."""

from __future__ import annotations

from cb import Group, Timer, msgs, tokens
from driver import drops, sent

from ringcast.core.effects import InstallView
from ringcast.protocols.counter.messages import Entry, Prep, Req


def test_cb_3_only_the_next_owner_in_the_right_rotation_accepts() -> None:
    """A1, A3: n is the next owner; t is one more than its cycle."""
    group = Group().up()
    group.receive(3, group.token(1, 2, 1, 1), 1)
    assert group[3].held is None
    group.receive(2, group.token(1, 2, 1, 1), 1)
    assert group[2].held is not None and group[2].P == 1


def test_cb_3_a_duplicate_is_not_accepted_again() -> None:
    """A18, CB-T12: hops tell, not the time between two tokens."""
    group = Group().up()
    group.pass_on(4)
    before = group[2].snapshot()
    group.receive(2, group.token(1, 2, 1, 1), 1)
    assert {**group[2].snapshot()} == before


def test_cb_4_every_own_entry_that_all_hold_is_removed_of_whatever_cycle() -> None:
    """A4."""
    group = Group().up()
    group[2].P = 4
    for mine in (group.msg(2, 1, 1), group.msg(2, 3, 2)):
        group[2].holding.data[mine.key] = mine
    old = group.entry(2, 1, (1, 1), 1, 3)
    new = group.entry(2, 3, (2, 2), 1)
    group.receive(2, group.token(1, 2, 5, 13, old, new), 1)
    held = group[2].held
    assert held is not None and [e.cycle for e in held.S] == [3]


def test_cb_5_all_begin_in_one_list_and_the_start_node_with_a_token() -> None:
    group = Group()
    effects = group.start(1)
    (view,) = [e for e in effects if isinstance(e, InstallView)]
    assert view.members == (1, 2, 3) and not view.transitional
    assert group[1].P == 1 and group[1].held is not None
    group.start(2)
    assert group[2].P == 0 and group[2].held is None


def test_cb_6_every_token_heard_is_examined() -> None:
    """Whoever it is for: what it lists and is missing is asked for."""
    group = Group().up()
    effects = group.receive(3, group.token(1, 2, 1, 1, group.entry(1, 0, (1, 1))), 1)
    assert [(r.sender, r.wanted) for r in sent(effects, Req)] == [(1, (0, 1, 1))]


def test_cb_7_a_stale_token_is_answered_with_the_later_one_once() -> None:
    """A12, CB-T11: our successor's evidence that it took over."""
    group = Group().up()
    group.pass_on(2)
    stale = group[1].released
    assert stale is not None
    evidence = tokens(group.receive(2, stale, 1))
    assert evidence == [group[2].released]
    assert not tokens(group.receive(2, stale, 1))
    group.now_us += group.config.reissue_us
    assert tokens(group.receive(2, stale, 1))


def test_cb_22_an_entry_is_counted_once_and_only_if_all_of_it_is_here() -> None:
    """CB-12, A23: the cycle of an entry is its own."""
    group = Group(packing=False).up()
    group.submit(1, b"a", b"b")
    group.broadcasts = [(to, frame) for to, frame in group.broadcasts if to != 3]
    group.pass_on(3)
    (token,) = tokens(group.pass_on())
    (entry,) = token.S
    assert entry.acks == ()
    (token,) = tokens(group.fire(group.owner(), Timer.OWNER))
    assert token.S[0].acks == (2,)


def test_cb_14_what_comes_while_the_token_is_here_counts() -> None:
    """CB-T5: whether it is here is asked at release."""
    group = Group().up()
    group.receive(2, group.token(1, 2, 1, 1, group.entry(1, 0, (1, 1))), 1)
    group.receive(2, group.msg(1, 0, 1), 1)
    (token,) = tokens(group.fire(2, Timer.OWNER))
    assert token.S[0].acks == (2,)


def test_cb_23_a_release_counts_lists_and_names_the_next_owner() -> None:
    """A21, CB-T1: Figure 2 (b)."""
    group = Group(packing=False).up()
    group.submit(2, b"b1", b"b2", b"b3")
    group[2].P = 0
    group.receive(2, group.msg(1, 0, 1), 1)
    group.receive(2, group.token(1, 2, 1, 1, group.entry(1, 0, (1, 1))), 1)
    (token,) = tokens(group.fire(2, Timer.OWNER))
    assert (token.c, token.n, token.t, token.hop) == (2, 3, 1, 2)
    assert [(e.sender, e.cycle, e.ids, e.acks) for e in token.S] == [
        (1, 0, (1, 1), (2,)),
        (2, 0, (1, 3), ()),
    ]
    assert Timer.MONITOR in group.timers[2]


def test_cb_24_who_sent_nothing_appends_nothing() -> None:
    group = Group().up()
    (token,) = tokens(group.pass_on())
    assert token.S == ()


def test_a24_an_idle_token_rests_until_there_is_something_to_do() -> None:
    group = Group(token_us=0, idle_us=5_000).up()
    group.run(lambda: any(machine.resting for machine in group.machines.values()))
    (owner,) = (node for node in group.ids if group[node].resting)
    other = owner % 3 + 1
    (message,) = msgs(group.submit(other, b"a"))
    assert tokens(group.receive(owner, message, other))


def test_cb_25_a_token_without_progress_is_sent_again_and_progress_ends_it() -> None:
    """CB-26, CB-T10: the very same token, L times at most."""
    group = Group(reissues=2).up()
    (token,) = tokens(group.fire(1, Timer.OWNER))
    group.lose()
    assert tokens(group.fire(1, Timer.MONITOR)) == [token]
    group.receive(1, group.token(2, 3, 1, 2), 2)
    assert Timer.MONITOR not in group.timers[1]


def test_cb_26_a_reissue_is_identical() -> None:
    group = Group().up()
    group.submit(1, b"a")
    (token,) = tokens(group.fire(1, Timer.OWNER))
    group.lose()
    group.submit(1, b"b")
    (again,) = tokens(group.fire(1, Timer.MONITOR))
    assert again is token


def test_cb_27_after_l_reissues_a_reformation_is_called_for() -> None:
    """Nobody is deleted by one member alone."""
    group = Group(reissues=2).up()
    group.fire(1, Timer.OWNER)
    for _ in range(2):
        group.lose()
        assert not sent(group.fire(1, Timer.MONITOR), Prep)
    assert sent(group.fire(1, Timer.MONITOR), Prep)
    assert group[1].list.members == (1, 2, 3)


def test_cb_34_the_next_one_raises_the_rotation_when_the_head_is_gone() -> None:
    group = Group().up()
    lists = (group.list(), group.list(2, 3, no=2, first=2))
    group.receive(2, group.token(1, 2, 1, 1, lists=lists), 1)
    group.fire(2, Timer.OWNER)
    group.receive(2, group.token(3, 2, 1, 3, lists=lists), 3)
    (token,) = tokens(group.fire(2, Timer.OWNER))
    assert token.t == 2


def test_cb_24_an_entry_without_messages_is_malformed() -> None:
    """Nobody lists one; a member that got one of its own ended with an error."""
    group = Group().up()
    effects = group.receive(2, group.token(1, 2, 1, 1, Entry(2, 0, 1, (), (), (), 0)), 1)
    assert drops(effects) == ["malformed token"]

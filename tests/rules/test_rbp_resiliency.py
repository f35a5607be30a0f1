"""RBP: how many must hold what is delivered, and what is kept (K1 to K7)."""

from __future__ import annotations

import pytest
from driver import drops, stops
from rbp import FIRST, Group, said

from ringcast.core.ids import Level, ViewId
from ringcast.protocols.rbp import SHEET, Config, claims
from ringcast.protocols.rbp.config import Resiliency
from ringcast.protocols.rbp.delivery import deliver, holders
from ringcast.protocols.rbp.epochs import Entry, Epoch, Ids


def test_k1_numbers_of_this_epoch_prove_who_holds_what() -> None:
    """K1, G36: each number one holder more; nothing at the start, and never more than the ring."""
    group = Group(4).up().token_at(2)
    machine = group[2]
    last = machine.ring.seen
    assert holders(machine, last) == 1
    assert holders(machine, last + 1) == 0
    assert holders(machine, 1) == min(4, last)
    machine.ring.seen = 0
    assert holders(machine, 1) == 0


def test_k2_an_entry_of_another_view_ends_the_process() -> None:
    """K2: it belongs to no view of ours, so somebody has said what is not so; we stop, and say
    so."""
    group = Group(3).up().token_at(2)
    site, env = group[3], group.envs[3]
    forged = ViewId(FIRST.view.seq + 23, 1)
    site.log.file(Entry(site.log.held + 1, Epoch(forged), (Ids(1, 1, 1),)))
    site.log.store(group.data(1, 1, view=forged))
    assert site.log.advance()
    site.ring.seen = site.log.held + 2
    deliver(site, env)
    effects = env.take()
    assert stops(effects) == [f"broken invariant: an entry of {forged} in view (1,1) (rbp K2)"]
    assert not said(effects)


@pytest.mark.parametrize(("n", "passes"), [(2, 2), (3, 3), (5, 5)])
def test_k2_total_resiliency_waits_for_the_whole_ring(n: int, passes: int) -> None:
    """K2, G11: number j is delivered upon j + n - 1, neither earlier nor one later."""
    group = Group(n).up().token_at(2)
    number = group[2].ring.seen + 1
    group.submit(2, b"a")
    seen = {}
    while group.broadcasts or group.unicasts:
        node, effects = group.step()
        if said(effects):
            seen[node] = group[node].ring.seen
    assert set(seen.values()) == {number + passes - 1}


def test_k3_the_least_safe_level_grows_with_the_group() -> None:
    """K3, G21: h + q > n."""
    least = {}
    for n in (2, 3, 4, 5, 7):
        config = Config(members=tuple(range(1, n + 1)), resiliency=Resiliency.MAJORITY)
        least[n] = config.holders(n)
        assert config.holders(n) + config.majority > n
    assert least == {2: 1, 3: 2, 4: 2, 5: 3, 7: 4}


def test_k4_levels_and_what_they_claim() -> None:
    """K4, G22, G23: a number f waits for f + 1 holders, and its changes for all but f."""
    members = tuple(range(1, 6))
    number = Config(members=members, resiliency=Resiliency.NUMBER, tolerated=1)
    assert (number.holders(5), number.awaited(5), number.faults) == (2, 4, 1)
    total = Config(members=members)
    assert (total.holders(5), total.holders(3), total.awaited(5), total.faults) == (5, 3, 1, 2)
    unsafe = Config(members=members, resiliency=Resiliency.UNSAFE)
    assert unsafe.holders(5) == 1
    assert set(claims(total)) - set(claims(unsafe)) >= {"uniform-in-view", "one-log", "D10"}
    assert claims(number) == claims(total)
    with pytest.raises(ValueError, match=r"act_us = 1 must be at least idle_us"):
        Config(act_us=1)


def test_k4_unsafe_delivers_at_once_and_a_safe_message_waits_for_all() -> None:
    """K4: at every level a safe message is delivered when all of the ring hold it."""
    group = Group(resiliency="unsafe").up().token_at(2)
    assert said(group.submit(2, b"a")) == [b"a"]
    group.settle()
    group.token_at(2)
    assert said(group.submit(2, b"b", level=Level.SAFE)) == []
    group.settle()
    assert [group.told(node) for node in group.ids] == [[b"a", b"b"]] * 3


def test_k5_what_is_not_stable_in_the_ring_is_kept() -> None:
    """K5: however little may be kept, what a member of the ring may lack stays."""
    group = Group(resiliency="majority", history_bytes=0).up().token_at(2)
    for at in range(20):
        group.submit(1 + at % 3, b"x" * 50)
        group.settle()
    machine = group[1]
    stable = machine.ring.seen - 2
    assert 0 < machine.log.floor <= stable
    assert machine.log.read(stable, machine.log.held, 9) is not None


def test_k6_an_ordered_body_is_never_ordered_again_and_the_window_bounds_the_rest() -> None:
    """K6, G9: the filter is one counter for each source."""
    group = Group(window=2).up().token_at(2)
    group.submit(1, b"a")
    group.settle()
    group.pass_on(3)
    (again,) = [group.data(1, 1, b"a")]
    for node in (2, 3):
        assert drops(group.receive(node, again, 1)) == ["a body that is ordered"]
        assert not group[node].log.pool
    assert drops(group.receive(2, group.data(1, 99), 1)) == ["a body beyond the window"]
    for at in range(9):
        group.submit(3, b"%d" % at * 1300)
    assert len(group[3].sending.mine) <= 2
    group.settle()
    group.pass_on(20)
    assert group.told(1) == group.told(3) and len(group.told(1)) == 10


def test_k6_what_was_let_go_stays_in_the_filter_when_the_log_is_cut() -> None:
    group = Group(history_bytes=0).up().token_at(2)
    for _ in range(6):
        group.submit(1, b"x")
        group.settle()
    group.submit(1, b"x")
    log = group[2].log
    group.run(lambda: log.named == {1: 7})
    assert log.number_of((log.view, 1, 6)) is None, "it was let go"
    log.cut(log.floor)
    assert log.named == {1: 6}
    assert log.select(9) == (Ids(1, 7, 7),)


def test_k7_what_all_hold_is_kept_while_there_is_room() -> None:
    """K7: for members that were away; the oldest go first."""
    group = Group(history_bytes=3000).up().token_at(2)
    for _ in range(30):
        group.submit(1, b"x" * 100)
        group.settle()
    log = group[2].log
    assert log.floor > 0
    assert log.bytes <= 3000 + 1000
    assert log.read(log.floor - 1, log.held, 5) is None
    kept = log.read(log.floor, log.held, 5)
    assert kept is not None and kept[0].number == log.floor + 1
    assert SHEET.default.history_bytes > 2**20

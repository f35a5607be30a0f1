"""Leaving on purpose (R26 ext): beyond the paper, where a leaver is one that falls silent."""

from __future__ import annotations

import pytest
from driver import Bench, only_dropped, sent, stops

from ringcast.core.ids import ViewId
from ringcast.core.inputs import Leaving
from ringcast.protocols.totem_single.messages import Join, Leave
from ringcast.protocols.totem_single.state import Phase


@pytest.fixture
def bench() -> Bench:
    """Ring (8,1) of 1, 2, 3."""
    bench = Bench().to_ring()
    bench.lose()
    return bench


def test_r26_ext_who_leaves_says_so_and_stops(bench: Bench) -> None:
    effects = bench.handle(2, Leaving())
    assert sent(effects, Leave) == [Leave(ViewId(8, 1), 2)]
    assert stops(effects) == ["left"]


def test_r26_ext_a_leaver_is_failed_at_once(bench: Bench) -> None:
    """Nobody waits for token loss or the Consensus timeout."""
    (join,) = sent(bench.receive(1, Leave(ViewId(8, 1), 2), src=2), Join)
    assert (join.proc_set, join.fail_set) == ((1, 2, 3), (2,))
    assert bench[1].phase is Phase.GATHER


def test_r26_ext_a_late_leave_of_another_ring_is_ignored(bench: Bench) -> None:
    """The leaver may have come back since."""
    assert only_dropped(bench.receive(1, Leave(ViewId(4, 2), 2), src=2))
    assert only_dropped(bench.receive(1, Leave(ViewId(8, 1), 9), src=9))
    assert bench[1].phase is Phase.OPERATIONAL


@pytest.mark.parametrize("phase", [Phase.COMMIT, Phase.RECOVER])
def test_r26_ext_a_ring_being_formed_is_given_up(phase: Phase) -> None:
    bench = Bench().to_ring().to_gather().to_phase(2, phase)
    bench.receive(2, Leave(bench[2].my_ring_id, 3), src=3)
    assert bench[2].phase is Phase.GATHER
    assert bench[2].snapshot()["fail_set"] == (3,)


def test_r26_ext_the_last_one_is_alone_at_once() -> None:
    bench = Bench(2).to_ring()
    bench.lose()
    bench.receive(1, Leave(ViewId(8, 1), 2), src=2)
    assert bench[1].phase is Phase.OPERATIONAL
    assert bench[1].snapshot()["memb"] == (1,)

"""Flow control: the allowance, the round of retransmissions, and the window that adapts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.ids import ViewId
from ringcast.protocols.totem_single import Config, flow
from ringcast.protocols.totem_single.messages import Token


def token(seq: int = 0, retrans_round: int = 0) -> Token:
    return Token(ViewId(8, 1), 1, seq, 0, None, (), retrans_round, False)


@pytest.mark.parametrize(
    ("min_each", "rotations"),
    [(1, [[10, 10, 1], [9, 10, 1], [9, 10, 1]]), (0, [[10, 10, 0]] * 3)],
)
def test_the_sequence_of_a_saturated_ring(min_each: int, rotations: list[list[int]]) -> None:
    """R84, R87, S11: three processors, window 20, each_time 10."""
    config = Config(each_time=10, min_each=min_each)
    last_token_seq = [0, 0, 0]
    seq = 0
    for expected in rotations:
        for node in range(3):
            allowed = flow.allowance(config, 20, token(seq), last_token_seq[node], 0)
            assert allowed == expected[node]
            seq += allowed
            last_token_seq[node] = seq


@given(
    st.integers(0, 20),
    st.integers(1, 100),
    st.integers(0, 200),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_the_allowance_stays_between_its_bounds(
    min_each: int, window: int, others: int, rtx: int, own_rtx: int
) -> None:
    config = Config(each_time=20, min_each=min_each)
    allowed = flow.allowance(config, window, token(1000 + others, rtx + own_rtx), 1000, own_rtx)
    assert min_each <= allowed <= 20
    assert allowed <= max(min_each, window - others - rtx, 0)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=30))
def test_the_round_counts_the_last_rotation(resent: list[int]) -> None:
    """R85: each replaces its own share, so the token shows the last n visits' retransmissions."""
    n, last, round_ = 3, [0, 0, 0], 0
    for at, now in enumerate(resent):
        round_ = flow.next_retrans_round(token(retrans_round=round_), last[at % n], now)
        last[at % n] = now
        assert round_ == sum(resent[max(0, at - n + 1) : at + 1])


windows = st.integers(10, 400)
ADAPTIVE = Config(min_window=10, max_window=400, target_rotation_us=50_000)


@given(windows, st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 10**6))
def test_the_window_stays_within_its_bounds(
    window: int, used: int, retrans_round: int, rotation_us: int
) -> None:
    after = flow.next_window(ADAPTIVE, window, token(0, retrans_round), used, rotation_us)
    assert 10 <= after <= 400
    assert abs(after - window) <= max(1, window // 8)


@given(windows, st.integers(1, 400))
def test_loss_shrinks_the_window(window: int, used: int) -> None:
    after = flow.next_window(ADAPTIVE, window, token(0, used), max(used, 20), 0)
    assert after < window or after == 10 or used * 20 <= max(used, 20)


@given(windows, st.integers(0, 400), st.integers(0, 50_000))
def test_the_window_grows_only_when_used(window: int, used: int, rotation_us: int) -> None:
    after = flow.next_window(ADAPTIVE, window, token(), used, rotation_us)
    if used * 4 >= window * 3:
        assert after > window or after == 400
    else:
        assert after == window


@given(windows, st.integers(0, 400))
def test_a_slow_rotation_shrinks_a_window_in_use(window: int, used: int) -> None:
    after = flow.next_window(ADAPTIVE, window, token(), window + used, 50_001)
    assert after < window or after == 10


def test_a_window_nobody_uses_stays_however_long_the_rotation() -> None:
    """R92: the idle hold makes rotations long; that says nothing about receivers."""
    assert flow.next_window(ADAPTIVE, 50, token(), 0, 60_000) == 50


def test_repeated_use_without_loss_reaches_the_upper_bound() -> None:
    window = 10
    for _ in range(60):
        window = flow.next_window(ADAPTIVE, window, token(), window, 1000)
    assert window == 400

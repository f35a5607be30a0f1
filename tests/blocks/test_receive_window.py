"""The window against a naive twin, and its bounds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.blocks.receive_window import FEW, FRAME_BYTES, MAX_BYTES, ReceiveWindow


class Frame(msgspec.Struct, frozen=True):
    """A frame of a given size."""

    size: int = 0

    def wire_bytes(self) -> int:
        return self.size


SMALL = Frame()


def full(frames: int, max_bytes: int = MAX_BYTES, size: int = 0) -> ReceiveWindow[Frame]:
    """A window with numbers 1 .. ``frames``."""
    window = ReceiveWindow[Frame](2**20, max_bytes)
    for seq in range(1, frames + 1):
        assert window.put(seq, Frame(size))
    return window


steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "keep", "release"]), st.integers(1, 40)),
    max_size=60,
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(steps, st.integers(1, 40), st.integers(1, 10))
def test_a_window_holds_what_a_set_of_numbers_would_hold(
    script: list[tuple[str, int]], ahead: int, first: int
) -> None:
    window = ReceiveWindow[Frame](ahead)
    window.begin(first)
    seen: set[int] = set(range(first))
    for what, seq in script:
        got = next(n for n in range(100) if n + 1 not in seen)
        if what == "release":
            window.release(min(seq, got))
        else:
            fresh = seq not in seen and (what == "keep" or seq <= got + ahead)
            assert (window.keep if what == "keep" else window.put)(seq, SMALL) is fresh
            seen |= {seq} if fresh else set()
        got = next(n for n in range(100) if n + 1 not in seen)
        assert window.got == got
        assert window.missing(40, 5) == [n for n in range(1, 41) if n not in seen][:5]
        assert window.store.keys() == {n for n in seen if n > window.released}


def test_numbers_below_the_first_leave_the_window() -> None:
    window = full(5)
    window.put(8, SMALL)
    window.begin(4)
    assert (window.got, window.released, sorted(window.store)) == (5, 3, [4, 5, 8])


@pytest.mark.parametrize("size", [0, 1000, 60_000])
def test_bytes_are_bounded_whatever_a_peer_sends(size: int) -> None:
    """Issue: a store that was bounded in frames alone took 455 MiB in 40 s."""
    window = ReceiveWindow[Frame](2**20, 200 * 2**20)
    for seq in range(1, 400_000):
        window.put(2 * seq, Frame(size))  # never in order, so that nothing is released
    held = sum(FRAME_BYTES + frame.size for frame in window.store.values())
    assert held <= 200 * 2**20
    assert len(window.store) > FEW  # the first few are never refused
    assert held > 100 * 2**20 or len(window.store) == 399_999


def test_room_comes_back_with_a_release() -> None:
    window = full(3 * FEW, max_bytes=(3 * FEW) * (FRAME_BYTES + 100), size=100)
    assert window.crowded
    assert not window.put(3 * FEW + 1, Frame(100))
    window.release(1)
    assert window.put(3 * FEW + 1, Frame(100))
    assert not window.put(3 * FEW + 2, Frame(100))
    window.release(3 * FEW + 1)
    assert not window.crowded and not window.store
    assert all(window.put(3 * FEW + 1 + n, Frame(60_000)) for n in range(1, FEW))


def test_own_frames_are_kept_and_counted() -> None:
    window = full(FEW + 1, max_bytes=(FEW + 1) * FRAME_BYTES)
    assert not window.put(FEW + 2, SMALL)
    assert window.keep(FEW + 2, SMALL)
    window.release(1)
    assert not window.put(FEW + 3, SMALL)  # what was kept takes the room
    window.release(2)
    assert window.put(FEW + 3, SMALL)


def test_a_wild_number_goes_no_further() -> None:
    window = ReceiveWindow[Frame](1000)
    assert not window.put(1001, SMALL) and window.put(1000, SMALL)
    assert window.keep(5000, SMALL)

"""The fuzzer of ``bench/fuzz``: a short run of everything, and that it sees what it looks for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[2] / "bench" / "fuzz"
sys.path.insert(0, str(FUZZ))

import campaign  # noqa: E402
import over_sockets  # noqa: E402
import spoilt_files  # noqa: E402
from published import PUBLISHED  # noqa: E402

from ringcast.journal.merged_reader import MergedReader  # noqa: E402
from ringcast.protocols.totem_single import TotemSingle  # noqa: E402
from ringcast.protocols.totem_single.messages import Join  # noqa: E402

NAMES = [sheet.name for sheet in PUBLISHED if sheet.live]


@pytest.mark.parametrize("seed", [900_001, 900_002])
@pytest.mark.parametrize("name", NAMES)
def test_no_frame_of_a_member_breaks_a_machine(name: str, seed: int) -> None:
    found = campaign.frames(name, seed)
    assert found["done"] == campaign.ROUND
    assert found["refused"] < 0.7 * campaign.ROUND, "most frames get to the machine"


# A node that stops while somebody calls: asyncio leaves what it has accepted and not begun open.
@pytest.mark.filterwarnings("ignore:.*unclosed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", NAMES)
def test_no_frame_over_sockets_breaks_a_node(name: str) -> None:
    """One of counter's ended a node: the number after the last cannot be sent."""
    assert over_sockets.round_of([name], 900_001, 1000)["done"] > 0


def test_no_bytes_raise_what_is_not_promised() -> None:
    assert spoilt_files.round_of(900_001, 1500)["refused"] > 1000


def test_it_finds_a_question_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Seek of a guest raised in the node: the fuzzer decoded questions, and answered none."""

    def wrong(self: MergedReader, *_: object) -> None:
        raise IndexError("once, with no rows")

    monkeypatch.setattr(MergedReader, "after_rows", wrong)
    monkeypatch.setattr(spoilt_files, "SERVED", 0.9)
    with pytest.raises(AssertionError, match=r"Seek.*raised IndexError"):
        spoilt_files.round_of(900_001, 200)


# --- wrong machines that it must find -----------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    right = TotemSingle.handle

    def wrong(self: TotemSingle, env: Any, event: Any) -> None:
        if type(getattr(event, "message", None)) is Join:
            fault(self, env, event.message)
        right(self, env, event)

    monkeypatch.setattr(TotemSingle, "handle", wrong)


def test_it_finds_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: TotemSingle, env: Any, join: Join) -> None:
        assert join.ring_seq < 2**40

    broken(monkeypatch, fault)
    with pytest.raises(AssertionError):
        campaign.frames("totem", 900_001)


def test_it_finds_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: TotemSingle, env: Any, join: Join) -> None:
        self.__dict__.setdefault("forgotten", []).append(bytearray(2**20))

    broken(monkeypatch, fault)
    with pytest.raises(AssertionError, match="bytes"):
        campaign.frames("totem", 900_001)


def test_it_finds_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: TotemSingle, env: Any, join: Join) -> None:
        if join.ring_seq > 2**40:
            until = time.thread_time_ns() + 2000 * campaign.STEP_US
            while time.thread_time_ns() < until:
                pass

    broken(monkeypatch, fault)
    assert campaign.frames("totem", 900_001)["longest_us"] > campaign.STEP_US


def test_it_finds_a_frame_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: TotemSingle, env: Any, join: Join) -> None:
        env.broadcast(Join(1, join.ring_seq + 2**62, (), (), 0, 0))

    broken(monkeypatch, fault)
    with pytest.raises((OverflowError, ValueError)):
        campaign.frames("totem", 900_001)


def test_it_finds_a_stop_for_no_good_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(self: TotemSingle, env: Any, join: Join) -> None:
        if join.ring_seq > 2**40:
            env.stop("impossible input: once a Join could do that")

    broken(monkeypatch, fault)
    with pytest.raises(AssertionError, match="impossible input"):
        campaign.frames("totem", 900_001)

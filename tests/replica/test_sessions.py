"""Requests that are repeated: the result of the first time, within stated bounds."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ringcast.replica import sessions
from ringcast.replica.sessions import CommandFailed, RequestOutcome, RequestTooOld, Sessions
from ringcast.replica.words import Ticket


def again(table: Sessions) -> Sessions:
    """As a snapshot brings it to another member."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(table), type=Sessions)


def test_a_repetition_gives_the_recorded_result() -> None:
    table = Sessions()
    assert table.recall("c17", 4) is None
    table.record("c17", 4, RequestOutcome.of({"seat": 7}))
    for each in (table, again(table)):
        found = each.recall("c17", 4)
        assert found is not None
        assert found.get() == {"seat": 7}
        assert each.recall("c17", 5) is None
        assert each.recall("c18", 4) is None
    assert Sessions().clients == {}, "tables share nothing"


def test_an_error_is_a_result_too() -> None:
    class SoldOut(Exception):
        pass

    for error, kind, text in (
        (ValueError("no such seat"), ValueError, "no such seat"),
        (SoldOut("seat 7"), CommandFailed, "SoldOut: seat 7"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), CommandFailed, "UnicodeDecodeError"),
    ):
        with pytest.raises(kind, match=text):
            RequestOutcome.failed(error).get()
    with pytest.raises(CommandFailed, match="applied, but its result cannot be kept"):
        RequestOutcome.of(object()).get()
    with pytest.raises(CommandFailed, match="applied, but"):
        RequestOutcome.of(2**70).get()


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError


class Point(msgspec.Struct):
    inside: object = None


def nested(depth: int, kind: type = list) -> object:
    value: object = 1
    for _ in range(depth):
        value = Point(value) if kind is Point else kind([value])
    return value


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("half a \ud800", "surrogates"),
        (nested(5000), "nested more than 100"),
        (nested(101, tuple), "nested more than 100"),
        (nested(101, Point), "nested more than 100"),
        ({"a": object()}, "object"),
    ],
    ids=["text", "far too deep", "too deep", "structs too deep", "object"],
)
def test_a_result_that_cannot_be_kept_is_an_error_that_can(result: object, why: str) -> None:
    """It was applied, so it is an outcome, the same at all members; nothing escapes."""
    table = Sessions()
    table.record("c", 1, RequestOutcome.of(result))
    found = again(table).recall("c", 1)
    assert found is not None
    with pytest.raises(CommandFailed, match=f"applied, but its result cannot be kept.*{why}"):
        found.get()


def test_what_is_just_not_too_deep_is_kept() -> None:
    assert RequestOutcome.of(nested(100)).get() == nested(100)
    loop: list[object] = []
    loop += [loop, loop]
    assert RequestOutcome.of(loop).error, "without end, and found so at once"


def test_every_text_of_an_error_can_be_kept() -> None:
    for error, text in ((ValueError("no \ud800"), r"no \\ud800"), (Silent(), "cannot be had")):
        table = Sessions()
        table.record("c", 1, RequestOutcome.failed(error))
        found = again(table).recall("c", 1)
        assert found is not None
        with pytest.raises((ValueError, CommandFailed), match=text):
            found.get()


def test_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CLIENTS", 3)
    table = Sessions()
    for number in range(40):
        table.record("a", number, RequestOutcome.of(number))
    found = table.recall("a", 40 - sessions.REQUESTS)
    assert found is not None
    assert found.get() == 40 - sessions.REQUESTS
    too_old = table.recall("a", 39 - sessions.REQUESTS)
    assert too_old is not None
    with pytest.raises(RequestTooOld, match="kept for 16 requests"):
        too_old.get()
    for client in "bcad":
        table.record(client, 100, RequestOutcome.of(client))
    assert list(table.clients) == ["c", "a", "d"]


def test_made_up_incarnations_make_nobody_forget_another_s() -> None:
    """A thousand of one member had a command of another applied again."""
    table = Sessions()
    assert table.fresh(Ticket(1, 5, 1)) and table.fresh(Ticket(12, 5, 1))
    for boot in range(2 * sessions.INCARNATIONS):
        assert table.fresh(Ticket(2, boot, 1))
    assert not table.fresh(Ticket(1, 5, 1)) and not table.fresh(Ticket(12, 5, 1))
    assert len(table.replicas) == 2 + sessions.LIVES
    assert not table.fresh(Ticket(2, boot, 1)), "the newest are known"


@pytest.mark.parametrize("seed", range(20))
def test_a_submission_of_a_replica_counts_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers come in any order within the window, and perhaps again; each is fresh once."""
    monkeypatch.setattr(sessions, "WINDOW", 8)
    rng = Random(seed)
    table, applied = Sessions(), []
    waiting = list(range(1, 9))
    following = 9
    while following < 200:
        number = rng.choice(waiting)
        if table.fresh(Ticket(1, 5, number)):
            applied.append(number)
        if rng.random() < 0.7:
            waiting.remove(number)
            while following < min(waiting, default=following) + 8:
                waiting.append(following)
                following += 1
        table = again(table)
        assert len(table.replicas["1/5"].numbers) <= 8
    assert len(applied) == len(set(applied))
    assert set(applied) >= set(range(1, min(waiting)))
    assert table.fresh(Ticket(1, 6, 1)), "another incarnation"

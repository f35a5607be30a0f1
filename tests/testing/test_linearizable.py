"""The checker of linearizability: it agrees with trying all orders, and refuses wrong histories."""

from __future__ import annotations

from itertools import count, permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.testing import (
    IMPOSSIBLE,
    UNKNOWN,
    DictModel,
    LockModel,
    Model,
    NotLinearizable,
    Operation,
    OperationHistory,
    QueueModel,
    Undecided,
)
from ringcast.testing.linearizable import check


def history(*lines: tuple[float, float, str, str, tuple[Any, ...], Any]) -> OperationHistory:
    """From lines (called, returned, client, name, arguments, result)."""
    found = OperationHistory(lambda: 0.0)
    for called, returned, client, name, args, result in lines:
        found.operations.append(Operation(client, name, args, called, returned, result))
    return found


def fine(model: Model, *lines: Any) -> bool:
    try:
        history(*lines).check(model)
    except NotLinearizable:
        return False
    return True


SET = (1, 2, "a", "set", ("k", 1), None)


@pytest.mark.parametrize(
    ("lines", "right"),
    [
        ([SET, (3, 4, "b", "get", ("k",), 1)], True),
        ([SET, (3, 4, "b", "get", ("k",), None)], False),  # stale
        ([SET, (1.5, 4, "b", "get", ("k",), None)], True),  # at the same time
        ([SET, (3, 4, "b", "get", ("other",), None)], True),
        ([(1, inf, "a", "set", ("k", 1), UNKNOWN), (3, 4, "b", "get", ("k",), 1)], True),
        (
            [
                (1, inf, "a", "set", ("k", 1), UNKNOWN),
                (3, 4, "b", "get", ("k",), 1),
                (5, 6, "b", "get", ("k",), None),
            ],
            False,  # it took effect, and is gone
        ),
        ([SET, (3, 4, "b", "compare_and_set", ("k", 1, 2), False)], False),
        (
            [
                SET,
                (3, 6, "b", "compare_and_set", ("k", 1, 2), True),
                (3, 6, "c", "compare_and_set", ("k", 1, 3), True),
            ],
            False,  # both
        ),
        ([SET, (3, 4, "b", "delete", ("k",), True), (5, 6, "b", "delete", ("k",), False)], True),
    ],
)
def test_a_dict(lines: list[Any], right: bool) -> None:
    assert fine(DictModel(), *lines) is right


def test_a_queue() -> None:
    put = [(n, n + 0.5, "a", "put", (n,), n) for n in (1, 2, 3)]
    assert fine(QueueModel(), *put, (5, 6, "b", "get", (), 1), (7, 8, "c", "get", (), 2))
    assert fine(QueueModel(), *put, (5, 8, "b", "get", (), 2), (5, 8, "c", "get", (), 1))
    assert not fine(QueueModel(), *put, (5, 6, "b", "get", (), 2))
    assert not fine(QueueModel(), *put, (5, 6, "b", "get", (), 1), (7, 8, "c", "get", (), 1))
    lost = (4, inf, "d", "get", (), UNKNOWN)
    assert fine(QueueModel(), *put, lost, (5, 6, "b", "get", (), 2))
    assert not fine(QueueModel(), *put, lost, (5, 6, "b", "get", (), 3))


def test_what_a_get_took_that_was_given_up_a_later_one_gives() -> None:
    """As ``Queue`` does: the item is out of the queue meanwhile. It is given once."""
    put = (1, 2, "a", "put", ("x",), 1)
    up = (1, inf, "b", "get", (), UNKNOWN)
    then = (3, 4, "a", "put", ("y",), 1)
    later, first = (7, 8, "c", "get", (), "x"), (5, 6, "c", "get", (), "y")
    assert fine(QueueModel(), put, up, then, first, later)
    assert fine(QueueModel(), put, up, then, later)
    assert not fine(QueueModel(), put, then, later)
    assert not fine(QueueModel(), put, up, then, later, (9, 10, "c", "get", (), "x"))


def test_a_lock() -> None:
    held = (1, 2, "a", "acquire", (), 5)
    assert not fine(LockModel(), held, (3, 4, "b", "acquire", (), 6))
    assert fine(LockModel(), held, (3, 4, "a", "release", (), None), (5, 6, "b", "acquire", (), 6))
    assert not fine(
        LockModel(), held, (3, 4, "a", "release", (), None), (5, 6, "b", "acquire", (), 5)
    )
    lost = (2.5, inf, "faults", "lost", ("a",), UNKNOWN)
    assert fine(LockModel(), held, lost, (3, 4, "b", "acquire", (), 6))
    assert not fine(LockModel(), held, lost, (3, 4, "b", "acquire", (), 4))
    again = (5, 6, "b", "holder", (), ("a", 5))
    assert not fine(LockModel(), held, lost, (3, 4, "b", "acquire", (), 6), again)
    assert fine(LockModel(), held, (3, 4, "a", "acquire", (), 5), again)


@pytest.mark.parametrize(
    ("model", "name", "args"),
    [
        (DictModel(), "items", ()),
        (DictModel(), "fetch", ("k",)),
        (QueueModel(), "take", ()),
        (QueueModel(), "put", ()),
        (LockModel(), "lock", ()),
        (LockModel(), "lost", ()),
    ],
)
def test_what_a_model_does_not_have_is_named(model: Model, name: str, args: Any) -> None:
    """`items` of a dict was an IndexError, and any name of a queue's was a `get`."""
    kind = type(model).__name__
    with pytest.raises(ValueError, match=rf"a {kind} has .*\), and no {name}\(.*: record"):
        history((1, 2, "a", name, args, 1)).check(model)


def test_a_failure_says_what_nothing_explains() -> None:
    with pytest.raises(NotLinearizable, match=r"(?s)ends with.*a: set.*b: get\('k'\) -> None"):
        history(SET, (3, 4, "b", "get", ("k",), None)).check(DictModel())


def test_a_search_that_takes_too_long_is_given_up() -> None:
    puts = [(0.0, 9.0, "a", "put", (n,), UNKNOWN) for n in range(12)]
    with pytest.raises(Undecided, match="gave up after 1000"):
        history(*puts, (10, 11, "b", "get", (), "x")).check(QueueModel(), most=1000)


operation = st.builds(
    lambda name, args, called, lasts, result: Operation(
        "c", name, ("k", *args), called, inf if lasts is None else called + lasts,
        UNKNOWN if lasts is None else result,
    ),
    st.just("get"), st.just(()), st.integers(0, 6), st.none() | st.integers(1, 5),
    st.sampled_from((None, 1, 2)),
) | st.builds(
    lambda value, called, lasts: Operation(
        "c", "set", ("k", value), called, inf if lasts is None else called + lasts,
        UNKNOWN if lasts is None else None,
    ),
    st.sampled_from((1, 2)), st.integers(0, 6), st.none() | st.integers(1, 5),
)  # fmt: skip


def by_trying(operations: list[Operation], model: Model) -> bool:
    """All orders of all subsets that leave out only what has no outcome."""
    known = [each for each in operations if each.returned < inf]
    open_ = [each for each in operations if each.returned == inf]
    for chosen in range(1 << len(open_)):
        some = known + [each for at, each in enumerate(open_) if chosen >> at & 1]
        for order in permutations(some):
            if any(
                later.returned < first.called
                for at, first in enumerate(order)
                for later in order[at + 1 :]
            ):
                continue
            state = model.initial()
            for each in order:
                state = model.step(state, each)
                if state is IMPOSSIBLE:
                    break
            else:
                return True
    return False


@settings(max_examples=300, deadline=None)
@given(st.lists(operation, max_size=5))
def test_it_agrees_with_trying_all_orders(operations: list[Operation]) -> None:
    try:
        check(operations, DictModel())
    except NotLinearizable:
        assert not by_trying(operations, DictModel())
    else:
        assert by_trying(operations, DictModel())


def test_a_history_is_written_down_as_it_happens() -> None:
    import asyncio

    ticks = count()
    found = OperationHistory(lambda: float(next(ticks)))

    async def answer(value: object) -> object:
        if value is None:
            raise TimeoutError
        return value

    async def main() -> None:
        assert await found.record("a", "get", ("k",), answer(7)) == 7
        with pytest.raises(TimeoutError):
            await found.record("b", "get", ("k",), answer(None))

    asyncio.run(main())
    first, second = found.operations
    assert (first.called, first.returned, first.result) == (0.0, 1.0, 7)
    assert (second.called, second.returned, second.result) == (2.0, inf, UNKNOWN)

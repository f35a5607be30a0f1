"""Virtual time against a naive twin: a list that is sorted before every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringcast.sim.scheduler import BROADCAST, TIMER, UNICAST, WORLD, Scheduler

ranks = st.sampled_from((WORLD, BROADCAST, UNICAST, TIMER))


@given(st.lists(st.tuples(st.integers(0, 20), ranks)), st.integers(0, 25))
def test_order_is_time_then_rank_then_scheduling(plan: list[tuple[int, int]], until: int) -> None:
    scheduler = Scheduler()
    seen: list[tuple[int, int]] = []
    for i, (t_us, rank) in enumerate(plan):
        scheduler.at(t_us, lambda i: seen.append((scheduler.now_us, i)), i, rank)
    scheduler.run_until(until)
    twin = sorted((t_us, rank, i) for i, (t_us, rank) in enumerate(plan) if t_us <= until)
    assert seen == [(t_us, i) for t_us, _, i in twin]
    assert scheduler.now_us == until


def test_what_happens_may_plan_more_for_the_same_moment() -> None:
    scheduler = Scheduler()
    seen: list[str] = []

    def first(_: None) -> None:
        scheduler.at(5, seen.append, "second")

    scheduler.at(5, first)
    scheduler.at(5, seen.append, "third", TIMER)
    scheduler.run_until(5)
    assert seen == ["second", "third"]


def test_halting_stops_the_clock() -> None:
    scheduler = Scheduler()
    scheduler.at(3, lambda _: setattr(scheduler, "halted", True))
    scheduler.at(4, lambda _: None)
    scheduler.run_until(10)
    assert scheduler.now_us == 3
    assert len(scheduler.heap) == 1


def test_a_look_every_so_many_entries_even_if_time_stands_still() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    looks: list[int] = []
    scheduler.every(3, lambda: looks.append(len(seen)))
    for i in range(8):
        scheduler.at(i // 4, seen.append, i)
    scheduler.run_until(0)  # four entries, and four more
    scheduler.run_until(1)
    assert looks == [3, 6]


def test_steps_end() -> None:
    scheduler = Scheduler()
    scheduler.at(7, lambda _: None)
    assert scheduler.step()
    assert scheduler.now_us == 7
    assert not scheduler.step()

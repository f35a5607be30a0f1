"""From R to ◇S2: the choice, exhaustively, and the members that make it (token-fd TF-3 to TF-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product

import pytest
from alone import PAIR, Alone, Config

from ringcast.blocks import trusted_pair
from ringcast.blocks.trusted_pair import Opinions, Pair, choose
from ringcast.core.effects import Up
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Loss, inflict
from ringcast.sim.model import LinkModel, NetworkModel, Uniform

Choice = Callable[[frozenset[int], int, int], int | None]


def final_states(n: int, f: int) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """TF-T6: every set of crashed places, with every set of those thought correct that can remain.

    A correct member ends up with the truth about its predecessor, a crashed one with anything.
    """
    for count in range(f + 1):
        for crashed in combinations(range(n), count):
            for opinions in product((True, False), repeat=count):
                left = dict(zip(crashed, opinions, strict=True))
                correct = frozenset(
                    (i - 1) % n for i in range(n) if left.get(i, (i - 1) % n not in crashed)
                )
                yield frozenset(crashed), correct


def literal(correct: frozenset[int], n: int, f: int) -> int | None:
    """The rule as printed: it does not ask whether the chosen member itself is thought correct."""
    if len(correct) == n:
        return 0
    for k in range(n):
        if (k - 1) % n not in correct and all((k + i) % n in correct for i in range(1, f)):
            return k
    return None


def wrong(n: int, f: int, rule: Choice = choose) -> list[tuple[frozenset[int], frozenset[int]]]:
    """The final states in which a crashed member is trusted, or nobody can be chosen."""
    found = []
    for crashed, correct in final_states(n, f):
        k = rule(correct, n, f)
        if k is None or {k, (k + 1) % n} & crashed:
            found.append((crashed, correct))
    return found


@pytest.mark.parametrize(("n", "f"), [(3, 1), (4, 1), (7, 2), (8, 2), (13, 3)])
def test_tf_4_in_every_final_state_two_correct_members_are_chosen(n: int, f: int) -> None:
    assert wrong(n, f) == []


@pytest.mark.parametrize(
    ("n", "f", "failing", "states"), [(3, 1, 2, 7), (7, 2, 49, 99), (13, 3, 1385, 2627)]
)
def test_tf_4_the_rule_as_printed_trusts_crashed_members(
    n: int, f: int, failing: int, states: int
) -> None:
    assert len(list(final_states(n, f))) == states
    assert len(wrong(n, f, literal)) == failing


def test_tf_5_the_bound_on_n_is_tight() -> None:
    failing = {crashed for crashed, _ in wrong(6, 2)}
    assert failing == {frozenset({i, i + 3}) for i in range(3)}
    assert (frozenset({0, 3}), frozenset({1, 4})) in wrong(6, 2)


@pytest.mark.parametrize(
    ("correct", "k"),
    [
        ({0, 2, 3, 5}, 2),  # TF-T1
        ({0, 1, 2, 3, 5}, 0),  # TF-T2: p_6 is the missing predecessor
        (set(range(7)), 0),  # TF-T3
        ({1, 2, 3, 4, 5}, 1),  # TF-T4
        ({2, 3, 4, 5, 6}, 2),  # TF-T5
        ({0, 2, 3, 4, 5, 6}, 2),
        ({0, 3}, None),
    ],
)
def test_tf_4_examples(correct: set[int], k: int | None) -> None:
    assert choose(frozenset(correct), 7, 2) == k
    if correct == {1, 2, 3, 4, 5}:
        assert literal(frozenset(correct), 7, 2) == 0, "the crashed p_0"


def group(n: int, **settings: int) -> Cluster:
    config = Config(members=tuple(range(1, n + 1)), **settings)  # type: ignore[arg-type]
    model = NetworkModel(link=LinkModel(delay=Uniform(50, 400)))
    cluster = Cluster(PAIR, config, config.members, model)
    cluster.start()
    return cluster


def pairs(cluster: Cluster) -> set[tuple[int, int]]:
    return {cluster.machine(node).snapshot()["pair"] for node in cluster.up()}  # type: ignore[misc]


def test_tf_3_everybody_hears_of_a_crash_and_of_a_mistake() -> None:
    cluster = group(7)
    assert pairs(cluster) == {(1, 2)}, "p_0 and p_1 to begin with"
    cluster.crash(2)
    cluster.run_until(50_000)
    assert pairs(cluster) == {(3, 4)}
    for node in cluster.up():
        assert cluster.machine(node).snapshot()["correct"] == (1, 3, 4, 5, 6, 7)
        alone = cluster.machine(node)
        assert isinstance(alone, Alone)
        assert alone.said == [Up(Pair(3, 4))]
    cluster.pause(5)
    cluster.run_until(100_000)
    assert cluster.machine(1).snapshot()["correct"] == (1, 3, 4, 6, 7)
    assert pairs(cluster) == {(3, 4)}
    cluster.resume(5)
    cluster.run_until(150_000)
    assert cluster.machine(1).snapshot()["correct"] == (1, 3, 4, 5, 6, 7)


def test_tf_3_a_report_outlives_its_reporter_even_if_frames_are_lost() -> None:
    """p_1 reports p_0, one member hears it, and p_1 crashes: everybody learns it from that one."""
    cluster = group(7)
    cluster.run_until(10_000)
    inflict(Loss(0, 0.4, 0.4), cluster)
    cluster.crash(1)
    until = 10_000
    while 1 in cluster.machine(4).snapshot()["correct"]:  # type: ignore[operator]
        until += 100
        cluster.run_until(until)
    cluster.crash(2)
    cluster.run_until(until + 100_000)
    cluster.calm()
    cluster.run_until(until + 200_000)
    assert pairs(cluster) == {(3, 4)}


def test_tf_3_numbers_of_an_older_state_change_nothing() -> None:
    cluster = group(3)
    cluster.run_until(5_000)
    cluster.crash(1)
    cluster.run_until(30_000)
    before = cluster.machine(3).snapshot()
    cluster.inject(3, cluster.frame(2, Opinions((0, 0, 8))))
    after = cluster.machine(3).snapshot()
    assert after == before
    cluster.inject(3, cluster.frame(2, Opinions((1, 1))))
    assert cluster.machine(3).snapshot() == before


def test_tf_4_with_the_rule_as_printed_a_crashed_member_stays_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TF-T4 in a group: p_0 wrongly reports p_6 and crashes before it can take that back."""
    for rule, expected in ((choose, (2, 3)), (literal, (1, 2))):
        monkeypatch.setattr(trusted_pair, "choose", rule)
        cluster = group(7)
        cluster.run_until(5_000)
        cluster.cut(7, 1)
        cluster.run_until(6_000)
        cluster.expire(1, "ring detector watch")
        cluster.run_until(7_000)
        cluster.crash(1)
        cluster.run_until(100_000)
        assert pairs(cluster) == {expected}


def test_a_group_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 7 members"):
        group(6, f=2)

"""The faults that replicas had before they had quorums and disks, each as a story: the engine goes
through it unharmed, and one that does as replicas did then is caught."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from simulated import World, Wrong
from wrong_engines import CountsBlankDisks, InMemory, LongestWins, RefusesInAMinority

from ringcast.replica.effects import Phase
from ringcast.replica.engine import Engine

SEED = 6
"""Of three members, on a network that loses little."""


class Story:
    """Three members that nothing happens to, unless the story says so."""

    def __init__(self, engine: type[Engine]) -> None:
        self.world = World(SEED, engine=engine, moving=True)
        assert self.world.spec.ids == (1, 2, 3)
        for node in self.world.spec.ids:
            self.world.cluster.start(node)
        self.wait()

    def wait(self) -> None:
        """Long enough for views to form and commands to be confirmed."""
        self.world.cluster.run_for(8 * self.world.unit_us)
        self.world.check()

    def submit(self, node: int, *commands: bytes) -> None:
        for command in commands:
            assert self.world.cluster.submit(node, (command,))

    def part(self, *sides: tuple[int, ...]) -> None:
        self.world.cluster.network.partition(sides)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.world.cluster.crash(node)

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.world.cluster.start(node)

    @property
    def history(self) -> list[bytes]:
        """What was applied by anybody, ever."""
        return self.world.judge.history

    def heal(self) -> None:
        """Everybody has the whole history, and adds to it."""
        self.world.settle()


def confirmed_in_a_minority(engine: type[Engine]) -> None:
    """Fault 1: what was submitted before a split is ordered in the minority, confirmed there, and
    wins the merge if that history is longer."""
    story = Story(engine)
    story.submit(1, b"first")
    story.wait()
    story.submit(3, *(b"minority %d" % n for n in range(9)))
    story.part((1, 2), (3,))
    story.wait()
    story.submit(1, *(b"majority %d" % n for n in range(5)))
    story.wait()
    assert story.history[-1] == b"majority 4"
    story.heal()
    assert set(story.history) >= {b"minority %d" % n for n in range(9)}


def refused_in_a_minority(engine: type[Engine]) -> None:
    """Fault 2: commands that the minority refused count as its history, which is longer, and what
    the majority confirmed is gone."""
    story = Story(engine)
    story.part((1, 2), (3,))
    story.wait()
    story.submit(3, *(b"refused %d" % n for n in range(9)))
    story.submit(1, *(b"sale %d" % n for n in range(5)))
    story.wait()
    assert story.history == [b"sale %d" % n for n in range(5)]
    story.heal()
    assert story.history[:5] == [b"sale %d" % n for n in range(5)]


def all_killed(engine: type[Engine]) -> None:
    """Fault 3: all are killed, and it begins at zero without a word."""
    story = Story(engine)
    story.submit(1, b"sale")
    story.wait()
    story.kill(1, 2, 3)
    story.start(1, 2, 3)
    story.wait()
    story.submit(2, b"other")
    story.wait()
    assert story.history == [b"sale", b"other"]
    story.heal()


def restarted_empty(engine: type[Engine]) -> None:
    """Fault 3: a member that restarts empty counts towards the quorum, and a moving cut leaves it
    with one that has not heard of the sale."""
    story = Story(engine)
    story.part((1, 2), (3,))
    story.wait()
    story.submit(1, b"seat 1 for ann")
    story.wait()
    assert story.history == [b"seat 1 for ann"]
    story.kill(2)
    story.world.disks[2].wipe()
    story.part((1,), (2, 3))
    story.start(2)
    story.wait()
    story.submit(3, b"seat 1 for bob")
    story.wait()
    assert story.history == [b"seat 1 for ann"]
    story.heal()
    assert b"seat 1 for bob" in story.history[1:]


def test_a_read_after_a_merge_sees_what_the_others_confirmed() -> None:
    """RS-14: the log that is taken over is green already, and is applied before anybody reads."""
    story = Story(Engine)
    story.part((1, 2), (3,))
    story.wait()
    story.submit(1, b"sale")
    story.wait()
    story.part((1, 2, 3))
    cluster = story.world.cluster
    while (phase := cluster.machine(3).engine.phase) is not Phase.PRIMARY:  # type: ignore[attr-defined]
        cluster.run_for(100)
    story.submit(3, b"read")
    story.wait()
    assert story.world.judge.reads == 1, phase


FAULTS: dict[Callable[[type[Engine]], None], type[Engine]] = {
    confirmed_in_a_minority: LongestWins,
    refused_in_a_minority: RefusesInAMinority,
    all_killed: InMemory,
    restarted_empty: CountsBlankDisks,
}
each = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@each
def test_the_engine_goes_through_it(fault: Callable[[type[Engine]], None]) -> None:
    fault(Engine)


@each
def test_as_it_was_before_it_is_caught(fault: Callable[[type[Engine]], None]) -> None:
    with pytest.raises(Wrong) as caught:
        fault(FAULTS[fault])
    assert re.search(r"p\d applies b.* at \d+, not b", str(caught.value))


@pytest.mark.parametrize("engine", FAULTS.values(), ids=lambda engine: engine.__name__)
def test_nothing_is_wrong_with_it_while_nothing_happens(engine: type[Engine]) -> None:
    story = Story(engine)
    for node in (1, 2, 3):
        story.submit(node, b"%d" % node)
    story.wait()
    assert sorted(story.history) == [b"1", b"2", b"3"]
    story.heal()

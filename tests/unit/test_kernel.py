"""The kernel: tables are total or do not import, protocols are found by name, Env keeps order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from random import Random
from typing import ClassVar

import msgspec
import pytest

import ringcast.protocols
from ringcast.core import registry
from ringcast.core.effects import CancelTimer, Note, Persist, Send, SetTimer, Stop
from ringcast.core.env import Env
from ringcast.core.ids import Level, Position, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Discard, Impossible, Key, Machine, Table
from ringcast.protocols.totem_single.machine import CELLS, MESSAGES, TotemSingle
from ringcast.protocols.totem_single.state import Phase
from ringcast.protocols.totem_single.state import Timer as TotemTimer


class Mood(StrEnum):
    AWAKE = "awake"
    ASLEEP = "asleep"


class Clock(StrEnum):
    ALARM = "alarm"


class Ping(msgspec.Struct, frozen=True):
    pass


class Stray(msgspec.Struct, frozen=True):
    pass


CELLS_OF_TOY: dict[tuple[StrEnum, Key], Cell] = {
    (Mood.AWAKE, Leaving): Discard("toy", "stays"),
    (Mood.ASLEEP, Leaving): Discard("toy", "stays"),
    (Mood.AWAKE, Submitted): lambda machine, env, event: env.note("toy", "said"),
    (Mood.AWAKE, Ping): lambda machine, env, event: env.send(event.src, Ping()),
    (Mood.AWAKE, Clock.ALARM): Impossible("the alarm is set only at night"),
    (Mood.ASLEEP, Submitted): Discard("toy", "asleep"),
    (Mood.ASLEEP, Ping): Discard("toy", "asleep"),
    (Mood.ASLEEP, Clock.ALARM): lambda machine, env, event: machine.wake(),
}


class Toy(Machine):
    """The smallest machine with every kind of cell."""

    table: ClassVar[Table] = Table(Mood, [Ping], Clock, CELLS_OF_TOY)

    def start(self, env: Env, event: Started) -> None:
        self.phase = Mood.ASLEEP

    def wake(self) -> None:
        self.phase = Mood.AWAKE

    def admit(self, env: Env, event: Received) -> bool:
        return event.src != env.me

    @property
    def ready(self) -> bool:
        return True

    def snapshot(self) -> dict[str, object]:
        return {"phase": self.phase}


@pytest.fixture
def toy() -> Iterator[tuple[Toy, Env]]:
    machine, env = Toy(), Env(1, Random("toy"))
    machine.handle(env, Started(1, {}))
    yield machine, env


def test_a_missing_cell_is_an_error() -> None:
    cells = {key: cell for key, cell in CELLS_OF_TOY.items() if key != (Mood.AWAKE, Ping)}
    with pytest.raises(TypeError, match=r"missing \['\(awake, Ping\)'\]"):
        Table(Mood, [Ping], Clock, cells)


def test_a_cell_for_nothing_is_an_error() -> None:
    cells = {**CELLS_OF_TOY, (Mood.AWAKE, Stray): Discard("toy", "?")}
    with pytest.raises(TypeError, match=r"unknown \['\(awake, Stray\)'\]"):
        Table(Mood, [Ping], Clock, cells)


def test_every_kind_of_cell(toy: tuple[Toy, Env]) -> None:
    machine, env = toy
    machine.handle(env, Received(2, 1, Ping()))
    assert env.take() == [Note("toy", "drop", "asleep")] and env.dropped == {"asleep": 1}
    machine.handle(env, TimerFired(Clock.ALARM))
    machine.handle(env, Received(2, 1, Ping()))
    assert env.take() == [Send(2, Ping())]
    machine.handle(env, Submitted((b"x",)))
    assert env.take() == [Note("toy", "said")]
    machine.handle(env, TimerFired(Clock.ALARM))
    assert env.take() == [Stop("impossible input: the alarm is set only at night")]
    assert machine.visits[Mood.AWAKE, Ping] == 1


def test_frames_not_admitted_and_of_other_protocols_go_no_further(toy: tuple[Toy, Env]) -> None:
    machine, env = toy
    machine.handle(env, Received(1, 1, Ping()))
    assert env.take() == [] and not machine.visits
    machine.handle(env, Received(2, 1, Stray()))
    assert env.take() == [Note("kernel", "drop", "a message of another protocol")]


def test_effects_keep_their_order() -> None:
    env = Env(1, Random("env"))
    env.persist("k", 1)
    env.send(2, Ping())
    env.set_timer(Clock.ALARM, 5)
    env.cancel_timer(Clock.ALARM)
    expected = [
        Persist("k", 1),
        Send(2, Ping()),
        SetTimer(Clock.ALARM, 5),
        CancelTimer(Clock.ALARM),
    ]
    assert env.take() == expected
    assert env.take() == []


def test_the_table_of_totem_is_the_whole_cross_product() -> None:
    keys = {Submitted, Leaving, *MESSAGES, *TotemTimer}
    assert CELLS.keys() == {(phase, key) for phase in Phase for key in keys}
    assert set(TotemSingle.table.rows) == set(Phase)


def test_impossible_and_discarded_cells_say_why() -> None:
    for cell in CELLS.values():
        if isinstance(cell, Impossible | Discard):
            assert cell.reason


def test_an_unknown_protocol_is_answered_with_the_known_ones() -> None:
    assert ringcast.protocols
    assert registry.protocol("totem").name == "totem"
    with pytest.raises(LookupError, match=r"'tötem'; did you mean totem\? known: "):
        registry.protocol("tötem")
    assert registry.protocol("totem") in registry.protocols()


def test_without_protocols_the_error_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_sheets", {})
    monkeypatch.setattr(registry, "_places", {})
    with pytest.raises(LookupError, match="known: none"):
        registry.protocol("totem")


def test_ids_are_ordered_by_number_first() -> None:
    """G26."""
    assert ViewId(4, 9) < ViewId(8, 1) < ViewId(8, 2)
    assert (
        Position.at(ViewId(4, 9), 7)
        < Position.at(ViewId(8, 1), 1)
        < Position.at(ViewId(8, 1), 1, 1)
    )
    assert str(Position.at(ViewId(8, 1), 5, 2)) == "(8,1):5.2"
    assert Level.AGREED < Level.SAFE


def test_protocols_are_imported_when_they_are_asked_for() -> None:
    """A node starts in half the time that all of them would take."""
    seen = """
import sys
from ringcast.cli import app
from ringcast.core.registry import names, protocol, protocols
loaded = [each for each in sys.modules if each.startswith("ringcast.protocols.")]
assert not loaded, loaded
assert protocol("total").name == "total" and "ringcast.protocols.rbp" not in sys.modules
assert names() == [sheet.name for sheet in protocols()]
"""
    subprocess.run([sys.executable, "-c", seen], check=True)

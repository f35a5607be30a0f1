"""iRBP: what the layers owe each other: order, membership, detector and channel (L, C3, D1, D5)."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import ClassVar

import pytest
from driver import only, sent
from irbp import Sites

from ringcast.blocks import channel, detector
from ringcast.blocks.channel import Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.core.effects import Deliver, InstallView, Note
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Discard, Key, Table
from ringcast.protocols.irbp import Config
from ringcast.protocols.irbp.messages import Kind
from ringcast.protocols.rbp import Config as RbpConfig
from ringcast.protocols.rbp.epochs import (
    NEVER,
    Chooser,
    Data,
    Epoch,
    EpochConfig,
    Extent,
    Seat,
    Trouble,
)
from ringcast.protocols.rbp.machine import EpochMachine, core_cells
from ringcast.protocols.rbp.messages import ORDERING, Ack
from ringcast.protocols.rbp.state import Phase, Timer


def test_l1_a_change_goes_over_the_reliable_channel_and_the_ring_does_not() -> None:
    group = Sites()
    effects = group.submit(group.holder(), b"a")
    frames = {type(frame) for frame in sent(effects, object)}
    assert {Data, Ack} <= frames and Packet not in frames
    group.settle()
    group.change(1, Kind.IVIEW)
    assert {type(frame.message) for _, frame in group.unicasts} == {Packet}
    group.lose()
    assert sent(group.fire(1, channel.Timer.RESEND), Packet), "C1: and so it is sent again"
    group.settle()
    assert [machine.chooser.decided.epoch.step for machine in group.machines.values()] == [1] * 3  # type: ignore[union-attr]


def test_l2_what_is_repeated_is_a_timer_that_an_answer_cancels() -> None:
    """R1, R8: a body and an ACK go once at once, and then by their timers."""
    group = Sites()
    sender = next(node for node in group.ids if node != group.holder())
    effects = group.submit(sender, b"a")
    assert len(sent(effects, Data)) == 1 and Timer.DATA in group.timers[sender]
    group.settle()
    assert not sent(group.fire(sender, Timer.DATA), Data), "an ACK has named it"
    assert Timer.DATA not in group.timers[sender]
    repeating = [node for node in group.ids if Timer.TOKEN in group.timers[node]]
    assert len(repeating) == 1, "whoever passed the token on last: the others have been answered"


class Recorder(Chooser):
    """Chooses nothing, and writes down what the core says."""

    judged_by = "a test"

    def __init__(self) -> None:
        self.said: list[object] = []

    def start(self, env: Env) -> None:
        self.said.append("start")

    def trouble(self, env: Env, why: Trouble, node: NodeId | None) -> None:
        self.said.append((why, node))

    def other_epoch(self, env: Env, src: NodeId, epoch: Epoch) -> None:
        self.said.append(("other", src, epoch))

    def grown(self, env: Env) -> None:
        self.said.append("grown")

    def installed(self, env: Env) -> None:
        self.said.append("installed")

    def turn(self, env: Env) -> bool:
        self.said.append("turn")
        return False

    def leaving(self, env: Env) -> None:
        self.said.append("leaving")

    def snapshot(self) -> dict[str, object]:
        return {"blocked": False}


CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **{(phase, key): Discard("rbp L3", "nobody asks") for phase in Phase for key in ORDERING},
    **core_cells(),
}


class Core(EpochMachine):
    """The log and epoch core with a chooser that this test has made up."""

    table: ClassVar[Table] = Table(Phase, ORDERING, Timer, CELLS)
    chooser: Recorder

    def __init__(self) -> None:
        super().__init__(1, RbpConfig(members=(1, 2, 3)))
        self.chooser = Recorder()

    @property
    def highest(self) -> int:
        return 1

    def start(self, env: Env, event: Started) -> None:
        self.chooser.start(env)


def test_l3_the_core_knows_whoever_chooses_epochs_by_the_interface_alone() -> None:
    core, env = Core(), Env(1, Random(0))
    said = core.chooser.said
    core.handle(env, Started(1, {}))
    seats = tuple(Seat(node, 0) for node in (1, 2, 3))
    first = EpochConfig(Epoch(ViewId(1, 1)), seats, (1, 2, 3), 0, NEVER, 0, None)
    core.install(env, first)
    assert said == ["start", "installed", "turn"], "it may begin a change before any number"
    core.handle(env, TimerFired(Timer.ACT))
    assert said.pop() == (Trouble.STALL, None)
    core.handle(env, Submitted((b"a",)))
    assert core.freeze(env) == Extent(first.epoch, 1, 0, 0)
    phases = [core.phase]
    (entry,) = core.read(0, 1, 9) or ()
    alone = EpochConfig(Epoch(ViewId(2, 1)), seats[:1], (1,), 1, entry.tag, 1, first.epoch.view)
    env.take()
    core.install(env, alone)
    assert said.count("installed") == 2
    assert [*phases, core.phase] == [Phase.FROZEN, Phase.MEMBER]
    effects = env.take()
    assert [view.members for view in only(effects, InstallView)] == [(1,)]
    assert [each.batch.bodies for each in only(effects, Deliver)] == [(b"a",)]


def test_c3_a_suspicion_keeps_what_waits_and_the_view_without_the_peer_gives_it_up() -> None:
    group = Sites()
    group.crash(3)
    group.blame(3, 1, 2)
    group.settle()
    waiting = group[1].chooser.channel.machine
    assert waiting.waiting, "the change is for 3, too"
    group.blame(3, 1, 2, for_long=True)
    group.settle()
    current = group[1].current
    assert current is not None and current.members == (1, 2)
    assert not waiting.waiting


def test_d1_a_heartbeat_tells_where_the_ring_is_and_every_frame_is_a_sign_of_life() -> None:
    group = Sites()
    holder = group.holder()
    (beat,) = sent(group.fire(holder, detector.Timer.BEAT), Heartbeat)
    current = group[holder].current
    assert current is not None
    seen, held = group[holder].ring.seen, group[holder].log.held
    assert beat == Heartbeat(current.epoch.view, (0, seen, 0, held))
    other = holder % 3 + 1
    group.settle()
    group.now_us += 50_000
    group.submit(holder, b"a")
    group.settle()
    assert group[other].chooser.detector.machine.heard[holder] == group.now_us


def test_d5_progress_is_another_question_than_silence() -> None:
    """R18: everybody is heard, and yet a ring without a new number is chosen anew."""
    group = Sites()
    group.settle()
    effects = group.fire(1, Timer.ACT)
    assert not group[1].chooser.detector.machine.suspected
    notes = [note.text for note in only(effects, Note) if note.what == "change"]
    assert notes == ["(1,1) iview: no progress"]
    with pytest.raises(ValueError, match="five times token_us"):
        Config(act_us=100_000)

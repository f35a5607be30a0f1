"""token-fd: the group, its start, who is heard, and who stays out (TF-2, TF-5, TF-23, TF-42)."""

from __future__ import annotations

import msgspec
import pytest
from driver import drops, only, stops
from fd import LAN, PAPER, Group, tokens

from ringcast.blocks.packing import Contents
from ringcast.blocks.ring_detector import Alive
from ringcast.core.effects import InstallView, Persist, Send, SetTimer
from ringcast.core.ids import Level
from ringcast.core.inputs import Received, Started
from ringcast.protocols.token_fd import SHEET, Config
from ringcast.protocols.token_fd.messages import Body, Fetch, LogRep, Token, malformed


def test_tf_5_a_group_that_is_too_small_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"f = 2 needs 7 members or more.*set f to 1 or less"):
        Config(members=(1, 2, 3), f=2)
    assert [Config(members=tuple(range(1, n + 1))).faults for n in (1, 2, 3, 7)] == [0, 0, 1, 2]
    assert SHEET.for_group(LAN, (3, 1, 2)).members == (1, 2, 3)
    with pytest.raises(ValueError, match="65 members are more than the 64"):
        SHEET.for_group(LAN, range(1, 66))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"beat_us": 0}, "beat_us = 0 must be below"),
        ({"suspect_us": 600_000}, "suspect_us = 600000 must be within"),
        ({"each_time": 0}, "each_time = 0 must be within"),
        ({"max_packet": 100}, "max_packet = 100 leaves no room"),
        ({"history_bytes": 1_000}, "history_bytes = 1000 keeps 0 frames, too few"),
        ({"lag_limit": 1025}, "lag_limit = 1025 must be within 0..1024"),
        ({"bodies_in_token": True}, "max_packet = 1460 leaves no room"),
        ({"max_queue_bytes": 1}, "must hold at least one message"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Config(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [3, 7, 13])
def test_a_token_with_all_it_may_speak_of_fits_its_packet(n: int) -> None:
    config = SHEET.for_group(PAPER, range(1, n + 1))
    contents = Contents(10**6, (bytes(config.frame_budget - 5),))
    bodies = (Body(config.group, n - 1, 10**6, Level.SAFE, contents),) * (config.lag + n)
    many, hop = (10**6,) * n, 10**9
    runs = (n - 1, 1) * config.lag
    token = Token(config.group, hop, hop, 1, runs[: 2 * n], many, runs, many, many * n, bodies)
    assert len(msgspec.msgpack.encode(token)) <= config.max_packet


def test_tf_23_one_view_of_all_members_and_the_first_token() -> None:
    group = Group(3)
    effects = group.start(1)
    (view,) = only(effects, InstallView)
    assert (view.members, view.transitional, view.seq) == ((1, 2, 3), False, 0)
    (first,) = tokens(effects).values()
    assert (first.hop, first.votes, first.proposal, first.length) == (0, 1, (), 0)
    assert group[1].snapshot()["hop"] == 0, "A3: its first turn is over"
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Persist) < kinds.index(InstallView) < kinds.index(Send)
    assert not tokens(group.start(2))
    assert only(group.start(2), InstallView) == [], "for it has lost its memory"


def test_tf_2_a_heartbeat_goes_to_the_successor_and_says_nothing_of_others() -> None:
    group = Group(3).up()
    beat = Alive(group.config.group)
    alive = {n: [e.to for e in only(group.log[n], Send) if e.message == beat] for n in group.ids}
    assert alive == {1: [2], 2: [3], 3: [1]}
    assert Alive.__struct_fields__ == ("group",)


def test_tf_42_a_member_that_lost_its_memory_stays_out_and_says_what_to_do() -> None:
    group = Group(3).up(2)
    group.crash(2)
    (reason,) = stops(group.start(2))
    assert "took part in epoch 1" in reason and "epoch = 2 or more" in reason
    anew = Group(3, epoch=2)
    anew.stable = group.stable
    assert not stops(anew.start(2))
    assert anew[2].view.seq == 2
    assert anew.stable[2] == {"token_fd_epoch": 2}


def test_tf_42_frames_of_a_second_life_are_not_acted_upon() -> None:
    group = Group(3).up(2)
    group.handle(2, Received(1, 7, group.token(0)))
    effects = group.handle(2, Received(1, 8, group.token(3)))
    assert drops(effects) == ["a member that has lost its memory"]


def test_tf_42_a_heartbeat_of_the_epoch_before_shuts_nobody_out() -> None:
    """Members go to another epoch one by one: who is there first hears the others' last beats."""
    group = Group(3, epoch=2).up(2)
    before = Alive(Group(3, epoch=1).config.group)
    assert drops(group.handle(2, Received(1, 7, before))) == ["a frame of another group"]
    effects = group.handle(2, Received(1, 8, group.token(0)))
    assert tokens(effects).keys() == {3}
    late = group.handle(2, Received(1, 7, Alive(group.config.group)))
    assert drops(late) == ["a member that has lost its memory"]


def test_tf_1_a_predecessor_with_other_settings_is_silent_to_us() -> None:
    """Its tokens do not count, so it must not be trusted to pass one on."""
    group = Group(3).up(2)
    effects = group.handle(2, Received(1, 7, Alive(Group(3, epoch=9).config.group)))
    assert drops(effects) == ["a frame of another group"]
    assert not only(effects, SetTimer), "or it would be trusted for longer"


def test_tf_42_an_id_used_twice_stops_the_member() -> None:
    group = Group(3).up(2)
    assert drops(group.handle(2, Received(2, 1, group.token(1)))) == ["own frame"]
    (reason,) = stops(group.handle(2, Received(2, 9, group.token(1))))
    assert reason.startswith("another processor uses the id 2")


def test_tf_11_frames_of_another_group_are_dropped() -> None:
    group, other = Group(3).up(2), Group(3, epoch=2)
    assert drops(group.receive(2, other.token(0), src=1)) == ["a frame of another group"]
    assert drops(group.handle(2, Received(9, 1, group.token(0)))) == ["a frame of another group"]
    assert Group(3).config.group != Group(4).config.group != Group(4, f=0).config.group


@pytest.mark.parametrize(
    ("changes", "fine"),
    [
        ({}, True),
        ({"hop": 1}, False),
        ({"hop": 2**62 + 2}, False),
        ({"base": (0, 0)}, False),
        ({"known": (0,) * 4}, False),
        ({"held": (0,) * 8}, False),
        ({"proposal": (0,)}, False),
        ({"proposal": (3, 1)}, False),
        ({"proposal": (0, 0)}, False),
        ({"proposal": (0, 2)}, False),
        ({"adeliv": (1, 1)}, False),
    ],
)
def test_tf_11_a_token_of_a_wrong_form_is_dropped(changes: dict[str, object], fine: bool) -> None:
    """Also one that speaks of frames that nobody is said to hold (I5)."""
    group = Group(3).up(2)
    token = msgspec.structs.replace(group.token(0, (0, 1)), **changes)
    assert (malformed(token, 3, 0) is None) is fine
    if not fine:
        assert drops(group.receive(2, token, src=1)) == ["malformed token"]


def test_tf_11_other_frames_of_a_wrong_form_are_dropped() -> None:
    group = Group(3).up(2)
    bad = group.body(2, 1)
    for frame in (
        msgspec.structs.replace(bad, number=0),
        msgspec.structs.replace(bad, origin=3),
        msgspec.structs.replace(bad, contents=Contents(1, ())),
        msgspec.structs.replace(group.token(0), bodies=(msgspec.structs.replace(bad, origin=3),)),
        Fetch(group.config.group, (1, 2)),
        Fetch(group.config.group, (3, 1, 1)),
        LogRep(group.config.group, (0, 0), (), (0,) * 9),
        LogRep(group.config.group, (0, 0, 0), (3, 1), (0,) * 9),
        LogRep(group.config.group, (0, 0, 0), (2, 1), (0,) * 8),
        LogRep(group.config.group, (0, 0, 0), (2, 1), (0,) * 9),
    ):
        (why,) = drops(group.receive(2, frame, src=1))
        assert why.startswith("malformed")


def test_a_frame_of_another_protocol_is_dropped() -> None:
    group = Group(3).up(2)
    assert drops(group.handle(2, Received(1, 1, Started(1, {})))) == [
        "a message of another protocol"
    ]

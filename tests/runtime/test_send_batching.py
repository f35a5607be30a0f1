"""Frames that leave together keep their order, and nothing overtakes them."""

from __future__ import annotations

from random import Random

import msgspec

from ringcast.core.effects import Broadcast, Effect, Send, Stop
from ringcast.core.env import Env
from ringcast.runtime.send_batching import SendRun, in_runs


class Word(msgspec.Struct, frozen=True):
    text: str


def flat(effects: list[Effect | SendRun]) -> list[object]:
    """Each frame for itself again."""
    found: list[object] = []
    for effect in effects:
        if isinstance(effect, SendRun):
            found += [Send(effect.to, message, effect.port) for message in effect.messages]
        else:
            found.append(effect)
    return found


def test_frames_to_one_processor_in_a_row_are_one() -> None:
    env = Env(1, Random(0))
    for to, text, port in ((2, "a", 0), (2, "b", 0), (3, "c", 0), (2, "d", 0), (2, "d", 1)):
        env.send(to, Word(text), port)
    env.broadcast(Word("e"))
    env.send(2, Word("f"))
    effects = list(in_runs(env.take()))
    assert effects == [
        SendRun(2, [Word("a"), Word("b")], 0),
        SendRun(3, [Word("c")], 0),
        SendRun(2, [Word("d")], 0),
        SendRun(2, [Word("d")], 1),
        Broadcast(Word("e")),
        SendRun(2, [Word("f")], 0),
    ]


def test_nothing_is_lost_doubled_or_moved() -> None:
    rng = Random(1)
    for _ in range(200):
        env = Env(1, rng)
        for _ in range(rng.randrange(12)):
            match rng.randrange(3):
                case 0:
                    env.broadcast(Word(str(rng.random())))
                case 1:
                    env.send(rng.choice((2, 3)), Word(str(rng.random())), rng.choice((0, 0, 1)))
                case _:
                    env.effects.append(Stop("enough"))
        effects = env.take()
        assert flat(list(in_runs(effects))) == effects

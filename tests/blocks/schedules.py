"""Schedules for consensus: every order of frames, any suspicion, nothing lost.

``Group`` holds the members of one decision and the frames between them. A schedule chooses what
happens next. ``wild`` draws one, then lets the detector settle and expects the end; ``explore``
goes through all of them, for a few members and rounds.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from copy import copy
from random import Random
from typing import Any

import msgspec

from ringcast.blocks.consensus import Consensus, Decided
from ringcast.blocks.reliable_broadcast import Relay, ReliableBroadcast
from ringcast.core.effects import Send, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Message, Received, Started
from ringcast.core.owned import Owned


class Value(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What a member proposes: its own id."""

    of: int


Frame = tuple[int, int, Message]
"""From, to, and what."""


class Broken(AssertionError):
    """Consensus is not what it claims."""


class Group:
    """Members ``1 .. n``, and what is under way."""

    def __init__(self, n: int, kind: type[Consensus], first: int = 0) -> None:
        self.ids = tuple(range(1, n + 1))
        self.members = {node: kind(node, self.ids, first) for node in self.ids}
        self.env = Env(0, Random(0))
        self.frames: list[Frame] = []
        self.decided: dict[int, Value] = {}
        self.proposed: set[int] = set()
        self.crashed: set[int] = set()
        for node in self.ids:
            self.do(node, self.members[node].handle, Started(1, {}))

    def do(self, node: int, method: Any, *arguments: Any) -> None:
        """Let ``node`` act; its frames are under way, and its decision is held against others."""
        env = self.env
        env.me = node
        method(env, *arguments)
        for effect in env.take():
            if isinstance(effect, Send):
                if effect.to not in self.crashed:
                    self.frames.append((node, effect.to, effect.message))
            elif isinstance(effect, Up):
                assert isinstance(effect.what, Decided)
                self._decide(node, effect.what.value)

    def _decide(self, node: int, value: Message) -> None:
        if node in self.decided:
            raise Broken(f"{node} decides twice")
        assert isinstance(value, Value)
        if value.of not in self.proposed:
            raise Broken(f"validity: {node} decides what nobody proposed")
        self.decided[node] = value
        if len(set(self.decided.values())) > 1:
            raise Broken(f"agreement: {self.decided}")

    def propose(self, node: int) -> None:
        self.proposed.add(node)
        self.do(node, self.members[node].propose, Value(node))

    def suspect(self, node: int, nodes: set[int]) -> None:
        self.do(node, self.members[node].suspect, nodes)

    def deliver(self, at: int, again: bool = False) -> None:
        """Let a frame arrive; ``again``: and stay under way, too."""
        src, dst, message = self.frames[at]
        if not again:
            self.frames[at] = self.frames[-1]
            self.frames.pop()
        if dst not in self.crashed:
            self.do(dst, self.members[dst].handle, Received(src, 1, message))

    def crash(self, node: int, rng: Random) -> None:
        """It is gone, and with it some of what it was sending."""
        self.crashed.add(node)
        self.frames = [
            (src, dst, message)
            for src, dst, message in self.frames
            if dst != node and (src != node or rng.random() < 0.5)
        ]

    @property
    def live(self) -> list[int]:
        return [node for node in self.ids if node not in self.crashed]


MOST_STEPS = 5_000
"""No settled schedule comes near it."""


def wild(seed: str, kind: type[Consensus] = Consensus, n: int = 0) -> Group:
    """One schedule drawn from ``seed``: first anything may happen, then the detector settles.

    Settled means: every crashed member is suspected, one that lives is suspected by nobody, and
    of the others anybody may be, for ever.
    """
    rng = Random(seed)
    n = n or rng.choice((3, 3, 4, 5))
    group = Group(n, kind, rng.randrange(n))
    late = [node for node in group.ids if rng.random() < 0.3]
    for node in group.ids:
        if node not in late:
            group.propose(node)
    crashes = rng.randrange((n - 1) // 2 + 1)
    suspicion, copies = rng.choice((0.02, 0.05, 0.2)), rng.choice((0.0, 0.3))
    slow: set[int] = set()
    for _ in range(rng.choice((30, 100, 400))):
        chance = rng.random()
        node = rng.choice(group.live)
        if chance < suspicion:
            others = [each for each in group.ids if each != node]
            group.suspect(node, set(rng.sample(others, rng.randrange(n))))
            if rng.random() < 0.7:
                group.suspect(node, set())  # a mistake, and it is over
        elif chance < suspicion + 0.01 and crashes:
            crashes -= 1
            group.crash(node, rng)
        elif chance < suspicion + 0.03 and late:
            node = late.pop()
            if node in group.live:
                group.propose(node)
        elif chance < suspicion + 0.06:
            slow = set(rng.sample(group.ids, rng.randrange(n)))
        elif group.frames:
            at = rng.randrange(len(group.frames))
            src, dst, message = group.frames[at]
            held = {src, dst} & slow or isinstance(message, Relay)  # a decision ends the story
            if not held or rng.random() < 0.05:
                group.deliver(at, rng.random() < copies)
    for node in late:
        if node in group.live:
            group.propose(node)
    settle(group, rng)
    return group


def settle(group: Group, rng: Random) -> None:
    """The detector settles; all frames arrive, and every member that lives has decided."""
    trusted = rng.choice(group.live)
    wrong = rng.choice((0.0, 0.0, 0.5))
    for node in group.live:
        doubted = {each for each in group.ids if each != trusted and rng.random() < wrong}
        group.suspect(node, (group.crashed | doubted) - {node})
    for _ in range(MOST_STEPS):
        if not group.frames:
            break
        group.deliver(rng.randrange(len(group.frames)))
    undecided = set(group.live) - group.decided.keys()
    if undecided:
        raise Broken(f"termination: {sorted(undecided)} did not decide")


# --- all schedules ------------------------------------------------------------------------------

State = tuple[Any, ...]


def fork(member: Consensus) -> Consensus:
    """A twin that goes its own way."""
    twin = copy(member)
    twin.estimates = dict(member.estimates)
    twin.adopters = set(member.adopters)
    twin.decision = Owned(ReliableBroadcast(member.me, member.members), twin._hear)
    return twin


def state_of(group: Group) -> State:
    """All that matters for what can happen next."""
    members = tuple(
        (
            m.round,
            m.estimate,
            m.stamp,
            tuple(sorted(m.estimates.items())) if m.coordinator(m.round) == m.me else (),
            m.proposal,
            frozenset(m.adopters),
            m.decided,
        )
        for m in group.members.values()
    )
    return (members, frozenset(Counter(group.frames).items()), frozenset(group.proposed))


def twin_of(group: Group) -> Group:
    twin = copy(group)
    twin.members = {node: fork(member) for node, member in group.members.items()}
    twin.frames = list(group.frames)
    twin.decided, twin.proposed = dict(group.decided), set(group.proposed)
    twin.env = Env(0, Random(0))
    return twin


def explore(
    n: int, rounds: int, kind: type[Consensus] = Consensus, late: tuple[int, ...] = ()
) -> tuple[int, int]:
    """Go through every schedule in which nobody goes beyond ``rounds``; how many states there are,
    and in how many somebody has decided.

    Relays of a decision are left under way: to a member they mean the end, as a crash would, and
    a crash is a schedule in which nothing more arrives. Members in ``late`` propose at any time,
    the others at once.
    """
    begin = Group(n, kind)
    for node in begin.ids:
        if node not in late:
            begin.propose(node)
    seen = {state_of(begin)}
    waiting = deque([begin])
    with_decision = 0
    while waiting:
        group = waiting.pop()
        with_decision += bool(group.decided)
        for step in steps(group, rounds, late):
            twin = twin_of(group)
            step(twin)
            twin.frames = [frame for frame in twin.frames if type(frame[2]) is not Relay]
            if any(member.round > rounds for member in twin.members.values()):
                continue
            state = state_of(twin)
            if state not in seen:
                seen.add(state)
                waiting.append(twin)
    return len(seen), with_decision


def steps(group: Group, rounds: int, late: tuple[int, ...]) -> list[Any]:
    """What can happen next: a frame arrives, a coordinator is suspected, a value is there."""
    found: list[Any] = []
    for at in range(len(group.frames)):
        found.append(lambda twin, at=at: twin.deliver(at))
    for node, member in group.members.items():
        coordinator = member.coordinator(member.round)
        if coordinator != node and member.round < rounds:

            def doubt(twin: Group, node: int = node, coordinator: int = coordinator) -> None:
                twin.suspect(node, {coordinator})
                twin.suspect(node, set())

            found.append(doubt)
        if node in late and node not in group.proposed:
            found.append(lambda twin, node=node: twin.propose(node))
    return found


if __name__ == "__main__":
    # The long form, by hand: python tests/blocks/schedules.py SCHEDULES
    rounds: Counter[int] = Counter()
    for number in range(int(sys.argv[1])):
        rounds[max(member.round for member in wild(str(number)).members.values())] += 1
    print("schedules", sum(rounds.values()), "of which in rounds", dict(sorted(rounds.items())))
    print("three members, two rounds, values at any time:", explore(3, 2, late=(1, 2, 3)))
    print("three members, three rounds:", explore(3, 3))

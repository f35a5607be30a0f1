"""Blocks that work for another machine, each in a machine that does nothing else.

So a block runs in the simulator and in scenarios under a name of its own: ``ring token-consensus``
(a submission proposes its body) and ``ring trusted-pair``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from ringcast.blocks import token_consensus, trusted_pair
from ringcast.blocks.ring_detector import Patience
from ringcast.blocks.token_consensus import Terms, TokenConsensus
from ringcast.blocks.token_ring import most_faults
from ringcast.blocks.trusted_pair import TrustedPair
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Leaving, Received, Started, Submitted
from ringcast.core.machine import Machine
from ringcast.core.owned import Heard, Owned
from ringcast.core.registry import MembershipKind, Sheet, register
from ringcast.core.settings import ListedSettings


class Alone(Machine):
    """Passes everything on to its one part, and keeps what that says."""

    def __init__(self, part: Machine, submit: Callable[[Env, bytes], None] | None = None) -> None:
        super().__init__()
        self.part = part
        self.table = part.table  # type: ignore[misc]  # one class for all parts
        self.visits = part.visits
        self.said: list[object] = []
        self._submit = submit
        self._owned: Owned[Machine] = Owned(part, self._hear)

    @property
    def phase(self) -> StrEnum:  # type: ignore[override]
        return self.part.phase

    def _hear(self, env: Env, said: Heard) -> None:
        self.said.append(said)

    def handle(self, env: Env, event: Input) -> None:
        if isinstance(event, Leaving):
            env.stop("left")
        elif isinstance(event, Submitted):
            assert self._submit is not None
            self._owned.call(env, self._submit, event.bodies[0])
        else:
            self._owned.handle(env, event)

    def start(self, env: Env, event: Started) -> None:
        raise AssertionError("handle passes it on")

    def admit(self, env: Env, event: Received) -> bool:
        raise AssertionError("handle passes it on")

    @property
    def ready(self) -> bool:
        return self._submit is not None

    def snapshot(self) -> dict[str, object]:
        return self.part.snapshot()


class Config(ListedSettings, frozen=True, kw_only=True):
    """Of a block with fixed members."""

    f: int | None = None
    gap_threshold: int = 0
    vote_threshold: int | None = None
    resend_us: int = 5_000
    beat_us: int = 1_000
    suspect_us: int = 3_000
    grow_us: int = 1_000
    most_us: int = 20_000

    @property
    def frame_budget(self) -> int:
        return self.max_packet

    @property
    def faults(self) -> int:
        return most_faults(len(self.members)) if self.f is None else self.f

    @property
    def patience(self) -> Patience:
        return Patience(
            beat_us=self.beat_us,
            suspect_us=self.suspect_us,
            grow_us=self.grow_us,
            most_us=self.most_us,
        )


def consensus(me: NodeId, config: Config) -> Alone:
    terms = Terms(
        members=config.members,
        f=config.faults,
        gap_threshold=config.gap_threshold,
        vote_threshold=config.vote_threshold,
        resend_us=config.resend_us,
    )
    part = TokenConsensus(me, terms, config.patience)
    return Alone(part, part.propose)


def pair(me: NodeId, config: Config) -> Alone:
    return Alone(TrustedPair(me, config.members, config.faults, config.patience))


def _sheet(name: str, make: Callable[[NodeId, Config], Machine], messages: Any) -> Sheet:
    return register(
        Sheet(
            name=name,
            source="tests",
            config=Config,
            make=make,
            claims=lambda config: (),
            profiles={"plain": Config()},
            messages=messages,
            progress_bound_us=lambda config, n: 1_000_000,
            membership=MembershipKind.FIXED,
        )
    )


CONSENSUS = _sheet("token-consensus", consensus, token_consensus.MESSAGES)
PAIR = _sheet("trusted-pair", pair, trusted_pair.MESSAGES)

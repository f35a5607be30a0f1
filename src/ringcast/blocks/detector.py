"""A heartbeat detector: who has been silent for longer than it usually is.

Every processor broadcasts a heartbeat each ``beat_us``, and whatever else it sends is a sign of
life too. A peer is suspected when it has been silent for several times its longest silence of
late, within bounds. A mistake makes that silence longer, so on a network whose delays are bounded
mistakes come to an end; the memory fades, so detection becomes fast again.

A heartbeat names the view its sender is in. What to conclude from that is the owner's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Impossible, Machine, Table

MARGIN = 4
"""A peer is suspected after so many times its longest silence of late."""

FADING = 16
"""With each beat the memory of a silence loses one part in so many."""

MOST_REMEMBERED = 256
"""Peers whose silences are remembered."""


class Phase(StrEnum):
    """There is but one."""

    WATCHING = "Watching"


class Timer(StrEnum):
    """The period."""

    BEAT = "detector beat"


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """The sender lives, and is in ``view``."""

    view: ViewId

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 12


class Suspects(msgspec.Struct, frozen=True, gc=False):
    """To the owner: these have been silent for too long."""

    nodes: tuple[NodeId, ...]


class Trusts(msgspec.Struct, frozen=True, gc=False):
    """To the owner: one that was suspected has been heard again."""

    node: NodeId


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the detector."""

    beat_us: int = 60_000
    suspect_us: int = 300_000
    """The shortest silence that makes a suspicion …"""
    suspect_max_us: int = 2_000_000
    """… and the longest that does not."""


class Detector(Machine):
    """One processor's opinion of its peers."""

    def __init__(self, me: NodeId, settings: Settings) -> None:
        super().__init__()
        self.me = me
        self.settings = settings
        self.phase: Phase = Phase.WATCHING
        self.view = ViewId(0, me)
        self.heard: dict[NodeId, int] = {}
        """When each peer was heard last. Owners write here for every frame of a peer."""
        self.suspected: set[NodeId] = set()
        self._boots: Mapping[NodeId, int] = {}
        self._seen: dict[NodeId, int] = {}
        """``heard`` as it was at the last beat after which the peer was heard again."""
        self._silence: dict[NodeId, int] = {}
        """The longest silence of late, by peer, watched now or earlier."""

    def start(self, env: Env, event: Started) -> None:
        """Begin to beat."""
        env.set_timer(Timer.BEAT, self.settings.beat_us)

    def admit(self, env: Env, event: Received) -> bool:
        """Nothing of a heartbeat can be wrong."""
        return True

    @property
    def ready(self) -> bool:
        """It takes no submissions."""
        return False

    def watch(self, env: Env, view: ViewId, boots: Mapping[NodeId, int]) -> None:
        """Be in ``view`` from now on, and watch these incarnations, the newcomers from now on."""
        self.view = view
        known = self._boots
        self._boots = {node: boot for node, boot in boots.items() if node != self.me}
        for node in sorted(known.keys() | self._boots.keys()):
            if known.get(node) == self._boots.get(node):
                continue
            self.suspected.discard(node)
            self.heard.pop(node, None)
            if node in self._boots:
                self.heard[node] = self._seen[node] = env.now_us

    def patience_us(self, node: NodeId) -> int:
        """How long this peer may be silent."""
        long_us = MARGIN * self._silence.get(node, 0)
        return min(max(long_us, self.settings.suspect_us), self.settings.suspect_max_us)

    def on_beat(self, env: Env, event: TimerFired) -> None:
        """Say that I live, and look who does not."""
        env.broadcast(Heartbeat(self.view))
        env.set_timer(Timer.BEAT, self.settings.beat_us)
        found = [node for node in sorted(self._boots) if self._look(env, node)]
        if found:
            env.up(Suspects(tuple(found)))

    def _look(self, env: Env, node: NodeId) -> bool:
        """Measure the silence of one peer; whether it is suspected from now on."""
        heard_us = self.heard[node]
        again = heard_us > self._seen[node]
        if again:
            longest_us = self._silence.pop(node, 0)
            longest_us = max(heard_us - self._seen[node], longest_us - longest_us // FADING)
            if len(self._silence) >= MOST_REMEMBERED:
                del self._silence[next(iter(self._silence))]
            self._silence[node] = longest_us
            self._seen[node] = heard_us
        if node in self.suspected:
            if again:
                self.suspected.discard(node)
                env.up(Trusts(node))
            return False
        if env.now_us - heard_us <= self.patience_us(node):
            return False
        self.suspected.add(node)
        return True

    def on_heartbeat(self, env: Env, event: Received) -> None:
        """A sign of life, if it is of the incarnation that is watched."""
        if self._boots.get(event.src) == event.boot:
            self.heard[event.src] = env.now_us

    def snapshot(self) -> dict[str, object]:
        """Who is suspected, and how patient it is."""
        return {
            "suspected": tuple(sorted(self.suspected)),
            "patience_us": {node: self.patience_us(node) for node in sorted(self._boots)},
        }

    table: ClassVar[Table] = Table(
        Phase,
        (Heartbeat,),
        Timer,
        {
            (Phase.WATCHING, Submitted): Impossible("it takes no submissions"),
            (Phase.WATCHING, Leaving): Impossible("the owner leaves, not its detector"),
            (Phase.WATCHING, Heartbeat): on_heartbeat,
            (Phase.WATCHING, Timer.BEAT): on_beat,
        },
    )

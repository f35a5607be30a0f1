"""A heartbeat detector: who has been silent for longer than it usually is.

Every processor broadcasts a heartbeat each ``beat_us``, and whatever else it sends is a sign of
life too. A peer is suspected when it has been silent for several times its longest silence of
late, within bounds. A mistake makes that silence longer, so on a network whose delays are bounded
mistakes come to an end; the memory fades, so detection becomes fast again.

A detector has one limit or two. The aggressive one is for steps that a mistake makes a little
slower, the conservative one for steps that cost a member its place. All peers are watched at both:
an owner that cares for some of them alone looks at ``suspected`` when it begins to care.

A heartbeat names the view its sender is in. What to conclude from that is the owner's business.

Rules: D1 to D4, D7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId, Seq, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Impossible, Machine, Table

MARGIN = 4
"""A peer is suspected after so many times its longest silence of late."""

FADING = 16
"""With each beat the memory of a silence loses one part in so many."""

SHARE = 32
"""A part of a beat that counts as nothing: timers run by clocks that may be a little fast."""

MOST_REMEMBERED = 256
"""Peers whose silences are remembered."""


class Phase(StrEnum):
    """There is but one."""

    WATCHING = "Watching"


class Timer(StrEnum):
    """The period."""

    BEAT = "detector beat"


class Limit(StrEnum):
    """D2: what a silence is measured by."""

    AGGRESSIVE = "aggressive"
    CONSERVATIVE = "conservative"


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=22, gc=False):
    """The sender lives, and is in ``view``. ``news`` is what its owner adds, in few numbers."""

    view: ViewId
    news: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=8)] = ()

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 12


class Suspects(msgspec.Struct, frozen=True, gc=False):
    """To the owner: these have been silent for too long, by ``limit``."""

    nodes: tuple[NodeId, ...]
    limit: Limit = Limit.AGGRESSIVE


class Trusts(msgspec.Struct, frozen=True, gc=False):
    """To the owner: one that was suspected has been heard again, which ends it at both limits."""

    node: NodeId


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the detector."""

    beat_us: int = 60_000
    suspect_us: int = 300_000
    """The shortest silence that makes a suspicion …"""
    suspect_max_us: int = 2_000_000
    """… and the longest that does not."""
    exclude_us: int = 0
    """The shortest silence by the conservative limit; 0 if the detector has none …"""
    exclude_max_us: int = 0
    """… and the longest."""
    at_once: bool = False
    """Whether a silence is noticed when it reaches a limit, and not with the next beat: for owners
    whose members must find out together, since what they do then waits for the last of them."""

    def __post_init__(self) -> None:
        """D2: a conservative suspicion implies an aggressive one."""
        longer = self.exclude_us >= self.suspect_us and self.exclude_max_us >= self.suspect_max_us
        if self.exclude_us and not longer:
            raise ValueError(
                f"exclude_us = {self.exclude_us} and exclude_max_us = {self.exclude_max_us} must "
                f"not be below suspect_us = {self.suspect_us} and suspect_max_us = "
                f"{self.suspect_max_us}: the conservative limit would be reached first"
            )

    @property
    def limits(self) -> tuple[tuple[Limit, int, int], ...]:
        """D2: each limit with its bounds, the aggressive one first."""
        aggressive = (Limit.AGGRESSIVE, self.suspect_us, self.suspect_max_us)
        if not self.exclude_us:
            return (aggressive,)
        return (aggressive, (Limit.CONSERVATIVE, self.exclude_us, self.exclude_max_us))


class Detector(Machine):
    """One processor's opinion of its peers. D7: it sends nothing but heartbeats, and says what it
    thinks to its owner alone."""

    def __init__(self, me: NodeId, settings: Settings) -> None:
        super().__init__()
        self.me = me
        self.settings = settings
        self.phase: Phase = Phase.WATCHING
        self.view = ViewId(0, me)
        self.news: tuple[int, ...] = ()
        """D1: what a heartbeat tells besides, as the owner wrote it last."""
        self.heard: dict[NodeId, int] = {}
        """When each peer was heard last. Owners write here for every frame of a peer."""
        self.suspected: set[NodeId] = set()
        """D2: by the aggressive limit …"""
        self.excludable: set[NodeId] = set()
        """… and by the conservative one: never anybody that the aggressive one has not."""
        self._boots: Mapping[NodeId, int] = {}
        self._seen: dict[NodeId, int] = {}
        """``heard`` as it was at the last beat after which the peer was heard again."""
        self._silence: dict[NodeId, int] = {}
        """The longest silence of late, by peer, watched now or earlier."""
        self._due_us = 0
        """When the next heartbeat is due."""

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
        """Be in ``view`` from now on, and watch these incarnations, the newcomers from now on. D4:
        all of them are watched by both limits, and nobody else is forgotten but by this."""
        self.view = view
        known = self._boots
        self._boots = {node: boot for node, boot in boots.items() if node != self.me}
        for node in sorted(known.keys() | self._boots.keys()):
            if known.get(node) == self._boots.get(node):
                continue
            self.suspected.discard(node)
            self.excludable.discard(node)
            self.heard.pop(node, None)
            if node in self._boots:
                self.heard[node] = self._seen[node] = env.now_us

    def patience_us(self, node: NodeId, limit: Limit = Limit.AGGRESSIVE) -> int:
        """D3: how long this peer may be silent: it grows with the silence of a mistake."""
        long_us = MARGIN * self._silence.get(node, 0)
        for each, least_us, most_us in self.settings.limits:
            if each is limit:
                return min(max(long_us, least_us), most_us)
        raise ValueError(f"this detector has no {limit} limit: set exclude_us")

    def on_beat(self, env: Env, event: TimerFired) -> None:
        """D1: say that I live, and look who does not."""
        least_us = self.settings.beat_us // SHARE + 1
        if not self.settings.at_once or env.now_us + least_us >= self._due_us:
            env.broadcast(Heartbeat(self.view, self.news))
            self._due_us = env.now_us + self.settings.beat_us
        env.set_timer(Timer.BEAT, self._due_us - env.now_us)
        for node in sorted(self._boots):
            self._measure(env, node)
        soon_us = self._due_us
        for limit, _, _ in self.settings.limits:
            blamed = self.suspected if limit is Limit.AGGRESSIVE else self.excludable
            ends_us = {
                node: self.heard[node] + self.patience_us(node, limit)
                for node in sorted(self._boots)
                if node not in blamed
            }
            found = tuple(node for node, end_us in ends_us.items() if env.now_us > end_us)
            blamed.update(found)
            if found:
                env.up(Suspects(found, limit))
            soon_us = min([soon_us, *(us + 1 for us in ends_us.values() if us >= env.now_us)])
        if self.settings.at_once and soon_us < self._due_us:
            env.set_timer(Timer.BEAT, max(soon_us - env.now_us, least_us))

    def _measure(self, env: Env, node: NodeId) -> None:
        """Measure the silence of one peer; D3: a sign of life ends a suspicion."""
        heard_us = self.heard[node]
        if heard_us <= self._seen[node]:
            return
        longest_us = self._silence.pop(node, 0)
        longest_us = max(heard_us - self._seen[node], longest_us - longest_us // FADING)
        if len(self._silence) >= MOST_REMEMBERED:
            del self._silence[next(iter(self._silence))]
        self._silence[node] = longest_us
        self._seen[node] = heard_us
        if node in self.suspected:
            self.suspected.discard(node)
            self.excludable.discard(node)
            env.up(Trusts(node))

    def on_heartbeat(self, env: Env, event: Received) -> None:
        """A sign of life, if it is of the incarnation that is watched."""
        if self._boots.get(event.src) == event.boot:
            self.heard[event.src] = env.now_us

    def snapshot(self) -> dict[str, object]:
        """Who is suspected, and how patient it is."""
        return {
            "suspected": tuple(sorted(self.suspected)),
            "excludable": tuple(sorted(self.excludable)),
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

"""One seed: a world is made, the test runs in it, and what came of it is told."""

from __future__ import annotations

import asyncio
import gc
import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from traceback import extract_tb
from typing import Any, Literal, TypeAlias

import msgspec

from ringcast.sim.model import NetworkModel
from ringcast.testing import ordered, refused, replaced  # noqa: F401  # two for what they replace
from ringcast.testing.errors import NotReached, Violated, origin_of
from ringcast.testing.faults import Plan, Swarm, draw_plan
from ringcast.testing.files import close_files
from ringcast.testing.network import CALM, draw_network, every
from ringcast.testing.process import MILLION
from ringcast.testing.world import Event, World

Test: TypeAlias = Callable[[World], Coroutine[Any, Any, None]]
Faults: TypeAlias = Literal["swarm"] | Swarm | Plan | None
Ranges: TypeAlias = tuple[tuple[int, int], ...] | None
"""Which numbers, from and to; None is all of them."""


class RunSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what comes of a run, besides the program."""

    seed: int
    faults: Faults = None
    span: float = 10.0
    """Drawn faults begin within so many seconds."""
    network: NetworkModel | None = None
    """None: drawn with ``swarm``, else one without faults."""
    settings: dict[str, Any] = {}
    limit: float = 600.0
    mixed: Ranges = None
    """The turns whose order is drawn."""
    odd: Ranges = None
    """The messages whose fate is drawn."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run."""

    setup: RunSetup
    error: BaseException | None
    kind: str
    """Of the error: two runs that fail in the same way have the same kind."""
    plan: Plan
    network: NetworkModel
    events: list[Event]
    hosts: list[str]
    met: dict[str, bool]
    turns: int
    messages: int
    ended_us: int

    @property
    def trace(self) -> str:
        """All that happened, a line for each."""
        return "\n".join(line(event, self.hosts) for event in self.events)

    @property
    def digest(self) -> str:
        """Short for the trace."""
        return blake2b(self.trace.encode(), digest_size=16).hexdigest()


def line(event: Event, hosts: list[str]) -> str:
    """An event of a trace."""
    at = f"{event[0] // MILLION:4}.{event[0] % MILLION:06}"
    if len(event) == 3:
        return f"{at} {event[1]:10} {event[2]}"
    _, source, target, length, checksum = event
    return f"{at} {hosts[source - 1]} -> {hosts[target - 1]} {length} B {checksum:08x}"


def member(ranges: Ranges) -> Callable[[int], bool]:
    """Whether a number is in some ranges, which ascend."""
    if ranges is None:
        return every
    starts, ends = [low for low, _ in ranges], [high for _, high in ranges]

    def found(number: int) -> bool:
        at = bisect_right(starts, number) - 1
        return at >= 0 and number < ends[at]

    return found


def drawn_faults(swarm: Swarm, span: float, rng: Random, world: World) -> Plan:
    """The faults of a seed."""
    names = [host.name for host in world.hosts]
    frail = [host.name for host in world.hosts if not host.steady]
    return draw_plan(rng, swarm, names, frail, span)


def run(test: Test, setup: RunSetup) -> Outcome:
    """Run a test in a world of its own."""
    plan: Any = Swarm() if setup.faults == "swarm" else setup.faults or ()
    model = setup.network or CALM
    if isinstance(plan, Swarm):
        model = setup.network or draw_network(Random(f"{setup.seed}/model"))
        plan = partial(drawn_faults, plan, setup.span)
    world = World(setup.seed, model, plan, setup.settings, setup.limit)
    world.loop.mixed, world.network.odd = member(setup.mixed), member(setup.odd)
    error: BaseException | None = None
    collecting = gc.isenabled()
    gc.disable()  # what the collector finalizes, and when, differs from run to run
    try:
        with replaced.replaced(world), logged(world):
            try:
                world.loop.run_until_complete(test(world))
                world.check()
            except (Exception, SystemExit, asyncio.CancelledError) as failed:
                error = failed
            finally:
                unheard = world.unheard()
                error = error or unheard
                ended_us, turns = world.loop.now_us, world.loop.turns
                events, met = list(world.events), dict(world.met)
                world.end()
                close_files(world.files)
    finally:
        if collecting:
            gc.enable()
        world.remove_files()
    return Outcome(
        setup,
        error,
        kind_of(error),
        world.plan,
        model,
        events,
        [host.name for host in world.hosts],
        met,
        turns,
        world.network.messages,
        ended_us,
    )


class _ToStory(logging.Handler):
    """What programs log becomes lines of the story."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if replaced.here() is self._world:
            self._world.note(f"{record.levelname}: {record.getMessage()}")


@contextmanager
def logged(world: World) -> Iterator[None]:
    """Listen to what is logged."""
    handler, root = _ToStory(world), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def not_the_users(filename: str) -> bool:
    """Whether a frame of a traceback is ours, or of what we stand on."""
    return any(f"/{part}/" in filename for part in ("ringcast/testing", "asyncio", "hypothesis"))


def kind_of(error: BaseException | None) -> str:
    """What two failures have in common that are the same one."""
    if error is None:
        return ""
    if isinstance(error, Violated | NotReached):
        return f"{type(error).__name__}: {error.name}"
    origin = origin_of(error)
    frames = [
        frame for frame in extract_tb(origin.__traceback__) if not not_the_users(frame.filename)
    ]
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(origin).__name__}{place}"

"""simtest: a test that runs in many simulated worlds, one for each seed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ringcast.sim.model import NetworkModel
from ringcast.testing.errors import NeverMet, NotDeterministic, SimFailure
from ringcast.testing.run import Faults, Outcome, RunSetup, Test, run
from ringcast.testing.shrink import shrink
from ringcast.testing.story import repeat, story
from ringcast.testing.world import World

SHRINK_RUNS = 150
"""Runs spent on making a failure small."""

AsyncTest: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


class CampaignOptions(msgspec.Struct):
    """What the command line of the test runner says."""

    seeds: tuple[int, ...] | None = None
    """Run these instead of those of the test."""
    count: int | None = None
    """Run so many."""


OPTIONS = CampaignOptions()


def simtest(
    seeds: int | Iterable[int] = 100,
    faults: Faults = None,
    *,
    span: float = 10.0,
    network: NetworkModel | None = None,
    settings: dict[str, Any] | None = None,
    limit: float = 600.0,
    shrink_runs: int = SHRINK_RUNS,
) -> Callable[[AsyncTest], Callable[..., None]]:
    """Run ``async def test(world)`` once for each seed, in a world of its own.

    ``seeds`` is how many, or which. ``faults`` are drawn from each seed with ``"swarm"`` (or with a
    ``Swarm`` of some kinds), beginning within ``span`` seconds, or are a plan, or none. ``network``
    is the model of every link; without it, it is drawn with a swarm, and good otherwise.
    ``settings`` are for every node that a host opens. A run that takes more than ``limit`` seconds
    of its own time fails.
    """
    if callable(seeds):
        raise TypeError("simtest is called: write @simtest(), or @simtest(seeds=100)")
    if isinstance(faults, str) and faults != "swarm":
        raise ValueError(f"faults = {faults!r}: give 'swarm', a Swarm, a plan or None")
    which = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not which:
        raise ValueError("seeds: give at least one")
    setup = RunSetup(
        seed=0, faults=faults, span=span, network=network, settings=settings or {}, limit=limit
    )

    def decorate(test: AsyncTest) -> Callable[..., None]:
        return Campaign(test, which, setup, shrink_runs).function()

    return decorate


class Campaign:
    """A test and its seeds."""

    def __init__(
        self, test: AsyncTest, seeds: tuple[int, ...], setup: RunSetup, shrink_runs: int
    ) -> None:
        self._hypothesis: Any = getattr(test, "hypothesis", None)
        self._outer: Callable[..., Any] = test
        self.test: AsyncTest = self._hypothesis.inner_test if self._hypothesis else test
        if not inspect.iscoroutinefunction(self.test):
            raise TypeError(f"{test.__name__}: write 'async def' in a simtest")
        if "world" not in inspect.signature(self.test).parameters:
            raise TypeError(f"{test.__name__}: a simtest has a parameter called world")
        self.seeds = seeds
        self.setup = setup
        self._shrink_runs = shrink_runs
        self._last: tuple[Test, Outcome] | None = None

    def function(self) -> Callable[..., None]:
        """What a test runner calls: everything but the world comes from there."""
        signature = inspect.signature(self._outer)
        others = [each for name, each in signature.parameters.items() if name != "world"]

        @wraps(self._outer)
        def runs(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            if self._hypothesis:
                self._with_hypothesis(args, kwargs)
            else:
                self.run(args, kwargs)

        runs.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        runs.simtest = self  # type: ignore[attr-defined]
        return runs

    def one(self, seed: int, args: tuple[Any, ...] = (), kwargs: Any = None) -> Outcome:
        """What comes of one seed."""
        return run(self._bound(args, kwargs or {}), replace(self.setup, seed=seed))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Test:
        def test(world: World) -> Coroutine[Any, Any, None]:
            return self.test(*args, **kwargs, world=world)

        return test

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """All seeds; SimFailure at the first that fails."""
        __tracebackhide__ = True
        met: dict[str, bool] = {}
        seeds = self._wanted()
        test = self._bound(args, kwargs)
        for seed in seeds:
            outcome = run(test, replace(self.setup, seed=seed))
            if outcome.error is not None:
                self.report(test, outcome)
            if seed == seeds[0]:
                same(outcome, run(test, outcome.setup))
            for name, seen in outcome.met.items():
                met[name] = met.get(name, False) or seen
        never = [name for name, seen in met.items() if not seen]
        if never and OPTIONS.seeds is None:
            raise NeverMet(f"in {len(seeds)} seeds never: {'; '.join(never)}")

    def _wanted(self) -> tuple[int, ...]:
        if OPTIONS.seeds is not None:
            return OPTIONS.seeds
        return self.seeds if OPTIONS.count is None else tuple(range(OPTIONS.count))

    def report(self, test: Test, outcome: Outcome) -> None:
        """Tell the story of a failure."""
        __tracebackhide__ = True
        seed, error = outcome.setup.seed, outcome.error
        assert error is not None
        again = run(test, outcome.setup)
        same(outcome, again)
        text = story(shrink(test, again, self._shrink_runs), seed, repeat(this_test(), seed))
        raise SimFailure(text) from error.with_traceback(own_frames(error.__traceback__))

    def _with_hypothesis(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Hypothesis makes the inputs small first, then we the run."""
        __tracebackhide__ = True

        def example(*args: Any, **kwargs: Any) -> None:
            kwargs.pop("world")
            test = self._bound(args, kwargs)
            for seed in self._wanted():
                outcome = run(test, replace(self.setup, seed=seed))
                if outcome.error is not None:
                    self._last = (test, outcome)
                    raise outcome.error

        self._hypothesis.inner_test = example
        self._last = None
        try:
            self._outer(*args, **kwargs, world=None)
        except Exception as error:
            if self._last is None:
                raise
            test, outcome = self._last
            told = story(shrink(test, outcome, self._shrink_runs), outcome.setup.seed,
                         repeat(this_test(), outcome.setup.seed))  # fmt: skip
            notes = getattr(error, "__notes__", [])
            raise SimFailure("\n".join([told, *notes])) from error


def same(one: Outcome, other: Outcome) -> None:
    """Raise if two runs of a seed differ."""
    __tracebackhide__ = True
    if one.events == other.events and one.kind == other.kind:
        return
    mine, theirs = one.trace.splitlines(), other.trace.splitlines()
    at = next(
        (at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    once, again = ("\n".join(trace[at : at + 3]) or "(the end)" for trace in (mine, theirs))
    raise NotDeterministic(
        f"seed {one.setup.seed} ran in two ways. Line {at + 1} was once\n{once}\n"
        f"and then\n{again}\n"
        "Does the program go through a set of objects, keep state in a module from run to run, "
        "or use something that is not simulated?"
        + (f" Once it failed: {one.kind}." if one.error is not None else "")
    )


def this_test() -> str:
    """The test that runs, as pytest names it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the user's first frame on."""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/ringcast/testing/" not in name and "/asyncio/" not in name:
            return trace
        trace = trace.tb_next
    return None

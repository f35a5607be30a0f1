"""simtest: a test that runs in many simulated worlds, one for each seed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, NoReturn, TypeAlias

import msgspec
from msgspec.structs import replace

from ringcast.sim.model import NetworkModel
from ringcast.sim.scenario.syntax import seed_range
from ringcast.testing.errors import NeverMet, SimFailure, headline
from ringcast.testing.faults import Fault, as_plan
from ringcast.testing.reports import own_frames, same, this_test
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
    seeds: int | str | Iterable[int] = 100,
    faults: Faults | Fault | Iterable[Fault] = None,
    *,
    span: float = 10.0,
    network: NetworkModel | None = None,
    settings: dict[str, Any] | None = None,
    limit: float = 600.0,
    shrink_runs: int = SHRINK_RUNS,
) -> Callable[[AsyncTest], Callable[..., None]]:
    """Run ``async def test(world)`` once for each seed, in a world of its own.

    ``seeds`` is how many, or which (``"17"``, ``"100..200"``, or any numbers). ``faults`` are drawn
    from each seed with ``"swarm"`` (or with a ``Swarm`` of some kinds), beginning within ``span``
    seconds, or are a plan, or none. ``network`` is the model of every link; without it, it is drawn
    with a swarm, and good otherwise. ``settings`` are for every node that a host opens. A run that
    takes more than ``limit`` seconds of its own time fails. ``shrink_runs`` are spent on making a
    failure small; with 0 the story is that of the run itself.
    """
    if callable(seeds):
        raise TypeError("simtest is called: write @simtest(), or @simtest(seeds=100)")
    if isinstance(seeds, str):
        seeds = seed_range(seeds)
    which = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not which:
        raise ValueError("seeds: give at least one")
    setup = RunSetup(
        seed=0,
        faults=as_plan(faults),
        span=span,
        network=network,
        settings=settings or {},
        limit=limit,
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

    def function(self) -> Callable[..., None]:
        """What a test runner calls: everything but the world comes from there."""
        signature = inspect.signature(self._outer)
        others = [each for name, each in signature.parameters.items() if name != "world"]

        @wraps(self._outer)
        def runs(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            if (
                hypothesis := sys.modules.get("hypothesis")
            ) and hypothesis.currently_in_test_context():
                raise TypeError(f"{self.test.__name__}: put @simtest above @given")
            if self._hypothesis:
                self._with_hypothesis(args, kwargs, runs._hypothesis_internal_use_settings)  # type: ignore[attr-defined]
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
            outcome = self._outcome(test, seed)
            if outcome.error is not None:
                self.report(test, outcome)
            if seed == seeds[0]:
                same(outcome, run(test, outcome.setup))
            also_met(met, outcome)
        all_met(met, len(seeds))

    def _outcome(self, test: Test, seed: int) -> Outcome:
        """Of one seed. What the test runner raises meanwhile, such as a timeout, passes."""
        __tracebackhide__ = True
        try:
            return run(test, replace(self.setup, seed=seed))
        except BaseException as error:
            error.add_note(f"in seed {seed}; repeat: {repeat(this_test(), seed)}")
            raise

    def _wanted(self) -> tuple[int, ...]:
        if OPTIONS.seeds is not None:
            return OPTIONS.seeds
        return self.seeds if OPTIONS.count is None else tuple(range(OPTIONS.count))

    def report(self, test: Test, outcome: Outcome, *notes: str) -> NoReturn:
        """Tell the story of a failure, with the traceback of the run that it tells of."""
        __tracebackhide__ = True
        seed = outcome.setup.seed
        assert outcome.error is not None
        line = repeat(this_test(), seed)
        try:
            again = run(test, outcome.setup)
            same(outcome, again)
            shrunk = shrink(test, again, self._shrink_runs)
        except BaseException as stopped:
            stopped.add_note(f"seed {seed} had failed: {headline(outcome.error)}; repeat: {line}")
            raise
        text = "\n".join([story(shrunk, seed, line), *notes])
        assert shrunk.best.error is not None
        raise SimFailure(text).with_traceback(own_frames(shrunk.best.error, self.test)) from None

    def _with_hypothesis(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], settings: Any
    ) -> None:
        """Hypothesis makes the inputs small first, then we the run."""
        __tracebackhide__ = True
        last: tuple[Test, Outcome] | None = None
        met: dict[str, bool] = {}

        @wraps(self.test)
        def example(*args: Any, **kwargs: Any) -> None:
            nonlocal last
            kwargs.pop("world")
            test = self._bound(args, kwargs)
            for seed in self._wanted():
                outcome = self._outcome(test, seed)
                if outcome.error is not None:
                    last = test, outcome
                    raise outcome.error
                also_met(met, outcome)

        self._hypothesis.inner_test = example
        self._outer._hypothesis_internal_use_settings = patient(settings)  # type: ignore[attr-defined]
        try:
            self._outer(*args, **kwargs, world=None)
        except Exception:
            if last is None:
                raise
        else:
            return all_met(met, len(self._wanted()))
        self.report(*last, *getattr(last[1].error, "__notes__", []))


def also_met(met: dict[str, bool], outcome: Outcome) -> None:
    """Add what one run has seen of what is to be seen sometimes."""
    for name, seen in outcome.met.items():
        met[name] = met.get(name, False) or seen


def all_met(met: dict[str, bool], seeds: int) -> None:
    """NeverMet if there is something that no run has seen, unless the user asked for seeds."""
    __tracebackhide__ = True
    never = [name for name, seen in met.items() if not seen]
    if never and OPTIONS.seeds is None:
        raise NeverMet(
            f"in {seeds} seeds never: {'; '.join(never)}. Run more seeds (seeds=, or "
            "--simtest-seeds), let the test run for longer than faults begin (span=), or draw "
            "more of them (Swarm)"
        )


def patient(settings: Any) -> Any:
    """Settings of Hypothesis for an example that is many simulated worlds: no deadline, which would
    be one of real time, unless the user gave one; and one bug at a time, as we tell one story."""
    from hypothesis import settings as all_settings

    settings = settings or all_settings.default
    usual = all_settings.get_profile("default").deadline
    deadline = None if settings.deadline == usual else settings.deadline
    return all_settings(settings, deadline=deadline, report_multiple_bugs=False)

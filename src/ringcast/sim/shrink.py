"""Shrinking: the smallest run that still breaks the same property."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ringcast.sim.model import NetworkModel
from ringcast.sim.run import Breach, run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import Bursts, ClosedLoop, Fill, Poisson, Sizes, Workload

Item = TypeVar("Item")


class Shrunk(msgspec.Struct, frozen=True):
    """A minimal run, what it breaks, and how many runs it took to find it."""

    spec: RunSpec
    breach: Breach
    runs: int


class _Spent(Exception):
    """The budget is used up; what was found so far has to do."""


class _Search:
    """The smallest failing run so far."""

    def __init__(self, spec: RunSpec, breach: Breach, budget: int) -> None:
        self.best = spec
        self.breach = breach
        self.runs = 1
        self._budget = budget

    def accept(self, **changes: Any) -> bool:
        """Whether the best run still fails when changed so; if it does, it is the new best."""
        if self.runs >= self._budget:
            raise _Spent
        spec = replace(self.best, **changes)
        self.runs += 1
        breach = _find(run(spec).violations, self.breach.property)
        if breach is not None:
            self.best, self.breach = spec, breach
        return breach is not None


def shrink(spec: RunSpec, budget: int = 1000) -> Shrunk:
    """Reduce the fault plan of a failing run, then its workload and its network.

    At most ``budget`` runs are made. ValueError if the run does not fail in the first place.
    """
    found = run(spec)
    if not found.violations:
        raise ValueError(f"seed {spec.seed} breaks no property, so there is nothing to shrink")
    core = found.settled or spec.core  # whatever faults are taken out
    search = _Search(replace(spec, swarm=False, core=core), found.violations[0], budget)
    with suppress(_Spent):
        _shrink(search)
    return Shrunk(search.best, search.breach, search.runs)


def _shrink(search: _Search) -> None:
    t_us = search.breach.t_us
    if t_us <= search.best.duration_us:
        # Broken in the first stage: what was planned for later cannot have mattered.
        early = tuple(fault for fault in search.best.faults if fault.at_us <= t_us)
        search.accept(faults=early, duration_us=t_us, measure_from_us=None, settle=False)
    minimise(search.best.faults, lambda faults: search.accept(faults=tuple(faults)))
    minimise(search.best.workload, lambda work: search.accept(workload=tuple(work)))
    for i in range(len(search.best.workload)):
        _shrink_workload(search, i)
    model = prepare(search.best).model
    for simpler in (NetworkModel(link=model.link.calm()), model.calm()):
        if simpler != model and search.accept(network=simpler):
            break
    minimise(search.best.faults, lambda faults: search.accept(faults=tuple(faults)))


def _shrink_workload(search: _Search, index: int) -> None:
    """Simplify one workload as long as that helps."""
    shrinking = True
    while shrinking:
        before = search.best.workload
        shrinking = any(
            search.accept(workload=(*before[:index], simpler, *before[index + 1 :]))
            for simpler in _simpler(before[index], search.best.ids)
        )


def _simpler(work: Workload, ids: tuple[int, ...]) -> Iterator[Workload]:
    """Workloads that are smaller in one respect."""
    senders = work.senders or ids
    if len(senders) > 1:
        yield replace(work, senders=senders[: len(senders) // 2])
        yield replace(work, senders=senders[len(senders) // 2 :])
    if any(size.high > 16 for size in work.sizes):
        yield replace(work, sizes=(Sizes(16, 16),))
    if work.safe > 0.0:
        yield replace(work, safe=0.0)
    match work:
        case Poisson(rate=rate) if rate > 2:
            yield replace(work, rate=rate / 2)
        case Bursts(messages=messages) if messages > 1:
            yield replace(work, messages=messages // 2)
        case ClosedLoop(outstanding=outstanding) if outstanding > 1:
            yield replace(work, outstanding=outstanding // 2)
        case Fill(queue=queue) if queue > 1:
            yield replace(work, queue=queue // 2)


def minimise(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A sublist that still fails and of which no single item can be left out (ddmin).

    Chunks of half the list are tried first, then smaller and smaller ones.
    """
    kept = list(items)
    size = len(kept)
    while size:
        start, removed = 0, False
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if fails(rest):
                kept, removed = rest, True
            else:
                start += size
        if size == 1 and removed:
            continue  # one may have become superfluous because another has gone
        size //= 2
    return kept


def _find(violations: Sequence[Breach], name: str) -> Breach | None:
    return next((breach for breach in violations if breach.property == name), None)

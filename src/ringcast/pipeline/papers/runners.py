"""What an experiment can measure besides the simulations of a sweep, as Spark tasks.

A probe is a function of a run or of plain arguments. It gives rows that depend on these alone, so
the table is the same whatever the number of tasks and wherever they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from itertools import product
from math import ceil
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import pyarrow as pa

from ringcast.pipeline.papers.availability import service
from ringcast.pipeline.papers.comparison import compare
from ringcast.pipeline.papers.experiments import Source
from ringcast.pipeline.papers.graphs import failures
from ringcast.pipeline.papers.outages import outage, roles, silence
from ringcast.pipeline.papers.polling import poll
from ringcast.pipeline.papers.promises import promises
from ringcast.pipeline.papers.ring_failures import ring_failures
from ringcast.pipeline.papers.ring_networks import gateway_share, ring_cut, ring_delay, ring_rate
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.tasks import tasks
from ringcast.pipeline.sweep.results import plain
from ringcast.sim.scenario.syntax import seed_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROBES: Mapping[str, Callable[..., Any]] = {
    "compare": compare,
    "failures": failures,
    "gateway_share": gateway_share,
    "outage": outage,
    "poll": poll,
    "promises": promises,
    "ring_cut": ring_cut,
    "ring_delay": ring_delay,
    "ring_failures": ring_failures,
    "ring_rate": ring_rate,
    "roles": roles,
    "service": service,
    "silence": silence,
}
"""By the name that an experiment uses. Each gives a Struct, or an iterator of them."""

MOST_TASKS, POINTS = 64, 4
"""There are no more tasks than this, and in each about so many points of a grid or more: a task
costs some hundredths of a second, and so do the quickest probes. A run of a study takes seconds
and is a task of its own, lest one core does all of a small study."""

ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


class WorkItem(msgspec.Struct, frozen=True):
    """One call of a probe, and what sets it apart from the others."""

    number: int
    parameters: dict[str, Any]
    arguments: dict[str, Any]


def probed(spark: SparkSession, source: Source, label: str, quiet: bool) -> pa.Table:
    """Call the probe of ``source`` at every point: columns of the point, then of its rows."""
    work = list(items(source))
    bundles = bundled(work, alone=source.alone or bool(source.study))
    schema = pa.schema([pa.field("item", pa.int64()), *row_type(PROBES[source.function])])
    with watch(spark, len(bundles), label, quiet):
        found = tasks(spark, bundles, partial(call_all, source.function), schema)
    found = found.sort_by("item")
    columns: dict[str, pa.ChunkedArray | pa.Array] = {
        name: plain([item.parameters[name] for item in work]).take(found["item"])
        for name in work[0].parameters
    }
    for name in schema.names[1:]:
        columns[name] = found[name]
    return pa.table(columns)


def bundled(work: Sequence[WorkItem], alone: bool) -> list[Sequence[WorkItem]]:
    """The work of each task; ``alone``: every item is worth one, as long as tasks are few."""
    count = min(MOST_TASKS, len(work) if alone else ceil(len(work) / POINTS))
    return [work[at::count] for at in range(count)]


def items(source: Source) -> Iterator[WorkItem]:
    """Every point of the study or of the grid."""
    if source.study:
        study = source.runs()
        for number, point in enumerate(study.points()):
            parameters = study.combinations[point.combination].parameters | {"seed": point.seed}
            yield WorkItem(number, parameters, {"spec": study.job(point).make()})
        return
    seeded = "seed" in signature(PROBES[source.function]).parameters
    seeds = {"seed": list(seed_range(str(source.seeds)))} if seeded else {}
    axes = source.grid | seeds
    for number, values in enumerate(product(*axes.values())):
        parameters = dict(zip(axes, values, strict=True))
        yield WorkItem(number, parameters, source.fixed | parameters)


def call_all(function: str, bundle: Sequence[WorkItem]) -> Iterator[dict[str, Any]]:
    """What a Spark task does: the rows of some points."""
    for item in bundle:
        given = PROBES[function](**item.arguments)
        rows: Iterable[msgspec.Struct] = [given] if isinstance(given, msgspec.Struct) else given
        for row in rows:
            yield {"item": item.number, **msgspec.structs.asdict(row)}


def row_type(function: Callable[..., Any]) -> list[pa.Field]:
    """The columns of what a probe gives, by its annotation."""
    given = get_type_hints(function)["return"]
    row = next(iter(get_args(given)), given)
    return [pa.field(field.name, ARROW[field.type]) for field in msgspec.structs.fields(row)]

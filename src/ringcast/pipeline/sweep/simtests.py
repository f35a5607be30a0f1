"""Simtests on Spark: many seeds of a user's test, the failures by kind.

A task runs some seconds of seeds and sends back what failed. Nothing is shrunk here: that is for
the seeds somebody looks at, with the line that repeats them.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import util
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.spark.tasks import tasks
from ringcast.pipeline.sweep.job import FEWEST_TASKS, TASK_S
from ringcast.pipeline.sweep.results import parquet, writing
from ringcast.testing import story
from ringcast.testing.errors import described, headline
from ringcast.testing.run import kind_of

if TYPE_CHECKING:
    from ringcast.testing.campaign import Campaign

TRIALS = 16
"""Seeds that are run first, to learn what they cost."""

BLOCKS = 10
"""Parts of the seeds, for the density over them."""

MOST_TEXT = 500

ROWS = pa.schema(
    [
        ("seed", pa.int64()),
        ("kind", pa.string()),
        ("text", pa.string()),
        ("runs", pa.int64()),
        ("seconds", pa.float64()),
        ("met", pa.list_(pa.string())),
        ("unmet", pa.list_(pa.string())),
    ]
)
"""A failure; or, with an empty kind, what a task has done."""


class Target(msgspec.Struct, frozen=True):
    """A simtest, by its file and name."""

    path: str
    name: str

    @property
    def spelt(self) -> str:
        """As pytest spells it."""
        return f"{self.path}::{self.name}"


def target(text: str) -> Target:
    """Read ``FILE::NAME``."""
    path, colons, name = text.partition("::")
    if not colons or not name.isidentifier():
        raise PipelineError(f"--simtest {text}: name a test as FILE::NAME, as for pytest")
    if not Path(path).is_file():
        raise PipelineError(f"--simtest {text}: there is no file {path}")
    return Target(str(Path(path).absolute()), name)


def load(target: Target) -> Campaign:
    """The test, imported; PipelineError if it is none, or needs more than a world."""
    path = Path(target.path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = sys.modules.get(path.stem)
    if module is None or getattr(module, "__file__", None) != target.path:
        spec = util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[path.stem]  # which has only half of it
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PipelineError(f"{path} cannot be imported: {described(error)}") from error
    found: Campaign | None = getattr(getattr(module, target.name, None), "simtest", None)
    if found is None:
        raise PipelineError(f"{target.spelt} is no test made with @simtest")
    more = [name for name in inspect.signature(found.test).parameters if name != "world"]
    if more:
        raise PipelineError(
            f"{target.spelt} needs {', '.join(more)}: a sweep gives a test its world and no more"
        )
    return found


def failure(seed: int, kind: str, text: str) -> dict[str, Any]:
    """The row of a seed that fails."""
    return {"seed": seed, "kind": kind, "text": text[:MOST_TEXT], "runs": 0, "seconds": 0.0}


def run_seeds(target: Target, seeds: range) -> Iterator[dict[str, Any]]:
    """What a task does."""
    campaign = load(target)
    began_s = perf_counter()
    met: dict[str, bool] = {}
    for seed in seeds:
        try:
            outcome = campaign.one(seed)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # pytest.fail() and pytest.skip(), which are no Exceptions
            yield failure(seed, kind_of(error), described(error))
            continue
        for name, seen in outcome.met.items():
            met[name] = met.get(name, False) or seen
        if outcome.error is not None:
            yield failure(seed, outcome.kind, headline(outcome.error))
    yield {
        "seed": seeds[0],
        "kind": "",
        "runs": len(seeds),
        "seconds": perf_counter() - began_s,
        "met": [name for name, seen in met.items() if seen],
        "unmet": [name for name, seen in met.items() if not seen],
    }


class SeedsFound(msgspec.Struct, frozen=True):
    """What came of a sweep of seeds."""

    runs: int
    failures: list[dict[str, Any]]
    """Seed, kind and text, by seed."""
    never_met: list[str]

    @property
    def kinds(self) -> list[tuple[str, int, int]]:
        """Each kind of failure, how often, and its first seed; the most frequent first."""
        count = Counter(row["kind"] for row in self.failures)
        first = {row["kind"]: row["seed"] for row in reversed(self.failures)}
        return [(kind, times, first[kind]) for kind, times in count.most_common()]

    def density(self, seeds: range) -> list[tuple[int, int, int]]:
        """The seeds in some blocks of one size: first seed, how many, and how many failed."""
        size = ceil(len(seeds) / BLOCKS)
        blocks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
        failed = Counter((row["seed"] - seeds.start) // size for row in self.failures)
        return [(block.start, len(block), failed[at]) for at, block in enumerate(blocks)]


def sweep_simtest(
    target: Target, seeds: range, out: Path, where: Where | None = None, *, quiet: bool = True
) -> SeedsFound:
    """Run ``seeds`` of a test on Spark, and write the failures to ``out``."""
    load(target)  # what is wrong with it is told here, not by a task
    with open_session(where, app=f"ringcast sweep {target.name}") as spark:

        def wave(bundles: Sequence[range], label: str) -> list[dict[str, Any]]:
            with watch(spark, len(bundles), label, quiet):
                rows = tasks(spark, bundles, partial(run_seeds, target), ROWS)
            found: list[dict[str, Any]] = rows.to_pylist()
            return found

        tried, rest = seeds[:TRIALS], seeds[TRIALS:]
        rows = wave([tried[at : at + 2] for at in range(0, len(tried), 2)], "trial seeds")
        if rest:
            each_s = sum(row["seconds"] for row in rows) / len(tried)
            size = max(1, min(int(TASK_S / max(each_s, 1e-4)), ceil(len(rest) / FEWEST_TASKS)))
            rows += wave([rest[at : at + size] for at in range(0, len(rest), size)], "tasks")
    failures = [
        {name: row[name] for name in ("seed", "kind", "text")} for row in rows if row["kind"]
    ]
    met = {name for row in rows for name in row["met"] or ()}
    unmet = {name for row in rows for name in row["unmet"] or ()}
    failures.sort(key=lambda row: int(row["seed"]))
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        kept = pa.Table.from_pylist(failures, schema=pa.schema(list(ROWS)[:3]))
        (out / "failures.parquet").write_bytes(parquet(kept))
    return SeedsFound(sum(row["runs"] for row in rows), failures, sorted(unmet - met))


def repeat(target: Target, seed: int) -> str:
    """The command that shows a failure, small. Spark's workers have the hash seed of the driver's
    environment, or 0."""
    return story.repeat(target.spelt, seed, story.hash_seed() or "0")

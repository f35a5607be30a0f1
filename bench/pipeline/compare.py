"""Ours beside DuckDB and two plain processes on the same trace files, in one interleaved run.

``compare.py --all`` takes a quarter of an hour, writes ``bench/results/pipeline.json`` and the
tables of ``docs/performance.md``. ``--quick`` takes two minutes and writes nothing. ``--billion``
verifies one trace of 1,000,000,000 events, once, and writes ``pipeline-billion.json``. Needs
``pip install -e '.[bench]'``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from asked import Command, keep
from duck import open_duck
from engines import Engine, Open, Turn
from ours import open_plain, open_spark
from promises import Book, Row, figure, ratio_table, write_page
from record import table, write
from sweeps import open_pool, open_sweep

from ringcast.traces.synthetic.faults import Fault, FaultKind
from ringcast.traces.synthetic.generate import Made, generate
from ringcast.traces.synthetic.group import Shape

CORES = 2
SIZES = (50_000_000, 200_000_000)
QUICK = (5_000_000, 20_000_000)
BILLION = 1_000_000_000
RING = 5_000_000
"""Events a ring: a larger trace has more rings, not longer ones."""
WARM_UP = 5_000_000
RUNS = 60
"""Simulations of a sweep."""
BYTES_AN_EVENT = 6
"""Room on the disk, with some to spare."""
SCRIPT = "bench/pipeline/compare.py"

TURNS = (
    ("ours", "order"),
    ("DuckDB", "order"),
    ("DuckDB", "own order"),
    ("ours", "order, contents"),
    ("ours", "full"),
    ("plain", "full"),
    ("DuckDB", "full"),
)
"""Who does what, in the order of a round."""

DUCK_SEES = ("order", "full")
"""What DuckDB is asked of traces with a fault."""


def rows(sizes: tuple[int, ...]) -> list[Row]:
    """What was promised. The second and third row have both look at the same, or ours at more."""
    found = []
    for at in map(millions, sizes):
        found += [
            Row("total order, M deliveries/s, over DuckDB's exact query",
                f"ours order {at}", f"DuckDB order {at}", 3, 4, group=at),
            Row("the same, DuckDB looking at each processor's own order too",
                f"ours order {at}", f"DuckDB own order {at}", 3, 4, group=at),
            Row("the same, and ours comparing contents with the originals too",
                f"ours order, contents {at}", f"DuckDB own order {at}", group=at),
            Row("full check, M events/s, over two plain processes",
                f"ours full {at}", f"plain full {at}", 0.8, 0.95, group=at),
            Row("full check over what DuckDB can express",
                f"ours full {at}", f"DuckDB full {at}", 1, 2, group=at),
        ]  # fmt: skip
    small, large = map(millions, sizes)
    group = f"{large} over {small}"
    return [
        *found,
        Row("full check, peak memory of executors and driver, GB",
            f"ours full {large}, GB", f"ours full {small}, GB", 1.2, 1, less=True, group=group),
        Row("full check, wall time, s",
            f"ours full {large}, s", f"ours full {small}, s", 4.4, 4, less=True, group=group),
        Row("processor time of a sweep over multiprocessing.Pool, s",
            "sweep, CPU s", "pool, CPU s", 1.08, 1.03, less=True, group=f"{RUNS} runs"),
    ]  # fmt: skip


def millions(size: int) -> str:
    """A size for people."""
    return f"{size // 1_000_000} M"


def engines(scratch: Path) -> dict[str, Open]:
    """How each engine is made ready."""
    return {
        "ours": partial(open_spark, CORES),
        "plain": partial(open_plain, CORES),
        "DuckDB": partial(open_duck, CORES, scratch),
    }


@contextmanager
def trace(
    work: Path, events: int, seed: int = 0, faults: tuple[Fault, ...] = ()
) -> Iterator[tuple[Path, Made]]:
    """A trace for the time of the block, if there is room for it."""
    free = shutil.disk_usage(work).free
    if free < events * BYTES_AN_EVENT:
        sys.exit(f"compare.py: {work} has only {free / 1e9:.0f} GB free; see --work")
    folder = work / "trace"
    shape = Shape(events=events, rings=max(2, events // RING), seed=seed)
    try:
        yield folder, generate(folder, shape, faults=faults)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean(turn: Turn) -> Turn:
    """A turn in which nothing wrong was found."""
    if turn.answer:
        raise RuntimeError(f"found in a clean trace: {turn.answer}")
    return turn


def take_turns(book: Book, work: Path, events: int, repeats: int) -> dict[str, Any]:
    """Every engine warms up on a small trace; then rounds over one clean trace."""
    with ExitStack() as stack:
        ready = {
            name: stack.enter_context(closing(Engine(name, opened)))
            for name, opened in engines(work / "scratch").items()
        }
        with trace(work, WARM_UP) as (folder, made):
            for name, check in TURNS:
                clean(ready[name].ask(check, folder))
        folder, made = stack.enter_context(trace(work, events))
        deliveries = pq.read_metadata(folder / "deliver" / "0.parquet").num_rows
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        for name, check in TURNS * repeats:
            turn = clean(ready[name].ask(check, folder))
            what = f"{name} {check} {millions(events)}"
            counted = made.events if check == "full" else deliveries
            book.note(what, counted / turn.seconds / 1e6)
            book.note(f"{what}, s", turn.seconds)
            book.note(f"{what}, CPU s", turn.cpu_s)
            book.note(f"{what}, GB", turn.peak_bytes / 1e9)
    return {"events": made.events, "deliveries": deliveries, "bytes": size}


def find_faults(work: Path, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Each kind of fault in the smaller trace, one in the larger: is it found, and is it it?"""
    found = []
    with (
        closing(Engine("ours", engines(work)["ours"])) as ours,
        closing(Engine("DuckDB", engines(work)["DuckDB"])) as duck,
    ):
        traces = [*((sizes[0], kind) for kind in FaultKind), (sizes[1], FaultKind.SWAP)]
        for seed, (events, kind) in enumerate(traces):
            with trace(work, events, seed, (Fault(kind),)) as (folder, made):
                (injected,) = made.injected
                turn = ours.ask("full", folder)
                named = any(
                    each["property"] == injected.breaks
                    and injected.node in each["nodes"]
                    and injected.message in each["messages"]
                    for each in turn.answer
                )
                seen = [bool(duck.ask(check, folder).answer) for check in DUCK_SEES]
            print(f"{'found' if named else 'MISSED'}: {injected} among {millions(events)}")
            found.append(
                {
                    "fault": str(kind),
                    "events": events,
                    "found": named,
                    "DuckDB": dict(zip(DUCK_SEES, seen, strict=True)),
                    "s": turn.seconds,
                }
            )
    return found


def sweep_cost(book: Book, work: Path, runs: int, repeats: int) -> None:
    """The same simulations on Spark and in a pool, in turn."""
    with (
        closing(Engine("sweep", partial(open_sweep, CORES, work))) as sweep,
        closing(Engine("pool", partial(open_pool, CORES))) as pool,
    ):
        for number in range(repeats + 1):
            for engine in (sweep, pool):
                turn = engine.ask(runs if number else CORES)
                assert turn.answer == (runs if number else CORES), turn
                if number:
                    book.note(f"{engine.name}, CPU s", turn.cpu_s)
                    book.note(f"{engine.name}, s", turn.seconds)


def engine_table(book: Book, sizes: tuple[int, ...]) -> str:
    """Rates, processor time and memory of every engine."""
    lines = []
    for at in map(millions, sizes):
        for name, check in TURNS:
            what = f"{name} {check} {at}"
            if what in book.values:
                each = [book.values[f"{what}{of}"] for of in ("", ", s", ", CPU s", ", GB")]
                rate, seconds, cpu_s, memory = each
                extremes = f" ({figure(min(rate))} to {figure(max(rate))})"
                lines.append(
                    (
                        at,
                        f"{name}, {check}",
                        figure(median(rate)) + extremes,
                        *(figure(median(values)) for values in (seconds, cpu_s)),
                        figure(max(memory)),
                    )
                )
    return table(("events", "engine, check", "M/s (extremes)", "s", "CPU s", "peak GB"), lines)


def fault_table(found: list[dict[str, Any]]) -> str:
    """What was put into traces and who saw it."""
    lines = [
        (
            millions(each["events"]),
            each["fault"],
            *("yes" if seen else "no" for seen in (each["found"], *each["DuckDB"].values())),
        )
        for each in found
    ]
    head = ("events", "fault", "ours: named", *(f"DuckDB, {check}" for check in DUCK_SEES))
    return table(head, lines)


def billion(work: Path, events: int, save: bool) -> None:
    """One large trace, verified once from a cold start."""
    began_s = time.monotonic()
    with trace(work, events) as (folder, made):
        made_s = time.monotonic() - began_s
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        print(f"{made.events:,} events made in {made_s:.0f} s, {size / 1e9:.1f} GB", flush=True)
        with closing(Engine("ours", engines(work)["ours"])) as ours:
            turn = ours.ask("full", folder)
    figures = {
        "events": made.events,
        "bytes": size,
        "made_s": made_s,
        "verified_s": turn.seconds,
        "cpu_s": turn.cpu_s,
        "peak_bytes": turn.peak_bytes,
        "violations": turn.answer,
    }
    said = (
        f"{made.events:,} events ({size / 1e9:.1f} GB) were written in {made_s:.0f} s by one "
        f"process and verified in {turn.seconds:.0f} s ({made.events / turn.seconds / 1e6:.1f} "
        f"M events/s, {turn.cpu_s:.0f} s of processor time) with a peak of "
        f"{turn.peak_bytes / 1e9:.2f} GB for driver and executors; every property was "
        f"{'violated' if turn.answer else 'valid'}."
    )
    print(said)
    if save:
        write("pipeline-billion", figures)
        write_page("pipeline billion", SCRIPT, said)


PARTS = {
    "turns": "the engines in turn",
    "faults": "traces with a fault in them",
    "sweep": "a sweep beside a pool",
}


def main() -> None:
    """Measure, print, write."""
    command = Command(__doc__, PARTS, "everything, on small traces, once")
    command.add("billion", "one trace of a billion events")
    command.parser.add_argument("--events", type=int, nargs="+", help="other sizes of traces")
    command.parser.add_argument("--work", type=Path, help="where the traces are kept meanwhile")
    asked = command.parse()
    if asked.events and len(asked.events) != (1 if asked.billion else 2):
        command.parser.error("--events takes two sizes, with --billion one")
    with tempfile.TemporaryDirectory(prefix="ringcast-bench-", dir=asked.work) as name:
        work = Path(name)
        if asked.billion:
            (events,) = asked.events or [BILLION]
            billion(work, events, save=not asked.events)
            return
        sizes = tuple(asked.events or (QUICK if asked.quick else SIZES))
        book = Book()
        traces = []
        if "turns" in asked.picked:
            traces = [take_turns(book, work, events, asked.repeats) for events in sizes]
        faults = find_faults(work, sizes) if "faults" in asked.picked else []
        if "sweep" in asked.picked:
            sweep_cost(book, work, 8 if asked.quick else RUNS, asked.repeats)
    found = book.judged(rows(sizes))
    blocks = {
        "pipeline ratios": ratio_table(found, "events"),
        "pipeline engines": engine_table(book, sizes),
        "pipeline faults": fault_table(faults),
    }
    print("\n" + "\n\n".join(blocks.values()))
    if asked.all:
        figures = {"ratios": found, "measured": book.spreads(), "traces": traces, "faults": faults}
        keep("pipeline", SCRIPT, figures, blocks)


if __name__ == "__main__":
    main()

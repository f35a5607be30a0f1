"""The journal as a table beside Parquet, in one interleaved run; and what it costs a live group.

``compare.py --all`` takes nine minutes and 13 GB of disk, writes
``bench/results/stream.json`` and the tables of ``docs/performance.md``. ``--quick`` takes three
minutes and writes nothing.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from asked import Command, keep
from lag import latencies_ms
from made import write_journal
from promises import Book, Row, ratio_table
from tables import Tables

from ringcast.bench.run import Figures, Trial, run
from ringcast.journal.group_commit import GroupCommit
from ringcast.journal.merged_reader import MergedReader
from ringcast.journal.writer import LIMITS
from ringcast.pipeline.spark.session import Where as Said
from ringcast.pipeline.spark.session import change_environment, environment_of, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
SIZES = {1024: 1_000_000, 100: 10_000_000}
"""Bytes of a body, and how many rows: a gigabyte of each. Of less, what a query costs before it has
read anything tells more than what a row costs."""
MEMBERS = 3
WAYS: dict[str, dict[str, Any]] = {
    "loopback": {"nodes": MEMBERS, "seconds": 2.0},
    "bridge": {"nodes": MEMBERS, "seconds": 2.0, "namespaces": True, "multicast": True},
}
MEMORY = Path("/dev/shm")
LARGE_BYTES, LARGE_BODY = 10**10, 1024
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.python.unix.domain.socket.enabled": "true",
}
SCRIPT = "bench/stream/compare.py"


def rows(large: int) -> list[Row]:
    """What was promised, and how many bytes the large journal had."""
    found = []
    size_of_it = f"{large / 1e9:g} GB"
    for size in SIZES:
        group = f"bodies of {size} B"
        found += [
            Row("batch, thousand rows/s, over spark.read.parquet",
                f"ours batch {size}", f"parquet batch {size}", 0.75, 0.9, group=group),
            Row("the same, no value looked at (noop)",
                f"ours unseen {size}", f"parquet unseen {size}", group=group),
            Row("streaming, over spark.readStream.parquet",
                f"ours stream {size}", f"parquet stream {size}", 0.6, 0.8, group=group),
        ]  # fmt: skip
    return [
        *found,
        Row("from send to the row in foreachBatch, ms, p50", "lag p50", "", 300, 200,
            less=True, group="3 members"),
        *(
            Row(f"live messages/s of 1 KiB with the journal over without, {way}",
                f"{way} journal", f"{way} plain", 0.85, 0.95, group="3 members")
            for way in WAYS
        ),
        Row("the same, loopback, journals in memory", "memory journal", "loopback plain",
            group="3 members"),
        Row("what all journals wrote, loopback, MB/s over the disk's own",
            "journals MB/s", "disk MB/s", group="3 members"),
        Row("opening a journal for writing, files not in memory, s", "opening", "", 10, 3,
            less=True, group=size_of_it),
        Row("the same for reading, s", "opening to read", "", 10, 3, less=True, group=size_of_it),
    ]  # fmt: skip


@contextmanager
def usual_session() -> Iterator[SparkSession]:
    """Spark as it is without us, with both compilers of the JVM, but for how it talks to Python."""
    from pyspark.sql import SparkSession

    at = place(Said(master=f"local[{CORES}]"), {})
    change_environment(environment_of(at, os.environ))
    builder = SparkSession.builder.master(str(at.master))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def tables(book: Book, work: Path, repeats: int, share: int) -> None:
    """Batch and streaming, for each size of bodies."""
    for size, records in SIZES.items():
        folder = work / f"tables-{size}"
        folder.mkdir()
        with usual_session() as spark:
            Tables(spark, folder, records // share, size).turns(book, repeats)
        shutil.rmtree(folder)


def latency(book: Book, work: Path, repeats: int) -> None:
    """One query after the other, each with a group of its own."""
    with usual_session() as spark:
        for number in range(repeats):
            folder = work / f"lag-{number}"
            folder.mkdir()
            found = latencies_ms(spark, folder, 20.0)
            book.note("lag p50", median(found))
            book.note("lag p99", found[len(found) * 99 // 100])
            shutil.rmtree(folder)


def journal_cost(book: Book, work: Path, repeats: int) -> None:
    """Live members with and without a journal, in turn."""
    for _ in range(repeats):
        book.note("disk MB/s", disk_speed(work / "speed"))
        for way, more in WAYS.items():
            for name in ("plain", "journal"):
                rate = live_rate(work, Trial(size=1024, journal=name == "journal", **more))
                book.note(f"{way} {name}", rate)
        book.note("journals MB/s", book.values["loopback journal"][-1] * MEMBERS * 1024 / 1e6)
        memory = live_rate(MEMORY, Trial(size=1024, journal=True, **WAYS["loopback"]))
        book.note("memory journal", memory)


def live_rate(folder: Path, trial: Trial) -> float:
    """Messages a second of members that keep their files there."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        return sound(run(trial)).messages_per_s
    finally:
        tempfile.tempdir = before


def disk_speed(path: Path) -> float:
    """MB/s of a new file that is synced every 4 MiB, and nothing else."""
    block = random.randbytes(4 * 2**20)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    began_s = time.perf_counter()
    for _ in range(64):
        os.write(file, block)
        os.fdatasync(file)
    seconds = time.perf_counter() - began_s
    os.close(file)
    path.unlink()
    return 64 * len(block) / seconds / 1e6


def sound(figures: Figures) -> Figures:
    """A measurement in which the order did not break."""
    if figures.lost or figures.reordered:
        raise RuntimeError(f"lost {figures.lost}, out of order {figures.reordered}")
    return figures


def recovery(book: Book, work: Path, repeats: int, size: int) -> None:
    """A large journal opened by its node and by a reader, each from the disk."""
    folder = work / "large"
    free = shutil.disk_usage(work).free
    if free < 2 * size:
        sys.exit(f"compare.py: {work} has only {free / 1e9:.0f} GB free; see --work")
    write_journal(folder, size // LARGE_BODY, LARGE_BODY)
    for _ in range(repeats):
        forget(folder)
        began_s = time.perf_counter()
        commits = GroupCommit(folder, LIMITS, sys.exit)
        commits.sources()
        book.note("opening", time.perf_counter() - began_s)
        commits.close()
        forget(folder)
        began_s = time.perf_counter()
        MergedReader([folder])
        book.note("opening to read", time.perf_counter() - began_s)
    shutil.rmtree(folder)


def forget(folder: Path) -> None:
    """Let the system drop what it holds of the files in memory."""
    for path in folder.iterdir():
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


PARTS = {
    "tables": "batch and streaming beside Parquet",
    "latency": "from send to foreachBatch",
    "journal": "what the journal costs live members",
    "recovery": "opening a large journal",
}


def main() -> None:
    """Measure, print, write."""
    command = Command(__doc__, PARTS, "everything, on small tables, once")
    command.parser.add_argument("--work", type=Path, help="where journals and tables are kept")
    asked = command.parse()
    repeats = asked.repeats
    share = 10 if asked.quick else 1
    large = LARGE_BYTES // share
    book = Book()
    with tempfile.TemporaryDirectory(prefix="ringcast-bench-", dir=asked.work) as name:
        work = Path(name)
        if "tables" in asked.picked:
            tables(book, work, repeats, share)
        if "latency" in asked.picked:
            latency(book, work, max(1, repeats // 2))
        if "journal" in asked.picked:
            journal_cost(book, work, repeats)
        if "recovery" in asked.picked:
            recovery(book, work, min(repeats, 3), large)
    found = book.judged(rows(large))
    print("\n" + ratio_table(found, "of"))
    if asked.all:
        figures = {"ratios": found, "measured": book.spreads()}
        keep("stream", SCRIPT, figures, {"stream ratios": ratio_table(found, "of")})


if __name__ == "__main__":
    main()

"""Work items as Spark tasks: one Python function, one task an item, small rows back.

The list of items travels with the function; each task takes its own by number. What comes back
passes through Spark as bytes: neither its types nor its rows are the JVM's business.
"""

from __future__ import annotations

import gc
import pickle
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from ringcast.core.errors import RingcastError
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.session import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Rows: TypeAlias = pa.RecordBatch | Iterable[Mapping[str, Any]]

ANSWER = pa.schema(
    [("item", pa.int64()), ("rows", pa.binary()), ("error", pa.string()), ("trace", pa.string())]
)
ANSWER_IN_SPARK = "item bigint, rows binary, error string, trace string"


class TaskFailed(RingcastError):
    """A function failed on one item, in a way that it did not foresee; notes hold its traceback."""


def tasks(
    spark: SparkSession, work: Sequence[T], function: Callable[[T], Rows], schema: pa.Schema
) -> pa.Table:
    """Run ``function`` on every item, each in a Spark task, and gather the rows in order of work.

    A task whose process dies is tried again, so the function must bear to be run twice. An
    exception is not tried again: a :class:`PipelineError` is raised here as it is, anything else
    as :class:`TaskFailed` with the item, the first one in order of work. A Spark that cannot go
    on is a :class:`PipelineError` too.
    """
    if not work:
        return schema.empty_table()
    number = len(work)
    frame = spark.range(0, number, 1, number).mapInArrow(
        _runner([pickle.dumps(item) for item in work], function, schema), ANSWER_IN_SPARK
    )
    try:
        gathered = interruptible(spark, frame.toArrow)
    except Exception as error:  # of whichever kind of Spark
        raise PipelineError(f"Spark gave up: {first_line(error)}{hint(error)}") from error
    answers = sorted(gathered.to_pylist(), key=lambda answer: answer["item"])
    for answer in answers:
        if answer["trace"] is not None:
            failure = TaskFailed(f"{work[answer['item']]}: {answer['error']}")
            failure.add_note(answer["trace"])
            raise failure
        if answer["error"] is not None:
            raise PipelineError(answer["error"])
    batches = [pa.ipc.read_record_batch(pa.py_buffer(answer["rows"]), schema) for answer in answers]
    return pa.Table.from_batches(batches, schema)


def hint(error: Exception) -> str:
    """What to do about a session whose Python is not this one."""
    if re.search(r"No module named '?(ringcast|pyspark_ringcast)", str(error)) is None:
        return ""
    return (
        "; the Python of the session's workers has no ringcast: install it there, or set "
        "PYSPARK_PYTHON to a Python that has it before the session is made"
    )


def interruptible(spark: SparkSession, action: Callable[[], T]) -> T:
    """Run a Spark job so that Ctrl-C or SIGTERM ends it at once, whichever kind of Spark runs it.

    Spark waits for a job to end even when the wait is interrupted, or else takes the end of the
    job for an error. So another thread waits, and this one has the job ended.
    """
    with ThreadPoolExecutor(1, "ringcast-job") as pool:
        job = pool.submit(action)
        try:
            return job.result()
        except KeyboardInterrupt:
            while not job.done():  # it may not have begun the first time
                spark.interruptAll()
                wait([job], timeout=0.5)
            raise


def _runner(
    packed: list[bytes], function: Callable[[T], Rows], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark calls in each task with the numbers of its items: just one."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_modules()
        for batch in numbers:
            answers = [_answer(at, packed[at], function, schema) for at in batch["id"].to_pylist()]
            yield pa.RecordBatch.from_pylist(answers, schema=ANSWER)

    return run


@cache
def _freeze_modules() -> None:
    """Once in a worker's process: what is loaded by now is there to stay.

    Spark has the worker collect garbage after every task; looking through all of pandas for it
    would take four times as long as everything else that a task costs.
    """
    import pandas  # noqa: F401  (which Spark loads for the answer, after this)

    gc.collect()
    gc.freeze()


def _answer(
    at: int, item: bytes, function: Callable[[T], Rows], schema: pa.Schema
) -> dict[str, Any]:
    """One item's rows, or why there are none."""
    try:
        rows = function(pickle.loads(item))
        if not isinstance(rows, pa.RecordBatch):
            rows = pa.RecordBatch.from_pylist(list(rows), schema=schema)
        elif rows.schema != schema:
            raise TypeError(f"the rows have the schema {rows.schema}, wanted is {schema}")
    except PipelineError as error:
        return {"item": at, "error": str(error)}
    except Exception as error:
        told = "".join(traceback.format_exception(error))
        return {"item": at, "error": f"{type(error).__name__}: {error}", "trace": told}
    return {"item": at, "rows": rows.serialize().to_pybytes()}

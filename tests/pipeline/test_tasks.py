"""Work items as Spark tasks: order, errors, and a worker that dies."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ringcast.cli.app import interrupt
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.cluster import wait_until
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.tasks import TaskFailed, hint, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQUARES = pa.schema([("of", pa.int64()), ("square", pa.int64()), ("kind", pa.string())])


def test_one_process_runs_all_tests_with_spark(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """They are a group; were it not kept, every process would start a Spark."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@spark")


def test_rows_come_in_order_of_work(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """As rows or as a batch, none, one or many of an item; with progress on the way."""

    def squares(item: tuple[str, int]) -> Any:
        kind, of = item
        rows = [{"of": of, "square": of * of, "kind": kind}] * (of % 3)
        return pa.RecordBatch.from_pylist(rows, schema=SQUARES) if kind == "batch" else rows

    work = [(("batch", "rows")[n % 2], n) for n in range(9, 0, -1)]
    with watch(spark, len(work), "items") as bar:
        found = tasks(spark, work, squares, SQUARES)
    assert found.schema == SQUARES
    assert [row["of"] for row in found.to_pylist()] == [8, 8, 7, 5, 5, 4, 2, 2, 1]
    assert bar.done == 9
    assert re.fullmatch(r"(\d of 9 items(, \d+ s left)?\n)+", capsys.readouterr().err)


def test_no_work_is_no_rows() -> None:
    assert tasks(None, [], lambda item: [], SQUARES) == SQUARES.empty_table()  # type: ignore


def test_an_error_names_the_first_item_that_failed(spark: SparkSession) -> None:
    def divide(item: int) -> list[dict[str, object]]:
        return [{"of": item, "square": 12 // (item % 3), "kind": ""}]

    with pytest.raises(TaskFailed, match=r"^3: ZeroDivisionError: ") as caught:
        tasks(spark, [1, 2, 3, 4, 6], divide, SQUARES)
    assert "in divide" in caught.value.__notes__[0], "the traceback of the task is lost"


def test_an_error_of_the_user_keeps_its_words(spark: SparkSession, tmp_path: Path) -> None:
    """And it is not tried again: a broken file stays broken."""

    def read(item: str) -> list[dict[str, object]]:
        with (tmp_path / "tries").open("a") as tries:
            tries.write("x")
        raise PipelineError(f"{item} is broken")

    with pytest.raises(PipelineError, match=r"^file\.parquet is broken$"):
        tasks(spark, ["file.parquet"], read, SQUARES)
    assert (tmp_path / "tries").read_text() == "x"


def test_rows_of_another_shape_are_refused(spark: SparkSession) -> None:
    def wrong(item: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"of": item}])

    with pytest.raises(TaskFailed, match="wanted is"):
        tasks(spark, [1], wrong, SQUARES)


def test_workers_that_are_killed_again_and_again_are_one_clear_error(spark: SparkSession) -> None:
    def dies(item: int) -> list[dict[str, object]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    with pytest.raises(PipelineError, match=r"gave up: .* Python worker exited"):
        tasks(spark, [1], dies, SQUARES)


def test_a_worker_that_is_killed_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    def dies_once(item: int) -> list[dict[str, object]]:
        mark = tmp_path / f"{item}"
        if item % 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [{"of": item, "square": item * item, "kind": "alive"}]

    found = tasks(spark, [1, 2, 3], dies_once, SQUARES)
    assert found["square"].to_pylist() == [1, 4, 9]
    assert sorted(os.listdir(tmp_path)) == ["1", "3"]


def test_what_a_worker_has_loaded_is_not_garbage(spark: SparkSession) -> None:
    """Spark's worker looks for garbage after every task, which must not take longer than a task."""

    def collected(item: int) -> list[dict[str, int]]:
        import gc

        return [
            {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "rest": len(gc.get_objects())}
        ]

    schema = pa.schema([(name, pa.int64()) for name in ("pid", "frozen", "rest")])
    found = tasks(spark, list(range(8)), collected, schema).to_pylist()
    assert all(row["frozen"] > 4 * row["rest"] for row in found), found
    # Once, or the closures of one task after another would be kept.
    assert len({(row["pid"], row["frozen"]) for row in found}) == len({row["pid"] for row in found})


def test_an_interrupt_ends_the_job_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """SIGTERM, which is like Ctrl-C for every command, in the middle of a task."""

    def slow(item: int) -> list[dict[str, object]]:
        (tmp_path / "begun").touch()
        time.sleep(60)
        (tmp_path / "ended").touch()
        return []

    def send() -> None:
        wait_until((tmp_path / "begun").exists, 120)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            tasks(spark, [1, 2], slow, SQUARES)
            time.sleep(120)  # here the signal would come if there were no task
    finally:
        sender.join()
        signal.signal(signal.SIGTERM, before)
    assert os.listdir(tmp_path) == ["begun"]
    assert spark.range(3).count() == 3


def test_a_session_without_ringcast_says_what_to_do() -> None:
    """One of the user's own, whose workers run another Python."""
    for module in ("ringcast", "ringcast.pipeline", "pyspark_ringcast"):
        error = RuntimeError(f"...\nModuleNotFoundError: No module named '{module}'\n...")
        assert "set PYSPARK_PYTHON" in hint(error)
    assert hint(RuntimeError("No module named 'numpy'")) == ""

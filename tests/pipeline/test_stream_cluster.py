"""The source and the sink on a real cluster: through its master, and through Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from groups import arrived, group, wanted, write

JOB = """
import json, sys
from pyspark.errors import PySparkException
from ringcast.pipeline.spark.session import Where, open_session

kind, url, journal, node, out = sys.argv[1][2:], *sys.argv[2:]

def bodies(frame):
    rows = frame.where("kind = 'message'").orderBy("position").select("body").collect()
    return [bytes(row.body).decode() for row in rows]

def drain(rows, form, **options):
    writer = rows.writeStream.format(form).options(**options).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(600)
    if query.exception():
        raise query.exception()
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]

found = {}
with open_session(Where(**{kind: url})) as spark:
    for how, where in (("path", journal), ("connect", node)):
        found[how] = bodies(spark.read.format("ringcast").option(how, where).load())
        source = spark.readStream.format("ringcast").option(how, where).option("views", "false")
        found[f"{how} batches"] = drain(
            source.option("maxRowsPerBatch", 40).option("reader", "all").load(), "parquet",
            path=f"{out}/{how}", checkpointLocation=f"{out}/checkpoint-{how}",
        )
        found[f"{how} streamed"] = bodies(spark.read.parquet(f"{out}/{how}"))
    source = spark.readStream.format("ringcast").option("path", journal)
    drain(
        source.load().select("body"), "ringcast", connect=node, group="g", stream="copy",
        staging=f"{out}/staging", checkpointLocation=f"{out}/checkpoint-sink",
    )
    wrong = spark.read.format("ringcast").options(path=journal, bodies="json")
    try:
        wrong.option("bodySchema", "id BIGNT").load().collect()
    except PySparkException as error:
        found["mistake"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_a_journal_and_a_group_through_a_cluster(kind: str, cluster: Any, tmp_path: Path) -> None:
    """Read from files and from a node, as a table and as a stream, and written into the group."""
    write(tmp_path / "in", 1, 60)
    with group(tmp_path) as settings:
        command = [sys.executable, "-c", JOB, *cluster.options[kind], str(tmp_path / "in"),
                   settings[0]["bind"], str(tmp_path / "out")]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout)
        rows = [body.decode() for body in wanted(1, 60)]
        assert found["path"] == found["path streamed"] == rows
        assert found["path batches"] == [40, 40, 40]
        assert found["connect"] == found["connect streamed"] == [str(n) for n in range(50)]
        assert "PipelineError: bodySchema 'id BIGNT': column 'id' has no type" in found["mistake"]
        assert sum(found["connect batches"]) == 50 and max(found["connect batches"]) <= 40
        for each in settings:
            assert arrived(each["journal"], 170)[50:] == wanted(1, 60)

"""Journals as tables of Spark, and rows from Spark into a group, each once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from groups import RING, arrived, entries, group, texts, wanted, write

from ringcast.core.ids import Level, Position
from ringcast.journal.format import layout
from ringcast.journal.format.layout import MESSAGE
from ringcast.journal.writer import Journal, Limits, readers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def bodies(frame: DataFrame) -> list[bytes]:
    rows = frame.where("kind = 'message'").orderBy("position").select("body").collect()
    return [bytes(row.body) for row in rows]


def test_a_journal_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 1000, view=True)
    frame = spark.read.format("ringcast").option("path", str(tmp_path / "a")).load()
    assert frame.columns == ["position", "view", "kind", "group", "sender", "level",
                             "members", "body", "time"]  # fmt: skip
    assert bodies(frame) == wanted(1, 1000)
    (view,) = frame.where("kind = 'view'").collect()
    assert view.members == [1, 2, 3] and view.position.seq == 0
    only = frame.sparkSession.read.format("ringcast").option("path", str(tmp_path / "a"))
    some = only.option("group", "orders").option("views", "false").load()
    assert some.count() == 2 * len([n for n in range(1, 1001) if n % 3])
    assert some.where("kind <> 'message' or group <> 'orders'").count() == 0


def test_replicas_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 400)
    write(tmp_path / "b", 300, 900)
    both = f"{tmp_path / 'a'}, {tmp_path / 'b'}"
    assert bodies(spark.read.format("ringcast").option("path", both).load()) == wanted(1, 900)


def started(spark: SparkSession, folder: Path, out: Path, **options: Any) -> Any:
    source = spark.readStream.format("ringcast").option("path", str(folder))
    for name, value in options.items():
        source = source.option(name, value)
    return (
        source.load()
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
    )


def available(spark: SparkSession, folder: Path, out: Path, **options: Any) -> Any:
    """One query over all there is; how many batches it took."""
    query = started(spark, folder, out, **options).trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    return query


def test_a_stream_goes_on_behind_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 500)
    query = available(spark, tmp_path / "a", tmp_path, maxRowsPerBatch=300, reader="spark")
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [
        300, 300, 300, 100,
    ]  # fmt: skip
    assert readers(tmp_path / "a")["spark"] >= Position(0, 8, 1, 300, 0)
    write(tmp_path / "a", 501, 700)
    available(spark, tmp_path / "a", tmp_path)
    assert bodies(spark.read.parquet(str(tmp_path / "rows"))) == wanted(1, 700)


def test_a_query_tells_how_far_it_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 500)
    query = available(spark, tmp_path / "a", tmp_path, maxRowsPerBatch=300)
    told = [json.loads(each.sources[0].latestOffset) for each in query.recentProgress]
    assert [each["behind"] for each in told][:4] == [700, 400, 100, 0]
    assert told[0]["position"] == "(8,1):500.1"


def test_other_columns_of_bodies_on_an_old_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The query goes on behind what it has read, with the new columns."""
    for first, last in ((1, 4), (5, 9)):
        journal = Journal(tmp_path / "a")
        for seq in range(first, last + 1):
            bodies = (json.dumps({"id": seq, "item": f"i{seq}"}).encode(),)
            place = Position(0, 8, 1, seq, 0)
            sent = (MESSAGE, 2, Level.AGREED, "g", (), bodies, seq)
            journal.append([layout.entry(place, RING, *sent)])
        journal.close()
        columns = "id BIGINT" if first == 1 else "item STRING"
        available(spark, tmp_path / "a", tmp_path, bodies="json", bodySchema=columns)
    found = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "rows"))
    rows = found.orderBy("position").select("body.id", "body.item").collect()
    assert [tuple(row) for row in rows] == [
        (1, None), (2, None), (3, None), (4, None),
        (None, "i5"), (None, "i6"), (None, "i7"), (None, "i8"), (None, "i9"),
    ]  # fmt: skip


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_conditions_are_pushed_down_where_they_can_be(
    spark: SparkSession, tmp_path: Path, enabled: str
) -> None:
    """Where they cannot be, reading is not refused."""
    write(tmp_path / "a", 1, 300, view=True)
    frame = spark.read.format("ringcast").option("path", str(tmp_path / "a")).load()
    setting = "spark.sql.python.filterPushdown.enabled"
    assert spark.conf.get(setting) == "true"
    spark.conf.set(setting, enabled)
    try:
        some = frame.where("group = 'other' and position.seq > 100 and position.seq <= 200")
        found = bodies(some)
        assert frame.where("kind = 'view'").count() == 1
    finally:
        spark.conf.set(setting, "true")
    assert found == [
        body
        for each in entries(101, 200)
        if each.group == "other"
        for body in wanted(each.first.seq, each.first.seq)
    ]


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    write(tmp_path / "a", 1, 3)
    reading = spark.read.format("ringcast").option("path", str(tmp_path / "a"))
    with pytest.raises(PySparkException, match=r"schema\(\) asks for id: leave it out"):
        reading.schema("id BIGINT").load().collect()


def test_what_was_trimmed_below_a_checkpoint_is_said(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 300)
    available(spark, tmp_path / "a", tmp_path)
    write(tmp_path / "a", 301, 900)
    journal = Journal(tmp_path / "a", Limits(segment_bytes=1, keep_bytes=1))
    journal.rotate()
    assert journal.trim()
    journal.append(entries(901, 910))
    journal.close()
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match="were trimmed"):
        available(spark, tmp_path / "a", tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either path"),
        ({"path": "x", "connect": "y:1"}, "either path"),
        ({"path": "nowhere"}, "not a journal"),
        ({"path": "x", "gruop": "g"}, "no option gruop"),
        (
            {"path": "x", "startingPosition": "x"},
            "startingPosition: 'x' is no position: .*, or say earliest",
        ),
        ({"path": "x", "bodies": "json", "bodySchema": "id BIGNT"}, "bodySchema 'id BIGNT'"),
        ({"connect": "127.0.0.1:9"}, "127.0.0.1:9"),
    ],
)
def test_bad_options_are_said(spark: SparkSession, options: dict[str, str], words: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=words):
        spark.read.format("ringcast").options(**options).load().collect()


def test_through_a_node(spark: SparkSession, tmp_path: Path) -> None:
    with group(tmp_path) as settings:
        frame = spark.read.format("ringcast").option("connect", settings[1]["bind"]).load()
        assert bodies(frame) == [b"%d" % n for n in range(50)]


def test_rows_of_a_stream_reach_the_group_once_each(spark: SparkSession, tmp_path: Path) -> None:
    """The query ends and starts again, and its last batch is repeated."""
    write(tmp_path / "in", 1, 300)

    def forward(node: str) -> None:
        source = spark.readStream.format("ringcast").option("path", str(tmp_path / "in"))
        query = (
            source.option("maxRowsPerBatch", 250)
            .load()
            .select("body")
            .writeStream.format("ringcast")
            .option("connect", node)
            .option("group", "g")
            .option("stream", "copy")
            .option("staging", str(tmp_path / "staging"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)

    with group(tmp_path) as settings:
        forward(settings[0]["bind"])
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
        commits[-1].unlink()  # as if the driver had died before it wrote it
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
        write(tmp_path / "in", 301, 320)
        forward(settings[1]["bind"])
        for each in settings:
            assert arrived(each["journal"], 690)[50:] == wanted(1, 320)


FORWARD = """
import sys
from pathlib import Path
from ringcast.pipeline.spark.session import Where, open_session
source, node, out, tests = sys.argv[1:]
sys.path.append(tests)
import dying_stream
with open_session(Where(cores=1)) as spark:
    dying_stream.register(spark, Path(out) / "fire")
    query = (spark.readStream.format("ringcast").option("path", source)
        .option("maxRowsPerBatch", 1200)
        .option("reader", "copy").load().select("body").writeStream.format(dying_stream.NAME)
        .option("connect", node).option("group", "g").option("stream", "copy")
        .option("staging", out + "/staging").option("checkpointLocation", out + "/checkpoint")
        .trigger(availableNow=True).start())
    query.awaitTermination()
"""


def test_killed_inside_commit_of_the_sink(first_session: None, tmp_path: Path) -> None:
    """SIGKILL at each step of ``commit``: rows out are rows in, each once, in order."""
    write(tmp_path / "in", 1, 700)
    fire = tmp_path / "fire"
    fire.mkdir()
    with group(tmp_path) as settings:
        command = [sys.executable, "-c", FORWARD, str(tmp_path / "in"), settings[0]["bind"],
                   str(tmp_path), str(Path(__file__).parent)]  # fmt: skip
        for point in ("decided", "half", "published"):
            (fire / point).touch()
            done = subprocess.run(command, capture_output=True, timeout=600)
            assert not (fire / point).exists(), done.stderr.decode()[-2000:]
        done = subprocess.run(command, capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        for each in settings:
            assert arrived(each["journal"], 1450)[50:] == wanted(1, 700)


def test_rows_are_json_where_there_is_no_body(spark: SparkSession, tmp_path: Path) -> None:
    with group(tmp_path) as settings:
        frame = spark.sql("select id, concat('n', id) as name from range(3)")
        writer = frame.coalesce(1).write.format("ringcast").mode("append")
        for name, value in {"connect": settings[0]["bind"], "group": "g", "stream": "table",
                            "staging": str(tmp_path / "staging")}.items():  # fmt: skip
            writer = writer.option(name, value)
        writer.save()
        found = [json.loads(each) for each in texts(settings[0]["journal"])[50:]]
        assert found == [{"id": n, "name": f"n{n}"} for n in range(3)]


@pytest.mark.parametrize(("form", "rows"), [("json", "body.*"), ("arrow", "inline(body)")])
def test_columns_from_a_group_through_a_stream_into_a_group(
    spark: SparkSession, tmp_path: Path, form: str, rows: str
) -> None:
    columns = {"bodies": form, "bodySchema": "id BIGINT, price DECIMAL(9,2), tags ARRAY<STRING>"}
    frame = spark.sql(
        "select id, cast(id / 4 as decimal(9,2)) price, array('a', cast(id as string)) tags"
        " from range(200)"
    )
    with group(tmp_path) as settings:
        one, other = (each["bind"] for each in settings)
        into = {"bodies": form, "staging": str(tmp_path / "staging")}
        table = frame.coalesce(1).write.format("ringcast").mode("append").options(**into)
        table.options(connect=one, group="first", stream="table").save()
        source = spark.readStream.format("ringcast").options(**columns, connect=other)
        query = (
            source.options(group="first", views="false").load().selectExpr(rows)
            .writeStream.format("ringcast").options(**into)
            .options(connect=one, group="second", stream="copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(600)
        back = spark.read.format("ringcast").options(**columns, connect=one, views="false")
        found = back.option("group", "second").load().orderBy("position").selectExpr(rows)
        assert found.collect() == frame.collect()
        assert found.dtypes == frame.dtypes
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException, match=f"is not {form} with these columns"):
            back.option("group", "g").load().collect()
        bad = back.options(group="g", badBodies="null").load()
        assert bad.where("kind = 'message' and body is null").count() == 50

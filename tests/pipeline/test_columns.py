"""``bodySchema``: what Spark would make of it, and errors that say where it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.columns import EXAMPLE, PLAIN, body_columns
from ringcast.pipeline.stream.source import RingcastSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [
    EXAMPLE,
    "id BIGINT",
    "  id:bigint,\n\tname : string  ",
    "`a ``b`` , c` INT NOT NULL COMMENT 'what, it is', `not` DATE",
    "a ARRAY<ARRAY<INT>>, b MAP<STRING,STRUCT<x:INT,y ARRAY<DOUBLE> NOT NULL>>, array INT",
    "d DECIMAL, e DEC(5), f NUMERIC( 38 , 38 )",
    ", ".join(f"c{at} {name}" for at, name in enumerate(PLAIN)),
]


@pytest.mark.parametrize("text", GOOD)
def test_columns_are_those_that_spark_would_read(spark: SparkSession, text: str) -> None:
    told = StructType.fromDDL(text)
    assert body_columns(text).jsonValue() == StructType.fromJson(
        without_comments(told.jsonValue())
    ).jsonValue()  # fmt: skip


def without_comments(schema: Any) -> dict[str, object]:
    fields = schema["fields"]
    assert isinstance(fields, list)
    return {**schema, "fields": [{**field, "metadata": {}} for field in fields]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id BIGNT", "column 'id' has no type BIGNT; did you mean BIGINT? known: BOOLEAN, "),
        ("id", "column 'id' has no type"),
        ("id BIGINT,", "a column is missing at the end"),
        (",id BIGINT", "a column is missing before ','"),
        ("id BIGINT name STRING", "'name' is too much"),
        ("id BIGINT> ,", "'>' is too much"),
        ("id BIGINT NOT, b INT", "'NULL' is missing before ','"),
        ("tags ARRAY<STRING", "'>' is missing at the end"),
        ("tags ARRAY", "'<' is missing at the end"),
        ("tags ARRAY<STRIN>", "column 'tags' has no type STRIN; did you mean STRING?"),
        ("m MAP<STRING>", "',' is missing before '>'"),
        ("s STRUCT<>", "a column is missing before '>'"),
        ("a INT, a STRING", "column 'a' is there twice"),
        ("d DECIMAL(39,2)", "column 'd': DECIMAL(39,2) is not possible; 38"),
        ("d DECIMAL(9,x)", "column 'd': DECIMAL(9,x) is not possible; 38"),
        ("d DECIMAL(9", "')' is missing at the end"),
        ("a-b INT", "column 'a' has no type"),
    ],
)
def test_what_is_no_schema_is_said(text: str, words: str) -> None:
    said = {"path": "x", "bodies": "json", "bodySchema": text}
    with pytest.raises(PipelineError) as caught:
        RingcastSource(said).schema()
    error = str(caught.value)
    assert error.startswith(f"bodySchema {text!r}: {words}")
    assert error.endswith(f"such as {EXAMPLE!r}")

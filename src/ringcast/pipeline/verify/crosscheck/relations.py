"""Relations: tables defined by SQL over other tables, as in a sheet of definitions.

A definition names the tables it reads in braces. A table is made when somebody first reads it, so
what nobody asks for costs nothing. One that is ``KEPT`` is computed once and its rows replace its
definition, without which Spark would plan ever larger queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from ringcast.traces.schema import TABLES, ColumnKind, columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SQL_TYPES = {
    ColumnKind.INT: "BIGINT",
    ColumnKind.FLAG: "BOOLEAN",
    ColumnKind.TEXT: "STRING",
    ColumnKind.IDS: "ARRAY<BIGINT>",
}

KEPT = frozenset(
    {
        *("line", "confs", "visits", "named", "absent", "rings", "stays", "anew", "losses"),
        *("known_in", "spans", "everybody", "of_others"),
        *("places", "uneven", "turns", "setbacks", "odd"),
        *("acts", "frames", "told"),
        *("unmet", "tracks", "promises", "debts", "gaps", "identifiers", "lacking"),
        *("misnumbered", "suspects", "heard", "variants"),
        *("told_some", "asked_some", "course"),
        *("detours", "blind", "in_ring_by_two", "numbered_by_later", "submitted_by_later"),
        *("numbered_by_two", "submitted_by_two"),
    }
)
"""What is read by several and is small beside the trace, or large only if much is wrong."""


SMALL_BYTES = 32 << 20
"""A trace with smaller files is read in less time than Spark takes to compile its queries."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Nor is there anything to gain by planning a query anew while it runs, by dividing it, or by what
follows from its conditions (a seventh of the time)."""


class Relations:
    """Tables by name, from the files of a trace and from definitions."""

    def __init__(
        self, spark: SparkSession, tables: Mapping[str, DataFrame], definitions: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._tables = dict(tables)
        self._definitions = definitions

    def __getitem__(self, name: str) -> DataFrame:
        table = self._tables.get(name)
        if table is None:
            table = self.query(self._definitions[name])
            if name in KEPT:
                table = table.localCheckpoint()
            self._tables[name] = table
        return table

    def __setitem__(self, name: str, table: DataFrame) -> None:
        self._tables[name] = table

    def query(self, text: str) -> DataFrame:
        """What ``text`` says of the tables it names."""
        names = {name for _, name, _, _ in Formatter().parse(text) if name}
        tables: dict[str, Any] = {name: self[name] for name in sorted(names)}
        return self._spark.sql(text, **tables)


@contextmanager
def interpreted(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Leave out meanwhile what pays for large traces only, if this one is small."""
    if sum(path.stat().st_size for path in folder.glob("*/*.parquet")) > SMALL_BYTES:
        yield
        return
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    try:
        for name, value in INTERPRETED.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, found in before.items():
            if found is not None:
                spark.conf.set(name, found)


def read_tables(
    spark: SparkSession, folder: Path, runs: Sequence[int] | None
) -> dict[str, DataFrame]:
    """The tables of a trace, or of some of its runs, with the columns of our schema."""
    tables = {
        name: spark.read.schema(
            ", ".join(f"`{column.name}` {SQL_TYPES[column.kind]}" for column in columns(name))
        )
        .option("pathGlobFilter", "*.parquet")
        .parquet(str(folder / name))
        for name in TABLES
    }
    if runs is None:
        return tables
    return {name: table.where(table["run"].isin(list(runs))) for name, table in tables.items()}

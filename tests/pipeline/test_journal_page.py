"""What docs/journal.md shows of Spark can be run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from groups import RING, arrived, group

from ringcast.core.ids import Level, Position
from ringcast.journal.format import layout
from ringcast.journal.format.layout import MESSAGE
from ringcast.journal.writer import Journal, readers
from ringcast.pipeline.stream.options import ReadOptions, WriteOptions
from ringcast.wire import keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "journal.md").read_text("utf-8")
PART = PAGE.partition("\n## As a table of Spark\n")[2]


def test_the_programs_of_the_page(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read as a table, then as a stream into Parquet, then from there into a group."""
    for number, last in ((1, 20), (2, 30)):
        journal = Journal(tmp_path / f"journal-{number}")
        for at in range(1, last + 1):
            body = b'{"id":%d,"item":"nut","amount":"%d.50"}' % (at, at)
            place = Position(0, 8, 1, at, 0)
            journal.append(
                [layout.entry(place, RING, MESSAGE, 2, Level.AGREED, "orders", (), (body,), at)]
            )
        journal.close()
    keys.write(tmp_path / "group.key", keys.add({}))
    more: dict[str, Any] = {"key_file": str(tmp_path / "group.key")}
    (tmp_path / "live").mkdir()
    with group(tmp_path / "live", **more) as settings:
        names: dict[str, Any] = {"spark": spark}
        for block in re.findall(r"```python\n(.*?)```", PART, re.DOTALL):
            text = block.replace("/data", str(tmp_path)).replace(
                "10.0.0.5:5400", settings[0]["bind"]
            )
            exec(compile(text, "docs/journal.md", "exec"), names)
        assert "|orders|     2|   30|" in capsys.readouterr().out
        rows = spark.read.parquet(str(tmp_path / "orders")).orderBy("position").collect()
        assert [(row.id, str(row.amount)) for row in rows] == [
            (at, f"{at}.50") for at in range(1, 31)
        ]
        for each in settings:
            found = [msgspec.json.decode(body) for body in arrived(each["journal"], 80)[50:]]
            assert found == [{"item": "nut", "amount": f"{at}.50"} for at in range(1, 31)]
    assert (tmp_path / "journal-1" / "readers").is_dir() == bool(readers(tmp_path / "journal-1"))


def test_every_option_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)`", PART)) | set(re.findall(r'option\("(\w+)"', PART))
    assert {*ReadOptions.__struct_fields__, *WriteOptions.__struct_fields__} <= named

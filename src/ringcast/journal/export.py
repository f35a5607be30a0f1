"""A journal as Parquet, for whoever has no ringcast."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ringcast.core.ids import START
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import JournalError, schema
from ringcast.journal.merged_reader import MergedReader

FILE_BYTES = 128 * 2**20
"""About as much goes into one file."""

GROUP_ROWS, GROUP_BYTES = 2**16, 16 * 2**20
"""About as much goes into one group of rows; a batch of the journal may have one record."""


def export(folders: Sequence[Path | str], out: Path | str) -> int:
    """Write everything to ``out``, whole or not at all; how many records."""
    import pyarrow.parquet as pq

    out = Path(out)
    if out.exists():
        raise JournalError(f"{out} exists; name a folder that does not")
    reader = MergedReader(folders)
    beside = out.with_name(out.name + ".part")
    shutil.rmtree(beside, ignore_errors=True)
    written, size = 0, 0
    writer: Any = None
    try:
        beside.mkdir(parents=True)
        for group in _groups(reader.within(Range(START, reader.last))):
            if writer is None:
                name = beside / f"{written:020}.parquet"
                writer = pq.ParquetWriter(name, schema(), compression="zstd")
            writer.write_table(group)
            written, size = written + group.num_rows, size + group.nbytes
            if size >= FILE_BYTES:
                writer.close()
                writer, size = None, 0
        if writer is not None:
            writer.close()
        beside.replace(out)
    except OSError as error:
        raise JournalError(f"cannot write {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return written


def _groups(batches: Iterable[Any]) -> Iterator[Any]:
    """The records as tables of a size that is good to read."""
    import pyarrow as pa

    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)

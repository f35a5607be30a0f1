"""The streaming reader as Spark calls it, without Spark: limits, AvailableNow, commit, trimming."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from groups import SMALL, entries, group, wanted, write
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ringcast.api import recorder
from ringcast.journal.layout import START, JournalError, Place
from ringcast.journal.log import Journal, Limits, readers
from ringcast.journal.reading import Range
from ringcast.pipeline.stream.options import read_options
from ringcast.pipeline.stream.places import Files, Peer
from ringcast.pipeline.stream.source import RingcastSource, RingcastStreamReader
from ringcast.runtime.exchange import Publish, token

KEEP_LITTLE = Limits(segment_bytes=SMALL.segment_bytes, keep_bytes=1)


def reader(**options: Any) -> RingcastStreamReader:
    source = RingcastSource({name: str(value) for name, value in options.items()})
    schema: Any = source.schema()
    return source.streamReader(schema)


def read(stream: RingcastStreamReader, start: dict[str, int], end: dict[str, int]) -> list[bytes]:
    return [
        body
        for part in stream.partitions(start, end)
        for batch in stream.read(part)
        for body in batch.column("body").to_pylist()
    ]


@pytest.mark.parametrize("most", [1, 7, 80, 999])
def test_batches_have_as_many_rows_as_were_asked_for(tmp_path: Path, most: int) -> None:
    write(tmp_path, 1, 150)
    stream = reader(path=tmp_path, maxRowsPerBatch=most)
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows) and limit.max_rows == most
    at, found = stream.initialOffset(), []
    while (end := stream.latestOffset(at, limit)) != at:
        found.append(read(stream, at, end))
        at = end
    assert [body for batch in found for body in batch] == wanted(1, 150)
    assert {len(batch) for batch in found[:-1]} <= {most}
    assert stream.partitions(at, at) == []


def test_without_a_limit_a_batch_is_all_there_is(tmp_path: Path) -> None:
    write(tmp_path, 1, 150)
    stream = reader(path=tmp_path)
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadAllAvailable)
    start = stream.initialOffset()
    assert read(stream, start, stream.latestOffset(start, limit)) == wanted(1, 150)


def test_available_now_is_what_was_there_when_it_began(tmp_path: Path) -> None:
    write(tmp_path, 1, 50)
    stream = reader(path=tmp_path)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write(tmp_path, 51, 90)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert read(stream, start, end) == wanted(1, 50)
    assert stream.latestOffset(end, ReadMaxRows(10)) == end
    later = reader(path=tmp_path).latestOffset(end, ReadAllAvailable())
    assert read(stream, end, later) == wanted(51, 90)


def test_where_a_new_query_begins(tmp_path: Path) -> None:
    write(tmp_path, 1, 50)
    for said, first in (("earliest", 1), ("latest", 51), ("(8,1):20", 20), ("(8,1):20.0", 20)):
        start = reader(path=tmp_path, startingPosition=said).initialOffset()
        stream = reader(path=tmp_path)
        assert read(stream, start, stream.latestOffset(start, ReadAllAvailable())) == wanted(
            first, 50
        )


def test_what_was_committed_may_go_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, 1, 400)
    stream = reader(path=tmp_path, reader="billing")
    start = stream.initialOffset()
    middle = stream.latestOffset(start, ReadMaxRows(400))
    stream.commit(middle)
    assert readers(tmp_path) == {"billing": Place(**middle)}
    journal = Journal(tmp_path, KEEP_LITTLE)
    journal.rotate()
    assert journal.trim() > 0
    journal.close()
    assert START < journal.trimmed.place <= Place(**middle)
    end = stream.latestOffset(middle, ReadAllAvailable())
    assert read(stream, middle, end) == wanted(201, 400)


def trimmed(folder: Path) -> None:
    write(folder, 1, 400)
    journal = Journal(folder, KEEP_LITTLE)
    journal.rotate()
    assert journal.trim()
    journal.append(entries(401, 410))
    journal.close()


def test_a_checkpoint_below_what_is_left_is_an_error_at_every_step(tmp_path: Path) -> None:
    trimmed(tmp_path)
    stream = reader(path=tmp_path)
    checkpoint = Place(8, 1, 5, 0)._asdict()
    end = stream.latestOffset(checkpoint, ReadAllAvailable())
    with pytest.raises(JournalError, match="were trimmed"):
        stream.partitions(checkpoint, end)
    with pytest.raises(JournalError, match="were trimmed"):  # trimmed after it was planned
        list(Files([tmp_path]).batches(Range(Place(**checkpoint), Place(**end))))
    start = stream.initialOffset()
    assert read(stream, start, end) == wanted(401, 410), "a new query begins with what is left"


def test_through_a_node_it_is_the_same(tmp_path: Path) -> None:
    """Limits, commit, and what was trimmed, asked over TCP."""
    with group(tmp_path, 1) as (member,):
        stream = reader(connect=member["bind"], reader="far", maxRowsPerBatch=20, views="false")
        at, found = stream.initialOffset(), []
        while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
            found.append(read(stream, at, end))
            stream.commit(end)
            at = end
        assert [body for batch in found for body in batch] == [b"%d" % n for n in range(50)]
        assert len(found) >= 3 and max(map(len, found)) <= 20
        assert readers(Path(member["journal"])) == {"far": Place(**at)}


def test_a_node_says_what_it_has_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "TRIM_S", 0.02)
    little = {"segment_bytes": 1, "keep_bytes": 1}
    with group(tmp_path, 1, journal_limits=little) as (member,):
        peer = Peer(read_options({"connect": member["bind"]}, writing=False))
        deadline = time.monotonic() + 30
        for batch in count():
            peer.ask(Publish(token(), "g", "s", batch, 0, (b"row",)))
            left, last = peer.ends()
            if left > START:
                break
            assert time.monotonic() < deadline
        with pytest.raises(JournalError, match="were trimmed"):
            list(peer.batches(Range(START, last)))


def test_small_frames_become_large_batches(tmp_path: Path) -> None:
    """A quiet group writes a frame for each message; Spark is not given each by itself."""
    journal = Journal(tmp_path)
    for each in entries(1, 200):
        journal.append([each])
    journal.close()
    stream = reader(path=tmp_path)
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    (batch,) = stream.read(part)
    assert batch.column("body").to_pylist() == wanted(1, 200)

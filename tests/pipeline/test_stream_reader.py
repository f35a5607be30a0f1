"""The streaming reader as Spark calls it, without Spark: limits, AvailableNow, commit, trimming."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from groups import KEEP_LITTLE, RING, entries, group, place, read, reader, wanted, write
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from xxhash import xxh3_64_intdigest

from ringcast.core.ids import START, Level, Position
from ringcast.journal import node_journal as node_journal
from ringcast.journal.format import layout
from ringcast.journal.format.layout import MESSAGE, JournalError
from ringcast.journal.format.selection import EVERYTHING
from ringcast.journal.merged_reader import Span
from ringcast.journal.service import Commit, Done, Extent, Publish, token
from ringcast.journal.writer import Journal, readers
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.options import to_read, to_write
from ringcast.pipeline.stream.origins import Files, RemoteNode
from ringcast.pipeline.stream.sink import StagedFile, Writing
from ringcast.pipeline.stream.source import RingcastSource
from ringcast.wire import keys


@pytest.mark.parametrize("told", [(), (Done(1, START),), (Extent(1, START, START),) * 2])
def test_a_node_that_answers_something_else_is_an_error(
    told: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = RemoteNode(to_read({"connect": "127.0.0.1:7001"}))
    monkeypatch.setattr(RemoteNode, "_talk", lambda peer, question: iter(told))
    with pytest.raises(JournalError, match="7001 does not answer the question"):
        peer.ends()


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
    for said, first in (("earliest", 1), ("latest", 51), ("(8,1):20", 20), ("8,1:20.0", 20),
                        ("(8,1):19.end", 20)):  # fmt: skip
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
    assert readers(tmp_path) == {"billing": place(middle)}
    journal = Journal(tmp_path, KEEP_LITTLE)
    journal.rotate()
    assert journal.trim() > 0
    journal.close()
    assert START < journal.trimmed.place <= place(middle)
    end = stream.latestOffset(middle, ReadAllAvailable())
    assert read(stream, middle, end) == wanted(201, 400)


@pytest.mark.parametrize("several", [False, True])
def test_a_checkpoint_is_not_taken_to_the_journal_of_another_group(
    tmp_path: Path, several: bool
) -> None:
    """Though it has records at the same places."""
    write(tmp_path / "ours", 1, 40)
    write(tmp_path / "ours-2", 1, 40)
    path = f"{tmp_path}/ours,{tmp_path}/ours-2" if several else tmp_path / "ours"
    stream = reader(path=path)
    at = stream.latestOffset(stream.initialOffset(), ReadMaxRows(30))
    assert reader(path=path).latestOffset(at, ReadAllAvailable()) != at
    for mine in ("ours", "ours-2"):
        shutil.rmtree(tmp_path / mine)
        journal = Journal(tmp_path / mine)
        for seq in range(1, 41):
            there = Position(0, 8, 1, seq, 0)
            bodies = (b"theirs", b"too")
            journal.append(
                [layout.entry(there, RING, MESSAGE, 1, Level.AGREED, "g", (), bodies, 0)]
            )
        journal.close()
    with pytest.raises(PipelineError, match="is of another group"):
        reader(path=path).latestOffset(at, ReadAllAvailable())
    with pytest.raises(PipelineError, match="is of another group"):
        reader(path=path).partitions(at, at)


def test_where_there_is_nothing_to_compare_a_query_goes_on(tmp_path: Path) -> None:
    """A journal that is being filled again is shorter than what was read, and what was read may
    have been trimmed."""
    write(tmp_path / "a", 1, 40)
    stream = reader(path=tmp_path / "a")
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    shutil.rmtree(tmp_path / "a")
    write(tmp_path / "a", 1, 20)
    again = reader(path=tmp_path / "a")
    assert again.latestOffset(at, ReadAllAvailable()) == at
    journal = Journal(tmp_path / "a")
    journal.append(entries(21, 50))
    journal.close()
    end = again.latestOffset(at, ReadAllAvailable())
    assert read(again, at, end) == wanted(41, 50)
    trimmed(tmp_path / "b")
    kept = reader(path=tmp_path / "b").initialOffset()
    assert kept["digest"] == "" and reader(path=tmp_path / "b").latestOffset(kept, LIMIT) != kept


LIMIT = ReadMaxRows(1)


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
    checkpoint = {"position": "(8,1):5.0", "digest": ""}
    end = stream.latestOffset(checkpoint, ReadAllAvailable())
    with pytest.raises(JournalError, match="were trimmed"):
        stream.partitions(checkpoint, end)
    with pytest.raises(JournalError, match="were trimmed"):  # trimmed after it was planned
        list(Files([tmp_path]).batches(Span((place(checkpoint),), (place(end),)), EVERYTHING))
    start = stream.initialOffset()
    assert read(stream, start, end) == wanted(401, 410), "a new query begins with what is left"


def test_through_a_node_it_is_the_same(tmp_path: Path) -> None:
    """Limits, commit, and what was trimmed, asked over TCP."""
    with group(tmp_path, 1) as (member,):
        stream = reader(connect=member["bind"], reader="far", maxRowsPerBatch=20, views="false")
        at, found = stream.initialOffset(), []
        assert readers(Path(member["journal"])) == {"far": place(at)}, "before its first batch"
        while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
            found.append(read(stream, at, end))
            stream.commit(end)
            at = end
            assert stream.reportLatestOffset() == {
                "position": str(RemoteNode(stream.options).ends().end[0]),
                "behind": RemoteNode(stream.options).behind((place(at),)),
            }
        assert [body for batch in found for body in batch] == [b"%d" % n for n in range(50)]
        assert len(found) >= 3 and max(map(len, found)) <= 20
        assert readers(Path(member["journal"])) == {"far": place(at)}


def test_a_node_says_what_it_has_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_journal, "TRIM_S", 0.02)
    little = {"segment_bytes": 1, "keep_bytes": 1}
    with group(tmp_path, 1, journal_limits=little) as (member,):
        peer = RemoteNode(to_read({"connect": member["bind"]}))
        deadline = time.monotonic() + 30
        for batch in count():
            peer.ask(Publish(token(), "g", "s", batch, 0, (b"row",)))
            (left,), last = peer.ends()
            if left > START:
                break
            assert time.monotonic() < deadline
        with pytest.raises(JournalError, match="were trimmed"):
            list(peer.batches(Span((START,), last), EVERYTHING))


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


@pytest.mark.parametrize("name", ["..", "../up", "a b", "x\n", "", "." * 3])
def test_names_that_could_leave_their_folder_are_refused(name: str) -> None:
    for option in ("stream", "group"):
        with pytest.raises(PipelineError, match=f"{option}: 1 to 64 letters"):
            to_write({**WRITING, option: name})
    if name:
        with pytest.raises(PipelineError, match="reader: 1 to 64 letters"):
            to_read({"path": "x", "reader": name})
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert([4, 1, name, START], Commit)


WRITING = {"connect": "127.0.0.1:1", "staging": "s", "group": "g", "stream": "s"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "x", "maxrowsperbach": "1"}, r"did you mean maxRowsPerBatch\? known: connect, "),
        ({"path": "x", "staging": "y"}, "staging is for writing; for reading there are connect, "),
        ({"path": "x", "maxRowsPerBatch": "-1"}, r"`int` >= 0 - at `\$.maxRowsPerBatch`"),
        ({"path": "x", "maxRowsPerBatch": "all"}, r"`int`, got `str` - at `\$.maxRowsPerBatch`"),
        (
            {"path": "x", "startingPosition": "first"},
            r"'first' is no position: write one such as \(8,1\):",
        ),
        ({"path": "x", "startingPosition": "(8,1):"}, "or say earliest or latest"),
        ({"connect": "nowhere"}, "connect = 'nowhere': write host:port"),
        ({}, "give either path .* or connect"),
        ({"path": " , "}, "give either path .* or connect"),
    ],
)
def test_what_is_wrong_with_a_source_is_said_when_it_is_loaded(
    given: dict[str, str], words: str
) -> None:
    """Spark asks for the columns then, and for nothing else until a query runs."""
    with pytest.raises(PipelineError, match=words) as caught:
        RingcastSource(given).schema()
    assert not {"checkpointLocation", "stream"} & set(re.findall(r"\w+", str(caught.value)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "rows go into a group through a node: give its address host:port as connect$"),
        ({"path": "x"}, "through a node: .* as connect, and path is for reading"),
        (WRITING | {"connect": "nowhere"}, "connect = 'nowhere': write host:port"),
        (WRITING | {"group": ""}, "group is missing; group: 1 to 64 letters"),
        (WRITING | {"stream": ""}, "stream is missing; stream: 1 to 64 letters"),
        (WRITING | {"staging": ""}, "staging: name a folder"),
        (WRITING | {"stagging": "x"}, r"did you mean staging\? known: connect, key_file, group, "),
        (WRITING | {"views": "false"}, "views is for reading; for writing there are connect, "),
        (WRITING | {"bodies": "jsn"}, "did you mean json"),
        (WRITING | {"bodies": "raw"}, "bodies = raw needs a column body of binary or string"),
    ],
)
def test_what_is_wrong_with_a_sink_is_said_before_it_writes(
    given: dict[str, str], words: str
) -> None:
    row = StructType([StructField("id", LongType())])
    for make in (RingcastSource(given).writer, RingcastSource(given).streamWriter):
        with pytest.raises(PipelineError, match=words) as caught:
            make(row, False)
        assert not {"startingPosition", "reader"} & set(re.findall(r"\w+", str(caught.value)))


def test_options_are_known_however_they_are_written() -> None:
    """Spark hands their names on in small letters."""
    given = {"PATH": "a, b", "MaxRowsPerBatch": "7", "views": "False", "mergeSchema": "x"}
    options = to_read(given)
    assert (options.folders, options.maxRowsPerBatch) == ([Path("a"), Path("b")], 7)
    assert not options.views
    for name in ("keyFile", "key_file", "keyfile"):
        assert to_read({"connect": "h:1", name: "k"}).key_file == "k"


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """Somebody who says something else, or nothing, to whoever calls; the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    calls.append(server.accept()[0])
                    calls[-1].sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in calls:
                each.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "was silent for"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is the other side ringcast"),
        (b"\0\0\0\x05hello", "no greeting; is the other side ringcast"),
        (b"\0\0\0\x40" + b"hello!!!" * 8, "no greeting; is the other side ringcast"),
    ],
)
def test_connect_to_somebody_else(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    monkeypatch.setattr("ringcast.wire.line.PATIENCE_S", 0.5)
    with listening(answer) as address, pytest.raises(JournalError, match=words):
        reader(connect=address).initialOffset()


def test_connect_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(b"") as address:
        pass
    with pytest.raises(JournalError, match=f"{address}: .*; connect needs a node that runs"):
        reader(connect=address).initialOffset()

    async def slow(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("asyncio.open_connection", slow)
    with pytest.raises(JournalError, match=f"{address}: no answer; connect needs"):
        reader(connect=address).initialOffset()


def test_connect_with_another_key_or_none(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for path in (ours, other):
        keys.write(path, keys.add({}))
    with group(tmp_path, 1, key_file=str(ours)) as (member,):
        assert reader(connect=member["bind"], key_file=ours).initialOffset()
        for more in ({"key_file": other}, {}):
            with pytest.raises(JournalError, match="have both a key of this group"):
                reader(connect=member["bind"], **more).initialOffset()


def writer(staging: Path, checkpoint: Path) -> Any:
    options = {"connect": "127.0.0.1:1", "staging": str(staging), "group": "g", "stream": "s"}
    source = RingcastSource({**options, "checkpointLocation": str(checkpoint)})
    return source.streamWriter(StructType([StructField("body", BinaryType())]), False)


def test_another_query_with_the_name_of_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is one that has lost its checkpoint: members would drop its rows as repeated."""
    asked: list[Publish] = []
    monkeypatch.setattr(RemoteNode, "ask", lambda peer, question: asked.append(question))

    def write(stream: Any, batch: int, *bodies: bytes) -> None:
        rows = pa.record_batch([pa.array(bodies, pa.binary())], ["body"])
        stream.commit([stream.write(iter([rows]))], batch)

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata").write_text(f'{{"id":"{name}"}}')
    one, other = (writer(tmp_path / "staging", tmp_path / name) for name in ("one", "other"))
    write(one, 0, b"a")
    write(one, 0, b"a")  # Spark repeats it
    with pytest.raises(PipelineError, match="belongs to another query"):
        write(other, 0, b"b")
    write(one, 1, b"c")
    with pytest.raises(PipelineError, match="belongs to another query"):
        write(one, 0, b"d")
    (tmp_path / "one" / "metadata").write_text('{"id":"anew"}')
    with pytest.raises(PipelineError, match="belongs to another query"):
        write(one, 2, b"e")
    assert [word.bodies for word in asked] == [(b"a",), (b"c",)]


def test_another_table_under_the_name_of_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one again is a repetition, in whatever order its rows come."""
    asked: list[Publish] = []
    monkeypatch.setattr(RemoteNode, "ask", lambda peer, question: asked.append(question))
    options = {"connect": "127.0.0.1:1", "staging": str(tmp_path), "group": "g", "stream": "s"}
    source = RingcastSource({**options, "checkpointLocation": ""})
    table = source.writer(StructType([StructField("body", BinaryType())]), False)

    def write(*parts: tuple[bytes, ...]) -> None:
        rows = [pa.record_batch([pa.array(part, pa.binary())], ["body"]) for part in parts]
        table.commit([table.write(iter([part])) for part in rows])

    write((b"a", b"b"), (b"c",))
    write((b"c", b"a"), (b"b",))
    with pytest.raises(PipelineError, match="give each query and each table a stream of its own"):
        write((b"a", b"b"))
    query = writer(tmp_path, tmp_path / "checkpoint")
    with pytest.raises(PipelineError, match="belongs to another query or table"):
        query.commit([query.write(iter(()))], 0)
    assert [word.bodies for word in asked] == [(b"a", b"b", b"c")]


def test_bodies_of_64_mib_and_of_nothing(tmp_path: Path) -> None:
    large = bytes(range(256)) * 2**18
    journal = Journal(tmp_path)
    for seq, body in enumerate((b"", large, b""), 1):
        place = Position(0, 8, 1, seq, 0)
        journal.append([layout.entry(place, RING, MESSAGE, 1, Level.AGREED, "g", (), (body,), 0)])
    journal.close()
    stream = reader(path=tmp_path)
    start = stream.initialOffset()
    assert read(stream, start, stream.latestOffset(start, ReadAllAvailable())) == [b"", large, b""]
    end = stream.latestOffset(start, ReadMaxRows(2))
    assert read(stream, start, end) == [b"", large]


@pytest.mark.parametrize("way", ["absolute", "parent", "link"])
def test_a_manifest_names_files_of_its_folder_alone(tmp_path: Path, way: str) -> None:
    """One that named others had them published into the group, and removed."""
    secret = tmp_path / "secret"
    secret.write_bytes((5).to_bytes(4, "big") + b"mine!")
    staging = tmp_path / "staging" / "s"
    staging.mkdir(parents=True)
    name = {"absolute": str(secret), "parent": "../../secret", "link": f"{0:032x}.rows"}[way]
    if way == "link":
        (staging / name).symlink_to(secret)
    decided = [StagedFile(name, 1, xxh3_64_intdigest(b"mine!"))]
    (staging / f"{3:020}.json").write_bytes(msgspec.json.encode(decided))
    row = StructType([StructField("body", BinaryType())])
    options = WRITING | {"staging": str(tmp_path / "staging")}
    writer = RingcastSource(options).streamWriter(row, False)
    assert isinstance(writer, Writing)
    with pytest.raises((PipelineError, OSError), match=r"no file of rows|symbolic links"):
        writer.publish([], 3)
    assert secret.exists()


@pytest.mark.parametrize("spoil", ["cut 1", "cut 6", "cut 10", "change"])
def test_a_staged_file_that_was_changed_is_refused(tmp_path: Path, spoil: str) -> None:
    """Cut within a row, its last row was published short; cut between rows, the rest was lost."""
    row = StructType([StructField("body", BinaryType())])
    options = WRITING | {"staging": str(tmp_path / "staging")}
    writer = RingcastSource(options).streamWriter(row, False)
    assert isinstance(writer, Writing)
    rows = pa.record_batch({"body": pa.array([b"first", b"second"], pa.binary())})
    staged = writer.write(iter([rows]))
    path = tmp_path / "staging" / "s" / staged.file.name
    assert path.stat().st_mode & 0o777 == 0o600, "others may not read what is not published yet"
    what, *count = spoil.split()
    whole = path.read_bytes()
    path.write_bytes(whole[: -int(count[0])] if what == "cut" else whole[:-1] + b"D")
    with pytest.raises(PipelineError, match="has not the 2 rows that were staged in it"):
        writer.publish([staged], 3)
    assert path.exists()

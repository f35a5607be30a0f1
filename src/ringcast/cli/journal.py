"""``ringcast journal``: look at a node's ordered log, check it, and take it elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ringcast.console.options import OK, VIOLATED, fail
from ringcast.console.output import as_json, say
from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import START, Position
from ringcast.journal.check import CheckReport, compare, examine, holes, identical
from ringcast.journal.export import export
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import GAP, MESSAGE, JournalError
from ringcast.journal.merged_reader import MergedReader, Span
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import read_trimmed, readers, segment_names
from ringcast.pipeline.spark.progress import ProgressBar
from ringcast.replica.contents import COMMAND, submission

app = typer.Typer(help="Look at a node's ordered log, check it, and take it elsewhere.")

Folder = Annotated[Path, typer.Argument(help="The journal's folder.")]
Folders = Annotated[list[Path], typer.Argument(help="One journal, or several of one group.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

LONGEST_SHOWN = 120
LOOK_S = 0.5
"""How often ``--follow`` looks for more."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """What is wrong with a journal is one line."""
    try:
        yield
    except JournalError as error:
        fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise  # who reads has had enough
        fail(f"{error.filename or 'the journal'}: {error.strerror or error}")


def place(text: str, option: str) -> Position:
    """The position that an option gives."""
    try:
        return Position.parse(text)
    except ValueError as error:
        fail(f"{option}: {error}")


@app.command("ls")
def ls(folder: Folder, json: Json = False) -> None:
    """What a journal holds: segments, positions, readers."""
    with plain_errors():
        journal = JournalReader(folder)
        trimmed = read_trimmed(folder)
        known = readers(folder)
    files: dict[Path, list[Any]] = {}
    for path, head in journal.heads_after():
        files.setdefault(path, []).append(head)
    pending, last = (folder / "pending").is_dir(), journal.last
    segments: list[dict[str, Any]] = [
        {
            "file": path.name,
            "records": sum(head.rows for head in heads),
            "bytes": heads[-1].end,
            "first": str(heads[0].first),
            "last": str(heads[-1].last),
            "sealed": path.with_suffix(".index").exists(),
        }
        for path, heads in files.items()
    ]
    found: dict[str, Any] = {
        "folder": str(folder),
        "records": sum(each["records"] for each in segments),
        "first": str(journal.first) if journal.first else None,
        "last": str(last) if journal.first else None,
        "trimmed": {"upto": str(trimmed.place), "records": trimmed.number},
        "readers": {name: str(at) for name, at in known.items()},
        "behind": {name: journal.count(Range(min(at, last), last)) for name, at in known.items()},
        "gaps": [{"after": str(gap.after), "upto": str(gap.upto)} for gap in journal.gaps],
        "catching_up": pending,
        "segments": segments,
    }
    if json:
        as_json(found)
        return
    for each in segments:
        state = "" if each["sealed"] else "  being written"
        say(
            f"{each['file']}  {each['records']:>10,} records  {each['bytes']:>14,} B  "
            f"{each['first']} .. {each['last']}{state}"
        )
    say(f"{found['records']:,} records in {len(segments)} segments")
    if trimmed.number:
        say(f"trimmed: {trimmed.number:,} records, up to {found['trimmed']['upto']}")
    for gap in found["gaps"]:
        say(f"missing: what was between {gap['after']} and {gap['upto']}, while the node was away")
    for name, at in found["readers"].items():
        behind = found["behind"][name]
        say(f"reader {escape(name)} has committed {at}, {behind:,} records before the end")
    if pending:
        say("the node was away and catches up, or ended before it had: more waits in pending")


@app.command("cat")
def cat(
    folders: Folders,
    group: Annotated[str | None, typer.Option(help="Only this group's messages.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="From this position on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Up to this position.")] = None,
    views: Annotated[bool, typer.Option(help="Show configurations too.")] = True,
    commands: Annotated[
        bool, typer.Option("--commands", help="What was submitted to the group's replica, alone.")
    ] = False,
    follow: Annotated[bool, typer.Option(help="Go on as the journal grows.")] = False,
    json: Json = False,
) -> None:
    """Print records in their order; several journals are merged."""
    if commands and group is None:
        fail("--commands needs --group: only messages of a replica's group are commands")
    last = place(end, "--to") if end else None
    with plain_errors():
        reader = MergedReader(folders)
        after = START
        if start:
            first = place(start, "--from")
            after = max(START, first.before)
            reader.check(reader.marks(after))
        batches, seen = reader.within(Range(after, last or reader.last)), reader.ends
        while True:
            for batch in batches:
                for row in batch.to_pylist():
                    if row["kind"] == MESSAGE:
                        if group is not None and row["group"] != group:
                            continue
                        if not commands or with_command(row):
                            show(row, json)
                    elif views or row["kind"] == GAP:
                        show(row, json)
            if not follow or (last and max(seen) >= last):
                return
            time.sleep(LOOK_S)
            reader.refresh()
            span = Span(seen, tuple(map(max, seen, reader.ends)))
            batches = reader.batches(span.part(Range(after, last or max(span.end))))
            seen = span.end


def with_command(row: dict[str, Any]) -> bool:
    """Put the command of a replica's message in the place of its body; False if it has none."""
    try:
        found = submission(row["body"])
    except UNREADABLE:  # a copy refuses it, too
        return False
    if found is None:
        return False
    row |= {**found._asdict(), "kind": COMMAND, "body": found.command}
    del row["command"]
    return True


def show(row: dict[str, Any], json: bool) -> None:
    """One record on a line."""
    at = str(Position(**row["position"]))
    moment = row["time"].astimezone(UTC)
    if json:
        raw = row["body"]
        body = {"text": raw.decode()} if is_text(raw) else {"hex": raw.hex()}
        line = {**row, "position": at, "time": moment.isoformat(), "body": body}
        typer.echo(msgspec.json.encode(line).decode())
        return
    when = moment.strftime("%H:%M:%S.%f")
    if row["kind"] in (MESSAGE, COMMAND):
        safe = " safe" if row["level"] == "safe" else ""
        group = row["group"] if row["group"].isprintable() else repr(row["group"])
        asked = f", {row['client']!r} request {row['request']}" if row.get("client") else ""
        text = f"{group} from {row['sender']}{safe}{asked}: {printable(row['body'])}"
    elif row["kind"] == GAP:
        text = f"gap: {printable(row['body'])}"
    else:
        members = " ".join(map(str, row["members"]))
        text = f"{row['kind']} ({row['view']['seq']},{row['view']['rep']}): {members}"
    typer.echo(f"{at:<16} {when} {text}")


def is_text(body: bytes) -> bool:
    """Whether people can read it."""
    try:
        return body.decode().isprintable()
    except UnicodeDecodeError:
        return False


def printable(body: bytes) -> str:
    """A body on a line; what is not text as in Python, what is long cut."""
    text = body[: LONGEST_SHOWN + 1]
    shown = text.decode() if is_text(text) else repr(text)[2:-1]
    return shown if len(body) <= LONGEST_SHOWN else f"{shown} … {len(body)} bytes"


@app.command("check")
def check(folders: Folders, json: Json = False) -> None:
    """Verify checksums, positions and the chain; of several journals, that they agree."""
    reports: list[CheckReport] = []
    with plain_errors():
        segments = sum(max(1, len(segment_names(folder))) for folder in folders)
        with ProgressBar("segments", segments, quiet=json) as bar:
            for folder in folders:
                reports.append(CheckReport(str(folder)))
                for reports[-1] in examine(folder):
                    bar.show(bar.done + 1)
        sound = not any(report.findings for report in reports)
        several = sound and len(folders) > 1
        differences = [*compare(folders), *holes(folders)] if several else []
        alike = identical(folders) if several else None
    findings = [each for report in reports for each in report.findings] + differences
    if json:
        as_json({"sound": not findings, "identical": alike, "journals": reports,
                 "differences": differences})  # fmt: skip
        raise typer.Exit(VIOLATED if findings else OK)
    for report in reports:
        torn = f", {report.torn_bytes} bytes unfinished at its end" if report.torn_bytes else ""
        say(
            f"{escape(report.folder)}: {report.records:,} records in {report.segments} segments, "
            f"{report.bytes:,} B{torn}"
        )
        for gap in report.gaps:
            say(f"  missing: {gap}, while the node was away")
    for each in findings:
        say(f"[bold red]{escape(each.file)}[/] at {each.place}: {escape(each.what)}")
    if not findings:
        say("sound" if alike is None else "sound, and identical" if alike else "sound, and where "
            "they overlap the same")  # fmt: skip
    raise typer.Exit(VIOLATED if findings else OK)


@app.command("export")
def export_command(
    folders: Folders,
    out: Annotated[Path, typer.Option(help="A folder that does not exist yet.")],
    json: Json = False,
) -> None:
    """Write all records as Parquet; several journals are merged."""
    with plain_errors():
        written = export(folders, out)
    if json:
        as_json({"out": str(out), "records": written, "at": datetime.now(UTC).isoformat()})
    else:
        say(f"{written:,} records in {escape(str(out))}")

"""Made-up traces of any size:
``python -m ringcast.traces.synthetic.generate OUT --events 50000000``.

They obey every property of extended virtual synchrony, unless a fault is put into them. A seed
always gives the same files. Memory does not grow with the number of events, and a group of rows
holds one processor's events in one range of places on one ring, the same ranges for every
processor, so that a reader finds a range by the statistics of the groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ringcast.traces import schema
from ringcast.traces.parquet import Row, TableFile, TraceError
from ringcast.traces.schema import TABLES
from ringcast.traces.synthetic.faults import Fault, FaultKind, Injected, Spoiler
from ringcast.traces.synthetic.group import (
    FRAME_US,
    JITTER_US,
    LEAST_US,
    Era,
    MadeFrames,
    MadeStay,
    MadeStory,
    Shape,
    is_safe,
    mixed,
)

GROUP = 1 << 18
"""Deliveries in a group of rows, at most."""

SIZE = 64
"""Bytes a message."""

Cells = dict[str, Any]
"""A column for each of its names: an array with one value a frame, or one value for all."""


class Made(msgspec.Struct, frozen=True):
    """What was written."""

    run: int
    events: int
    """Rows of submit, originate and deliver."""
    injected: list[Injected]


def generate(folder: Path | str, shape: Shape, run: int = 0, faults: Sequence[Fault] = ()) -> Made:
    """Write the trace of one run into ``folder``."""
    story = MadeStory(shape)
    spoiler = Spoiler(story, faults, run, per_part(shape) * shape.burst)
    files: list[TableFile] = []
    events = 0
    try:
        for name in TABLES:
            files.append(TableFile(Path(folder), name, run))
        for file, (name, kinds) in zip(files, TABLES.items(), strict=True):
            if name in MAKERS:
                for cells in _parts(story, MAKERS[name], spoiler):
                    table = _messages(file, {"run": run, **cells}, shape.frame)
                    events += table.num_rows
                    file.write(table)
            else:
                told = [event for event in story.control if isinstance(event, kinds)]
                rows = [row for event in told for row in schema.rows(event, run)]
                file.write(_sorted(file, rows))
            file.close()
    except BaseException:
        for file in files:
            file.abandon()
        raise
    for file in files:
        file.publish()
    return Made(run, events, spoiler.injected)


def per_part(shape: Shape) -> int:
    """Visits of the token whose frames make one group of rows."""
    return max(1, GROUP // (shape.burst * shape.frame))


def _parts(
    story: MadeStory, make: Callable[[Era, MadeStay, MadeFrames], Cells], spoiler: Spoiler
) -> Iterator[Cells]:
    """The groups of rows of a table, in order."""
    step = per_part(story.shape)
    for node in story.nodes:
        for era, stay in story.stays(node):
            for start in range(0, era.visits, step):
                frames = MadeFrames(era, start, min(start + step, era.visits))
                cells = make(era, stay, frames)
                if len(cells["n"]):
                    yield spoiler.spoil(era, node, cells) if make is _deliver else cells


def _deliver(era: Era, stay: MadeStay, frames: MadeFrames) -> Cells:
    """What one member delivers of these frames, in the ring and after it."""
    slot, burst = frames.slot, era.shape.burst
    bursts = era.visits_of(stay.turn, slot) + era.refills_of(stay.turn, slot - 1) + stay.fresh
    n = stay.first_n + burst * bursts + 2 * frames.place
    delay = mixed((slot * 0xFFFF + stay.node).view(np.uint64)) % np.uint64(JITTER_US)
    t_us = era.slot_us(slot) + LEAST_US + delay.view(np.int64)
    t_us += np.where(slot == frames.visit, FRAME_US * frames.within, 0)
    view_seq, view_rep = (np.full(len(n), part) for part in (era.view.seq, era.view.rep))
    in_ring = int(np.searchsorted(slot, stay.last_slot, side="right"))
    end = in_ring
    if stay.then is not None:
        end = len(n)
        n[in_ring:] = stay.then_n + 2 * (frames.place[in_ring:] - stay.delivered)
        t_us[in_ring:] = stay.then_us
        view_seq[in_ring:], view_rep[in_ring:] = stay.then.seq, stay.then.rep
    nodes = np.array([each.node for each in era.stays])
    columns = {
        "n": n,
        "t_us": t_us,
        "view_seq": view_seq,
        "view_rep": view_rep,
        "seq": era.silent + 1 + frames.place,
        "sender": nodes[frames.turn],
        "level": frames.safe,
        "first": frames.number * era.shape.frame + 1,
        "salt": frames.salt,
    }
    ring = {"node": stay.node, "ring_seq": era.view.seq, "ring_rep": era.view.rep}
    return ring | {name: column[:end] for name, column in columns.items()}


def _originate(era: Era, stay: MadeStay, frames: MadeFrames) -> Cells:
    """What one member originates of these frames."""
    mine = frames.turn == stay.turn
    visit, within, burst = frames.visit[mine], frames.within[mine], era.shape.burst
    rounds = visit // len(era.stays) + era.refills_of(stay.turn, visit - 1) + stay.fresh
    return {
        "node": stay.node,
        "n": stay.first_n + 2 * frames.deliverable(visit - 1) + burst * rounds + within,
        "t_us": era.slot_us(visit),
        "ring_seq": era.view.seq,
        "ring_rep": era.view.rep,
        "seq": era.silent + 1 + frames.place[mine],
        "level": frames.safe[mine],
        "first": frames.number[mine] * era.shape.frame + 1,
        "salt": frames.salt[mine],
        "sender": stay.node,
    }


def _submit(era: Era, stay: MadeStay, frames: MadeFrames) -> Cells:
    """What one member submits while these frames are originated: those of its next visit."""
    shape, burst = era.shape, era.shape.burst
    mine = frames.turn == stay.turn
    mine &= era.refills_of(stay.turn, frames.visit) > frames.visit // len(era.stays)
    visit, within = frames.visit[mine], frames.within[mine]
    rounds = 2 * (visit // len(era.stays)) + 1 + stay.fresh
    n = stay.first_n + 2 * frames.deliverable(visit) + burst * rounds + within
    t_us = era.slot_us(visit + 1) - 1
    number = frames.number[mine] + burst
    if stay.fresh and frames.place[0] == 0:
        start = np.arange(burst)
        n = np.concatenate((stay.first_n + start, n))
        t_us = np.concatenate((np.full(burst, era.start_us), t_us))
        number = np.concatenate((stay.before + start, number))
    salt = np.full(len(n), stay.salt, np.uint64)
    return {
        "node": stay.node,
        "n": n,
        "t_us": t_us,
        "incarnation": stay.incarnation,
        "level": is_safe(number, salt, shape.safe),
        "size": SIZE,
        "first": number * shape.frame + 1,
        "salt": salt,
    }


MAKERS: dict[str, Callable[[Era, MadeStay, MadeFrames], Cells]] = {
    "submit": _submit,
    "originate": _originate,
    "deliver": _deliver,
}
"""The tables with a row a message, and what makes their cells."""


def _messages(file: TableFile, cells: Cells, frame: int) -> Any:
    """An Arrow table with one row a message from cells with one value a frame."""
    first, salt = cells.pop("first"), np.repeat(cells.pop("salt"), frame)
    count = len(first) * frame
    sequence = (first[:, None] + np.arange(frame)).ravel()
    digest = mixed(sequence.view(np.uint64) ^ salt).view(np.int64)
    altered = cells.pop("altered", None)
    if altered is not None:
        digest.reshape(-1, frame)[altered, -1] ^= 1
    cells |= {
        "sequence": sequence,
        "index": np.tile(np.arange(frame), len(first)),
        "digest": digest,
    }
    arrays = []
    for column in file.schema.names:
        value = cells[column]
        if isinstance(value, int):
            value = np.full(count, value)
        elif len(value) < count:
            value = np.repeat(value, frame)
        arrays.append(file.pa.array(value))
    return file.pa.Table.from_arrays(arrays, schema=file.schema)


def _sorted(file: TableFile, rows: list[Row]) -> Any:
    """An Arrow table of these rows, each processor's in its own order."""
    rows.sort(key=lambda row: (row["node"], row["n"]))
    return file.pa.Table.from_batches([file.batch(rows)], schema=file.schema)


def _fault(text: str) -> Fault:
    """``kind`` or ``kind@node:ring:seq``."""
    kind, at, place = text.partition("@")
    try:
        where = [int(number) for number in place.split(":")] if at else []
        if len(where) > 3:
            raise ValueError
        return Fault(FaultKind(kind), *where)
    except ValueError:
        known = ", ".join(FaultKind)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KIND or KIND@NODE:RING:SEQ with a kind of {known}"
        ) from None


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m ringcast.traces.synthetic.generate",
        description="Write made-up traces that obey, or break, extended virtual synchrony.",
    )
    parser.add_argument("out", type=Path, help="the folder")
    for field in msgspec.structs.fields(Shape):
        name, usual = field.name, field.default
        parser.add_argument(f"--{name}", type=field.type, default=usual, help=f"[{usual}]")
    parser.add_argument("--runs", type=int, default=1, help="runs that share the events [1]")
    parser.add_argument(
        "--fault", type=_fault, action="append", default=[], metavar="KIND[@NODE:RING:SEQ]",
        help=f"in the first run, may be repeated: {', '.join(FaultKind)}",
    )  # fmt: skip
    asked = parser.parse_args(words)
    try:
        shape = Shape(**{name: getattr(asked, name) for name in Shape.__struct_fields__})
        for run in range(asked.runs):
            each = msgspec.structs.replace(
                shape, events=shape.events // asked.runs, seed=shape.seed + run
            )
            made = generate(asked.out, each, run, () if run else asked.fault)
            print(f"run {run}: {made.events:,} events")
            for injected in made.injected:
                print(f"injected: {injected}, which breaks {injected.breaks}")
    except (OSError, TraceError, ValueError) as error:
        parser.exit(2, f"generate: {error}\n")


if __name__ == "__main__":
    main()

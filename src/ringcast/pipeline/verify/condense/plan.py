"""From the configurations of a run to windows: which rows can be compared with which.

The *stay* of a member in a ring is what it did between installing the ring and its next
configuration or crash. If all members of a ring had one stay each, and there was a moment at which
all were in it, their deliveries are compared, window by window. A window is a range of places of a
ring; every row of every member lies in one window or comes before all of them. What lies between
two stays of a processor belongs to the last window of the earlier one and is shown in full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from ringcast.checks.property import Reads
from ringcast.core.ids import LIMIT, NodeId, ViewId
from ringcast.core.trace import Crashed, Ended, Faulted, Installed, Noted, Restarted, TraceEvent
from ringcast.pipeline.verify.condense.columns import Rows, RunTable, table_of
from ringcast.traces import TraceFile
from ringcast.traces.parquet import check_lives
from ringcast.traces.schema import TABLES

WINDOW_ROWS = 4 << 20
"""Deliveries of all members together that a window should have."""

LEAST_ROWS = 128
"""A ring with fewer deliveries of a member is shown in full."""

Moment: TypeAlias = tuple[int, NodeId, int]
"""Where an event stands in the trace: its time, its processor and the processor's number for it."""


class Stay(msgspec.Struct, frozen=True):
    """A member's time in a ring, by the numbers of its events."""

    node: NodeId
    incarnation: int
    start_n: int
    end_n: int = LIMIT
    next_n: int = LIMIT
    """Where its next stay begins in a ring that is compared."""


class Keep(msgspec.Struct, frozen=True):
    """What a window has to show besides what it finds worth showing."""

    until_us: int = -1
    """Frames originated or delivered first up to this time."""
    from_us: int = LIMIT
    """Frames that somebody delivered from this time on."""
    seqs: tuple[int, ...] = ()
    """Frames at these places."""
    numbers: tuple[tuple[NodeId, int, int], ...] = ()
    """Frames with messages of a sender numbered from .. to."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Frames at the places from .. to."""


class Window(msgspec.Struct, frozen=True):
    """Places ``low .. high - 1`` of a ring."""

    folder: str
    run: int
    ring: ViewId
    stays: tuple[Stay, ...]
    low: int
    high: int
    first: bool
    last: bool
    rows: int
    """About how many deliveries it has."""
    reads: Reads
    origin_first: bool
    """Whether what others delivered before it was originated is odd."""
    keep: Keep = Keep()
    closely: bool = False
    """Show everything that was under way at the same time as something odd, so that whatever is
    broken is broken by the very events that broke it first."""


class RingPlan(msgspec.Struct, frozen=True):
    """A ring that is compared: when all were in it, and its windows."""

    view: ViewId
    opened: Moment
    """The last installation."""
    closed: Moment
    """The first departure; the end of all times if there is none."""
    windows: tuple[Window, ...]


class Plan(msgspec.Struct, frozen=True):
    """A run: the events that are not about messages, and the rings that are compared."""

    control: tuple[TraceEvent, ...]
    rings: tuple[RingPlan, ...]
    before: dict[NodeId, int]
    """By processor: what it did before this number is in no window."""


class _Visit(msgspec.Struct):
    """A stay while it is made out."""

    installed: Installed
    incarnation: int
    left: TraceEvent | None = None


def moment(event: TraceEvent) -> Moment:
    """Where it stands; the end is the last of all."""
    return (LIMIT, 0, 0) if isinstance(event, Ended) else (event.t_us, event.node, event.n)


def control_events(folder: Path, run: int, notes: Iterable[str]) -> list[TraceEvent]:
    """Configurations, crashes, faults, the end, and the notes of these kinds."""
    found: list[TraceEvent] = []
    for name in ("view", "fault"):
        file = TraceFile.of(folder, name, run)
        for node in sorted(file.nodes()):
            found += file.events(node, world=False)
            found += file.events(node, world=True)
    wanted = list(notes)
    if wanted:
        found += TraceFile.of(folder, "note", run).some("what", wanted)
    found.sort(key=moment)
    tables = (table_of(folder, name, run) for name in TABLES if name != "fault")
    nodes = {node for table in tables for node in table.nodes()}
    check_lives(found, nodes, file.path)
    return found


def make_plan(
    folder: Path, run: int, reads: Reads, notes: Iterable[str], origin_first: bool
) -> Plan:
    """Divide a run into windows; without any if nothing about messages is to be judged."""
    control = control_events(folder, run, notes)
    if reads is Reads.NOTHING:
        return Plan(tuple(control), (), {})
    deliver = table_of(folder, "deliver", run)
    compared = [
        visits
        for visits in _by_ring(control)
        if max(len(_rows(deliver, visit)) for visit in visits) >= LEAST_ROWS
    ]
    starts: dict[NodeId, list[int]] = {}
    for visits in compared:
        for visit in visits:
            starts.setdefault(visit.installed.node, []).append(visit.installed.n)
    for found in starts.values():
        found.sort()
    rings = [
        _ring(folder, run, reads, origin_first, deliver, visits, starts)
        for visits in sorted(compared, key=lambda visits: visits[0].installed.view)
    ]
    return Plan(tuple(control), tuple(rings), {node: found[0] for node, found in starts.items()})


def _by_ring(control: Iterable[TraceEvent]) -> Iterator[list[_Visit]]:
    """The rings all of whose members were in them at one moment, each once.

    Nobody went back to one of them: what was delivered before is lost on a member that had passed
    it by, though it delivers the same afterwards.
    """
    incarnations: dict[NodeId, int] = {}
    current: dict[NodeId, _Visit] = {}
    highest: dict[NodeId, ViewId] = {}
    returned: set[ViewId] = set()
    rings: dict[ViewId, list[_Visit]] = {}
    own = [e for e in control if not isinstance(e, Ended | Faulted | Noted)]
    for event in sorted(own, key=lambda event: (event.node, event.n)):
        if isinstance(event, Installed | Crashed | Restarted):
            visit = current.pop(event.node, None)
            if visit is not None:
                visit.left = event
            if isinstance(event, Restarted):
                incarnations[event.node] = event.incarnation
            elif isinstance(event, Installed) and not event.transitional:
                visit = _Visit(event, incarnations.get(event.node, 1))
                current[event.node] = visit
                rings.setdefault(event.view, []).append(visit)
                highest[event.node] = max(event.view, highest.get(event.node, event.view))
                if event.view < highest[event.node]:
                    returned.add(event.view)
    for view, visits in rings.items():
        members = visits[0].installed.members
        if (
            view not in returned
            and sorted(visit.installed.node for visit in visits) == sorted(members)
            and all(visit.installed.members == members for visit in visits)
        ):
            opened, closed = _ends(visits)
            if opened < closed:
                yield visits


def _ends(visits: list[_Visit]) -> tuple[Moment, Moment]:
    opened = max(moment(visit.installed) for visit in visits)
    closed = min((moment(v.left) for v in visits if v.left is not None), default=(LIMIT, 0, 0))
    return opened, closed


def _rows(deliver: RunTable, visit: _Visit) -> Rows:
    """What a member delivered in the ring itself."""
    end = LIMIT if visit.left is None else moment(visit.left)[2]
    return deliver.between(visit.installed.node, visit.installed.n, end)


def _ring(
    folder: Path,
    run: int,
    reads: Reads,
    origin_first: bool,
    deliver: RunTable,
    visits: list[_Visit],
    starts: dict[NodeId, list[int]],
) -> RingPlan:
    stays = []
    for visit in visits:
        node, start = visit.installed.node, visit.installed.n
        end = LIMIT if visit.left is None else moment(visit.left)[2]
        after = starts[node][bisect_right(starts[node], start) :][:1] or [LIMIT]
        stays.append(Stay(node, visit.incarnation, start, end, after[0]))
    longest = max((_rows(deliver, visit) for visit in visits), key=len)
    cuts = [0, *_cuts(longest, WINDOW_ROWS // len(visits)), LIMIT]
    view, number = visits[0].installed.view, len(cuts) - 1
    opened, closed = _ends(visits)
    windows = [
        Window(
            folder=str(folder),
            run=run,
            ring=view,
            stays=tuple(stays),
            low=cuts[at],
            high=cuts[at + 1],
            first=at == 0,
            last=at == number - 1,
            rows=len(longest) * len(visits) // number,
            reads=reads,
            origin_first=origin_first,
        )
        for at in range(number)
    ]
    return RingPlan(view, opened, closed, tuple(windows))


def _cuts(rows: Rows, size: int) -> list[int]:
    """Places at which groups of rows begin, about ``size`` rows apart."""
    cuts: list[int] = []
    starts, (low, _) = rows.table.starts, rows.table.bounds("seq")
    begin = rows.first
    for group in rows.groups().tolist()[1:]:
        seq = int(low[group])
        if int(starts[group]) - begin >= size and seq > (cuts[-1] if cuts else 0):
            cuts.append(seq)
            begin = int(starts[group])
    return cuts

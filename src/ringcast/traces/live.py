"""Traces of live members, many processes' files made one trace.

A member appends to ``<node>-<boot>.trace`` (``ringcast.runtime.tracelog``). A log begins with
``MAGIC`` and what the protocol claims. Records are MessagePack behind ``HEAD``: length, checksum,
and a checksum of these two. A torn last record is left out; whatever else is wrong is damage.
Each processor's events keep their order, its incarnations following each other; between processors
the wall clocks decide. Where they disagree, the messages tell by how much: nothing is delivered
before it was submitted and got its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.seqset import SeqSet
from ringcast.core.to_some import SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.traces.parquet import Claims, TraceError
from ringcast.traces.whole import NOT_TOLD, OWN, Wholeness

MAGIC = b"ringcast log 2\n"
HEAD = Struct(">III")
PATIENCE_US = 1_000_000
"""How long a delivery waits for the message's place to be told by its sender, who may not know it
yet: where members vote on the order, and the sender stands still."""


class Origination(NamedTuple):
    """Messages got a place. Members that lost their storage may give the same place again."""

    path: Path
    sent_us: int
    """When its own were submitted; when it gave another's their place."""
    told_us: int
    contents: int


Places: TypeAlias = dict[tuple[ViewId, int], tuple[Origination, ...]]


def record(payload: bytes) -> bytes:
    """A record of a log."""
    head = HEAD.pack(len(payload), crc32(payload), 0)[:8]
    return head + crc32(head).to_bytes(4, "big") + payload


def _records(path: Path) -> Iterator[tuple[int, memoryview]]:
    """What stands in a log and where, up to a torn tail."""
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    if bytes(data[: len(MAGIC)]) != MAGIC[: len(data)]:
        raise TraceError(f"{path} is no log of this version of ringcast, or damaged at byte 0")
    at = len(MAGIC)
    while at + HEAD.size <= len(data):
        length, sum, check = HEAD.unpack_from(data, at)
        start = at + HEAD.size
        if crc32(data[at : at + 8]) != check:
            raise TraceError(f"{path} is damaged at byte {at}: not the head of a record")
        if start + length > len(data):
            return
        if crc32(data[start : start + length]) != sum:
            raise TraceError(f"{path} is damaged at byte {at}: its contents are not those written")
        yield at, data[start : start + length]
        at = start + length


def read_log(path: Path) -> Iterator[TraceEvent]:
    """The events of one file, up to a torn tail.

    A processor's life begins with ``Restarted``, and it numbers its events without a gap, so any
    other beginning, or number than the next one, shows that a record was removed or repeated."""
    decode = msgspec.msgpack.Decoder(TraceEvent).decode
    named, _ = _name(path)
    last: int | None = None
    for at, payload in islice(_records(path), 1, None):
        try:
            event = decode(payload)
        except UNREADABLE as error:
            raise TraceError(f"{path} is damaged at byte {at}: {error}") from None
        # The world's log, which has the number 0, tells what was done to anybody, crashes too.
        if not named and (type(event) is Crashed or type(event) not in OWN):
            yield event
            continue
        if not isinstance(event, Ended) and event.node != named:
            raise TraceError(
                f"{path} tells of processor {event.node} at byte {at}, but is called after "
                f"processor {named}; the log was renamed"
            )
        if not isinstance(event, Faulted | Ended):  # the simulated world numbers its own events
            if last is None and type(event) is not Restarted:
                raise TraceError(
                    f"{path} is damaged at byte {at}: begins with event {event.n} "
                    f"({type(event).__name__}), not with a start; records were removed"
                )
            if last is not None and event.n != last + 1:
                raise TraceError(
                    f"{path} is damaged at byte {at}: event {event.n} follows event {last}; "
                    f"records were removed or repeated"
                )
            last = event.n
        yield event


def live_claims(dirs: Iterable[Path]) -> Claims | None:
    """What the protocol of these members claims; None if a log does not say. All must agree."""
    first: tuple[Path, Claims] | None = None
    for node, paths in logs(dirs).items():
        for path in paths:
            told = _claims(path)
            if node and told is None:
                return None
            if told is not None and first is None:
                first = path, told
            elif told is not None and first is not None and told != first[1]:
                raise TraceError(
                    f"{path}: claims other properties than {first[0]}; the logs are not of one "
                    f"group, or its members have different settings"
                )
    return first[1] if first else None


def _claims(path: Path) -> Claims | None:
    """The first record of a log."""
    for _, payload in _records(path):
        try:
            return msgspec.msgpack.decode(payload, type=Claims | None)
        except UNREADABLE as error:
            raise TraceError(f"{path}: what it says of claims cannot be read ({error})") from None
    return None


def _name(path: Path) -> tuple[NodeId, int]:
    """The processor and the boot that a log is called after."""
    node, _, boot = path.stem.partition("-")
    if not (node.isdecimal() and boot.isdecimal()):
        raise TraceError(f"{path} is not called <node>-<boot>.trace; move it elsewhere")
    return int(node), int(boot)


def logs(dirs: Iterable[Path]) -> dict[NodeId, list[Path]]:
    """The trace files in ``dirs`` by processor, its incarnations in order."""
    found: dict[NodeId, list[tuple[int, Path]]] = {}
    for folder in dirs:
        for path in folder.glob("*.trace"):
            node, boot = _name(path)
            found.setdefault(node, []).append((boot, path))
    return {node: [path for _, path in sorted(found[node])] for node in sorted(found)}


def _contents(event: Originated | Delivered) -> int:
    """What tells messages in the same place apart. The digests of all would take much memory."""
    sender = event.owner if isinstance(event, Originated) else event.sender
    return hash((sender, event.first, event.digests))


def originations(paths: Iterable[Path]) -> Places:
    """Who gave each place, and when: one each, unless members lost their storage and began anew."""
    found: Places = {}
    for path in paths:
        asked: deque[Submit] = deque()
        for event in read_log(path):
            if type(event) is Submit:
                asked.append(event)
            elif type(event) is Originated:
                sent_us = event.t_us
                if event.owner == event.node:  # it may learn the place later than others do
                    while asked and asked[0].first + len(asked[0].sizes) <= event.first:
                        asked.popleft()
                    sent_us = asked[0].t_us if asked else sent_us
                this = Origination(path, sent_us, event.t_us, _contents(event))
                place = (event.ring, event.seq)
                found[place] = (*found.get(place, ()), this)
    return found


def late_clocks(paths: Iterable[Path], places: Places | None = None) -> dict[Path, int]:
    """By how much (us) each file's clock must be put forward, 0 where all agree.

    A file that delivers a message earlier than another submits it is behind by that much; so is
    one that delivers it earlier than another, which is not its sender, gives it its place. If the
    same message got this place in several lives, the nearest in time is the one delivered.
    """
    files = list(paths)
    places = originations(files) if places is None else places
    ahead: dict[tuple[Path, Path], int] = {}  # (originator, receiver): most it was too early
    for path in files:
        for event in read_log(path):
            if type(event) is Delivered:
                found = places.get((event.ring, event.seq), ())
                contents = _contents(event)
                early = [
                    (each.sent_us - event.t_us, each.path)
                    for each in found
                    if each.contents == contents
                ]
                early_us, source = min(early, key=lambda each: abs(each[0]), default=(0, path))
                pair = (source, path)
                if source != path and early_us > ahead.get(pair, early_us - 1):
                    ahead[pair] = early_us
    late = dict.fromkeys(files, 0)
    for _ in files:  # one that is put forward may show that the next one is late too
        for (source, path), early_us in ahead.items():
            late[path] = max(late[path], late[source] + early_us)
    return late


def read_node(node: NodeId, paths: list[Path], late: Mapping[Path, int]) -> Iterator[TraceEvent]:
    """The life of one processor. One that was killed could not write down its crash, and one that
    lost its stable storage counts lives and events anew: here they go on."""
    last: TraceEvent | None = None
    n = incarnation = counted = 0
    lives = events = 0  # what is added to its own numbers
    for path in paths:
        if last is not None and type(last) is not Crashed:
            n += 1
            yield Crashed(node, n, last.t_us, NOT_TOLD)
        late_us = late[path]
        for last in read_log(path):
            changes: dict[str, object] = {"t_us": last.t_us + late_us} if late_us else {}
            if type(last) is Restarted:
                if last.incarnation <= counted:
                    lives, events = incarnation + 1 - last.incarnation, max(0, n + 1 - last.n)
                    changes["storage_kept"] = False
                counted = last.incarnation
            if lives and isinstance(last, Restarted | Submit):
                changes["incarnation"] = last.incarnation + lives
            if lives and type(last) is Noted and last.what == SubmittedTo.what and last.data:
                changes["data"] = (last.data[0] + lives, *last.data[1:])
            if events and not isinstance(last, Ended):
                changes["n"] = last.n + events
            if changes:
                last = msgspec.structs.replace(last, **changes)
            if type(last) is Restarted:
                incarnation = last.incarnation
            n = getattr(last, "n", n)
            yield last


class _Stream:
    """One processor's events, the next one at hand."""

    def __init__(self, events: Iterator[TraceEvent], until_us: int | None) -> None:
        self._events = events
        self._until_us = until_us
        self.t_us = 0
        self.head: TraceEvent

    def step(self) -> bool:
        """Go to the next event; False at the end. A clock set back counts as standing still."""
        for event in self._events:
            if self._until_us is not None and event.t_us > self._until_us:
                return False
            self.head, self.t_us = event, max(self.t_us, event.t_us)
            return True
        return False


class _Which:
    """Tells originations of one place apart by their times; 0 where there is but one.

    Otherwise a delivery would not wait for its origination if an earlier life had the same place.
    """

    def __init__(self, places: Places, late: Mapping[Path, int]) -> None:
        self._several = {
            place: [(each.told_us + late[each.path], each.contents) for each in found]
            for place, found in places.items()
            if len(found) > 1
        }

    def __call__(self, event: Originated | Delivered) -> int:
        found = self._several.get((event.ring, event.seq))
        if found is None:
            return 0
        if isinstance(event, Originated):
            return event.t_us
        contents = _contents(event)
        same = [us for us, each in found if each == contents] or [us for us, _ in found]
        return min(same, key=lambda us: abs(us - event.t_us))


def read_live(
    dirs: Iterable[Path],
    settled: tuple[NodeId, ...] = (),
    until_us: int | None = None,
    whole: Wholeness | None = None,
) -> Iterator[TraceEvent]:
    """One trace from the files in ``dirs``, closed by ``Ended`` with the given ``settled``.

    ``until_us`` cuts it there, so that a group's orderly end need not be part of it. Without it,
    logs that are not whole leave the trace without an end; ``whole`` says then what they lack.
    """
    files = logs(dirs)
    paths = [path for each in files.values() for path in each]
    places = originations(paths)
    late = late_clocks(paths, places)
    which = _Which(places, late)
    del places
    streams = {
        node: _Stream(read_node(node, paths, late), until_us) for node, paths in files.items()
    }
    heap: list[tuple[int, NodeId]] = []  # who may go on, by the time of its next event
    waiting: dict[tuple[ViewId, int, int], list[NodeId]] = {}  # who waits for which origination
    since: list[tuple[int, NodeId, tuple[ViewId, int, int]]] = []  # and since when
    originated: dict[tuple[ViewId, int], SeqSet] = {}
    t_us = 0
    whole = Wholeness() if whole is None else whole
    whole.logged(files)

    def offer(node: NodeId) -> None:
        """Put a processor where its next event belongs."""
        stream = streams[node]
        if not stream.step():
            return
        event = stream.head
        if type(event) is Delivered:
            key = (event.ring, which(event), event.seq)
            if event.seq not in originated.get(key[:2], ()):
                waiting.setdefault(key, []).append(node)
                heappush(since, (stream.t_us, node, key))
                return
        heappush(heap, (stream.t_us, node))

    for node in streams:
        offer(node)
    while heap or since:
        if since and (not heap or since[0][0] + PATIENCE_US < heap[0][0]):
            # It was never originated, which is for the checks to say, or not yet where it was sent.
            since_us, node, key = heappop(since)
            if node in waiting.get(key, ()):
                waiting[key].remove(node)
                heappush(heap, (since_us, node))
            continue
        _, node = heappop(heap)
        event = streams[node].head
        t_us = max(t_us, event.t_us)
        whole.take(event)
        yield event
        if type(event) is Originated:
            key = (event.ring, which(event), event.seq)
            originated.setdefault(key[:2], SeqSet()).add(event.seq)
            for other in waiting.pop(key, ()):
                heappush(heap, (streams[other].t_us, other))
        offer(node)
    if until_us is not None or not whole.lacks():
        yield Ended(t_us if until_us is None else until_us, settled)


def in_order(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """The same events with times that tell their order, as files need it.

    A file is read back by time, processor and number. Where that would be another order, since
    clocks disagree, an event is put as late as it takes: one microsecond after the one before.
    """
    last = (0, 0, 0)
    for event in events:
        if not isinstance(event, Ended):
            here = (event.t_us, event.node, event.n)
            if here <= last:
                t_us = last[0] + (here[1:] <= last[1:])
                event = msgspec.structs.replace(event, t_us=t_us)
                here = (t_us, *here[1:])
            last = here
        yield event

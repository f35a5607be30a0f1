"""The journal as its node writes it: append, sync, rotate, trim, and open after a crash.

Segments are named by the number of their first record. All but the last are sealed. Opening
reads the indexes of the sealed ones and looks at every frame of the last: what follows its last
whole frame was being written when the node died and is cut off. Damage anywhere else is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import START, Position, ViewId
from ringcast.files.disk import DISK, Disk, hold_folder
from ringcast.journal.durable import DURABLE, mark, torn, was_cut, write_again
from ringcast.journal.format.frame import Frame
from ringcast.journal.format.frame_writer import FrameContent, content_of, frame_content
from ringcast.journal.format.layout import NAME, NO_CHAIN, Entry, JournalError, gap_entry
from ringcast.journal.format.segment import (
    INDEX,
    SEGMENT,
    Head,
    Heads,
    SegmentFile,
    encode,
    read_index,
    write_index,
)

MIB = 2**20


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large and how old things get. 0 is no limit."""

    segment_bytes: int = 256 * MIB
    segment_s: float = 3600.0
    """A segment of this age is closed even if it is small."""
    keep_bytes: int = 0
    keep_s: float = 0.0
    """Older segments go, but none that a known reader has not committed."""
    reader_s: float = 7 * 86_400.0
    """A reader that has not committed for so long is not waited for any more."""


LIMITS = Limits()


MOST_PAST = 1000
"""Configurations of trimmed records that are remembered."""

Past = tuple[ViewId, Position]
"""A configuration, and the last of its records that was trimmed."""


class Trimmed(msgspec.Struct, frozen=True):
    """What is gone: everything up to ``place``, ``number`` records with this chain.

    Which configurations they were of tells whoever reads several journals what this one had.
    """

    place: Position = START
    number: int = 0
    chain: bytes = NO_CHAIN
    past: tuple[Past, ...] = ()
    """The newest last."""
    unknown: Position = START
    """Up to here, it is not remembered any more."""

    def had(self, view: ViewId, place: Position) -> bool | None:
        """Whether a record was among them; None if that is not known."""
        upto = dict(self.past).get(view)
        if upto is not None:
            return place <= upto
        parted = any(last.ring == place.ring for _, last in self.past)  # the same record, perhaps
        return None if parted or place <= self.unknown else False

    def more(self, path: Path, end: Head) -> Trimmed:
        """With the records of a segment."""
        past = dict(self.past)
        file = SegmentFile(path)
        for head in read_index(path) or file.heads():
            for view, place in file.read(head, check=False).configurations():
                past.pop(view, None)
                past[view] = place
        kept = tuple(past.items())
        forgotten = [self.unknown, *(place for _, place in kept[:-MOST_PAST])]
        return Trimmed(end.last, end.after, end.chain, kept[-MOST_PAST:], max(forgotten))


class Segment(msgspec.Struct):
    """One file of the journal."""

    path: Path
    end: Head | None
    """Of its last frame. The others are in the file: their number has no bound."""
    since_s: float
    """When it was begun."""

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.end.end if self.end else 0


class Journal:
    """A folder that one node writes. All methods may be called from one thread at a time."""

    def __init__(self, folder: Path | str, limits: Limits = LIMITS, disk: Disk = DISK) -> None:
        self.folder = folder = Path(folder)
        self._limits = limits
        self._disk = disk
        self._clock_s = time.time() - time.monotonic()
        """Ages are by the clock as it was at opening: if it jumps, nothing is old at once."""
        self._lost = ""
        """Why nothing more is durable here, once a sync failed: the system may have thrown away
        what it could not write, and a later sync would not tell."""
        self._closed = False
        self._durable_bytes = 0
        """Of the segment that is being written."""
        self.cut_bytes = 0
        """What was cut off at opening, because it was being written at the end."""
        if not all(map(find_spec, ("numpy", "xxhash"))):
            raise JournalError("a journal needs numpy and xxhash: pip install 'ringcast[trace]'")
        try:
            self._lock = hold_folder(folder, LOCK, disk)
        except BlockingIOError:
            raise JournalError(
                f"another node writes the journal {folder}; give each its own"
            ) from None
        except OSError as error:
            raise JournalError(f"cannot use the journal {folder}: {error}") from None
        try:
            self._mark = os.open(folder / DURABLE, os.O_RDWR | os.O_CREAT, 0o600)
            self._recover()
            self.sync()  # what a process that was killed wrote is there, but perhaps not on disk
        except BaseException:
            os.close(self._lock)
            raise

    # --- opening ---------------------------------------------------------------------------

    def _recover(self) -> None:
        names = segment_names(self.folder)
        for path in names[:1]:
            SegmentFile(path)  # of another version, its notes cannot be read either
        self.trimmed = read_trimmed(self.folder)
        self.segments: list[Segment] = []
        self._offsets = array("Q")
        """Of the frames in the segment that is being written."""
        number, chain = self.trimmed.number, self.trimmed.chain
        index: Heads | None = None
        for path in names:
            if int(path.stem) < number and path != names[-1]:
                self._remove(path)  # trimmed, but the power failed before it was gone
                continue
            index = read_index(path)
            heads = self._look_at(path, last=path == names[-1]) if index is None else index
            if heads and heads[0].number != number:
                raise JournalError(
                    f"{path}: begins with record {heads[0].number}, but {number} comes next; a "
                    "segment before it is missing"
                )
            end = heads[-1] if heads else None
            self.segments.append(Segment(path, end, path.stat().st_mtime))
            if end:
                number, chain = end.after, end.chain
        self.number, self.chain = number, chain
        last = [segment.end.last for segment in self.segments if segment.end]
        self.last = last[-1] if last else self.trimmed.place
        self._file: int | None = None
        if self.segments and index is None:
            segment = self.segments[-1]
            self._file = self._disk.open(segment.path)
            self._durable_bytes = segment.bytes  # nothing that was here is ever taken back
            write_again(segment.path, segment.bytes)

    def _look_at(self, path: Path, last: bool) -> Heads:
        """The frames of a segment that has no index: its end is cut if it is the last one."""
        file = SegmentFile(path)
        self._offsets, end = array("Q"), 0
        for head in file.heads():
            if not file.sound(head):
                break
            self._offsets.append(head.offset)
            end = head.end
        if end < file.size or (last and was_cut(path)):
            if not last or not torn(file, end):
                raise JournalError(
                    f"{path}: damaged at byte {end}; restore the file, or remove the journal's "
                    "folder to have it filled from the other members"
                )
            self.cut_bytes = file.size - end
            self._disk.cut(path, end)
        heads = Heads(path, file.data, self._offsets)
        if not last:
            write_index(path, heads, self._disk)
        return heads

    # --- writing ---------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Write records after all others. They are durable after ``sync``."""
        self.put(frame_content(entries))

    def take(self, frame: Frame, told: bool = True) -> None:
        """The same for entries of another journal, of others unless it says so."""
        for part, gap in frame.cut_at_gaps():
            if gap:
                self.rotate()
            self.put(content_of(part, told))

    def skip(self, following: Position, why: str) -> None:
        """What comes before ``following`` is missing. A gap begins a segment, so that whoever
        looks for gaps looks at the first head of each."""
        self.rotate()
        self.append([gap_entry(following, why, time.time_ns() // 1000)])

    def put(self, written: FrameContent) -> None:
        """The same for records that are ready to be written."""
        if self._full():
            self.rotate()
        segment = self._segment()
        head, frame = encode(written, self.number, self.chain, segment.bytes)
        if head.first <= self.last:
            raise JournalError(self._out_of_order(head.first))
        assert self._file is not None
        try:
            self._disk.write(self._file, frame)
        except OSError as error:
            self._take_back(segment.path, segment.bytes)
            raise JournalError(f"cannot write {segment.path}: {error.strerror}") from None
        self._offsets.append(head.offset)
        segment.end = head
        self.number, self.chain, self.last = head.after, head.chain, head.last

    def _out_of_order(self, first: Position) -> str:
        """Why a record cannot be written. A node whose ring numbers start anew has lost them; on
        one ring two histories must have met."""
        why = "holds another history of that ring; compare it with the others (journal check)"
        if (first.timestamp, first.ring) < (self.last.timestamp, self.last.ring):
            why = "is ahead of its node, whose state_dir was lost or is another's"
        return (
            f"{first} does not come after {self.last}: the journal {self.folder} {why}; remove "
            "the journal to have it filled from the other members"
        )

    def _take_back(self, path: Path, size: int) -> None:
        """Part of a frame may have been written, or not be what it was: what is there must end
        with a whole one."""
        with contextlib.suppress(OSError):  # then it is cut at the next opening
            self._disk.cut(path, size)

    def sync(self) -> None:
        """Return when everything appended is durable; only then do readers see it."""
        if self._lost:
            raise JournalError(self._lost)
        if self._file is not None:
            segment = self.segments[-1]
            try:
                self._disk.sync(self._file)
                os.pwrite(self._mark, mark(segment.path, segment.bytes), 0)
                self._durable_bytes = segment.bytes
            except OSError as error:
                self._lost = f"cannot sync {self.folder}: {error.strerror}"
                self._take_back(segment.path, self._durable_bytes)
                raise JournalError(self._lost) from None

    def _segment(self) -> Segment:
        """The segment that is being written."""
        if self._file is None:
            path = self.folder / f"{self.number:020}{SEGMENT}"
            try:
                self._file = self._disk.open(path)
                self._disk.sync_folder(self.folder)
            except OSError as error:
                if self._file is not None:
                    os.close(self._file)
                    self._file = None
                raise JournalError(f"cannot write {path}: {error.strerror}") from None
            self._offsets, self._durable_bytes = array("Q"), 0
            self.segments.append(Segment(path, None, self._now_s))
        return self.segments[-1]

    @property
    def _now_s(self) -> float:
        return self._clock_s + time.monotonic()

    def _full(self) -> bool:
        if self._file is None or not self.segments[-1].end:
            return False
        segment, limits = self.segments[-1], self._limits
        too_old = limits.segment_s and self._now_s - segment.since_s > limits.segment_s
        return segment.bytes >= limits.segment_bytes or bool(too_old)

    def rotate(self) -> None:
        """Seal the segment; the next record begins another one."""
        if self._file is None or not self.segments[-1].end:
            return
        self.sync()
        segment = self.segments[-1]
        try:
            heads = Heads(segment.path, SegmentFile(segment.path).data, self._offsets)
            write_index(segment.path, heads, self._disk)
        except OSError as error:
            raise JournalError(f"cannot seal {segment.path}: {error.strerror}") from None
        os.close(self._file)
        self._file = None

    # --- keeping ---------------------------------------------------------------------------

    def trim(self) -> int:
        """Remove what is too old or too much and read by all known readers; how many files."""
        sealed = self.segments[:-1] if self._file is not None else list(self.segments)
        total = sum(segment.bytes for segment in self.segments)
        limits, gone = self._limits, 0
        for segment in sealed:
            too_much = limits.keep_bytes and total > limits.keep_bytes
            too_old = limits.keep_s and self._now_s - segment.since_s > limits.keep_s
            end = segment.end
            if end is None or not (too_much or too_old) or self._awaited(end):
                break
            before = self.trimmed
            self.trimmed = before.more(segment.path, end)
            self.note(TRIMMED, self.trimmed)
            if self._awaited(end):  # a reader came meanwhile: one of us two sees the other
                self.trimmed = before
                self.note(TRIMMED, before)
                break
            self._remove(segment.path)
            self.segments.remove(segment)
            total -= segment.bytes
            gone += 1
        return gone

    def _awaited(self, end: Head) -> bool:
        """Whether a known reader has not committed all of a segment that ends there."""
        since_s = self._now_s - self._limits.reader_s if self._limits.reader_s else 0
        committed = min(readers(self.folder, since_s).values(), default=None)
        return committed is not None and committed < end.last

    def note(self, name: str, value: object) -> None:
        """A small file beside the segments, durable at once."""
        try:
            self._disk.replace(self.folder / name, msgspec.json.encode(value))
        except OSError as error:
            raise JournalError(f"cannot write {self.folder / name}: {error.strerror}") from None

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(INDEX).unlink(missing_ok=True)

    def close(self) -> None:
        """Sync and let others have the folder; once is enough, even if it failed."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._lost:
                self.sync()
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            os.close(self._mark)
            os.close(self._lock)


LOCK, TRIMMED = "journal.lock", "trimmed.json"
WHICH = "name the folder that the node's configuration calls journal"
READERS = "readers"
MOST_READERS = 1024
"""Each has a file, and all are looked at before anything is trimmed."""


def segment_names(folder: Path | str) -> list[Path]:
    """The segments of a journal, in order."""
    folder = Path(folder)
    try:
        found = [path for path in folder.iterdir() if path.suffix == SEGMENT]
        none = not found and not (folder / LOCK).exists()
    except OSError as error:
        raise JournalError(
            f"{folder}: not a journal that can be read ({error.strerror}); {WHICH}"
        ) from None
    if none:
        raise JournalError(f"{folder}: there is no journal in it; {WHICH}")
    strange = [path for path in found if not path.stem.isdigit()]
    if strange:
        raise JournalError(f"{strange[0]}: not the name of a segment; remove it")
    return sorted(found)


def read_trimmed(folder: Path | str) -> Trimmed:
    """What a journal has forgotten."""
    return read_small(Path(folder) / TRIMMED, Trimmed) or Trimmed()


def readers(folder: Path | str, since_s: float = 0) -> dict[str, Position]:
    """How far each known reader has committed that did so since then."""
    found: dict[str, Position] = {}
    for path in sorted(Path(folder, READERS).glob("*.json")):
        with contextlib.suppress(FileNotFoundError):  # it has just been removed
            place = read_small(path, Position) if path.stat().st_mtime >= since_s else None
            if place is not None:
                found[path.stem] = place
    return found


def commit(folder: Path | str, reader: str, place: Position, disk: Disk = DISK) -> None:
    """A reader has what it needs up to ``place``: it may be trimmed."""
    if not re.fullmatch(NAME, reader):
        raise JournalError(f"{reader!r} cannot be the name of a reader: letters, digits, ._- only")
    path = Path(folder, READERS, f"{reader}.json")
    path.parent.mkdir(exist_ok=True)
    if not path.exists() and len(os.listdir(path.parent)) >= MOST_READERS:
        raise JournalError(
            f"the journal has {MOST_READERS} readers already; delete those that are gone "
            f"from {path.parent}"
        )
    disk.replace(path, msgspec.json.encode(place))


def read_small(path: Path, kind: Any) -> Any:
    """One of the small files beside the segments; None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        raise JournalError(f"{path}: cannot be read ({error}); restore or remove it") from None

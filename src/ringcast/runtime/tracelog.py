"""The live trace: events appended to a file that survives the death of the process.

Each flush is one ``write``; what was written is in the kernel's hands, so SIGKILL loses nothing
that was flushed. ``ringcast.traces.live`` says what a log looks like, and reads it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ringcast.core.errors import StorageError
from ringcast.core.trace import TraceEvent
from ringcast.traces import Claims
from ringcast.traces.live import MAGIC, record

FLUSH_BYTES = 1 << 16


class TraceLog:
    """An observer that appends every event to ``<directory>/<node>-<boot>.trace``.

    The log begins with what the node's protocol claims, if it has one.
    """

    def __init__(self, directory: Path, node: int, boot: int, claims: Claims | None = None) -> None:
        path = directory / f"{node}-{boot}.trace"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StorageError(f"cannot write to the trace_dir {directory}: {error}") from None
        self._encode = msgspec.msgpack.Encoder().encode
        self._buffer = bytearray()
        if os.fstat(self._file).st_size == 0:
            self._buffer += MAGIC + record(self._encode(claims))
        self.failed = ""
        """Why nothing more is recorded: the disk is full, say. The node itself goes on."""

    def __call__(self, event: TraceEvent) -> None:
        """Take one event."""
        self._buffer += record(self._encode(event))
        if len(self._buffer) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what is buffered to the kernel."""
        try:
            while self._buffer and not self.failed:
                del self._buffer[: os.write(self._file, self._buffer)]
        except OSError as error:
            self.failed = str(error)  # the file ends in a torn record, as after a crash
        self._buffer.clear()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._file)

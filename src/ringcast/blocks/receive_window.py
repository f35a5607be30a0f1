"""ReceiveWindow: numbered frames from their arrival until nobody needs them any more.

A window belongs to a protocol that numbers its frames. It knows up to where nothing is missing,
which numbers are missing above that, and what has been released. It is bounded in numbers and in
bytes: a peer that sends frames no protocol asked for fills it up to the bound and no further.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

MAX_BYTES = 128 * 2**20
"""Most bytes that one window holds."""

FRAME_BYTES = 256
"""What a frame costs besides its encoded bytes; so the bound on bytes bounds frames too."""

FEW = 2048
"""So many frames are within the bound whatever they carry, as none is larger than a datagram of
64 KiB. Up to here no bytes are counted, which spares the usual path 0.3 us a frame."""


class Weighed(Protocol):
    """A frame that knows its encoded size."""

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""


F = TypeVar("F", bound=Weighed)


def weight(frame: Weighed) -> int:
    """What a stored frame costs."""
    return FRAME_BYTES + frame.wire_bytes()


class ReceiveWindow(Generic[F]):
    """Frames by number.

    ``got`` is the number up to which nothing is missing; ``ahead`` says how far beyond it frames
    are kept. Everything up to ``released`` has left the ``store``.
    """

    __slots__ = ("_bytes", "_edge", "ahead", "got", "max_bytes", "released", "store")

    def __init__(self, ahead: int, max_bytes: int = MAX_BYTES) -> None:
        self.ahead = ahead
        self.max_bytes = max_bytes
        self.store: dict[int, F] = {}
        self._bytes: int | None = None  # None: not counted, there are only a few frames
        self.begin(1)

    def begin(self, first: int) -> None:
        """The numbers start with ``first``: what is held below it is none of them."""
        self.got = self.released = first - 1
        for seq in [seq for seq in self.store if seq < first]:
            del self.store[seq]
        self._edge = self.released + min(self.ahead, FEW)
        self.advance()

    def put(self, seq: int, frame: F) -> bool:
        """Keep a frame unless its number is here, or was, or the frame is beyond the bounds."""
        store, got = self.store, self.got
        if seq in store or seq <= got or (seq > self._edge and not self._admits(seq, frame)):
            return False
        store[seq] = frame
        if seq == got + 1:
            got = seq
            while got + 1 in store:
                got += 1
            self.got = got
        return True

    def keep(self, seq: int, frame: F) -> bool:
        """Keep a frame that cannot be had again, such as our own, whatever the bounds."""
        store, got = self.store, self.got
        if seq in store or seq <= got:
            return False
        if self._bytes is not None:
            self._bytes += weight(frame)
        store[seq] = frame
        if seq == got + 1:
            self.got = seq
            if seq + 1 in store:
                self.advance()
        return True

    def advance(self) -> None:
        """Let ``got`` follow the store."""
        got, store = self.got, self.store
        while got + 1 in store:
            got += 1
        self.got = got

    def _admits(self, seq: int, frame: F) -> bool:
        """Whether a frame beyond the first few is within the bounds; counts it if so."""
        if seq > self.got + self.ahead:
            return False
        if self._bytes is None:
            if len(self.store) < FEW:
                return True
            self._bytes = sum(map(weight, self.store.values()))
            self._edge = self.released  # from now on every frame comes here
        size = weight(frame)
        if self._bytes + size > self.max_bytes:
            return False
        self._bytes += size
        return True

    @property
    def crowded(self) -> bool:
        """Whether half of the room is taken: whoever sends into the window should wait."""
        return self._bytes is not None and 2 * self._bytes > self.max_bytes

    def missing(self, upto: int, limit: int) -> list[int]:
        """The lowest numbers up to ``upto`` that are not held."""
        found: list[int] = []
        store = self.store
        for seq in range(self.got + 1, upto + 1):
            if seq not in store:
                found.append(seq)
                if len(found) >= limit:
                    break
        return found

    def release(self, upto: int) -> None:
        """Let go what nobody needs any more: everything up to ``upto``, all of which is held."""
        if upto <= self.released:
            return
        store = self.store
        if self._bytes is None:
            for seq in range(self.released + 1, upto + 1):
                del store[seq]
        else:
            self._bytes -= sum(weight(store.pop(s)) for s in range(self.released + 1, upto + 1))
            if len(store) < FEW // 2:
                self._bytes = None
        self.released = upto
        self._edge = upto if self._bytes is not None else upto + min(self.ahead, FEW)

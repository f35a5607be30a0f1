"""Where bodies lie in a message of the ring.

A journal keeps messages as they came, for taking them apart and putting them together again would
cost a busy node more than all the rest. A message is msgpack: ``[1, group, [body, …]]``, so bodies
are the end of it, each behind a head of 2, 3 or 5 bytes. With their lengths known, every body is
found without looking at the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

try:
    from xxhash import xxh3_64_intdigest
except ImportError:  # then no journal is opened, and ``log`` says why
    xxh3_64_intdigest = None  # type: ignore[assignment]

TAG = 1
"""Bodies for a group, among what travels on a ring (``api/envelope``)."""


class Bodies(msgspec.Struct, frozen=True, array_like=True, tag=TAG):
    """A message. More than this behind it is of a later version, and left out."""

    group: str
    bodies: tuple[bytes, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Bodies).decode


def message(group: str, bodies: Iterable[bytes]) -> bytes:
    """A message with these bodies, as short as it can be."""
    return _encode((TAG, group, tuple(bodies)))


def shortest(data: bytes) -> bytes:
    """The same message as ``message`` writes it: msgpack may also be written longer."""
    return _encode(_decode(data))


def digest(data: bytes | memoryview, seed: int = 0) -> int:
    """A number for a message. XXH3 takes a quarter of CRC-32's time."""
    return xxh3_64_intdigest(data, seed)


def room(groups: Sequence[str], counts: Any, lengths: Any) -> Any:
    """How long messages are, by their groups, how many bodies each has, and how long all those are.

    Each part of a message is as short as it can be only if the whole is.
    """
    import numpy as np

    before = np.fromiter(map(_before, groups), np.int64, len(groups))
    before += 1 + 2 * (counts > 0xF) + 2 * (counts > 0xFFFF)
    return before + np.add.reduceat(lengths + heads(lengths), starts(counts))


@lru_cache(256)
def _before(group: str) -> int:
    """Bytes before the number of bodies."""
    return len(_encode((TAG, group)))


def heads(lengths: Any) -> Any:
    """How long the heads of bodies are."""
    return 2 + (lengths > 0xFF).astype("int32") + 2 * (lengths > 0xFFFF).astype("int32")


def starts(counts: Any) -> Any:
    """The row of the first body of each message."""
    import numpy as np

    return np.cumsum(counts) - counts


def bodies(data: memoryview, ends: Any, counts: Any, lengths: Any) -> Any:
    """The bodies of messages, as an Arrow array; ``ends`` are the messages', rising."""
    import numpy as np
    import pyarrow as pa

    upto = np.cumsum(lengths + heads(lengths))  # bytes of bodies, with their heads
    upto += np.repeat(ends - upto[np.cumsum(counts) - 1], counts)  # and of all else
    start, end = int(upto[0] - lengths[0]), int(upto[-1])
    upto -= start
    # What lies between bodies and the bodies take turns: Arrow leaves out every other one.
    turns = np.empty(2 * len(upto) + 1, np.int32)
    turns[0], turns[1::2], turns[2::2] = 0, upto - lengths, upto
    parts = [None, pa.py_buffer(turns), pa.py_buffer(data[start:end])]
    both = pa.Array.from_buffers(pa.binary(), 2 * len(upto), parts)
    return both.filter(pa.array(np.arange(2 * len(upto)) % 2 == 1))

"""Where bodies lie in a message of the ring.

A journal keeps messages as they came, for taking them apart and putting them together again would
cost a busy node more than all the rest. A message is the envelope ``Data``: bodies are the end of
it, each behind a head. With their lengths known, every body is found without looking at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ringcast.wire.envelope import Data, body_heads, count_heads, decode, encode, opening

try:
    from xxhash import xxh3_64_intdigest
except ImportError:  # then no journal is opened, and ``writer`` says why
    xxh3_64_intdigest = None  # type: ignore[assignment]


def message(group: str, bodies: Iterable[bytes]) -> bytes:
    """A message with these bodies, as short as it can be."""
    return encode(Data(group, tuple(bodies)))


def shortest(data: bytes) -> bytes:
    """The same message as ``message`` writes it: msgpack may also be written longer."""
    return encode(decode(data))


def digest(data: bytes | memoryview, seed: int = 0) -> int:
    """A number for a message. XXH3 takes a quarter of CRC-32's time."""
    return xxh3_64_intdigest(data, seed)


def room(groups: Sequence[str], counts: Any, lengths: Any) -> Any:
    """How long messages are, by their groups, how many bodies each has, and how long all those are.

    Each part of a message is as short as it can be only if the whole is.
    """
    import numpy as np

    before = np.fromiter(map(opening, groups), np.int64, len(groups))
    before += count_heads(counts)
    return before + np.add.reduceat(lengths + body_heads(lengths), starts(counts))


def starts(counts: Any) -> Any:
    """The row of the first body of each message."""
    import numpy as np

    return np.cumsum(counts) - counts


def bodies(data: memoryview, ends: Any, counts: Any, lengths: Any) -> Any:
    """The bodies of messages, as an Arrow array; ``ends`` are the messages', rising."""
    import numpy as np
    import pyarrow as pa

    upto = np.cumsum(lengths + body_heads(lengths))  # bytes of bodies, with their heads
    upto += np.repeat(ends - upto[np.cumsum(counts) - 1], counts)  # and of all else
    start, end = int(upto[0] - lengths[0]), int(upto[-1])
    upto -= start
    # What lies between bodies and the bodies take turns: Arrow leaves out every other one.
    turns = np.empty(2 * len(upto) + 1, np.int32)
    turns[0], turns[1::2], turns[2::2] = 0, upto - lengths, upto
    parts = [None, pa.py_buffer(turns), pa.py_buffer(data[start:end])]
    both = pa.Array.from_buffers(pa.binary(), 2 * len(upto), parts)
    return both.filter(pa.array(np.arange(2 * len(upto)) % 2 == 1))

"""How much an Arrow body takes when it is unpacked, told before it is.

Whoever may write to a group may write a body of 200 bytes that becomes gigabytes: compressed, or
with columns that need no bytes for their rows. It would end each reader, and its next life again.
"""

from __future__ import annotations

import struct
from typing import Any

ROOM, TIMES = 2**16, 32
"""A body takes so many bytes, and so many times its length, at most."""

DICTIONARY, BATCH = 2, 3
"""Kinds of messages in an IPC stream that have buffers."""

SLOT = 8
"""Bytes of a value, besides those that it has in its column."""


class BadBody(Exception):
    """A body that is not what was said it would be."""


def check_buffers(body: bytes) -> None:
    """BadBody if the buffers of an IPC stream become too long; pyarrow's errors if it is none."""
    import pyarrow as pa

    total = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        try:
            total += _unpacked(message.metadata.to_pybytes(), message.body)
        except struct.error as error:
            raise BadBody(f"a message whose buffers are elsewhere ({error})") from None
        _check(total, body)


def check_columns(table: Any, body: bytes) -> None:
    """BadBody if its columns do when each value gets its place."""
    _check(sum(_spread(chunk) for column in table.columns for chunk in column.chunks), body)


def _check(size: int, body: bytes) -> None:
    if size > ROOM + TIMES * len(body):
        raise BadBody(f"{len(body)} bytes that become more than {TIMES} times as many")


def _spread(array: Any) -> int:
    """Bytes of an array in which no value stands for others, about."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind, size = array.type, SLOT * len(array)
    if isinstance(kind, types.lib.BaseExtensionType):
        return _spread(array.storage)
    if types.is_struct(kind):
        return size + sum(_spread(array.field(at)) for at in range(kind.num_fields))
    if types.is_dictionary(kind) and not types.is_nested(kind.value_type):
        if types.is_primitive(kind.value_type):
            return size
        lengths = pc.binary_length(array.dictionary)
        return size + (pc.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return size + _spread(array.values)
    if types.is_map(kind):
        return size + _spread(array.keys) + _spread(array.items)
    if types.is_nested(kind) or types.is_binary_view(kind) or types.is_string_view(kind):
        raise BadBody(f"a column of {kind}, whose values may overlap")
    return int(size + array.nbytes)


# --- the flatbuffers of messages, which pyarrow has verified and shows nobody -------------------


def _unpacked(head: bytes, body: Any) -> int:
    """Bytes of a message's buffers, unpacked."""

    def number(form: str, at: int) -> int:
        found: int = struct.unpack_from(form, head, at)[0]
        return found

    def field(table: int, at: int) -> int:
        """Where a field of a table lies; 0: it has none."""
        known = table - number("<i", table)
        inside = 4 + 2 * at < number("<H", known) and number("<H", known + 4 + 2 * at)
        return table + inside if inside else 0

    def follow(at: int) -> int:
        return at + number("<I", at)

    message = follow(0)
    kind = number("<B", field(message, 1))
    if kind not in (DICTIONARY, BATCH):
        return 0
    batch = follow(field(message, 2))
    if kind == DICTIONARY:
        batch = follow(field(batch, 1))
    buffers = field(batch, 2)
    if not field(batch, 3) or not buffers:  # not compressed
        return 0
    row = follow(buffers)
    total = 0
    for at in range(row + 4, row + 4 + 16 * number("<I", row), 16):
        offset, length = number("<q", at), number("<q", at + 8)
        if length >= 8:
            total += max(length, *struct.unpack_from("<q", body, offset))
    return total

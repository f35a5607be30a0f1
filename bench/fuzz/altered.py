"""Alters messages and bytes: near what is right, and far from anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ringcast.core.ids import LIMIT

INTEGERS = (0, 1, 2, 3, 9, 255, 2**20, 2**31, 2**32 - 1, 2**62, LIMIT - 1, LIMIT, 2**63, 2**64 - 1)
MOST_ITEMS = 300
"""To which a sequence grows."""


Draw: TypeAlias = Callable[[], float]
"""``Random.random``: its one method that costs little. A frame takes several draws."""


def one_of(random: Draw, values: Sequence[Any]) -> Any:
    """Any of them."""
    return values[int(random() * len(values))]


def altered(random: Draw, value: Any, known: list[int]) -> Any:
    """A message as plain values, with one part of it replaced. ``known`` are numbers of others."""
    kind = type(value)
    if kind is list or kind is tuple:
        if value and random() < 0.8:
            at = int(random() * len(value))
            if at == 0 and random() < 0.9:  # most often the tag: another kind altogether
                at = int(random() * len(value))
            found = list(value)
            found[at] = altered(random, value[at], known)
            return found
        return sequence(random, list(value), known)
    if kind is bool:
        return not value
    if kind is int:
        draw = random()
        if draw < 0.3:
            return value + one_of(random, (-2, -1, 1, 2, 3, 16))
        return one_of(random, known if draw < 0.65 else INTEGERS)
    if kind is bytes:
        return one_of(random, (b"", value[:-1], value + b"\0", value * 2, bytes(3000)))
    if kind is str:
        return one_of(random, ("", value + "x", value * 40, "\0"))
    if kind is dict:
        if not value or random() < 0.3:
            return {}
        name = one_of(random, list(value))
        if random() < 0.3:
            return value | {one_of(random, ("", "nope", name * 40)): value[name]}
        return value | {name: altered(random, value[name], known)}
    return one_of(random, (None, 0, [], [0, 0], b"", one_of(random, known)))


def sequence(random: Draw, value: list[Any], known: list[int]) -> Any:
    """Other items, or another order."""
    match int(random() * 6):
        case 0:
            return []
        case 1:
            return value[: int(random() * (len(value) + 1))]
        case 2:
            return value[::-1]
        case 3:
            return (value * 40)[:MOST_ITEMS]
        case 4:
            return [*value, one_of(random, value or known)]
        case _:
            return None


def numbers(value: Any, found: list[int], most: int = 40) -> None:
    """The numbers in a message."""
    if type(value) is int:
        found.append(value)
    elif type(value) in (list, tuple):
        for each in value[:most]:
            numbers(each, found, most)


def spoilt(random: Draw, data: bytes) -> bytes:
    """Bytes cut, overwritten, repeated or flipped in some places."""
    found = bytearray(data)
    for _ in range(one_of(random, (1, 1, 1, 2, 4))):
        at = int(random() * (len(found) + 1))
        match int(random() * 5):
            case 0:
                found = found[:at]
            case 1:
                found[at : at + 1] = bytes([int(random() * 256)])
            case 2:
                found[at:at] = found[at : at + 1 + int(random() * 39)]
            case 3:
                order = one_of(random, ("big", "little"))
                found[at : at + 8] = one_of(random, INTEGERS).to_bytes(8, order)
            case _:
                del found[at : at + 1 + int(random() * 8)]
    return bytes(found)

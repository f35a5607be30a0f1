"""Alters messages and bytes: near what is right, and far from anything."""

from __future__ import annotations

from random import Random
from typing import Any

from ringcast.core.ids import LIMIT

INTEGERS = (0, 1, 2, 3, 9, 255, 2**20, 2**31, 2**32 - 1, 2**62, LIMIT - 1, LIMIT, 2**63, 2**64 - 1)
MOST_ITEMS = 300
"""To which a sequence grows."""


def altered(rng: Random, value: Any, known: list[int]) -> Any:
    """A message as plain values, with one part of it replaced. ``known`` are numbers of others."""
    kind = type(value)
    if kind in (list, tuple):
        if value and rng.random() < 0.8:
            at = rng.randrange(len(value))
            if at == 0 and rng.random() < 0.9:  # most often the tag: another kind altogether
                at = rng.randrange(len(value))
            return [*value[:at], altered(rng, value[at], known), *value[at + 1 :]]
        return sequence(rng, list(value), known)
    if kind is bool:
        return not value
    if kind is int:
        return integer(rng, value, known)
    if kind is bytes:
        return rng.choice((b"", value[:-1], value + b"\0", value * 2, bytes(3000)))
    if kind is str:
        return rng.choice(("", value + "x", value * 40, "\0"))
    if kind is dict:
        if not value or rng.random() < 0.3:
            return {}
        name = rng.choice(list(value))
        if rng.random() < 0.3:
            return value | {rng.choice(("", "nope", name * 40)): value[name]}
        return value | {name: altered(rng, value[name], known)}
    return rng.choice((None, 0, [], [0, 0], b"", rng.choice(known)))


def integer(rng: Random, value: int, known: list[int]) -> int:
    """Another number."""
    draw = rng.random()
    if draw < 0.3:
        return value + rng.choice((-2, -1, 1, 2, 3, 16))
    return rng.choice(known if draw < 0.65 else INTEGERS)


def sequence(rng: Random, value: list[Any], known: list[int]) -> Any:
    """Other items, or another order."""
    match rng.randrange(6):
        case 0:
            return []
        case 1:
            return value[: rng.randrange(len(value) + 1)]
        case 2:
            return value[::-1]
        case 3:
            return (value * 40)[:MOST_ITEMS]
        case 4:
            return [*value, rng.choice(value) if value else rng.choice(known)]
        case _:
            return None


def numbers(value: Any, found: list[int], most: int = 40) -> None:
    """The numbers in a message."""
    if type(value) is int:
        found.append(value)
    elif type(value) in (list, tuple):
        for each in value[:most]:
            numbers(each, found, most)


def spoilt(rng: Random, data: bytes) -> bytes:
    """Bytes cut, overwritten, repeated or flipped in some places."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0:
                found = found[:at]
            case 1:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                found[at:at] = found[at : at + rng.randrange(1, 40)]
            case 3:
                found[at : at + 8] = rng.choice(INTEGERS).to_bytes(8, rng.choice(("big", "little")))
            case _:
                del found[at : at + rng.randrange(1, 9)]
    return bytes(found)

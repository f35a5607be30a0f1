"""Networks of rings by their shape: which processors share a broadcast domain.

A network is a list of domains, each with its processors; one that is in several domains is a
gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from ringcast.core.ids import NodeId

Rings: TypeAlias = tuple[tuple[NodeId, ...], ...]


def _chain(count: int, rng: Random) -> list[tuple[int, int]]:
    return [(at, at + 1) for at in range(count - 1)]


def _star(count: int, rng: Random) -> list[tuple[int, int]]:
    return [(0, at) for at in range(1, count)]


def _cycle(count: int, rng: Random) -> list[tuple[int, int]]:
    return [*_chain(count, rng), (0, count - 1)]


def _tree(count: int, rng: Random) -> list[tuple[int, int]]:
    return [(rng.randrange(at), at) for at in range(1, count)]


def _random(count: int, rng: Random) -> list[tuple[int, int]]:
    pairs = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(1, 2))]
    return _tree(count, rng) + [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]


SHAPES: Mapping[str, Callable[[int, Random], list[tuple[int, int]]]] = {
    "chain": _chain,
    "star": _star,
    "cycle": _cycle,
    "tree": _tree,
    "random": _random,
}
"""How rings are joined: pairs of rings, one gateway each."""


def shaped(shape: str, count: int, each: int, rng: Random, twice: bool = False) -> Rings:
    """``count`` rings of ``each`` processors and gateways between them; ``twice``: two each."""
    joined = SHAPES[shape](count, rng)
    if twice:
        joined = [pair for pair in joined for _ in range(2)]
    rings = [list(range(1 + at * each, 1 + (at + 1) * each)) for at in range(count)]
    for gateway, (one, other) in enumerate(joined, count * each + 1):
        rings[one].append(gateway)
        rings[other].append(gateway)
    return tuple(map(tuple, rings))

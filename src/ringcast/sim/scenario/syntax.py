"""Syntax: how people write processors, links, memberships, times, settings and seeds.

Each function raises ``ValueError`` with a sentence for the author of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ringcast.core.ids import NodeId
from ringcast.sim.network import Tamper

WORD = re.compile(r'"[^"]*"|\S+')
"""A command is words; a text in quotes is one."""

SIZE = re.compile(r"(\d+)B$")
"""A message of so many bytes."""

_NODE = re.compile(r"p\d+$")
_TIMES = re.compile(r"x\d+$")
_ARROW = re.compile(r"(\*|\d+)->(\*|\d+)$")
_MEMBERS = re.compile(r"\{\d+(,\d+)*\}$")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)$")
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_SEEDS = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18}))?$")

MOST_SEEDS = 10_000_000
"""A longer range is taken for a slip of the pen."""


def is_node(word: str) -> bool:
    """Whether a word names a processor, or all."""
    return word == "all" or bool(_NODE.match(word))


def processors(words: Iterable[str], ids: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """``p1 p2``; none or ``all`` is everybody."""
    found: list[NodeId] = []
    for word in words:
        if word == "all":
            return ids
        if not _NODE.match(word) or int(word[1:]) not in ids:
            raise ValueError(f"no processor {word!r}; there are p{ids[0]} .. p{ids[-1]}")
        found.append(int(word[1:]))
    return tuple(found) or ids


def arrow(word: str, ids: tuple[NodeId, ...]) -> tuple[int, int]:
    """``1->2``; ``*`` is any, as 0."""
    found = _ARROW.match(word)
    if found is None:
        raise ValueError(f"{word!r} is not of the form 1->2 or *->2")
    src, dst = (0 if end == "*" else int(end) for end in found.groups())
    if strangers := {src, dst} - {0, *ids}:
        raise ValueError(f"no processor {min(strangers)}")
    return src, dst


def members(word: str) -> tuple[NodeId, ...]:
    """``{1,2}``"""
    if not _MEMBERS.match(word):
        raise ValueError(f"{word!r} is not of the form {{1,2}}")
    return tuple(sorted(int(node) for node in word[1:-1].split(",")))


def times(words: Iterable[str]) -> int:
    """``x3`` among the words; once without it."""
    return next((int(word[1:]) for word in words if _TIMES.match(word)), 1)


def tampering(
    verb: str,
    words: list[str],
    kinds: list[str],
    link: Callable[[str], tuple[int, int]],
    time_us: Callable[[str], int],
) -> Tamper:
    """``MESSAGE 1->2 [5ms] [after 4] [x3|always|off]``: what drop, delay or copy does to frames."""
    if len(words) < 2:
        raise ValueError(f"which frames? for example: {verb} {kinds[0]} 1->2 once")
    if words[0] not in (*kinds, "*"):
        raise ValueError(f"no message {words[0]!r}; there are {', '.join(kinds)}")
    src, dst = link(words[1])
    rule = Tamper(src, dst, "" if words[0] == "*" else words[0], copy=verb == "copy")
    rest = iter(words[2:])
    for word in rest:
        if word == "always":
            rule.count = 0
        elif _TIMES.match(word):
            rule.count = times([word])
        elif word == "after":
            rule.after = int(next(rest, "how many"))
        elif word not in ("once", "off"):
            rule.delay_us = time_us(word)
    if verb == "drop" and rule.delay_us:
        raise ValueError("what is dropped does not come later; delay does that")
    if verb == "delay" and not rule.delay_us:
        if words[-1] != "off":
            raise ValueError(f"how much later? for example: delay {kinds[0]} 1->2 5ms")
        rule.delay_us = 1
    return rule


def duration_us(word: str, config: Any, bound_us: int) -> int:
    """``50ms``, ``TIMER*2+5ms``: a sum of times, timers of ``config`` and ``bound``."""
    total = 0
    for term in word.split("+"):
        name, _, factor = term.partition("*")
        if found := _TIME.match(name):
            us = round(float(found[1]) * _UNIT_US[found[2]])
        elif name == "bound":
            us = bound_us
        else:
            us = getattr(config, f"{name}_us", -1)
            if us < 0:
                raise ValueError(f"{name!r} is neither a time such as 50ms nor a timer")
        total += us * int(factor or 1)
    return total


def settings(words: Iterable[str]) -> dict[str, Any]:
    """``key=value`` words; a value that JSON does not know is a string."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not of the form key=value")
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def seed_range(text: str) -> range:
    """``17`` is one seed; ``0..200`` are 200, the end excluded as in Python."""
    match = _SEEDS.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a seed such as 17 or a range such as 0..200")
    low = int(match[1])
    high = int(match[2]) if match[2] else low + 1
    if not low < high:
        raise ValueError(
            f"{text} is an empty range: the end is excluded, so {low}..{low + 1} is one"
        )
    if high - low > MOST_SEEDS:
        raise ValueError(f"{text} are more than {MOST_SEEDS:,} runs; use a shorter range")
    return range(low, high)

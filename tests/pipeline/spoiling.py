"""Traces that are a little wrong: one or a few events of a right one changed, moved or left out."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ringcast.core.ids import Level, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)

ABOUT_MESSAGES = (*(Delivered,) * 6, *(Originated,) * 2, *(Submit,) * 2, Installed)
"""Kinds of events that are edited, each as often as it stands here."""

EVERY_KIND = (*ABOUT_MESSAGES, Installed, Noted, Noted, ReportedUncertain, Crashed, Restarted)


def spoil(
    events: list[TraceEvent],
    rng: Random,
    times: int = 1,
    kinds: tuple[type, ...] = ABOUT_MESSAGES,
    every_field: bool = False,
) -> list[TraceEvent]:
    """The trace with so many mistakes, in the order in which it would be read: numbers and times
    still ascend at every processor, each of them starts, and nobody is called settled that is
    down: other traces are refused."""
    own: dict[int, list[Any]] = {}
    faults = [e for e in events if isinstance(e, Faulted)]
    ends = [e for e in events if isinstance(e, Ended)]
    for event in events:
        if not isinstance(event, Ended | Faulted):
            own.setdefault(event.node, []).append(event)
    for _ in range(times):
        mine = own[rng.choice(sorted(own))]
        kind = rng.choice(kinds)
        places = [at for at, event in enumerate(mine) if type(event) is kind]
        if places:
            start = next(event for event in mine if type(event) is Restarted)
            rng.choice(EVERY_WAY if every_field else WAYS)(mine, rng.choice(places), rng)
            if not any(type(event) is Restarted for event in mine):
                mine.insert(0, start)
    down = {node for node, mine in own.items() if _fell(mine)}
    last = (msgspec.structs.replace(e, settled=tuple(sorted({*e.settled} - down))) for e in ends)
    return [*sorted([*_numbered(own), *faults], key=lambda e: (e.t_us, e.node, e.n)), *last]


def _fell(mine: list[Any]) -> bool:
    """Whether a processor is down at the end."""
    turns = [e for e in mine if isinstance(e, Crashed | Restarted)]
    return bool(turns) and isinstance(turns[-1], Crashed)


def _numbered(own: dict[int, list[Any]]) -> list[Any]:
    found: list[Any] = []
    for mine in own.values():
        t_us = 0
        for n, event in enumerate(mine, start=1):
            t_us = max(t_us, event.t_us)
            found.append(msgspec.structs.replace(event, n=n, t_us=t_us))
    return found


def _drop(mine: list[Any], at: int, rng: Random) -> None:
    del mine[at]


def _repeat(mine: list[Any], at: int, rng: Random) -> None:
    mine.insert(rng.choice((at, rng.randint(at, len(mine)))), mine[at])


def _move(mine: list[Any], at: int, rng: Random) -> None:
    event = mine.pop(at)
    place = rng.choice((at + 1, at - 1, rng.randint(0, len(mine)), at + rng.randint(-9, 9)))
    mine.insert(max(0, place), event)


def _swap(mine: list[Any], at: int, rng: Random) -> None:
    alike = [k for k in range(at + 1, len(mine)) if type(mine[k]) is type(mine[at])]
    if alike:
        other = alike[0] if rng.random() < 0.7 else rng.choice(alike)
        mine[at], mine[other] = mine[other], mine[at]


KEPT = ("node", "n", "t_us", "rule", "text", "reason")
"""Fields that no edit changes: another processor, or another moment, is no edit of an event."""


def _change(mine: list[Any], at: int, rng: Random) -> None:
    _change_one_of(mine, at, rng, (*KEPT, "sizes", "transitional", "conf_id"))


def _change_any(mine: list[Any], at: int, rng: Random) -> None:
    _change_one_of(mine, at, rng, KEPT)


def _change_one_of(mine: list[Any], at: int, rng: Random, kept: tuple[str, ...]) -> None:
    event = mine[at]
    names = [n for n in event.__struct_fields__ if n not in kept]
    if not names:
        return  # a crash
    name = rng.choice(names)
    value = getattr(event, name)
    match value:
        case Level():
            value = Level(1 - value)
        case ViewId():
            value = rng.choice(
                (ViewId(value.seq + rng.choice((-2, 2, 4)), value.rep), _any(mine, rng))
            )
        case tuple() if name == "members":
            value = value[:-1] if len(value) > 1 and rng.random() < 0.5 else (*value, 9)
        case None:
            value = _any(mine, rng)
        case tuple() if name == "sizes":  # and as many digests, if there are any
            value = tuple(size + 1 for size in value)
        case tuple() if len(value) > 1 and isinstance(event, Delivered) and rng.random() < 0.3:
            value = value[:-1]
        case bool():
            value = not value
        case str():
            value += "?"
        case tuple():
            value = tuple(d ^ (rng.random() < 0.6) for d in value)
        case int():
            value = max(1, value + rng.choice((-3, -1, 1, 1, 2, 40)))
    mine[at] = msgspec.structs.replace(event, **{name: value})


def _any(mine: list[Any], rng: Random) -> ViewId:
    views: list[ViewId] = [e.view for e in mine if hasattr(e, "view") and e.view]
    return rng.choice(views or [ViewId(4, 1)])


MOVES = (_drop, _drop, _repeat, _move, _move, _swap, _swap)
WAYS = (*MOVES, _change, _change, _change)
EVERY_WAY = (*MOVES, _change_any, _change_any, _change_any)

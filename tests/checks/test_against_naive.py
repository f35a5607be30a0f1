"""The incremental checks against naive ones, on random stories that are a little wrong.

The naive ones are the properties as the dossier states them, over a finished trace: slow, short
and independent. Each answers whether the property is broken; they know neither trimming nor
obligations that are open at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ringcast.protocols  # noqa: F401  (one-sequencer is a protocol's own)
from ringcast.checks import Verdict, suite
from ringcast.checks.suite import COMMON
from ringcast.core.ids import Level, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.traces.text import parse

Trace = list[TraceEvent]
Id = tuple[ViewId, int]


def of(trace: Trace, node: int) -> Trace:
    return [e for e in trace if not isinstance(e, Ended) and e.node == node]


def nodes(trace: Trace) -> list[int]:
    return sorted({e.node for e in trace if isinstance(e, Restarted)})


def steps(trace: Trace) -> Iterator[tuple[Installed, Installed, list[Id]]]:
    """Every step of a processor: from, to, and what it delivered before, in order."""
    for node in nodes(trace):
        conf: Installed | None = None
        told: list[Id] = []
        for e in of(trace, node):
            match e:
                case Delivered():
                    told.append((e.ring, e.seq))
                case Installed():
                    if conf is not None:
                        yield conf, e, told
                    conf, told = e, []
                case Crashed():
                    conf, told = None, []


class Stay:
    """A processor's span of a ring; ``end`` is the regular conf or the crash that ended it."""

    def __init__(self, node: int, start: Installed) -> None:
        self.node, self.start = node, start
        self.told: list[Delivered] = []
        self.end: Installed | Crashed | None = None
        self.then: Installed | None = None

    @property
    def ids(self) -> list[Id]:
        return [(e.ring, e.seq) for e in self.told]


def stays(trace: Trace) -> list[Stay]:
    found: list[Stay] = []
    for node in nodes(trace):
        stay: Stay | None = None
        for e in of(trace, node):
            if stay is not None and isinstance(e, Delivered):
                stay.told.append(e)
            elif stay is not None and isinstance(e, Installed) and e.transitional:
                stay.then = e
            elif isinstance(e, Installed | Crashed):
                if stay is not None:
                    stay.end = e
                stay = None
                if isinstance(e, Installed):
                    stay = Stay(node, e)
                    found.append(stay)
    return found


def m2(trace: Trace) -> bool:
    confs = [e for e in trace if isinstance(e, Installed)]
    return any(
        a.view == b.view
        and (a.members != b.members or a.transitional != b.transitional or a.node == b.node)
        for a, b in combinations(confs, 2)
    )


def m7(trace: Trace) -> bool:
    return any(
        a.view == c.view
        and b.view == d.view
        and (b.ring, b.seq, b.conf_id, b.members) != (d.ring, d.seq, d.conf_id, d.members)
        for (a, b, _), (c, d, _) in combinations(steps(trace), 2)
    )


def d2(trace: Trace) -> bool:
    told = [(e.node, e.ring, e.seq) for e in trace if isinstance(e, Delivered)]
    return len(told) != len(set(told))


def d3(trace: Trace) -> bool:
    sent = {(e.node, e.ring): list[Any]() for e in trace if isinstance(e, Originated)}
    for e in trace:
        if isinstance(e, Originated):
            sent[e.node, e.ring].append((e.ring, e.seq))
    return any(
        isinstance(stay.end, Installed) and message not in stay.ids
        for stay in stays(trace)
        for message in sent.get((stay.node, stay.start.view), [])
    )


def d6(trace: Trace) -> bool:
    return any(
        a.view == c.view and b.view == d.view and set(one) != set(other)
        for (a, b, one), (c, d, other) in combinations(steps(trace), 2)
    )


def closure(direct: dict[Id, set[Id]]) -> dict[Id, set[Id]]:
    """All predecessors, from direct ones."""
    full = {one: set(before) for one, before in direct.items()}
    changed = True
    while changed:
        changed = False
        for before in full.values():
            more = set().union(*(full.get(b, set()) for b in before)) - before
            before |= more
            changed = changed or bool(more)
    return full


def causes(trace: Trace, one_ring: bool) -> dict[Id, set[Id]]:
    direct: dict[Id, set[Id]] = defaultdict(set)
    for node in nodes(trace):
        past: list[Id] = []
        for e in of(trace, node):
            if isinstance(e, Originated):
                direct[e.ring, e.seq] |= {p for p in past if not one_ring or p[0] == e.ring}
                past.append((e.ring, e.seq))
            elif isinstance(e, Delivered):
                past.append((e.ring, e.seq))
    return closure(direct)


def d7(trace: Trace) -> bool:
    before = causes(trace, one_ring=True)
    return any(
        not before.get(message, set()) <= set(stay.ids[: stay.ids.index(message)])
        for stay in stays(trace)
        for message in stay.ids
    )


def first_deliveries(trace: Trace) -> list[list[Id]]:
    told: dict[int, dict[Id, None]] = {node: {} for node in nodes(trace)}
    for e in trace:
        if isinstance(e, Delivered):
            told[e.node].setdefault((e.ring, e.seq))
    return [list(ids) for ids in told.values()]


def d8(trace: Trace) -> bool:
    before = causes(trace, one_ring=False)
    return any(
        later in before.get(earlier, set())
        for told in first_deliveries(trace)
        for earlier, later in combinations(told, 2)
    )


def d9(trace: Trace) -> bool:
    """The letter of it; the incremental check also refuses forks in a transitional one."""
    originated = {(e.ring, e.seq) for e in trace if isinstance(e, Originated)}
    by_conf: dict[ViewId, list[list[Id]]] = defaultdict(list)
    for stay in stays(trace):
        regular = [(e.ring, e.seq) for e in stay.told if e.view == stay.start.view]
        by_conf[stay.start.view].append(regular)
        if regular != sorted(set(regular)):
            return True
        skipped = {(r, s) for r, s in originated if regular and (r, 0) < (r, s) < regular[-1]}
        if not {i for i in skipped if i[0] == stay.start.view} <= set(regular):
            return True
        if stay.then is not None:
            there = [(e.ring, e.seq) for e in stay.told if e.view == stay.then.view]
            if len(there) != len(set(there)):
                return True
            by_conf[stay.then.view].append(there)
    for told in by_conf.values():
        direct: dict[Id, set[Id]] = defaultdict(set)
        for ids in told:
            for k, one in enumerate(ids):
                direct[one] |= set(ids[:k])
        before = closure(direct)
        if any(one in earlier for one, earlier in before.items()):
            return True
        if any(not before[one] <= set(ids[:k]) for ids in told for k, one in enumerate(ids)):
            return True
    return False


def promises(trace: Trace, transitional: bool) -> bool:
    """D10 and D11: a safe message, whom it was promised to, and who went on without it."""
    all_stays = stays(trace)
    for stay in all_stays:
        for e in stay.told:
            in_then = stay.then is not None and e.view == stay.then.view
            if e.level is not Level.SAFE or in_then != transitional:
                continue
            members = stay.then.members if in_then and stay.then else stay.start.members
            for q in members:
                theirs = [s for s in all_stays if s.node == q and s.start.view == e.ring]
                if any(
                    isinstance(s.end, Installed) and (e.ring, e.seq) not in s.ids for s in theirs
                ):
                    return True
                past = [s.start for s in all_stays if s.node == q and s.start.view > e.ring]
                if not theirs and past and past[0].prev is not None:  # None: crashed before
                    return True
    return False


def d12(trace: Trace) -> bool:
    for node in nodes(trace):
        ids = []
        for e in of(trace, node):
            if isinstance(e, Delivered):
                ids.append((e.ring, e.seq, ViewId(0, 1)))
            elif isinstance(e, Installed):
                third = e.view if e.transitional else e.conf_id or ViewId(0, 1)
                ids.append((e.ring, e.seq, third))
        if ids != sorted(set(ids)):
            return True
    return False


def total_order(trace: Trace) -> bool:
    return any(
        [i for i in one if i in other] != [i for i in other if i in one]
        for one, other in combinations(first_deliveries(trace), 2)
    )


def fifo(trace: Trace) -> bool:
    incarnation: dict[int, int] = {}
    number: dict[Id, tuple[int, int]] = {}
    told: dict[tuple[int, int], dict[Id, None]] = defaultdict(dict)
    for e in trace:
        match e:
            case Restarted():
                incarnation[e.node] = e.incarnation
            case Originated():
                number[e.ring, e.seq] = (incarnation[e.node], e.first)
            case Delivered():
                told[e.node, e.sender].setdefault((e.ring, e.seq))
    orders = [[number[message] for message in ids] for ids in told.values()]
    return any(order != sorted(order) for order in orders)


def content(trace: Trace) -> bool:
    incarnation: dict[int, int] = {}
    submitted: dict[tuple[int, int, int], tuple[int, Level]] = {}
    holds: dict[Id, set[object]] = defaultdict(set)
    for e in trace:
        match e:
            case Restarted():
                incarnation[e.node] = e.incarnation
            case Submit():
                for k, digest in enumerate(e.digests, e.first):
                    submitted[e.node, e.incarnation, k] = (digest, e.level)
            case Originated():
                holds[e.ring, e.seq].add((e.owner, e.first, e.digests, e.level))
                for k, digest in enumerate(e.digests, e.first):
                    if submitted[e.owner, incarnation[e.owner], k] != (digest, e.level):
                        return True
            case Delivered():
                holds[e.ring, e.seq].add((e.sender, e.first, e.digests, e.level))
    return any(len(each) > 1 for each in holds.values())


def one_sequencer(trace: Trace) -> bool:
    given: dict[ViewId, list[Originated]] = defaultdict(list)
    for e in trace:
        if isinstance(e, Originated):
            given[e.ring].append(e)
    return any(
        any(e.owner != e.node for e in events)
        and (
            {e.node for e in events} != {ring.rep}
            or [e.seq for e in events] != sorted({e.seq for e in events})
        )
        for ring, events in given.items()
    )


NAIVE: dict[str, Callable[[Trace], bool]] = {
    "M2": m2,
    "M7": m7,
    "D2": d2,
    "D3": d3,
    "D6": d6,
    "D7": d7,
    "D8": d8,
    "D9": d9,
    "D10": lambda trace: promises(trace, transitional=False),
    "D11": lambda trace: promises(trace, transitional=True),
    "D12": d12,
    "total-order": total_order,
    "fifo": fifo,
    "content": content,
}


def story(rng: Random, length: int) -> str:
    """Mostly right: three processors form rings, send and deliver, and now and then err."""
    lines: list[str] = []
    sent: dict[tuple[int, int], int] = {}  # messages numbered on a ring
    had: dict[int, list[int]] = {p: [] for p in (1, 2, 3)}  # delivered on its ring
    ring: dict[int, tuple[int, int] | None] = dict.fromkeys(had)
    number = 4
    errs = rng.choice((0.03, 0.4))

    def deliver(p: int) -> str:
        at = ring[p]
        assert at is not None
        top = sent.get(at, 0)
        seq = max(had[p], default=0) + 1
        if rng.random() < errs:
            seq = rng.randint(1, top + 1)
        if not 1 <= seq <= top:
            return ""
        had[p].append(seq)
        return f" d{seq}" + (rng.choice("~^") if rng.random() < errs / 8 else "")

    for _ in range(length):
        p = rng.choice((1, 2, 3))
        at = ring[p]
        match rng.choice("oodddddddrc"):
            case "o" if at is not None:
                sent[at] = sent.get(at, 0) + 1
                contents = f"={rng.randint(1, 4)}" if rng.random() < errs / 8 else ""
                lines.append(f"p{p}: o{sent[at]}{rng.choice(('', 's'))}{contents}")
            case "d" if at is not None:
                if words := deliver(p):
                    lines.append(f"p{p}:{words}")
            case "r":
                number += 4
                up = [q for q in (1, 2, 3) if rng.random() < 0.7] or [p]
                for q in up:
                    if ring[q] is None:
                        lines.append(f"p{q}: reg({number},{q}){{{q}}}")
                        ring[q] = (number, q)
                number += 4
                new = (number, min(up))
                old = dict(ring)
                for q in up:
                    if rng.random() < 0.1:
                        continue  # gives up before it installs the ring
                    together = [o for o in up if old[o] == old[q]]
                    members = ",".join(map(str, together))
                    words = f" tr({number - 2},{together[0]}){{{members}}}"
                    words += "".join(deliver(q) for _ in range(rng.randint(0, 2)))
                    words += f" reg({number},{new[1]}){{{','.join(map(str, up))}}}"
                    lines.append(f"p{q}:{words}")
                    ring[q], had[q] = new, []
            case "c" if at is not None and rng.random() < 0.4:
                number += 4
                lines.append(f"p{p}: down up reg({number},{p}){{{p}}}")
                ring[p], had[p] = (number, p), []
    return "\n".join([*lines, "end"])


FORKS = "D9"
"""Stricter than the letter in transitional configurations."""


def compare(text: str) -> Counter[str]:
    trace: Trace = list(parse(text))
    checks = suite(COMMON)
    for event in trace:
        checks.feed(event)
    broken = {tag for tag, verdict in checks.verdicts().items() if verdict is Verdict.INVALID}
    expected = {tag for tag, naive in NAIVE.items() if naive(trace)}
    assert expected - {FORKS} == broken & NAIVE.keys() - {FORKS}, text
    assert FORKS not in expected or FORKS in broken, text
    return Counter(expected)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 40))
def test_random_stories(rng: Random, length: int) -> None:
    compare(story(rng, length))


def test_fixed_stories_break_every_property_compared() -> None:
    seen: Counter[str] = Counter()
    for seed in range(300):
        seen += compare(story(Random(f"{seed}/story"), 45))
    # Errors of naming (M2, M7) are not made by the generator; the golden traces have them.
    assert seen.keys() >= NAIVE.keys() - {"M2", "M7"}


def numbered(rng: Random) -> str:
    """Two rings in which mostly their representative numbers, mostly rising."""
    lines = ["ring(8,1){1,2,3}"]
    for ring, rep in ((8, 1), (12, 2)):
        for seq in range(1, rng.randint(2, 8)):
            seq = rng.randint(1, seq) if rng.random() < 0.05 else seq
            by = rng.choice((1, 2, 3)) if rng.random() < 0.05 else rep
            lines.append(f"p{by}: o{seq}" + rng.choice(("", "<1", "<2", "<3")))
        if ring == 8:
            lines.append("ring(12,2){1,2,3}")
    return "\n".join([*lines, "end"])


def test_one_sequencer_is_judged_as_the_naive_check_does() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(300):
        trace = list(parse(numbered(Random(f"{seed}/numbered"))))
        checks = suite(["one-sequencer"])
        for event in trace:
            checks.feed(event)
        assert bool(checks.violations) == one_sequencer(trace)
        verdicts[bool(checks.violations)] += 1
    assert min(verdicts[True], verdicts[False]) > 50

"""For each property of each protocol, the wrong runs that break it and nothing else.

A property that no wrong run breaks by itself is useless, or was never seen at work. The wrong runs
are the stories of ``tests/golden``, the mutants, the tamperings and the runs of several rings of
``test_multi_checks``. Some properties follow from others: these break together, and ``COMPANIONS``
says with which and why. ``python tests/checks/breakers.py`` writes the table of ``docs/checks.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "checks.md"
sys.path[:0] = [
    *(str(TESTS / name) for name in ("checks", "mutants", "pipeline")),
    str(TESTS.parent / "tools"),
]

from catalogue import killers  # noqa: E402
from pages import with_block  # noqa: E402
from published import PUBLISHED  # noqa: E402
from tampering import CASES, PROTOCOLS, Trace, right  # noqa: E402
from test_multi_checks import WRONG, together  # noqa: E402

from ringcast.checks import PROPERTIES, Verdict, suite  # noqa: E402
from ringcast.core.trace import Submit, TraceEvent  # noqa: E402
from ringcast.sim.spec import claims_of  # noqa: E402
from ringcast.traces.text import parse  # noqa: E402

SIMULATED = ("progress", "no-crash")
"""Checks of the simulator itself."""


class Companions(msgspec.Struct, frozen=True):
    """Properties that break with one, and why it cannot be broken without them."""

    tags: frozenset[str]
    why: str


def _with(tags: str, why: str) -> Companions:
    return Companions(frozenset(tags.split()), why)


COMPANIONS = {
    "M6": _with("M2", "M2 says the same, and that the kind is one"),
    "D1": _with("content", "other contents than those originated are two messages at one place"),
    "D2": _with(
        "D9 D12 D12-graph integrity",
        "a place that is told twice does not ascend, and holds one message",
    ),
    "D4": _with(
        "agreement uniform-agreement", "where the group is fixed, all its members are correct"
    ),
    "D8": _with(
        "D5 D12 D12-graph causal total-order",
        "an effect has a higher place than its causes, so it comes first only out of order",
    ),
    "D12-graph": _with("D12", "ascending identifiers have no cycle"),
    "agreement": _with("uniform-agreement", "what a correct processor delivers, any one does"),
    "total-order": _with("D12 D12-graph", "of two orders one descends"),
    "fifo": _with("causal", "a sender knows its own messages"),
    "causal": _with(
        "D1-own fifo",
        "a sender that numbers its own messages gives the effect a higher place than its causes",
    ),
    "validity": _with("accounted", "what is owed is neither delivered nor reported"),
    "P-11": _with("P-13", "who makes the same step without a message goes on without it"),
    "P-12": _with("P-13", "a cause is passed by in the topology where its effect's sender had it"),
    "P-15": _with("P-7 P-13", "keys are one order, so whoever departs from another's breaks it"),
}


CLAIMED = {
    (sheet.name, profile): frozenset(claim.split()[0] for claim in sheet.claims(config))
    for sheet in PUBLISHED
    for profile, config in sheet.profiles.items()
}
"""What each profile of each protocol claims."""


def claiming(tag: str) -> list[tuple[str, str]]:
    """Protocols and profiles that claim a property."""
    return [which for which, claims in CLAIMED.items() if tag in claims]


class Breaker(msgspec.Struct, frozen=True):
    """A wrong run, and all that it breaks."""

    name: str
    breaks: frozenset[str]
    protocol: str = ""
    """Whose run it is; a story may be anybody's."""
    judged: frozenset[str] = frozenset(PROPERTIES)
    """What it was asked for. A mutant's run stops at what its own profile claims."""


def broken(events: Iterable[TraceEvent]) -> frozenset[str]:
    """What the checks find."""
    checks = suite(PROPERTIES)
    for event in events:
        checks.feed(event)
    return frozenset(v.property for v in checks.violations)


def _stories() -> Iterator[Breaker]:
    for path in sorted((TESTS / "golden").glob("*.txt")):
        answers = path.read_text().partition("----\n")[2].splitlines()
        found = [tag for line in answers if line.startswith("invalid") for tag in line.split()[1:]]
        if found:
            yield Breaker(f"story `{path.stem}`", frozenset(found))
    path = TESTS / "golden" / "valid_two_members.txt"
    story = parse(path.read_text().partition("----\n")[0])
    events = [event for event in story if not isinstance(event, Submit)]
    yield Breaker(f"`{path.stem}` without its submissions", broken(events))


def _mutants() -> Iterator[Breaker]:
    for name, killer in killers().items():
        spec = killer.spec()
        tags = frozenset(claims_of(spec).tags)
        yield Breaker(f"mutant `{name}`", frozenset(killer.breaks), spec.protocol, tags)


def _tampered() -> Iterator[Breaker]:
    rights = {protocol: right(protocol)[0] for protocol in PROTOCOLS}
    for kind, protocol in CASES:
        trace = Trace(rights[protocol])
        kind.edit(trace)
        yield Breaker(f"tampering `{kind.name}`", broken(trace.events), protocol)


def _several_rings() -> Iterator[Breaker]:
    for wrong in dict.fromkeys(wrong for some in WRONG.values() for wrong in some):
        trace = together()
        wrong(trace)
        invalid = [tag for tag, found in trace.verdicts().items() if found is Verdict.INVALID]
        yield Breaker(f"`{wrong.__name__}`", frozenset(invalid), "totem-multi")


@cache
def breakers() -> tuple[Breaker, ...]:
    """All wrong runs, those that are easiest to read first."""
    return (*_stories(), *_several_rings(), *_tampered(), *_mutants())


def breaking(
    tag: str, protocol: str, profile: str, companions: Mapping[str, Companions]
) -> list[Breaker]:
    """Wrong runs in which of a profile's claims ``tag`` breaks alone, or with companions."""
    claims = CLAIMED[protocol, profile]
    beside = companions[tag].tags if tag in companions else frozenset()
    return [
        each
        for each in breakers()
        if each.protocol in ("", protocol)
        and each.judged >= claims
        and tag in each.breaks
        and not (each.breaks & claims) - beside - {tag}
        and not each.breaks & set(SIMULATED)
    ]


def table() -> str:
    """Every property, a wrong run of each kind that breaks it, and what breaks with it."""
    lines = [
        "| property | a wrong run that breaks it | breaks with, if claimed | because |",
        "| --- " * 4 + "|",
    ]
    for tag in PROPERTIES:
        profiles = claiming(tag)
        alone = {which: breaking(tag, *which, {}) for which in profiles}
        found = [each for some in alone.values() for each in some]
        beside, why = "", ""
        if not all(alone.values()):
            beside, why = ", ".join(sorted(COMPANIONS[tag].tags)), COMPANIONS[tag].why
            if not found:
                found = [each for which in profiles for each in breaking(tag, *which, COMPANIONS)]
        kinds = {each.name.split("`")[0]: each.name for each in reversed(found)}
        shown = ", ".join(reversed(kinds.values()))
        if profiles:
            lines.append(f"| {tag} | {shown} | {beside} | {why} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table."""
    PAGE.write_text(with_block(PAGE.read_text("utf-8"), "breakers", table()), "utf-8")


if __name__ == "__main__":
    main()

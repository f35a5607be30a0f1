"""The cross-check: queries judge every claim, and their verdicts are compared with the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import ringcast.protocols  # noqa: F401  (some properties are a protocol's own)
from ringcast.checks import PROPERTIES, Verdict, Violation
from ringcast.core.ids import NodeId
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.session import first_line
from ringcast.pipeline.verify.crosscheck import (
    causality,
    delivery,
    membership,
    multicast,
    order,
)
from ringcast.pipeline.verify.crosscheck import prefilter as screen
from ringcast.pipeline.verify.crosscheck import suspects as doubtful
from ringcast.pipeline.verify.crosscheck import timeline as lives
from ringcast.pipeline.verify.crosscheck.checks import Check
from ringcast.pipeline.verify.crosscheck.relations import Relations, interpreted, read_tables
from ringcast.traces import read_claims
from ringcast.traces import runs as runs_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOT_EXPRESSIBLE = "not expressible"
"""The answer where queries cannot tell."""

CHECKS: dict[str, Check] = {
    **membership.CHECKS,
    **delivery.CHECKS,
    **order.CHECKS,
    **causality.CHECKS,
    **multicast.CHECKS,
}

DEFINITIONS: dict[str, str] = {
    **lives.DEFINITIONS,
    **screen.DEFINITIONS,
    **doubtful.DEFINITIONS,
    **membership.DEFINITIONS,
    **delivery.DEFINITIONS,
    **order.DEFINITIONS,
    **causality.DEFINITIONS,
    **multicast.DEFINITIONS,
}

ANY_CYCLE = "D12-graph"
"""Of its culprits only that there are some can be compared: of many cycles each names another."""

MOST = 256
"""Culprits of a property in a run that are told, of those that come first."""


class Culprit(msgspec.Struct, frozen=True, order=True):
    """Who broke a property, with which messages, named as in a Violation."""

    nodes: tuple[NodeId, ...]
    messages: tuple[str, ...]
    t_us: int


class CrossResult(msgspec.Struct, frozen=True):
    """The answer about one property in one run."""

    property: str
    run: int
    verdict: str
    """valid, invalid, unknown or not expressible."""
    culprits: tuple[Culprit, ...] = ()
    """All that broke it first, at the same time, up to ``MOST``; none unless it is invalid."""


def cross_check(
    spark: SparkSession, folder: Path, claims: Iterable[str], runs: Sequence[int] | None = None
) -> list[CrossResult]:
    """Judge ``claims`` of the trace in ``folder``, in all its runs or in some, by queries alone."""
    tags = list(dict.fromkeys(claim.split(maxsplit=1)[0] for claim in claims))
    every = runs_of(folder)
    wanted = every if runs is None else sorted(runs)
    try:
        with interpreted(spark, folder):
            tables = read_tables(spark, folder, None if wanted == every else wanted)
            told = time_bounds(folder, wanted) if "M5" in tags else []
            return judge(spark, tables, tags, wanted, told)
    except Exception as error:
        raise PipelineError(f"the cross-check of {folder} failed: {first_line(error)}") from error


def judge(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    tags: Sequence[str],
    runs: Sequence[int],
    bounds: Sequence[tuple[int, int]],
) -> list[CrossResult]:
    """Judge these runs of tables of traces; ``bounds`` has runs with their time bound of M5."""
    relations = Relations(spark, tables, DEFINITIONS)
    relations["bounds"] = spark.createDataFrame(list(bounds), "run BIGINT, bound_us BIGINT")
    known = [tag for tag in tags if tag in CHECKS]
    found = _findings(relations, [tag for tag in known if _occurs(relations, tag)])
    facts = {row["run"]: row for row in relations.query(FACTS).collect()}
    return [
        _result(tag, run, facts.get(run), found.get((tag, run), {})) for run in runs for tag in tags
    ]


def disagreements(
    run: int,
    verdicts: Mapping[str, Verdict],
    violations: Iterable[Violation],
    cross: Iterable[CrossResult],
) -> list[str]:
    """Where the queries say something else of a run than the checks, a line for each property.

    Whatever is not in ``verdicts`` is not compared.
    """
    broken = {violation.property: violation for violation in violations}
    lines = []
    for other in cross:
        ours = verdicts.get(other.property)
        if other.run != run or ours is None or other.verdict == NOT_EXPRESSIBLE:
            continue
        if ours != other.verdict:
            lines.append(f"run {run}, {other.property}: {ours}, but {other.verdict} by queries")
        elif ours is Verdict.INVALID and not _names(other, broken[other.property]):
            first = other.culprits[0]
            lines.append(
                f"run {run}, {other.property}: invalid for {broken[other.property].explanation} "
                f"By queries it is first broken at {first.t_us} us by processors {first.nodes} "
                f"with {', '.join(first.messages) or 'no message'}."
            )
    return lines


def _names(other: CrossResult, violation: Violation) -> bool:
    """Whether the queries found this very violation, as far as they told all."""
    if other.property == ANY_CYCLE or len(other.culprits) == MOST:
        return True
    return Culprit(violation.nodes, violation.messages, violation.t_us) in other.culprits


def time_bounds(folder: Path, runs: Iterable[int]) -> list[tuple[int, int]]:
    """In how long a ring that has ceased must be left, where a trace says so."""
    told = ((run, read_claims(folder, run)) for run in runs)
    return [(run, it.bound_us) for run, it in told if it is not None and it.bound_us is not None]


FACTS = """
    SELECT coalesce(c.run, e.run) AS run, e.run IS NOT NULL AS ended, coalesce(c.confs, 0) AS confs,
           coalesce(d.frames, 0) AS deliveries, v.lost, v.taken
    FROM (SELECT run, count(*) AS confs FROM {confs} GROUP BY run) c
    FULL JOIN {ends} e ON e.run = c.run
    LEFT JOIN (SELECT run, sum(frames) AS frames FROM {places} GROUP BY run) d
        ON d.run = coalesce(c.run, e.run)
    LEFT JOIN {voids} v ON v.run = coalesce(c.run, e.run)"""
"""Of each run what decides whether a property can be judged at all."""

FIRST = f"""
    SELECT property, kind, run, moment, nodes, messages FROM (
        SELECT *, min(moment.t_us) OVER (PARTITION BY property, kind, run) AS first_us,
               row_number() OVER (PARTITION BY property, kind, run
                   ORDER BY moment.t_us, nodes, messages) AS nth
        FROM ({{}}))
    WHERE nth <= {MOST} AND first_us = moment.t_us"""
"""Of all findings of a kind the first ones."""

BROKEN, SURE, OPEN, BEYOND = "broken", "sure", "open", "beyond"

Found = dict[str, list[Any]]


def _findings(relations: Relations, tags: Sequence[str]) -> dict[tuple[str, int], Found]:
    """What the queries say, by property and run, and by kind of answer."""
    found: dict[tuple[str, int], Found] = {}
    if tags:
        for row in relations.query(FIRST.format(" UNION ALL ".join(_parts(tags)))).collect():
            answers = found.setdefault((row["property"], row["run"]), {})
            answers.setdefault(row["kind"], []).append(row)
    return found


def _occurs(relations: Relations, tag: str) -> bool:
    """Whether the trace has anything that the property is about."""
    notes = CHECKS[tag].notes
    if not notes:
        return True
    named = ", ".join(f"'{what}'" for what in notes)
    return not relations.query(f"SELECT 1 FROM {{note}} WHERE what IN ({named})").isEmpty()


def _parts(tags: Iterable[str]) -> Iterator[str]:
    """The queries of these properties, all with the same columns."""
    nothing = (
        "struct(0L AS t_us, 0L AS node, 0L AS n) AS moment, "
        "CAST(NULL AS ARRAY<BIGINT>) AS nodes, CAST(NULL AS ARRAY<STRING>) AS messages"
    )
    for tag in tags:
        check = CHECKS[tag]
        for kind, queries in ((BROKEN, check.broken), (SURE, check.sure)):
            for query in queries:
                yield f"""SELECT '{tag}' AS property, '{kind}' AS kind, run, moment, nodes, messages
                    FROM ({query})"""
        for query in check.owed:
            yield f"""SELECT '{tag}' AS property,
                IF(size(array_except(o.settled, e.settled)) = 0, '{BROKEN}', '{OPEN}') AS kind,
                o.run, struct(e.t_us, {lives.LATEST} AS node, 0L AS n) AS moment, o.nodes,
                o.messages
                FROM ({query}) o JOIN {{ends}} e ON e.run = o.run"""
        for kind, queries in ((OPEN, check.open), (BEYOND, check.beyond)):
            for query in queries:
                yield f"""SELECT DISTINCT '{tag}' AS property, '{kind}' AS kind, run, {nothing}
                    FROM ({query})"""


def _result(tag: str, run: int, facts: Any, found: Found) -> CrossResult:
    """Put the findings together: what was broken while it could be judged, else what is known."""
    if tag not in CHECKS:
        return CrossResult(tag, run, NOT_EXPRESSIBLE)
    kind = PROPERTIES[tag]
    void = facts and facts["lost" if kind.needs_storage else "taken"]
    broken = [row for row in found.get(BROKEN, ()) if void is None or row["moment"] < void]
    if broken := broken or found.get(SURE, []):
        culprits = [
            Culprit(tuple(row["nodes"]), tuple(row["messages"]), row["moment"]["t_us"])
            for row in broken
        ]
        return CrossResult(tag, run, Verdict.INVALID, tuple(sorted(culprits)))
    seen = facts and facts["deliveries" if kind.about_deliveries else "confs"]
    if not seen or not facts["ended"] or void is not None or found.get(OPEN):
        return CrossResult(tag, run, Verdict.UNKNOWN)
    if found.get(BEYOND):
        return CrossResult(tag, run, NOT_EXPRESSIBLE)
    return CrossResult(tag, run, Verdict.VALID)

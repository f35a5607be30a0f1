"""Logs of live members that were cut, or are not there: nothing is valid, and nothing is broken
that the rest of them could explain. Every protocol, every kind of loss, every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from edits import by_checks, condensed_differs, write
from tampering import PROTOCOLS, Trace, right

from ringcast.checks import PROPERTIES, Verdict
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Delivered, Ended, Restarted, TraceEvent
from ringcast.pipeline.verify.job import second_opinion, verify
from ringcast.pipeline.verify.run_verifier import VerifyRequest
from ringcast.pipeline.verify.verdicts import doubted
from ringcast.runtime.tracelog import TraceLog
from ringcast.traces import Claims
from ringcast.traces.live import in_order, read_live
from ringcast.traces.whole import Wholeness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # queries, which the session has compiled

Logs = dict[NodeId, list[TraceEvent]]
Groups = dict[str, tuple[Logs, Claims]]

STAYED, KILLED = 2, 4
"""One that was there to the end, and one whose crash the others noticed, if they can."""


@pytest.fixture(scope="module")
def groups() -> Groups:
    """A healthy group of each protocol, as its members wrote it down: those that are left close."""
    found: Groups = {}
    for protocol in PROTOCOLS:
        events, claims = right(protocol)
        found[protocol] = as_logs(events), claims
    return found


def as_logs(events: list[TraceEvent]) -> Logs:
    own: Logs = defaultdict(list)
    for event in events:
        if not isinstance(event, Ended):
            own[event.node].append(event)
    for node, told in own.items():
        last = told[-1]
        if node and not isinstance(last, Crashed | Ended):
            told.append(Crashed(node, last.n + 1, events[-1].t_us, "closed"))
    return own


def put_together(folder: Path, own: Logs, torn: NodeId = 0) -> tuple[list[TraceEvent], Wholeness]:
    """What is read of these logs, of which one may end in the midst of a record."""
    for node, told in own.items():
        lives = [at for at, event in enumerate(told) if isinstance(event, Restarted)] or [0]
        for boot, (start, end) in enumerate(zip([0, *lives[1:]], [*lives[1:], None], strict=True)):
            log = TraceLog(folder, node, boot + 1, Claims(("D2",)))
            for event in told[start:end]:
                log(event)
            log.close()
    if torn:
        path = max(folder.glob(f"{torn}-*.trace"))
        path.write_bytes(path.read_bytes()[:-3])
    whole = Wholeness()
    return list(in_order(read_live([folder], whole=whole))), whole


def lost(own: Logs, node: NodeId, share: float | None) -> Logs:
    """Without the end of a log, or the whole log."""
    rest = {each: told for each, told in own.items() if each != node}
    if share is not None:
        rest[node] = own[node][: max(1, min(int(len(own[node]) * share), len(own[node]) - 1))]
    return rest


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_healthy_logs_are_whole_and_valid(protocol: str, groups: Groups, tmp_path: Path) -> None:
    own, claims = groups[protocol]
    events, whole = put_together(tmp_path, own)
    assert whole.lacks() == {}
    assert set(by_checks(events, claims).verdicts().values()) == {Verdict.VALID}


@pytest.mark.parametrize("share", [None, 0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, "torn"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_that_is_cut_or_missing_leaves_all_unknown(
    protocol: str, share: float | str | None, groups: Groups, tmp_path: Path
) -> None:
    """Some were valid, and others broken by messages that nobody had submitted."""
    own, claims = groups[protocol]
    torn = STAYED if isinstance(share, str) else 0
    rest = own if isinstance(share, str) else lost(own, STAYED, share)
    events, whole = put_together(tmp_path / "logs", rest, torn)
    assert list(whole.lacks()) == [STAYED]
    checks = by_checks(events, claims)
    found = {tag: doubted(tag, verdict) for tag, verdict in checks.verdicts().items()}
    assert set(found.values()) == {Verdict.UNKNOWN}
    write(tmp_path, 0, events, claims)
    assert list(condensed_differs(tmp_path, 0, checks, claims)) == []


NOTICING = [each for each in PROTOCOLS if each not in ("token-fd", "rbp")]
"""Protocols by which others go on without it in this run: token-fd has one configuration, and with
rbp processor 4 is not in it yet."""


@pytest.mark.parametrize("protocol", NOTICING)
def test_a_process_that_was_killed_need_not_say_so(
    protocol: str, groups: Groups, tmp_path: Path
) -> None:
    """The others went on without it. What it had sent must be in its log."""
    own, claims = groups[protocol]
    events, whole = put_together(tmp_path / "1", lost(own, KILLED, 1.0))
    assert whole.lacks() == {}
    verdicts = set(by_checks(events, claims).verdicts().values())
    assert verdicts in ({Verdict.VALID}, {Verdict.VALID, Verdict.UNKNOWN}), "it may owe something"
    _, whole = put_together(tmp_path / "2", lost(own, KILLED, 0.3))
    assert list(whole.lacks()) == [KILLED], "the others delivered more of it"


def test_a_life_without_a_log_is_missed(tmp_path: Path) -> None:
    def life(incarnation: int) -> Iterator[TraceEvent]:
        n = 10 * incarnation
        yield Restarted(1, n, 100 * n, incarnation)
        yield Crashed(1, n + 1, 100 * n + 1, "closed")

    _, whole = put_together(tmp_path / "1", {1: [*life(1), *life(3)]})
    assert whole.lacks() == {1: "the log of its life 2 is missing"}
    _, whole = put_together(tmp_path / "2", {1: [*life(4), *life(5)]})
    assert whole.lacks() == {}, "nobody was there before it wrote logs"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_no_log_could_explain_is_broken_all_the_same(
    protocol: str, groups: Groups, tmp_path: Path
) -> None:
    """Two members have delivered two messages in different orders."""
    own, claims = groups[protocol]
    trace = Trace([event for told in own.values() for event in told])
    mine = [e for e in trace.all(Delivered, node=1) if isinstance(e, Delivered)]
    at = len(mine) // 2
    trace.swap(mine[at], mine[at + 1])
    events, whole = put_together(tmp_path, lost(as_logs([*trace.events, Ended(0)]), STAYED, None))
    assert list(whole.lacks()) == [STAYED]
    verdicts = by_checks(events, claims).verdicts()
    broken = {tag for tag, v in verdicts.items() if doubted(tag, v) == Verdict.INVALID}
    assert broken and broken <= {tag for tag, kind in PROPERTIES.items() if kind.in_part}


def test_queries_agree_and_the_reason_is_told(
    spark: SparkSession, groups: Groups, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    for run, (protocol, share) in enumerate((("totem", None), ("totem", 0.6), ("counter", None))):
        own, claims = groups[protocol]
        events, _ = put_together(tmp_path / str(run), lost(own, STAYED, share))
        write(files, run, events, claims)
    report = verify(spark, [files], VerifyRequest((), Claims(())), quiet=True)
    second = second_opinion(spark, report, {str(files)})
    assert second.disagreements == []
    assert set(second.properties.values()) <= {"unknown", "not expressible"}
    runs = [each.in_doubt("of processor 2: it has no log") for each in report.runs]
    assert {v for each in runs for v in each.verdicts.values()} == {Verdict.UNKNOWN}
    assert not any(each.violations for each in runs)
    reasons = [why for each in runs for why in each.reasons.values()]
    assert all(why.startswith("of processor 2: it has no log") for why in reasons)
    assert any("; else: Processor" in why for why in reasons)

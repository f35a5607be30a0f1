"""Every kind of tampering, in the trace of every protocol, is found by every engine alike.

The engines are the checks fed event by event and the condensed verification; ``test_crosscheck``
compares them with queries. Each must name the property and the processors that the table names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edits
import msgspec
import pytest
import typer
from edits import by_checks, condensed_differs, write
from published import PUBLISHED
from tampering import CASES, LOST, PROTOCOLS, TAMPERINGS, Named, Tampering, Trace, right
from test_verify_condense import set_sizes

from ringcast.core.ids import NodeId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Submit,
    TraceEvent,
)
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.traces import Claims, TraceError, read_trace

pytestmark = pytest.mark.xdist_group("tampering")

Rights = dict[str, tuple[list[TraceEvent], Claims]]


class Folder(msgspec.Struct, frozen=True):
    """All tampered traces, a run each, and who is to be named."""

    path: Path
    named: list[Named]


@pytest.fixture(scope="module")
def rights() -> Rights:
    """A right trace of each protocol, and what is claimed of it."""
    return {protocol: right(protocol) for protocol in PROTOCOLS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rights: Rights) -> Folder:
    path = tmp_path_factory.mktemp("tampered")
    named = []
    for number, (kind, protocol) in enumerate(CASES):
        events, claims = rights[protocol]
        trace = Trace(events)
        named.append(kind.edit(trace))
        write(path, number, trace.events, claims)
    return Folder(path, named)


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda n: f"{CASES[n][0].name}-{CASES[n][1]}"
)
def test_checks_and_condensed(number: int, folder: Folder, rights: Rights) -> None:
    path, named, (kind, protocol) = folder.path, folder.named, CASES[number]
    _, claims = rights[protocol]
    checks = by_checks(read_trace(path, number), claims)
    found = {violation.property: violation.nodes for violation in checks.violations}
    if kind.unseen:
        assert not found
    else:
        tag, who = kind.breaks[protocol], named[number]
        assert tag in found
        wanted = who.get(tag, who.get("")) if isinstance(who, dict) else who
        assert wanted in (None, found[tag])
    assert list(condensed_differs(path, number, checks, claims)) == []


@pytest.mark.parametrize(
    ("kind", "protocol", "loser"),
    LOST,
    ids=lambda it: it.name if isinstance(it, Tampering) else str(it),
)
def test_lost_storage_excuses_who_lost_it(
    kind: Tampering, protocol: str, loser: NodeId, tmp_path: Path
) -> None:
    events, claims = right(protocol, loser)
    trace = Trace(events)
    who, tag = kind.edit(trace), kind.breaks[protocol]
    write(tmp_path, 0, trace.events, claims)
    checks = by_checks(read_trace(tmp_path, 0), claims)
    found = {violation.property: violation.nodes for violation in checks.violations}
    assert tag in found and who in (None, found[tag])
    assert list(condensed_differs(tmp_path, 0, checks, claims)) == []


def test_what_cannot_be_seen_says_why() -> None:
    unseen = [kind for kind in TAMPERINGS.values() if not kind.breaks]
    assert len(unseen) < len(TAMPERINGS) / 8
    assert all(kind.unseen for kind in unseen)


BLANK = [
    (kind, protocol)
    for kind in TAMPERINGS.values()
    for protocol in PROTOCOLS
    if not kind.unseen and protocol not in kind.breaks
]


@pytest.mark.parametrize(
    ("kind", "protocol"), BLANK, ids=lambda it: it.name if isinstance(it, Tampering) else it
)
def test_what_a_protocol_cannot_show_says_why(
    kind: Tampering, protocol: str, tmp_path: Path, rights: Rights
) -> None:
    """There is nothing to edit, or nothing is claimed of it."""
    assert kind.nothing
    events, claims = rights[protocol]
    trace = Trace(events)
    try:
        kind.edit(trace)
    except IndexError:
        return
    write(tmp_path, 0, trace.events, claims)
    assert not by_checks(read_trace(tmp_path, 0), claims).violations


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_who_is_down_is_settled(protocol: str, tmp_path: Path, rights: Rights) -> None:
    """Such a trace contradicts itself, whatever it leaves out: it is refused by all who read it."""
    events, claims = rights[protocol]
    trace = Trace(events)
    for event in trace.all(Delivered, node=4)[-5:]:
        trace.drop(event)
    (end,) = trace.all(Ended)
    trace.put(end, settled=(1, 2, 3, 4))
    write(tmp_path, 0, trace.events, claims)
    with pytest.raises(TraceError, match="calls processor 4 settled, which is down"):
        list(read_trace(tmp_path, 0))
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=120, run=4)
        found = verify_run(tmp_path, 0, VerifyRequest((), claims))
    assert "calls processor 4 settled, which is down" in found.error


def a_stranger(kind: type) -> Callable[[Trace], None]:
    """Processor 8, of which nothing else is known, does what another one did last."""

    def edit(trace: Trace) -> None:
        did: Any = trace.all(kind)[-1]
        trace.events.insert(trace.index(did) + 1, msgspec.structs.replace(did, node=8, n=1))

    return edit


def a_stranger_is_settled(trace: Trace) -> None:
    (end,) = trace.all(Ended)
    trace.put(end, settled=(*end.settled, 8))


def a_stranger_reports(trace: Trace) -> None:
    (end,) = trace.all(Ended)
    trace.events.insert(-1, ReportedUncertain(8, 1, end.t_us, 1, 1))


def a_stranger_crashes(trace: Trace) -> None:
    """Which is no start."""
    (end,) = trace.all(Ended)
    trace.events.insert(-1, ReportedUncertain(8, 1, end.t_us, 1, 1))
    trace.events.insert(-1, Crashed(8, 2, end.t_us))


def delivered_at_no_place(trace: Trace) -> None:
    trace.put(trace.all(Delivered, node=2)[-1], seq=0)


NEVER_STARTS = "processor 8 has events but never starts"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (a_stranger(Submit), NEVER_STARTS),
        (a_stranger(Originated), NEVER_STARTS),
        (a_stranger(Delivered), NEVER_STARTS),
        (a_stranger(Installed), NEVER_STARTS),
        (a_stranger(Noted), NEVER_STARTS),
        (a_stranger_reports, NEVER_STARTS),
        (a_stranger_crashes, NEVER_STARTS),
        (a_stranger_is_settled, "calls processor 8 settled, which is down"),
        (delivered_at_no_place, "seq is 0 in a row, which cannot be"),
    ],
)
def test_what_no_group_can_tell_is_refused(
    edit: Callable[[Trace], None], told: str, tmp_path: Path, rights: Rights
) -> None:
    """By all who read it, so the engines cannot differ on it."""
    events, claims = rights["totem"]
    trace = Trace(events)
    edit(trace)
    write(tmp_path, 0, trace.events, claims)
    with pytest.raises(TraceError, match=told):
        list(read_trace(tmp_path, 0))
    assert told in verify_run(tmp_path, 0, VerifyRequest((), claims)).error
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=120, run=4)
        assert told in verify_run(tmp_path, 0, VerifyRequest((), claims)).error


def test_every_protocol_claims_that_one_place_is_one_message() -> None:
    """And what its sender submitted: those that are only compared as well, whatever else Table 4 of
    Chang and Hwang says of them (``protocols/compared``). One profile cannot: with the level
    ``unsafe``, i-views give a number that one member alone delivered to another message (G23)."""
    without = [
        (sheet.name, profile)
        for sheet in PUBLISHED
        for profile, config in sheet.profiles.items()
        if "content" not in sheet.claims(config)
    ]
    assert without == [("irbp", "unsafe")]


def test_right_traces_are_as_long_as_the_edits_need(rights: Rights) -> None:
    assert all(len(events) > 100 for events, _ in rights.values())


def test_edits_run_by_themselves() -> None:
    """Without what pytest puts on the path."""
    edits_py = Path(edits.__file__)
    env = {**os.environ, "PYTHONPATH": str(edits_py.parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, str(edits_py), "--help"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0 and "Such as" in done.stdout, done.stderr


def test_edits_go_on_where_their_commit_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def one_pass(spark: object, seeds: range) -> list[str]:
        passes.append(seeds[0])
        return []

    monkeypatch.setattr("record.RESULTS", tmp_path)
    monkeypatch.setattr("record.commit", lambda: "0123abc")
    monkeypatch.setattr(edits, "one_pass", one_pass)
    for last in ("20", "30"):
        with pytest.raises(typer.Exit):
            edits.main(f"0..{last}", step=10, queries=False, keep=True)
    assert passes == [0, 10, 20]
    assert json.loads((tmp_path / "edits.json").read_bytes())["edits"] == 30

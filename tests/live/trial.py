"""A band of real processes under test: what is waited for, and what is checked at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.checks import suite
from ringcast.core import registry
from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.core.trace import Crashed, Installed, Restarted, TraceEvent
from ringcast.members.process import Band, MemberProcess
from ringcast.members.words import MemberStatus, wall_us
from ringcast.traces.live import read_live

LOAD = ("--drive", "100", "--size", "8..3000", "--safe", "0.4")
DEADLINE_S = 120.0
"""For everything that is waited for: far more than it takes, so that only a defect exceeds it."""


class Trial:
    """Starts members, waits for what must come, and judges the traces."""

    def __init__(
        self, count: int | Rings, folder: Path, settings: str = "", protocol: str = "totem"
    ) -> None:
        self.folder = folder
        self.traces = folder / "traces"
        self.sheet = registry.protocol(protocol)
        settings = f'protocol = "{protocol}"\n{settings}'
        self.band = Band(count, folder, self.traces, settings)
        self.all = tuple(self.band.members)

    def __getitem__(self, id: NodeId) -> MemberProcess:
        return self.band[id]

    def start(self, *ids: NodeId) -> None:
        """Start these members, or all, under load."""
        for id in ids or self.all:
            self[id].start(*LOAD)

    def eventually(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for it; never is a failure that shows what the members said last."""
        if not self.band.until(done, DEADLINE_S):
            said = [f"{m.id}: {m.view} {m.status} {m.stopped}" for m in self.band.members.values()]
            raise AssertionError("\n".join([f"never: {what}", *said]))

    def together(self, *ids: NodeId) -> None:
        """Wait until these are a group."""
        members = ids or self.all
        self.eventually(f"{members} together", lambda: self.band.together(*members))

    def work(self, *ids: NodeId, messages: int = 150) -> None:
        """Wait until these members have delivered so many more messages."""
        members = [self[id] for id in ids or self.all]
        want = [delivered(member) + messages for member in members]
        self.eventually(
            f"{messages} more messages at {ids}",
            lambda: all(delivered(m) >= n for m, n in zip(members, want, strict=True)),
        )

    def fresh(self, id: NodeId) -> MemberStatus:
        """What a member says of itself from now on."""
        member = self[id]
        member.hear()
        member.status = None
        self.eventually(f"a word of {id}", lambda: member.status is not None)
        assert member.status is not None
        return member.status

    def ended(self, id: NodeId) -> int:
        """Wait until a member's process has ended; its exit code."""
        process = self[id].process
        assert process is not None
        self.eventually(f"the end of {id}", lambda: not self[id].running)
        self[id].hear()
        return process.returncode

    def judge(self, *settled: NodeId) -> list[TraceEvent]:
        """End the load, wait for the last delivery, and check every property; the trace."""
        self.band.rest()
        self.eventually("rest", self.band.at_rest)
        assert not self.band.lost(), "readers lost events, which no trace shows"
        until_us = wall_us()
        assert self.band.leave(DEADLINE_S)
        events = list(read_live([self.traces], settled or self.all, until_us))
        checks = suite(self.sheet.claims(self.sheet.default))
        for event in events:
            checks.feed(event)
        assert not checks.violations, checks.violations
        verdicts = {tag: str(verdict) for tag, verdict in checks.verdicts().items()}
        assert set(verdicts.values()) == {"valid"}, verdicts
        return events


def delivered(member: MemberProcess) -> int:
    """How many messages a member has delivered, as far as it has said."""
    return member.status.delivered if member.status else 0


def regular(events: list[TraceEvent], node: NodeId) -> list[Installed]:
    """The regular configurations of a member."""
    return [e for e in events if isinstance(e, Installed) and e.node == node and not e.transitional]


def lives(events: list[TraceEvent], node: NodeId) -> list[Restarted | Crashed]:
    """The starts and ends of a member."""
    return [e for e in events if isinstance(e, Restarted | Crashed) and e.node == node]

"""The stories of ``ringcast demo``: live members, load, and what is done to them."""

from __future__ import annotations

import signal

from rich.table import Table

from ringcast.console.output import ids
from ringcast.core.ids import NodeId
from ringcast.core.registry import MembershipKind, Sheet
from ringcast.core.rings import Rings
from ringcast.core.trace import Crashed, Faulted
from ringcast.demo.screen import Late, Screen, Stage
from ringcast.members.process import Band, MemberProcess
from ringcast.members.words import wall_us
from ringcast.runtime.tracelog import TraceLog

RATE = 600
"""Messages a second that all members together send in one domain; fewer in several, since each
message crosses all of them."""

WORK_S = 2.0
"""How long the group works between two faults."""

PATIENCE = 4
"""A machine with other work to do gets so many times the protocol's own bound."""

AFTER_ALL = 2**62
"""Number of an event that comes after all that a member wrote."""


def table(band: Band) -> Table:
    """The members as they are."""
    grid = Table("member", "process", "phase", "with", "messages/s", "delivered")
    for id, member in band.members.items():
        state = "stopped" if member.frozen else "running" if member.running else "killed"
        status = member.status
        grid.add_row(
            str(id),
            f"[green]{state}[/]" if state == "running" else f"[red]{state}[/]",
            status.phase if status and state == "running" else "",
            ids(member.view.members) if member.view and state == "running" else "",
            f"{status.messages_per_s:,.0f}" if status and state == "running" else "",
            f"{status.delivered:,}" if status else "",
        )
    return grid


def cast(sheet: Sheet) -> Rings:
    """Who takes part, by broadcast domain."""
    return sheet.demo_rings or ((1, 2, 3, 4, 5),)


class Play(Stage):
    """The group and the steps of the story."""

    def __init__(self, band: Band, screen: Screen, sheet: Sheet) -> None:
        self.all = tuple(band.members)
        config = sheet.for_group(sheet.default, self.all)
        bound_s = sheet.progress_bound_us(config, len(self.all)) / 1e6
        super().__init__(band, screen, PATIENCE * bound_s, WORK_S)
        self.sheet = sheet
        self.rate = RATE // len(cast(sheet)) // len(self.all)
        self.load = ("--drive", f"{self.rate}", "--size", "16..8000", "--safe", "0.4")
        self._log = TraceLog(band.traces, 0, wall_us())
        self._done = 0

    def fault(self, kind: str, node: int, text: str) -> None:
        """Say what is done, to the reader and in the trace."""
        self.screen.say(text)
        self._done += 1
        self._log(Faulted(node, self._done, wall_us(), kind, text))
        self._log.flush()

    def group(self, *groups: tuple[NodeId, ...], work: bool = True) -> None:
        """Wait until each is a group of its own, then let it work for a while."""
        for members in groups:
            self.until(
                f"members {ids(members)} together",
                lambda members=members: self.band.together(*members),  # type: ignore[misc]
            )
        self.screen.say("together: " + " | ".join(map(ids, groups)))
        if work:
            self.work()

    def goes_on(self, *members: NodeId) -> None:
        """Wait until these have delivered what the group sends in a second, then a while more."""
        wanted = {id: delivered(self.band[id]) + 500 for id in members}
        self.until(
            f"members {ids(members)} deliver",
            lambda: all(delivered(self.band[id]) >= count for id, count in wanted.items()),
        )
        self.screen.say(f"{ids(members)} deliver")
        self.work()

    def act(self) -> int:
        """The whole story; the time at which everything had been delivered."""
        count = len(self.all)
        say = self.screen.say
        say(f"{count} members start as processes; each sends {self.rate} messages a second")
        for member in self.band.members.values():
            member.start(*self.load)
        self.group(self.all)
        if self.sheet.demo_rings:
            self.across_rings(self.sheet.demo_rings)
        elif self.sheet.fixed:
            self.without_membership()
        else:
            self.with_membership()
        self.screen.say("the load ends; what is under way is delivered")
        self.settle()
        return wall_us()

    def without_membership(self) -> None:
        """Nobody is removed: one may be missing, and more are waited for."""
        band = self.band
        self.fault("pause", 4, "member 4 is stopped (SIGSTOP)")
        band[4].signal(signal.SIGSTOP)
        self.goes_on(1, 2, 3, 5)
        self.fault("resume", 4, "member 4 goes on (SIGCONT)")
        band[4].signal(signal.SIGCONT)
        self.goes_on(*self.all)
        self.fault("partition", 0, "the network parts into 1 2 | 3 4 5: all wait")
        band.part((1, 2), (3, 4, 5))
        self.work()
        self.fault("heal", 0, "the network is whole again")
        band.part()
        self.goes_on(*self.all)
        self.fault("crash", 5, "member 5 is killed (SIGKILL), for good")
        band[5].kill()
        self._log(Crashed(5, AFTER_ALL, wall_us(), "killed"))  # which it could not write itself
        self.goes_on(1, 2, 3, 4)

    def with_membership(self) -> None:
        """Who is missing is removed, and comes back."""
        band = self.band
        self.fault("crash", 5, "member 5 is killed (SIGKILL)")
        band[5].kill()
        self.group((1, 2, 3, 4))
        self.fault("restart", 5, "member 5 is started again")
        band[5].start(*self.load)
        self.group(self.all)
        self.fault("pause", 4, "member 4 is stopped (SIGSTOP)")
        band[4].signal(signal.SIGSTOP)
        self.group((1, 2, 3, 5))
        self.fault("resume", 4, "member 4 goes on (SIGCONT)")
        band[4].signal(signal.SIGCONT)
        self.group(self.all)
        self.fault("partition", 0, "the network parts into 1 2 | 3 4 5")
        band.part((1, 2), (3, 4, 5))
        if self.sheet.membership is MembershipKind.PRIMARY:
            self.group((3, 4, 5))  # the others wait
        else:
            self.group((1, 2), (3, 4, 5))
        self.fault("heal", 0, "the network is whole again")
        band.part()
        self.group(self.all)

    def across_rings(self, rings: Rings) -> None:
        """A gateway is killed, and the other one of its pair goes on; a ring is cut off."""
        band = self.band
        gateways = [id for id in self.all if len(band.pids[id]) > 1]
        first = gateways[0]
        self.fault("crash", first, f"member {first}, a gateway, is killed (SIGKILL)")
        band[first].kill()
        self.group(tuple(id for id in self.all if id != first))
        self.fault("restart", first, f"member {first} is started again")
        band[first].start(*self.load)
        self.group(self.all)
        apart = tuple(id for id in rings[-1] if id not in gateways)
        rest = tuple(id for id in self.all if id not in apart)
        self.fault("partition", 0, f"the last ring loses its gateways: {ids(rest)} | {ids(apart)}")
        band.part(apart, rest)
        self.group(rest, apart)
        self.fault("heal", 0, "the network is whole again")
        band.part()
        self.group(self.all)

    def settle(self) -> None:
        """End the load and wait until nothing moves any more."""
        self.band.rest()
        self.until("all messages delivered", self.band.at_rest)
        if lost := self.band.lost():  # which no trace shows: it ends below the readers
            raise Late(f"readers lost events, by member: {lost}")

    def close(self) -> None:
        """The last fault is written."""
        self._log.close()


def delivered(member: MemberProcess) -> int:
    """How many messages a member has delivered, as it said last."""
    return member.status.delivered if member.status else 0

"""``ringcast demo --simulated``: five simulated members through load, a crash and a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import msgspec
import typer

from ringcast.checks import Violation, suite
from ringcast.console.options import OK, UNKNOWN, VIOLATED
from ringcast.console.output import as_json, ids, print_verdicts, say
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.registry import protocol
from ringcast.core.trace import Delivered, Ended, Installed, TraceEvent
from ringcast.protocols import DEFAULT
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.workload import Poisson

ALL = (1, 2, 3, 4, 5)
PULSE_US = 1_000
LOAD_US = 500_000


class Chapter(msgspec.Struct):
    """One part of the story, as it happened."""

    title: str
    began_us: int
    ended_us: int = 0
    views: list[tuple[ViewId, tuple[NodeId, ...], bool, list[NodeId]]] = []
    """(configuration, its members, transitional, who announced it), in order of appearance."""
    delivered: Counter[NodeId] = msgspec.field(default_factory=Counter)


class SimulatedStory:
    """Watches the trace and tells it chapter by chapter."""

    def __init__(self, title: str, quiet: bool) -> None:
        self.quiet = quiet
        self.chapters = [Chapter(title, 0)]
        self.view: dict[NodeId, tuple[ViewId, tuple[NodeId, ...]]] = {}
        """The regular configuration each member is in; none in between."""

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        now = self.chapters[-1]
        match event:
            case Delivered():
                now.delivered[event.node] += len(event.digests)
            case Installed(node=node, view=view, members=members, transitional=transitional):
                if transitional:
                    self.view.pop(node, None)
                else:
                    self.view[node] = (view, members)
                for known, _, _, who in now.views:
                    if known == view:
                        who.append(node)
                        return
                now.views.append((view, members, transitional, [node]))

    def turn(self, now_us: int, title: str = "") -> None:
        """End a chapter, tell it, and begin the next."""
        chapter = self.chapters[-1]
        chapter.ended_us = now_us
        if not self.quiet:
            tell(chapter)
        if title:
            self.chapters.append(Chapter(title, now_us))

    def together(self, group: tuple[NodeId, ...]) -> bool:
        """Whether all of ``group`` are in one configuration that holds nobody else."""
        found = [self.view.get(node) for node in group]
        return found[0] is not None and found[0][1] == group and len(set(found)) == 1


def tell(chapter: Chapter) -> None:
    """A chapter as lines for people."""
    say(f"[bold]{chapter.began_us / 1e6:7.3f} s  {chapter.title}[/bold]")
    for view, members, transitional, who in sorted(chapter.views):
        kind = "transitional" if transitional else "view"
        say(f"           {ids(who):<12} {kind:<12} {view!s:<8} members {ids(members)}")
    if chapter.delivered:
        counts = "  ".join(
            f"p{node} {chapter.delivered[node]}" for node in sorted(chapter.delivered)
        )
        say(f"           messages delivered: {counts}")


class SimulatedPlay:
    """The group, the checks that watch it, and the steps of the story."""

    def __init__(self, seed: int, quiet: bool) -> None:
        sheet = protocol(DEFAULT)
        self.config = sheet.default
        self.bound_us = sheet.progress_bound_us(self.config, len(ALL))
        self.checks = suite(sheet.claims(self.config), self.bound_us)
        self.story = SimulatedStory("five members start, each alone", quiet)
        self.cluster = Cluster(
            sheet, self.config, ALL, preset("lan"), seed, [self.checks.feed, self.story]
        )
        self.seed = seed
        self.late: list[Violation] = []

    @property
    def violations(self) -> list[Violation]:
        """What went wrong so far."""
        return [*self.checks.violations, *self.cluster.recorder.violations, *self.late]

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Let time pass until ``done``; not in time is a violation."""
        deadline_us = self.cluster.now_us + self.bound_us
        while not done() and not self.violations:
            if self.cluster.now_us >= deadline_us:
                text = f"{what} not within {self.bound_us / 1e6:g} s"
                self.late.append(Violation("progress", text, ALL, (), self.cluster.now_us))
            self.cluster.run_for(PULSE_US)

    def group(self, *groups: tuple[NodeId, ...]) -> None:
        """Wait until each group is a configuration of its own, then let it work for a while."""
        for members in groups:
            self.until(
                f"members {ids(members)} in one configuration",
                lambda members=members: self.story.together(members),  # type: ignore[misc]
            )
        self.cluster.run_for(LOAD_US)

    def next(self, title: str) -> None:
        """Begin a chapter."""
        self.story.turn(self.cluster.now_us, title)

    def act(self) -> None:
        """The whole story."""
        cluster = self.cluster
        cluster.start()
        self.until("the first ring", lambda: self.story.together(ALL))
        self.next("load: each member broadcasts 200 messages a second, a third of them safe")
        loads = workload.start((Poisson(rate=200, safe=1 / 3),), cluster, self.seed)
        self.group(ALL)
        self.next("member 5 crashes")
        cluster.crash(5)
        self.group((1, 2, 3, 4))
        self.next("member 5 restarts with its stable storage")
        cluster.restart(5)
        self.group(ALL)
        self.next("the network parts into 1 2 | 3 4 5; both sides go on working")
        cluster.partition([(1, 2), (3, 4, 5)])
        self.group((1, 2), (3, 4, 5))
        self.next("the network is whole again and the two groups merge")
        cluster.heal()
        self.group(ALL)
        self.next("the load ends; what is under way is delivered")
        for load in loads:
            load.stop()
        cluster.run_for(self.bound_us // 4)
        self.story.turn(cluster.now_us)
        if not self.violations:
            cluster.recorder.emit(Ended(cluster.now_us, ALL))


def demonstrate(seed: int, json: bool) -> NoReturn:
    """Tell the story and leave with the exit code."""
    play = SimulatedPlay(seed, quiet=json)
    play.act()
    verdicts = {name: str(verdict) for name, verdict in play.checks.verdicts().items()}
    counts = play.cluster.counts
    code = VIOLATED if play.violations else OK if set(verdicts.values()) == {"valid"} else UNKNOWN
    if json:
        chapters = [
            {
                "title": chapter.title,
                "from_s": chapter.began_us / 1e6,
                "to_s": chapter.ended_us / 1e6,
                "views": [
                    {"view": str(view), "members": members, "transitional": tr, "at": sorted(who)}
                    for view, members, tr, who in chapter.views
                ],
                "delivered": {str(n): times for n, times in sorted(chapter.delivered.items())},
            }
            for chapter in play.story.chapters
        ]
        as_json(
            {
                "seed": seed,
                "events": counts.events,
                "submitted": counts.submitted,
                "deliveries": counts.deliveries,
                "views": counts.views,
                "simulated_s": play.cluster.now_us / 1e6,
                "chapters": chapters,
                "verdicts": verdicts,
                "violations": play.violations,
            }
        )
        raise typer.Exit(code)
    say("")
    print_verdicts(verdicts)
    say("")
    for violation in play.violations:
        say(f"[red]violated[/red] {violation.property}: {violation.explanation}")
        say(f"repeat: ringcast demo --simulated --seed {seed}")
    say(
        f"{counts.submitted} messages submitted, {counts.deliveries} deliveries, "
        f"{counts.views} configurations announced, {counts.sent} frames, "
        f"{play.cluster.now_us / 1e6:.1f} s simulated."
    )
    raise typer.Exit(code)

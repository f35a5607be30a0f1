"""A small text language for traces, so that a whole story fits in a few lines.

A line is ``p<id>:`` and what that processor does next; lines happen in the order written, one
microsecond per event. A processor starts when it is first named. ``# `` begins a comment. A line
``ring(8,1){1,2}`` stands for a whole formation as it should be: members that have just started
install their first ring, all agree, and each goes through its transitional configuration.

====================  ============================================================================
``reg(8,1){1,2}``     installs a regular configuration; ``conf_id`` is the one before
``tr(10,1){1,2}``     installs a transitional one; ``@3`` after it: with ``seq`` 3 in place of the
                      last number delivered; after either, ``<(4,1)``: says it came from there
``o5``  ``o5-8``      originates number 5 (5 to 8) on its ring, agreed; ``<2``: for a message of
                      processor 2, ``s``: safe, ``x3``: three messages in the frame, ``#7``: from
                      its sender's 7th on, ``=9``: with the contents of the 9th, ``@(4,1)``: on
                      that ring. What was not submitted before is submitted now
``sub3``  ``sub1s``   submits three messages, one safe message
``d5``  ``d5-8``      delivers number 5 (5 to 8) of its ring; ``@(4,1)``: of that ring, ``/(6,1)``:
                      says it is in that configuration, ``~``: with other contents, ``^``: with the
                      other level
``sub{2,3}``          submits a message to these processors only
``d5<1#2``            delivers number 5 of its ring: the 2nd message of processor 1, which was for
                      some; ``{2}``: says it is for these, ``~``: with other contents
``unc3``  ``unc3-5``  tells its application that its messages 3 (3 to 5) are uncertain
``down``  ``up``      crashes; restarts, ``up!`` without its stable storage
``commit(8,1){1,2}``  notes that it forwards the Commit token
``memb(10,1){1,2}``   notes whose messages it must deliver
``some(7,b=1)``       notes ``some`` with these numbers as data; their names are for readers
``+500``              lets 500 microseconds pass
====================  ============================================================================

The last line, ``end`` or ``end{1,2}``, says which processors are settled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)

VIEW = r"\((\d+),(\d+)\)"
RING = re.compile(r"ring" + VIEW + r"\{([\d,]+)\}")
CONF = re.compile(r"(reg|tr|commit|memb)" + VIEW + r"\{([\d,]+)\}(?:@(\d+))?(?:<" + VIEW + ")?")
ORIGINATE = re.compile(
    r"o(\d+)(?:-(\d+))?(?:<(\d+))?(s)?(?:x(\d+))?(?:#(\d+))?(?:=(\d+))?(?:@" + VIEW + ")?"
)
NOTE = re.compile(r"([a-z_]+)\(((?:[a-z_]+=)?-?\d+(?:,(?:[a-z_]+=)?-?\d+)*)\)")
DELIVER = re.compile(r"d(\d+)(?:-(\d+))?(?:@" + VIEW + ")?(?:/" + VIEW + ")?([~^])?")
DELIVER_TO = re.compile(r"d(\d+)<(\d+)#(\d+)(?:\{([\d,]+)\})?(~)?")
SUBMIT_TO = re.compile(r"sub\{([\d,]+)\}")
UNCERTAIN = re.compile(r"unc(\d+)(?:-(\d+))?")
SUBMIT = re.compile(r"sub(\d+)(s)?")
END = re.compile(r"end(?:\{([\d,]+)\})?")


def parse(text: str) -> Iterator[TraceEvent]:
    """The events of a story; ValueError names the line and the word that makes no sense."""
    story = _Story()
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"#(?!\d).*", "", line).strip()
        if not line:
            continue
        try:
            yield from story.line(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


class _Actor:
    """What the writer of a line need not repeat, for one processor."""

    def __init__(self) -> None:
        self.n = 0
        self.incarnation = 1
        self.submitted = 0  # messages of this incarnation
        self.originated = 0
        self.regular: ViewId | None = None
        self.current: ViewId | None = None
        self.last = 0  # number last delivered on the ring

    def contents(self, node: NodeId, first: int, count: int) -> tuple[int, ...]:
        """What the messages ``first ..`` of this incarnation hold: each something else."""
        base = node * 1_000_000 + self.incarnation * 10_000 + first
        return tuple(range(base, base + count))


class _Story:
    def __init__(self) -> None:
        self.t_us = 0
        self.actors: dict[NodeId, _Actor] = {}
        self.frames: dict[tuple[ViewId, int], Originated] = {}
        self.some: dict[tuple[NodeId, int], SubmittedTo] = {}

    def line(self, line: str) -> Iterator[TraceEvent]:
        if match := END.fullmatch(line):
            yield Ended(self.t_us + 1, _ids(match[1] or ""))
            return
        if match := RING.fullmatch(line):
            yield from self.form(int(match[1]), int(match[2]), _ids(match[3]))
            return
        head, colon, rest = line.partition(":")
        if not colon or not re.fullmatch(r"p[1-9]\d*", head):
            raise ValueError(f"{line!r} does not begin with a processor such as 'p1:'")
        node = int(head[1:])
        yield from self.start(node)
        for word in rest.split():
            yield from self.word(node, self.actors[node], word)

    def start(self, node: NodeId) -> Iterator[TraceEvent]:
        if node not in self.actors:
            self.actors[node] = _Actor()
            yield Restarted(*self.at(node), 1)

    def form(self, seq: int, rep: NodeId, members: tuple[NodeId, ...]) -> Iterator[TraceEvent]:
        """A ring forms by the rules."""
        text = ",".join(map(str, members))
        for node in members:
            yield from self.start(node)
            actor = self.actors[node]
            if actor.regular is None:
                yield from self.word(node, actor, f"reg(4,{node}){{{node}}}")
            yield from self.word(node, actor, f"commit({seq},{rep}){{{text}}}")
        old = {node: self.actors[node].regular for node in members}
        for node in members:
            together = [other for other in members if old[other] == old[node]]
            middle = f"({seq - 2},{together[0]}){{{','.join(map(str, together))}}}"
            for word in (f"memb{middle}", f"tr{middle}", f"reg({seq},{rep}){{{text}}}"):
                yield from self.word(node, self.actors[node], word)

    def at(self, node: NodeId) -> tuple[NodeId, int, int]:
        """The first three fields of the next event of ``node``."""
        actor = self.actors[node]
        actor.n += 1
        self.t_us += 1
        return node, actor.n, self.t_us

    def word(self, node: NodeId, actor: _Actor, word: str) -> Iterator[TraceEvent]:
        if match := CONF.fullmatch(word):
            yield self.conf(node, actor, match)
        elif match := ORIGINATE.fullmatch(word):
            for seq in _range(match):
                yield from self.originate(node, actor, seq, match)
        elif match := DELIVER.fullmatch(word):
            for seq in _range(match):
                yield self.deliver(node, actor, seq, match)
        elif match := NOTE.fullmatch(word):
            data = tuple(int(each.rpartition("=")[2]) for each in match[2].split(","))
            yield Noted(*self.at(node), "story", match[1], data=data)
        elif match := SUBMIT.fullmatch(word):
            yield self.submit(node, actor, int(match[1]), Level.SAFE if match[2] else Level.AGREED)
        elif match := SUBMIT_TO.fullmatch(word):
            yield self.submit_to(node, actor, _ids(match[1]))
        elif match := DELIVER_TO.fullmatch(word):
            yield self.deliver_to(node, actor, match)
        elif match := UNCERTAIN.fullmatch(word):
            yield ReportedUncertain(*self.at(node), int(match[1]), len(_range(match)))
        elif word == "down":
            yield Crashed(*self.at(node))
            self.actors[node] = fresh = _Actor()
            fresh.n, fresh.incarnation = actor.n, actor.incarnation
        elif word in ("up", "up!"):
            actor.incarnation += 1
            yield Restarted(*self.at(node), actor.incarnation, word == "up")
        elif re.fullmatch(r"\+\d+", word):
            self.t_us += int(word)
        else:
            raise ValueError(f"{word!r} is no word of the trace language")

    def conf(self, node: NodeId, actor: _Actor, match: re.Match[str]) -> TraceEvent:
        kind, members = match[1], _ids(match[4])
        view = ViewId(int(match[2]), int(match[3]))
        if kind in ("commit", "memb"):
            what = "commit" if kind == "commit" else "deliver_memb"
            return Noted(*self.at(node), "story", what, "", view, members)
        before, actor.current = actor.current, view
        prev = ViewId(int(match[6]), int(match[7])) if match[6] else before
        if kind == "tr":
            ring = actor.regular or view
            seq = actor.last if match[5] is None else int(match[5])
            return Installed(*self.at(node), view, members, True, ring, seq, None, prev)
        actor.regular, actor.last = view, 0
        return Installed(*self.at(node), view, members, False, view, 0, before, prev)

    def submit(self, node: NodeId, actor: _Actor, count: int, level: Level) -> Submit:
        first = actor.submitted + 1
        actor.submitted += count
        sizes, digests = (8,) * count, actor.contents(node, first, count)
        return Submit(*self.at(node), actor.incarnation, first, level, sizes, digests)

    def originate(
        self, node: NodeId, actor: _Actor, seq: int, match: re.Match[str]
    ) -> Iterator[TraceEvent]:
        sender = int(match[3] or node)
        if sender not in self.actors:
            raise ValueError(f"processor {sender} has not been named before")
        owner = self.actors[sender]
        level = Level.SAFE if match[4] else Level.AGREED
        count = int(match[5] or 1)
        first = int(match[6] or owner.originated + 1)
        if first + count - 1 > owner.submitted:
            yield self.submit(sender, owner, first + count - 1 - owner.submitted, level)
        ring = ViewId(int(match[8]), int(match[9])) if match[8] else actor.regular
        if ring is None:
            raise ValueError(f"processor {node} originates before it is in a ring")
        owner.originated = first + count - 1
        digests = owner.contents(sender, int(match[7] or first), count)
        event = Originated(*self.at(node), ring, seq, level, first, digests, sender)
        self.frames.setdefault((ring, seq), event)
        yield event

    def deliver(self, node: NodeId, actor: _Actor, seq: int, match: re.Match[str]) -> TraceEvent:
        ring = ViewId(int(match[3]), int(match[4])) if match[3] else actor.regular
        view = ViewId(int(match[5]), int(match[6])) if match[5] else actor.current
        if ring is None or view is None:
            raise ValueError(f"processor {node} delivers before it is in a ring")
        if ring == actor.regular:
            actor.last = seq
        frame = self.frames.get((ring, seq))
        if frame is None:
            return Delivered(*self.at(node), view, ring, seq, node, Level.AGREED, 1, (0,))
        digests, level = frame.digests, frame.level
        if match[7] == "~":
            digests = tuple(d + 1 for d in digests)
        elif match[7]:
            level = Level(1 - level)
        sender, first = frame.owner, frame.first
        return Delivered(*self.at(node), view, ring, seq, sender, level, first, digests)

    def submit_to(self, node: NodeId, actor: _Actor, to: tuple[NodeId, ...]) -> TraceEvent:
        actor.submitted += 1
        first = actor.submitted
        told = actor.contents(node, first, 1)
        some = SubmittedTo(to, actor.incarnation, first, Level.AGREED, told)
        self.some[node, first] = some
        return some.noted(*self.at(node))

    def deliver_to(self, node: NodeId, actor: _Actor, match: re.Match[str]) -> TraceEvent:
        seq, sender, first = (int(match[at]) for at in (1, 2, 3))
        some = self.some.get((sender, first))
        if some is None or actor.regular is None or actor.current is None:
            raise ValueError(f"processor {node} cannot deliver that")
        to = _ids(match[4]) if match[4] else some.to
        digests = tuple(d + 1 for d in some.digests) if match[5] else some.digests
        places = (actor.current, actor.regular, seq)
        told = DeliveredTo(to, *places, sender, first, some.level, digests)
        return told.noted(*self.at(node))


def _range(match: re.Match[str]) -> range:
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _ids(text: str) -> tuple[NodeId, ...]:
    return tuple(int(id) for id in text.split(",") if id)

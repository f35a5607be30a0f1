"""Comparison: what a message costs a group, when it is delivered, and what is known by then.

For protocols whose sheets say how their frames count, so that several can stand beside each other.
A frame counts once on a broadcast
network and once for each receiver on a network of links; both counts come of one run. What carries
contents is a message, everything else is control. All is measured from one turn to another, a whole
number of rotations where the run is long enough: a turn at either end weighs much where turns are
few, and a message waits longer at one end of a rotation than at the other.
"""

from __future__ import annotations

from itertools import zip_longest

import msgspec

from ringcast.core.effects import Broadcast, Send
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Message, Received
from ringcast.core.machine import Machine
from ringcast.core.registry import Sheet
from ringcast.core.trace import Delivered, Noted, TraceEvent
from ringcast.pipeline.sweep.study import StudyError
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.spec import RunSpec, prepare

Body = tuple[NodeId, int, int]
"""Whose message, its number, and which piece of it."""


class Comparison(msgspec.Struct, frozen=True):
    """Of the part that is measured; costs are frames a message, times are in microseconds."""

    members: int
    messages: int
    """Sent for the first time."""
    control: float
    """Frames without contents, on a broadcast network …"""
    control_links: float
    """… and on a network of links."""
    total: float
    """Those, and the messages themselves, each once."""
    total_links: float
    resent: float
    """Messages sent again by the same member, on a broadcast network."""
    turns: int
    tokens: float
    """Frames that end a turn, those that are sent again among them, for each message …"""
    asked: float
    """… and messages that somebody asked for, each request for one counted."""
    latency_us: float
    """From sending to delivery, averaged over receivers; 0 if no rotation was delivered whole."""
    interval_us: float
    """From one message that a member delivers to its next, on average."""
    delivered: int
    """Deliveries of members, all counted."""
    unheld: int
    """Of these, how many were made while some member did not hold the message."""
    undone: float
    """Tentative deliveries that a member took back, for each message."""
    one_order: bool
    """Whether members delivered in one order, each as far as it came."""


class FrameLedger:
    """Who sent what when, and who holds it."""

    def __init__(self, ids: tuple[NodeId, ...], sheet: Sheet) -> None:
        if sheet.frames is None:
            raise StudyError(f"{sheet.name}: its sheet does not say how its frames are counted")
        self.ids = ids
        self._turn = sheet.turn
        self._counts = sheet.frames
        self.control: list[tuple[int, int]] = []
        """Frames without contents: when, and what they count on a network of links."""
        self.bodies: list[tuple[int, int]] = []
        self.again_us: list[int] = []
        self.tokens_us: list[int] = []
        self.turns_us: list[int] = []
        self.asked: list[tuple[int, int]] = []
        self.sent_us: dict[Body, int] = {}
        """When somebody sent it for the first time."""
        self._senders: set[tuple[NodeId, Body]] = set()
        self._passed: dict[NodeId, Message] = {}
        self.holders: dict[Body, set[NodeId]] = {}
        self.told: list[tuple[NodeId, Body, int, bool]] = []
        """Deliveries: who, what, when, and whether all held it."""
        self.undone: list[tuple[int, int]] = []
        self.orders: dict[NodeId, list[Body]] = {node: [] for node in ids}

    def over(self, sheet: Sheet) -> Sheet:
        """The sheet of a protocol whose machines are looked at."""

        def make(node: NodeId, config: object) -> Machine:
            machine = sheet.make(node, config)
            whole = machine.handle

            def handle(env: Env, event: Input) -> None:
                if isinstance(event, Received) and (body := self._counts.body(event.message)):
                    self.holders.setdefault(body, set()).add(node)
                whole(env, event)
                for effect in env.effects:
                    if isinstance(effect, (Send, Broadcast)):
                        links = len(self.ids) - 1 if isinstance(effect, Broadcast) else 1
                        self._see(node, effect.message, links, env.now_us)

            vars(machine)["handle"] = handle
            return machine

        return msgspec.structs.replace(sheet, make=make)

    def _see(self, node: NodeId, message: Message, links: int, now_us: int) -> None:
        if body := self._counts.body(message):
            self.holders.setdefault(body, set()).add(node)
            if (node, body) in self._senders:
                self.again_us.append(now_us)
                return
            self._senders.add((node, body))
            self.sent_us.setdefault(body, now_us)
            self.bodies.append((now_us, links))
            return
        self.control.append((now_us, links))
        self.asked.append((now_us, self._counts.asked(message)))
        if type(message) in self._turn:
            self.tokens_us.append(now_us)
            if self._passed.get(node) is not message:
                self._passed[node] = message
                self.turns_us.append(now_us)

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        match event:
            case Delivered(node=node, sender=sender, first=first):
                body = (sender, first, 0)
                held = len(self.holders.get(body, ())) == len(self.ids)
                self.told.append((node, body, event.t_us, held))
                self.orders[node].append(body)
            case Noted():
                if count := self._counts.undone(event):
                    self.undone.append((event.t_us, count))
            case _:
                pass

    def open_us(self) -> int:
        """When the first message was sent that not everybody has delivered."""
        left = dict.fromkeys(self.sent_us, len(self.ids))
        for _, body, _, _ in self.told:
            left[body] -= 1
        return min((self.sent_us[body] for body, missing in left.items() if missing), default=2**62)

    def window(self, from_us: int, until_us: int) -> tuple[int, int, int]:
        """From one turn to another, and how many there are; without turns, all of it."""
        turns = [at_us for at_us in self.turns_us if from_us <= at_us < until_us]
        n = len(self.ids)
        if not self._turn:
            return from_us, until_us, 0
        if len(turns) < 2:
            return from_us, from_us, 0
        last = (len(turns) - 1) // n * n if len(turns) > n else len(turns) - 1
        return turns[0], turns[last], last


def compare(spec: RunSpec) -> Comparison:
    """Carry ``spec`` out and measure from ``measure_from_us`` on.

    Latencies are those of the rotations of which all was delivered. StudyError if nobody sent
    anything by then, or if the protocol's frames are not to be counted.
    """
    setup = prepare(spec)
    frames = FrameLedger(spec.ids, setup.sheet)
    sheet = frames.over(setup.sheet)
    cluster = Cluster(sheet, setup.config, spec.ids, setup.model, spec.seed, [frames])
    schedule(spec.faults, cluster)
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    from_us = spec.measure_from_us or 0
    begin_us, end_us, turns = frames.window(from_us, spec.duration_us)
    first_us, whole_us, _ = frames.window(from_us, min(spec.duration_us, frames.open_us()))

    def within(at_us: int) -> bool:
        return begin_us <= at_us < end_us

    count = sum(map(within, frames.sent_us.values()))
    if not count:
        raise StudyError("nobody sent anything in the part that is measured")
    control = [links for at_us, links in frames.control if within(at_us)]
    bodies = [links for at_us, links in frames.bodies if within(at_us)]
    waits_us = [
        at_us - sent_us
        for _, body, at_us, _ in frames.told
        if first_us <= (sent_us := frames.sent_us[body]) < whole_us
    ]
    told = sum(within(at_us) for _, _, at_us, _ in frames.told)
    undone = sum(number for at_us, number in frames.undone if within(at_us))
    return Comparison(
        members=spec.nodes,
        messages=count,
        control=len(control) / count,
        control_links=sum(control) / count,
        total=(len(control) + len(bodies)) / count,
        total_links=(sum(control) + sum(bodies)) / count,
        resent=sum(map(within, frames.again_us)) / count,
        turns=turns,
        tokens=sum(map(within, frames.tokens_us)) / count,
        asked=sum(number for at_us, number in frames.asked if within(at_us)) / count,
        latency_us=sum(waits_us) / len(waits_us) if waits_us else 0.0,
        interval_us=(end_us - begin_us) * spec.nodes / told if told else 0.0,
        delivered=len(frames.told),
        unheld=sum(not held for *_, held in frames.told),
        undone=undone / spec.nodes / count,
        one_order=all(
            len({body for body in each if body is not None}) <= 1
            for each in zip_longest(*frames.orders.values())
        ),
    )

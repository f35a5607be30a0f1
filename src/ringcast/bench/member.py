"""One member of ``ringcast bench live``: a program that uses the API, and checks what it gets.

A gateway runs it, too: it is in no group, and only passes on what others send. The parent gives it
a ``Task`` on the command line and the time to begin on its input; it prints ``MemberReady`` when
the group is complete and a ``MemberShare`` of the result at the end. Times are those of the
monotonic clock, which all processes of a machine have in common.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys
from array import array
from collections.abc import Iterable
from time import monotonic
from typing import Any

import msgspec

from ringcast.api.events import Batch, EventsLost, View
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.core.ids import Level, NodeId
from ringcast.members.program import loop_factory

POOL_BYTES = 2**19
POOL_MESSAGES = 2**16
"""A sender's messages repeat after so many, or so many bytes."""

SAMPLES = 2000
"""Latencies reported by one member; the values between are left out evenly."""

MOST_LATENCIES = 500_000
SHORTEST_TICK_S = 0.0005
DRAIN_S = 10.0
"""Longest wait for what is under way when the sending ends."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one member has to do."""

    node: dict[str, Any]
    """Its configuration."""
    processors: int
    """All there are, on whatever ring and in whatever group."""
    members: tuple[NodeId, ...]
    """Who is in its group; empty: it is in none."""
    senders: int
    """The members 1 .. senders send, each to its group."""
    size: int
    rate: float
    """Messages a second of all senders; 0 is as many as possible."""
    flight: int
    """Messages of one sender under way at the same time, at most."""
    level: Level
    warm_s: float
    seconds: float


class MemberReady(msgspec.Struct, tag_field="say", tag="ready"):
    """The group is complete."""


class MemberShare(msgspec.Struct, tag_field="say", tag="share", kw_only=True):
    """What one member measured and found."""

    id: NodeId
    window_s: float
    messages: int
    """Delivered in the window."""
    frames: int
    """Frames that what was delivered in the window fills."""
    cpu_s: float
    latencies_ms: list[float]
    """Of this member's messages that were sent in the window, ascending."""
    gap_ms: float
    """Longest time without deliveries in the window."""
    sent: int
    delivered: dict[NodeId, int]
    """By sender, from the beginning to the end."""
    dropped: int
    """Messages that EventsLost told of."""
    wrong: int
    """Messages that were not the next ones of their sender."""
    order: int
    """A hash over sender and number of everything delivered, in order."""
    metrics: dict[str, Any]


Word = MemberReady | MemberShare


class MessagePool:
    """The messages of one sender: any of them can be told without being kept.

    Bodies are made once, because making them is not what is measured.
    """

    def __init__(self, sender: NodeId, size: int) -> None:
        self.period = max(16, min(POOL_MESSAGES, POOL_BYTES // size))
        cycle = [self._body(sender, number, size) for number in range(self.period)]
        self._twice = tuple(cycle) * 2

    def _body(self, sender: NodeId, number: int, size: int) -> bytes:
        head = (sender << 32 | number).to_bytes(8, "big")
        return head[-size:] + bytes(max(0, size - 8))

    def __call__(self, first: int, count: int) -> tuple[bytes, ...]:
        """Messages ``first``, ``first + 1``, … of the sender; at most a period."""
        at = first % self.period
        return self._twice[at : at + count]


class BenchMark(msgspec.Struct):
    """The counters at one end of the window."""

    at_s: float
    messages: int
    frames: int
    cpu_s: float


class BenchMeter:
    """Reads the group, checks every message and counts."""

    def __init__(self, task: Task, pools: dict[NodeId, MessagePool]) -> None:
        self._pools = pools
        self._next = dict.fromkeys(pools, 0)
        self._unfinished = set(self._next)
        self._window = (0.0, 0.0)
        self._last_s = 0.0
        self._messages = self._frames = self._dropped = 0
        self.wrong = self.order = 0
        self._size, self._packet = task.size, task.node["settings"]["max_packet"]
        self._gap_s = 0.0
        self._marks: list[BenchMark] = []
        self.complete = asyncio.Event()
        self.finished = asyncio.Event()
        self._members = len(task.members)

    async def count(self, start_s: float, end_s: float) -> None:
        """Count from ``start_s`` to ``end_s``; back when the window is over."""
        self._window = (start_s, end_s)
        for at_s in self._window:
            await asyncio.sleep(at_s - monotonic())
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu_s = used.ru_utime + used.ru_stime
            self._marks.append(BenchMark(monotonic(), self._messages, self._frames, cpu_s))

    async def read(self, group: Group) -> None:
        """Take everything that comes until all senders have finished."""
        async for events in group.batches():
            self._clock()
            for event in events:
                match event:
                    case Batch():
                        self.take(event)
                    case View(members=members, transitional=False):
                        if len(members) == self._members:
                            self.complete.set()
                        elif self.complete.is_set():
                            self._unfinished &= set(members)
                    case EventsLost(count):
                        self._dropped += count
            if self.complete.is_set() and not self._unfinished:
                self.finished.set()

    def _clock(self) -> None:
        """Deliveries: how long was it quiet before?"""
        now_s = monotonic()
        start_s, end_s = self._window
        if start_s <= self._last_s and now_s <= end_s:
            self._gap_s = max(self._gap_s, now_s - self._last_s)
        self._last_s = now_s

    def take(self, batch: Batch) -> None:
        """A batch must be the next messages of its sender, all of them, byte for byte.

        A batch is the same at all members, so hashing its bounds hashes every number in it.
        """
        sender, bodies = batch.sender, batch.bodies
        if not bodies[-1]:  # an empty message is a sender's last word
            self._unfinished.discard(sender)
            bodies = bodies[:-1]
        first, count = self._next[sender], len(bodies)
        if bodies != self._pools[sender](first, count):
            self.wrong += count
        self._next[sender] = first + count
        self._messages += count
        self._frames += -(-count * self._size // self._packet)
        self.order = hash((self.order, sender, first, count))

    def share(
        self, id: NodeId, sent: int, latencies_ms: Iterable[float], metrics: dict[str, Any]
    ) -> MemberShare:
        """The member's part of the result."""
        begin, end = self._marks
        latencies = sorted(latencies_ms)
        return MemberShare(
            id=id,
            window_s=end.at_s - begin.at_s,
            messages=end.messages - begin.messages,
            frames=end.frames - begin.frames,
            cpu_s=end.cpu_s - begin.cpu_s,
            latencies_ms=latencies[:: -(-len(latencies) // SAMPLES) or 1],
            gap_ms=1000 * self._gap_s,
            sent=sent,
            delivered=self._next,
            dropped=self._dropped,
            wrong=self.wrong,
            order=self.order,
            metrics=metrics,
        )


class BenchSender:
    """Sends a member's messages, flat out or at a rate."""

    LANES = 4
    """Calls of ``send_many`` under way at once, so that the ring never waits for this program."""

    def __init__(self, task: Task, group: Group, window: tuple[float, float]) -> None:
        self._task, self._group, self._window = task, group, window
        self._pool: MessagePool
        self.sent = 0
        self.latencies_ms = array("d")

    async def run(self, pool: MessagePool, begin_s: float, end_s: float) -> None:
        """Send from ``begin_s`` to ``end_s``, then say that this was all."""
        self._pool = pool
        await asyncio.sleep(begin_s - monotonic())
        if self._task.rate:
            await self._steadily(begin_s, end_s)
        else:
            some = min(max(1, self._task.flight // self.LANES), pool.period)
            lanes = min(self.LANES, self._task.flight)
            await asyncio.gather(*(self._flat_out(some, end_s) for _ in range(lanes)))
        await self._group.send(b"", self._task.level)

    async def _flat_out(self, count: int, end_s: float) -> None:
        while monotonic() < end_s:
            await self._send(count)

    async def _steadily(self, begin_s: float, end_s: float) -> None:
        """Each message at its time, whether or not the ones before have arrived.

        A signal keeps the time. The loop's own timers have a grain of a millisecond, so what wakes
        the loop is nearly always the token, and what is due then is sent just after the token has
        left: every message would wait for a whole rotation.
        """
        gap_s = self._task.senders / self._task.rate
        due_s = begin_s + gap_s * self._group.me / self._task.senders
        tick = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGALRM, tick.set)
        first_s = max(due_s - monotonic(), SHORTEST_TICK_S)
        signal.setitimer(signal.ITIMER_REAL, first_s, max(gap_s, SHORTEST_TICK_S))
        try:
            async with asyncio.TaskGroup() as under_way:
                while due_s < end_s:
                    await tick.wait()
                    tick.clear()
                    while due_s < min(monotonic() + gap_s / 2, end_s):
                        under_way.create_task(self._send(1))
                        due_s += gap_s
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    async def _send(self, count: int) -> None:
        bodies = self._pool(self.sent, count)
        self.sent += count
        sent_s = monotonic()
        await self._group.send_many(bodies, self._task.level)
        if self._window[0] <= sent_s < self._window[1] and len(self.latencies_ms) < MOST_LATENCIES:
            self.latencies_ms.append(1000 * (monotonic() - sent_s))


def say(word: Word) -> None:
    """One line for the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(word) + b"\n")
    sys.stdout.buffer.flush()


async def begin(orders: asyncio.StreamReader) -> float:
    """When to begin; a parent that has gone ends this process wherever it is."""
    line = await orders.readline()
    if not line:
        raise EOFError("the parent has gone")
    return float(line)


async def work(task: Task) -> None:
    """Be a member from the first word to the last."""
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with Node.open(task.node) as node:
        if not task.members:
            await pass_on(task, node, orders)
            return
        async with node.join(f"bench {task.members[0]}") as group:
            await take_part(task, node, group, orders)


async def take_part(task: Task, node: Node, group: Group, orders: asyncio.StreamReader) -> None:
    """Send, read and check."""
    pools = {id: MessagePool(id, task.size) for id in task.members if id <= task.senders}
    meter = BenchMeter(task, pools)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(meter.read(group))
        order = tasks.create_task(begin(orders))
        await meter.complete.wait()
        await node.wait_for_ring(task.processors)  # rings may be joined after a group is complete
        await node.caught_up()
        say(MemberReady())
        begin_s = await order
        start_s = begin_s + task.warm_s
        end_s = start_s + task.seconds
        sender = BenchSender(task, group, (start_s, end_s))
        if pool := pools.get(group.me):
            sending = tasks.create_task(sender.run(pool, begin_s, end_s))
        await meter.count(start_s, end_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S if pools else 0):
                await meter.finished.wait()
        say(meter.share(group.me, sender.sent, sender.latencies_ms, node.metrics()))
        await orders.read()  # the parent lets everybody leave together
        reading.cancel()
        if pool:
            sending.cancel()


async def pass_on(task: Task, node: Node, orders: asyncio.StreamReader) -> None:
    """Be there for the others; what is counted is what that costs."""
    meter = BenchMeter(task, {})
    async with asyncio.TaskGroup() as tasks:
        order = tasks.create_task(begin(orders))
        await node.wait_for_ring(task.processors)
        say(MemberReady())
        start_s = await order + task.warm_s
        await meter.count(start_s, start_s + task.seconds)
        say(meter.share(node.config.id, 0, (), node.metrics()))
        await orders.read()


def main() -> None:
    """Run the task given on the command line."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work(task))


if __name__ == "__main__":
    main()

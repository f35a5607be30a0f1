"""``ringcast node``: one live member, shown while it runs, with a packet driver if wanted."""

from __future__ import annotations

import asyncio
import math
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.console import Group as Stack
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ringcast.api.events import Batch, EventsLost, View
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.cli.drive import Driver, DriverLoad, load
from ringcast.console.options import OK, VIOLATED, fail
from ringcast.console.output import console, ids
from ringcast.core.errors import ConfigError, KeyFileError, RingcastError
from ringcast.members.program import loop_factory, until_signal
from ringcast.members.words import (
    Lines,
    MemberStatus,
    Stopped,
    Viewed,
    Word,
    stranger,
    text,
    wall_us,
)
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.config import load as read_config

PERIOD_S = 1.0
VIEWS_SHOWN = 8


class NodeScreen:
    """Tells what happens as a table that is kept up to date, on a terminal."""

    def __init__(self, screen: Console) -> None:
        self._views: deque[str] = deque(maxlen=VIEWS_SHOWN)
        self._live = Live(console=screen, auto_refresh=False)
        self._live.start()

    def __call__(self, word: Word) -> None:
        """Show a status at once, and a view from the next status on."""
        if type(word) is MemberStatus:
            self._live.update(Stack(*self._views, table(word)), refresh=True)
        else:
            self._views.append(escape(text(word)))

    def close(self) -> None:
        """Leave the last table standing."""
        self._live.stop()


def table(status: MemberStatus) -> Table:
    """A status for a terminal."""
    metrics: dict[str, Any] = status.metrics
    grid = Table(title=f"node {status.id}", title_justify="left", show_header=False)
    for name, value in (
        ("phase", status.phase),
        ("ring", ids(status.ring)),
        ("group", ids(status.members)),
        ("delivered", f"{status.delivered:,}"),
        ("messages/s", f"{status.messages_per_s:,.0f}"),
        ("MB/s", f"{status.mb_per_s:,.2f}"),
        ("sent by the driver", f"{status.sent:,}"),
        ("frames in, out", f"{metrics['frames_received']:,}, {metrics['frames_sent']:,}"),
        ("frames refused", f"{sum(metrics['frames_refused'].values()):,} {stranger(status)}"),
        ("pauses", f"{metrics['pauses']}, longest {metrics['longest_pause_us'] / 1000:.0f} ms"),
        ("slowest write", f"{metrics['longest_write_us'] / 1000:.0f} ms"),
    ):
        grid.add_row(name, value)
    return grid


class NodeRunner:
    """The node at work: reads its group, counts, drives, and tells."""

    def __init__(self, node: Node, tell: Callable[[Word], None]) -> None:
        self._node = node
        self._tell = tell
        self._delivered = self._bytes = self._lost = 0
        self._driver: Driver | None = None
        self._driving: asyncio.Task[None] | None = None

    def drive(self, group: Group, load: DriverLoad) -> asyncio.Task[None]:
        """Begin to send."""
        self._driver = Driver(group, load, Random(f"drive/{self._node.config.id}"))
        self._driving = asyncio.create_task(self._driver.run())
        return self._driving

    def rest(self) -> None:
        """Send no more; the node stays a member."""
        if self._driving is not None:
            self._driving.cancel()

    async def read(self, group: Group, limit: float) -> None:
        """Until so many messages were delivered, or the node stops."""
        async for events in group.batches():
            for event in events:
                match event:
                    case Batch(bodies=bodies):
                        self._delivered += len(bodies)
                        self._bytes += sum(map(len, bodies))
                    case View(members=members, transitional=transitional, ring=ring):
                        me, gone = self._node.config.id, tuple(map(str, event.departures))
                        self._tell(Viewed(wall_us(), me, str(ring), members, transitional, gone))
                    case EventsLost(count):
                        self._lost += count
            if self._delivered >= limit:
                return

    async def report(self, group: Group) -> None:
        """Tell how it goes, for ever."""
        loop = asyncio.get_running_loop()
        then_s, messages, size = loop.time(), 0, 0
        while True:
            await asyncio.sleep(PERIOD_S)
            now_s = loop.time()
            passed_s = now_s - then_s
            metrics: dict[str, Any] = self._node.metrics()
            self._tell(
                MemberStatus(
                    t_us=wall_us(),
                    id=self._node.config.id,
                    phase=str(metrics["machine"].get("phase", "")),
                    ring=self._node.ring,
                    members=group.members,
                    sent=self._driver.sent if self._driver else 0,
                    delivered=self._delivered,
                    messages_per_s=round((self._delivered - messages) / passed_s, 1),
                    mb_per_s=round((self._bytes - size) / passed_s / 1e6, 3),
                    lost=self._lost,
                    idle=self._node.outgoing.idle,
                    metrics=metrics,
                )
            )
            then_s, messages, size = now_s, self._delivered, self._bytes


def refuse_borrowed_id(file: Path, settings: NodeConfig) -> None:
    """A file copied from another node, with the address changed and the id forgotten: the two
    would never hear each other, and all others would take them for one."""
    for port in settings.domains:
        wrong = port.two_places
        if wrong and port.listed[port.id].port != port.bind_address.port:
            fail(f"{file}: {wrong}")


async def serve(
    config: NodeConfig,
    name: str,
    load: DriverLoad | None,
    limit: float,
    tell: Callable[[Word], None],
) -> None:
    """A member until the limit is reached; cancel it to leave earlier."""
    async with Node.open(config) as node, node.join(name) as group:
        if load is not None and load.high > node.max_message:
            raise ConfigError(
                f"--size {load.high}: the ring takes {node.max_message} bytes at most"
            )
        member = NodeRunner(node, tell)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, member.rest)
        work = [
            asyncio.create_task(member.read(group, limit)),
            asyncio.create_task(member.report(group)),
        ]
        tasks = work if load is None else [*work, member.drive(group, load)]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            loop.remove_signal_handler(signal.SIGUSR1)


def command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's TOML file.")],
    group: Annotated[str, typer.Option(help="The group to join.")] = "main",
    drive: Annotated[
        str | None, typer.Option(help="Send so many messages a second, or 'saturate'.")
    ] = None,
    size: Annotated[
        str, typer.Option(help="Bytes of a message sent, or a range such as 16..4096.")
    ] = "64",
    safe: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the messages sent that are safe.")
    ] = 0.0,
    deliver_limit: Annotated[
        int | None, typer.Option(min=1, help="Leave after so many messages were delivered.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line a second, and one for each view.")
    ] = False,
) -> None:
    """Run one member of a group until it is interrupted; SIGUSR1 ends the sending only."""
    sending = load(drive, size, safe) if drive is not None else None
    if not 1 <= len(group) <= 64:
        fail("--group: a name has 1 to 64 characters")
    try:
        settings = read_config(config)
    except ConfigError as error:
        fail(str(error))
    refuse_borrowed_id(config, settings)
    screen = console()
    show = NodeScreen(screen) if screen.is_terminal and not json else Lines(json)
    limit = deliver_limit or math.inf
    reason = ""

    async def main() -> None:
        await until_signal(asyncio.create_task(serve(settings, group, sending, limit, show)))

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(main())
    except (ConfigError, KeyFileError) as error:
        fail(str(error))
    except RingcastError as error:
        reason = str(error)
    except BrokenPipeError:
        raise typer.Exit(VIOLATED) from None  # whoever read our lines is gone
    finally:
        show.close()
    if reason:
        typer.echo(f"ringcast: {reason}", err=True)
    if json or not reason:
        show(Stopped(wall_us(), settings.id, reason or "left"))
    raise typer.Exit(VIOLATED if reason else OK)

"""``ringcast bench live``: how fast a ring of processes on this machine is, with order checked."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from ringcast.bench import bridge
from ringcast.bench.run import MOST_FRAME, Figures, Trial, run, settings
from ringcast.console.options import OK, VIOLATED, fail
from ringcast.console.output import as_json, say
from ringcast.core.errors import UNREADABLE_TOML, ConfigError, RingcastError
from ringcast.core.ids import level as level_of
from ringcast.core.registry import protocol
from ringcast.protocols import DEFAULT
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.loopback import LOOPBACK
from ringcast.wire.envelope import ROOM

MOST_NODES = 60

app = typer.Typer(help="Measure how fast the ring is on this machine.")


@app.callback()
def main() -> None:
    """Measure how fast the ring is on this machine."""


@app.command("live")
def live(
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Members.")] = 3,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 64,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Length of the window.")] = 5.0,
    warm: Annotated[float, typer.Option(min=0, help="Seconds of load before the window.")] = 1.0,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second of all senders; 0: flat out.")
    ] = 0.0,
    senders: Annotated[
        int | None, typer.Option(min=0, help="How many members send; all by default.")
    ] = None,
    level: Annotated[
        str, typer.Option(help="agreed or safe; fifo and causal are served as agreed.")
    ] = "agreed",
    keys: Annotated[bool, typer.Option(help="Seal every frame with a group key.")] = False,
    frame: Annotated[
        int | None, typer.Option(min=512, max=MOST_FRAME, help="Largest datagram, in bytes.")
    ] = None,
    namespaces: Annotated[
        bool,
        typer.Option(
            "--namespaces/--loopback", help="Over a bridge of its own (needs root), or loopback."
        ),
    ] = False,
    mtu: Annotated[int, typer.Option(min=576, max=65_535, help="Of that bridge.")] = 1500,
    multicast: Annotated[bool, typer.Option(help="Broadcast by IP multicast.")] = False,
    realtime: Annotated[
        bool, typer.Option(help="Members run ahead of ordinary processes (needs the right to).")
    ] = False,
    protocol_name: Annotated[str, typer.Option("--protocol", help="The protocol.")] = DEFAULT,
    profile: Annotated[str, typer.Option(help="The protocol's profile; its first if empty.")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the protocol: name=value.")
    ] = None,
    flight: Annotated[
        int | None, typer.Option(min=1, help="Messages a sender has under way, flat out.")
    ] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="SIGKILL one member in the middle of the window.")
    ] = False,
    journal: Annotated[
        bool, typer.Option("--journal", help="Every member keeps a journal.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Members in processes of their own send, deliver and check; exit code 1 if order broke."""
    try:
        served_as = level_of(level)
    except ValueError as error:
        fail(f"--level {error}")
    if namespaces and (why := bridge.obstacle()):
        fail(f"--namespaces {why}; use --loopback")
    if multicast and not namespaces:
        fail("--multicast goes with --namespaces: on loopback there is nothing to gain by it")
    if kill and nodes < 2:
        fail("--kill needs two nodes or more")
    trial = Trial(
        nodes=nodes,
        size=size,
        seconds=seconds,
        warm_s=warm,
        rate=rate,
        senders=None if senders is None else min(senders, nodes),
        level=served_as,
        keys=keys,
        frame=frame,
        namespaces=namespaces,
        mtu=mtu,
        multicast=multicast,
        realtime=realtime,
        protocol=protocol_name,
        profile=profile,
        settings=dict(map(setting, set_ or ())),
        kill=kill,
        flight=flight,
        journal=journal,
    )
    check(trial)
    try:
        result = run(trial)
    except (OSError, RingcastError) as error:
        fail(str(error))
    if json:
        as_json(result)
    else:
        show(result)
    raise typer.Exit(VIOLATED if result.lost or result.reordered else OK)


def setting(text: str) -> tuple[str, Any]:
    """``name=value`` of ``--set``."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), msgspec.toml.decode(f"v = {value}")["v"]
    except UNREADABLE_TOML:
        fail(f"--set {text!r} is not name=value, such as max_packet=9000")


def check(trial: Trial) -> None:
    """Refuse what the members would refuse, before anything is started."""
    try:
        sheet = protocol(trial.protocol)
        config = NodeConfig(
            id=1,
            bind=f"{LOOPBACK}:1",
            peers=tuple(f"{id}@{LOOPBACK}:{id}" for id in range(1, trial.nodes + 1)),
            state_dir="none",
            protocol=trial.protocol,
            profile=trial.profile,
            settings=settings(trial),
        )
        largest = config.check().protocol_config.max_message - ROOM
    except (LookupError, ConfigError) as error:
        fail(str(error))
    if trial.size > largest:
        fail(f"--size {trial.size}: {sheet.name} takes {largest} at most")


def show(result: Figures) -> None:
    """The figures for people."""
    say(
        f"{result.nodes} members, {result.size} B: {result.messages_per_s:,.0f} messages/s, "
        f"{result.mb_per_s:,.2f} MB/s, {result.frames_per_s:,.0f} frames/s"
    )
    if result.latency_ms:
        say(f"latency {result.latency_ms.p50:.2f} ms, p99 {result.latency_ms.p99:.2f} ms")
    say(
        f"processor time {result.cpu_s:.2f} s in {result.seconds:g} s; "
        f"longest silence {result.gap_ms:.1f} ms"
    )
    verdict = "[bold red]" if result.lost or result.reordered else "[green]"
    say(f"{verdict}lost {result.lost}, out of order {result.reordered}[/]")

"""One measurement of a live ring: members started, told when to begin, heard, and ended."""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ringcast.bench.bridge import HEADERS, Bridge
from ringcast.bench.member import MemberReady, MemberShare, Task, Word
from ringcast.core.errors import RingcastError
from ringcast.core.ids import Level, NodeId
from ringcast.core.registry import protocol
from ringcast.core.rings import Rings
from ringcast.members.wiring import WiredPort, wired
from ringcast.protocols import DEFAULT
from ringcast.runtime.config import RECEIVE_BUFFER
from ringcast.runtime.loopback import LOOPBACK, free_ports
from ringcast.runtime.udp import enlarge
from ringcast.runtime.udp_offload import MOST_IN_RUN
from ringcast.sim.rings import attached
from ringcast.wire import keys as key_file
from ringcast.wire.seal import TAG_BYTES

PATIENCE_S = 30.0
"""Longest wait for the ring to form, and for results after the end of the window."""

LEAD_S = 0.2
"""From the parent's word to the first message: everybody has heard it by then."""

MOST_FRAME = 65_000
"""Largest datagram, on loopback too: a message of 60 KB fits in one."""

VISIT_BYTES = 2**19
"""What a member sends in one visit of the token, at most."""

FLIGHT_BYTES = 2 * 2**20
FLIGHT = (4, 8192)
"""What one sender has under way: so many bytes, within these numbers of messages."""

GROUP = "239.77.{ring}.1:5405"
"""For multicast on each ring."""

WORD = msgspec.json.Decoder(Word)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    nodes: int = 3
    """Members; gateways come on top."""
    rings: Rings = ()
    """Who is on each ring; empty: all are on one. Members are on one ring each. Who is on several
    is a gateway, whose id is above theirs: it is in no group, and sends nothing of its own. In
    namespaces every ring has a bridge of its own."""
    local: bool = False
    """The members of each ring are a group of their own, else all members are one."""
    size: int = 64
    seconds: float = 5.0
    warm_s: float = 1.0
    rate: float = 0.0
    """Messages a second of all senders together; 0: as many as possible."""
    senders: int | None = None
    """How many members send; None: all."""
    level: Level = Level.AGREED
    keys: bool = False
    frame: int | None = None
    """Largest datagram; None: what the path takes."""
    namespaces: bool = False
    mtu: int = 1500
    """Of the bridge between the namespaces."""
    multicast: bool = False
    protocol: str = DEFAULT
    profile: str = ""
    settings: dict[str, Any] = {}
    kill: bool = False
    """End the last member with SIGKILL in the middle of the window."""
    realtime: bool = False
    """Members run ahead of ordinary processes, as corosync does by default."""
    flight: int | None = None
    """Messages of one sender under way; None: by their size."""
    journal: bool = False
    """Every member keeps a journal."""

    def __post_init__(self) -> None:
        ports = attached(self.layout)
        members = [id for id in ports if len(ports[id]) == 1]
        if [*ports] != [*range(1, len(ports) + 1)] or members != [*range(1, self.nodes + 1)]:
            raise ValueError(
                f"rings: members 1 to {self.nodes} are on one ring each, and gateways, from "
                f"{self.nodes + 1} on, on several"
            )

    @property
    def layout(self) -> Rings:
        """Who is on each ring, gateways included."""
        return self.rings or (tuple(range(1, self.nodes + 1)),)

    @property
    def groups(self) -> Rings:
        """Who sends to each other."""
        if not self.local:
            return (tuple(range(1, self.nodes + 1)),)
        own = (tuple(id for id in ring if id <= self.nodes) for ring in self.layout)
        return tuple(members for members in own if members)


class LiveLatency(msgspec.Struct):
    """From ``send`` to the sender's own delivery."""

    p50: float
    p99: float


class Figures(msgspec.Struct):
    """What came out. Rates are those of the slowest member, of several groups the sum of theirs."""

    messages_per_s: float
    mb_per_s: float
    frames_per_s: float
    latency_ms: LiveLatency | None
    cpu_s: float
    """Processor time of all members and gateways in the window."""
    lost: int
    reordered: int
    gap_ms: float
    """Longest time without deliveries at any member that stayed."""
    nodes: int
    size: int
    seconds: float
    trial: dict[str, Any]
    members: list[dict[str, Any]]
    """Processor time, frames sent, received and refused, and pauses, of each member and gateway."""


class Failed(RingcastError):
    """The measurement could not be made."""


class Crew:
    """The members' processes, heard line by line. Leaving ends all of them."""

    def __init__(self, commands: dict[NodeId, list[str]], errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as log:
            self.processes = {
                id: subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # the terminal's Ctrl-C is ours alone
                )
                for id, command in commands.items()
            }

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes.values():
            if exception[0] is not None:
                process.kill()
            assert process.stdin and process.stdout
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout
            process.stdout.close()

    def words(self, deadline_s: float) -> dict[NodeId, Word]:
        """One word from everybody."""
        said: dict[NodeId, Word] = {}
        with selectors.DefaultSelector() as selector:
            for id, process in self.processes.items():
                assert process.stdout
                selector.register(process.stdout, selectors.EVENT_READ, id)
            while len(said) < len(self.processes):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    silent = sorted(self.processes.keys() - said.keys())
                    raise Failed(f"members {silent} did not answer in time{self._complaint()}")
                for key, _ in selector.select(left_s):
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if not line:
                        raise Failed(f"member {key.data} ended{self._complaint()}")
                    said[key.data] = WORD.decode(line)
                    selector.unregister(key.fileobj)
        return said

    def tell(self, line: str) -> None:
        """The same to everybody."""
        for process in self.processes.values():
            assert process.stdin
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def lose(self, id: NodeId) -> None:
        """SIGKILL; it is no longer asked for anything."""
        process = self.processes.pop(id)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _complaint(self) -> str:
        lines = self._errors.read_text("utf-8", "replace").splitlines()
        said = [line.strip(" |+-") for line in lines]  # the frame of an ExceptionGroup says nothing
        return next((f": {line}" for line in reversed(said) if line), "")


def run(trial: Trial, network: Bridge | None = None) -> Figures:
    """Measure once; ``network`` is used if the trial wants namespaces and one is there."""
    with contextlib.ExitStack() as stack:
        if trial.namespaces and network is None:
            hosts = len(attached(trial.layout))
            network = stack.enter_context(Bridge(hosts, trial.mtu, trial.rings))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ringcast-bench-")))
        program = [sys.executable, "-m", "ringcast.bench.member"]
        commands = {
            id: [
                *(network.inside(id - 1) if trial.namespaces and network else ()),
                *program,
                msgspec.json.encode(task).decode(),
            ]
            for id, task in enumerate(prepare(trial, network, folder), 1)
        }
        crew = stack.enter_context(Crew(commands, folder / "errors"))
        return measure(trial, crew, crew.lose)


def measure(trial: Trial, crew: Crew, kill: Callable[[NodeId], None]) -> Figures:
    """Let the crew begin when all are there, and collect what they found."""
    ready = crew.words(time.monotonic() + PATIENCE_S)
    assert all(type(word) is MemberReady for word in ready.values())
    begin_s = time.monotonic() + LEAD_S
    crew.tell(repr(begin_s))
    end_s = begin_s + trial.warm_s + trial.seconds
    if trial.kill:
        time.sleep(max(0.0, end_s - trial.seconds / 2 - time.monotonic()))
        kill(trial.nodes)
    shares = [w for w in crew.words(end_s + PATIENCE_S).values() if isinstance(w, MemberShare)]
    return figures(trial, shares)


def prepare(trial: Trial, network: Bridge | None, folder: Path) -> Iterator[Task]:
    """The members' tasks, then the gateways', with what their configurations refer to."""
    if trial.keys:
        for ring in range(len(trial.layout)):  # each has its own
            key_file.write(folder / f"group-{ring}.key", key_file.add({}))
    wires = wired(trial.layout, places(trial, network))
    flight = trial.flight or min(max(FLIGHT[0], FLIGHT_BYTES // trial.size), FLIGHT[1])
    for id, ports in wires.items():
        tables = [table(trial, port, folder) for port in ports]
        node: dict[str, Any] = {
            **(tables[0] if len(tables) == 1 else {"id": id, "ports": tables}),
            "state_dir": str(folder / f"state-{id}"),
            "insecure": not trial.keys,
            "protocol": trial.protocol,
            "profile": trial.profile,
            "settings": settings(trial),
            "realtime": trial.realtime,
        }
        if trial.journal:
            node["journal"] = str(folder / f"journal-{id}")
        yield Task(
            node=node,
            processors=len(wires),
            members=next((group for group in trial.groups if id in group), ()),
            senders=trial.nodes if trial.senders is None else trial.senders,
            size=trial.size,
            rate=trial.rate,
            flight=flight,
            level=trial.level,
            warm_s=trial.warm_s,
            seconds=trial.seconds,
        )


def places(trial: Trial, network: Bridge | None) -> dict[NodeId, str]:
    """An address for each port."""
    seats = [
        (id, domain, pid) for id, ports in attached(trial.layout).items() for domain, pid in ports
    ]
    if trial.namespaces:
        assert network is not None
        return {pid: f"{network.address(id - 1, domain)}:5400" for id, domain, pid in seats}
    free = free_ports(len(seats))
    return {pid: f"{LOOPBACK}:{port}" for (_, _, pid), port in zip(seats, free, strict=True)}


def table(trial: Trial, port: WiredPort, folder: Path) -> dict[str, Any]:
    """What a configuration says of one port."""
    found: dict[str, Any] = {"id": port.id, "bind": port.bind, "peers": port.peers}
    if trial.keys:
        found["key_file"] = str(folder / f"group-{port.domain}.key")
    if trial.multicast:
        found["multicast"] = GROUP.format(ring=port.domain)
        found["interface"] = port.bind.rpartition(":")[0]
    return found


def settings(trial: Trial) -> dict[str, Any]:
    """Settings of the protocol for speed: the largest frames that the path takes, and as many a
    visit as two system calls send, as long as the receivers' buffers hold what all members may
    send in a rotation."""
    path = trial.mtu - HEADERS if trial.namespaces else MOST_FRAME
    packet = (trial.frame or min(path, MOST_FRAME)) - TAG_BYTES
    visit_bytes = min(VISIT_BYTES, buffer_granted() // 2 // trial.nodes)
    visit = max(1, min(2 * MOST_IN_RUN, visit_bytes // packet))
    fast = protocol(trial.protocol).fast(visit, trial.nodes)
    return {"max_packet": packet, **fast, **trial.settings}


def buffer_granted() -> int:
    """What the system gives a node that asks for the usual receive buffer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        enlarge(probe, RECEIVE_BUFFER)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def figures(trial: Trial, shares: list[MemberShare]) -> Figures:
    """One result out of the members' shares."""
    by_id = {share.id: share for share in shares}
    groups = [[by_id[id] for id in group if id in by_id] for group in trial.groups]
    rate = sum(min(share.messages / share.window_s for share in group) for group in groups)
    frames = sum(min(share.frames / share.window_s for share in group) for group in groups)
    latencies = sorted(value for share in shares for value in share.latencies_ms)
    sent = {share.id: share.sent for share in shares}
    lost = sum(
        abs(sent[sender] - count)
        for share in shares
        for sender, count in share.delivered.items()
        if sender in sent
    )
    return Figures(
        messages_per_s=round(rate, 1),
        mb_per_s=round(rate * trial.size / 1e6, 3),
        frames_per_s=round(frames, 1),
        latency_ms=LiveLatency(
            p50=round(latencies[len(latencies) // 2], 3),
            p99=round(latencies[len(latencies) * 99 // 100], 3),
        )
        if latencies
        else None,
        cpu_s=round(sum(share.cpu_s for share in shares), 3),
        lost=lost + sum(share.dropped for share in shares),
        reordered=sum(share.wrong for share in shares)
        + sum(len({share.order for share in group}) - 1 for group in groups),
        gap_ms=round(max(share.gap_ms for share in shares), 3),
        nodes=trial.nodes,
        size=trial.size,
        seconds=trial.seconds,
        trial=msgspec.to_builtins(trial),
        members=[
            {"id": share.id, "cpu_s": round(share.cpu_s, 3), **shown(share.metrics)}
            for share in shares
        ],
    )


def shown(metrics: dict[str, Any]) -> dict[str, Any]:
    """What a member's metrics say, and its machine's snapshot."""
    return {name: metrics.get(name) for name in SHOWN}


SHOWN = (
    "frames_sent",
    "frames_received",
    "frames_blocked",
    "frames_refused",
    "inputs_dropped",
    "pauses",
    "longest_pause_us",
    "machine",
)

"""Members of a group as processes of this machine: started, watched, and mistreated."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.files.disk import DISK
from ringcast.members.wiring import wired
from ringcast.members.words import MemberStatus, Stopped, Viewed, Word
from ringcast.runtime.fault_injection import Faults
from ringcast.runtime.loopback import LOOPBACK, free_ports
from ringcast.sim.batch import end_with
from ringcast.sim.rings import attached
from ringcast.wire import keys

WORD = msgspec.json.Decoder(Word)


class MemberProcess:
    """One ``ringcast node``, over all its incarnations, and what it last said."""

    def __init__(self, id: NodeId, folder: Path) -> None:
        self.id = id
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen = False
        self.program = [sys.executable, "-m", "ringcast.cli"]
        self.status: MemberStatus | None = None
        self.view: Viewed | None = None
        self.stopped: Stopped | None = None
        self._rest = b""

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.folder / f"{self.id}.toml"

    @property
    def errors(self) -> str:
        """What it wrote to its error stream, all incarnations."""
        return (self.folder / f"{self.id}.err").read_text("utf-8")

    @property
    def running(self) -> bool:
        """Whether there is a process, stopped or not."""
        return self.process is not None and self.process.poll() is None

    def start(self, *options: str) -> None:
        """Begin an incarnation."""
        self.status = self.view = self.stopped = None
        self._rest = b""
        command = [*self.program, "node", "-c", str(self.config), "--json"]
        with (self.folder / f"{self.id}.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # the terminal's Ctrl-C is ours alone
                preexec_fn=partial(end_with, os.getpid()),  # it stays in force after exec
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if there is anybody to get it."""
        if self.process is not None and self.running:
            self.process.send_signal(number)
            self.frozen = number is signal.SIGSTOP or (self.frozen and number != signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait()
            self.frozen = False
            self.hear()

    def hear(self) -> None:
        """Take in what it has said since."""
        if self.process is None or self.process.stdout is None or self.process.stdout.closed:
            return
        while data := self.process.stdout.read():
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(line)
        if data == b"":
            self.process.stdout.close()

    def _take(self, line: bytes) -> None:
        match WORD.decode(line):
            case MemberStatus() as status:
                self.status = status
            case Viewed() as view:
                self.view = view
            case Stopped() as stopped:
                self.stopped = stopped

    def faults(self, faults: Faults) -> None:
        """Let it lose frames from now on (within a twentieth of a second)."""
        DISK.replace(self.folder / f"{self.id}.faults", msgspec.json.encode(faults))


class Band:
    """Members that know each other's addresses and share keys. Leaving ends every process.

    ``members`` is how many there are in one broadcast domain, or the domains and who is in each.
    """

    def __init__(
        self, members: int | Rings, folder: Path, traces: Path, settings: str = ""
    ) -> None:
        self.traces = traces
        rings = (tuple(range(1, members + 1)),) if isinstance(members, int) else members
        own_keys = [folder / f"group{at or ''}.key" for at in range(len(rings))]
        for path in own_keys:  # each domain has its own
            keys.write(path, keys.add({}))
        self.key = own_keys[0]
        places = attached(rings)
        self.members = {id: MemberProcess(id, folder) for id in places}
        self.pids = {id: tuple(pid for _, pid in places[id]) for id in places}
        """The ids that each has, one in each of its domains."""
        pids = [pid for some in self.pids.values() for pid in some]
        self.ports = dict(zip(pids, free_ports(len(pids)), strict=True))
        wires = wired(rings, {pid: f"{LOOPBACK}:{port}" for pid, port in self.ports.items()})
        for id, member in self.members.items():
            domains = [
                f'bind = "{port.bind}"\n'
                f"peers = {port.peers}\n"
                f'key_file = "{own_keys[port.domain].name}"\n'
                for port in wires[id]
            ]
            node = (
                f"id = {id}\n"
                f'state_dir = "state-{id}"\n'
                f'trace_dir = "{traces.resolve()}"\n'
                f'fault_file = "{id}.faults"\n'
            )
            if len(domains) == 1:
                text = node + domains[0] + settings
            else:
                tables = zip(self.pids[id], domains, strict=True)
                text = node + settings + "".join(f"[[ports]]\nid = {p}\n{d}" for p, d in tables)
            member.config.write_text(text, "utf-8")

    def __enter__(self) -> Band:
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self.members.values():
            member.kill()

    def __getitem__(self, id: NodeId) -> MemberProcess:
        return self.members[id]

    def listen(self, seconds: float) -> None:
        """Take in what the members say, for so long at most."""
        with selectors.DefaultSelector() as selector:
            for member in self.members.values():
                said = member.process.stdout if member.process is not None else None
                if said is not None and not said.closed:
                    selector.register(said, selectors.EVENT_READ, member)
            if not selector.get_map():
                time.sleep(seconds)
            for key, _ in selector.select(seconds):
                key.data.hear()

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Listen until ``done``; False if it was not in so many seconds."""
        deadline_s = time.monotonic() + seconds
        while not done():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            self.listen(min(left_s, 0.1))
        return True

    def together(self, *ids: NodeId) -> bool:
        """Whether these are all members of the group of each of them, and nobody else is."""
        views = [self.members[id].view for id in ids]
        rings = [v.ring for v in views if v and v.members == ids and not v.transitional]
        return len(rings) == len(ids) and len(set(rings)) == 1

    def part(self, *sides: Iterable[NodeId]) -> None:
        """Nobody hears anybody of another side. Without sides: everybody hears everybody."""
        all_sides = [set(side) for side in sides]
        for id, member in self.members.items():
            others = {other for side in all_sides if id not in side for other in side}
            deaf_to = sorted(pid for other in others for pid in self.pids[other])
            member.faults(Faults(deaf_to=tuple(deaf_to)))

    def rest(self) -> None:
        """End the load; everybody stays."""
        for member in self.members.values():
            member.signal(signal.SIGUSR1)
            member.hear()
            member.status = None

    def at_rest(self) -> bool:
        """Whether all who run have said since ``rest`` that nothing is under way or arrives."""
        return all(
            (status := member.status) is not None and status.idle and status.messages_per_s == 0
            for member in self.members.values()
            if member.running
        )

    def lost(self) -> dict[NodeId, int]:
        """Events that readers lost, by member, of those who run."""
        return {
            member.id: status.lost
            for member in self.members.values()
            if member.running and (status := member.status) is not None and status.lost
        }

    def leave(self, seconds: float) -> bool:
        """Let everybody leave in order; False if somebody did not in time."""
        for member in self.members.values():
            member.signal(signal.SIGTERM)
        return self.until(lambda: not any(m.running for m in self.members.values()), seconds)

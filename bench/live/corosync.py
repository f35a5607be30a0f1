"""corosync, as Debian packages it: a ring of daemons, one a namespace, and load over libcpg."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from ringcast.bench.bridge import Bridge
from ringcast.bench.run import Crew, Failed, Figures, Trial, measure
from ringcast.core.ids import NodeId

FORM_S = 10.0
TRIES = 3
"""Once in a while daemons that start together do not find each other."""

FLIGHT = ((16_384, 16), (2_048, 64), (0, 512))
"""Messages of a sender under way, for sizes above each bound: more gain nothing."""

CONFIG = """
totem {{
    version: 2
    cluster_name: bench
    transport: udp
    crypto_cipher: none
    crypto_hash: none
    {totem}
    interface {{
        ringnumber: 0
        bindnetaddr: 10.77.0.0
        mcastaddr: 239.77.2.1
        mcastport: 5405
    }}
}}
nodelist {{
    {nodes}
}}
logging {{
    to_stderr: no
    to_syslog: no
    to_logfile: yes
    logfile: {log}
    timestamp: hires
}}
"""

# A daemon keeps sockets and rings of shared memory under fixed names, so each gets its own.
PRIVATE = "/dev/shm /run /var/lib/corosync"
BOOT = (
    f"mount --make-rprivate / && for at in {PRIVATE}; do mount -t tmpfs none $at || exit 1; done; "
    'mkdir -p /run/lock /run/corosync; exec corosync -f -c "$0"'
)


def obstacle() -> str:
    """Why corosync cannot be measured here, or nothing."""
    if shutil.which("corosync") is None:
        return "corosync is not installed (packages corosync and libcpg-dev)"
    return "" if shutil.which("gcc") else "gcc is needed for the load program"


class Corosync:
    """A ring of daemons on a bridge; use it with ``with``. ``totem`` are lines of its section."""

    def __init__(self, network: Bridge, nodes: int, totem: str = "") -> None:
        self._network, self._nodes, self._totem = network, nodes, totem
        self._undo = ExitStack()
        self._daemons: dict[NodeId, subprocess.Popen[bytes]] = {}
        self._folder = Path()

    def __enter__(self) -> Corosync:
        with ExitStack() as undo:
            folder = tempfile.TemporaryDirectory(prefix="ringcast-corosync-")
            self._folder = Path(undo.enter_context(folder))
            source = Path(__file__).with_name("cpg.c")
            subprocess.run(["gcc", "-O2", "-o", self._folder / "cpg", source, "-lcpg"], check=True)
            undo.callback(self._end)
            for _ in range(TRIES):
                for id in range(1, self._nodes + 1):
                    self._daemons[id] = self._daemon(id)
                if self._formed():
                    break
                self._end()
            else:
                raise Failed("corosync's ring did not form")
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def _daemon(self, id: NodeId) -> subprocess.Popen[bytes]:
        nodes = "\n".join(
            f"node {{\n ring0_addr: {self._network.address(i - 1)}\n nodeid: {i}\n name: n{i}\n}}"
            for i in range(1, self._nodes + 1)
        )
        config = self._folder / f"{id}.conf"
        log = self._folder / f"{id}.log"
        config.write_text(CONFIG.format(totem=self._totem, nodes=nodes, log=log), "utf-8")
        return subprocess.Popen(
            [*self._network.inside(id - 1), "unshare", "--mount", "sh", "-c", BOOT, config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _formed(self) -> bool:
        """Wait until every daemon has logged that all are members; False if it takes too long."""
        deadline_s = time.monotonic() + FORM_S
        wanted = f"Sync members[{self._nodes}]"
        logs = [self._folder / f"{id}.log" for id in self._daemons]
        while not all(log.exists() and wanted in log.read_text("utf-8") for log in logs):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.05)
        return True

    def run(self, trial: Trial) -> Figures:
        """The same measurement as ``bench_run.run``."""
        senders = trial.nodes if trial.senders is None else trial.senders
        flight = next(most for bound, most in FLIGHT if trial.size > bound)
        words = (trial.nodes, senders, trial.size, trial.rate, flight, trial.warm_s, trial.seconds)
        commands = {
            id: [
                "nsenter", "--target", str(daemon.pid), "--mount", "--net", "--",
                str(self._folder / "cpg"), str(id), *map(str, words),
            ]
            for id, daemon in self._daemons.items()
        }  # fmt: skip
        with Crew(commands, self._folder / "errors") as crew:

            def kill(id: NodeId) -> None:
                self._daemons[id].kill()
                crew.lose(id)

            return measure(trial, crew, kill)

    def cpu_s(self) -> float:
        """Processor time of the daemons so far."""
        ticks = 0
        for daemon in self._daemons.values():
            fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _end(self) -> None:
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()

"""Exactly once under fire: a live group, Spark, and SIGKILL at moments drawn from a seed.

Three nodes with journals send rows to the group ``in``, each acknowledged when it is durable. Spark
follows the journals twice: into a Parquet table, and through its sink back into the group, as
``out``. Meanwhile processes are killed: nodes, the driver, its JVM, Python workers; at random
moments, and at placed ones: inside ``commit`` of the sink and of the source, between fsync and
acknowledgement, in the middle of a write, at every step of a rotation, while a node catches up.

In the end the table and ``out`` must have the rows of ``in``, each once, in their order, and all
journals every acknowledged row.

    python tests/pipeline/fire.py --seed 7 --kills 20
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random

import fire_programs
from fire_programs import NODES

from ringcast.core.ids import Position
from ringcast.journal.check import compare, examine
from ringcast.journal.merged_reader import whole
from ringcast.runtime.loopback import free_ports
from ringcast.sim.batch import end_with

SEGMENT_BYTES = 60_000
NICE = 5
PATIENCE_S = 300.0
PATIENT = {"token_loss_us": 1_000_000, "consensus_us": 1_200_000}
"""On a machine with more work than cores a node that waits for its turn must not be taken for
dead: it would be a group of its own then, whose rows the others rightly do not have."""

IN_NODES = ("synced", "half a frame", "indexing", "indexed", "begun", "noting")
WHILE_CATCHING_UP = ("merging", "merged")
IN_SPARK = ("decided", "half", "published", "source commit")
PLACED = (*IN_NODES, *WHILE_CATCHING_UP, *IN_SPARK)
AT_RANDOM = ("node", "node", "driver", "driver", "jvm", "jvm", "worker", "worker")
MOMENTS = (*PLACED, *AT_RANDOM)


def draw(seed: int, kills: int) -> list[tuple[str, int, float]]:
    """The moments of a run: what, of which node, and after how much time."""
    random = Random(seed)
    rounds = itertools.chain.from_iterable(
        random.sample(MOMENTS, len(MOMENTS)) for _ in itertools.count()
    )
    return [
        (moment, random.choice(NODES), random.uniform(0.2, 2.0))
        for moment in itertools.islice(rounds, kills)
    ]


def begin(parent: int, nice: int) -> None:
    """In a new process: it ends with this one, and Spark steps back behind the nodes."""
    end_with(parent)
    os.nice(nice)


class Battle:
    """Everybody, and what is done to them."""

    def __init__(self, folder: Path, volatile: bool = False) -> None:
        self.folder, self.volatile = folder, volatile
        ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        peers = [f"{id}@127.0.0.1:{port}" for id, port in ports.items()]
        self.settings = {
            id: {
                "id": id,
                "bind": f"127.0.0.1:{port}",
                "peers": peers,
                "state_dir": str(folder / f"state-{id}"),
                "journal": str(folder / f"journal-{id}"),
                "journal_limits": {"segment_bytes": SEGMENT_BYTES},
                "journal_patience_s": 120.0,  # processes may start late on a busy machine
                "settings": PATIENT,
            }
            for id, port in ports.items()
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for part in (*(f"journal-{id}" for id in NODES), *(f"fire-{id}" for id in NODES), "fire"):
            (folder / part).mkdir()

    def start(self, name: str) -> None:
        """A node, by its number, or the driver."""
        who = {} if name == "driver" else self.settings[int(name)]
        (self.folder / f"caught-up-{name}").unlink(missing_ok=True)  # that was its last life's word
        what = {"folder": str(self.folder), "node": who, "volatile": self.volatile,
                "connect": self.settings[1]["bind"]}  # fmt: skip
        command = [sys.executable, fire_programs.__file__, json.dumps(what)]
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                preexec_fn=partial(begin, os.getpid(), NICE if name == "driver" else 0),
            )

    def until(self, what: str, done: Callable[[], object]) -> None:
        """Wait; who was killed comes back meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            self.mend()
            if time.monotonic() > deadline:
                said = {
                    p.name: p.read_text("utf-8", "replace")[-500:]
                    for p in self.folder.glob("*.err")
                }
                raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} s; {said}")
            time.sleep(0.05)

    def mend(self) -> None:
        """Start again whoever was killed, or failed."""
        for name, process in list(self.processes.items()):
            if process.poll():
                self.start(name)

    def kill(self, moment: str, node: int, delay: float) -> None:
        """One of the moments; returns when the victim is dead."""
        time.sleep(delay)
        if moment in IN_NODES or moment in WHILE_CATCHING_UP:
            (self.folder / f"fire-{node}" / moment).touch()
            if moment in WHILE_CATCHING_UP:
                self.end(str(node))
            self.until(moment, lambda: not (self.folder / f"fire-{node}" / moment).exists())
        elif moment in IN_SPARK:
            (self.folder / "fire" / moment).touch()
            self.until(moment, lambda: not (self.folder / "fire" / moment).exists())
        elif moment == "node":
            self.end(str(node))
        elif moment == "driver":
            self.end("driver")
        else:
            self.until(moment, lambda: self.hit("java " if moment == "jvm" else "-m pyspark"))
        self.mend()

    def end(self, name: str) -> None:
        """SIGKILL to a node or the driver."""
        self.processes[name].kill()
        self.processes[name].wait()

    def hit(self, word: str) -> bool:
        """SIGKILL to one of Spark's processes with this word in its command line."""
        for pid in self.spark(word):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def spark(self, word: str) -> Iterator[int]:
        """The processes below the driver with this word in their command line."""
        found = {pid: (parent, line) for pid, parent, line in processes()}
        driver = self.processes["driver"].pid
        for pid, (parent, line) in found.items():
            while parent != driver and parent in found:
                parent = found[parent][0]
            if parent == driver and word in line:
                yield pid

    def finish(self) -> None:
        """No more rows; everybody comes to an end in order."""
        (self.folder / "enough").touch()
        self.until("journals complete", self.complete)
        (self.folder / "finish").touch()
        if "driver" in self.processes:
            self.until("Spark at the end", lambda: self.processes["driver"].poll() == 0)
        (self.folder / "leave").touch()
        for id in NODES:
            self.until("the end", lambda id=id: self.processes[str(id)].poll() == 0)  # type: ignore[misc]

    def acknowledged(self) -> dict[int, int]:
        """Rows of each node that were said to be durable."""
        files = {id: self.folder / f"acknowledged-{id}" for id in NODES}
        return {id: len(f.read_bytes().split()) if f.exists() else 0 for id, f in files.items()}

    def complete(self) -> bool:
        return all(self._complete(id) for id in NODES)

    def _complete(self, id: int) -> bool:
        said = self.folder / f"caught-up-{id}"
        fresh = said.exists() and time.time() - said.stat().st_mtime < 1
        return fresh and said.read_text().endswith("True")

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def processes() -> list[tuple[int, int, str]]:
    """Number, parent and command line of everything that runs here."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            found.append((int(path.name), parent, line))
    return sorted(found)


def stream_faults(folder: Path) -> Iterator[str]:
    """Where the table, or what came back into the group, is not what was sent."""
    import pyarrow.parquet as pq

    rows = [row for batch in whole(journals(folder)) for row in batch.to_pylist()]
    sent = [row["body"] for row in rows if row["group"] == "in"]
    if len(set(sent)) != len(sent):
        yield "a row is twice in the group"
    yield from differences("out", [row["body"] for row in rows if row["group"] == "out"], sent)
    files = [pq.read_table(folder / "rows" / name) for name in committed(folder / "rows")]
    found = [row for table in files for row in table.to_pylist()]
    found.sort(key=lambda row: Position(**row["position"]))
    yield from differences("the table", [row["body"] for row in found], sent)


def journal_faults(folder: Path) -> Iterator[str]:
    """What is damaged, differs, or was acknowledged and is not there."""
    for path in journals(folder):
        for finding in list(examine(path))[-1].findings:
            yield f"{finding.file} at {finding.place}: {finding.what}"
    for finding in compare(journals(folder)):
        yield f"{finding.file} at {finding.place}: {finding.what}"
    acknowledged = {id: (folder / f"acknowledged-{id}").read_text().split() for id in NODES}
    for path in journals(folder):
        rows = [row for batch in whole([path]) for row in batch.to_pylist()]
        at = {row["body"].decode(): n for n, row in enumerate(rows) if row["group"] == "in"}
        for id, lines in acknowledged.items():
            missing = [line for line in lines if line not in at]
            if missing:
                yield (
                    f"{path.name} lacks {len(missing)} of {len(lines)} rows that node {id} said "
                    f"are durable: {missing[0].rstrip('-')} …"
                )
            places = [at[line] for line in lines if line in at]
            if places != sorted(places):
                yield f"{path.name} has the rows of node {id} in another order"


def journals(folder: Path) -> list[Path]:
    """Of all nodes."""
    return [folder / f"journal-{id}" for id in NODES]


def committed(folder: Path) -> set[str]:
    """The files of a table that its stream says are in it."""
    found = set()
    for path in sorted((folder / "_spark_metadata").glob("[0-9]*")):
        for line in path.read_text().splitlines()[1:]:
            found.add(Path(json.loads(line)["path"]).name)
    return found


def differences(what: str, got: list[bytes], wanted: list[bytes]) -> Iterator[str]:
    """How two lists of rows differ, in one line."""
    if got != wanted:
        missing, more = len(set(wanted) - set(got)), len(got) - len(set(got))
        at = next((n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), -1)
        yield (
            f"{what}: {len(got)} rows of {len(wanted)}, {missing} missing, {more} twice, "
            f"{len(set(got) - set(wanted))} strange, the first difference at {at}"
        )


def run(seed: int, kills: int, folder: Path, say: Callable[[str], None] = print) -> list[str]:
    """The whole battle; what was wrong."""
    say(f"repeat: python tests/pipeline/fire.py --seed {seed} --kills {kills}")
    battle = Battle(folder)
    began = time.monotonic()
    with closing(battle):
        for name in (*map(str, NODES), "driver"):
            battle.start(name)
        battle.until("the first rows in the table", lambda: [*folder.glob("rows/*.parquet")])
        for moment, node, delay in draw(seed, kills):
            battle.kill(moment, node, delay)
            say(f"{time.monotonic() - began:6.1f} s  killed: {moment} ({node})")
        battle.finish()
    found = [*stream_faults(folder), *journal_faults(folder)]
    say(f"{time.monotonic() - began:6.1f} s  {battle.acknowledged()} rows, {found or 'all well'}")
    return found


def all_at_once(folder: Path, times: int, volatile: bool) -> list[str]:
    """All nodes are killed together under load, so many times; what was wrong in the end."""
    battle = Battle(folder, volatile)
    with closing(battle):
        for _ in range(times):
            for id in NODES:
                battle.start(str(id))
            wanted = {id: count + 100 for id, count in battle.acknowledged().items()}
            for id, count in wanted.items():
                battle.until("rows", lambda id=id, n=count: battle.acknowledged()[id] >= n)  # type: ignore[misc]
            for id in NODES:
                battle.processes[str(id)].kill()
            for id in NODES:
                battle.processes[str(id)].wait()
        battle.mend()
        battle.finish()
    return list(journal_faults(folder))


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="for everything; kept")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ringcast-fire-"))
    folder.mkdir(exist_ok=True)
    print(f"in {folder}")
    sys.exit(1 if run(options.seed, options.kills, folder) else 0)


if __name__ == "__main__":
    main()

"""A small Spark cluster on this machine: a master, workers and a Connect server, all on loopback.

It is what the pipeline is tested against, and a place to try a job before it goes to a real
cluster. Everything it needs is in the pyspark package. The processes outlive the command that
starts them, so a record in the user's state folder says which they are; each carries the record's
token on its command line, which tells it from a later process with the same number.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import msgspec

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.archive import class_archive, using
from ringcast.pipeline.spark.java import java_home
from ringcast.pipeline.spark.session import JVM, LOOPBACK, require_spark, spark_home
from ringcast.runtime.loopback import free_ports

START_S = 120.0
"""How long a part may take to answer; on a busy machine a JVM takes its time."""

END_S = 20.0
"""How long a part may take to end when asked; then it is killed."""

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Warnings only: the logs of a cluster that is left running must not fill the disk."""


class ClusterProcess(msgspec.Struct):
    """One process of the cluster."""

    pid: int
    log: str
    command: list[str]


class LocalSpark(msgspec.Struct):
    """The record of a running cluster."""

    folder: str
    token: str
    master: str
    """For ``--master``."""
    remote: str
    """For ``--remote``."""
    page: str
    """The master's page for people and, with ``/json/``, for programs."""
    java: str
    options: str
    """Of every JVM, beside those that Spark adds."""
    parts: dict[str, ClusterProcess] = {}

    @property
    def settings(self) -> str:
        """The file that every part is given; its name holds the token."""
        return f"{self.folder}/spark-{self.token}.conf"

    def save(self) -> None:
        """Write the record; a reader sees the old one or the new one."""
        path = record(Path(self.folder))
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))
        fresh.rename(path)

    def alive(self, name: str) -> bool:
        """Whether this part runs, and not some other process with its number."""
        return self.settings in command_line(self.parts[name].pid)

    def workers(self) -> list[str]:
        """The names of the workers."""
        return [name for name in self.parts if name.startswith("worker")]


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where the record, the logs and the workers' files are."""
    given = environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local/state") / "ringcast" / "cluster"


def record(folder: Path) -> Path:
    """The file that says which cluster runs."""
    return folder / "cluster.json"


def load(folder: Path) -> LocalSpark | None:
    """The cluster that was started here, whether or not it still runs."""
    try:
        return msgspec.json.decode(record(folder).read_bytes(), type=LocalSpark)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise PipelineError(
            f"{record(folder)} is damaged ({error}); end its processes by hand and remove it"
        ) from error


def up(folder: Path, workers: int = 2) -> LocalSpark:
    """Start everything and wait until it answers; if a part fails, end the others."""
    require_spark()
    with lock(folder):
        before = load(folder)
        running = [name for name in before.parts if before.alive(name)] if before else []
        if before and running:
            raise PipelineError(
                f"a cluster is up already ({', '.join(running)}) at {before.master} and "
                f"{before.remote}; 'ringcast cluster down' ends it"
            )
        cores = max(1, (os.cpu_count() or 1) // workers)
        cluster = prepare(folder, workers * cores)
        try:
            start(cluster, "master", master_command(cluster))
            wait_for(cluster, "master", lambda: registered(cluster) == 0)
            for number in range(1, workers + 1):
                name = f"worker-{number}"
                start(cluster, name, worker_command(cluster, name, 2 * workers * cores))
            for name in cluster.workers():
                wait_for(cluster, name, lambda: registered(cluster) >= workers)
            start(cluster, "connect", connect_command(cluster))  # now it gets a share of each
            wait_for(cluster, "connect", lambda: listens(port_of(cluster.remote)))
        except BaseException:
            end(cluster)
            record(folder).unlink(missing_ok=True)  # the logs stay: the error names one of them
            raise
    return cluster


def down(folder: Path) -> LocalSpark | None:
    """End exactly the processes of the record, and remove what they leave behind."""
    with lock(folder):
        cluster = load(folder)
        if cluster is not None:
            end(cluster)
            wait_until(lambda: removed(folder), END_S)  # an executor may still write into it
    return cluster


def removed(folder: Path) -> bool:
    """Whether a folder is gone, now."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """One command at a time starts or ends a cluster."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.parent, os.O_RDONLY)
    except OSError as error:
        raise PipelineError(
            f"cannot use {folder.parent} ({error.strerror}); "
            "point XDG_STATE_HOME at a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError("another 'ringcast cluster' is at work; let it end") from None
        yield
    finally:
        os.close(handle)


def prepare(folder: Path, cores: int) -> LocalSpark:
    """An empty folder with what all parts need, and a record of addresses that are free.

    ``cores`` are those of the Connect server, and as many those of a job sent to the master. An
    application holds its cores for as long as it lives, so each worker offers enough for both of
    them: when the other workers are gone, neither must wait for the other's end.
    """
    port, page, remote = free_ports(3)
    java = java_home(os.environ)
    logging = folder / "log4j2.properties"
    archive = class_archive(java, spark_home(), os.environ)
    cluster = LocalSpark(
        folder=str(folder),
        token=secrets.token_hex(8),
        master=f"spark://{LOOPBACK}:{port}",
        remote=f"sc://{LOOPBACK}:{remote}",
        page=f"http://{LOOPBACK}:{page}",
        java=str(java),
        options=f"{JVM}{using(archive)} -Dlog4j2.configurationFile={shlex.quote(str(logging))}",
    )
    settings = {
        "spark.port.maxRetries": "0",  # a port that is taken is an error, the next is not known
        "spark.master.rest.enabled": "false",  # it would take a fixed port, for nobody
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(remote),
        "spark.cores.max": str(cores),
        "spark.deploy.defaultCores": str(cores),
        "spark.driver.extraJavaOptions": cluster.options,
        "spark.executor.extraJavaOptions": cluster.options,
        "spark.ui.enabled": "false",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    logging.write_text(LOGGING, "utf-8")
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    Path(cluster.settings).write_text("".join(lines), "utf-8")
    return cluster


def master_command(cluster: LocalSpark) -> list[str]:
    """The master: it knows the workers and hands out their cores."""
    ports = ["--port", str(port_of(cluster.master)), "--webui-port", str(port_of(cluster.page))]
    return [*daemon(cluster, "master.Master"), *ports]


def worker_command(cluster: LocalSpark, name: str, cores: int) -> list[str]:
    """A worker: it starts an executor for each application. The memory is a word, not a limit."""
    offers = ["--cores", str(cores), "--memory", "8g", "--work-dir", f"{cluster.folder}/{name}"]
    return [*daemon(cluster, "worker.Worker"), *offers, "--webui-port", "0", cluster.master]


def daemon(cluster: LocalSpark, name: str) -> list[str]:
    """What the commands of master and worker have in common."""
    script = str(spark_home() / "bin" / "spark-class")
    settings = ["--properties-file", cluster.settings]
    return [script, f"org.apache.spark.deploy.{name}", "--host", LOOPBACK, *settings]


def connect_command(cluster: LocalSpark) -> list[str]:
    """The Connect server: an application of the cluster that runs its clients' queries."""
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--name", "ringcast connect", "--master", cluster.master),
        *("--properties-file", cluster.settings),
    ]


def environment(cluster: LocalSpark) -> dict[str, str]:
    """The variables of all parts; settings of another Spark of this user have no say."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    return kept | {
        "JAVA_HOME": cluster.java,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": cluster.options,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
    }


def start(cluster: LocalSpark, name: str, command: list[str]) -> None:
    """Start a part in a session of its own, and remember it at once."""
    log = Path(cluster.folder) / f"{name}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=cluster.folder,
            env=environment(cluster),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    process.returncode = 0  # it is meant to outlive us: nobody here waits for it
    cluster.parts[name] = ClusterProcess(process.pid, str(log), command)
    cluster.save()


def wait_for(cluster: LocalSpark, name: str, ready: Callable[[], bool]) -> None:
    """Until a part answers; one that ends or takes too long is an error that names its log."""
    if wait_until(lambda: ready() or not cluster.alive(name), START_S) and ready():
        return
    wrong = "ended" if not cluster.alive(name) else f"did not answer within {START_S:.0f} s"
    raise PipelineError(
        f"the cluster did not start: {name} {wrong}; its log is {cluster.parts[name].log}"
    )


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def end(cluster: LocalSpark) -> None:
    """Ask every part to end, newest first, and kill those that do not, with their executors."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for name, part in reversed(cluster.parts.items()):
            if cluster.alive(name):
                with suppress(ProcessLookupError):
                    os.killpg(part.pid, number)
        if wait_until(lambda: not any(map(cluster.alive, cluster.parts)), END_S):
            return


def command_line(pid: int) -> str:
    """The command of a process, empty if there is none or it has ended."""
    if sys.platform != "linux":
        asked = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    process = Path(f"/proc/{pid}")
    for _ in range(20):
        try:
            words = (process / "cmdline").read_text("utf-8", "replace")
            state = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except OSError:
            return ""
        if words or state == "Z":
            return words.replace("\0", " ")
        time.sleep(0.01)  # it has no command just while it becomes another program
    return ""


def registered(cluster: LocalSpark) -> int:
    """How many workers the master knows and hears; -1 if it does not answer."""
    asked = HTTPConnection(LOOPBACK, port_of(cluster.page), timeout=5)  # no proxy between
    try:
        asked.request("GET", "/json/")
        told = json.load(asked.getresponse())
    except (OSError, ValueError):
        return -1
    finally:
        asked.close()
    return sum(worker["state"] == "ALIVE" for worker in told["workers"])


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def port_of(url: str) -> int:
    """The number after the last colon."""
    return int(url.rpartition(":")[2])

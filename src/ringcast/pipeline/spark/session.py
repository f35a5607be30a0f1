"""The one place where a Spark session is made or taken.

Where it runs is said by ``--remote`` or ``--master``, else by the environment (``SPARK_REMOTE``,
then ``SPARK_MASTER``), else it is this machine with all its cores. Whoever gets the session uses
DataFrames only, so that the same code runs on this machine, on a cluster and through Connect.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.archive import class_archive, using, using_or_making
from ringcast.pipeline.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

TRIES = 4
"""How often a task may fail; without it, ``local`` gives up when one Python worker is killed."""

ANSWER_S = 10.0
"""How long a server may take to accept a connection."""

MASTER_PORT, CONNECT_PORT = 7077, 15002
"""Where Spark's servers are if an address has no port."""

NEEDED = ("pyspark", "pandas", "pyarrow", "grpc")

OLDEST = (4, 3)
"""Of PySpark: see docs/pipeline.md for what earlier ones lack."""

SOCKET_S = 120
"""How long Spark and its Python workers wait for each other on a socket; 15 s by default, which a
busy machine exceeds, and then the query fails."""

SET_BY_SPARK = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""Variables that a session leaves in the environment of its process."""

CAUSE = "Caused by: "

JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
    "-Xlog:disable -Xlog:all=warning:stderr"
)
"""A quick start matters more than hot loops: the heavy work is done outside the JVM. With the first
compiler alone a JVM has room for 48 MB of code, which many queries fill; then it compiles no more.
What a JVM has to say of itself does not belong among a command's results."""


class Where(msgspec.Struct, frozen=True):
    """Where a session runs, as the user said it; nothing said means: see the environment."""

    master: str | None = None
    remote: str | None = None
    cores: int | None = None
    """Of this machine or of the cluster; all by default. A Connect server decides for itself."""


class SparkPlace(msgspec.Struct, frozen=True):
    """Where a session runs: a Connect server or a master, one of the two."""

    remote: str | None = None
    master: str | None = None

    @property
    def local(self) -> bool:
        """Whether nothing but this machine takes part, so that loopback will do."""
        return self.master is not None and bool(
            re.match(r"local\b|spark://(localhost|127\.[\d.]+|\[::1\])[:,]", self.master)
        )


def place(where: Where, environ: Mapping[str, str]) -> SparkPlace:
    """Resolve what the user said; options win over the environment."""
    if where.master and where.remote:
        raise PipelineError("--master and --remote cannot be combined; give one of them")
    said = where.master or where.remote
    remote = where.remote or (None if said else environ.get("SPARK_REMOTE") or None)
    if remote:
        if not remote.startswith("sc://"):
            raise PipelineError(
                f"remote {remote!r} is not a Connect server such as sc://host:15002"
            )
        return SparkPlace(remote=remote)
    master = where.master or environ.get("SPARK_MASTER") or None
    if master and master.startswith("sc://"):
        raise PipelineError(f"{master!r} is a Connect server: use --remote {master}")
    if master and not re.match(r"(local\b|spark://|k8s://|yarn$)", master):
        raise PipelineError(
            f"master {master!r} is not local[2], spark://host:7077, yarn or k8s://..."
        )
    if master is None:
        return SparkPlace(master=f"local[{where.cores or '*'},{TRIES}]")
    alone = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return SparkPlace(master=f"local[{alone[1] or 1},{TRIES}]" if alone else master)


def require_spark() -> None:
    """Say how to install what a plain ringcast does not bring."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError(
            f"this needs Spark, and {', '.join(missing)} cannot be imported: "
            "pip install 'ringcast[spark]'"
        )
    found = version("pyspark")
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < OLDEST:
        raise PipelineError(
            f"PySpark {found} is installed, and ringcast needs {OLDEST[0]}.{OLDEST[1]} or later: "
            "pip install 'ringcast[spark]'"
        )


def spark_home() -> Path:
    """The pyspark package: it holds all of Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def active_session() -> SparkSession | None:
    """The session that the program has open already, of whichever kind and in any thread."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession, is_remote

    try:
        if is_remote():
            from pyspark.sql.connect.session import SparkSession as Remote

            return Remote.active()  # type: ignore[return-value]  # same interface
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


@contextmanager
def open_session(where: Where | None = None, app: str = "ringcast") -> Iterator[SparkSession]:
    """A session for the time of the block. One that is open already is taken and left open."""
    require_spark()
    said = where or Where()
    active = active_session()
    if active is not None:
        if said.master or said.remote:
            raise PipelineError("a Spark session is open already; use it, or stop it first")
        yield active
        return
    at = place(said, os.environ)
    settings = environment_of(at, os.environ)
    before = {name: os.environ.get(name) for name in (*settings, *SET_BY_SPARK)}
    interrupt = signal.getsignal(signal.SIGINT)
    change_environment(settings)
    try:
        session = connected(at.remote, app) if at.remote else launched(at, said.cores, app)
        try:
            yield session
        finally:
            with suppress(Exception):  # what there is to say of a Spark that died has been said
                session.stop()
    finally:
        if signal.getsignal(signal.SIGINT) is not interrupt:  # Spark put its own there
            signal.signal(signal.SIGINT, interrupt)
        change_environment(before)


def environment_of(at: SparkPlace, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that Spark reads, while the session is open; None is one that must be unset."""
    if at.remote:
        return {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_REMOTE": None}
    settings: dict[str, str | None] = {
        "SPARK_CONNECT_MODE_ENABLED": None,
        "SPARK_REMOTE": None,
        "JAVA_HOME": str(java_home(environ)),
        # The driver's JVM looks for data sources with this Python, or else with PYSPARK_PYTHON,
        # which may be the executors' alone, or else with python3, which may be without ringcast.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if at.local:
        settings |= {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
        }
    elif "PYSPARK_PYTHON" not in environ:
        settings["PYSPARK_PYTHON"] = sys.executable
    return settings


def change_environment(settings: Mapping[str, str | None]) -> None:
    """Set or unset variables of this process."""
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def require_answer(url: str, port: int) -> None:
    """Spark itself would try for minutes before it said that nobody is there."""
    tried = ""
    for address in url.partition("://")[2].partition("/")[0].split(","):
        found = urlsplit(f"//{address}")
        try:
            socket.create_connection((found.hostname, found.port or port), ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            tried = str(error)
    raise PipelineError(f"no Spark answers at {url} ({tried}); 'ringcast cluster up' starts one")


def connected(url: str, app: str) -> SparkSession:
    """A session of a Connect server; it has its own settings and needs no Java here."""
    from pyspark.sql.connect.session import SparkSession as Remote

    require_answer(url, CONNECT_PORT)
    try:
        session = Remote.builder.remote(url).appName(app).getOrCreate()
    except Exception as error:
        raise PipelineError(f"no session from {url}: {first_line(error)}") from error
    return session  # type: ignore[return-value]  # same interface


def launched(at: SparkPlace, cores: int | None, app: str) -> SparkSession:
    """A session with a driver in a JVM of our own, which ends with this process."""
    from pyspark.sql import SparkSession

    assert at.master is not None
    if at.master.startswith("spark://"):
        require_answer(at.master, MASTER_PORT)
    builder = SparkSession.builder.appName(app)
    archive = class_archive(Path(os.environ["JAVA_HOME"]), spark_home(), os.environ)
    for name, value in settings_of(at, cores, archive).items():
        builder = builder.config(name, value)
    log = new_log()
    try:
        with streams_into(log):
            session = builder.getOrCreate()
    except Exception as error:
        raise PipelineError(
            f"Spark did not start at {at.master} ({first_line(error)}); its log is {log}"
        ) from error
    except KeyboardInterrupt:
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)  # the JVM goes on writing to it, for nobody
    return session


def settings_of(at: SparkPlace, cores: int | None, archive: Path | None) -> dict[str, str]:
    """Spark's settings; whatever is not here is the user's to set in spark-defaults.conf."""
    settings = {
        "spark.master": str(at.master),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": JVM + using_or_making(archive),
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.authenticate.socketTimeout": f"{SOCKET_S}s",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if at.local:
        settings["spark.executor.extraJavaOptions"] = JVM + using(archive)
        settings["spark.sql.shuffle.partitions"] = str(max(2, cores or os.cpu_count() or 2))
    if cores:
        settings["spark.cores.max"] = str(cores)
    return settings


def new_log() -> Path:
    """A file for what the JVM says while it starts."""
    handle, name = tempfile.mkstemp(prefix="ringcast-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def streams_into(log: Path) -> Iterator[None]:
    """Output and errors go to ``log`` meanwhile; a JVM started here keeps it for its life.

    So it neither writes between our lines nor holds up whoever reads them to their end.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    before = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as target:
            for number in before:
                os.dup2(target.fileno(), number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, copy in before.items():
            os.dup2(copy, number)
            os.close(copy)


def first_line(error: Exception) -> str:
    """Java's errors are pages; the first cause, else the first line, says what it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
    return next(iter(causes + lines), repr(error))

"""Where a session runs, that it starts quietly, and that it leaves everything as it was."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark import session
from ringcast.pipeline.spark.session import SparkPlace, Where, open_session, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE = {"SPARK_REMOTE": "sc://there:15002"}
MASTER = {"SPARK_MASTER": "spark://there:7077"}


@pytest.mark.parametrize(
    ("where", "environ", "found"),
    [
        (Where(), {}, SparkPlace(master="local[*,4]")),
        (Where(cores=3), {}, SparkPlace(master="local[3,4]")),
        (Where(master="local[2]"), REMOTE, SparkPlace(master="local[2,4]")),
        (Where(master="local"), {}, SparkPlace(master="local[1,4]")),
        (Where(master="local[2,1]"), {}, SparkPlace(master="local[2,1]")),
        (Where(), MASTER, SparkPlace(master="spark://there:7077")),
        (Where(), {**MASTER, **REMOTE}, SparkPlace(remote="sc://there:15002")),
        (Where(master="yarn"), REMOTE, SparkPlace(master="yarn")),
        (Where(remote="sc://here"), {**MASTER, **REMOTE}, SparkPlace(remote="sc://here")),
        (Where(), {"SPARK_REMOTE": "", "SPARK_MASTER": ""}, SparkPlace(master="local[*,4]")),
    ],
)
def test_options_win_over_the_environment(
    where: Where, environ: Mapping[str, str], found: SparkPlace
) -> None:
    assert place(where, environ) == found


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (Where(master="local", remote="sc://here"), "cannot be combined"),
        (Where(master="sc://here"), "use --remote sc://here"),
        (Where(remote="spark://here"), "not a Connect server"),
        (Where(master="mesos://here"), "not local"),
        (Where(master="localhost:7077"), "not local"),
    ],
)
def test_nonsense_is_refused(where: Where, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        place(where, {})


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local[*,4]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.1:7077", False),
        ("spark://localhost.example.org:7077", False),
        ("yarn", False),
    ],
)
def test_loopback_only_where_nobody_else_takes_part(master: str, local: bool) -> None:
    assert SparkPlace(master=master).local is local


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else there(name)
    )
    with (
        pytest.raises(PipelineError, match=r"pyspark .*pip install 'ringcast\[spark\]'"),
        open_session(),
    ):
        pass


@pytest.mark.parametrize("found", ["3.5.6", "4.1.0", "4.2.0.dev1", "4.2.3"])
def test_an_older_pyspark_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "version", lambda name: found)
    with pytest.raises(PipelineError, match=f"PySpark {found} is installed, .* needs 4.3 or later"):
        session.require_spark()
    for later in ("4.3.0", "4.10.1", "5.0.0.dev2"):
        monkeypatch.setattr(session, "version", lambda name, later=later: later)
        session.require_spark()


def test_limits_for_python_workers_are_longer_than_sparks() -> None:
    set_to = session.settings_of(SparkPlace(master="local[1]"), 1, None)
    assert set_to["spark.python.authenticate.socketTimeout"] == "120s"


OLD = """
import sys
sys.modules["xxhash"] = None  # as after a plain pip install ringcast
import pyspark_ringcast
from pyspark.sql.datasource import DataSource
source = pyspark_ringcast.DefaultSource({})
assert isinstance(source, DataSource) and source.name() == "ringcast"
for call in (source.schema, lambda: source.writer(None, False)):
    try:
        call()
    except ImportError as error:
        print(error)
"""


def test_the_source_does_not_break_others_where_it_cannot_be_used() -> None:
    """Spark imports it before it uses any source written in Python."""
    done = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    for line in done.stdout.splitlines():
        assert line.startswith("format('ringcast') cannot be used") and "PySpark 4.3" in line
    assert len(done.stdout.splitlines()) == 2


def test_the_environment_of_a_cluster_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that the user chose for the executors stays; on this machine it must be ours."""
    monkeypatch.setattr(session, "java_home", lambda environ: "/java")
    chosen = {"PYSPARK_PYTHON": "/theirs/python"}
    far = session.environment_of(SparkPlace(master="yarn"), chosen)
    assert "PYSPARK_PYTHON" not in far and "SPARK_LOCAL_IP" not in far
    assert session.environment_of(SparkPlace(master="yarn"), {})["PYSPARK_PYTHON"]
    assert far["PYSPARK_DRIVER_PYTHON"] == sys.executable, "which looks for data sources here"
    near = session.environment_of(SparkPlace(master="local[1]"), chosen)
    assert near["PYSPARK_PYTHON"] != "/theirs/python" and near["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_server_that_is_not_there_is_noticed_at_once() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as open_:
        closed.bind(("127.0.0.1", 0))
        gone, there = (f"127.0.0.1:{each.getsockname()[1]}" for each in (closed, open_))
        session.require_answer(f"spark://{gone},{there}", 7077)
        session.require_answer(f"sc://{there}/;user_id=me", 15002)
        session.require_answer("sc://127.0.0.1", open_.getsockname()[1])
        for url in (f"spark://{gone}", f"sc://{gone}", "sc://127.0.0.1:port"):
            with pytest.raises(PipelineError, match=f"no Spark answers at {url} "):
                session.require_answer(url, 15002)


def test_a_jvm_has_room_for_the_code_of_many_queries() -> None:
    """With the first compiler alone it has 48 MB unless told; once they are full, it compiles
    no more."""
    assert "-XX:ReservedCodeCacheSize=" in session.JVM


def test_a_start_that_fails_names_the_log(tmp_path: Path) -> None:
    """A Java that tells its version and then cannot run stands for all that may go wrong."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-version) ;; *) echo "no memory" >&2; exit 3;; esac\n'
        f'echo "  java.home = {tmp_path}/java" >&2\n'
        'echo "  java.specification.version = 21" >&2\n'
    )
    java.chmod(0o755)
    program = "from ringcast.pipeline.spark.session import open_session\nopen_session().__enter__()"
    environ = os.environ | {"JAVA_HOME": str(tmp_path / "java"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert "PipelineError: Spark did not start at local[*,4] (" in told
    assert "no memory" in Path(told.rpartition("its log is ")[2]).read_text()


def test_the_end_of_a_dead_spark_does_not_hide_what_killed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dead:
        def stop(self) -> None:
            raise ConnectionRefusedError

    monkeypatch.setattr(session, "active_session", lambda: None)
    monkeypatch.setattr(session, "environment_of", lambda at, environ: {"JAVA_HOME": "/none"})
    monkeypatch.setattr(session, "launched", lambda at, cores, app: Dead())
    before = os.environ.get("JAVA_HOME")
    with pytest.raises(PipelineError, match="out of memory"), open_session():
        assert os.environ["JAVA_HOME"] == "/none"
        raise PipelineError("out of memory")
    assert os.environ.get("JAVA_HOME") == before


def test_a_session_that_is_open_is_taken_and_left_open(spark: SparkSession) -> None:
    with open_session() as taken:
        assert taken is spark
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session.active_session).result() is spark
    assert spark.range(3).count() == 3
    with pytest.raises(PipelineError, match="open already"), open_session(Where(master="local[1]")):
        pass

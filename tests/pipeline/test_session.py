"""Where a session runs, that it starts quietly, and that it leaves everything as it was."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pytest

from ringcast.pipeline import session
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.session import Place, Where, open_session, place

REMOTE = {"SPARK_REMOTE": "sc://there:15002"}
MASTER = {"SPARK_MASTER": "spark://there:7077"}


@pytest.mark.parametrize(
    ("where", "environ", "found"),
    [
        (Where(), {}, Place(master="local[*,4]")),
        (Where(cores=3), {}, Place(master="local[3,4]")),
        (Where(master="local[2]"), REMOTE, Place(master="local[2,4]")),
        (Where(master="local[2,1]"), {}, Place(master="local[2,1]")),
        (Where(), MASTER, Place(master="spark://there:7077")),
        (Where(), {**MASTER, **REMOTE}, Place(remote="sc://there:15002")),
        (Where(master="yarn"), REMOTE, Place(master="yarn")),
        (Where(remote="sc://here"), {**MASTER, **REMOTE}, Place(remote="sc://here")),
        (Where(), {"SPARK_REMOTE": "", "SPARK_MASTER": ""}, Place(master="local[*,4]")),
    ],
)
def test_options_win_over_the_environment(
    where: Where, environ: Mapping[str, str], found: Place
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
    assert Place(master=master).local is local


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


def test_the_environment_of_a_cluster_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that the user chose for the executors stays; on this machine it must be ours."""
    monkeypatch.setattr(session, "java_home", lambda environ: "/java")
    chosen = {"PYSPARK_PYTHON": "/theirs/python"}
    far = session.environment_of(Place(master="yarn"), chosen)
    assert "PYSPARK_PYTHON" not in far and "SPARK_LOCAL_IP" not in far
    assert session.environment_of(Place(master="yarn"), {})["PYSPARK_PYTHON"]
    near = session.environment_of(Place(master="local[1]"), chosen)
    assert near["PYSPARK_PYTHON"] != "/theirs/python" and near["SPARK_LOCAL_IP"] == "127.0.0.1"

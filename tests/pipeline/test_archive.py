"""The archive of Spark's classes: which one is whose, and when it is made or used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringcast.pipeline.spark.archive import (
    KEPT,
    MAGIC,
    class_archive,
    is_whole,
    using,
    using_or_making,
)
from ringcast.pipeline.spark.java import java_home
from ringcast.pipeline.spark.session import spark_home


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """A Java, a Spark and an environment, as far as it matters here."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
    (java / "release").write_text('IMPLEMENTOR="us"\nJAVA_VERSION="17.0.15"\n')
    (spark / "jars").mkdir(parents=True)
    return java, spark, {"XDG_CACHE_HOME": str(tmp_path / "a cache")}


def test_it_is_made_once_and_then_used(installed: tuple[Path, Path, dict[str, str]]) -> None:
    archive = class_archive(*installed)
    assert archive is not None and not archive.parent.exists()
    assert using(archive) == ""
    assert using_or_making(archive) == f" -XX:ArchiveClassesAtExit='{archive}'"
    archive.write_bytes(bytes(8))  # the JVM writes the head last, and this one did not come so far
    assert using(archive) == "" and "AtExit" in using_or_making(archive)
    archive.write_bytes(MAGIC[1] + bytes(8))
    assert using(archive) == using_or_making(archive) == f" -XX:SharedArchiveFile='{archive}'"


def test_another_java_or_spark_has_another(installed: tuple[Path, Path, dict[str, str]]) -> None:
    java, spark, environ = installed
    names = {class_archive(*installed)}
    for changed in (java / "release", spark / "jars"):
        os.utime(changed, ns=(1, 1))
        names.add(class_archive(java, spark, environ))
    assert len(names) == 3


def test_a_new_java_makes_another_kind(installed: tuple[Path, Path, dict[str, str]]) -> None:
    """It needs no archive of Java's own classes, which the wheel's Java has not got."""
    java, spark, environ = installed
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert class_archive(java, spark, environ) is None
    (java / "release").write_text('JAVA_VERSION="25.0.2"\n')
    archive = class_archive(java, spark, environ)
    assert archive is not None
    assert using_or_making(archive) == f" -XX:AOTCacheOutput='{archive}'"
    archive.write_bytes(MAGIC[0] + bytes(8))
    assert using_or_making(archive) == f" -XX:AOTCache='{archive}'"


def test_where_there_can_be_none(installed: tuple[Path, Path, dict[str, str]]) -> None:
    java, spark, environ = installed
    assert class_archive(java, spark, environ | {"SPARK_CONF_DIR": "/theirs"}) is None
    (spark / "conf").mkdir()
    assert class_archive(java, spark, environ) is None
    (spark / "conf").rmdir()
    (java / "release").unlink()
    assert class_archive(java, spark, environ) is None
    assert using(None) == using_or_making(None) == ""


def test_old_ones_go(installed: tuple[Path, Path, dict[str, str]]) -> None:
    archive = class_archive(*installed)
    assert archive is not None
    archive.parent.mkdir(parents=True)
    for age in range(KEPT + 2):
        old = archive.with_name(f"spark-{age}.jsa")
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    using_or_making(archive)
    assert sorted(path.name for path in archive.parent.iterdir()) == ["spark-0.jsa", "spark-1.jsa"]


def test_a_cache_that_cannot_be_written_is_done_without(
    installed: tuple[Path, Path, dict[str, str]], tmp_path: Path
) -> None:
    java, spark, _ = installed
    (tmp_path / "file").touch()
    archive = class_archive(java, spark, {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert using_or_making(archive) == ""


def test_the_first_session_makes_it(first_session: None) -> None:
    """Whether a JVM takes it is a matter of time alone: half of its start."""
    archive = class_archive(java_home(os.environ), spark_home(), os.environ)
    assert archive is None or is_whole(archive)

"""Spark's classes as the JVM likes them: loading and checking them is most of a start's work.

A JVM can write the classes it has loaded into a file when it ends, and later ones map that file
in place of reading jars: half of the processor time of a short job. The first session on a machine
leaves such a file in the user's cache, all later ones use it. It can be deleted at any time. A JVM
that finds the file unfit goes on without it, so nothing depends on it but the time.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringcast.pipeline.spark.java import cache_folder

ALONE = 25
"""From this version of Java on, an archive needs no other below it."""

OPTIONS = {
    ".aot": ("-XX:AOTCache", "-XX:AOTCacheOutput"),
    ".jsa": ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"),
}
"""By the kind of archive: the JVM's options to use it, and to make it at the end."""

MAGIC = tuple(word.to_bytes(4, "little") for word in (0xF00BABA2, 0xF00BABA8))
"""How a whole archive begins; the JVM writes its head last."""

KEPT = 2
"""Archives of other Javas or Sparks that stay; each takes some 170 MB."""


def class_archive(java: Path, spark: Path, environ: Mapping[str, str]) -> Path | None:
    """Where the archive for this Java and this Spark is, or will be; None if there can be none.

    The name changes when either is installed anew. A folder with the user's settings among the
    jars rules it out.
    """
    release, jars = java / "release", spark / "jars"
    if environ.get("SPARK_CONF_DIR") or (spark / "conf").exists() or not release.exists():
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', release.read_text("utf-8"), re.MULTILINE)
    kind = ".aot" if version and int(version[1]) >= ALONE else ".jsa"
    if kind == ".jsa" and not (java / "lib" / "server" / "classes.jsa").exists():
        return None
    told = [(str(path.resolve()), path.stat().st_mtime_ns) for path in (release, jars)]
    name = hashlib.sha256(repr(told).encode()).hexdigest()[:12]
    return cache_folder(environ) / f"spark-{name}{kind}"


def is_whole(archive: Path) -> bool:
    """Whether it can be used: not missing, and not left half written."""
    try:
        with archive.open("rb") as file:
            return file.read(4) in MAGIC
    except OSError:
        return False


def using(archive: Path | None) -> str:
    """The JVM's option to use the archive, if it is there."""
    if archive is None or not is_whole(archive):
        return ""
    return f" {OPTIONS[archive.suffix][0]}={shlex.quote(str(archive))}"


def using_or_making(archive: Path | None) -> str:
    """The JVM's option to use the archive, or else to make it at its end."""
    if archive is None or is_whole(archive):
        return using(archive)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    others = sorted(archive.parent.glob("spark-*.*"), key=lambda path: path.stat().st_mtime)
    for old in others[:-KEPT]:
        with suppress(OSError):
            old.unlink()
    return f" {OPTIONS[archive.suffix][1]}={shlex.quote(str(archive))}"

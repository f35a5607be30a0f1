"""Spark's classes as the JVM likes them: loading and checking them is most of a start's work.

A JVM can write the classes it has loaded into a file when it ends, and later ones map that file
in place of reading jars: half of the processor time of a short job. The first session on a machine
leaves such a file in the user's cache, all later ones use it. It can be deleted at any time. A JVM
that finds the file unfit goes on without it, so nothing depends on it but the time.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringcast.pipeline.java import cache_folder

MAGIC = (0xF00BABA8).to_bytes(4, "little")
"""How a whole archive begins; the JVM writes its head last."""

KEPT = 2
"""Archives of other Javas or Sparks that stay; each takes some 160 MB."""


def class_archive(java: Path, spark: Path, environ: Mapping[str, str]) -> Path | None:
    """Where the archive for this Java and this Spark is, or will be; None if there can be none.

    The name changes when either is installed anew. A Java without an archive of its own classes
    cannot have a second one, and a folder with the user's settings among the jars rules it out.
    """
    base, jars = java / "lib" / "server" / "classes.jsa", spark / "jars"
    if environ.get("SPARK_CONF_DIR") or (spark / "conf").exists() or not base.exists():
        return None
    told = [(str(path), path.stat().st_mtime_ns) for path in (base, jars)]
    return (
        cache_folder(environ) / f"spark-{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}.jsa"
    )


def is_whole(archive: Path) -> bool:
    """Whether it can be used: not missing, and not left half written."""
    try:
        with archive.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def using(archive: Path | None) -> str:
    """The JVM's option to use the archive, if it is there."""
    if archive is None or not is_whole(archive):
        return ""
    return f" -XX:SharedArchiveFile={shlex.quote(str(archive))}"


def using_or_making(archive: Path | None) -> str:
    """The JVM's option to use the archive, or else to make it at its end."""
    if archive is None or is_whole(archive):
        return using(archive)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    others = sorted(archive.parent.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
    for old in others[:-KEPT]:
        with suppress(OSError):
            old.unlink()
    return f" -XX:ArchiveClassesAtExit={shlex.quote(str(archive))}"

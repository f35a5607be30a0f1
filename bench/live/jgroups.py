"""JGroups 2.12, as Debian packages it: the stack with SEQUENCER that comes with it, over UDP."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from ringcast.bench.bridge import Bridge
from ringcast.bench.run import Crew, Failed, Figures, Trial, measure

JAR = Path("/usr/share/java/jgroups.jar")
STACK = "sequencer.xml"
TRIES = 3
"""Once in a while members that start together do not find each other."""

WARM_S = 10.0
"""By then the hot methods are compiled: after 3 s it is slower by a fifth."""

FLIGHT = 64
"""Messages of a sender under way with which it is fastest; with 1024 it orders a third as many."""


def obstacle() -> str:
    """Why JGroups cannot be measured here, or nothing."""
    if not JAR.exists():
        return "JGroups is not installed (package libjgroups-java)"
    return "" if shutil.which("javac") else "javac is needed (package openjdk-17-jdk-headless)"


class JGroups:
    """Groups on a bridge, each of JVMs started for one measurement; use it with ``with``."""

    def __init__(self, network: Bridge) -> None:
        self._network = network
        self._undo = ExitStack()
        self._folder = Path()

    def __enter__(self) -> JGroups:
        with ExitStack() as undo:
            folder = tempfile.TemporaryDirectory(prefix="ringcast-jgroups-")
            self._folder = Path(undo.enter_context(folder))
            source = Path(__file__).with_name("Sequenced.java")
            subprocess.run(["javac", "-nowarn", "-cp", JAR, "-d", self._folder, source], check=True)
            with zipfile.ZipFile(JAR) as jar:
                stack = jar.read(STACK).decode()
            stack = re.sub(r'xsi:schemaLocation="[^"]*"', "", stack)  # or it is asked for online
            stack = stack.replace('print_local_addr="true"', 'print_local_addr="false"')
            (self._folder / "bundling.xml").write_text(stack, "utf-8")
            alone = stack.replace('enable_bundling="true"', 'enable_bundling="false"')
            (self._folder / "unbundled.xml").write_text(alone, "utf-8")
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def run(self, trial: Trial, bundling: bool) -> Figures:
        """The same measurement as ``bench_run.run``. Bundling, the default of the stack, lets
        messages wait up to 30 ms for company; without it each leaves at once."""
        trial = replace(trial, warm_s=max(trial.warm_s, WARM_S))
        senders = trial.nodes if trial.senders is None else trial.senders
        flight = trial.flight or FLIGHT
        words = (trial.nodes, senders, trial.size, trial.rate, flight, trial.warm_s, trial.seconds)
        stack = self._folder / ("bundling.xml" if bundling else "unbundled.xml")
        commands = {
            id: [
                *self._network.inside(id - 1),
                "java", "-Xmx512m", "-Djava.net.preferIPv4Stack=true",
                f"-Djgroups.bind_addr={self._network.address(id - 1)}",
                "-cp", f"{self._folder}:{JAR}", "Sequenced", str(stack), str(id), *map(str, words),
            ]
            for id in range(1, trial.nodes + 1)
        }  # fmt: skip
        for _ in range(TRIES):
            try:
                with Crew(commands, self._folder / "errors") as crew:
                    return measure(trial, crew, crew.lose)
            except Failed as error:
                why = error
        raise why

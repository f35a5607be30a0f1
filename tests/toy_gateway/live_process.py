"""A process of a live test: what it is told, and what it has printed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from ringcast.sim.batch import end_with

PROGRAM = Path(__file__).with_name("member.py")

DEADLINE_S = 120.0
"""For everything that is waited for: far more than it takes, so that only a defect exceeds it."""


class Process:
    """A member, over all its incarnations, and what it has printed."""

    def __init__(self, folder: Path, name: str, settings: str, program: Path = PROGRAM) -> None:
        self._program = program
        self._config = folder / f"{name}.toml"
        self._config.write_text(settings)
        self._said = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._said.open("a") as said, self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(self._program), str(self._config)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=errors,
                text=True,
                preexec_fn=partial(end_with, os.getpid()),
            )

    def submit(self, bodies: list[str]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write("".join(f"{body}\n" for body in bodies))
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _lines(self, word: str) -> list[str]:
        text = self._said.read_text()
        whole = text[: text.rfind("\n") + 1]  # it may be in the middle of a line
        return [line.partition(" ")[2] for line in whole.splitlines() if line.startswith(word)]

    @property
    def delivered(self) -> list[str]:
        return self._lines("deliver ")

    @property
    def rings(self) -> list[tuple[int, ...]]:
        """All configurations."""
        return [tuple(map(int, line.split())) for line in self._lines("view ")]

    @property
    def ring(self) -> tuple[int, ...]:
        """The last one."""
        return (self.rings or [()])[-1]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

"""A story told while it happens: lines, with a table below them on a terminal, and the group of
live members that it is about."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group as Stack
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ringcast.console.output import console, say
from ringcast.core.errors import RingcastError
from ringcast.members.process import Band

REFRESH_S = 0.2
SILENCE_S = 5.0
"""After so long without a word, a story tells what it waits for."""


class Late(RingcastError):
    """Something that had to happen did not, in good time."""


class Screen:
    """What happens, and who takes part: ``table`` is called for each look at them."""

    def __init__(self, table: Callable[[], Table], quiet: bool) -> None:
        self._table = table
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._lines: list[str] = []
        screen = console()
        self._live: Live | None = None
        if screen.is_terminal and not quiet:
            self._live = Live(console=screen, auto_refresh=False, transient=True)
            self._live.start()

    def say(self, text: str) -> None:
        """What happens now."""
        line = f"{time.monotonic() - self._began_s:5.1f} s  {text}"
        self._lines.append(line)
        if self._live is None and not self._quiet:
            say(escape(line))

    def refresh(self) -> None:
        """Show the members as they are."""
        if self._live is not None:
            self._live.update(Stack(*map(escape, self._lines), self._table()), refresh=True)

    def close(self) -> None:
        """Leave the lines standing, without the table."""
        if self._live is not None:
            self._live.stop()
            for line in self._lines:
                say(escape(line))


class Stage:
    """Live members, and waiting for what they do."""

    def __init__(self, band: Band, screen: Screen, patience_s: float, work_s: float) -> None:
        self.band, self.screen = band, screen
        self.patience_s, self._work_s = patience_s, work_s

    def until(self, what: str, done: Callable[[], bool], how: Callable[[], str] = str) -> None:
        """Wait, and tell from time to time what for, and ``how`` it goes; too long is the end of
        the story."""
        began_s = told_s = time.monotonic()
        while not self.band.until(done, REFRESH_S):
            self.screen.refresh()
            gone = [m for m in self.band.members.values() if m.stopped]
            if gone:
                raise Late(f"member {gone[0].id} stopped: {gone[0].errors.strip()}")
            now_s = time.monotonic()
            if now_s > began_s + self.patience_s:
                raise Late(f"{what}: not within {self.patience_s:.0f} s")
            if now_s > told_s + SILENCE_S:
                self.screen.say(": ".join(filter(None, (f"waiting for {what}", how()))))
                told_s = now_s

    def work(self) -> None:
        """Let some time pass."""
        end_s = time.monotonic() + self._work_s
        while time.monotonic() < end_s:
            self.band.listen(REFRESH_S)
            self.screen.refresh()

"""A story told while it happens: lines, with a table below them on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group as Stack
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ringcast.cli.output import console, say

REFRESH_S = 0.2


class Late(Exception):
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

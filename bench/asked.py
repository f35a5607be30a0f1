"""The command line of a benchmark with several parts, and where its results go."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from promises import PAGE, write_page
from record import write


class Command:
    """``--all`` and writes it down, ``--quick``, or one part; how many rounds."""

    def __init__(
        self, doc: str | None, parts: Mapping[str, str], quick: str, rounds: int = 3
    ) -> None:
        self.parser = argparse.ArgumentParser(description=doc)
        self.choice = self.parser.add_mutually_exclusive_group(required=True)
        self.add("all", "everything, and write the results")
        self.add("quick", quick)
        for name, text in parts.items():
            self.add(name, text)
        self.parser.add_argument("--repeats", type=int, help=f"rounds ({rounds}; quick: 1)")
        self._parts, self._rounds = parts, rounds

    def add(self, name: str, text: str) -> None:
        """One more thing to choose."""
        self.choice.add_argument(f"--{name}", action="store_true", help=text)

    def parse(self) -> argparse.Namespace:
        """What was asked, with ``picked``, the names of the parts, and the number of rounds."""
        asked = self.parser.parse_args()
        asked.picked = {name for name in self._parts if getattr(asked, name)} or {*self._parts}
        asked.repeats = asked.repeats or (1 if asked.quick else self._rounds)
        return asked


def keep(name: str, script: str, figures: dict[str, Any], blocks: Mapping[str, str]) -> None:
    """Figures to ``results/name.json``, blocks of text to the page about performance."""
    file = write(name, figures)
    for block, text in blocks.items():
        write_page(block, script, text)
    print(f"\nwritten to {file.parent.name}/{file.name} and {PAGE.parent.name}/{PAGE.name}")

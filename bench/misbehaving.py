"""What each misbehaviour of a member costs the others, in every protocol, for docs/security.md.

``python bench/misbehaving.py`` plays all of ``tests/attacks/misbehaving.py`` in virtual time, so
that the same code gives the same figures, and writes them to ``bench/results``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/attacks", "tools", "bench")]

from misbehaving import DEEDS, LASTS_US, LIES, Group, N, usual  # noqa: E402
from published import PUBLISHED  # noqa: E402
from record import commit, write  # noqa: E402


def main() -> None:
    """All of them, one after the other."""
    sheets = [sheet for sheet in PUBLISHED if not sheet.fixed or sheet.swarm.crashes(N)]
    found: dict[str, dict[str, Any]] = {}
    for name, deed in DEEDS.items():
        after = 0.0 if name in LIES else 1.0
        found[name] = {
            sheet.name: Group(sheet, deed).play(after) | {"usual": usual(name, sheet.name)}
            for sheet in sheets
        }
        print(name, {p: (c["views"], c["after_ms"]) for p, c in found[name].items()}, flush=True)
    told = {"lasts_ms": LASTS_US // 1000, "members": N, "lies": LIES, "deeds": found}
    write("misbehaving", told | {"commit": commit()})


if __name__ == "__main__":
    main()

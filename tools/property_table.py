"""README's table of properties by protocol, from what the protocols' sheets claim."""

from __future__ import annotations

from pathlib import Path

from tags import ROOT

import ringcast.protocols  # noqa: F401  (fills the registry)
from ringcast.core.registry import protocols


def table() -> str:
    """One row a property, one column a protocol."""
    sheets = protocols()
    names = list(dict.fromkeys(claim for sheet in sheets for claim in sheet.claims))
    rows = [
        "| property | " + " | ".join(sheet.name for sheet in sheets) + " |",
        "| --- |" + " --- |" * len(sheets),
    ]
    for name in names:
        cells = ["yes" if name in sheet.claims else "" for sheet in sheets]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The marked block of README.md."""
    return {(ROOT / "README.md", "properties"): table()}

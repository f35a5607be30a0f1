"""Tables of properties, from the checks and from what the protocols' sheets claim."""

from __future__ import annotations

import sys
from pathlib import Path

from tags import ROOT

import ringcast.protocols  # noqa: F401  (fills the registry)
from ringcast.checks import PROPERTIES
from ringcast.core.registry import protocols


def claims_table(live: bool = True) -> str:
    """One row a property that is claimed with the module that checks it, one column a protocol or,
    if they differ, a profile; of those that nodes run, or of those that are only compared."""
    promised: dict[str, tuple[str, ...]] = {}
    for sheet in protocols():
        if sheet.live is not live:
            continue
        by_profile = {name: sheet.claims(config) for name, config in sheet.profiles.items()}
        if len(set(by_profile.values())) == 1:
            promised[sheet.name] = sheet.claims(sheet.default)
        else:
            promised |= {f"{sheet.name} {name}": claims for name, claims in by_profile.items()}
    rows = [
        "| property | | checked by | " + " | ".join(promised) + " |",
        "| --- | --- | --- |" + " --- |" * len(promised),
    ]
    for tag, kind in PROPERTIES.items():
        cells = ["yes" if tag in claims else "" for claims in promised.values()]
        if any(cells):
            module = kind.__module__.rpartition(".")[2]
            rows.append(f"| {tag} | {kind.title} | `{module}` | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def checks_table() -> str:
    """One row a property that can be checked: what it says, and where."""
    rows = ["| property | what it says | module |", "| --- | --- | --- |"]
    for tag, kind in PROPERTIES.items():
        module = sys.modules[kind.__module__]
        paragraph = " ".join((module.__doc__ or "").strip().partition("\n\n")[0].split())
        said = paragraph.partition(": ")[2].partition(". ")[0].rstrip(".")
        rows.append(f"| {tag} | {said} | `{module.__name__.rpartition('.')[2]}` |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The marked blocks of docs/protocols.md and docs/checks.md."""
    return {
        (ROOT / "docs" / "protocols.md", "properties"): claims_table(),
        (ROOT / "docs" / "protocols.md", "compared"): claims_table(live=False),
        (ROOT / "docs" / "checks.md", "checks"): checks_table(),
    }

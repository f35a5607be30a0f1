"""Writes the software bill of materials: ``sbom.py``; ``sbom.py --check`` only compares.

It lists what ``requirements-dev.lock`` pins as CycloneDX 1.5 in ``sbom.json``. The lock is the only
source, and has the hashes that pip insists on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK, BILL = ROOT / "requirements-dev.lock", ROOT / "sbom.json"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: *; *([^\\]*?))? *\\?$")
HASH = re.compile(r"^ +--hash=sha256:([0-9a-f]{64}) *\\?$")


def components(lock: str) -> list[dict[str, Any]]:
    """Each pinned package; ValueError if a line of the lock says something else."""
    found: list[dict[str, Any]] = []
    hashes: dict[str, int] = {}
    for number, line in enumerate(lock.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if pin := PIN.match(line):
            name, version = pin[1].lower().replace("_", "-"), pin[2]
            purl = f"pkg:pypi/{name}@{version}"
            found.append(
                {
                    "type": "library",
                    "bom-ref": purl,
                    "name": name,
                    "version": version,
                    "purl": purl,
                }
            )
            hashes[name] = 0
        elif HASH.match(line) and found:
            hashes[found[-1]["name"]] += 1
        else:
            raise ValueError(f"{LOCK.name}, line {number}: no package and no hash: {line!r}")
    bare = [name for name, count in hashes.items() if not count]
    if bare:
        raise ValueError(f"{LOCK.name}: without a hash: {', '.join(bare)}")
    return found


def bill() -> str:
    """The bill as it should be. No time and no serial number: it changes with the lock alone."""
    return (
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {"component": {"type": "library", "name": "ringcast"}},
                "components": components(LOCK.read_text("utf-8")),
            },
            indent=1,
        )
        + "\n"
    )


def main(check: bool) -> int:
    """Write the bill, or say that it is out of date."""
    text = bill()
    if check:
        if not BILL.exists() or BILL.read_text("utf-8") != text:
            print("sbom.json is out of date; run: make lock")
            return 1
        return 0
    BILL.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

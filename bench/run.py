"""Every benchmark, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = ("simulator.py", "machine.py")


def main() -> None:
    """Run them with this Python; the first that fails ends it."""
    for script in SCRIPTS:
        print(f"== bench/{script}", flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name(script)], check=True)
        print(flush=True)


if __name__ == "__main__":
    main()

"""The replicated objects under fire. ``python tests/examples/object_run.py 0 20`` runs more."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from object_run import ObjectRun


def test_what_clients_were_told_is_linearizable(tmp_path: Path) -> None:
    assert ObjectRun(0, tmp_path, faults=2).go() > 10

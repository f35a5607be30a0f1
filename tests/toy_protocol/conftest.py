"""Makes ``toy_primary`` importable, and known only to the tests beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringcast.core import registry
from ringcast.core.registry import Sheet

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "api")]


@pytest.fixture
def toy() -> Iterator[Sheet]:
    """The toy as importing it registers it; afterwards nobody knows it any more."""
    from toy_primary import SHEET

    registry.register(SHEET)
    yield SHEET
    del registry._sheets[SHEET.name]


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment of a command on a machine with a distribution that brings this module."""

    def environment(module: str) -> dict[str, str]:
        info = tmp_path / "site" / "ringcast_toy-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ringcast-toy\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[ringcast.protocols]\ntoy = {module}\n")
        paths = [str(info.parent), str(HERE), os.environ.get("PYTHONPATH", "")]
        return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    return environment

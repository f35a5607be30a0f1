"""What is released: a wheel that anybody can build again, and a list of what it is built with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import sbom  # noqa: E402


def built(place: Path, umask: int, time_s: int) -> tuple[str, bytes]:
    """A wheel from a copy of the sources, made with other times and rights: its name and bytes."""
    for name in ("src", "pyproject.toml", "README.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name)
        else:
            shutil.copy(source, place)
    for path in place.rglob("*"):
        os.utime(path, (time_s, time_s))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"],
        cwd=place, check=True, capture_output=True, umask=umask,
    )  # fmt: skip
    (wheel,) = (place / "out").iterdir()
    return wheel.name, wheel.read_bytes()


def test_two_builds_give_the_same_wheel(tmp_path: Path) -> None:
    one, other = tmp_path / "here", tmp_path / "elsewhere" / "deeper"
    one.mkdir()
    other.mkdir(parents=True)
    assert built(one, 0o022, 1_700_000_000) == built(other, 0o077, 1_800_000_000)


def test_another_source_gives_another_wheel(tmp_path: Path) -> None:
    """The comparison sees a single changed byte."""
    (tmp_path / "src" / "ringcast").mkdir(parents=True)
    found = []
    for text in ("1.0", "1.1"):
        (tmp_path / "src" / "ringcast" / "__init__.py").write_text(f'__version__ = "0"  # {text}\n')
        (tmp_path / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "ringcast"\nversion = "0"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["src/ringcast"]\n'
        )
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip
        found.append(next((tmp_path / "out").iterdir()).read_bytes())
    assert found[0] != found[1]


def test_the_bill_of_materials_is_that_of_the_lock() -> None:
    assert sbom.main(check=True) == 0, "run: make lock"
    listed = json.loads(sbom.BILL.read_text("utf-8"))["components"]
    pins = [line for line in sbom.LOCK.read_text("utf-8").splitlines() if "==" in line]
    assert len(listed) == len(pins) > 40


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("one==1.0 \\\n", "without a hash: one"),
        ("one>=1.0\n", "line 1: no package and no hash"),
        ("-e .\n", "line 1: no package and no hash"),
    ],
)
def test_a_lock_that_pins_too_little_is_seen(lock: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sbom.components(lock)


def test_what_is_installed_is_what_is_listed() -> None:
    """pip-audit asks a service on the network, so it cannot be part of this suite; that the list it
    would be given is the true one can be."""
    from importlib import metadata

    listed = {c["name"]: c["version"] for c in sbom.components(sbom.LOCK.read_text("utf-8"))}
    for name in ("msgspec", "cryptography", "pyspark", "pyarrow", "hatchling"):
        assert metadata.version(name) == listed[name]

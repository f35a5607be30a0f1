"""docs/security.md names a test for each promise: they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
NAMED = re.findall(r"`(test_\w+\.py)(?: -k (?:\"([^\"]+)\"|(\w+)))?`", PAGE)


def names(file: str) -> str:
    """The names of a file's tests; there is one file of the name, or they are taken together."""
    found = [*(ROOT / "tests").rglob(file)]
    assert found, f"no {file}"
    return " ".join(
        name for path in found for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    )


@pytest.mark.parametrize(("file", "several", "one"), sorted(set(NAMED)))
def test_each_test_that_is_named_is_there(file: str, several: str, one: str) -> None:
    for word in (several or one).split(" or "):
        assert word in names(file), f"{file} has no test with {word!r} in its name"


def test_many_are_named() -> None:
    assert len(set(NAMED)) > 25

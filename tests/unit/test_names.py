"""Public names are loaded when they are first used; nobody need know that."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["ringcast", "ringcast.testing"])
def test_a_prompt_completes_names_that_were_not_used_yet(module: str) -> None:
    asked = f"import {module} as m; print(*sorted(set(m.__all__) - set(dir(m))))"
    told = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    ).stdout
    assert told.strip() == ""


@pytest.mark.parametrize("module", ["ringcast", "ringcast.testing"])
def test_every_public_name_is_there(module: str) -> None:
    there = __import__(module, fromlist=["__all__"])
    assert all(getattr(there, name) is not None for name in there.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_this_name'"):
        there.nothing_of_this_name  # noqa: B018

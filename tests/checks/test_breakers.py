"""Every property of every protocol is broken by a wrong run that breaks nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from breakers import CLAIMED, COMPANIONS, PAGE, breaking, claiming, table

from ringcast.checks import PROPERTIES


@pytest.mark.parametrize(("protocol", "profile"), CLAIMED)
def test_every_claim_is_broken_by_itself(protocol: str, profile: str) -> None:
    """Or with the properties that say it in other words."""
    claims = sorted(CLAIMED[protocol, profile])
    assert not [tag for tag in claims if not breaking(tag, protocol, profile, COMPANIONS)]


def test_companions_are_needed() -> None:
    """For some profile no wrong run breaks the property without them."""
    for tag, companions in COMPANIONS.items():
        assert not all(breaking(tag, *which, {}) for which in claiming(tag)), tag
        assert companions.tags <= set(PROPERTIES)


def test_page_shows_the_table() -> None:
    assert f"\n{table()}\n" in PAGE.read_text("utf-8"), "run: python tests/checks/breakers.py"

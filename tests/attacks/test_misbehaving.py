"""What a member that has the key and does not do as it should costs the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from misbehaving import DEEDS, EXPENSIVE, LIES, Deed, Group, N, usual
from published import PUBLISHED

from ringcast.core.inputs import Received
from ringcast.core.registry import protocol

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NAMES = [sheet.name for sheet in PUBLISHED if not sheet.fixed or sheet.swarm.crashes(N)]
"""The others stop with their first member, whatever it does."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deed", [deed for deed in DEEDS if deed not in LIES])
def test_it_costs_a_change_and_a_bounded_time(deed: str, name: str) -> None:
    """The others deliver in one order, none of them ends, and when the culprit is gone they go on
    within the time in which their protocol promises progress."""
    cost = Group(protocol(name), DEEDS[deed]).play()
    assert (cost["stopped"], cost["orders"], cost["together"]) == ([], True, True), cost
    assert cost["views"] <= EXPENSIVE.get((deed, name), usual(deed, name)), cost


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("deed", LIES)
def test_lies_about_the_order_end_nobody_without_a_word(deed: str, name: str) -> None:
    """None of the protocols is Byzantine: docs/security.md says so. What a member stops for is an
    invariant that it found broken, and no defect."""
    cost = Group(protocol(name), DEEDS[deed]).play(after=0)
    assert all(reason.startswith("broken invariant") for reason in cost["stopped"]), cost


def test_the_page_names_them_all() -> None:
    page = PAGE.read_text("utf-8")
    assert [deed for deed in DEEDS if deed not in page] == []
    assert len(DEEDS) >= 30
    for deed, name in EXPENSIVE:
        assert re.search(rf"\| {deed} \| \*\*\d+ in {name}\*\* \|", page), (deed, name)


def test_it_is_seen_if_the_others_part() -> None:
    """The measure itself: a culprit that makes member 1 skip what it says."""

    def parts(group: Group, frame: Received, to: list[int]) -> list[tuple[int, int, Received]]:
        for member in (group.members[1],):
            member.delivered[-2:] = reversed(member.delivered[-2:])
        return [(0, each, frame) for each in to]

    assert not Group(protocol("totem"), Deed(parts)).play()["orders"]

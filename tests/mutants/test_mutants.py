"""The protocol itself passes the runs in which the checks catch a mutant.

That they do is in ``tests/pipeline/test_verify_mutants.py``, where each run is judged twice.
"""

from __future__ import annotations

import pytest
from catalogue import FAMILIES, MUTANTS, PAGE, Killer, killers, page, suits
from msgspec.structs import replace
from mutant import Mutant, run_mutated

from ringcast.core.registry import protocol, register
from ringcast.sim.run import run
from ringcast.sim.swarm import draw

KILLERS = killers()
SURVIVORS = [mutant for mutant in MUTANTS.values() if mutant.survives]
ANEW = "run: python tests/mutants/catalogue.py"


@pytest.mark.parametrize(
    "killer",
    {(killer.family, killer.seed): killer for killer in KILLERS.values()}.values(),
    ids=lambda killer: f"{killer.family} {killer.seed}",
)
def test_protocol_passes_the_same_runs(killer: Killer) -> None:
    assert not run(killer.spec()).violations


@pytest.mark.parametrize("mutant", SURVIVORS, ids=lambda mutant: mutant.name)
def test_survivor_still_goes_unnoticed(mutant: Mutant) -> None:
    """A check that learns to see one of these is good news, and the page should tell it."""
    for family, (make, seeds) in FAMILIES.items():
        if suits(family, mutant):
            assert not run_mutated(mutant, make(seeds[1])).violations, (
                f"{family} {seeds[1]}; {ANEW}"
            )


@pytest.mark.parametrize("seed", [1, 13])
def test_halves_of_a_cycle_that_meet_at_another_ring_lack_nothing(seed: int) -> None:
    """A4 ext, A7: a gateway refuses what another one brings that never told it where it leads. What
    it refused was once taken for the stream itself beyond, where the same came the other way."""
    assert not run(FAMILIES["totem-multi halved"][0](seed)).violations


def test_every_mutant_is_caught_or_a_known_survivor() -> None:
    assert KILLERS.keys() == MUTANTS.keys() - {mutant.name for mutant in SURVIVORS}


def test_page_shows_the_catalogue() -> None:
    assert PAGE.read_text("utf-8") == page(KILLERS), ANEW


@pytest.mark.parametrize(
    ("invariant", "name", "seed"),
    [
        ("I1", "first-turn-not-counted", 14),
        ("I2", "takes-a-token-from-anywhere", 1),
        ("I3", "token-not-learned-before-it-is-taken", 36),
        ("I4", "votes-for-nothing", 0),
        ("I5", "proposes-what-is-decided", 0),
        ("I6", "learns-in-an-order-of-its-own", 0),
        ("the decision after", "decides-with-f-votes", 0),
    ],
)
def test_every_invariant_of_tokens_is_broken_by_a_mutant(
    invariant: str, name: str, seed: int
) -> None:
    breach, *_ = run_mutated(MUTANTS[name], draw(seed, "token-fd")).violations
    assert (breach.property, invariant in breach.explanation) == ("token-path", True)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("votes-for-nothing", 209),
        ("voter-filters-a-proposal", 42),
        ("decides-with-f-votes", 12),
        ("votes-across-a-gap", 12),
    ],
)
def test_without_the_check_of_tokens_two_orders_come_of_it(name: str, seed: int) -> None:
    """token-path and content stop these runs early; left alone, members deliver in two orders."""
    sheet = protocol("token-fd")
    early = ("token-path", "content")
    left = tuple(claim for claim in sheet.claims(sheet.default) if claim not in early)
    register(replace(sheet, name="unwatched", claims=lambda config: left))
    spec = replace(draw(seed, "token-fd"), protocol="unwatched", swarm=False)
    (breach,) = run_mutated(MUTANTS[name], spec).violations
    assert "two orders" in breach.explanation
    assert not run(spec).violations

"""Every mutant with the run that catches it, and the page that shows them.

``python tests/mutants/catalogue.py`` looks for a new run where the known one has stopped
catching its mutant, and writes ``killers.json`` and ``docs/mutants.md`` anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import broken_compared
import broken_content
import broken_counter
import broken_membership
import broken_multi
import broken_multicast
import broken_order
import broken_rbp
import broken_recovery
import broken_token_fd
import broken_total
import literal_irbp
import literal_multi
import msgspec
from abandoned import abandoned
from broken_off import broken_off
from congested_rings import congested
from forgotten_rbp import bare, forgotten
from harsh import harsh
from joined_rings import addressed, crashing, grouped, halved, joined, overlapping, split, turned
from late_total import late, remerged
from lost_counter import lost, newcomer
from mutant import MUTANTS, Mutant, run_mutated
from parted_irbp import parted

from ringcast.sim.runfile import load
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw

__all__ = [
    "FAMILIES",
    "MUTANTS",
    "broken_compared",
    "broken_content",
    "broken_counter",
    "broken_membership",
    "broken_multi",
    "broken_multicast",
    "broken_order",
    "broken_rbp",
    "broken_recovery",
    "broken_token_fd",
    "broken_total",
    "literal_irbp",
    "literal_multi",
]

KILLERS = Path(__file__).with_name("killers.json")
PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"

SAVED = {
    spec.seed: spec
    for spec in map(
        load, sorted((PAGE.parents[1] / "tests" / "sim" / "regressions").glob("*.toml"))
    )
}
"""Runs that once showed a bug, by their seed."""

FAMILIES: dict[str, tuple[Callable[[int], RunSpec], tuple[int, ...]]] = {
    "swarm": (draw, tuple(range(300))),
    "harsh": (harsh, tuple(range(150))),
    "broken off": (broken_off, tuple(range(500))),
    "abandoned": (abandoned, tuple(range(20))),
    "regression": (SAVED.__getitem__, tuple(SAVED)),
    "token-fd": (lambda seed: draw(seed, "token-fd"), tuple(range(300))),
    "counter": (lambda seed: draw(seed, "counter"), tuple(range(300))),
    "counter lost": (lost, tuple(range(20))),
    "counter newcomer": (newcomer, tuple(range(40))),
    **{
        name: (partial(draw, name=name), tuple(range(60)))
        for name in ("centralised", "two-phase", "optimistic", "fast-message")
    },
    "rbp": (partial(draw, name="rbp"), tuple(range(150))),
    "irbp": (partial(draw, name="irbp"), tuple(range(60))),
    "irbp parted": (parted, tuple(range(20))),
    "rbp bare": (bare, tuple(range(40))),
    "rbp forgotten": (forgotten, tuple(range(40))),
    "total agreed": (lambda seed: draw(seed, "total", profile="agreed"), tuple(range(100))),
    "total uniform": (lambda seed: draw(seed, "total", profile="uniform"), tuple(range(100))),
    "total prefix": (lambda seed: draw(seed, "total", profile="prefix"), tuple(range(100))),
    "total late": (late, tuple(range(40))),
    "total remerged": (remerged, tuple(range(40))),
    "totem-multi joined": (joined, tuple(range(40))),
    "totem-multi addressed": (addressed, tuple(range(20))),
    "totem-multi grouped": (grouped, tuple(range(20))),
    "totem-multi crashing": (crashing, tuple(range(20))),
    "totem-multi overlapping": (overlapping, tuple(range(40))),
    "totem-multi split": (split, tuple(range(40))),
    "totem-multi turned": (turned, tuple(range(30))),
    "totem-multi halved": (halved, tuple(range(20))),
    "totem-multi congested": (congested, tuple(range(25))),
    "totem-multi drawn": (partial(draw, name="totem-multi"), tuple(range(20))),
}
"""Where to look for a run that catches a mutant: how to make it, and the seeds to try."""

HEAD = """# Mutants

Protocols, broken on purpose in one rule at a time, and the run in which a check notices. The same
run of the protocol as it is breaks nothing. `tests/mutants/` has the patches and the families of
runs: `counter`, `rbp`, `irbp`, `token-fd` and `total` with a mode draw anything for those
protocols;
`total late` and `total remerged` aim at the end of a view and at a merge, `counter lost` at
messages that go down with their sender, `counter newcomer` at the same while somebody is taken in,
`rbp bare` delivers what one member holds, and
`rbp forgotten` restarts a member that alone held a message with another; `irbp parted` makes a ring
small, and the other members go on; `centralised`,
`two-phase`, `optimistic` and `fast-message` are
machines that are there to be compared; `totem-multi joined` aims at gateways that fail,
`totem-multi addressed` at messages to some processors, `totem-multi grouped` at messages to groups,
`totem-multi crashing` at gateways that crash between these,
`totem-multi overlapping` at rings that change again before the network got over it, `totem-multi
split` at a ring that parts while its parts stay connected, `totem-multi turned` at one that heals
while another parts, `totem-multi halved` at halves of a cycle of six that meet at two rings, of
which one parts before its gateways have told, `totem-multi congested` at short queues, and
`totem-multi drawn` draws anything; the others are Totem's. `swarm` draws anything,
`harsh` interrupts recoveries at random, `broken off` aims at one moment of them, `abandoned` gives
the second stage less time than a token loss takes, `regression` is a saved run that once showed a
bug. `progress` and `no-crash` are checks of the simulator itself, the others
are the properties of the protocol. When a change of the protocol makes a run take another course,
`python tests/mutants/catalogue.py` looks for a new one and writes this page.

| mutant | breaks | what it does | caught by | run |
| --- | --- | --- | --- | --- |
"""

BLOCKS = """
## Blocks that have tests of their own

No protocol here is built on these two, so no swarm reaches them; a test breaks them in the place
that is named.

| mutant | breaks | what it does | what comes of it | test |
| --- | --- | --- | --- | --- |
| naive consensus | TF-10 TF-16 | Votes for whatever the token brings, also across a gap. | two \
members decide differently, for any number of votes | `tests/blocks/test_token_consensus.py` |
| the choice of ◇S2 as printed | TF-4 A1 | Does not ask whether the chosen member is thought \
correct. | a crashed member is trusted for ever, in 49 of 99 final states of seven members | \
`tests/blocks/test_trusted_pair.py` |
"""

SURVIVORS = """
## Not caught

Nothing notices these. Most cost time and no more, because another rule makes up for the one that
is broken.

| mutant | breaks | what it does | why nothing notices |
| --- | --- | --- | --- |
"""


class Killer(msgspec.Struct, frozen=True):
    """A run that catches a mutant, and the properties it breaks."""

    family: str
    seed: int
    breaks: tuple[str, ...]

    def spec(self) -> RunSpec:
        """The run."""
        return FAMILIES[self.family][0](self.seed)


def suits(family: str, mutant: Mutant) -> bool:
    """Whether runs of the family are of the mutant's protocol, which its rules tell."""
    others = {"CB-": "counter", "rbp ": "rbp", "irbp ": "irbp", "TF-": "token-fd"}
    others |= {"TL-": "total", "FL-": "total", "G-": "total"}
    others |= {name: name for name in ("centralised", "two-phase", "optimistic", "fast-message")}
    others["MR-"] = "totem-multi"
    for kind, protocol in others.items():
        if mutant.rules.startswith(kind):
            return family.startswith(protocol)
    return not family.startswith(tuple(others.values()))


def killers() -> dict[str, Killer]:
    """The known run for each mutant that is caught."""
    if not KILLERS.exists():
        return {}
    return msgspec.json.decode(KILLERS.read_bytes(), type=dict[str, Killer])


def catches(mutant: Mutant, family: str, seed: int) -> Killer | None:
    """The run as a killer, if it catches the mutant."""
    violations = run_mutated(mutant, FAMILIES[family][0](seed)).violations
    if not violations:
        return None
    return Killer(family, seed, tuple(violation.property for violation in violations))


def killer_of(mutant: Mutant, known: Killer | None) -> Killer | None:
    """The known run if it still catches the mutant, or else the first one that does.

    Runs that break a property are preferred to those that break an invariant of the code.
    """
    if known is not None and (killer := catches(mutant, known.family, known.seed)):
        return killer
    crash: Killer | None = None
    for family, (_, seeds) in FAMILIES.items():
        if not suits(family, mutant):
            continue
        for seed in seeds:
            killer = catches(mutant, family, seed)
            if killer is not None and killer.breaks[0] != "no-crash":
                return killer
            crash = crash or killer
        if crash is not None:
            return crash
    return None


def page(known: dict[str, Killer]) -> str:
    """The table of mutants."""
    text = HEAD
    for name, killer in known.items():
        mutant = MUTANTS[name]
        run = f"{killer.family} {killer.seed}"
        breaks = ", ".join(killer.breaks)
        text += f"| {name} | {mutant.rules} | {mutant.what} | {breaks} | {run} |\n"
    text += BLOCKS + SURVIVORS
    for mutant in MUTANTS.values():
        if mutant.survives:
            text += f"| {mutant.name} | {mutant.rules} | {mutant.what} | {mutant.survives} |\n"
    return text


def main() -> int:
    """Bring runs and page up to date; 1 if a mutant is not caught any more."""
    known = killers()
    found: dict[str, Killer] = {}
    for mutant in MUTANTS.values():
        if mutant.survives:
            continue
        killer = killer_of(mutant, known.get(mutant.name))
        print(f"{mutant.name}: {killer or 'NOT CAUGHT'}", flush=True)
        if killer is not None:
            found[mutant.name] = killer
    KILLERS.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    PAGE.write_text(page(found), "utf-8")
    return int(len(found) < sum(1 for mutant in MUTANTS.values() if not mutant.survives))


if __name__ == "__main__":
    sys.exit(main())

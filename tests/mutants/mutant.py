"""What a mutant is: a rule of the protocol, and a patch that breaks it.

Functions of the protocol's modules call each other through their modules, so replacing a
module's attribute breaks the rule everywhere. Handlers sit in the dispatch table as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pytest import MonkeyPatch

from ringcast.core.machine import Handler, Key
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.protocols.totem_single.state import Phase
from ringcast.sim.run import RunResult, run
from ringcast.sim.spec import RunSpec

Patch = Callable[[MonkeyPatch], None]


class Mutant(msgspec.Struct, frozen=True):
    """One way to get the protocol wrong."""

    name: str
    rules: str
    """The rules and resolutions it breaks."""
    what: str
    """What it does wrong, in one sentence."""
    caught_by: tuple[str, ...]
    """Properties that may notice; ``progress`` and ``no-crash`` are the simulator's own."""
    patch: Patch
    survives: str = ""
    """Why nothing notices it, if nothing does."""


MUTANTS: dict[str, Mutant] = {}
"""Every mutant, by name."""


def mutant(rules: str, *caught_by: str, survives: str = "") -> Callable[[Patch], Patch]:
    """Put a patch into the catalogue; its docstring says what goes wrong."""

    def enter(patch: Patch) -> Patch:
        name = patch.__name__.replace("_", "-")
        what = " ".join((patch.__doc__ or "").split())
        assert what and name not in MUTANTS and bool(caught_by) != bool(survives)
        MUTANTS[name] = Mutant(name, rules, what, caught_by, patch, survives)
        return patch

    return enter


def handle(patch: MonkeyPatch, phases: Phase | tuple[Phase, ...], key: Key, act: Handler) -> None:
    """Replace the handler of an input in one phase or several."""
    for phase in phases if isinstance(phases, tuple) else (phases,):
        patch.setitem(TotemSingle.table.rows[phase], key, act)


def after(patch: MonkeyPatch, owner: Any, name: str, spoil: Callable[..., Any]) -> None:
    """Let ``spoil`` run after ``owner.name``, with its result first, and decide the result."""
    whole = getattr(owner, name)
    patch.setattr(owner, name, lambda *args: spoil(whole(*args), *args))


def run_mutated(mutant: Mutant, spec: RunSpec) -> RunResult:
    """A run of the broken protocol."""
    with MonkeyPatch.context() as patch:
        mutant.patch(patch)
        return run(spec)

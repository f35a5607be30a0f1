"""Every protocol, with one member that hands up or sends something else than it was given.

They break no rule of the order itself: places ascend without a gap. Only what stands at a place is
wrong, so a check that compares places sees nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.core.effects import Deliver, PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.core.inputs import Input, Submitted
from ringcast.core.machine import Machine
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.irbp.machine import Irbp
from ringcast.protocols.rbp.machine import Rbp
from ringcast.protocols.token_fd.machine import TokenFd
from ringcast.protocols.total.machine import Total
from ringcast.protocols.totem_multi.machine import TotemMulti
from ringcast.protocols.totem_single.machine import TotemSingle

WRONG = 2
"""The member that does so."""

PROTOCOLS: dict[str, tuple[type[Machine], str, str]] = {
    "totem": (TotemSingle, "R24", "content"),
    "total": (Total, "TL-12", "content"),
    "token-fd": (TokenFd, "TF-24", "content"),
    "counter": (CounterBased, "CB-20", "content"),
    "rbp": (Rbp, "rbp R13", "content"),
    "irbp": (Irbp, "irbp R13", "content"),
    "totem-multi": (TotemMulti, "MR-14", "P-6"),
}
"""The machine, the rule that delivers, and which property compares two members."""

Change = Callable[[list[PackedMessages]], list[PackedMessages]]


def alters_a_body(batches: list[PackedMessages]) -> list[PackedMessages]:
    """Hands up another body than was sent, where it is not its own."""
    return [
        batch if batch.sender == WRONG else replace(batch, bodies=(b"?", *batch.bodies[1:]))
        for batch in batches
    ]


def re_sorts_what_it_delivers(batches: list[PackedMessages]) -> list[PackedMessages]:
    """Hands up what becomes deliverable at once in an order of its own, at the right places."""
    places = [(batch.ring, batch.seq) for batch in batches]
    own = sorted(batches, key=lambda batch: (batch.sender, batch.first), reverse=True)
    return [
        replace(batch, ring=ring, seq=seq) for batch, (ring, seq) in zip(own, places, strict=True)
    ]


def drops_one_message_of_a_frame(batches: list[PackedMessages]) -> list[PackedMessages]:
    """Hands up a frame of several messages without the last one."""
    return [
        replace(batch, bodies=batch.bodies[: max(1, len(batch.bodies) - 1)]) for batch in batches
    ]


def changes_a_level(batches: list[PackedMessages]) -> list[PackedMessages]:
    """Tells the application another level than the sender asked for."""
    return [replace(batch, level=Level(1 - batch.level)) for batch in batches]


def _sends_another_body(machine: type[Machine]) -> Callable[[MonkeyPatch], None]:
    whole = machine.handle

    def handle(p: Machine, env: Env, event: Input) -> None:
        if isinstance(event, Submitted) and env.me == WRONG:
            event = replace(event, bodies=tuple(b"!" for _ in event.bodies))
        whole(p, env, event)

    def patch(monkeypatch: MonkeyPatch) -> None:
        """Broadcasts another body than its application submitted."""
        monkeypatch.setattr(machine, "handle", handle)

    return patch


def _patch(machine: type[Machine], change: Change) -> Callable[[MonkeyPatch], None]:
    whole = machine.handle

    def handle(p: Machine, env: Env, event: Input) -> None:
        whole(p, env, event)
        at = [k for k, effect in enumerate(env.effects) if isinstance(effect, Deliver)]
        if at and env.me == WRONG:
            told = [env.effects[k] for k in at]
            changed = change([effect.batch for effect in told if isinstance(effect, Deliver)])
            for k, effect, batch in zip(at, told, changed, strict=True):
                env.effects[k] = replace(effect, batch=batch)

    def patch(monkeypatch: MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "handle", handle)

    return patch


for name, (machine, rule, compares) in PROTOCOLS.items():
    for change in (
        alters_a_body,
        re_sorts_what_it_delivers,
        drops_one_message_of_a_frame,
        changes_a_level,
    ):
        patch = _patch(machine, change)
        patch.__name__ = f"{name}_{change.__name__}"
        patch.__doc__ = change.__doc__
        fifo = ("fifo",) if change is re_sorts_what_it_delivers else ()
        mutant(rule, compares, *fifo)(patch)
    patch = _sends_another_body(machine)
    patch.__name__ = f"{name}_sends_another_body"
    mutant(rule, "content")(patch)

"""The stepping stones to RBP under names of their own: ``ring figure-2``, ``-5`` and ``-12``."""

from __future__ import annotations

from ringcast.core.registry import MembershipKind, Sheet, register
from ringcast.protocols.rbp import stones


def _sheet(name: str, make: type[stones.Stone], claims: tuple[str, ...]) -> Sheet:
    return register(
        Sheet(
            name=name,
            source="Barchet-Estefanel",
            config=stones.Settings,
            make=lambda me, config: make(me, config),
            claims=lambda config: claims,
            profiles={"plain": stones.Settings()},
            messages=stones.MESSAGES,
            progress_bound_us=lambda config, n: 1_000_000,
            membership=MembershipKind.FIXED,
        )
    )


FIGURE_2 = _sheet("figure-2", stones.FullHistory, ("integrity", "validity"))
FIGURE_5 = _sheet("figure-5", stones.HistoryOfIds, ("integrity", "validity"))
FIGURE_12 = _sheet("figure-12", stones.MovingSequencer, ("integrity", "validity", "total-order"))

"""What a machine owes with each view: nobody goes without a departure (``InstallView``).

Traces do not hold departures, so no property can see them. The simulator looks at the effects.
"""

from __future__ import annotations

from ringcast.core.effects import InstallView
from ringcast.core.ids import NodeId


class ViewContract:
    """The views of one incarnation, one after the other."""

    def __init__(self) -> None:
        self._members: frozenset[NodeId] = frozenset()

    def broken_by(self, change: InstallView) -> str:
        """How ``change`` breaks the contract, or nothing."""
        before, self._members = self._members, frozenset(change.members)
        named = [departure.member for departure in change.departures]
        unnamed = sorted(before - self._members - set(named))
        if unnamed:
            return f"view {change.view} leaves out {unnamed} and names no departure"
        if len(set(named)) < len(named) or not before.issuperset(named):
            return f"view {change.view} names departures {named} after members {sorted(before)}"
        unjudged = [each.member for each in change.departures if not each.judged_by]
        if unjudged:
            return f"view {change.view} does not say what {unjudged} were judged by"
        return ""

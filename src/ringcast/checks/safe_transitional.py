"""D11 safe(T): a safe message delivered in a transitional configuration reaches its members.

``del(p,m,T)`` with m safe, originated in C, T after C, means that every q in T delivers m inside
its span of C (in C, in T, or in a smaller transitional configuration, F4.16), or crashes first.
"""

from __future__ import annotations

from ringcast.checks.safe_regular import SafeRegular


class SafeTransitional(SafeRegular):
    """D11: the promise is made to the members of T instead of those of C."""

    tag = "D11"
    title = "safe in a transitional configuration"
    transitional = True

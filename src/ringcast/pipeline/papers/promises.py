"""Promises: what a weaker setting breaks of what the protocol claims by default.

A protocol claims less where its settings are weaker, so that a run at such a setting violates
nothing. Here it is held to all that it claims by default, and what it breaks of that is counted.
"""

from __future__ import annotations

import msgspec

from ringcast.checks import suite
from ringcast.core.registry import protocol
from ringcast.pipeline.papers.availability import run_to_rest
from ringcast.sim.spec import RunSpec


class Promises(msgspec.Struct, frozen=True):
    """What came of a run."""

    broken: int
    """Properties that it violated, of those that the protocol's default profile claims."""
    stopped: int
    """Processors that are not up at the end."""


def promises(spec: RunSpec) -> Promises:
    """Run ``spec`` and check it against what the protocol claims by default."""
    sheet = protocol(spec.protocol)
    default = sheet.for_group(sheet.default, spec.ids)
    checks = suite(sheet.claims(default), sheet.progress_bound_us(default, spec.nodes))
    cluster = run_to_rest(spec, checks.feed)
    broken = {violation.property for violation in checks.violations}
    return Promises(len(broken), spec.nodes - len(cluster.up()))

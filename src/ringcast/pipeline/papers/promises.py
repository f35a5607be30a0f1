"""Promises: what a weaker setting breaks of what the protocol claims by default.

A protocol claims less where its settings are weaker, so that a run at such a setting violates
nothing. Here it is held to all that it claims by default, and what it breaks of that is counted.
"""

from __future__ import annotations

import msgspec

from ringcast.checks import suite
from ringcast.pipeline.papers.availability import REST_US
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.spec import RunSpec, prepare


class Promises(msgspec.Struct, frozen=True):
    """What came of a run."""

    broken: int
    """Properties that it violated, of those that the protocol's default profile claims."""
    stopped: int
    """Processors that are not up at the end."""


def promises(spec: RunSpec) -> Promises:
    """Carry ``spec`` out, let it come to rest, and compare it with the default's claims."""
    setup = prepare(spec)
    sheet = setup.sheet
    default = sheet.for_group(sheet.default, spec.ids)
    checks = suite(sheet.claims(default), sheet.progress_bound_us(default, spec.nodes))
    cluster = Cluster(sheet, setup.config, spec.ids, setup.model, spec.seed, [checks.feed])
    schedule(spec.faults, cluster)
    cluster.start()
    loads = workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    for load in loads:
        load.stop()
    cluster.calm()
    cluster.run_for(REST_US)
    broken = {violation.property for violation in checks.violations}
    return Promises(len(broken), spec.nodes - len(cluster.up()))

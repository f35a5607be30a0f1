"""Running ahead of ordinary processes, for groups whose latency or failover matters.

Waking a receiver is when a sender loses its processor: on a busy machine that, not the work,
makes most of the latency of a message (docs/performance.md has the figures).
"""

from __future__ import annotations

import os
import sys

from ringcast.core.errors import ConfigError

LOWEST = 1
"""Ahead of every ordinary process, behind everything else of this kind."""


class Priority:
    """The scheduling of this process, put back by ``restore``."""

    def __init__(self) -> None:
        if not hasattr(os, "sched_setscheduler"):
            raise ConfigError(f"realtime = true is not possible on {sys.platform}; leave it out")
        self._before = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            # Processes that this one starts are ordinary again.
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(LOWEST))
        except PermissionError:
            raise ConfigError(
                "realtime = true is not permitted to this process; give it CAP_SYS_NICE or a "
                "limit on rtprio of at least 1 ('ulimit -r'), or leave it out"
            ) from None

    def restore(self) -> None:
        """As it was before."""
        os.sched_setscheduler(0, *self._before)

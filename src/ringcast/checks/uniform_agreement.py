"""uniform-agreement: if any processor delivers a message, every correct processor does.

Even one that crashed right after delivering counts. Meant for protocols with a fixed group.
"""

from __future__ import annotations

from ringcast.checks.agreement import Agreement


class UniformAgreement(Agreement):
    """What anyone delivered, all correct processors deliver."""

    tag = "uniform-agreement"
    title = "agreement with the crashed as well"
    uniform = True

"""The Totem single-ring protocol: total order, agreed and safe delivery, and EVS.

EVS is extended virtual synchrony: the services of chapter 3.

Source    D. A. Agarwal, *Totem: A Reliable Ordered Delivery Protocol for Interconnected
          Local-Area Networks*, PhD dissertation, UC Santa Barbara, 1994, chapters 3 and 4 and
          Appendix A. F4.1 is its Figure 4.1, §4.2 its section.
Model     Asynchronous processors with unique permanent ids in one broadcast domain; crash and
          restart with stable storage, omission, partition and remerge; no malice.
Rules     R1-R100 and the resolutions G1-G39: docs/rules-totem.md lists rule, handler and test.
Phases    operational.py, gather.py, commit.py, recovery.py; install.py is the step between two
          configurations, tokens.py what a visit of the token does, delivery.py R24, flow.py §4.4.
Beyond    R12 ext (a request is left to another holder), R43 ext (hearing.py: members that all
          hear each other), the adaptive window (flow.py).
"""

from ringcast.core.registry import Sheet, register
from ringcast.protocols.totem_single.config import (
    APPENDIX,
    LAN,
    MEASURED,
    Config,
    progress_bound_us,
)
from ringcast.protocols.totem_single.machine import MESSAGES, TotemSingle

SHEET = register(
    Sheet(
        name="totem",
        source="Agarwal 1994, chapter 4",
        config=Config,
        make=TotemSingle,
        claims=(
            *(f"M{i}" for i in range(1, 9)),
            *(f"D{i}" for i in range(1, 14)),
            "D12-graph",
            "validity",
            "integrity",
            "total-order",
            "fifo",
            "causal",
        ),
        profiles={"lan": LAN, "measured": MEASURED, "appendix": APPENDIX},
        messages=MESSAGES,
        progress_bound_us=progress_bound_us,
    )
)

__all__ = ["SHEET", "Config", "TotemSingle"]

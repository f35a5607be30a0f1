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
State     state.py has an object for each phase, ring.py what was received on a ring.
Rider     rider.py: what a protocol above the ring stamps and adds (multiple-ring); none here.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          R7  excluded by all others, wait for the Consensus timeout before being a ring of one
          R9  a ring of one broadcasts nothing
          R12 a request that was answered in vain is left to another holder
          R20 a token is taken from the predecessor alone
          R26 a member that leaves on purpose says so (leave.py)
          R30 an outsider's Join that excludes a member of the ring does not end it
          R32 one frame raises the largest ring number by a bounded step
          R38 a late, smaller Join does not take back a consent
          R43 members are those that all hear each other (hearing.py)
          R44 consensus needs that all are known to hear each other
          R68 a Join that shows that its sender has installed the ring ends Recover
          R84 nothing new is sent while half of the receive window is taken (sending.py)
          R90 the window follows loss and rotation time, for each processor (flow.py)
          R92 a member with a message calls for a token that rests, by an Announce
          R95 the backoff is for the victims of R46 too
          G38 guards against processors that lost their stable storage, and frames of other lives
"""

from ringcast.core.registry import MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.totem_single.config import (
    APPENDIX,
    LAN,
    MEASURED,
    Config,
    progress_bound_us,
)
from ringcast.protocols.totem_single.machine import MESSAGES, TotemSingle
from ringcast.protocols.totem_single.messages import MAX_MEMBERS, CommitToken, Token
from ringcast.protocols.totem_single.swarm import SWARM

CLAIMS = (
    *(f"M{i}" for i in range(1, 9)),
    *(f"D{i}" for i in range(1, 14)),
    "M4-number",
    "D1-own",
    "D12-graph",
    "validity",
    "integrity",
    "content",
    "total-order",
    "fifo",
    "causal",
)

SHEET = register(
    Sheet(
        name="totem",
        source="Agarwal 1994, chapter 4",
        config=Config,
        make=TotemSingle,
        claims=lambda config: CLAIMS,
        profiles={"lan": LAN, "measured": MEASURED, "appendix": APPENDIX},
        messages=MESSAGES,
        most_members=MAX_MEMBERS,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.EVS,
        agreed=("max_message", "mutual"),
        alike=("max_packet", "token_loss_us"),
        turn=(Token,),
        unicast=(Token, CommitToken),
        swarm=SWARM,
        rules=RuleBook("Totem single-ring", (("R", 100),), ("G", 39), ("packing",)),
        patient=lambda us: {"token_loss_us": us, "consensus_us": us * 6 // 5},
        fast=lambda frames, n: {"each_time": frames, "window_size": frames * n},
    )
)

__all__ = ["CLAIMS", "SHEET", "Config", "TotemSingle"]

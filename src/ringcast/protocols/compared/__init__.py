"""Four protocols that the counter-based one was compared with, for that comparison only.

Source    Y.-I. Chang and M.-H. Hwang, *An Ordered and Reliable Broadcast Protocol for Distributed
          Systems*, §4.3 and §5, Tables 1 to 4.
Model     A fixed group in which nobody fails; frames are lost, doubled and reordered. No live node
          runs them: they are small, to be measured on the network and by the checks of all others.
Files     centralised.py (Chang and Maxemchuk), two_phase.py (Birman and Joseph), optimistic.py
          (Chung, Liu and Lin) and fast_message.py (Amir et al.) on ring.py; held.py and undone.py
          check what "safe" and R2 mean there.
Claims    What Table 4 says of each: agreed or safe; R3, nothing is ever undone, or R2, what was
          delivered too early is.
"""

from typing import Any

from ringcast.core.ids import NodeId
from ringcast.core.registry import FrameCounts, MembershipKind, Sheet, register
from ringcast.core.trace import Noted
from ringcast.protocols.compared import centralised, fast_message, optimistic, two_phase
from ringcast.protocols.compared.config import (
    MAX_MEMBERS,
    CentralisedConfig,
    Config,
    RingConfig,
    progress_bound_us,
)
from ringcast.protocols.compared.held import HeldByAll
from ringcast.protocols.compared.messages import (
    Ask,
    BatchToken,
    Data,
    FastToken,
    Have,
    Nack,
    Propose,
)
from ringcast.protocols.compared.swarm import RELAYED, SWARM, TURNS
from ringcast.protocols.compared.undone import Undone

AGREED = (
    "M1",
    "M2",
    "D1-own",
    "D2",
    "D4",
    "D5",
    "D9",
    "D12",
    "validity",
    "agreement",
    "uniform-agreement",
    "integrity",
    "content",
    "total-order",
    "fifo",
    "causal",
)
"""R3 and agreed: one order, at every moment, at all members."""

SAFE = (*AGREED, "D10", HeldByAll.tag)
"""And nobody delivers what somebody does not hold."""


def body_of(frame: Any) -> tuple[NodeId, int, int] | None:
    """Data alone carries contents."""
    return frame.contents.piece_of(frame.sender) if type(frame) is Data else None


def undone(note: Noted) -> int:
    """What the optimistic protocol takes back."""
    match note:
        case Noted(what="rollback", data=(count,)):
            return count
    return 0


def sheet(
    name: str, source: str, make: Any, config: Any, claims: tuple[str, ...], **more: Any
) -> Sheet:
    """Of one of the four; what they have in common is said once."""
    return register(
        Sheet(
            name=name,
            source=source,
            config=type(config),
            make=make,
            claims=lambda config: claims,
            profiles={"lan": config},
            progress_bound_us=progress_bound_us,
            most_members=MAX_MEMBERS,
            membership=MembershipKind.FIXED,
            live=False,
            patient=lambda us: {"repair_us": us},
            frames=FrameCounts(body_of, undone=undone),
            **more,
        )
    )


CENTRALISED = sheet(
    "centralised",
    "Chang and Maxemchuk 1984, as compared by Chang and Hwang",
    centralised.Centralised,
    CentralisedConfig(),
    AGREED,
    messages=centralised.MESSAGES,
    unicast=(Nack, Have),
    swarm=RELAYED,
)

TWO_PHASE = sheet(
    "two-phase",
    "Birman and Joseph 1987, as compared by Chang and Hwang",
    two_phase.TwoPhase,
    Config(),
    AGREED,
    messages=two_phase.MESSAGES,
    unicast=(Propose, Ask),
    swarm=SWARM,
)

OPTIMISTIC = sheet(
    "optimistic",
    "Chung, Liu and Lin 1990, as compared by Chang and Hwang",
    optimistic.Optimistic,
    RingConfig(),
    (*SAFE, Undone.tag),
    messages=optimistic.MESSAGES,
    turn=(BatchToken,),
    checks=(HeldByAll, Undone),
    swarm=TURNS,
)

FAST_MESSAGE = sheet(
    "fast-message",
    "Amir et al. 1993, as compared by Chang and Hwang",
    fast_message.FastMessage,
    RingConfig(),
    SAFE,
    messages=fast_message.MESSAGES,
    turn=(FastToken,),
    checks=(HeldByAll,),
    swarm=TURNS,
)

__all__ = ["AGREED", "CENTRALISED", "FAST_MESSAGE", "OPTIMISTIC", "SAFE", "TWO_PHASE"]

"""Counter-based ordered broadcast: all send at any time, the token counts who holds what.

Source    Y.-I. Chang and M.-H. Hwang, *An Ordered and Reliable Broadcast Protocol for Distributed
          Systems*, National Sun Yat-Sen University. §3.1 is its section.
Model     Processors that crash and restart with stable storage, frames that are lost, doubled and
          reordered, partitions. One part at most goes on: a majority of the present list.
Idea      A message is stamped with its sender's cycle when it is sent, and listed in the token
          when its sender owns it next. Each owner counts what it holds. A cycle is committed when
          everybody has had the chance to list, and everybody holds what is listed: in an order
          that follows from the list, with no further word.
Rules     CB-1 to CB-44 and the resolutions A1 to A24: docs/rules-counter.md lists rule, handler
          and test.
Files     sending.py, losses.py, tokens.py, commit.py; membership.py, reformation.py, epoch.py,
          recovery.py; entries.py is the system state.
Levels    Every delivery is safe: all members hold a message before anybody delivers it; of a
          message to some, all of those.
Views     Joins, leaves and reformations are views, each after a transitional one. A minority waits.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          CB-1  no more frames of one member are under way than its window
          CB-33 a member that cannot wait says that it leaves
          CB-38 those that remember nothing are taken in by the decision
          CB-39 what a sender listed after a message that is erased
          CB-41 an excluded member that cannot learn what became of its view
          CB-42 a majority that remembers nothing begins anew
"""

from ringcast.core.registry import FrameCounts, MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.counter.config import LAN, PAPER, ROTATING, Config, progress_bound_us
from ringcast.protocols.counter.lineage import Lineage
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.counter.messages import (
    MESSAGES,
    Ackd,
    Ask,
    Msg,
    Nack,
    Prom,
    Req,
    Stranger,
    Token,
    Told,
)
from ringcast.protocols.counter.swarm import SWARM

CLAIMS = (
    "M1",
    "M2",
    "M6",
    "M7",
    "D2",
    "D3",
    "D4",
    "D5",
    "D6",
    "D7",
    "D8",
    "D9",
    "D10",
    "D12",
    "D12-graph",
    "validity",
    "integrity",
    "content",
    "total-order",
    "fifo",
    "causal",
    "multicast",
    Lineage.tag,
)

SHEET = register(
    Sheet(
        name="counter",
        source="Chang and Hwang",
        config=Config,
        make=CounterBased,
        claims=lambda config: CLAIMS,
        profiles={"lan": LAN, "rotating": ROTATING, "paper": PAPER},
        messages=MESSAGES,
        agreed=("max_message", "order", "first_sender", "counting", "window", "max_packet"),
        alike=("token_us", "idle_us", "reissue_us", "reissues"),
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.PRIMARY,
        multicast=True,
        turn=(Token,),
        unicast=(Prom, Nack, Ackd, Ask, Told, Stranger),
        frames=FrameCounts(
            body=lambda frame: (
                frame.contents.piece_of(frame.sender) if type(frame) is Msg else None
            ),
            asked=lambda frame: frame.requests if type(frame) is Req else 0,
        ),
        checks=(Lineage,),
        swarm=SWARM,
        rules=RuleBook("The counter-based protocol", (("CB-", 44),), ("A", 24)),
        patient=lambda us: {"reissue_us": us // 4 - LAN.idle_us},
        fast=lambda frames, n: {"window": frames},
    )
)

__all__ = ["CLAIMS", "SHEET", "Config", "CounterBased"]

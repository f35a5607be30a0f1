"""RBP: total order from a token site that changes with every number.

Members broadcast their messages. One of them, the token site, gives the next number to some that it
holds, and names the next token site in the same frame. Whoever is named accepts by giving a number
itself, when it holds everything before: so each number proves what its giver holds, and after as
many numbers as the ring has members all hold the first. Losses are found by gaps and asked for.
When the ring does not go on, a majority forms a new list of members (reformation).

Source    L. A. Barchet-Estefanel, *Analyzing RBP, a Total Order Broadcast Protocol for Unreliable
          Channels*, project report, EPFL 2002; Chang and Maxemchuk's protocol as told there.
Model     Processors that crash and restart with stable storage, frames that are lost, doubled and
          reordered, partitions. One part at most goes on: a majority of the group.
Rules     R1 to R23, K1 to K7, F1 to F15, S1 to S11 for the machines it is explained with, and the
          resolutions G1 to G54: docs/rules-rbp.md lists rule, handler and test. A cites the same
          dossier, and so do I, L and D, whose book is that of the protocol built on this one.
Levels    ``resiliency``: how many must hold an entry before anybody delivers it. ``total``: all of
          the ring; ``majority``: as few as a change by a majority cannot miss; ``number``: so many
          that ``tolerated`` failures lose nothing, and then a change waits for all others;
          ``unsafe``: nobody else. A safe message waits for all of the ring at every level.
Views     A list is a view. Without transitional views: what the list before left is delivered in
          it, everywhere alike, before the next one begins. A minority waits, and says so.
Files     log.py, ordering.py, sending.py, losses.py, delivery.py, install.py: the log and epoch
          core. epochs.py: the seam to the part that chooses the next epoch. reformation.py,
          originator.py, lists.py: that part. catchup.py serves both.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          F6   whoever answers too late is waited for the next time
          F7   a majority that remembers nothing begins anew
          F9   a list that may be in force tells where the next one begins
          F11  a list is in force with the originator's word, too
          F15  an excluded member delivers the rest of its view and comes back as somebody new
"""

from ringcast.core.registry import FrameCounts, MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.rbp.config import LAN, MOST_BATCH, PROFILES, Config, progress_bound_us
from ringcast.protocols.rbp.epochs import Data
from ringcast.protocols.rbp.machine import MESSAGES, Rbp
from ringcast.protocols.rbp.messages import Ack, Ask, Commit, Gone, Ordered, Past, Refuse, Vote
from ringcast.protocols.rbp.one_log import OneLog
from ringcast.protocols.rbp.swarm import SWARM
from ringcast.protocols.rbp.uniform import UniformInView

ALWAYS = (
    "M1",
    "M2",
    "M6",
    "D1-own",
    "D2",
    "D5",
    "D6",
    "D9",
    "D12",
    "D12-graph",
    "integrity",
    "content",
    "fifo",
    "causal",
)
"""What every level promises: views agree, and within one there is one order."""

UNIFORM = ("M7", "D4", "D10", "total-order", "validity", OneLog.tag, UniformInView.tag)
"""What levels add that deliver nothing that may be void (K4)."""


def claims(config: Config) -> tuple[str, ...]:
    """K4: below the least safe level a member may deliver what the others never will, and then has
    to stop (G23)."""
    return (*ALWAYS, *UNIFORM) if config.uniform else ALWAYS


FRAMES = FrameCounts(
    body=lambda frame: frame.contents.piece_of(frame.source) if type(frame) is Data else None,
    asked=lambda frame: frame.requests if type(frame) is Ask else 0,
)

SHEET = register(
    Sheet(
        name="rbp",
        source="Barchet-Estefanel 2002",
        config=Config,
        make=Rbp,
        claims=claims,
        profiles=PROFILES,
        messages=MESSAGES,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.PRIMARY,
        agreed=("max_message", "resiliency", "tolerated"),
        # K6: bodies beyond four windows are dropped.
        alike=("max_packet", "token_us", "retries", "act_us", "window"),
        turn=(Ack,),
        unicast=(Ordered, Past, Gone, Vote, Refuse, Commit),
        frames=FRAMES,
        checks=(OneLog, UniformInView),
        swarm=SWARM,
        rules=RuleBook(
            "RBP, the moving token site",
            (("S", 11), ("R", 23), ("K", 7), ("F", 15)),
            ("G", 54),
        ),
        patient=lambda us: {"act_us": 2 * us, "token_us": us // LAN.retries},
        fast=lambda frames, n: {"window": frames, "batch": min(frames * n, MOST_BATCH)},
    )
)

__all__ = ["FRAMES", "SHEET", "Config", "Rbp", "claims"]

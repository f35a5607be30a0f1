"""iRBP: RBP whose ring goes round a silent member at once, and excludes it much later.

Messages are ordered as in RBP: each number names the next token site and proves what its giver
holds. What differs is how the ring changes. A detector has two limits. By the aggressive one the
members agree on another ring of the same view, an *i-view*: it costs a few frames, nobody loses its
place, and whoever was left out goes on hearing, asks for what it missed, and comes back into the
ring. By the conservative one, and when somebody joins or leaves, they agree on another view. Both
are chosen by consensus of a majority of the view, so that there is one successor of each epoch.

Source    L. A. Barchet-Estefanel, *Analyzing RBP, a Total Order Broadcast Protocol for Unreliable
          Channels*, project report, EPFL 2002, chapters 4 and 5.
Model     Processors that crash and restart with stable storage, frames that are lost, doubled and
          reordered, partitions, suspicions that are wrong. One part at most goes on: a majority of
          the last view.
Rules     I1 to I24, L1 to L6, and those of its blocks: C1 to C6, B1 to B4, D1 to D7, Z1 to Z10;
          docs/rules-irbp.md lists rule, handler and test. R and K as in RBP, whose book has the
          gaps of the source (G).
Levels    As in RBP, with the majority of the view.
Views     A regular view is a view. Without transitional views: what the view before left is
          delivered in it, everywhere alike, before the next one begins. ``sets`` has the core, the
          ring, and the external members. A minority waits, and says so.
Files     views.py: detection, the change, consensus. proposals.py: what a change proposes.
          following.py: from a decision to the next epoch. membership.py: who comes and goes.
          RBP's log and epoch core is in protocols/rbp.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          I17  if all sites are here and none is in a view, the group begins anew
          I19  an excluded member delivers the rest of its view and comes back as somebody new
"""

from ringcast.blocks import channel
from ringcast.blocks.channel import Packet
from ringcast.core.registry import MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.irbp.config import PROFILES, Config, progress_bound_us
from ringcast.protocols.irbp.machine import Irbp
from ringcast.protocols.irbp.messages import MESSAGES, Caught, Stranger
from ringcast.protocols.irbp.one_ring import OneRing
from ringcast.protocols.irbp.swarm import SWARM
from ringcast.protocols.rbp import FRAMES
from ringcast.protocols.rbp import claims as claims_of_the_ring
from ringcast.protocols.rbp.config import MOST_BATCH
from ringcast.protocols.rbp.messages import Ack, Gone, Ordered, Past

VOIDED = {"D1-own", "D9", "content"}
"""What the level ``unsafe`` cannot promise here (G23): the ring goes round a member that has
delivered a number alone, and gives that number to another message, all in one view."""


def claims(config: Config) -> tuple[str, ...]:
    """Those of RBP at this level, but for what i-views can void, and that i-views agree."""
    broken = set() if config.uniform else VOIDED
    return (*(tag for tag in claims_of_the_ring(config) if tag not in broken), OneRing.tag)


SHEET = register(
    Sheet(
        name="irbp",
        source="Barchet-Estefanel 2002",
        config=Config,
        make=Irbp,
        claims=claims,
        profiles=PROFILES,
        messages=MESSAGES,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.PRIMARY,
        agreed=("max_message", "resiliency", "tolerated"),
        # K6: bodies beyond four windows are dropped.
        alike=("max_packet", "suspect_us", "exclude_us", "window"),
        turn=(Ack,),
        unicast=(Ordered, Past, Gone, Caught, Stranger, Packet, channel.Ack),
        frames=FRAMES,
        checks=(OneRing,),
        swarm=SWARM,
        rules=RuleBook(
            "iRBP, two kinds of view",
            (("I", 24), ("L", 6), ("C", 6), ("B", 4), ("D", 7), ("Z", 10)),
            ("G", 54),
            ("channel", "reliable_broadcast", "detector", "consensus"),
            extends="rbp",
        ),
        patient=lambda us: {
            "beat_us": us // 40,
            "suspect_us": us // 10,
            "suspect_max_us": us // 2,
            "exclude_us": us,
            "exclude_max_us": 5 * us,
        },
        fast=lambda frames, n: {"window": frames, "batch": min(frames * n, MOST_BATCH)},
    )
)

__all__ = ["SHEET", "Config", "Irbp", "claims"]

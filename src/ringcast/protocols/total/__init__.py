"""TOTAL: total order from a fixed sequencer, over view membership with a flush.

A member sends its message to the sequencer, the first member of the view, which numbers it and
broadcasts it; all hand messages up by number. Below lie view membership and flush
(``blocks.membership``, ``blocks.flush``), which this machine owns.

Source    Design note of the TOTAL protocol layer for JavaGroups; cited by its headings.
Model     Crash and restart with stable storage, loss, duplication and reordering of frames,
          partition and remerge; no malice.
Rules     TL-1 to TL-31, contract G-1 to G-9, flush FL-1 to FL-6, resolutions A1 to A20:
          docs/rules-total.md lists rule, handler and test.
Modes     profiles ``agreed``, ``uniform`` and ``prefix``: config.Mode.
Levels    a message may be ``safe`` in every mode with a flush: it is then delivered when every
          member of the view is known to have it. In uniform mode every message is.
Files     member.py and sequencer.py work in a view, repair.py gets what was lost, change.py leads
          from one view to the next, delivery.py hands messages up.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          TL-2  a transitional configuration comes before each view
          TL-8  a processor that starts looks for others before it serves itself
          TL-13 SEQ_ACK: who gets a number of its own again and has it says so
          TL-22 views go together whole, when what they carried along is done with
          TL-25 the last acknowledgement is repeated until all is known to be stable
          TL-26 STATUS backs off, and answers an acknowledgement that is repeated
          TL-29 a message may be safe in every mode
          TL-30 a large message that is not whole begins anew
          G-5   one primary part by a fixed quorum
          G-9   a view number is promised to one proposal
"""

from ringcast.blocks.channel import Ack, Packet
from ringcast.blocks.view_messages import MAX_MEMBERS
from ringcast.core.registry import MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.total.config import PROFILES, Config, Mode, progress_bound_us
from ringcast.protocols.total.machine import MESSAGES, Total
from ringcast.protocols.total.messages import (
    CumSeqAck,
    NewViewAck,
    Request,
    Resend,
    SeqAck,
    Unicast,
)
from ringcast.protocols.total.one_sequencer import OneSequencer
from ringcast.protocols.total.swarm import SWARM

PREFIX = (
    *(f"M{i}" for i in (1, 2, 3, 4, 5, 6, 8)),
    "M4-number",
    "D1",
    "D2",
    "D4",
    "D5",
    "D9",
    "D12",
    "D12-graph",
    "D13",
    "integrity",
    "content",
    "total-order",
    "fifo",
    "causal",
    OneSequencer.tag,
    "accounted",
)
"""What every mode promises (Q1 to Q4, Q8 to Q10, and of Q7 what holds in all of them)."""

FLUSHED = ("M7", "D6")
"""What the flush adds (Q5, Q6). M7 is among it, since a change tells the last number delivered
before it."""

EVERY_PART = ("D10", "D11", "validity")
"""What it adds where every part of a divided group goes on; in uniform mode every message is a safe
one, as D10 and D11 see them. With a quorum the primary part alone may deliver what it has."""


def claims(config: Config) -> tuple[str, ...]:
    """A member of a part that may not deliver keeps its messages back, and does not deliver what
    only the primary part may: so some are conditional on there being no quorum to reach (Q7)."""
    if config.mode is Mode.PREFIX:
        return PREFIX
    return (*PREFIX, *FLUSHED, *(() if config.quorum else EVERY_PART))


SHEET = register(
    Sheet(
        name="total",
        source="JavaGroups, design note of the TOTAL layer",
        config=Config,
        make=Total,
        claims=claims,
        profiles=PROFILES,
        messages=MESSAGES,
        most_members=MAX_MEMBERS,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.EVS,
        agreed=("max_message", "mode", "quorum"),
        alike=("max_packet", "suspect_us"),
        unicast=(Request, Unicast, NewViewAck, SeqAck, CumSeqAck, Resend, Packet, Ack),
        checks=(OneSequencer,),
        swarm=SWARM,
        rules=RuleBook(
            "TOTAL, the sequencer",
            (("TL-", 31), ("G-", 9), ("FL-", 6)),
            ("A", 20),
            (
                "channel",
                "detector",
                "view_messages",
                "merge_candidates",
                "view_change",
                "membership",
                "flush",
            ),
        ),
        patient=lambda us: {"suspect_us": us, "suspect_max_us": 2 * us},
        fast=lambda frames, n: {"window_size": frames * n},
    )
)

__all__ = ["SHEET", "Config", "Mode", "Total"]

"""Token-based atomic broadcast with the failure detector R: uniform total order, no membership.

Source    R. Ekwall and A. Schiper, *Revisiting Token-Based Atomic Broadcast Algorithms*, report
          IC/2003/39, EPFL, 2003. P6 is its Procedure 6, §V its section.
Model     A fixed group of n members in a logical ring, of which up to f crash and do not come
          back, n >= f(f+1)+1; fair-lossy links that lose, double and reorder frames; a detector
          that watches the predecessor only, and is right in the end. Safety needs neither n's
          bound nor the detector.
Idea      The token carries the order decided so far, and a proposal for what comes next. Whoever
          takes the token from its predecessor votes for the proposal; f+1 votes in a row decide.
          Who suspects its predecessor takes an older token, past it: that costs the votes, and
          nothing else. Nobody is ever removed, and there is one view, of all members.
Rules     TF-1 to TF-42 and the resolutions A1 to A21: docs/rules-token-fd.md lists rule, handler
          and test. Places, hops and which token is taken: blocks/token_ring.py; the detector:
          blocks/ring_detector.py; consensus by the same means: blocks/token_consensus.py.
Files     tokens.py, bodies.py, catchup.py; order.py is the decided sequence.
Levels    Every delivery is uniform: whoever delivers first, all correct members will, even if that
          one crashes at once. So safe messages are delivered as agreed ones are.
Restart   A member that crashed stays out (TF-42): its id is in stable storage, its memory is not.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          TF-34 a request that finds nothing newer is answered when there is
          TF-38 senders wait for a member that is far behind and catching up
"""

from ringcast.blocks.ring_detector import Alive
from ringcast.core.registry import MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.token_fd.config import LAN, MAX_MEMBERS, PAPER, Config, progress_bound_us
from ringcast.protocols.token_fd.machine import TokenFd
from ringcast.protocols.token_fd.messages import (
    MESSAGES,
    Fetch,
    LogRep,
    LogReq,
    Token,
    TokenAck,
    TokenReq,
)
from ringcast.protocols.token_fd.swarm import SWARM
from ringcast.protocols.token_fd.token_path import TokenPath

# Not D1: a member may deliver a message before its sender hears of the place, or after that one
# crashed without hearing of it. ``content`` compares what all of them deliver.
CLAIMS = (
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
    TokenPath.tag,
)

SHEET = register(
    Sheet(
        name="token-fd",
        source="Ekwall and Schiper 2003",
        config=Config,
        make=TokenFd,
        claims=lambda config: CLAIMS,
        profiles={"lan": LAN, "paper": PAPER},
        messages=MESSAGES,
        most_members=MAX_MEMBERS,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.FIXED,
        agreed=("max_message", "f:faults", "copies", "bodies_in_token", "epoch", "max_packet"),
        alike=("suspect_us",),
        turn=(Token,),
        unicast=(Token, TokenReq, TokenAck, Fetch, LogReq, LogRep, Alive),
        checks=(TokenPath,),
        swarm=SWARM,
        rules=RuleBook(
            "Token-based broadcast with the detector R",
            (("TF-", 42),),
            ("A", 21),
            ("token_ring", "ring_detector", "trusted_pair", "token_consensus"),
        ),
        patient=lambda us: {"suspect_us": us, "suspect_most_us": 2 * us},
        fast=lambda frames, n: {"each_time": frames},
    )
)

__all__ = ["CLAIMS", "SHEET", "Config", "TokenFd"]

"""Totem multiple-ring: one order over many rings, with gateways that may fail.

Source    D. A. Agarwal, *Totem: A Reliable Ordered Delivery Protocol for Interconnected
          Local-Area Networks*, PhD dissertation, UC Santa Barbara, 1994, chapter 5.
Model     Broadcast domains, each with a Totem ring; gateways are processors in several. Crash and
          restart with stable storage, omission, partition and remerge of any domain; no malice.
Idea      Lamport timestamps, given when a ring transmits a message, order all messages and all
          changes of rings. A message is delivered when no ring can bring an older one. Gateways
          pass everything on and speak for silent rings; what a change leads to is a function of
          the order, so all that stay connected decide alike.
Rules     MR-1 to MR-45, A1 to A12 and the resolutions G-1 to G-46: docs/rules-totem-multi.md
          lists rule, handler and test. Where a resolution contradicts a rule, it holds.
Files     order.py is the core, which knows no frame; network.py the graph of rings, receipts.py
          safe delivery, clock.py timestamps and the rider on each ring, flow.py congestion,
          machine.py ports, parts and forwarding, withholding.py what gateways do not pass on,
          interests.py who is in which groups, routing.py which gateway passes on.
          p1_notice.py to p16_clocks.py and p18_to_some.py are its checks.
Levels    Agreed: a prefix of one sequence in each topology. Safe: every member of the topology
          delivers it, by its own word, or crashes.
To some   F1 to F5: messages to some processors, which gateways keep from rings without any (ours).
          F6 to F9: messages to groups, which they keep from rings without members.
Ways      T1 to T5: where there are several, messages go along one tree, and the other gateways
          pass on what they do not hear (ours).
Flow      W1 to W5: windows follow the queues of gateways, before a full one stops all (ours).
Views     A topology: the rings that are connected, with their members, which are also the view's
          sets. There are no transitional views; a change of one ring is two topologies.
Promise   P-1 to P-16 of the dossier but P-5, and P-18 of ours, on trees, on parallel gateways and
          on cycles. P-17 concerns frames, which a trace does not have.
Beyond    what docs/errata.md explains, tagged ``ext`` where it acts:
          A3  what a gateway has, it has at all its interfaces; a word counts though what tells it
                is put aside
          A4  a member says also what it has refused, or others would wait for ever
          A5  rings without survivors, and those that drain, are part of a topology's name
          A8  what lost gateways brought to a cycle goes ahead of the change that lost them
          A11  a transitional change that was kept counts if it moves a gateway, and behind the
                change that it was kept for
          G-8  at one place a processor may come back to a topology
          G-18  a Topology Change that is waited for crosses, though it is older than the change
                that joins its gateway
          G-20  a known gateway that cannot be reached, or has lost an interface, is waited for
          G-25  so is one that was lost with a ring where it never came
          MR-4  one frame raises the clock by a bounded step
          MR-8  without stable storage a processor draws the number that its rings begin at
          MR-10  what a gateway passes on goes ahead of its own messages
          MR-12  what waited for a change is called late, and is no copy
          MR-26  nobody waits for a Topology Change that does not come its way
          MR-32  what a gateway passed on may wait for the ring's next change
"""

from ringcast.core.registry import MembershipKind, RuleBook, Sheet, register
from ringcast.protocols.totem_multi.config import LAN, Config, progress_bound_us
from ringcast.protocols.totem_multi.machine import TotemMulti
from ringcast.protocols.totem_multi.p1_notice import TopologyNotice
from ringcast.protocols.totem_multi.p2_unique import TopologyUnique
from ringcast.protocols.totem_multi.p3_termination import TopologyTermination
from ringcast.protocols.totem_multi.p4_consistent import ChangeConsistent
from ringcast.protocols.totem_multi.p6_identifiers import UniquePlaces
from ringcast.protocols.totem_multi.p7_order import KeyOrder
from ringcast.protocols.totem_multi.p8_integrity import DeliveredWasOriginated
from ringcast.protocols.totem_multi.p9_self_delivery import OwnDelivered
from ringcast.protocols.totem_multi.p10_completeness import AllOfTheLast
from ringcast.protocols.totem_multi.p11_virtual_synchrony import SameBetween
from ringcast.protocols.totem_multi.p12_causality import CausesFirst
from ringcast.protocols.totem_multi.p13_agreed import PrefixInTopology
from ringcast.protocols.totem_multi.p14_safe import SafeForAll
from ringcast.protocols.totem_multi.p15_one_order import OneOrder
from ringcast.protocols.totem_multi.p16_clocks import ClockRises
from ringcast.protocols.totem_multi.p18_to_some import ToSome
from ringcast.protocols.totem_multi.swarm import SWARM
from ringcast.protocols.totem_single.machine import MESSAGES
from ringcast.protocols.totem_single.messages import MAX_MEMBERS, CommitToken, Token

CHECKS = (
    TopologyNotice,
    TopologyUnique,
    TopologyTermination,
    ChangeConsistent,
    UniquePlaces,
    KeyOrder,
    DeliveredWasOriginated,
    OwnDelivered,
    AllOfTheLast,
    SameBetween,
    CausesFirst,
    PrefixInTopology,
    SafeForAll,
    OneOrder,
    ClockRises,
    ToSome,
)

CLAIMS = (*(check.tag for check in CHECKS), "content", "validity")
"""D1, D1-own and integrity look for a message's ring among the views, where a topology has its own
name: P-6 and P-8 say what they say."""

RULES = (("MR-", 45), ("A", 12), ("F", 9), ("T", 5), ("W", 5))

SHEET = register(
    Sheet(
        name="totem-multi",
        source="Agarwal 1994, chapter 5",
        config=Config,
        make=TotemMulti,
        claims=lambda config: CLAIMS,
        profiles={"lan": LAN},
        messages=MESSAGES,
        most_members=MAX_MEMBERS,
        most_ports=16,
        ids_everywhere=True,
        demo_rings=((1, 2, 6, 7), (3, 6, 7, 8, 9), (4, 5, 8, 9)),
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.EVS,
        multicast=True,
        groups=True,
        agreed=("max_message", "mutual", "acyclic"),
        alike=("max_packet", "token_loss_us"),
        turn=(Token,),
        unicast=(Token, CommitToken),
        checks=CHECKS,
        swarm=SWARM,
        rules=RuleBook("Totem multiple-ring", RULES, ("G-", 46)),
        patient=lambda us: {"token_loss_us": us, "consensus_us": us * 6 // 5},
        fast=lambda frames, n: {"each_time": frames, "window_size": frames * n},
    )
)

__all__ = ["CLAIMS", "SHEET", "Config", "TotemMulti"]

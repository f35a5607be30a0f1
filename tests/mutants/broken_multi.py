"""Mutants of Totem multiple-ring: the dissertation read literally, and single rules broken."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import after, mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi import routing, withholding
from ringcast.protocols.totem_multi.clock import ClockRider, LamportClock
from ringcast.protocols.totem_multi.flow import FULL, STEPS, Blocks, Brakes
from ringcast.protocols.totem_multi.interests import Interests
from ringcast.protocols.totem_multi.machine import TotemMulti
from ringcast.protocols.totem_multi.messages import (
    WITHHELD,
    Change,
    Data,
    Forwarded,
    Key,
)
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.places import batch_of
from ringcast.protocols.totem_multi.receipts import Survey
from ringcast.protocols.totem_multi.ring_port import RingPort
from ringcast.protocols.totem_multi.routing import TreeRouting
from ringcast.protocols.totem_multi.state import OrderState
from ringcast.protocols.totem_multi.withholding import Withholding
from ringcast.protocols.totem_single.messages import CommitToken, RingId


@mutant("MR-1 G-2", "P-14", "P-16", "P-6", "P-7", "P-2", "P-15", "P-3", "P-12")
def multi_clock_starts_anew(patch: MonkeyPatch) -> None:
    """A restarted processor's clock begins where the first one began."""
    whole = LamportClock.start

    def start(self: LamportClock, env: Env, stable: int | None, boot: int) -> None:
        whole(self, env, 0 if stable else stable, boot)

    patch.setattr(LamportClock, "start", start)


@mutant("MR-4 G-45", "P-16", "P-7", "P-13", "P-11", "P-9", "progress")
def multi_clock_hears_nothing(patch: MonkeyPatch) -> None:
    """What is received does not raise the clock."""
    patch.setattr(LamportClock, "see", lambda self, timestamp: None)


@mutant("MR-5 G-1", "P-16", "P-9", "P-7", "P-13", "P-6", "progress")
def multi_stamps_before_it_counts(patch: MonkeyPatch) -> None:
    """The source's other sentence: stamp, then increment."""
    whole = ClockRider.message_transmitted

    def transmitted(self: ClockRider, *said: Any) -> Any:
        self.clock.my_timestamp -= 1
        sent = whole(self, *said)
        self.clock.my_timestamp += 1
        return sent

    patch.setattr(ClockRider, "message_transmitted", transmitted)


@mutant("MR-3 G-7", "P-7", "P-13", "P-11", "P-9", "P-16", "progress", "P-14", "P-4")
def multi_ring_begins_too_early(patch: MonkeyPatch) -> None:
    """A new ring begins with its representative's clock as it was long ago."""
    whole = ClockRider.commit_token_passed

    def passed(self: ClockRider, env: Env, token: CommitToken, rotation: int) -> bytes | None:
        ride = whole(self, env, token, rotation)
        if rotation == 2:
            begun = self.begins[token.ring_id]
            self.begins = {token.ring_id: replace(begun, timestamp=begun.timestamp - 20)}
        return ride

    patch.setattr(ClockRider, "commit_token_passed", passed)


@mutant("MR-12 G-18", "P-7", "P-13", "no-crash", "P-11", "progress")
def multi_copies_count(patch: MonkeyPatch) -> None:
    """A copy of a message is taken for a new one."""

    def raise_bound(self: NetworkOrder, ring: RingId, key: Key) -> bool:
        entry = self.entries.get(ring)
        if entry is None or not self.knows(ring):
            return False
        self.seen.discard(key)
        entry.last = max(entry.last, key)
        return True

    patch.setattr(NetworkOrder, "raise_bound", raise_bound)


@mutant("MR-14 MR-15", "P-7", "P-13", "P-9", "P-11", "P-14", "P-10", "P-12")
def multi_nobody_is_waited_for(patch: MonkeyPatch) -> None:
    """A ring of which nothing waits does not hold anything up."""
    after(patch, NetworkOrder, "_empty", lambda word, *_: None if word == "wait" else word)


@mutant("MR-13", "progress", "P-9", "P-10", "P-14", "P-13")
def multi_changes_are_not_passed_on(patch: MonkeyPatch) -> None:
    """A gateway forwards messages, and no changes of rings."""
    whole = TotemMulti.forward

    def forward(self: TotemMulti, said: Any, came: Any) -> None:
        if not isinstance(said, Change):
            whole(self, said, came)

    patch.setattr(TotemMulti, "forward", forward)


@mutant("MR-16 G-33", "progress", "P-9", "P-10")
def multi_nobody_speaks_for_silent_rings(patch: MonkeyPatch) -> None:
    """Gateways send no bounds."""
    patch.setattr(TotemMulti, "_needed", lambda self, at: False)


@mutant("MR-22 G-12", "P-13", "P-11", "P-4", "progress", "P-14", "P-7", "P-8", "P-9", "P-10")
def multi_marked_edges_are_gone(patch: MonkeyPatch) -> None:
    """The source, literally: a gateway that a pending change lists counts as gone."""
    whole = RingNetwork.live

    def live(self: RingNetwork, changes: Any, mine: Any) -> Any:
        gateways = self.gateways
        marked = {m.node for change in changes for m in change.members if m.gateway} - {self.me}
        self.gateways = {n: ends for n, ends in gateways.items() if n not in marked}
        try:
            return whole(self, changes, mine)
        finally:
            self.gateways = gateways

    patch.setattr(RingNetwork, "live", live)


@mutant("MR-22 G-17", "progress", "P-9", "P-10")
def multi_lost_rings_stay(patch: MonkeyPatch) -> None:
    """A ring that cannot be reached any more is waited for."""
    after(patch, NetworkOrder, "_empty", lambda word, *_: "wait" if word == "delete" else word)


@mutant("MR-25", "P-4", "P-13", "P-3", "progress", "P-14", "P-11", "P-9", "P-10", "P-12")
def multi_does_not_wait_for_the_exchange(patch: MonkeyPatch) -> None:
    """A change of an own ring is applied before the gateways have told what they can reach."""
    after(patch, NetworkOrder, "_unheard", lambda word, *_: [])


@mutant("MR-31 A8", "P-13", "P-11", "P-14", "progress", "P-9", "P-10", "P-12", "P-3", "P-4")
def multi_drops_what_new_gateways_sent(patch: MonkeyPatch) -> None:
    """What waited for a merge is thrown away when the merge is there."""

    def release(self: TotemMulti, env: Env, change: Change) -> None:
        self._buffers.pop((change.ring, change.conf), None)

    patch.setattr(TotemMulti, "release", release)


@mutant("MR-14 A4", "P-14")
def multi_safe_is_agreed(patch: MonkeyPatch) -> None:
    """A safe message is delivered without the word of anybody."""
    patch.setattr(NetworkOrder, "_is_safe", lambda self, env, key: True)


@mutant("MR-14 A3", "P-14", "P-18")
def multi_one_word_for_a_ring(patch: MonkeyPatch) -> None:
    """As with guarantee vectors: if one member of a ring has it, the ring has it."""
    whole = Survey.word

    def word(self: Survey, pid: int, ring: RingId) -> bool | None:
        said = self._said._said.get(self._key, {})
        return any(at == ring for _, at in said) or whole(self, pid, ring)

    patch.setattr(Survey, "word", word)


@mutant("MR-17 A1", "progress", "P-9", "P-10")
def multi_nobody_acknowledges(patch: MonkeyPatch) -> None:
    """What was stored is not acknowledged."""
    patch.setattr(TotemMulti, "stored_safe", lambda self, key: None)


@mutant("MR-16 A3", "progress", "P-9", "P-10")
def multi_receipts_stay_on_their_ring(patch: MonkeyPatch) -> None:
    """A bound does not tell what was acknowledged on the ring."""
    patch.setattr("ringcast.protocols.totem_multi.receipts.Acknowledged.report", lambda *_: ())


@mutant("MR-41 W2 W3", "progress", "P-9")
def multi_window_closes_for_good(patch: MonkeyPatch) -> None:
    """Once somebody is congested, a processor sends nothing of its own any more."""

    def rotate(self: Brakes) -> None:
        if any(told % STEPS for told in self.table.values()):
            self.window = 0

    patch.setattr(Brakes, "rotate", rotate)


@mutant("MR-42 W1 G-39", "progress", "P-9")
def multi_levels_only_rise(patch: MonkeyPatch) -> None:
    """Of two words on a processor the one with the higher level counts, whichever is newer."""

    def hear(self: Brakes, blocks: Blocks) -> None:
        for node, told in blocks:
            if told % STEPS > self.table.get(node, 0) % STEPS and node in self._nodes:
                self.table[node] = told

    patch.setattr(Brakes, "hear", hear)


@mutant("MR-40 G-39", "progress", "P-9")
def multi_congestion_never_ends(patch: MonkeyPatch) -> None:
    """A processor that was congested once says so for ever."""
    whole = Brakes.congested

    def congested(self: Brakes, level: int) -> None:
        whole(self, FULL if self.blocked or len(self._nodes) > 1 else level)

    patch.setattr(Brakes, "congested", congested)


@mutant("MR-29", "P-1")
def multi_says_nothing_of_its_rings(patch: MonkeyPatch) -> None:
    """A topology is installed without a word about its rings."""
    whole = Env.note

    def note(self: Env, rule: str, what: str, *rest: Any, **more: Any) -> None:
        if what != "topology":
            whole(self, rule, what, *rest, **more)

    patch.setattr(Env, "note", note)


@mutant("MR-9", "P-6", "P-8")
def multi_changes_a_level(patch: MonkeyPatch) -> None:
    """A message is delivered at another level than it was originated."""
    whole = TotemMulti.deliver

    def deliver(self: TotemMulti, env: Env, key: Key, data: Any) -> None:
        spoilt = replace(data, level=Level.AGREED) if key.timestamp % 50 == 0 else data
        whole(self, env, key, spoilt)

    patch.setattr(TotemMulti, "deliver", deliver)


@mutant("MR-31 A4 A7", "progress")
def multi_says_nothing_of_what_it_passed(patch: MonkeyPatch) -> None:
    """What waits for its ring is refused when the ring does not come, however late that is."""
    patch.setattr(NetworkOrder, "refuse_passed", lambda self: None)


@mutant("MR-25 A5", "progress")
def multi_keeps_rings_small_across_a_merge(patch: MonkeyPatch) -> None:
    """A ring that shrank stays so, though others have all its members."""
    patch.setattr(NetworkOrder, "_whole_again", lambda self: None)


@mutant(
    "MR-38 A5",
    survives="120 aimed runs do not meet two topologies that differ in this alone; "
    "`rules/test_totem_multi_order.py -k gateway_is_alone` does.",
)
def multi_drains_without_a_name(patch: MonkeyPatch) -> None:
    """A topology's name does not tell which rings were left behind and still drain."""
    whole = NetworkOrder._report

    def report(self: NetworkOrder) -> Any:
        return tuple(each for each in whole(self) if each[0] in self.topology)

    patch.setattr(NetworkOrder, "_report", report)


@mutant(
    "MR-20 G-25",
    survives="120 aimed runs do not meet a wrong word about an interface; "
    "`rules/test_totem_multi_order.py -k its_own_word` does.",
)
def multi_believes_others_of_an_interface(patch: MonkeyPatch) -> None:
    """An interface is where others say that it went, though it says that it did not."""
    patch.setattr(
        "ringcast.protocols.totem_multi.network.leaves", lambda ring, change: ring == change.conf
    )


@mutant(
    "MR-31 A8",
    survives="250 aimed runs do not stand still for it since a gateway's word holds at all its "
    "interfaces (A3 ext); `rules/test_totem_multi_order.py -k mr_12_ext` does.",
)
def multi_takes_what_waited_for_copies(patch: MonkeyPatch) -> None:
    """What waited for a merge counts as a copy, if a later message came by another gateway."""
    patch.setattr(NetworkOrder, "accept_released", NetworkOrder.accept)


@mutant("MR-13 F2", "P-18")
def withholds_from_a_ring_with_members(patch: MonkeyPatch) -> None:
    """A gateway looks at its own ring only, and withholds what is for somebody further on."""
    patch.setattr(RingNetwork, "beyond", lambda self, ring: {ring})
    patch.setattr(withholding, "known", lambda sides, me, to: True)


@mutant("MR-13 F2 F3 F8", "progress", "P-18")
def withholds_the_bound_too(patch: MonkeyPatch) -> None:
    """Nothing is told of what was withheld."""

    def promise(self: TotemMulti, pid: NodeId) -> None:
        self.withholding.take(pid)

    patch.setattr(TotemMulti, "_promise", promise)


@mutant("MR-13 F4", "P-18")
def withholds_from_those_that_are_coming(patch: MonkeyPatch) -> None:
    """A processor that is in no delivered topology is nowhere, though a change brings it."""
    patch.setattr(withholding, "known", lambda sides, me, to: True)


@mutant("MR-13 F3", "P-18", "P-13", "progress")
def tells_more_than_was_withheld(patch: MonkeyPatch) -> None:
    """The place that is told is one further: the message there, if it comes, is a copy."""
    after(
        patch,
        Withholding,
        "take",
        lambda owed, *_: [replace(each, timestamp=each.timestamp + 1) for each in owed],
    )


@mutant("MR-13 F5", "progress", "P-9", "P-10", "P-14", "P-18")
def withholds_safe_messages_whole(patch: MonkeyPatch) -> None:
    """Nobody beyond hears of a safe message that is withheld, and all wait for their word."""
    whole = Withholding.part

    def part(self: Withholding, pid: NodeId, said: Forwarded, order: OrderState) -> Any:
        found = whole(self, pid, said, order)
        if found is None or not isinstance(found.message, Data) or found.message.bodies:
            return found
        return whole(self, pid, replace(said, message=WITHHELD), order)

    patch.setattr(Withholding, "part", part)


@mutant("MR-14 F1", "P-18")
def delivers_what_is_for_other_processors(patch: MonkeyPatch) -> None:
    """Whoever has a message delivers it."""

    def deliver(self: TotemMulti, env: Env, key: Key, data: Data) -> None:
        env.deliver(self.view, batch_of(key, data))

    patch.setattr(TotemMulti, "deliver", deliver)


def does_not_wait(self: NetworkOrder, env: Env, key: Key, data: Data, ring: RingId) -> bool:
    """In place of ``NetworkOrder._whole``."""
    self._hold(key)
    return True


@mutant("MR-13 F7", "P-18")
def withholds_what_a_group_beyond_wants(patch: MonkeyPatch) -> None:
    """A gateway takes everybody beyond it for members of no group, and nobody waits."""
    patch.setattr(Interests, "wanted_beyond", lambda *_: None)
    patch.setattr(NetworkOrder, "_whole", does_not_wait)


@mutant("MR-13 F7", "P-18")
def does_not_look_again_at_the_place(patch: MonkeyPatch) -> None:
    """What was withheld before somebody joined is not sent, and that one does not wait for it."""
    patch.setattr(NetworkOrder, "_whole", does_not_wait)


@mutant("MR-13 F7", "progress", "P-18")
def waits_for_what_nobody_sends(patch: MonkeyPatch) -> None:
    """The one that joined waits, and the gateway never looks again."""
    patch.setattr(Withholding, "reached", lambda *_: [])


@mutant("MR-13 F7", "P-18")
def passes_on_what_nobody_wants(patch: MonkeyPatch) -> None:
    """A gateway passes messages of all groups on, whoever is in them."""

    def part(self: Withholding, pid: NodeId, said: Forwarded, *_: Any) -> Forwarded:
        return said

    patch.setattr(Withholding, "_part_of_group", part)


@mutant("MR-13 F7", "progress", "P-18")
def takes_members_on_this_side_for_members_beyond(patch: MonkeyPatch) -> None:
    """A gateway passes a message on if anybody at all is in its group."""
    whole = Interests.wanted_beyond

    def beyond(self: Interests, pid: NodeId, nodes: Any, group: int) -> NodeId | None:
        return whole(self, 0, {*nodes, *self._said}, group)

    patch.setattr(Interests, "wanted_beyond", beyond)


@mutant("MR-13 F6", "P-18", "progress")
def remembers_groups_of_before(patch: MonkeyPatch) -> None:
    """What was said in another topology still counts, though others have said more since."""
    patch.setattr(Interests, "topology_changed", lambda self: self._found.clear())


@mutant("MR-13 F6", "P-18")
def delivers_what_is_for_other_groups(patch: MonkeyPatch) -> None:
    """Whoever has a message of a group delivers it."""

    def deliver(self: TotemMulti, env: Env, key: Key, data: Data) -> None:
        if data.bodies and (not data.to or self.me in data.to):
            env.deliver(self.view, batch_of(key, data))

    patch.setattr(TotemMulti, "deliver", deliver)


@mutant("MR-13 F8", "P-18", "progress")
def tells_the_place_of_a_groups_message_too_late(patch: MonkeyPatch) -> None:
    """A later message of the stream overtakes it, and it counts as a copy."""
    patch.setattr(Withholding, "hollow", lambda self, pid: False)


@mutant("MR-13 F9", "P-18", "progress", "P-14")
def acknowledges_a_place_for_a_message(patch: MonkeyPatch) -> None:
    """One that may be in the group says that it has a safe message of which it has the place."""
    patch.setattr(Interests, "may_want", lambda self, group: False)


@mutant("MR-13 T2", "progress")
def keeps_silent_on_a_ring_that_is_not_settled(patch: MonkeyPatch) -> None:
    """A member that has not delivered the change to a ring is left to a gateway it does not take
    anything from yet."""
    patch.setattr(RingPort, "settled", True)


@mutant("MR-13 T3", "progress", "P-9", "P-10", "P-11", "P-13", "P-14")
def forgets_what_it_kept_at_a_change(patch: MonkeyPatch) -> None:
    """What a gateway of the tree had not passed on when it died is lost."""
    after(patch, TreeRouting, "release", lambda *_: [])


@mutant(
    "MR-13 T5",
    survives="aimed runs do not break a ring in that moment, nor did 3,200 of the swarm but one; "
    "`rules/test_totem_multi_routing.py -k t5` and `sim/test_multi_swarm.py -k triangle` do.",
)
def delivers_what_it_keeps(patch: MonkeyPatch) -> None:
    """A gateway's own message overtakes what it has delivered and left to another gateway."""
    patch.setattr(TreeRouting, "waits", lambda self, key: False)


@mutant("MR-13 T1 T4", "progress", "P-12")
def a_tree_that_nobody_is_on(patch: MonkeyPatch) -> None:
    """Every gateway leaves it to the others."""
    patch.setattr(routing, "tree", lambda gateways: {})
    after(patch, TreeRouting, "overdue", lambda *_: [])

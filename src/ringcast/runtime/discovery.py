"""Who is where, and who is alive: addresses from the configuration and from Hellos, and meeting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ringcast.core.ids import NodeId
from ringcast.runtime.platform import Transport
from ringcast.runtime.port_config import PortConfig
from ringcast.wire import address
from ringcast.wire.address import Address
from ringcast.wire.codec import EVERYBODY, Codec
from ringcast.wire.meeting import MOST, Hello, Whereabouts
from ringcast.wire.misfits import ANYBODY, OLD

MOST_GREETINGS, MOST_ANSWERS = 2, 16
"""Hellos to one processor between two looks around, unasked and asked for: a burst of frames from
somebody who was not met must not use up the answers."""

BORROWED = "node {} has the id of this node, {}, at {}: give one of the two another id, or list it \
where it is"

LOST = "others know a later start of this node: its state_dir was lost or is old, and its clock is \
behind; set the clock, and start it again"

YOUNG = 10
"""Looks around, one a second, in which a node may learn that its own past is ahead of it."""

MOST_NEWS = 1024
"""Places that are news, and not of who says them, that are looked at between two looks around: a
Hello may have 254, and each address costs as much as a frame."""

MOST_QUIET = 86_400
"""Looks around, one a second, until a processor that is not listed and is silent is forgotten."""

MOST_UNANSWERED = 5
"""Looks around in which a processor that is not listed and is silent is asked, while there is no
room for newcomers, until it is forgotten."""

NO_ADDRESS = "somebody looks for this node, but bind names no address: set advertise"


class PeerBook:
    """The addresses of the others.

    The configuration wins, then what a processor says of itself, then what others say of it. That
    last is hearsay: it is good for a greeting, and neither passed on nor sent any frame to.
    """

    def __init__(self, mine: Whereabouts, listed: dict[NodeId, Address]) -> None:
        self.mine = mine
        self._listed = {node: Whereabouts(node, 0, *listed[node]) for node in sorted(listed)}
        self._told: dict[NodeId, Whereabouts] = {}
        self._hearsay: dict[NodeId, Whereabouts] = {}
        self.news = MOST_NEWS
        """How many more are looked at until the next look around."""

    def learn(self, hello: Hello) -> list[NodeId]:
        """What a processor that was met says of itself and others; who was not known before."""
        own, *others = hello.places
        if own.node in self._listed:  # at an address of ours, but it knows its incarnation
            self._listed[own.node] = msgspec.structs.replace(self._listed[own.node], boot=own.boot)
        if self._news(own, self._told) and reachable(own):
            self._hearsay.pop(own.node, None)
            if len(self._told) + len(self._hearsay) >= MOST and self._hearsay:
                del self._hearsay[next(iter(self._hearsay))]
            if own.node in self._told or len(self._told) < MOST:
                self._told[own.node] = own
        new = []
        for place in others:
            full = len(self._told) + len(self._hearsay) >= MOST
            if place.node in self._told or (full and place.node not in self._hearsay):
                continue
            if not self.news or not self._news(place, self._hearsay):
                continue
            self.news -= 1
            if reachable(place):
                new.append(place.node)
                self._hearsay[place.node] = place
        return new

    def told(self) -> list[NodeId]:
        """Who is known by its own word alone."""
        return list(self._told)

    def own_word(self, node: NodeId) -> Whereabouts | None:
        """Where it said it is; None if it said nothing, or is listed."""
        return self._told.get(node)

    def by_hearsay(self, node: NodeId) -> bool:
        """Whether only others have said where it is: nothing is sent there but greetings."""
        return node in self._hearsay

    @property
    def full(self) -> bool:
        """Whether there is no room for a newcomer."""
        return len(self._told) >= MOST

    def forget(self, node: NodeId) -> None:
        """Send it nothing more, until it says where it is."""
        self._told.pop(node, None)
        self._hearsay.pop(node, None)

    def _news(self, place: Whereabouts, known: dict[NodeId, Whereabouts]) -> bool:
        before = known.get(place.node)
        if place.node == self.mine.node or place.node in self._listed:
            return False
        return before is None or before.boot < place.boot

    def places(self) -> tuple[Whereabouts, ...]:
        """What I can tell: first where I am."""
        known = self._listed | self._told
        return (self.mine, *(known[node] for node in sorted(known)[: MOST - 1]))

    def addresses(self) -> dict[NodeId, Address]:
        """Everybody to send frames to, ascending by id."""
        return by_node(self._listed | self._told)

    def known(self) -> dict[NodeId, Address]:
        """Everybody I have heard of, ascending by id."""
        return by_node(self._hearsay | self._told | self._listed)


class QuietPeer(NamedTuple):
    """Of a processor that is not listed."""

    newest: int = 0
    """The number of its newest frame."""
    looks: int = 0
    """For how many looks around there was none."""
    asked: int = 0
    """In how many of these it was asked whether it is there."""


def reachable(place: Whereabouts) -> bool:
    """Whether an address names a host."""
    return not Address(place.host, place.port).unspecified


def by_node(places: dict[NodeId, Whereabouts]) -> dict[NodeId, Address]:
    """Their addresses, ascending by id."""
    return {node: Address(places[node].host, places[node].port) for node in sorted(places)}


class Meetings:
    """Says Hello to whoever has to be met before it is heard, and answers Hellos."""

    def __init__(self, config: PortConfig, boot: int, udp: Transport, codec: Codec) -> None:
        self._config, self._udp, self._codec = config, udp, codec
        # Read from the text once, not at every Hello.
        self._public, self._listed = config.public_address, config.peer_addresses
        where = udp.address if self._public == config.bind_address else self._public
        self.book = PeerBook(Whereabouts(config.id, boot, *where), self._listed)
        self._seeds = [address.parse(text, "seeds") for text in config.seeds]
        self._greeted: Counter[tuple[NodeId, bool]] = Counter()
        """How often who was greeted, and answered, since the last look around."""
        self.looks = 0
        """How often it looked around, once a second."""
        self._silent: dict[NodeId, QuietPeer] = {}
        self.twin = ""
        """Who else has this node's id, and started later."""
        self._doubted: int | None = None
        """The look around at which a member first said that this node's state is old, if no other
        member knows better."""
        self._vouchers: set[NodeId] = set()
        """Members to whom this start of the node is its latest."""

    def all_met(self) -> bool:
        """Whether everybody that is known has been met."""
        known = self.book.known()
        return bool(known) and all(self._codec.knows(node) for node in known)

    def unheard(self) -> tuple[list[str], list[str]]:
        """Listed processors that were never met, and whose Hellos do not say why; of seeds one must
        have answered. First those that are silent, then those in whose name frames come that cannot
        be opened."""
        codec = self._codec
        silent: list[str] = []
        closed: list[str] = []
        said, explained = codec.unproven.said(ANYBODY), codec.unproven.said(OLD) | codec.misfits
        for node, at in self._listed.items():
            if not codec.knows(node) and node not in explained:
                (closed if node in said else silent).append(f"node {node} ({at})")
        mine = Address(self.book.mine.host, self.book.mine.port)
        seeds = [str(at) for at in self._seeds if at != mine]
        if seeds and not explained and not any(map(codec.knows, self.book.known())):
            (closed if said else silent).append(f"anybody at the seeds {', '.join(seeds)}")
        return silent, closed

    def look_around(self) -> None:
        """Once in a while: to seeds, to the multicast group, and to who was not met yet."""
        self.looks += 1
        doubted = self._doubted
        if doubted is not None and self.looks > doubted + 1:
            self.twin = LOST
        asked = self._forget_silent()
        self._udp.connect(self.book.addresses())  # a name may have moved, a route appeared
        self.book.news = MOST_NEWS
        self._greeted.clear()
        self.greet(asked)
        for seed in self._seeds:
            self._udp.send_to(seed, self._hello(True))
        if self._config.multicast:  # tokens are unicast, so addresses must be known here too
            self._udp.broadcast(self._hello(False))
        knows, by_hearsay = self._codec.knows, self.book.by_hearsay
        self.greet(
            node
            for node in self.book.known()
            if doubted is not None or not knows(node) or by_hearsay(node)
        )

    def _forget_silent(self) -> list[NodeId]:
        """Who is not listed and was not heard for long was removed for good: frames to it, and a
        socket, would be wasted for ever. Should it come back, it says Hello.

        If there is no room for newcomers, whoever is silent is asked whether it is there, as the
        members of an idle ring need not say anything to each other; those to be asked now."""
        ask, full = [], self.book.full
        for node in self.book.told():
            newest, last = self._codec.newest(node), self._silent.get(node, QuietPeer())
            quiet = QuietPeer(newest)
            if last.newest == newest:
                quiet = QuietPeer(newest, last.looks + 1, last.asked + 1 if full else 0)
            self._silent[node] = quiet
            if quiet.looks >= MOST_QUIET or quiet.asked > MOST_UNANSWERED:
                del self._silent[node]
                self.book.forget(node)
            elif quiet.asked:
                ask.append(node)
        return ask

    def on_hello(self, src: NodeId, boot: int, hello: Hello) -> None:
        """Somebody is there."""
        place = hello.places[0]
        if (place.node, place.boot) != (src, boot):
            self._codec.refuse(f"a Hello in the name of another, from node {src}")
            return
        if self._public.unspecified and src not in self._listed:
            self._codec.refuse(NO_ADDRESS)  # we would hear a newcomer that cannot hear us
            return
        met = self._codec.met(src, boot)
        if met and src == self.book.mine.node and boot > self.book.mine.boot:
            at = Address(place.host, place.port)
            self.twin = f"another processor uses the id {src}, at {at}"
            return
        self._look_for_twins(hello, met)
        if met:
            before, new = self.book.own_word(src), self.book.learn(hello)
            if self.book.own_word(src) != before:  # names of all are looked up: not at each Hello
                self._udp.connect(self.book.addresses())
            if new:
                self.greet(new)
        if hello.wants or not met:
            where = Address(place.host, place.port)
            at = self._listed.get(src, where)
            self._say(src, at, not met, hello.challenge)
            if at != where and not where.unspecified and not met:
                self._say(src, where, False, None, meet=False)  # it cannot be met, but be told

    def _look_for_twins(self, hello: Hello, met: bool) -> None:
        """Another node with this one's id: if it started later, this one has to go. Any member can
        say so, so the other one is asked itself. Of its own past a node that has just started
        believes a member, unless another one knows no later start; the next look around asks them.
        If others have the id at another address, they do not send here."""
        mine, src = self.book.mine, hello.places[0].node
        for place in hello.places[1:]:
            if place.node != mine.node:
                continue
            at = Address(place.host, place.port)
            here = at == Address(mine.host, mine.port)
            if met and place.boot > mine.boot:
                if not here:
                    self._say(mine.node, at, True, None)
                    continue
                self._codec.misfit(src, f"node {src} says: {LOST}")
                self._vouchers.discard(src)
                if self._doubted is None and not self._vouchers and self.looks <= YOUNG:
                    self._doubted = self.looks
            elif met and place.boot == mine.boot:
                self._vouchers.add(src)
                self._doubted = None  # or it would count whenever no voucher is left
            elif not self._codec.knows(src) and not here:
                self._codec.unproven.note(src, BORROWED.format(src, mine.node, at), OLD)

    def greet(self, nodes: Iterable[NodeId]) -> None:
        """Ask for the Hello that lets these be heard."""
        known = self.book.known()
        for node in nodes:
            if node in known:
                self._say(node, known[node], True, None)

    def _say(
        self, node: NodeId, at: Address, wants: bool, echo: int | None, meet: bool = True
    ) -> None:
        """A Hello to one processor, unless it has had many. To ``meet``, it needs our challenge."""
        asked = echo is not None
        if self._greeted[node, asked] < (MOST_ANSWERS if asked else MOST_GREETINGS):
            self._greeted[node, asked] += 1
            self._udp.send_to(at, self._hello(wants, echo or 0, meet))

    def _hello(self, wants: bool, echo: int = 0, meet: bool = True) -> bytes:
        codec = self._codec
        terms = (codec.terms, codec.wishes)
        challenge = codec.challenge if meet else 0
        hello = Hello(self.book.places(), wants, challenge, echo, *terms)
        return codec.encode(hello, EVERYBODY)

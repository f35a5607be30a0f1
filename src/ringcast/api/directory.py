"""Who is in which group: a function of the total order, so the same at every member.

On a new ring every node first says which groups it is in. When all have spoken, at one and the
same place in the order, each group's view is known and given out; what was delivered until then
waits. If the ring breaks before that, those who go on together wait on: a node that was not heard
on a ring says on the next one what it would have said, and then all of them get the views and
messages of both, one after the other. So nothing is lost of what was delivered, and the view of a
ring holds those who spoke on it and those who stayed together after it; who parted unheard is not
in it. Only if too much waits (a function of the order, too) it is given out without those who have
not spoken: they are in no group of that ring, and their groups are told what they missed. Where
messages go to some alone, what waits is no function of the order: the first member with too much of
it says so, and the place of its word is one.

Joining and leaving a group are messages themselves, so they have their place in the order too.

Where the members are fixed there is one ring, some of its members may never have run, and nobody
is in a group when it begins: so nobody is waited for. What nodes remember of writers then counts
from the place of their words on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from ringcast.api.group_views import GroupViews, Sink
from ringcast.api.writer_dedup import WriterDedup
from ringcast.core.effects import InstallView
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.wire.envelope import (
    MOST_EARLIER,
    MOST_GROUPS,
    Aside,
    Data,
    Earlier,
    Enter,
    Envelope,
    Exit,
    Groups,
    Known,
    encode,
)

MOST_WAITING = 64 * 2**20
"""Bytes that wait for members that have not said which groups they are in. If it is more, the
oldest ring is given out: all who wait for its words have had the same rings since."""

CROWDED = MOST_WAITING // 4
"""From here on the ring is slowed down."""

MUCH_TO_SOME = MOST_WAITING * 3 // 4
"""Bytes to some: a member with more says that nobody waits any longer, with room for what is under
way until then. What members have under way when a ring begins is less (``outgoing.UNDER_WAY``)."""

ITEM_BYTES = 256
"""What a message takes besides its bodies, about; the same number at all members."""

LIST_BYTES = 4
"""What the length of a list takes, if it is not short."""

NAME_BYTES = 64
"""What a group's name takes besides its letters, about, which take up to 4 bytes each."""


class Waiting(NamedTuple):
    """A message of the ring that waits, as ``Directory.on_envelope`` got it."""

    sender: NodeId
    level: Level
    position: Position
    envelope: Envelope
    writer: str
    to: tuple[NodeId, ...]


class UnopenedRing:
    """A ring whose views and messages wait, because not all of its members have spoken."""

    def __init__(self, begins: InstallView) -> None:
        self.begins = begins
        self.present = begins.members
        """Those that are left of them: who goes on together when the ring breaks."""
        self.words: dict[NodeId, tuple[str, ...]] = {}
        self.known: dict[NodeId, tuple[Known, ...]] = {}
        self.bytes = 0
        """Of its messages to all, and of the words said on it."""
        self.some_bytes = 0
        self.lost: Counter[str] = Counter()
        """By group: messages to some that were too much."""
        self.given_up = False
        """Whether this node has said so."""
        self.overfull = False
        """It opens without those who have not spoken."""

    def waits_for(self) -> tuple[NodeId, ...]:
        """Those who go on together and have not spoken."""
        return tuple(q for q in self.present if q not in self.words)

    @property
    def complete(self) -> bool:
        """Whether its views count all members: it did not break before they had spoken."""
        return self.overfull or self.words.keys() == set(self.begins.members)


class Directory:
    """What the members of the ring say about groups, and what waits for their words."""

    def __init__(self, me: NodeId, opened: Callable[[], None], fixed: bool = False) -> None:
        self._me = me
        self._opened = opened
        self._fixed = fixed
        self._memory: tuple[Known, ...] = ()
        self._views = GroupViews(me)
        """What was given out, and to whom."""
        self._unopened: list[UnopenedRing] = []
        """Oldest first; the last is the present ring. Empty while that is open."""
        self._waiting: deque[InstallView | Waiting] = deque()
        """From the beginning of the oldest of them on."""
        self._bytes = 0
        """Of messages to all that wait, and of words about groups."""
        self._some_bytes = 0
        """Of messages to some, which not all members see, and which therefore decide nothing."""
        self.streams = WriterDedup()
        self.complete = fixed
        """Whether the views of the last ring that was opened count all of its members."""
        self.left_aside = 0
        """Members that were not waited for any longer, since the start."""

    def members(self, group: str) -> tuple[NodeId, ...]:
        """The group's members as of the last event given out: while the members of a new ring say
        which groups they are in, those of the group's last view."""
        told = () if self.open else self._views.told.get(group, ())
        return told or self._views.members(group)

    def enter(self, group: str, sink: Sink) -> None:
        """An Enter is on its way; from its place in the order on, events go to ``sink``."""
        self._views.entering.setdefault(group, deque()).append(sink)

    def remember(self, known: Iterable[Known]) -> None:
        """What this node knows of writers from earlier days, before the first ring."""
        self._memory = tuple(known)
        if not self._fixed:
            self.streams.learn(self._memory, own=True)

    def word(self, most: int = MOST_WAITING) -> Groups:
        """What this node has to say on the present ring, and on those that wait for its word; so
        much of it as a message of ``most`` bytes takes: the groups it is in first, then the writers
        heard of last."""
        word = self._whole_word()
        while len(encode(word)) > most and word.earlier:
            word = word.without_oldest()
        if len(encode(word)) <= most:
            return word
        short = replace(word, known=())
        return replace(short, known=_newest(word.known, most - len(encode(short)) - LIST_BYTES))

    def _whole_word(self) -> Groups:
        if self._fixed:
            return Groups(self._views.ring, (), self._memory)
        *before, (ring, names) = self._own_groups()
        heard = {each.begins.view for each in self._unopened if self._me in each.words}
        unheard = (each for each in reversed(before) if each[0] not in heard)
        earlier: list[Earlier] = []
        row: tuple[str, ...] = ()
        for some, rings in groupby(unheard, key=itemgetter(1)):
            if len(some) + len(row) > MOST_GROUPS:
                break  # of the newest, so much as a word takes
            earlier.insert(0, Earlier(tuple(view for view, _ in rings)[::-1], len(some)))
            row = some + row
        return Groups(ring, names, self.streams.known(), tuple(earlier), row)

    def _own_groups(self) -> Iterator[tuple[ViewId, tuple[str, ...]]]:
        """The groups this node is in when each ring begins that waits, behind its own words that
        wait, too; if none waits, of the ring that was given out last."""
        names = set(self._views.sinks)
        entering = {group: len(some) for group, some in self._views.entering.items()}
        if not self._unopened:
            yield self._views.ring, tuple(sorted(names))
        for item in self._waiting:
            if isinstance(item, InstallView):
                if not item.transitional:
                    yield item.view, tuple(sorted(names))
            elif item.sender == self._me:
                match item.envelope:
                    case Enter(group) if entering.get(group):
                        entering[group] -= 1
                        names.add(group)
                    case Exit(group):
                        names.discard(group)

    @property
    def open(self) -> bool:
        """Whether all members of the ring have spoken, or nobody else will."""
        return not self._unopened

    @property
    def crowded(self) -> bool:
        """Whether much waits for members that have not spoken."""
        return self._bytes + self._some_bytes > CROWDED

    def waits_for(self) -> tuple[NodeId, ...]:
        """The members that have not said which groups they are in."""
        return self._unopened[-1].waits_for() if self._unopened else ()

    def on_view(self, change: InstallView) -> None:
        """The ring changes. With the first word of that, be it a transitional view or, of a
        protocol that has none, the next regular one, it is known who goes on together."""
        for ring in self._unopened:
            ring.present = tuple(q for q in ring.present if q in change.members)
            if not change.transitional:
                ring.known.clear()  # nothing more comes on this ring, and the next words repeat it
        if self._unopened and not self._unopened[-1].waits_for():
            self._give_out()
        if self._fixed or (change.transitional and self.open):
            self._views.turn(change, {})
            return
        self._waiting.append(change)
        if not change.transitional:
            self.streams.new_ring()
            self._unopened.append(UnopenedRing(change))
            if len(self._unopened) > MOST_EARLIER:
                self._open_overfull()

    def on_envelope(
        self,
        sender: NodeId,
        level: Level,
        position: Position,
        envelope: Envelope,
        writer: str = "",
        to: tuple[NodeId, ...] = (),
        filtered: bool = False,
    ) -> None:
        """A message of the ring, at its place in the order; who published it, if not the sender;
        whom it is for, if not for all; whether it went only where its group has members."""
        if type(envelope) is Groups:
            self._hear(sender, envelope)
        elif type(envelope) is Aside:
            self._leave_aside(sender, envelope)
        elif not self._unopened:
            self._views.act(sender, level, position, envelope, writer, to)
        else:
            bodies = envelope.bodies if type(envelope) is Data else ()
            size = ITEM_BYTES + sum(map(len, bodies)) + 64 * len(bodies)
            to_all = not (to or filtered)
            if not to_all and self._some_bytes + size > MOST_WAITING:
                self._lose(envelope)
                return
            self._waiting.append(Waiting(sender, level, position, envelope, writer, to))
            if to_all:
                self._count(self._unopened[-1], size)
            else:
                self._unopened[-1].some_bytes += size
                self._some_bytes += size

    def give_up(self) -> Aside | None:
        """What this node has to say, once on each ring, if it has too much to some waiting."""
        ring = self._unopened[-1] if self._unopened else None
        if ring is None or ring.given_up or self._some_bytes <= MUCH_TO_SOME:
            return None
        ring.given_up = True
        return Aside(ring.begins.view)

    def _leave_aside(self, sender: NodeId, word: Aside) -> None:
        """A member has too much waiting: nobody waits for those who have not spoken here."""
        ring = self._unopened[-1] if self._unopened else None
        if ring is not None and word.ring == ring.begins.view and sender in ring.present:
            while self._unopened:
                self._open_overfull()

    def _lose(self, envelope: Envelope) -> None:
        """A message to some is too much; whoever reads its group is told with the ring."""
        views = self._views
        if isinstance(envelope, Data) and envelope.group in {*views.sinks, *views.entering}:
            self._unopened[-1].lost[envelope.group] += len(envelope.bodies)

    def _hear(self, sender: NodeId, word: Groups) -> None:
        """A member says which groups it is in. A word for an earlier ring comes too late: what it
        said is in the one for this ring."""
        if self._fixed:
            self.streams.learn(word.known, own=sender == self._me)
        ring = self._unopened[-1] if self._unopened else None
        if ring is None or word.ring != ring.begins.view or sender not in ring.present:
            return
        ring.words[sender], ring.known[sender] = word.names, word.known
        said = dict(word.said_earlier())
        for each in self._unopened[:-1]:
            names = said.get(each.begins.view)
            if names is not None and sender in each.present:
                each.words.setdefault(sender, names)
        if not ring.waits_for():
            self._learn_and_give_out(ring)
            return
        every = (*word.names, *word.earlier_names)
        self._count(ring, NAME_BYTES * len(every) + 4 * sum(map(len, every)))

    def _count(self, ring: UnopenedRing, size: int) -> None:
        """Something for all waits with the present ring."""
        ring.bytes += size
        self._bytes += size
        while self._bytes > MOST_WAITING:
            self._open_overfull()

    def _open_overfull(self) -> None:
        """Too much waits: give out the oldest ring without those who have not spoken."""
        ring = self._unopened[0]
        self.left_aside += len(ring.waits_for())
        ring.overfull = True
        if len(self._unopened) > 1:
            self._open_first()
        else:
            self._learn_and_give_out(ring)

    def _learn_and_give_out(self, ring: UnopenedRing) -> None:
        if ring.complete:  # words of some alone would have all forget what the others remember
            self.streams.agree(each for q in sorted(ring.known) for each in ring.known[q])
        self._give_out()

    def _give_out(self) -> None:
        """Everybody has spoken, or nobody else will: the views, and what waited for them."""
        while self._unopened:
            self._open_first()
        self._opened()

    def _open_first(self) -> None:
        """Give out the oldest ring, as far as it is known or until the next one begins."""
        ring, views, waiting = self._unopened.pop(0), self._views, self._waiting
        self.complete = ring.complete
        self._bytes -= ring.bytes
        self._some_bytes -= ring.some_bytes
        waiting.popleft()
        views.turn(ring.begins, ring.words)
        while waiting and not _begins(item := waiting[0]):
            if isinstance(item, Waiting):
                views.act(*item)
            else:
                views.turn(item, {})
            waiting.popleft()
        for group, count in sorted(ring.lost.items()):
            if group in views.sinks:
                views.sinks[group].lost(count)


def _newest(known: tuple[Known, ...], room: int) -> tuple[Known, ...]:
    """As many of the last as so many bytes take."""
    first = len(known)
    while first and (room := room - len(encode(known[first - 1]))) >= 0:
        first -= 1
    return known[first:]


def _begins(item: InstallView | Waiting) -> bool:
    """Whether a ring begins here."""
    return isinstance(item, InstallView) and not item.transitional

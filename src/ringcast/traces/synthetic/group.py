"""A group that never was: who is in which ring and when, for traces of any size.

Time in a ring goes by *slots*, one a visit of the token. In a slot the member whose turn it is
originates ``burst`` frames, everybody delivers what has become deliverable, and the holder
submits what it will originate at its next visit. An agreed frame is deliverable in the slot it
was originated in, a safe one two rotations later, and nothing overtakes. So the slot, the time
and the number of every event follow from its place alone, and any part of a trace can be made
without the parts before it.

Between two rings a member crashes, leaves, joins, returns, or the token is merely lost. What was
not yet deliverable is then delivered in the transitional configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Crashed, Ended, Installed, Noted, Restarted, TraceEvent

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise ImportError("made traces need numpy: pip install 'ringcast[trace]'") from error

Ints = NDArray[np.int64]

ROTATIONS = 3
"""The token goes round so often before a safe frame is surely delivered, and in a ring at least."""

LEAST_US, JITTER_US, FRAME_US = 10, 32, 12
"""From sending to delivering: at least, at random, and for each frame on the wire before."""

FORMING_US = 1200
"""From the end of a ring to the first slot of the next."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a made trace looks like. ``events`` counts rows of submit, originate and deliver."""

    events: int = 1_000_000
    members: int = 5
    rings: int = 10
    frame: int = 8
    """Messages a frame."""
    burst: int = 16
    """Frames a visit of the token."""
    safe: float = 0.1
    """Share of the frames that are safe."""
    epochs: bool = False
    """Whether numbers go on from ring to ring, and members note that an epoch begins."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("members", 2), ("rings", 1), ("frame", 1), ("burst", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.safe <= 1:
            raise ValueError(f"safe is a share between 0 and 1, not {self.safe}")

    @property
    def slot_us(self) -> int:
        """How long a slot takes."""
        return LEAST_US + JITTER_US + FRAME_US * self.burst + 8


class MadeStay(msgspec.Struct, kw_only=True):
    """The time of one member in one ring."""

    node: NodeId
    turn: int
    """Its place in the rotation."""
    incarnation: int
    salt: int
    """Tells the contents of this incarnation from all others."""
    before: int
    """Frames this incarnation originated in earlier rings."""
    fresh: bool
    """Whether it comes with nothing submitted, and submits at the start."""
    first_n: int
    last_slot: int = 0
    """The last slot it saw; the ring may have had more."""
    delivered: int = 0
    """Frames delivered in the ring itself."""
    then: ViewId | None = None
    """The transitional configuration after it: none after a crash, or in the last ring."""
    then_n: int = 0
    then_us: int = 0


class Era(msgspec.Struct, frozen=True, kw_only=True):
    """One ring, from its installation to its end."""

    shape: Shape
    view: ViewId
    stays: tuple[MadeStay, ...]
    """In the order of the rotation."""
    visits: int
    silent: int
    """Numbers at the start that belong to no message of an application."""
    start_us: int
    last: bool

    @property
    def frames(self) -> int:
        """How many there are."""
        return self.visits * self.shape.burst

    def slot_us(self, slots: Ints) -> Ints:
        """When these slots begin."""
        return self.start_us + (slots + 1) * self.shape.slot_us

    def visits_of(self, turn: int, slots: Ints) -> Ints:
        """How often that member had the token, up to and in these slots."""
        return (np.minimum(slots, self.visits - 1) - turn) // len(self.stays) + 1

    def refills_of(self, turn: int, slots: Ints) -> Ints:
        """How often it submitted after a visit; in the last ring nothing is left over."""
        ring = len(self.stays)
        limit = self.visits - 1 - (ring if self.last else 0)
        return (np.minimum(slots, limit) - turn) // ring + 1


class MadeFrames:
    """The frames of visits ``start .. end - 1`` of a ring, as arrays."""

    def __init__(self, era: Era, start: int, end: int) -> None:
        shape, ring = era.shape, len(era.stays)
        earliest = max(0, start - 2 * ring)  # safe frames from before that no longer matter
        visit = np.repeat(np.arange(earliest, end), shape.burst)
        self.place = np.arange(earliest * shape.burst, end * shape.burst)
        self.within = self.place - visit * shape.burst
        self.turn = visit % ring
        before = np.array([stay.before for stay in era.stays])
        self.number = before[self.turn] + visit // ring * shape.burst + self.within
        self.salt = np.array([stay.salt for stay in era.stays], np.uint64)[self.turn]
        self.safe = is_safe(self.number, self.salt, shape.safe)
        self.slot = np.maximum.accumulate(visit + 2 * ring * self.safe)
        self.visit = visit
        self._first = earliest * shape.burst
        self._slots = self.slot
        self._cut((start - earliest) * shape.burst)

    def _cut(self, start: int) -> None:
        for name in ("place", "visit", "within", "turn", "number", "salt", "safe", "slot"):
            setattr(self, name, getattr(self, name)[start:])

    def deliverable(self, slots: Ints) -> Ints:
        """How many frames of the ring are deliverable up to and in each of these slots."""
        return self._first + np.searchsorted(self._slots, slots, side="right")


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """32 bits each that look random."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed >>= np.uint64(32)
    return mixed


def is_safe(numbers: Ints, salt: NDArray[np.uint64], share: float) -> Ints:
    """Which frames of a sender are safe, as 0 and 1."""
    drawn = mixed(numbers.view(np.uint64) ^ ~salt)
    return (drawn < np.uint64(round(share * 2**32))).astype(np.int64)


class _Life:
    """One processor while the story is told."""

    def __init__(self) -> None:
        self.n = 0
        self.incarnation = 0
        self.salt = 0
        self.frames = 0  # originated by this incarnation
        self.view: ViewId | None = None  # the configuration it is in
        self.era: Era | None = None
        self.stay: MadeStay | None = None


class MadeStory:
    """The whole life of a group: its rings, and every event that is not about messages."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.eras: list[Era] = []
        self.control: list[TraceEvent] = []
        self._random = Random(shape.seed)
        self._lives = {id: _Life() for id in range(1, shape.members + 1)}
        self._tell()

    @property
    def nodes(self) -> list[NodeId]:
        """Every processor there is."""
        return list(self._lives)

    def stays(self, node: NodeId) -> Iterator[tuple[Era, MadeStay]]:
        """The rings one processor was in."""
        for era in self.eras:
            for stay in era.stays:
                if stay.node == node:
                    yield era, stay

    def _tell(self) -> None:
        shape = self.shape
        inside = self.nodes[: max(2, shape.members - 1)]  # one joins later
        t_us, events = 0, shape.events
        for index in range(shape.rings):
            last = index == shape.rings - 1
            goes, comes = (None, None) if last else self._change(inside)
            view = ViewId(8 + 4 * index, inside[0])
            era = self._era(view, inside, t_us, events / (shape.rings - index), last)
            events -= era.frames * shape.frame * (2 + len(inside))
            self._work(era, goes)
            self.eras.append(era)
            slots = max(stay.last_slot for stay in era.stays) + 1
            t_us = era.start_us + (slots + 2) * shape.slot_us
            if goes is not None:
                self._end(goes, t_us - shape.slot_us)
            inside = sorted({*inside, comes or inside[0]} - {goes})
        self.control.append(Ended(t_us, tuple(inside)))

    def _change(self, inside: list[NodeId]) -> tuple[NodeId | None, NodeId | None]:
        """Who goes and who comes next; if nobody does, the token was lost."""
        draw = self._random
        outside = [id for id in self._lives if id not in inside]
        comes = draw.choice(outside) if outside and draw.random() < 0.9 else None
        leaves = draw.random() < (0.3 if outside else 0.7)  # the group is nearly whole mostly
        goes = draw.choice(inside) if leaves and len(inside) > 2 else None
        return goes, comes

    def _era(
        self, view: ViewId, members: list[NodeId], t_us: int, events: float, last: bool
    ) -> Era:
        """The ring ``view`` forms, long enough for so many events."""
        shape, ring = self.shape, len(members)
        fresh = [id for id in members if self._lives[id].view is None]
        for id in fresh:
            self._start(id, ViewId(view.seq - 4, id), t_us)
        before = self.eras[-1].silent + self.eras[-1].frames if self.eras and shape.epochs else 0
        self._form(view, tuple(members), t_us, before)
        rotations = round(events / (ring * shape.burst * shape.frame * (2 + ring)))
        era = Era(
            shape=shape,
            view=view,
            stays=tuple(self._stay(id, turn, id in fresh) for turn, id in enumerate(members)),
            visits=ring * max(ROTATIONS, rotations),
            silent=before + self._random.randrange(shape.burst),
            start_us=t_us + FORMING_US,
            last=last,
        )
        for stay in era.stays:
            self._lives[stay.node].era = era
        return era

    def _stay(self, id: NodeId, turn: int, fresh: bool) -> MadeStay:
        life = self._lives[id]
        life.stay = MadeStay(
            node=id,
            turn=turn,
            incarnation=life.incarnation,
            salt=life.salt,
            before=life.frames,
            fresh=fresh,
            first_n=life.n + 1,
        )
        return life.stay

    def _work(self, era: Era, goes: NodeId | None) -> None:
        """Count what every member does in the ring."""
        ring, burst = len(era.stays), self.shape.burst
        tail = MadeFrames(era, era.visits - 2, era.visits)
        for stay in era.stays:
            stay.last_slot = era.visits - 1 + (2 * ring if era.last else 0)
            if stay.node == goes and stay.turn != ring - 1:
                stay.last_slot -= 1  # it does not live to see the last visit of the token
            slot = np.array([stay.last_slot])
            stay.delivered = int(tail.deliverable(slot)[0])
            bursts = era.visits_of(stay.turn, slot) + era.refills_of(stay.turn, slot) + stay.fresh
            life = self._lives[stay.node]
            life.n += 2 * stay.delivered + burst * int(bursts[0])
            life.frames += burst * era.visits // ring

    # what processors tell

    def _next(self, id: NodeId, t_us: int) -> tuple[NodeId, int, int]:
        """The first three fields of the next event of ``id``."""
        life = self._lives[id]
        life.n += 1
        return id, life.n, t_us

    def _start(self, id: NodeId, alone: ViewId, t_us: int) -> None:
        life = self._lives[id]
        life.incarnation += 1
        life.salt, life.frames = self._random.getrandbits(64), 0
        life.view, life.era = alone, None
        self.control += (
            Restarted(*self._next(id, t_us), life.incarnation),
            Installed(*self._next(id, t_us), alone, (id,), False, alone, 0, None, None),
        )

    def _end(self, id: NodeId, t_us: int) -> None:
        self._lives[id].view = None
        self.control.append(Crashed(*self._next(id, t_us), self._random.choice(("", "left"))))

    def _form(self, view: ViewId, members: tuple[NodeId, ...], t_us: int, before: int) -> None:
        """All agree; then each goes through its transitional configuration. The ring begins behind
        the number ``before``, of which members make a note if it has epochs."""
        for id in members:
            note = self._next(id, t_us + FORMING_US // 3)
            self.control.append(Noted(*note, "made", "commit", "", view, members))
        old = {id: self._lives[id].view for id in members}
        for id in members:
            together = tuple(other for other in members if old[other] == old[id])
            t = self._step(id, ViewId(view.seq - 2, together[0]), together, view, members, t_us)
            if self.shape.epochs:
                epoch, data = self._next(id, t), (0, before, 0)
                self.control.append(Noted(*epoch, "made", "epoch", "", view, members, data))

    def _step(
        self,
        id: NodeId,
        middle: ViewId,
        together: tuple[NodeId, ...],
        view: ViewId,
        members: tuple[NodeId, ...],
        t_us: int,
    ) -> int:
        """One processor goes on to ``view`` with those it was ``together`` with; says when."""
        life, control = self._lives[id], self.control
        old, era, stay = life.view, life.era, life.stay
        assert old is not None
        t_us += FORMING_US // 2 + self._random.randrange(FORMING_US // 4)
        control.append(Noted(*self._next(id, t_us), "made", "deliver_memb", "", middle, together))
        last = era.silent + stay.delivered if era and stay else 0
        conf = self._next(id, t_us)
        control.append(Installed(*conf, middle, together, True, old, last, middle, old))
        if era and stay:
            stay.then, stay.then_n, stay.then_us = middle, life.n + 1, t_us
            life.n += 2 * (era.frames - stay.delivered)
        conf = self._next(id, t_us)
        control.append(Installed(*conf, view, members, False, view, 0, middle, middle))
        life.view = view
        return t_us

"""What the compared machines share: members that never change, one view, a queue, bodies.

Everybody is there from the beginning and stays. Frames may be lost, doubled and reordered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum

from ringcast.blocks.packing import Assembler, Outbox
from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Cell, Key, Machine, Table
from ringcast.protocols.compared.config import Config
from ringcast.protocols.compared.messages import Data

STARTED = "compared_started"
"""Stable storage: 1 since this member took part."""


class Phase(StrEnum):
    """There is one."""

    UP = "Up"


class Member(Machine):
    """One member of a group of fixed members, none of which fails."""

    name: str
    """How it calls itself in notes."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.phase = Phase.UP
        self.me = me
        self.ids = config.members or (me,)
        self.places = {node: place for place, node in enumerate(self.ids)}
        self.settings = config
        self.group = config.group
        self.boot = 0
        self.boots: dict[NodeId, int] = {}
        self.view = ViewId(1, self.ids[0])
        self.queue: Outbox[Level] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        self.last_k = 0
        self.data: dict[tuple[NodeId, int], Data] = {}
        """Bodies that are here and not delivered by all, as far as is known."""
        self.done = dict.fromkeys(self.ids, 0)
        """Of each sender, the last message delivered: they come in its order."""
        self.under_way = 0
        """Own frames that are sent and not delivered here."""
        self.delivered = 0
        """The place of the last message delivered."""
        self.assembler = Assembler(config.max_message)

    def start(self, env: Env, event: Started) -> None:
        """The one view there is."""
        if STARTED in event.stable:
            env.stop(f"a member of {self.name} that crashed stays out: it is for comparisons only")
            return
        env.persist(STARTED, 1)
        self.boot = event.boot
        env.install_view(InstallView(self.view, self.ids, False, self.view, 0, None))
        self.begin(env)

    @abstractmethod
    def begin(self, env: Env) -> None:
        """What a member does first."""

    @abstractmethod
    def go_on(self, env: Env) -> None:
        """Send what may be sent."""

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of the other members of this group, in the life in which they take part."""
        if event.src == self.me:
            self.refuse_own(env, event, copy=self.name, twin=self.name)
            return False
        strange = getattr(event.message, "group", self.group) != self.group
        if strange or event.src not in self.places:
            env.drop(self.name, "a frame of another group")
            return False
        if self.boots.setdefault(event.src, event.boot) != event.boot:
            env.drop(self.name, "a member that has lost its memory")
            return False
        if malformed(event, len(self.ids), self.places):
            env.drop(self.name, "malformed frame")
            return False
        return True

    @property
    def ready(self) -> bool:
        """Whether a submission will be accepted."""
        return self.queue.ready

    def on_submitted(self, env: Env, event: Submitted) -> None:
        """Queue the messages, and send what may be sent."""
        if not self.queue.takes(event.bodies, self.settings.max_message):
            env.drop(self.name, "a submission over the bounds")
            return
        self.queue.put(event.bodies, event.level)
        self.go_on(env)

    def on_leaving(self, env: Env, event: Leaving) -> None:
        """Nobody can leave a group of fixed members: it just ends."""
        env.stop("left")

    def next_frame(self, env: Env, seq: int = 0) -> Data | None:
        """The next frame of mine, kept until all have it; none if too many are under way."""
        if self.under_way >= self.settings.window:
            return None
        taken = self.queue.take(self.settings.frame_budget)
        if taken is None:
            return None
        level, contents, _ = taken
        self.last_k += 1
        self.under_way += 1
        data = Data(self.group, self.me, self.last_k, level, contents, seq, self.delivered)
        self.keep(env, data)
        return data

    def keep(self, env: Env, data: Data) -> None:
        """It is here from now on, which a check wants to know."""
        self.data[data.key] = data
        env.note(self.name, "hold", data=shown(data))

    def fresh(self, data: Data) -> bool:
        """Whether it is neither here nor delivered."""
        return data.key not in self.data and data.k > self.done[data.sender]

    def hand_up(self, env: Env, seq: int, data: Data) -> None:
        """Deliver a frame in its place."""
        self.delivered = seq
        self.done[data.sender] = data.k
        self.under_way -= data.sender == self.me
        bodies = self.assembler.add(data.sender, data.contents)
        if bodies is not None:
            batch = PackedMessages(
                self.view, seq, data.sender, data.level, data.contents.first, bodies
            )
            if data.sender == self.me:
                env.originate(batch)
            env.deliver(self.view, batch)

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "delivered": self.delivered,
            "held": len(self.data),
            "queued": len(self.queue),
            "under_way": self.under_way,
        }


def shown(data: Data) -> tuple[int, int, int]:
    """A frame in a note: its sender and number, and its first message, 0 if none ends with it."""
    return (*data.key, data.contents.first if data.contents.last else 0)


def malformed(event: Received, n: int, places: Mapping[NodeId, int]) -> bool:
    """Whether a frame names strangers, or has not a number for each member."""
    message = event.message
    people = [getattr(message, name, event.src) for name in ("sender", "c", "n")]
    each = [getattr(message, name) for name in ("have", "listed") if hasattr(message, name)]
    pairs, triples = getattr(message, "order", ()), getattr(message, "lost", ())
    return (
        any(node not in places for node in people)
        or any(isinstance(numbers, tuple) and len(numbers) != n for numbers in each)
        or bool(len(pairs) % 2 or len(triples) % 3)
        or any(node not in places for node in (*pairs[::2], *triples[1::3]))
        or (isinstance(message, Data) and (not message.contents.bodies or not message.k))
    )


def table(messages: dict[Key, Cell], timers: dict[Key, Cell], kinds: type[StrEnum]) -> Table:
    """The table of a machine with one phase."""
    cells: dict[Key, Cell] = {
        Submitted: Member.on_submitted,
        Leaving: Member.on_leaving,
        **messages,
        **timers,
    }
    types = [key for key in messages if isinstance(key, type)]
    return Table(Phase, types, kinds, {(Phase.UP, key): cell for key, cell in cells.items()})

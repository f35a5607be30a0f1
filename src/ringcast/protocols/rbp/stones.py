"""The stepping stones to RBP: how its source gets from a token to a moving sequencer.

Three small machines, each with one more idea. They order or repair messages in a ring of members
that never changes and never fails, over links that lose frames. Nobody would run them; scenarios
and figures do.

- ``FullHistory`` (Figure 2): everybody sends when it likes, and a token carries along what was
  sent, so that all get it. Reliable, without an order.
- ``HistoryOfIds`` (Figure 5): the token carries ids alone; bodies that are missing are asked for.
- ``MovingSequencer`` (Figure 12): whoever holds the token gives one message the next number. Total
  order, with two multicasts and an acknowledged pass a message. RBP makes one frame of these.

Source: Barchet-Estefanel, §3.1.1 and §3.1.2. Rules: S1 to S11; errors of the figures: G2, G4, G5.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import msgspec

from ringcast.blocks import channel
from ringcast.blocks.channel import Ack, Arrived, Channel, Packet
from ringcast.core.effects import InstallView, PackedMessages, Up
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, Seq, ViewId
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Impossible, Key, Machine, Table
from ringcast.core.owned import Heard, Owned
from ringcast.core.settings import ListedSettings

T = TypeVar("T")

Id: TypeAlias = tuple[NodeId, Seq]
"""The sender of a message, and its number there."""


class Phase(StrEnum):
    """Whether the token is here."""

    WAITING = "Waiting"
    HOLDING = "Holding"


class Timer(StrEnum):
    """When to ask again for what is missing, and when to pass the token on."""

    ASK = "stone ask"
    PASS = "stone pass"


class Said(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A message."""

    id: Id
    body: bytes


class Token(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """It has made ``hop`` hops; what it carries depends on the figure."""

    hop: Seq
    history: tuple[tuple[Seq, Said], ...] = ()
    """Figure 2: messages, each with the hop at which it was added."""
    ids: tuple[tuple[Seq, Id], ...] = ()
    """Figure 5: the same, ids alone."""
    number: Seq = 0
    """Figure 12: the last number given."""


class Named(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """S6: the token now names these; S9: the message ``ids[0]`` has this number."""

    ids: tuple[Id, ...]
    number: Seq = 0


class Wanted(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """S5, S10: please send me these bodies, and say which ids these numbers have."""

    ids: tuple[Id, ...]
    numbers: tuple[Seq, ...] = ()


class Settings(ListedSettings, frozen=True, kw_only=True):
    """Of a ring of stones."""

    ask_us: int = 2_000
    pass_us: int = 1_000
    """A token rests so long with each holder."""
    resend_us: int = 4_000

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame; nothing is cut up or packed here."""
        return self.max_packet

    @property
    def patience_us(self) -> int:
        """Nobody is ever given up."""
        return 2**40

    @property
    def faults(self) -> int:
        """S11: none are tolerated."""
        return 0


class Stone(Machine):
    """What the three have in common: messages, the token, and asking for what is missing."""

    def __init__(self, me: NodeId, config: Settings) -> None:
        super().__init__()
        self.me, self.config = me, config
        self.phase: Phase = Phase.WAITING
        self.channel = Owned(Channel(me, channel.Settings(resend_us=config.resend_us)), self._hear)
        self.view = ViewId(1, config.members[0])
        self.sent = self.listed = 0
        self.bodies: dict[Id, Said] = {}
        self.token: Token | None = None
        self.delivered: list[Id] = []

    @property
    def successor(self) -> NodeId:
        """The next of the ring."""
        members = self.config.members
        return members[(members.index(self.me) + 1) % len(members)]

    @property
    def ready(self) -> bool:
        """It takes what comes."""
        return True

    def start(self, env: Env, event: Started) -> None:
        """The first of the ring begins with the token."""
        self.channel.handle(env, event)
        members = self.config.members
        env.install_view(InstallView(self.view, members, False, self.view, 0, None))
        if self.me == members[0]:
            self._hold(env, Token(0))

    def admit(self, env: Env, event: Received) -> bool:
        """Members only."""
        return event.src in self.config.members and event.src != self.me

    # --- messages -----------------------------------------------------------------------------

    def on_submitted(self, env: Env, event: Submitted) -> None:
        """S1: to all, once; the own copy is handled at once."""
        for body in event.bodies:
            self.sent += 1
            said = Said((self.me, self.sent), body)
            self.spread(env, said)
            self.take(env, said)

    def spread(self, env: Env, said: Said) -> None:
        """S1: unreliably, with one frame."""
        env.broadcast(said)

    def on_said(self, env: Env, event: Received) -> None:
        """S2: a message, direct or in answer to a request."""
        assert isinstance(event.message, Said)
        self.take(env, event.message)

    def take(self, env: Env, said: Said) -> None:
        """S2: at first sight; later copies are ignored (G2)."""
        if said.id not in self.bodies:
            self.bodies[said.id] = said
            self.go_on(env)

    def deliver(self, env: Env, id_: Id, number: int) -> None:
        """Hand a message up. Without an order its place is its sender's number."""
        sender, count = id_
        self.delivered.append(id_)
        ring = self.view if number else ViewId(1, sender)
        bodies = (self.bodies[id_].body,)
        batch = PackedMessages(ring, number or count, sender, Level.AGREED, count, bodies)
        env.deliver(self.view, batch)

    # --- the token ----------------------------------------------------------------------------

    def _hear(self, env: Env, heard: Heard) -> None:
        assert isinstance(heard, Up) and isinstance(heard.what, Arrived)
        payload = heard.what.payload
        if isinstance(payload, Token):
            self._hold(env, payload)
        else:
            assert isinstance(payload, Said)
            self.take(env, payload)

    def _hold(self, env: Env, token: Token) -> None:
        self.phase, self.token = Phase.HOLDING, token
        env.note("rbp S3", "token", f"hop {token.hop}")
        env.set_timer(Timer.PASS, self.config.pass_us)
        self.on_token(env, token)
        self.go_on(env)

    def on_pass(self, env: Env, event: TimerFired) -> None:
        """S3, S5, S9: pass it on, if nothing is missing that it tells of."""
        assert self.token is not None
        if any(self.missing()):
            env.set_timer(Timer.PASS, self.config.pass_us)
            return
        token, self.token = self.extended(env, self.token), None
        self.phase = Phase.WAITING
        part = self.channel
        part.call(env, part.machine.send, self.successor, token)

    @abstractmethod
    def on_token(self, env: Env, token: Token) -> None:
        """Learn what the token tells."""

    @abstractmethod
    def extended(self, env: Env, token: Token) -> Token:
        """The token with what we add, one hop further."""

    def unlisted(self) -> tuple[Id, ...]:
        """S3: messages of ours that the token has not carried yet."""
        new = tuple((self.me, number) for number in range(self.listed + 1, self.sent + 1))
        self.listed = self.sent
        return new

    def recent(self, hop: int, items: tuple[tuple[int, T], ...]) -> tuple[tuple[int, T], ...]:
        """S4: what the token has not carried all round yet."""
        n = len(self.config.members)
        return tuple((added, item) for added, item in items if hop - added < n)

    # --- what is missing ----------------------------------------------------------------------

    def missing(self) -> tuple[tuple[Id, ...], tuple[int, ...]]:
        """Bodies, and ids of numbers, that are known of and not here."""
        return (), ()

    def go_on(self, env: Env) -> None:
        """Deliver what can be; S5, S10: ask for the rest, and again if no answer comes."""
        self.hand_up(env)
        if any(self.missing()):
            self.ask(env)

    def ask(self, env: Env) -> None:
        """G4: numbers and bodies at the same time."""
        ids, numbers = self.missing()
        env.note("rbp S5", "ask", " ".join([*(f"{s}:{n}" for s, n in ids), *map(str, numbers)]))
        env.broadcast(Wanted(ids, numbers))
        env.set_timer(Timer.ASK, self.config.ask_us)

    def on_ask(self, env: Env, event: TimerFired) -> None:
        """S5: repeatedly."""
        if any(self.missing()):
            self.ask(env)

    def on_wanted(self, env: Env, event: Received) -> None:
        """S7: whoever has it answers."""
        wanted = event.message
        assert isinstance(wanted, Wanted)
        for id_ in wanted.ids:
            if id_ in self.bodies:
                env.send(event.src, self.bodies[id_])

    @abstractmethod
    def hand_up(self, env: Env) -> None:
        """Deliver what can be delivered."""

    @abstractmethod
    def on_named(self, env: Env, event: Received) -> None:
        """A word about ids."""

    # --- the rest -----------------------------------------------------------------------------

    def to_channel(self, env: Env, event: Received | TimerFired) -> None:
        """What is the channel's."""
        self.channel.handle(env, event)

    def on_leaving(self, env: Env, event: Leaving) -> None:
        """S11: no failures are tolerated, and no leaving either."""
        env.stop("left")

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "delivered": len(self.delivered),
            "hop": self.token.hop if self.token else 0,
        }


class FullHistory(Stone):
    """Figure 2: the token carries every message."""

    def hand_up(self, env: Env) -> None:
        """S2: at once, in the order of arrival."""
        for id_ in [id_ for id_ in self.bodies if id_ not in self.delivered]:
            self.deliver(env, id_, 0)

    def on_token(self, env: Env, token: Token) -> None:
        """S3: deliver all of its history that is new, not only one (G2)."""
        for _, said in token.history:
            self.take(env, said)

    def extended(self, env: Env, token: Token) -> Token:
        """S3: add our messages that it lacks; S4: drop what it has carried to everybody."""
        new = ((token.hop, self.bodies[id_]) for id_ in self.unlisted())
        return Token(token.hop + 1, (*self.recent(token.hop, token.history), *new))

    def on_named(self, env: Env, event: Received) -> None:
        """Nobody names ids here."""


class HistoryOfIds(Stone):
    """Figure 5: the token carries ids, and bodies are asked for."""

    def __init__(self, me: NodeId, config: Settings) -> None:
        super().__init__(me, config)
        self.named: dict[Id, None] = {}

    hand_up = FullHistory.hand_up

    def on_token(self, env: Env, token: Token) -> None:
        """S5: what it names must be here before it goes on."""
        self.named.update(dict.fromkeys(id_ for _, id_ in token.ids))

    def on_named(self, env: Env, event: Received) -> None:
        """S6: ask for what is missing, and wait for nothing. The notice has the ids (G2)."""
        assert isinstance(event.message, Named)
        self.named.update(dict.fromkeys(event.message.ids))
        self.go_on(env)

    def missing(self) -> tuple[tuple[Id, ...], tuple[int, ...]]:
        """S5: named, and not here."""
        return tuple(id_ for id_ in self.named if id_ not in self.bodies), ()

    def extended(self, env: Env, token: Token) -> Token:
        """S6: add ids of our own, and tell everybody at once."""
        new = self.unlisted()
        if new:
            env.broadcast(Named(new))
        kept = self.recent(token.hop, token.ids)
        return Token(token.hop + 1, ids=(*kept, *((token.hop, id_) for id_ in new)))


class MovingSequencer(Stone):
    """Figure 12: the holder of the token gives one message the next number."""

    def __init__(self, me: NodeId, config: Settings) -> None:
        super().__init__(me, config)
        self.numbers: dict[int, Id] = {}
        self.highest = 0

    def spread(self, env: Env, said: Said) -> None:
        """S8: reliably, to each."""
        for node in self.config.members:
            if node != self.me:
                self.channel.call(env, self.channel.machine.send, node, said)

    def on_token(self, env: Env, token: Token) -> None:
        """S9, S10: the very last number may be the one that is missing (G4)."""
        self.highest = max(self.highest, token.number)

    def on_named(self, env: Env, event: Received) -> None:
        """S10: file the pair; a jump tells that numbers are missing."""
        named = event.message
        assert isinstance(named, Named)
        self.numbers.setdefault(named.number, named.ids[0])
        self.highest = max(self.highest, named.number)
        self.go_on(env)

    def missing(self) -> tuple[tuple[Id, ...], tuple[int, ...]]:
        """S10: numbers without an id, up to the highest, and bodies of those that have one."""
        waiting = range(len(self.delivered) + 1, self.highest + 1)
        ids = tuple(self.numbers[k] for k in waiting if k in self.numbers)
        numbers = tuple(k for k in waiting if k not in self.numbers)
        return tuple(id_ for id_ in ids if id_ not in self.bodies), numbers

    def on_wanted(self, env: Env, event: Received) -> None:
        """S7, S10: bodies and numbers."""
        super().on_wanted(env, event)
        assert isinstance(event.message, Wanted)
        for number in event.message.numbers:
            if number in self.numbers:
                env.send(event.src, Named((self.numbers[number],), number))

    def hand_up(self, env: Env) -> None:
        """S11: by number, and only with the body (G5)."""
        while (id_ := self.numbers.get(len(self.delivered) + 1)) in self.bodies:
            assert id_ is not None
            self.deliver(env, id_, len(self.delivered) + 1)

    def extended(self, env: Env, token: Token) -> Token:
        """S9: one message without a number gets the next one (G5)."""
        known = set(self.numbers.values())
        waiting = next((id_ for id_ in self.bodies if id_ not in known), None)
        if waiting is None:
            return Token(token.hop + 1, number=token.number)
        number = token.number + 1
        self.numbers[number] = waiting
        self.highest = max(self.highest, number)
        sender, count = waiting
        bodies = (self.bodies[waiting].body,)
        env.originate(PackedMessages(self.view, number, sender, Level.AGREED, count, bodies))
        env.broadcast(Named((waiting,), number))
        self.hand_up(env)
        return Token(token.hop + 1, number=number)


MESSAGES: tuple[Any, ...] = (Packet[Token | Said], Ack, Said, Named, Wanted)

NEVER = Impossible("a member without the token does not pass it on")


def _table(kind: type[Stone]) -> Table:
    cells: dict[Key, Cell] = {
        Submitted: kind.on_submitted,
        Leaving: kind.on_leaving,
        Packet: kind.to_channel,
        Ack: kind.to_channel,
        Said: kind.on_said,
        Named: kind.on_named,
        Wanted: kind.on_wanted,
        Timer.ASK: kind.on_ask,
        Timer.PASS: kind.on_pass,
        channel.Timer.RESEND: kind.to_channel,
    }
    all_ = {(phase, key): cell for phase in Phase for key, cell in cells.items()}
    all_[Phase.WAITING, Timer.PASS] = NEVER
    keys: tuple[type[Message], ...] = (Packet, Ack, Said, Named, Wanted)
    return Table(Phase, keys, (*Timer, *channel.Timer), all_)  # type: ignore[arg-type]


for _kind in (FullHistory, HistoryOfIds, MovingSequencer):
    _kind.table = _table(_kind)

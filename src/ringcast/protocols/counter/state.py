"""What a member knows, by subject; and the phases and timers."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from enum import StrEnum
from typing import TypeAlias

import msgspec

from ringcast.blocks.packing import Assembler, Outbox
from ringcast.core.effects import Departure
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.machine import Machine
from ringcast.protocols.counter.config import Config
from ringcast.protocols.counter.messages import (
    Ballot,
    Msg,
    PassingList,
    Past,
    Prom,
    Seat,
    Token,
    Value,
)

LIVES = 1 << 10
"""Memberships that one incarnation may have; more, and it has to be started again."""


class Phase(StrEnum):
    """Whether this processor is a member, and whether its group is being reformed."""

    MEMBER = "Member"
    FROZEN = "Frozen"
    """CB-37: it has promised to do nothing more in the old epoch."""
    OUT = "Out"
    """CB-41: it is no member, or remembers nothing; it catches up and asks to be one."""


class Timer(StrEnum):
    """Every timer of the protocol."""

    OWNER = "counter owner"
    """CB-4: the time of the token's owner."""
    MONITOR = "counter monitor"
    """CB-25: nothing came of the token passed on."""
    SILENCE = "counter silence"
    """CB-37: nothing is heard of the token any more."""
    REQUEST = "counter request"
    """CB-10: what was asked for has not come."""
    ANSWER = "counter answer"
    """CB-15: the turn to answer for a sender that is gone."""
    REFORM = "counter reform"
    """CB-38: promises or votes are missing."""
    LEAVE = "counter leave"
    """CB-33: the time to leave in good order is over."""
    JOIN = "counter join"
    """CB-31: ask again to be taken in."""


Label: TypeAlias = tuple[Level, tuple[NodeId, ...]]
"""What messages have in common that share a frame: their level, and whom they are for."""


class Mine(msgspec.Struct):
    """A frame of mine that is under way: whom it is for, and the messages that end with it, from
    number ``first`` on."""

    label: Label
    first: int
    whole: tuple[bytes, ...]


class Sending:
    """From the application's queue to stamped frames, and who asked us to wait (CB-1, CB-29)."""

    def __init__(self, config: Config) -> None:
        self.queue: Outbox[Label] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        self.last_k = 0
        self.own: dict[int, dict[tuple[NodeId, ...], list[int]]] = {}
        """Numbers stamped with a cycle and not listed yet, by their destinations."""
        self.mine: dict[int, Mine] = {}
        """Stamped, and neither delivered here nor, if for others alone, held by all of them; by
        number, oldest first."""
        self.local: dict[NodeId, int] = {}
        """CB-29: members whose buffers are nearly full, and the cycle in which they said so."""
        self.overloaded: int | None = None
        """CB-29: the same of the network."""
        self.cut_since = 0
        """The cycle in which the large message began that is being cut up."""


class Missing(msgspec.Struct):
    """CB-9, CB-10: a message that is wanted: the last request for it, and when that was."""

    n: int
    asked_us: int
    orphan: bool


class DataList:
    """DataList, and what is missing from it (CB-8 to CB-15, CB-19)."""

    def __init__(self) -> None:
        self.data: dict[tuple[NodeId, int, int], Msg] = {}
        self.counted: set[tuple[NodeId, int, tuple[NodeId, ...]]] = set()
        """CB-22: entries counted in this epoch."""
        self.composition: dict[int, dict[tuple[NodeId, int], int]] = {}
        """CB-19: of each cycle, the messages listed, with their numbers within it."""
        self.want: dict[tuple[NodeId, int, int], Missing] = {}
        self.answered: dict[tuple[NodeId, NodeId, int, int], int] = {}
        """CB-11: the highest request number served, by requester and message."""
        self.turns: dict[tuple[NodeId, int, int], int] = {}
        """CB-15: messages of lost senders that we may have to answer for, and when."""


class Parted(msgspec.Struct):
    """CB-41: what one that was excluded held when it heard of that, until it knows what became of
    it."""

    life: int
    holding: DataList
    newest: Token | None
    asked: int = 0


class Reform:
    """A reformation under way (CB-37, CB-38)."""

    def __init__(self) -> None:
        self.promised: Ballot | None = None
        self.voted: Value | None = None
        self.stored = 0
        """Of earlier lives: no promise for an epoch up to here …"""
        self.spent = 0
        """… and a vote for this one, of a value that is forgotten."""
        self.seen = 0
        """An epoch that somebody else has promised."""
        self.doubts = 0
        """How often we could not go on because of votes that are forgotten."""
        self.ballot: Ballot | None = None
        """The one we initiated, while it is under way."""
        self.proms: dict[NodeId, Prom] = {}
        self.ackd: set[NodeId] = set()
        self.proposed: Value | None = None
        self.decided: Value | None = None
        """The last decision, for those who missed it."""
        self.told_us: dict[NodeId, int] = {}


class Processor(Machine):
    """The state that the rules share."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me = me
        self.config = config
        self.phase: Phase = Phase.MEMBER
        members = config.members or (me,)
        self.members = members
        self.group = config.group
        self.budget = config.frame_budget
        self.boot = 0
        self.life = 0
        """Which of my lives is a member; 0 for the one that began with the group."""
        self.joins = 0
        self.boots: dict[NodeId, int] = {}
        """The incarnation heard last of each processor."""

        # The token.
        self.epoch = 0
        self.first_hop = 0
        """The hop with which the epoch began; unknown, and -1, if we came later."""
        self.P = 0
        """P_x: the cycle that our messages are stamped with."""
        seats = tuple(Seat(node, 0, 0) for node in members)
        self.list = PassingList(1, 0, seats)
        self.newest: Token | None = None
        """Of all tokens heard, accepted or released in this epoch."""
        self.held: Token | None = None
        """The token, while we own it."""
        self.unreleased = False
        """We have accepted a token and not passed it on, though an epoch may have ended since."""
        self.fresh = False
        """CB-31: we have not owned the token since we were taken in; then our cycle is its."""
        self.released: Token | None = None
        """lastTok: the token we passed on last, or issued for a new epoch."""
        self.tries = 0
        self.idle_visits = 0
        self.resting = False
        self.evidence: tuple[int, int] = (-1, 0)
        """CB-7: the stale hop answered last, and when."""
        self.committed_then = -1
        """How far we had committed at our last release: by our next, all have."""
        self.heard_us = 0

        # What is ordered.
        self.committed = -1
        self.view: ViewId | None = None
        """The configuration the application is in, none before the first."""
        self.ring: ViewId | None = None
        """The regular one that it is, or comes after."""
        self.ring_no = 0
        self.highest_view = 0
        self.view_life = -1
        """The life in which we came to the present ring."""
        self.in_view: dict[NodeId, Seat] = {}
        """Its members, and their seats."""
        self.delivered_seq = 0
        """The place of the last message delivered; and of the last one in this ring."""
        self.ring_seq = 0
        self.skip_lists = 0
        """CB-40: lists below this number never become a view: an epoch has ended before. Nobody new
        in them has sent anything yet."""
        self.parting: deque[tuple[int, PassingList]] = deque()
        """CB-44: lists of new epochs, and the last cycle before each that somebody may have
        committed already, while we have not."""
        self.assembler = Assembler(config.max_message)

        self.sending = Sending(config)
        self.holding = DataList()
        self.reform = Reform()

        # Membership.
        self.joiners: dict[NodeId, int] = {}
        """CB-31: who asked to be taken in, and the life that did."""
        self.farewells: dict[NodeId, Departure] = {}
        """Members that said that they leave, or that the token's list leaves out."""
        self.leaving = False
        self.left_hop = -1
        self.history: deque[tuple[Past, int]] = deque()
        """CB-42: what was committed lately, and the bytes that each takes."""
        self.history_bytes = 0
        self.history_from = 0
        """Every message delivered here beyond this place is in the history."""
        self.views_over: dict[int, PassingList] = {}
        """Numbers of the lists whose views ended here, and the lists of the next ones."""
        self.whole = True
        """Whether we know all that was delivered in the present ring so far."""
        self.parted: Parted | None = None
        """CB-42: the view we were in may have gone on without us."""
        self.unknown: set[NodeId] = set()
        """CB-42: members that do not keep what we lack."""
        self.blank: dict[NodeId, tuple[int, int, int]] = {}
        """Processors that are no members either: life, epoch, when heard."""
        self.here: tuple[NodeId, ...] = ()
        """These and ourselves, while nothing is heard of members; else nobody."""

    @property
    def ready(self) -> bool:
        """Whether a submission will be accepted."""
        return self.sending.queue.ready and not self.leaving

    @property
    def since(self) -> int:
        """CB-31: the first cycle that we count."""
        seat = self.list.seat(self.me)
        return seat.since if seat else 0

    def seated(self, list_: PassingList) -> bool:
        """Whether this life of ours is a member."""
        seat = list_.seat(self.me)
        return seat is not None and seat.life == self.life

    @abstractmethod
    def enter(self, env: Env, phase: Phase, why: str) -> None:
        """Change the phase, and note it."""

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        newest = self.newest
        return {
            "phase": self.phase.value,
            "view": str(self.view) if self.view else "-",
            "memb": tuple(sorted(self.in_view)),
            "list": self.list.members,
            "epoch": self.epoch,
            "cycle": self.P,
            "hop": newest.hop if newest else 0,
            "committed": self.committed,
            "listed": len(newest.S) if newest else 0,
            "held": len(self.holding.data),
            "missing": len(self.holding.want),
            "under_way": len(self.sending.mine),
            "queued": len(self.sending.queue),
            "waits_for": tuple(sorted(self.sending.local)),
            "overloaded": self.sending.overloaded is not None,
            "token_held": self.held is not None,
        }

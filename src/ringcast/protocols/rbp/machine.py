"""The machine: start, admission of frames, and the table of phases and inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Cell, Discard, Handler, Impossible, Key, Table
from ringcast.protocols.rbp import catchup, install, losses, ordering, sending
from ringcast.protocols.rbp.config import Config
from ringcast.protocols.rbp.epochs import Data, Entry, EpochConfig, Extent
from ringcast.protocols.rbp.messages import (
    ORDERING,
    REFORMATION,
    Abort,
    Ack,
    Announce,
    Ask,
    Commit,
    Fetch,
    Gone,
    Invite,
    Join,
    Leave,
    News,
    Ordered,
    Past,
    Refuse,
    Vote,
    malformed,
)
from ringcast.protocols.rbp.originator import ReformTimer
from ringcast.protocols.rbp.reach import out_of_reach
from ringcast.protocols.rbp.reformation import Reformation
from ringcast.protocols.rbp.state import Phase, Processor, Timer


class EpochMachine(Processor):
    """The log and epoch core of one site; a subclass brings the chooser and the table."""

    def freeze(self, env: Env) -> Extent:
        """F5, I5: issue nothing more in this epoch."""
        return install.freeze(self, env)

    def keep(self, env: Env, entries: tuple[Entry, ...], bodies: tuple[Data, ...] = ()) -> None:
        """I11: file recovered entries."""
        install.keep(self, env, entries, bodies)

    def install(self, env: Env, config: EpochConfig) -> None:
        """R14, I10, I13: begin an epoch."""
        install.install(self, env, config, False)

    def leave_epoch(self, env: Env, why: str) -> None:
        """F15: our view goes on without us."""
        install.leave_epoch(self, env, why)

    @property
    @abstractmethod
    def highest(self) -> int:
        """F2, V1: the highest number of a view that is known."""

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of the other sites of this group."""
        message, src = event.message, event.src
        if src == self.me:
            self.refuse_own(env, event, "rbp R15", "rbp A3")
            return False
        if src not in self.members or getattr(message, "group", self.group) != self.group:
            env.drop("rbp R16", "a frame of another group")
            return False
        if why := malformed(message, self.members):
            env.drop("rbp R16", why)
            return False
        if out_of_reach(self.highest, message):
            env.drop("rbp R16", "a view far ahead")
            return False
        return True


def too_few(missing: Collection[NodeId], rule: str) -> str:
    """Why nobody here goes on, for people."""
    if not missing:
        return f"too few members remember what was delivered ({rule})"
    return (
        f"too few members are here to go on without {', '.join(map(str, sorted(missing)))} ({rule})"
    )


class Rbp(EpochMachine):
    """One site of RBP."""

    table: ClassVar[Table]
    chooser: Reformation

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.chooser = Reformation(self)

    @property
    def highest(self) -> int:
        """F2: the highest version that was heard of."""
        return self.chooser.highest

    @property
    def blocked(self) -> str:
        """F7, G46: the votes make no list; F1: or nobody is in one yet, as far as we know."""
        if self.current is None:
            listed = ", ".join(map(str, self.members))
            return f"in no list: it begins when a list takes us in, or most of {listed} are here"
        missing = self.chooser.missing
        return "" if missing is None else too_few(missing, "rbp F7")

    def start(self, env: Env, event: Started) -> None:
        """A3: a new incarnation, which remembers what it voted for and nothing of its log."""
        self.boot = event.boot
        self.chooser.recall(event.stable)
        self.chooser.start(env)


OUTSIDE = Impossible("whoever is in no epoch has no ring to watch (rbp F15)")
HALTED = Impossible("freezing cancels the timers of the ring (rbp F5)")


def core_cells() -> dict[tuple[StrEnum, Key], Cell]:
    """The cells of the log and epoch core; a machine adds those of its chooser, and ``Past`` and
    ``Gone``, which answer its questions."""
    common: dict[Key, Cell] = {
        Submitted: sending.on_submitted,
        Leaving: lambda p, env, event: p.chooser.leaving(env),
        Data: sending.on_data,
        Ack: ordering.on_ack,
        Ask: losses.on_ask,
        Fetch: catchup.on_fetch,
        Timer.NACK: losses.on_nack_timer,
    }
    frozen = "normal traffic while the epoch is frozen"
    return {
        **{(phase, key): cell for phase in Phase for key, cell in common.items()},
        (Phase.MEMBER, Ordered): sending.on_ordered,
        (Phase.MEMBER, Timer.TOKEN): ordering.on_token_timer,
        (Phase.MEMBER, Timer.DATA): sending.on_data_timer,
        (Phase.MEMBER, Timer.IDLE): ordering.on_idle_timer,
        (Phase.MEMBER, Timer.ACT): ordering.on_act_timer,
        (Phase.FROZEN, Ordered): Discard("rbp F5", frozen),
        (Phase.OUT, Ordered): Discard("rbp R16", "a frame for members"),
        **{(Phase.FROZEN, timer): HALTED for timer in Timer if timer is not Timer.NACK},
        **{(Phase.OUT, timer): OUTSIDE for timer in Timer if timer is not Timer.NACK},
    }


def part(path: str) -> Handler:
    """A cell that a method of the reformation carries out, or of a part of it."""
    find = attrgetter(f"chooser.{path}")

    def act(p: Any, env: Env, event: Any) -> None:
        find(p)(env, event)

    return act


REFORMING: dict[Key, Cell] = {
    Past: part("catchup.on_past"),
    Gone: part("catchup.on_gone"),
    News: part("on_news"),
    Invite: part("on_invite"),
    Announce: part("on_announce"),
    Abort: part("on_abort"),
    Join: part("on_join"),
    Leave: part("on_leave"),
    Vote: part("forming.on_vote"),
    Refuse: part("forming.on_refuse"),
    Commit: part("forming.on_commit"),
    ReformTimer.VOTE: part("forming.on_vote_timer"),
    ReformTimer.WAIT: part("on_wait_timer"),
    ReformTimer.JOIN: part("on_join_timer"),
}

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **core_cells(),
    **{(phase, key): cell for phase in Phase for key, cell in REFORMING.items()},
    (Phase.MEMBER, ReformTimer.JOIN): Impossible("a member does not ask to be one (rbp F1)"),
    (Phase.FROZEN, ReformTimer.JOIN): Impossible("a member does not ask to be one (rbp F1)"),
    (Phase.MEMBER, ReformTimer.WAIT): Impossible("a list in force ends the wait (rbp F11)"),
}

MESSAGES = (*ORDERING, *REFORMATION)

Rbp.table = Table(Phase, MESSAGES, (*Timer, *ReformTimer), CELLS)

__all__ = ["MESSAGES", "EpochMachine", "Rbp", "core_cells", "too_few"]

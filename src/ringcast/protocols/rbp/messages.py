"""The frames of RBP, and what makes one bad. ``Data`` is in ``epochs``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.core.ids import LIMIT, NodeId, Seq, ViewId
from ringcast.protocols.rbp.config import MAX_MEMBERS, MOST_BATCH
from ringcast.protocols.rbp.epochs import NOBODY, Data, Entry, Epoch, EpochConfig, Ids

Group = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
Named = Annotated[tuple[Ids, ...], msgspec.Meta(max_length=MAX_MEMBERS)]

MOST_ENTRIES = 64
"""Entries in one answer."""

MOST_PENDING = 16
"""Lists that a site may have committed and not seen in force."""

LAST = 2**50
"""No number or counter of a correct member comes near this."""


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=141, gc=False):
    """ACK: entry ``number`` of ``epoch``. It tells sources that their bodies are ordered, announces
    the number, accepts the token and passes it to ``next`` (R5)."""

    group: Group
    epoch: Epoch
    number: Seq
    ids: Named
    issuer: NodeId
    next: NodeId

    @property
    def entry(self) -> Entry:
        """The entry it announces."""
        return Entry(self.number, self.epoch, self.ids)


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=142, gc=False):
    """REQ_ACK and REQ_BODY (R9): please send ACKs ``first .. last`` of ``epoch``, none if last is
    0, and these bodies of ``view``."""

    group: Group
    epoch: Epoch
    first: Seq
    last: Seq
    view: ViewId
    bodies: Annotated[tuple[Ids, ...], msgspec.Meta(max_length=MOST_BATCH)]

    @property
    def requests(self) -> int:
        """ACKs and bodies asked for."""
        acks = self.last - self.first + 1 if self.last else 0
        return acks + sum(each.last - each.first + 1 for each in self.bodies)


class Ordered(msgspec.Struct, frozen=True, array_like=True, tag=143, gc=False):
    """R4: your bodies up to ``counter`` are ordered in ``view``; the ACK is not kept any more."""

    group: Group
    view: ViewId
    counter: Seq


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=144, gc=False):
    """F10, F15: please tell what comes after entry ``after`` in the view ``view``."""

    group: Group
    view: ViewId
    after: Seq


class Past(msgspec.Struct, frozen=True, array_like=True, tag=145, gc=False):
    """RTX: entries that follow each other in ``view``. With ``child``, there are no more, and this
    is the epoch that followed."""

    group: Group
    view: ViewId
    after: Seq
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MOST_ENTRIES)]
    child: EpochConfig | None


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=146, gc=False):
    """GONE: I do not keep what follows ``after`` in ``view``: the last entry that I let go, or that
    was before my time, is ``floor``, with the tag ``tag``. ``core`` is the ring of my epoch."""

    group: Group
    view: ViewId
    after: Seq
    floor: Seq
    tag: Epoch
    core: Nodes


class News(msgspec.Struct, frozen=True, array_like=True, tag=147, gc=False):
    """CONFIG: this epoch is in force (F11)."""

    group: Group
    config: EpochConfig


class Invite(msgspec.Struct, frozen=True, array_like=True, tag=148, gc=False):
    """F3: please vote for a list of this version."""

    group: Group
    version: ViewId


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=149, gc=False):
    """F5: yes, and this is what I hold. I issue nothing below ``version`` any more.

    ``installed`` is the list in force that I am in, ``ring`` its size, ``tail`` and ``number`` how
    far its log reaches here. ``start`` and ``base`` are where it began, if I have delivered nothing
    in it. ``pending`` are the lists that I committed since, and have not seen in force. ``forgot``:
    of the lists that I committed and cannot name, none is later than this; nothing, if I cannot
    tell.
    """

    group: Group
    version: ViewId
    life: Seq
    forgot: ViewId | None
    installed: ViewId | None
    ring: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]
    start: Annotated[int, msgspec.Meta(ge=-1, le=LIMIT)]
    base: Epoch
    tail: Epoch
    number: Seq
    pending: Annotated[tuple[EpochConfig, ...], msgspec.Meta(max_length=MOST_PENDING)]

    @property
    def out(self) -> bool:
        """Whether its maker is in no list."""
        return self.installed is None

    @property
    def blank(self) -> bool:
        """Whether its maker has forgotten what it held, or never held anything."""
        return self.out and self.forgot != NOBODY


class Refuse(msgspec.Struct, frozen=True, array_like=True, tag=150, gc=False):
    """F4, F10: no to ``version``, since I have joined ``joined``."""

    group: Group
    version: ViewId
    joined: ViewId


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=151, gc=False):
    """F9: the list is this one; recover what you lack of it, then commit."""

    group: Group
    config: EpochConfig


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=152, gc=False):
    """F10: the second yes: I am aligned with the list of this version."""

    group: Group
    version: ViewId


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=153, gc=False):
    """F12: there will be no list of this version."""

    group: Group
    version: ViewId


class Join(msgspec.Struct, frozen=True, array_like=True, tag=154, gc=False):
    """F1: a site that is in no list would like to be in one, in its life ``life``."""

    group: Group
    life: Seq


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=155, gc=False):
    """F15: a member goes for good; do not wait for it."""

    group: Group
    life: Seq


ORDERING = (Data, Ack, Ask, Ordered, Fetch, Past, Gone)
"""Frames of the log and epoch core."""

REFORMATION = (News, Invite, Vote, Refuse, Announce, Commit, Abort, Join, Leave)
"""Frames of reformation."""


# --- bad frames ---------------------------------------------------------------------------------


def malformed(frame: msgspec.Struct, members: tuple[NodeId, ...]) -> str | None:
    """Why a frame must not be acted upon in a group of ``members``, or None."""
    known = set(members)
    match frame:
        case Data():
            bad = (
                frame.source not in known
                or not 0 < frame.counter < LAST
                or not frame.contents.bodies
            )
            return "malformed body" if bad else None
        case Ack():
            bad = (
                not 0 < frame.number < LAST
                or frame.issuer not in known
                or frame.next not in known
                or _bad_ids(frame.ids, known)
            )
            return "malformed ACK" if bad else None
        case Ask():
            bad = frame.first > frame.last or _bad_ids(frame.bodies, known, repeated=True)
            return "malformed request" if bad else None
        case Past():
            bad = (
                (frame.child is not None and _bad_config(frame.child, known))
                or any(_bad_ids(entry.ids, known) for entry in frame.entries)
                or any(e.number != frame.after + 1 + i for i, e in enumerate(frame.entries))
                or any(entry.tag.view != frame.view for entry in frame.entries)
            )
            return "malformed answer" if bad else None
        case Vote():
            bad = frame.number >= LAST or any(_bad_config(each, known) for each in frame.pending)
            return "malformed vote" if bad else None
        case News() | Announce():
            return "malformed list" if _bad_config(frame.config, known) else None
        case _:
            return None


def _bad_ids(ids: tuple[Ids, ...], known: set[NodeId], repeated: bool = False) -> bool:
    """Whether they name strangers or nothing, or too much, or a source twice."""
    if any(not 0 < each.first <= each.last < LAST or each.source not in known for each in ids):
        return True
    if sum(each.last - each.first + 1 for each in ids) > MOST_BATCH:
        return True
    return not repeated and len({each.source for each in ids}) < len(ids)


def _bad_config(config: EpochConfig, known: set[NodeId]) -> bool:
    """Whether it is no epoch of this group."""
    members, core = set(config.members), set(config.core)
    return (
        not known >= members
        or not members >= core
        or len(members) < len(config.seats)
        or len(core) < len(config.core)
        or not config.decided <= config.start < LAST
        or (config.parent is not None and Epoch(config.parent) >= config.epoch)
    )

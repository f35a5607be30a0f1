"""Protocols by name: a sheet for each says all that the other packages need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib import import_module
from typing import Any

import msgspec

from ringcast.core.explain import known
from ringcast.core.ids import NodeId
from ringcast.core.machine import Machine
from ringcast.core.rings import Rings
from ringcast.core.settings import GroupSettings, ListedSettings
from ringcast.core.swarm import SwarmDraw
from ringcast.core.trace import Noted


class MembershipKind(StrEnum):
    """What becomes of a group whose members fail or cannot reach each other."""

    EVS = "evs"
    """Every part goes on in a configuration of its own; anybody may come at any time."""
    PRIMARY = "primary"
    """One part at most goes on; the settings list who may take part (``ListedSettings``)."""
    FIXED = "fixed"
    """The members never change, and one that crashed does not come back (``ListedSettings``)."""


class RuleBook(msgspec.Struct, frozen=True):
    """The dossier's rules: ``docs/rules-NAME.toml`` lists them, code and tests cite their tags."""

    title: str
    rules: tuple[tuple[str, int], ...]
    """Kinds of rules, as written in front of the number, and the last number of each."""
    gaps: tuple[str, int]
    """The same of the gaps and errors of the source."""
    blocks: tuple[str, ...] = ()
    """Modules of ``ringcast.blocks`` that carry out rules of this book."""
    extends: str = ""
    """The protocol whose book has the same source: its code carries out rules of this book too, and
    its book lists the gaps of the source for both."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of tags: those of the rules first, that of the gaps last."""
        return (*(kind for kind, _ in self.rules), self.gaps[0])

    @property
    def tags(self) -> tuple[str, ...]:
        """Every rule."""
        return tuple(f"{kind}{n}" for kind, last in self.rules for n in range(1, last + 1))

    @property
    def gap_tags(self) -> tuple[str, ...]:
        """Every gap."""
        kind, last = self.gaps
        return tuple(f"{kind}{n}" for n in range(1, last + 1))


class FrameCounts(msgspec.Struct, frozen=True):
    """How frames are counted where protocols are compared."""

    body: Callable[[Any], tuple[NodeId, int, int] | None]
    """Whose message a frame carries, its number, and which piece of it; None: it is control."""
    asked: Callable[[Any], int] = lambda message: 0
    """How many messages a frame asks for."""
    undone: Callable[[Noted], int] = lambda note: 0
    """How many tentative deliveries a processor took back by a note of its trace."""


class Sheet(msgspec.Struct, frozen=True):
    """What the other packages need to know of a protocol."""

    name: str
    source: str
    config: type[GroupSettings]
    make: Callable[[NodeId, Any], Machine]
    """Builds a machine for one processor from an instance of ``config``."""
    claims: Callable[[Any], tuple[str, ...]]
    """For a configuration: names of the properties in ``ringcast.checks`` that are promised."""
    profiles: dict[str, Any]
    """Named configurations, the first one the default."""
    messages: tuple[type[msgspec.Struct], ...]
    """Every message type, for the wire's decoder."""
    progress_bound_us: Callable[[Any, int], int]
    """For a configuration and n live processors: time after the last fault until all make
    progress together."""
    most_members: int = 255
    """Members that its messages have room for."""
    most_ports: int = 1
    """Broadcast domains that one processor may be in."""
    ids_everywhere: bool = False
    """Whether an id names one port of one processor in all domains together."""
    demo_rings: Rings = ()
    """The broadcast domains of a demonstration, with two gateways between neighbours; none: five
    members in one."""
    membership: MembershipKind = MembershipKind.EVS
    live: bool = True
    """Whether a node may run it; a protocol that is there to be compared runs in simulations."""
    multicast: bool = False
    """Whether a message may be for some members only (``Submitted.to``)."""
    groups: bool = False
    """Whether messages may stay away from where nobody is in their group (``Submitted.group``)."""
    agreed: tuple[str, ...] = ("max_message",)
    """Settings that must be the same at all members: live nodes compare them when they meet, and do
    not hear each other if they differ. If the settings list the members, that list is one. A
    property that follows from a setting stands behind its name (``f:faults``)."""
    alike: tuple[str, ...] = ("max_packet",)
    """Settings that should be: live nodes say so if they differ."""
    turn: tuple[type[msgspec.Struct], ...] = ()
    """Messages whose sending ends a processor's turn, for what is counted per turn."""
    unicast: tuple[type[msgspec.Struct], ...] = ()
    """Messages that are only ever sent to one processor."""
    frames: FrameCounts | None = None
    """Given by protocols that studies compare by their frames."""
    checks: tuple[type[Any], ...] = ()
    """Properties (``ringcast.checks.Property``) that no other protocol claims."""
    swarm: SwarmDraw = SwarmDraw()
    rules: RuleBook | None = None
    patient: Callable[[int], dict[str, Any]] = lambda patience_us: {}
    """Settings for members that may have to wait so long for a processor of a busy machine."""
    fast: Callable[[int, int], dict[str, Any]] = lambda frames, n: {}
    """Settings for speed: n members, each of which may send so many frames at once."""

    @property
    def default(self) -> Any:
        """The configuration of someone who asks for nothing special."""
        return next(iter(self.profiles.values()))

    @property
    def fixed(self) -> bool:
        """Whether the members never change."""
        return self.membership is MembershipKind.FIXED

    @property
    def listed(self) -> bool:
        """Whether the settings list all who may take part, and say how many may be missing."""
        return self.membership is not MembershipKind.EVS

    def profile(self, name: str) -> Any:
        """A configuration by its name, the default one if empty; LookupError lists them."""
        if not name:
            return self.default
        if name not in self.profiles:
            profiles = ", ".join(self.profiles)
            raise LookupError(f"{self.name} has no profile {name!r}; known: {profiles}")
        return self.profiles[name]

    def for_group(self, config: Any, ids: Iterable[NodeId]) -> Any:
        """``config`` in a group of these processors; ValueError if it does not suit them."""
        members = tuple(sorted(ids))
        if len(members) > self.most_members:
            raise ValueError(
                f"{len(members)} members are more than the {self.most_members} that "
                f"{self.name} has room for"
            )
        return msgspec.structs.replace(config, members=members) if self.listed else config


_sheets: dict[str, Sheet] = {}
_places: dict[str, str] = {}
_sources: list[Callable[[], None]] = []


def register(sheet: Sheet) -> Sheet:
    """Make a protocol available by name; TypeError if its sheet contradicts itself."""
    if sheet.listed and not issubclass(sheet.config, ListedSettings):
        raise TypeError(f"{sheet.name}: its members are listed, so extend ListedSettings")
    messages = {getattr(kind, "__origin__", kind) for kind in sheet.messages}
    for field in ("turn", "unicast"):
        if strange := set(getattr(sheet, field)) - messages:
            names = ", ".join(sorted(kind.__name__ for kind in strange))
            raise TypeError(f"{sheet.name}: {names} in {field}, but not in messages")
    _sheets[sheet.name] = sheet
    return sheet


def place(module: str, *names: str) -> None:
    """Importing ``module`` registers these protocols. That takes a while, so it waits until one of
    them is asked for."""
    _places.update(dict.fromkeys(names, module))


def add_source(source: Callable[[], None]) -> None:
    """Call ``source``, once, when something is not known: it registers more protocols."""
    _sources.append(source)


def look_further() -> None:
    """Register what the sources have; LookupError if one of them fails."""
    while _sources:
        _sources.pop()()


def protocol(name: str) -> Sheet:
    """The protocol called ``name``; the error lists what there is."""
    if name not in _sheets and name in _places:
        import_module(_places[name])
    if name not in _sheets:
        look_further()
    try:
        return _sheets[name]
    except KeyError:
        raise LookupError(f"no protocol called {name!r}; {known(name, names())}") from None


def live_protocol(name: str) -> Sheet:
    """The same, if a node may run it; the error lists those that nodes run."""
    try:
        sheet = protocol(name)
    except LookupError:
        able = [each.name for each in protocols() if each.live]
        raise LookupError(f"no protocol called {name!r}; {known(name, able)}") from None
    if not sheet.live:
        raise LookupError(f"{name} is there to be compared in simulations; no node runs it")
    return sheet


def names() -> list[str]:
    """Of every protocol known so far."""
    return sorted({*_sheets, *_places})


def protocols() -> tuple[Sheet, ...]:
    """Every protocol known so far, by name."""
    for name, module in _places.items():
        if name not in _sheets:
            import_module(module)
    return tuple(_sheets[name] for name in sorted(_sheets))

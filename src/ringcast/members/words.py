"""What a member says while it runs: a status each second, views, and its last word."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import typer

from ringcast.console.output import ids
from ringcast.core.ids import NodeId

STRANGERS = {
    "unknown key": "sealed with no key of this group (another key, or none?)",
    "sealed, but this node has no key": "sealed, but this node has no key (set key_file)",
    "of another group": "",
    "of version": "",
    "of protocol": "",
    "must be the same at all members": "",
}
"""Parts of reasons to refuse a frame that are somebody's mistake, and what to say instead."""


class MemberStatus(msgspec.Struct, tag_field="event", tag="status"):
    """How the node is doing: one a second."""

    t_us: int
    id: NodeId
    phase: str
    ring: tuple[NodeId, ...]
    members: tuple[NodeId, ...]
    """Of the group."""
    sent: int
    """By the driver."""
    delivered: int
    """Messages of the group, since the start."""
    messages_per_s: float
    """Delivered, since the status before."""
    mb_per_s: float
    lost: int
    """Events that its reader did not get, since the start (``EventsLost``)."""
    idle: bool
    """Whether all that was sent here has been delivered here."""
    metrics: dict[str, object]


class Viewed(msgspec.Struct, tag_field="event", tag="view"):
    """The group changed."""

    t_us: int
    id: NodeId
    ring: str
    members: tuple[NodeId, ...]
    transitional: bool
    gone: tuple[str, ...] = ()
    """Who went, each with the reason."""


class Stopped(msgspec.Struct, tag_field="event", tag="stopped"):
    """The last word."""

    t_us: int
    id: NodeId
    reason: str


Word = MemberStatus | Viewed | Stopped


class Lines:
    """Tells what happens as lines: for people, or as JSON for programs."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._warned = json  # programs find it in the metrics

    def __call__(self, word: Word) -> None:
        """One line, and another the first time that somebody else's frames were refused."""
        typer.echo(msgspec.json.encode(word).decode() if self._json else text(word))
        if not self._warned and type(word) is MemberStatus and (why := stranger(word)):
            self._warned = True
            typer.echo(f"{clock(word)} frames refused: {why}")

    def close(self) -> None:
        """Nothing to put back."""


def clock(word: Word) -> str:
    """When it was said, for people."""
    return time.strftime("%H:%M:%S", time.localtime(word.t_us // 1_000_000))


def stranger(status: MemberStatus) -> str:
    """How somebody does not fit, or nothing."""
    metrics: dict[str, Any] = status.metrics
    whys = ((why, part) for why in metrics["frames_refused"] for part in STRANGERS if part in why)
    misfits = metrics.get("misfits", {})
    return next((STRANGERS[part] or why for why, part in whys), next(iter(misfits.values()), ""))


def text(word: Word) -> str:
    """A line for people."""
    match word:
        case Viewed(ring=ring, members=members, transitional=transitional, gone=gone):
            kind = "transitional view" if transitional else "view"
            went = f"; gone: {', '.join(gone)}" if gone else ""
            return f"{clock(word)} {kind} {ring} members {ids(members)}{went}"
        case Stopped(reason=reason):
            return f"{clock(word)} stopped: {reason}"
    return (
        f"{clock(word)} {word.phase} ring {ids(word.ring)} delivered {word.delivered} "
        f"({word.messages_per_s:.0f} messages/s, {word.mb_per_s:.2f} MB/s) sent {word.sent}"
    )


def wall_us() -> int:
    """The time of day."""
    return time.time_ns() // 1000

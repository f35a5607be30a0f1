"""Fault plans: what goes wrong, and when, as data.

A plan is a list of faults in a run file, one ``[[faults]]`` table each. The events file of the
original simulator (``partition: <time> <network> (ids) (ids) ...``) is read as well, and knows
crashes, pauses and one-way cuts besides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec

from ringcast.core.ids import NodeId
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import BurstTail, LinkModel, Micros, Share
from ringcast.sim.network import Tamper


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    at_us: Micros


class NetworkPartition(_Fault, frozen=True, tag="partition"):
    """The network falls apart into groups; a processor not listed is isolated.

    Here and below, ``domain`` is the broadcast domain that suffers it, and ids are as they are
    there.
    """

    groups: tuple[tuple[NodeId, ...], ...]
    domain: Micros = 0


class Heal(_Fault, frozen=True, tag="heal"):
    """Partitions, cuts and targeted drops end."""


class LinkCut(_Fault, frozen=True, tag="cut"):
    """Nothing from ``src`` reaches ``dst``; the other direction stays."""

    src: NodeId
    dst: NodeId
    domain: Micros = 0


class Mend(_Fault, frozen=True, tag="mend"):
    """A cut ends."""

    src: NodeId
    dst: NodeId
    domain: Micros = 0


class NodeCrash(_Fault, frozen=True, tag="crash"):
    """A processor goes down; its stable storage stays."""

    node: NodeId


class Torn(_Fault, frozen=True, tag="lose_unsynced"):
    """A processor goes down in the middle of the next effects of a kind: what was not yet
    carried out, an unsynced write above all, never happens."""

    node: NodeId
    within: Literal["persist", "send", "broadcast", "deliver"] = "persist"


class StorageFail(_Fault, frozen=True, tag="storage_fail"):
    """The next write to stable storage fails, which ends the processor."""

    node: NodeId


class Restart(_Fault, frozen=True, tag="restart"):
    """A processor that is down starts again."""

    node: NodeId
    keep_storage: bool = True


class Leave(_Fault, frozen=True, tag="leave"):
    """A processor leaves on purpose, telling the others."""

    node: NodeId


class NodePause(_Fault, frozen=True, tag="pause"):
    """A processor stands still, as after SIGSTOP."""

    node: NodeId


class Resume(_Fault, frozen=True, tag="resume"):
    """A paused processor goes on."""

    node: NodeId


class Stall(_Fault, frozen=True, tag="stall"):
    """A processor (0: any, drawn) stands still for ``for_us``; if long, it is taken for dead
    by mistake. With ``every_us`` so often, on average, from then on."""

    for_us: Annotated[int, msgspec.Meta(gt=0)]
    node: Annotated[int, msgspec.Meta(ge=0)] = 0
    every_us: Micros = 0


class Expire(_Fault, frozen=True, tag="expire"):
    """A timer that is set runs out early, at ``node`` (0: at any, drawn): what a detector takes for
    a silence, for instance, is a mistake. With ``every_us`` so often, on average, from then on."""

    timer: str
    node: Annotated[int, msgspec.Meta(ge=0)] = 0
    every_us: Micros = 0


class ClockDrift(_Fault, frozen=True, tag="drift"):
    """A processor's clock gains ``ppm`` microseconds a second (loses them, below 0)."""

    node: NodeId
    ppm: Annotated[int, msgspec.Meta(ge=-500_000, le=500_000)]


class Link(_Fault, frozen=True, tag="link"):
    """One directed link behaves differently."""

    src: NodeId
    dst: NodeId
    link: LinkModel
    domain: Micros = 0


class Loss(_Fault, frozen=True, tag="loss"):
    """Every link loses this share of broadcast and of unicast frames."""

    loss: Share
    unicast_loss: Share


class Burst(_Fault, frozen=True, tag="burst_tail"):
    """The end of every burst is lost; without ``tail`` this stops."""

    tail: BurstTail | None = None


class Drop(_Fault, frozen=True, tag="drop"):
    """The next ``count`` frames that match are lost, or delayed, or copied (see ``Tamper``)."""

    src: int = 0
    dst: int = 0
    message: str = ""
    count: Annotated[int, msgspec.Meta(ge=0)] = 1
    delay_us: Micros = 0
    copy: bool = False
    domain: Micros = 0


Fault: TypeAlias = (
    NetworkPartition
    | Heal
    | LinkCut
    | Mend
    | NodeCrash
    | Torn
    | StorageFail
    | Restart
    | Leave
    | NodePause
    | Resume
    | Stall
    | Expire
    | ClockDrift
    | Link
    | Loss
    | Burst
    | Drop
)

FaultPlan: TypeAlias = tuple[Fault, ...]
"""Faults in any order; equal times keep the order of the plan."""


def schedule(plan: Iterable[Fault], cluster: Cluster) -> None:
    """Put every fault of ``plan`` on the agenda of ``cluster``."""
    for fault in plan:
        cluster.scheduler.at(fault.at_us, lambda fault: inflict(fault, cluster), fault)


def inflict(fault: Fault, cluster: Cluster) -> None:
    """Let a fault happen now."""
    match fault:
        case NetworkPartition(groups=groups):
            cluster.partition(groups, fault.domain)
        case Heal():
            cluster.heal()
        case LinkCut(src=src, dst=dst):
            cluster.cut(src, dst, fault.domain)
        case Mend(src=src, dst=dst):
            cluster.mend(src, dst, fault.domain)
        case NodeCrash(node=node):
            cluster.crash(node)
        case Torn(node=node, within=within):
            cluster.tear(node, within)
        case StorageFail(node=node):
            cluster.fail_storage(node)
        case Restart(node=node, keep_storage=kept):
            cluster.restart(node, kept)
        case Leave(node=node):
            cluster.leave(node)
        case NodePause(node=node):
            cluster.pause(node)
        case Resume(node=node):
            cluster.resume(node)
        case Stall():
            cluster.stall(fault.node, fault.for_us, fault.every_us)
        case Expire():
            cluster.expire(fault.node, fault.timer, fault.every_us)
        case ClockDrift(node=node, ppm=ppm):
            cluster.drift(node, ppm)
        case Link(src=src, dst=dst, link=link):
            cluster.override_link(src, dst, link, fault.domain)
        case Loss():
            cluster.set_loss(fault.loss, fault.unicast_loss)
        case Burst(tail=tail):
            cluster.set_burst_tail(tail)
        case Drop():
            rule = Tamper(
                fault.src, fault.dst, fault.message, fault.count, fault.delay_us, fault.copy
            )
            cluster.tamper(rule, fault.domain)


def named(fault: Fault) -> set[NodeId]:
    """The processors a fault speaks of."""
    match fault:
        case NetworkPartition(groups=groups):
            return {node for group in groups for node in group}
        case LinkCut() | Mend() | Link() | Drop():
            return {fault.src, fault.dst} - {0}
        case Heal() | Loss() | Burst():
            return set()
        case Expire() | Stall():
            return {fault.node} - {0}
        case _:
            return {fault.node}


_EVENT = re.compile(r"(\w+):\s+(\d+)\s+(\d+)((?:\s*\([\d\s,]*\))+)\s*$")
_GROUP = re.compile(r"\(([\d\s,]*)\)")
_GRAMMAR = "<time us> <network> (id id ...) ..."
_EACH: Mapping[str, Callable[[int, NodeId], Fault]] = {
    "crash": NodeCrash,
    "restart": Restart,
    "pause": NodePause,
    "resume": Resume,
}
_LINK: Mapping[str, Callable[[int, NodeId, NodeId], Fault]] = {"cut": LinkCut, "mend": Mend}


def read_events(text: str, ids: Iterable[NodeId]) -> tuple[FaultPlan, list[str]]:
    """Read an events file; returns the plan and warnings about processors left out.

    A ``partition:`` line is the whole new partition of one network at a time in microseconds, as
    in the original. The other words are ours: ``crash:``, ``restart:``, ``pause:`` and ``resume:``
    with the processors that suffer it, ``cut:`` and ``mend:`` with a source and a destination.
    Empty lines and lines that begin with ``#`` are passed over.
    """
    plan: list[Fault] = []
    warnings: list[str] = []
    networks: set[str] = set()
    known = set(ids)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _EVENT.match(line.strip())
        if match is None or match[1] not in ("partition", *_EACH, *_LINK):
            words = ", ".join(("partition", *_EACH, *_LINK))
            raise ValueError(
                f"events file, line {number}: {line.strip()!r} is not of the form "
                f"'partition: {_GRAMMAR}', or with another of the words {words}"
            )
        word, time, network, sides = match.groups()
        networks.add(network)
        groups = [
            tuple(int(node) for node in re.findall(r"\d+", side)) for side in _GROUP.findall(sides)
        ]
        listed = [node for group in groups for node in group]
        if len(listed) != len(set(listed)):
            raise ValueError(f"events file, line {number}: a processor is listed twice")
        if strangers := sorted(set(listed) - known):
            raise ValueError(f"events file, line {number}: no such processors: {strangers}")
        if word == "partition":
            if isolated := sorted(known - set(listed)):
                warnings.append(f"line {number}: not listed, so isolated: {isolated}")
            plan.append(NetworkPartition(int(time), tuple(groups)))
        elif word in _EACH and listed:
            plan += [_EACH[word](int(time), node) for node in listed]
        elif word in _LINK and [len(group) for group in groups] == [1, 1]:
            plan.append(_LINK[word](int(time), *listed))
        else:
            wanted = "(1) (2), a source and a destination" if word in _LINK else "(1 2)"
            raise ValueError(f"events file, line {number}: '{word}:' wants processors: {wanted}")
    if len(networks) > 1:
        raise ValueError(f"events file speaks of networks {sorted(networks)}; a run has one")
    return tuple(plan), warnings

"""What goes wrong in a world, and when, as data. Each fault ends by itself, so that a plan stays
meaningful whatever faults are taken out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from ringcast.testing.disk import Loss, checked_loss

if TYPE_CHECKING:
    from ringcast.testing.world import World


class _Fault(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True
):
    at: float
    """Seconds after the beginning."""
    lasts: float = 1.0
    """Seconds until it ends."""


class Crash(_Fault, frozen=True, tag="crash"):
    """A host goes down and comes back; ``loss`` says what becomes of its files."""

    host: str
    loss: Loss = "unsynced"

    def __post_init__(self) -> None:
        checked_loss(self.loss)


class Pause(_Fault, frozen=True, tag="pause"):
    """A host stands still."""

    host: str


class Cut(_Fault, frozen=True, tag="cut"):
    """Nothing gets from one host to another; the other direction stays."""

    source: str
    target: str


class Partition(_Fault, frozen=True, tag="partition"):
    """Hosts of different sides do not reach each other; hosts on no side reach everybody."""

    sides: tuple[tuple[str, ...], ...]


class Drift(_Fault, frozen=True, tag="drift"):
    """A host's clocks gain so many microseconds a second."""

    host: str
    ppm: int


class Jump(_Fault, frozen=True, tag="jump"):
    """Somebody sets a host's wall clock, and sets it right later."""

    host: str
    seconds: float


class BadDisk(_Fault, frozen=True, tag="bad_disk"):
    """A host's next sync fails."""

    host: str


Fault: TypeAlias = Crash | Pause | Cut | Partition | Drift | Jump | BadDisk
Plan: TypeAlias = tuple[Fault, ...]


def as_plan(faults: Any) -> Any:
    """A plan from one fault or several; ``"swarm"``, a Swarm and None as they are."""
    if faults is None or faults == "swarm" or isinstance(faults, Swarm):
        return faults
    plan = (faults,) if isinstance(faults, _Fault | str) else tuple(faults)
    if strange := [each for each in plan if not isinstance(each, _Fault)]:
        raise ValueError(f"faults = {strange[0]!r}: give 'swarm', a Swarm, a plan or None")
    return plan


Kind: TypeAlias = Literal["crash", "pause", "cut", "partition", "drift", "jump"]


class Swarm(msgspec.Struct, frozen=True):
    """Faults drawn from the seed: of these kinds, and at most so many."""

    kinds: tuple[Kind, ...] = ("crash", "pause", "cut", "partition", "drift", "jump")
    most: int = 6

    def __post_init__(self) -> None:
        if strange := sorted(set(self.kinds) - set(get_args(Kind))):
            raise ValueError(f"no kind of fault {strange}; known: {', '.join(get_args(Kind))}")


def schedule(world: World, plan: Plan) -> None:
    """Let each fault begin and end in its time."""
    for fault in plan:
        world.later(fault.at, inflict, world, fault)


def inflict(world: World, fault: Fault) -> None:
    """Let a fault begin now, and see to its end. One that has no effect has no end."""
    match fault:
        case Crash(host=name, loss=loss):
            host = world[name]
            if host.crash(loss):
                world.later(fault.lasts, host.start)
        case Pause(host=name):
            if world[name].pause():
                world.later(fault.lasts, world[name].resume)
        case Cut(source=source, target=target):
            world.cut(source, target)
            world.later(fault.lasts, world.mend, source, target)
        case Partition(sides=sides):
            world.partition(*sides)
            world.later(fault.lasts, world.unite, *sides)
        case Drift(host=name, ppm=ppm):
            world[name].drift(ppm)
            world.later(fault.lasts, world[name].drift, 0)
        case Jump(host=name, seconds=seconds):
            world[name].jump(seconds)
            world.later(fault.lasts, world[name].jump, -seconds)
        case BadDisk(host=name):
            world[name].fail_disk()


def told(fault: Fault) -> str:
    """A fault in one line."""
    match fault:
        case Crash(host=name, loss=loss):
            lost = {
                "unsynced": "what was not synced",
                "torn": "some of what was not synced",
                "nothing": "nothing",
            }
            what = f"crash of {name}, losing {lost[loss]}"
        case Pause(host=name):
            what = f"pause of {name}"
        case Cut(source=source, target=target):
            what = f"nothing from {source} reaches {target}"
        case Partition(sides=sides):
            what = "partition " + " | ".join(" ".join(side) for side in sides)
        case Drift(host=name, ppm=ppm):
            what = f"clock of {name} drifts by {ppm} ppm"
        case Jump(host=name, seconds=seconds):
            what = f"wall clock of {name} is off by {seconds:+g} s"
        case BadDisk(host=name):
            return f"{fault.at:.3f} s: a sync of {name} fails"
    return f"{fault.at:.3f} s: {what}, for {fault.lasts:.3f} s"


def draw_plan(
    rng: Random, swarm: Swarm, hosts: Sequence[str], frail: Sequence[str], span: float
) -> Plan:
    """Some faults of some kinds within ``span`` seconds. Each seed has only some kinds: a draw
    that always used all would hide what only shows when most things are quiet.

    ``frail`` hosts may crash and stand still; the network suffers between all.
    """

    def moment() -> float:
        return round(rng.uniform(0.02, 1.0) * span, 4)

    def length(least: float, most: float) -> float:
        return round(float(least * (most / least) ** rng.random()), 4)

    def sides() -> tuple[tuple[str, ...], ...]:
        mixed = rng.sample(list(hosts), len(hosts))
        at = rng.randint(1, len(mixed) - 1)
        return tuple(sorted(mixed[:at])), tuple(sorted(mixed[at:]))

    def crash() -> Fault:
        loss: Loss = rng.choice(("unsynced", "torn", "nothing"))
        return Crash(at=moment(), lasts=length(0.05, 4), host=rng.choice(frail), loss=loss)

    def pause() -> Fault:
        return Pause(at=moment(), lasts=length(0.02, 3), host=rng.choice(frail))

    def cut() -> Fault:
        source, target = rng.sample(list(hosts), 2)
        return Cut(at=moment(), lasts=length(0.05, 4), source=source, target=target)

    def partition() -> Fault:
        return Partition(at=moment(), lasts=length(0.1, 4), sides=sides())

    def drift() -> Fault:
        ppm = rng.choice((-50_000, -1_000, 1_000, 50_000))
        return Drift(at=moment(), lasts=length(1, 10), host=rng.choice(frail), ppm=ppm)

    def jump() -> Fault:
        seconds = round(rng.choice((-1, 1)) * length(0.1, 100), 3)
        return Jump(at=moment(), lasts=length(0.5, 10), host=rng.choice(frail), seconds=seconds)

    alone: list[Callable[[], Fault]] = [crash, pause, drift, jump] if frail else []
    together: list[Callable[[], Fault]] = [cut, partition] if len(hosts) > 1 else []
    kinds = [draw for draw in (*alone, *together) if draw.__name__ in swarm.kinds]
    if not kinds:
        return ()
    chosen = rng.sample(kinds, rng.randint(1, min(3, len(kinds))))
    plan = [rng.choice(chosen)() for _ in range(rng.randint(0, swarm.most))]
    return tuple(sorted(plan, key=lambda fault: fault.at))

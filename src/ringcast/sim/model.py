"""What a network is like, as data: links, a medium, and processors that take time.

Everything here can be written in a run file. The live network that behaves like a model is
``network.Network``.
"""

from __future__ import annotations

from math import log
from random import Random
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import replace

from ringcast.core.ids import NodeId

Micros = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Cost = Annotated[float, msgspec.Meta(ge=0.0)]


class Constant(msgspec.Struct, frozen=True, tag_field="kind", tag="constant"):
    """Every frame takes equally long."""

    us: Micros = 100

    def sample(self, rng: Random) -> int:
        """The delay of one frame."""
        return self.us


class Uniform(msgspec.Struct, frozen=True, tag_field="kind", tag="uniform"):
    """Anything from ``low_us`` to ``high_us``, equally likely."""

    low_us: Micros
    high_us: Micros

    def __post_init__(self) -> None:
        if self.low_us > self.high_us:
            raise ValueError(f"low_us {self.low_us} is above high_us {self.high_us}")

    def sample(self, rng: Random) -> int:
        """The delay of one frame."""
        return rng.randint(self.low_us, self.high_us)


class Exponential(msgspec.Struct, frozen=True, tag_field="kind", tag="exponential"):
    """At least ``base_us``, and an exponential tail with mean ``tail_us``, cut at ``most_us``."""

    base_us: Micros
    tail_us: Annotated[int, msgspec.Meta(gt=0)]
    most_us: Micros = 1_000_000

    def sample(self, rng: Random) -> int:
        """The delay of one frame."""
        # What expovariate and min do, in half the time: this is drawn for every frame of a LAN.
        delay_us = self.base_us + int(-log(1.0 - rng.random()) * self.tail_us)
        return delay_us if delay_us < self.most_us else self.most_us


class Lognormal(msgspec.Struct, frozen=True, tag_field="kind", tag="lognormal"):
    """A long tail: median ``median_us``, spread ``sigma``, cut at ``most_us``."""

    median_us: Annotated[int, msgspec.Meta(gt=0)]
    sigma: Cost = 0.5
    most_us: Micros = 1_000_000

    def sample(self, rng: Random) -> int:
        """The delay of one frame."""
        return min(int(self.median_us * rng.lognormvariate(0.0, self.sigma)), self.most_us)


Delay: TypeAlias = Constant | Uniform | Exponential | Lognormal


class LinkModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How one directed link treats frames. Each receiver and each frame is drawn for itself."""

    delay: Delay = Constant()
    loss: Share = 0.0
    """Share of broadcast frames lost (1 minus the paper's medium option -m)."""
    unicast_loss: Share = 0.0
    """Share of unicast frames, tokens above all, lost (1 minus -t)."""
    duplicate: Share = 0.0
    """Share of frames that arrive twice."""
    reorder: Share = 0.0
    """Share of frames held up by as much as ``reorder_us``, so that later ones overtake them."""
    reorder_us: Micros = 0
    bandwidth_bps: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Bits a second; 0 is unlimited. On a shared medium the model's default link decides."""
    queue_us: Annotated[int, msgspec.Meta(gt=0)] = 1_000_000
    """A frame that would wait longer than this for the wire is dropped."""
    mtu_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Larger frames vanish without a word (a black hole); 0 is no limit."""

    def calm(self) -> LinkModel:
        """The same link at its best."""
        return replace(self, loss=0.0, unicast_loss=0.0, duplicate=0.0, reorder=0.0, mtu_bytes=0)


class LinkOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directed link that differs from the others."""

    src: NodeId
    dst: NodeId
    link: LinkModel


class CpuModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What frames cost a processor. While it works, arriving frames wait in its buffer.

    A broadcast frame is handed to the wire and its cost is paid while it travels, so a burst
    leaves at the pace of the processor or of the wire, whichever is slower. A unicast frame is
    handed over when its cost is paid: that is how long a token rests at a processor.
    """

    send_us: Cost = 0.0
    send_us_per_byte: Cost = 0.0
    receive_us: Cost = 0.0
    receive_us_per_byte: Cost = 0.0
    unicast_send_us: Cost = 0.0
    """Cost of a unicast frame (a token) to its sender, before it leaves, whatever its size."""
    unicast_receive_us: Cost = 0.0
    """Cost of a unicast frame to its receiver, whatever its size."""


class BurstTail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A switch with too small a buffer: of two or more frames sent at once the last are lost."""

    frames: Annotated[int, msgspec.Meta(ge=1)] = 1
    chance: Share = 1.0
    """Share of the bursts that suffer."""


class NetworkModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A broadcast domain and the processors on it."""

    link: LinkModel = LinkModel()
    links: tuple[LinkOverride, ...] = ()
    overhead_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """What lower layers add to each frame on the wire."""
    shared: bool = False
    """One half-duplex medium for all, one frame at a time, instead of independent links."""
    cpu: CpuModel | None = None
    receive_buffer: Annotated[int, msgspec.Meta(ge=1)] = 2048
    """Frames a processor holds, in each of its two lanes, before it loses what arrives."""
    burst_tail: BurstTail | None = None

    def calm(self) -> NetworkModel:
        """The same network on a day without loss, duplicates, overtaking and black holes."""
        links = tuple([LinkOverride(o.src, o.dst, o.link.calm()) for o in self.links])
        return replace(self, link=self.link.calm(), links=links, burst_tail=None)

"""The packet driver: messages to load a group with, at a rate or as many as it takes."""

from __future__ import annotations

import asyncio
import math
import re
from random import Random

import msgspec

from ringcast.api.group import Group, WouldBlock
from ringcast.console.options import fail
from ringcast.core.ids import Level

AT_ONCE = 500
"""Messages a saturating driver hands over in one call …"""

CALLS = 4
"""… and calls it keeps under way, so that the next one waits when one is done."""

LATE_S = 0.25
"""A driver that is later than this (its process was stopped) does not make up for it."""

LARGEST = 16 * 2**20


class DriverLoad(msgspec.Struct, frozen=True):
    """What a driver sends."""

    rate: float
    """Messages a second; infinite saturates."""
    low: int
    high: int
    """Sizes in bytes, small ones as likely as large ones in proportion (evenly in the log)."""
    safe: float
    """Share of the messages that are safe."""


def load(drive: str, size: str, safe: float) -> DriverLoad:
    """What the options ask for."""
    if drive == "saturate":
        rate = math.inf
    else:
        try:
            rate = float(drive)
        except ValueError:
            rate = 0
        if not 0 < rate <= 1e6:
            fail(f"--drive {drive!r}: give messages per second, such as 500, or 'saturate'")
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", size)
    if match is None:
        fail(f"--size {size!r}: give bytes, such as 64, or a range, such as 16..4096")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not low <= high <= LARGEST:
        fail(f"--size {size}: the second number must be larger, and at most {LARGEST}")
    return DriverLoad(rate, low, high, safe)


class Driver:
    """Sends messages to a group until it is cancelled."""

    def __init__(self, group: Group, load: DriverLoad, random: Random) -> None:
        self._group = group
        self._load = load
        self._random = random
        self.sent = 0

    async def run(self) -> None:
        """Until cancelled, or the node stops."""
        if math.isinf(self._load.rate):
            await asyncio.gather(*(self._saturate() for _ in range(CALLS)))
        else:
            await self._pace()

    async def _saturate(self) -> None:
        while True:
            bodies = [self._body() for _ in range(AT_ONCE)]
            await self._group.send_many(bodies, self._level())

    async def _pace(self) -> None:
        """At random moments, as independent users would (a Poisson process)."""
        loop = asyncio.get_running_loop()
        at_s = loop.time()
        while True:
            at_s += self._random.expovariate(self._load.rate)
            now_s = loop.time()
            if at_s > now_s:
                await asyncio.sleep(at_s - now_s)
            elif now_s - at_s > LATE_S:
                at_s = now_s
            body, level = self._body(), self._level()
            try:
                self._group.send_nowait(body, level)
            except WouldBlock:
                await self._group.send(body, level)

    def _body(self) -> bytes:
        """A body unlike the others, as far as its size allows."""
        self.sent += 1
        load = self._load
        size = load.low
        if load.high > load.low:
            ratio = (load.high + 1) / (load.low + 1)
            size = int((load.low + 1) * ratio ** self._random.random()) - 1
        return self.sent.to_bytes(8, "big").ljust(size, b"\0")[:size]

    def _level(self) -> Level:
        return Level.SAFE if self._random.random() < self._load.safe else Level.AGREED

"""Requests and replies between hosts, for programs that talk to each other besides the group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from ringcast.testing.errors import CallFailed

if TYPE_CHECKING:
    from ringcast.testing.host import Host

_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Request(msgspec.Struct, frozen=True):
    """What another host asks."""

    path: str
    body: Any
    caller: str


class _Exchange:
    """One request and its answer, seen from the caller."""

    __slots__ = ("answer", "caller", "target", "text")

    def __init__(self, caller: Host, target: Host, text: str) -> None:
        self.caller, self.target, self.text = caller, target, text
        self.answer: asyncio.Future[bytes] = caller.loop.create_future()

    def reply(self, data: bytes | None, why: str = "") -> None:
        """Send the answer, or that there is none; it may get nowhere."""
        caller, target = self.caller, self.target
        back_us = target.network.transit_us(target.number, caller.number)
        if back_us is not None:
            caller.later(back_us, self._settle, data, why)

    def _settle(self, data: bytes | None, why: str) -> None:
        if not self.answer.done():
            if data is None:
                self.answer.set_exception(CallFailed(why))
            else:
                self.answer.set_result(data)


class Calls:
    """The requests that a host makes and answers."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.handler: Callable[[Request], Awaitable[Any]] | None = None
        self._open: dict[int, _Exchange] = {}
        """Requests that are being answered here."""
        self._numbers = count(1)

    async def ask(self, target: Host, path: str, body: Any, within: float) -> Any:
        """The answer of another host."""
        host = self._host
        exchange = _Exchange(host, target, f"{target.name}{path}")
        request = Request(path, _decode(_encode(body)), host.name)
        host.note(f"asks {exchange.text} {body if body is not None else ''}".rstrip())
        transit_us = host.network.transit_us(host.number, target.number)
        if transit_us is not None:
            scheduler = host.loop.scheduler
            scheduler.at(scheduler.now_us + transit_us, target.calls.arrive, (exchange, request))
        try:
            async with asyncio.timeout(within):
                answer = _decode(await exchange.answer)
        except TimeoutError:
            host.note(f"has no answer of {exchange.text}")
            raise CallFailed(f"no answer of {exchange.text} within {within:g} s") from None
        except CallFailed as error:
            host.note(f"is refused by {exchange.text}: {error}")
            raise
        host.note(f"hears of {exchange.text}: {answer}")
        return answer

    def arrive(self, asked: tuple[_Exchange, Request]) -> None:
        """A request of another host."""
        exchange, request = asked
        if self.handler is None or not self._host.up:
            exchange.reply(None, f"nobody answers at {self._host.name}")
            return
        number = next(self._numbers)
        self._open[number] = exchange
        self._host.spawn(self._answer(number, exchange, request))

    async def _answer(self, number: int, exchange: _Exchange, request: Request) -> None:
        assert self.handler is not None
        try:
            data = _encode(await self.handler(request))
        except Exception as error:
            self._open.pop(number, None)
            exchange.reply(None, f"{self._host.name} failed: {type(error).__name__}: {error}")
        else:
            if self._open.pop(number, None) is not None:
                exchange.reply(data)

    def break_off(self) -> None:
        """The process has died: who waits for an answer may be told so."""
        self.handler = None
        for exchange in self._open.values():
            exchange.reply(None, f"{self._host.name} broke off")
        self._open.clear()

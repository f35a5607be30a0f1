"""Exactly once: a request that was applied is not applied again, and gives what it gave then.

The table is part of the replicated state: it changes with applied commands alone, so it is the
same at all members, and it travels in snapshots.

Bounds: the ``CLIENTS`` clients heard of last, with the results of the ``REQUESTS`` highest numbers
each. A repetition of a request below those is refused; of a client that was forgotten, it is a new
request. A replica's own submissions are kept apart, by number alone, for ``INCARNATIONS`` replicas
with ``WINDOW`` numbers each: the engine may append one twice (RS-11). Of these a member has the
last ``LIVES``, so that made-up ones push out none of another member. A command is said by the life
that submitted it alone, so a few are enough.
"""

from __future__ import annotations

import builtins
from functools import lru_cache
from typing import Any

import msgspec

from ringcast.core.errors import RingcastError
from ringcast.replica.contents import DEEPEST, too_deep
from ringcast.replica.words import Ticket

CLIENTS, REQUESTS = 10_000, 16
INCARNATIONS, LIVES, WINDOW = 1_000, 4, 4_096


class RequestTooOld(RingcastError):
    """A client repeats a request whose result is not kept any more: it was applied, or given up."""


class CommandFailed(RingcastError):
    """The command raised this when it was applied; the text names the error."""


class RequestOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a request gave: a result, or the name and text of an error."""

    result: bytes = b"\xc0"
    error: str = ""
    text: str = ""

    @classmethod
    def of(cls, result: object) -> RequestOutcome:
        """A result, in the form in which it is kept. One that cannot be is an error, at all members
        alike; only what depends on the process is raised."""
        try:
            if not too_deep(result):
                return cls(_encode(result))
            why = f"it is nested more than {DEEPEST} deep"
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            why = _text(error)
        return cls.failed(
            CommandFailed(f"applied, but its result cannot be kept for repetitions: {why}")
        )

    @classmethod
    def failed(cls, error: Exception) -> RequestOutcome:
        """An error, in the form in which it is kept."""
        return cls(error=_readable(type(error).__name__), text=_readable(_text(error)))

    def get(self) -> Any:
        """The result; raises the error. One of Python's own comes as itself."""
        if not self.error:
            return msgspec.msgpack.decode(self.result)
        kind = getattr(builtins, self.error, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                found = kind(self.text)
            except Exception:  # UnicodeError and its like take more than a text
                found = CommandFailed(f"{self.error}: {self.text}")
            raise found
        for own in (CommandFailed, RequestTooOld):
            if self.error == own.__name__:
                raise own(self.text)
        raise CommandFailed(f"{self.error}: {self.text}")


class Client(msgspec.Struct, array_like=True):
    """The last requests of one client."""

    floor: int = -1
    """Requests up to this one are not known any more."""
    outcomes: dict[int, RequestOutcome] = {}


class Seen(msgspec.Struct, array_like=True):
    """The numbers of one replica's submissions that were applied."""

    floor: int = 0
    """Everything up to this one was, or nobody waits for it any more."""
    numbers: set[int] = set()


class Sessions(msgspec.Struct, array_like=True):
    """Who was served what; the least recent first."""

    clients: dict[str, Client] = {}
    replicas: dict[str, Seen] = {}

    def recall(self, client: str, request: int) -> RequestOutcome | None:
        """What this request gave; None if it is new."""
        known = self.clients.get(client)
        if known is None:
            return None
        if request <= known.floor:
            return RequestOutcome.failed(
                RequestTooOld(
                    f"request {request} of {client!r}: results are kept for {REQUESTS} requests of "
                    f"a client; those up to {known.floor} are gone"
                )
            )
        return known.outcomes.get(request)

    def record(self, client: str, request: int, outcome: RequestOutcome) -> None:
        """The request was applied; the oldest of what goes beyond the bounds is forgotten."""
        known = self.clients.pop(client, None) or Client()
        self.clients[client] = known
        known.outcomes[request] = outcome
        if len(known.outcomes) > REQUESTS:
            known.floor = min(known.outcomes)
            del known.outcomes[known.floor]
        if len(self.clients) > CLIENTS:
            del self.clients[next(iter(self.clients))]

    def fresh(self, ticket: Ticket) -> bool:
        """Whether a submission of a replica is here for the first time; from now on it was."""
        name, number = _name(ticket.node, ticket.boot), ticket.number
        seen = self.replicas.get(name)
        if seen is None or next(reversed(self.replicas)) != name:  # it is the most recent from now
            known = self.replicas.pop(name, None)
            self.replicas[name] = seen = known or Seen()
            if known is None:
                self._forget_lives(ticket.node)
        if number == seen.floor + 1 and not seen.numbers:  # as it nearly always is
            seen.floor = number
        elif number <= seen.floor or number in seen.numbers:
            return False
        else:
            self._note(seen, number)
        if len(self.replicas) > INCARNATIONS:
            del self.replicas[next(iter(self.replicas))]
        return True

    def _forget_lives(self, node: int) -> None:
        lives = [name for name in self.replicas if name.startswith(f"{node}/")]
        for name in lives[:-LIVES]:
            del self.replicas[name]

    def _note(self, seen: Seen, number: int) -> None:
        """A number that came before others, or behind some that had."""
        seen.numbers.add(number)
        while seen.floor + 1 in seen.numbers:
            seen.floor += 1
            seen.numbers.discard(seen.floor)
        if len(seen.numbers) > WINDOW:
            seen.floor = min(seen.numbers)
            seen.numbers.discard(seen.floor)


@lru_cache(64)
def _name(node: int, boot: int) -> str:
    """What a replica is called in the table."""
    return f"{node}/{boot}"


def _text(error: Exception) -> str:
    """What an error says; one that cannot is no reason to end all replicas."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be had)"


def _readable(text: str) -> str:
    """A text that msgpack takes: half of a character is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


_encode = msgspec.msgpack.Encoder().encode

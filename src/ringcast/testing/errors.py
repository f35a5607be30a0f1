"""What can go wrong with a program in a simulated world, or with the world itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ringcast.core.errors import RingcastError


class Escape(RingcastError, RuntimeError):
    """The program reached for something outside the simulated world: a thread, a real socket."""


class Stuck(RingcastError, AssertionError):
    """Nothing will ever happen again, time stands still, or the run takes far too long."""


class Violated(RingcastError, AssertionError):
    """Something that was said to hold always did not."""

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(f"{name} does not hold" + (f": {why}" if why else ""))
        self.name = name


class NotReached(RingcastError, AssertionError):
    """What was waited for did not come about in time."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


class HostFailed(RingcastError, AssertionError):
    """The program of a host ended with an error, or one of its callbacks did."""


class CallFailed(RingcastError, ConnectionError):
    """A request to another host got no answer. Whether it was carried out is not known."""


class EscapeLog:
    """Escapes of one world, kept because a program may swallow the error."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self.first: Escape | None = None
        self._heard = heard

    def escape(self, what: str, instead: str) -> NoReturn:
        """Refuse something that would leave the simulated world."""
        error = Escape(f"{what} would leave the simulated world: {instead}")
        if self.first is None:
            self.first = error
            self._heard()
        raise error


def origin_of(error: BaseException) -> BaseException:
    """What went wrong in the program, of which ours tells; of a group, the first."""
    if isinstance(error, HostFailed | Violated) and error.__cause__ is not None:
        error = error.__cause__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def described(error: BaseException) -> str:
    """Its type and text; of a group, the first one's, too."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return (
        f"{text}: {described(error.exceptions[0])}"
        if isinstance(error, BaseExceptionGroup)
        else text
    )


def headline(error: BaseException) -> str:
    """What to say of the error of a run; our own say what they are."""
    own = Escape | HostFailed | NotReached | Stuck | Violated
    return str(error) if isinstance(error, own) else described(error)


class SimFailure(RingcastError, AssertionError):
    """A seed fails; the text tells the story of the smallest run that fails so."""


class NeverMet(RingcastError, AssertionError):
    """Something that was to be seen sometimes was seen in no seed."""


class NotDeterministic(RingcastError, AssertionError):
    """The same seed ran in two ways."""


class NotLinearizable(RingcastError, AssertionError):
    """No order of operations explains what clients were told."""


class Undecided(RingcastError, RuntimeError):
    """A history is too long to tell whether it is linearizable: check shorter ones."""

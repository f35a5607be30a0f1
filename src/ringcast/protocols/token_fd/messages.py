"""The frames of token-fd, and what makes one bad.

Sequences of messages travel as runs: ``(place, count)`` pairs, one after the other, each meaning
the next ``count`` frames of the member at that place. Since a member's frames are numbered 1, 2, …
and ordered in that order (TF-30), a run needs no numbers once it is known how many of each member
come before; ``base`` says that for a token.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.blocks.ring_detector import Alive
from ringcast.core.ids import LIMIT, Level, Seq
from ringcast.protocols.token_fd.config import MAX_MEMBERS, MOST_RUNS

Group = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Place = Annotated[int, msgspec.Meta(ge=0, lt=MAX_MEMBERS)]
Hop = Annotated[int, msgspec.Meta(ge=-MAX_MEMBERS, le=LIMIT)]

Runs = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=2 * MOST_RUNS)]
Counts = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
Matrix = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MAX_MEMBERS**2)]

LAST = 2**62
"""No number of a correct member comes near this."""


class Body(msgspec.Struct, frozen=True, array_like=True, tag=50, gc=False):
    """Frame ``number`` of the member at ``origin``: the messages themselves (TF-32)."""

    group: Group
    origin: Place
    number: Seq
    level: Level
    contents: Contents

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 20 + self.contents.wire_bytes()


class Token(msgspec.Struct, frozen=True, array_like=True, tag=51, gc=False):
    """TF-22, TF-37: what goes round.

    ``base`` counts, for each member, the delivered frames that are not told any more; ``adeliv``
    is the order from there on, ``proposal`` what may come next in it. ``known`` is how far each
    member is known to have delivered, and ``held[j*n + i]`` how many frames of member i member j
    is known to hold: nextSet, with the holders of each message.
    """

    group: Group
    hop: Hop
    after: Hop  # the hop it was taken from, for whoever reads the trace
    votes: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]
    proposal: Runs
    base: Counts
    adeliv: Runs
    known: Counts
    held: Matrix
    bodies: Annotated[tuple[Body, ...], msgspec.Meta(max_length=2**16)] = ()

    @property
    def start(self) -> int:
        """How many delivered frames come before ``adeliv``."""
        return sum(self.base)

    @property
    def length(self) -> int:
        """How many frames were delivered in all."""
        return sum(self.base) + sum(self.adeliv[1::2])


class TokenReq(msgspec.Struct, frozen=True, array_like=True, tag=52, gc=False):
    """TF-34: please send your last token, if it is newer than the one I have of you."""

    group: Group
    seen: Annotated[int, msgspec.Meta(ge=-2 * MAX_MEMBERS, le=LIMIT)]


class TokenAck(msgspec.Struct, frozen=True, array_like=True, tag=53, gc=False):
    """TF-39: the token of this hop is here already."""

    group: Group
    hop: Hop


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=54, gc=False):
    """TF-41: please send these bodies: triples of place, first and last number."""

    group: Group
    wanted: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=3 * MOST_RUNS)]


class LogReq(msgspec.Struct, frozen=True, array_like=True, tag=55, gc=False):
    """TF-38: please tell the order after the first ``length`` frames."""

    group: Group
    length: Seq


class LogRep(msgspec.Struct, frozen=True, array_like=True, tag=56, gc=False):
    """TF-38: the order after the frames counted by ``base``, as far as it fits, and who holds what:
    nobody may speak of frames without knowing of a holder (I5)."""

    group: Group
    base: Counts
    adeliv: Runs
    held: Matrix


MESSAGES = (Body, Token, TokenReq, TokenAck, Fetch, LogReq, LogRep, Alive)


def malformed(frame: msgspec.Struct, n: int, src: int) -> str | None:
    """Why a frame of the member at place ``src`` must not be acted upon, or None."""
    match frame:
        case Body():
            return "malformed body" if _bad_body(frame, n) else None
        case Token():
            return "malformed token" if _bad_token(frame, n, src) else None
        case Fetch(wanted=wanted):
            bad = len(wanted) % 3 != 0 or any(place >= n for place in wanted[::3])
            return "malformed request" if bad else None
        case LogRep():
            return "malformed order" if _bad_order(frame, frame.adeliv, n) else None
        case _:
            return None


def oversize(frame: msgspec.Struct, most: int) -> bool:
    """TF-38: whether a body in it is larger than any of a member with the same ``max_packet``: what
    is kept is counted in frames of that size."""
    if type(frame) is Body:
        return frame.contents.exceeds(most)
    return type(frame) is Token and any(body.contents.exceeds(most) for body in frame.bodies)


def _bad_body(body: Body, n: int) -> bool:
    """Whether it is nobody's, or empty."""
    return body.origin >= n or not 0 < body.number < LAST or not body.contents.bodies


def _bad_token(token: Token, n: int, src: int) -> bool:
    """Whether it is not this member's, or speaks of frames that nobody is said to hold (I5)."""
    return (
        token.hop % n != src
        or token.hop >= LAST
        or len(token.known) != n
        or len(token.adeliv) % 2 == 1
        or _bad_order(token, token.adeliv + token.proposal, n)
        or any(_bad_body(body, n) for body in token.bodies)
    )


def _bad_order(frame: Token | LogRep, runs: tuple[int, ...], n: int) -> bool:
    """Whether what follows ``base`` is no sequence, or of frames that nobody is said to hold."""
    if len(frame.base) != n or len(frame.held) != n * n or _bad_runs(runs, n):
        return True
    ends = list(frame.base)
    for at in range(0, len(runs), 2):
        ends[runs[at]] += runs[at + 1]
    return any(end > max(frame.held[place::n]) for place, end in enumerate(ends))


def _bad_runs(runs: tuple[int, ...], n: int) -> bool:
    """Whether these are no pairs of a place and a count."""
    if not runs:
        return False
    return bool(len(runs) % 2) or max(runs[::2]) >= n or min(runs[1::2]) < 1

"""token-path: every token follows from an earlier one, and all of them tell the same order.

The invariants I1 to I6 of token-fd, and what they are for: no two members decide differently.
Members note ``group`` (n and f) at the start, ``token`` for each one sent (``Sent``) and ``decide``
for each decision (how many frames were ordered before, and which are now). Without such notes there
is nothing to be said. Each epoch, which is a ring of its own, begins with its first hop.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Ended, Installed, Noted
from ringcast.protocols.token_fd.order import Flat, shown

KEPT = 4096
"""Hops and lengths remembered before the older half is let go; what is older is not compared."""

T = TypeVar("T")


class Sent(msgspec.Struct, frozen=True):
    """A token, as its sender noted it: a hop, the hop it was taken after, votes, how many frames
    are ordered, a checksum of their order, how many more wait to be ordered, and the proposal."""

    node: NodeId
    hop: int
    after: int
    votes: int
    length: int
    order: int
    open: int
    proposal: Flat

    @classmethod
    def of(cls, node: NodeId, data: tuple[int, ...]) -> Sent:
        """From the numbers of a note; ValueError if they are too few."""
        hop, after, votes, length, order, waiting, *runs = data
        return cls(node, hop, after, votes, length, order, waiting, tuple(runs))


class Pack(msgspec.Struct):
    """A group: how many they are, how many may crash, and where each has its place."""

    n: int
    f: int
    places: dict[NodeId, int]


class Epoch(msgspec.Struct):
    """What is known of the tokens of one ring."""

    members: tuple[NodeId, ...] = ()
    group: Pack | None = None
    sent: dict[int, Sent] = {}
    last: dict[NodeId, Sent] = {}
    orders: dict[int, tuple[str, NodeId]] = {}
    decided: dict[int, tuple[str, NodeId]] = {}
    early: dict[int, list[tuple[Noted, Sent]]] = {}
    """Tokens noted before the one they were taken after: clocks of live members differ."""


class TokenPath(Property):
    """I1 to I6."""

    tag = "token-path"
    title = "tokens follow from tokens"
    about_deliveries = False
    notes = ("token", "decide")
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._epochs: dict[ViewId, Epoch] = {}
        self._present: dict[NodeId, Epoch] = {}

    def on_installed(self, event: Installed) -> None:
        """Who is where on the ring."""
        epoch = self._epochs.setdefault(event.view, Epoch())
        epoch.members = event.members
        self._present[event.node] = epoch

    def on_noted(self, event: Noted) -> None:
        """Read what a member tells of its token."""
        if event.what not in ("group", *self.notes):
            return
        epoch = self._present.get(event.node)
        if epoch is None:
            self.undecided = True  # no ring that its hop could be of
            return
        match event.what, event.data or ():
            case "group", (n, f):
                self._meet(epoch, n, f)
            case "decide", (length, *runs):
                self._agree(event, length, shown(tuple(runs)), epoch.decided, "the decision after")
            case "token", (_, _, _, _, _, _, *_) as data:
                self._follow(event, Sent.of(event.node, data), epoch)
            case _:
                self.undecided = True  # a note that another program wrote

    def on_ended(self, event: Ended) -> None:
        """A token that was taken after one of which nothing is known."""
        for epoch in self._epochs.values():
            for hop, early in sorted(epoch.early.items()):
                for noted, token in early:
                    self._wrong(noted, token, f"I2: nobody sent hop {hop}")

    def _meet(self, epoch: Epoch, n: int, f: int) -> None:
        """All members note the same group, which is the ring's."""
        if epoch.group is None and n == len(epoch.members):
            places = {node: place for place, node in enumerate(sorted(epoch.members))}
            epoch.group = Pack(n, f, places)
        elif epoch.group is None or (epoch.group.n, epoch.group.f) != (n, f):
            self.undecided = True

    def _follow(self, event: Noted, token: Sent, epoch: Epoch) -> None:
        """Compare a token with its sender's last one, the one it was taken after, and the order."""
        group = epoch.group
        if group is None:
            self.undecided = True  # of what group it is was never noted
            return
        last = epoch.last.get(token.node)
        again = epoch.sent.get(token.hop)
        if token.hop % group.n != group.places.get(token.node):
            self._wrong(event, token, "I1: the hop is not its own")
        elif again is not None or (last is not None and last.hop >= token.hop):
            self._wrong(event, token, "I1: it had sent a token for that hop, or a later one")
        elif last is not None and last.length > token.length:
            self._wrong(event, token, f"I3: it had ordered {last.length} frames before")
        elif token.open < sum(token.proposal[1::2]):
            self._wrong(event, token, "I5: it proposes more than waits to be ordered")
        elif token.hop != token.after:  # the first token of all comes after itself
            self._compare(event, token, epoch, group)
        order = f"{token.order:08x}"
        self._agree(event, token.length, order, epoch.orders, "I6: the order of")
        epoch.last[token.node] = epoch.sent[token.hop] = token
        for later in epoch.early.pop(token.hop, ()):
            self._compare(*later, epoch, group)
        _let_go(epoch.sent)

    def _compare(self, event: Noted, token: Sent, epoch: Epoch, group: Pack) -> None:
        """I2, I3, I4: the token it was taken after, if that is remembered."""
        distance = token.hop - token.after
        if not 1 <= distance <= group.f + 1:
            self._wrong(event, token, "I2: it was taken from too far away")
            return
        before = epoch.sent.get(token.after)
        if before is None:
            if token.after > max(epoch.sent, default=0) - KEPT // 2 and token.after >= 0:
                epoch.early.setdefault(token.after, []).append((event, token))
                _let_go(epoch.early)
            return
        votes = before.votes + 1 if distance == 1 else 1
        kept = bool(before.proposal) and before.length == token.length
        if token.length < before.length:
            self._wrong(event, token, f"I3: hop {before.hop} had told {before.length} frames")
        elif kept and before.proposal != token.proposal:
            self._wrong(event, token, f"I4: it changed the proposal of hop {before.hop}")
        elif token.votes != (votes if kept else 1):
            self._wrong(event, token, f"I4: hop {before.hop} had {before.votes} votes")
        elif kept and votes > group.f:
            self._wrong(event, token, "I4: it has votes enough, and did not decide")

    def _agree(
        self,
        event: Noted,
        length: int,
        value: str,
        known: dict[int, tuple[str, NodeId]],
        what: str,
    ) -> None:
        """I6 and the lemma: one order of each length, and one decision."""
        first, other = known.setdefault(length, (value, event.node))
        if first != value:
            self.violate(
                f"At {event.t_us} us {what} {length} frames is {value} at processor "
                f"{event.node}, but {first} at processor {other}.",
                (other, event.node),
                (),
                event.t_us,
            )
        _let_go(known)

    def _wrong(self, event: Noted, token: Sent, why: str) -> None:
        self.violate(
            f"Processor {token.node} sent hop {token.hop} (after {token.after}, {token.votes} "
            f"votes for {shown(token.proposal)}, {token.length} frames) at {event.t_us} us; {why}.",
            (token.node,),
            (),
            event.t_us,
        )


def _let_go(known: dict[int, T]) -> None:
    if len(known) > KEPT:
        for key in sorted(known)[: KEPT // 2]:
            del known[key]

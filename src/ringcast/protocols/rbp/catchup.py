"""Catching up: what became of a view that went on without us, or further than we heard (F10, F15,
GONE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringcast.core.env import Env
from ringcast.core.ids import LIMIT, NodeId, ViewId
from ringcast.core.inputs import Received
from ringcast.protocols.rbp import delivery, install
from ringcast.protocols.rbp.epochs import NOBODY, Entry, EpochConfig
from ringcast.protocols.rbp.messages import MOST_ENTRIES, Fetch, Gone, Past
from ringcast.protocols.rbp.state import Phase, Processor

if TYPE_CHECKING:
    from ringcast.protocols.rbp.reformation import Reformation

IN_VAIN = 2
"""Requests for a body that nobody answered, the last to all."""

PATIENCE = 3
"""Times ``vote_us`` that one who lacks what somebody let go looks for another who keeps it."""

GAP = "gap: what this member missed is not kept any more; start it again (rbp F15)"


def fetch(p: Processor, env: Env, view: ViewId, whom: NodeId | None) -> None:
    """F10, F15: ask a member that is further on, or all, what follows in a view."""
    wanted = Fetch(p.group, view, p.log.held)
    if whom is not None:
        env.send(whom, wanted)
    else:
        env.broadcast(wanted)


def on_fetch(p: Processor, env: Env, event: Received) -> None:
    """F10, F15: tell entries of a view, and what followed it if that is all; GONE if we do not keep
    them, or never knew."""
    wanted = event.message
    assert isinstance(wanted, Fetch)
    view, after = wanted.view, wanted.after
    child = p.children.get(view)
    end = child.start if child else LIMIT
    entries: tuple[Entry, ...] | None = ()
    mine = p.current.epoch.view if p.current else NOBODY
    if child is not None or (view == mine and p.chooser.one_epoch):
        entries = p.log.read(after, end, MOST_ENTRIES) if after < end else ()
    elif view >= mine:
        env.drop("rbp F15", "a question about a view that we do not know")
        return
    else:
        entries = None
    if entries is None:
        env.send(event.src, gone(p, view, after))
        return
    entries = tuple(entry for entry in entries if entry.tag.view == view)
    last = entries[-1].number if entries else after
    whole = child if child is not None and last >= end else None
    if entries or whole is not None:
        env.send(event.src, Past(p.group, view, after, entries, whole))


def gone(p: Processor, view: ViewId, after: int) -> Gone:
    """GONE: we do not keep what follows ``after``; the log goes back to here."""
    core = p.current.core if p.current else ()
    return Gone(p.group, view, after, p.log.floor, p.log.floor_tag, core)


class CatchUp:
    """A member that has heard of a later list than its own finds out what became of its view."""

    def __init__(self, site: Reformation) -> None:
        self.site = site
        self.child: EpochConfig | None = None
        """F15: the list that followed ours."""
        self.helper: NodeId | None = None
        """Who told us of it."""
        self.gone: set[NodeId] = set()
        """GONE: members that do not keep what we lack."""
        self.gone_after = -1
        """What they do not keep follows this number."""
        self.gone_us = 0
        """When the first of them said so."""

    def done(self) -> None:
        """We are in the next list, or in none."""
        self.child = self.helper = None
        self.gone.clear()

    def begin(self, env: Env, src: NodeId) -> None:
        """F15: somebody is in a later list: ask what became of ours."""
        p = self.site.p
        last_us = p.told_us.get(src)
        if last_us is not None and env.now_us - last_us < p.config.nack_us:
            return
        p.told_us[src] = env.now_us
        self.helper = p.asking.helper = src
        self.follow(env)

    def follow(self, env: Env) -> None:
        """F15: deliver the rest of our view; then we are in what followed, or out. Entries whose
        bodies do not come are asked for again: perhaps they are not kept any more."""
        p, child = self.site.p, self.child
        assert p.current is not None
        view = p.current.epoch.view
        if child is None or p.log.held < child.start:
            if p.asking.to <= p.log.held or p.asking.tries > IN_VAIN:
                fetch(p, env, view, self.helper)
            return
        if p.delivered > child.start:
            env.stop(f"diverged: entry {p.delivered} was delivered here and is void (rbp G23)")
        elif child.lives.get(p.me) == p.life:
            helper = self.helper
            self.site.enforce(env, child)
            if self.site.joined > child.epoch.view:
                self.helper = helper
                fetch(p, env, child.epoch.view, helper)
        else:
            delivery.deliver_to(p, env, child.start)
            self.site.out(env, child.epoch.view)

    def on_past(self, env: Env, event: Received) -> None:
        """F10, F15: entries that we lack, and perhaps what followed them."""
        p, past = self.site.p, event.message
        assert isinstance(past, Past)
        if p.current is None or past.view != p.current.epoch.view:
            env.drop("rbp F15", "an answer to nothing")
            return
        if past.child is not None:
            self.child = past.child
            self.site.announced = None
            self.helper = self.helper or event.src
        if past.entries:
            self.gone.clear()
        install.keep(p, env, past.entries)

    def on_gone(self, env: Env, event: Received) -> None:
        """GONE, I21: when all of the newest list say so, we cannot go on from where we are. The
        others are asked once: an answer from each to each would go round for ever. Of whom no
        answer came, the next frame makes us ask it again (``begin``). A5: nor may the group, if it
        stands still, wait for ever, with us, for one that is away."""
        p, gone = self.site.p, event.message
        assert isinstance(gone, Gone)
        if p.current is None or gone.view != p.current.epoch.view or gone.after != p.log.held:
            env.drop("rbp F15", "an answer to nothing")
            return
        if len(gone.core) < p.config.majority:
            env.drop("rbp F7", "a list that no majority is in")
            return
        first = gone.after != self.gone_after or not self.gone
        if first:
            self.gone, self.gone_after, self.gone_us = set(), gone.after, env.now_us
        self.gone.add(event.src)
        waited_us = env.now_us - self.gone_us
        in_vain = p.phase is Phase.FROZEN and waited_us >= PATIENCE * p.config.vote_us
        if in_vain or self.gone >= set(gone.core) - {p.me}:
            env.stop(GAP)
        elif first:
            fetch(p, env, gone.view, None)

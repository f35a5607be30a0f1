"""Epochs: freezing one, beginning the next, and leaving (2.0, F5, F11, F14, I10, I13)."""

from __future__ import annotations

from ringcast.blocks.packing import Assembler
from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.protocols.rbp import delivery, losses, ordering, sending
from ringcast.protocols.rbp.epochs import Data, Entry, EpochConfig, Extent
from ringcast.protocols.rbp.log import Log
from ringcast.protocols.rbp.state import LIVES, Asking, Phase, Processor, Ring, Timer
from ringcast.protocols.rbp.uniform import EPOCH

CHILDREN_KEPT = 64
"""F15: views that members may ask about when they come back."""


def new_life(p: Processor, env: Env) -> None:
    """A3: whoever is in no epoch takes part, next time, as somebody new."""
    p.lives += 1
    if p.lives >= LIVES:
        env.stop("excluded too often: start this member again (rbp F15)")
    p.life = p.boot * LIVES + p.lives


def freeze(p: Processor, env: Env) -> Extent:
    """F5, I5: the ring stands still here for good; requests are still answered."""
    if p.phase is Phase.MEMBER:
        p.enter(env, Phase.FROZEN, "another epoch is chosen")
        for timer in Timer:
            if timer is not Timer.NACK:
                env.cancel_timer(timer)
        p.ring.resting = False
    return p.extent()


def keep(p: Processor, env: Env, entries: tuple[Entry, ...], bodies: tuple[Data, ...] = ()) -> None:
    """I11: file what was recovered; cut our log only where a tag proves it void (G41). What was
    filed beyond it may be void as well: a number of an epoch that ended before it."""
    for entry in entries:
        number, known = entry.number, p.log.entry(entry.number)
        if known is not None and known.tag != entry.tag:
            if number <= p.delivered:
                env.stop(f"diverged: entry {number} was delivered here and is void (rbp I11)")
                return
            p.log.cut(number - 1)
        p.log.file(entry)
        p.asking.to = max(p.asking.to, number)
    for body in bodies:
        if p.log.wants(body.key):
            p.log.store(body)
    if p.log.advance():
        p.asking.tries = 0
    losses.look(p, env)
    p.chooser.grown(env)


def install(p: Processor, env: Env, config: EpochConfig, joined: bool) -> None:
    """R14, F11: begin an epoch. With ``joined``, we have promised to take part in a later one, and
    issue nothing in this one."""
    before = p.current
    if before is None:
        begin_at(p, config)
        p.children.clear()
    elif not p.aligned(config) or p.delivered > config.start:
        env.stop(f"broken invariant: {config.epoch} begins at {config.start} (rbp F14)")
        return
    else:
        delivery.deliver_to(p, env, config.decided)
        p.log.cut(config.start)
        if before.epoch.view != config.epoch.view:
            remember(p, before, config)
    p.current = config
    p.ring = Ring(config.start)
    p.asking = Asking()
    for timer in Timer:
        env.cancel_timer(timer)
    if p.view != config.epoch.view:
        begin_view(p, env, config)
    p.enter(env, Phase.FROZEN if joined else Phase.MEMBER, f"epoch {config.epoch}")
    env.note(
        "rbp F11",
        EPOCH,
        f"start={config.start} core={' '.join(map(str, config.core))}",
        config.epoch.view,
        config.core,
        (config.epoch.step, config.start, int(config.parent is None)),
    )
    p.chooser.installed(env)
    if p.phase is Phase.MEMBER:  # the chooser may have found a reason for another change
        ordering.watch(p, env)
        sending.send_new(p, env)
        ordering.go_on(p, env)


def begin_at(p: Processor, config: EpochConfig) -> None:
    """F15, I17: a member that is new needs nothing of what was before its first epoch."""
    log = p.log
    if log.floor != config.start or log.floor_tag != config.base:
        log.begin_at(config.start, config.base)
    p.delivered = config.start


def begin_view(p: Processor, env: Env, config: EpochConfig) -> None:
    """V8: tell the application; what the view before left unordered is sent in this one, by its
    source alone (I15): everybody else forgets it."""
    view, lives = config.epoch.view, config.lives
    back, silent = "it came back in another life", p.chooser.judged_by
    departures = tuple(
        p.farewells.pop(node, Departure(node, Reason.SILENT, back if node in lives else silent))
        for node, life in sorted(p.in_view.items())
        if lives.get(node) != life and node != p.me
    )
    sets: tuple[tuple[str, tuple[NodeId, ...]], ...] = ()
    if config.external:
        sets = ("core", tuple(sorted(config.core))), ("external", config.external)
    members = tuple(sorted(config.members))
    env.install_view(InstallView(view, members, False, view, 0, p.view, departures, sets))
    p.view, p.in_view = view, lives
    p.farewells.clear()
    p.assembler = Assembler(p.config.max_message)
    sending.put_back(p)
    p.log.begin_view(view)


def remember(p: Processor, before: EpochConfig, config: EpochConfig) -> None:
    """F15: for members that come back and ask what became of their view."""
    p.children[before.epoch.view] = config
    while len(p.children) > CHILDREN_KEPT:
        del p.children[min(p.children)]


def leave_epoch(p: Processor, env: Env, why: str) -> None:
    """F15 ext: our view has ended without us, and all of it is delivered here. What was not ordered
    waits for the next view of ours."""
    env.note("rbp F15", "excluded", why, p.view)
    for timer in Timer:
        env.cancel_timer(timer)
    p.enter(env, Phase.OUT, why)
    sending.put_back(p)
    p.current = None
    p.log, p.ring, p.asking = Log(), Ring(0), Asking()
    p.in_view = {node: -1 for node in p.in_view}  # they went on without us
    moved = "the others go on without us"
    p.farewells = {node: Departure(node, Reason.MOVED, moved) for node in p.in_view}
    new_life(p, env)

"""The second stage of a run: a core of the processors is healed and has to come together.

The others stay as broken as they are and cut off from it. The core must make progress within the
protocol's own bound (``Sheet.progress_bound_us``), or a tighter one that the specification sets:
once for forming a configuration of exactly the core, and from then on between one delivery and the
next, until fresh messages of every core member, agreed and safe, are delivered everywhere in the
core. (Submitting has ended by then, and queues are bounded, so that is a bound on the whole.)

One that fell behind what the others keep finds out now, and stops, as it must. It is started again,
once; of fixed members nobody is, so the rest of the core goes on if the group bears it. A fixed
member that only those outside the core may still help says that it waits, and they are healed too.
Where too few remember for anybody to go on, everybody is started again.
"""

from __future__ import annotations

from random import Random

from ringcast.checks import Violation
from ringcast.core.errors import MemberFellBehind, node_stopped
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.rings import Rings
from ringcast.core.trace import Crashed, Delivered, Installed, Restarted, Submit, TraceEvent
from ringcast.sim.cluster import Cluster
from ringcast.sim.rings import connected, in_domain
from ringcast.sim.spec import RunSpec, Setup, prepare


class Watch:
    """What the second stage needs to know of the trace."""

    def __init__(self, fixed: bool = False) -> None:
        self._fixed = fixed
        self.views: dict[NodeId, tuple[ViewId, tuple[NodeId, ...]]] = {}
        """The regular configuration each processor is in, if it is in one."""
        self.newest: tuple[NodeId, ...] = ()
        """The members of the latest configuration that anybody has been in."""
        self._newest = ViewId(0, 1)
        self.awaited: dict[tuple[NodeId, int], set[NodeId]] = {}
        """Fresh messages, by sender and number, and who has yet to deliver them."""
        self.core: tuple[NodeId, ...] = ()
        """Whose submissions are fresh; nobody's in the first stage."""
        self.last_us = 0
        """When a processor of the core last delivered."""
        self.reached: dict[NodeId, int] = {}
        """The highest number each processor has delivered, the crashed ones included."""
        self.been: dict[NodeId, set[ViewId]] = {}
        """The configurations that each processor has been in, in its present life."""
        self.before: dict[ViewId, set[ViewId]] = {}
        """For each configuration those that somebody came into it from, in one life."""
        self.behind: set[NodeId] = set()
        """Who is down because nobody keeps what it missed."""
        self.forgot: dict[NodeId, ViewId] = {}
        """Who came back without its storage, and the latest configuration of then: it is a member
        of later ones only, whatever it takes itself for."""

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        match event:
            case Delivered():
                self.reached[event.node] = max(event.seq, self.reached.get(event.node, 0))
                if event.node not in self.core:
                    return
                self.last_us = event.t_us
                for number in range(event.first, event.first + len(event.digests)):
                    missing = self.awaited.get((event.sender, number))
                    if missing is not None:
                        missing.discard(event.node)
                        if not missing:
                            del self.awaited[event.sender, number]
            case Installed():
                if event.transitional:
                    self.views.pop(event.node, None)
                else:
                    if event.node in self.views:
                        last, _ = self.views[event.node]
                        self.before.setdefault(event.view, set()).add(last)
                    self.views[event.node] = (event.view, event.members)
                    self.been.setdefault(event.node, set()).add(event.view)
                    if event.view > self.forgot.get(event.node, event.view):
                        del self.forgot[event.node]
                    if event.view > self._newest:
                        self._newest, self.newest = event.view, event.members
            case Submit(node=node) if node in self.core:
                for number in range(event.first, event.first + len(event.sizes)):
                    self.awaited[node, number] = set(self.core)
            case Crashed(node=node) | Restarted(node=node):
                self.views.pop(node, None)
                self.been.pop(node, None)
                self.behind.discard(node)
                if isinstance(event, Crashed) and fell_behind(event.reason):
                    self.behind.add(node)
                if isinstance(event, Restarted) and not event.storage_kept:
                    self.forgot[node] = self._newest

    def common_view(self) -> ViewId | None:
        """The configuration that all of the core are in, if there is one.

        Nobody else is in it, unless the members are fixed.
        """
        found = [self.views.get(node) for node in self.core]
        first = found[0]
        if first is None or found.count(first) < len(found):
            return None
        return first[0] if first[1] == self.core or self._fixed else None

    def member(self, node: NodeId) -> bool:
        """Whether a processor is in a configuration as the others know it."""
        return node in self.views and node not in self.forgot

    def in_newest(self, node: NodeId) -> bool:
        """Whether it is in the latest configuration that anybody has been in."""
        return self.member(node) and self.views[node][0] == self._newest

    def history(self) -> set[ViewId]:
        """The configurations that led to the latest one, itself included. A group that has begun
        anew has no others, whoever may still be in them."""
        found: set[ViewId] = set()
        look = {self._newest}
        while look:
            found |= look
            look = set().union(*(self.before.get(view, ()) for view in look)) - found
        return found

    def even(self) -> bool:
        """Whether all of the core have delivered what anybody has, as they must in a fixed group.

        A processor outside the core may hear it, and be the first to deliver.
        """
        furthest = max(self.reached.values(), default=None)
        return not self._fixed or all(self.reached.get(n) == furthest for n in self.core)

    def undelivered(self) -> str:
        """Some fresh messages that are still awaited."""
        open_ = [f"p{s}:{k} at {sorted(who)}" for (s, k), who in sorted(self.awaited.items())]
        return f"undelivered {open_[:4]}"


def fell_behind(reason: str) -> bool:
    """Whether a processor stopped because nobody keeps what it missed."""
    return isinstance(node_stopped(reason), MemberFellBehind)


def draw_core(spec: RunSpec) -> tuple[NodeId, ...]:
    """Which processors are healed; if drawn, often all, otherwise any number of them.

    Where one part alone goes on, it is such a part, or nobody: then nothing is promised.
    """
    setup = prepare(spec)
    least = setup.config.least_part(spec.nodes)
    if isinstance(spec.core, tuple):
        core = tuple(sorted(set(spec.core)))
        return core if len(core) >= least else ()
    if spec.core == "all" or not spec.faults:
        return spec.ids
    rng = Random(f"{spec.seed}/core")
    size = spec.nodes if rng.random() < 0.4 else rng.randint(least, spec.nodes)
    core = tuple(sorted(rng.sample(spec.ids, size)))
    return core if not spec.rings or connected(spec.rings, core) else spec.ids


def draw_whole_core(
    spec: RunSpec, setup: Setup, cluster: Cluster, watch: Watch
) -> tuple[NodeId, ...]:
    """The core, with enough in it that remember. If too few are in the one drawn, all are healed;
    if too few are left of all, everybody is started again, as an operator would. Nothing is
    promised of a core that the specification names and that remembers too little."""
    core = draw_core(spec)
    if remembers(core, setup, cluster, watch):
        return core
    if spec.core != "drawn":
        return ()
    if not remembers(spec.ids, setup, cluster, watch):
        for node in spec.ids:
            cluster.crash(node)
        watch.newest = ()
    return spec.ids


def remembers(core: tuple[NodeId, ...], setup: Setup, cluster: Cluster, watch: Watch) -> bool:
    """Whether enough of the core never crashed since they took part, or have come back into the
    latest view, for a protocol that relies on what they know; and enough of that view are left."""
    history = watch.history()
    whole = [
        n
        for n in core
        if watch.member(n)
        and watch.views[n][0] in history
        and (cluster.nodes[n].incarnation == 1 or watch.in_newest(n))
        and not cluster.nodes[n].leaving
    ]
    least = setup.config.steadfast if setup.sheet.listed else 0
    return len(whole) >= least and goes_on(core, setup, cluster, watch)


def goes_on(core: tuple[NodeId, ...], setup: Setup, cluster: Cluster, watch: Watch) -> bool:
    """Whether enough of the latest view, if there is one, are left in the core for another one to
    follow. Whoever is on the way there counts if somebody in it can tell how its own view ended: if
    all that were in both are away, more of that view have failed than it bears."""
    ahead = [n for n in core if watch.in_newest(n)]
    left = [
        n
        for n in core
        if n in watch.newest
        and watch.member(n)
        and not cluster.nodes[n].leaving
        and (not ahead or any(watch.views[n][0] in watch.been[other] for other in ahead))
    ]
    least = setup.config.survivors(len(watch.newest)) if setup.sheet.listed else 0
    return not watch.newest or len(left) >= least


def draw_fixed_core(spec: RunSpec, setup: Setup, cluster: Cluster) -> tuple[NodeId, ...]:
    """Of a group with fixed members, those who never crashed, and perhaps not all of them.

    Nobody, if more have failed than the group bears: then nothing is promised.
    """
    nodes = cluster.nodes
    whole = [n for n in spec.ids if nodes[n].incarnation == 1 and nodes[n].machine is not None]
    spare = setup.config.faults - (spec.nodes - len(whole))
    wanted = spec.core if isinstance(spec.core, tuple) else spec.ids
    if spare < 0 or len(set(whole).difference(wanted)) > spare:
        return ()
    if spec.core == "drawn" and spec.faults:
        rng = Random(f"{spec.seed}/core")
        for _ in range(rng.randint(0, spare)):
            whole.remove(rng.choice(whole))
    return tuple(node for node in whole if node in wanted)


def settle(
    cluster: Cluster, setup: Setup, watch: Watch, core: tuple[NodeId, ...], spec: RunSpec
) -> list[Violation]:
    """The second stage; returns what the core failed to do in time. ``watch.core`` is who was left
    of it."""
    bound_us = spec.progress_us or setup.sheet.progress_bound_us(setup.config, len(core))
    pulse_us = max(1, bound_us // 500)
    heal_core(cluster, core, Random(f"{spec.seed}/outsiders").random() < 0.7, spec.rings)
    deadline_us = cluster.now_us + bound_us
    watch.core = core
    stopped: set[NodeId] = set()
    view: ViewId | None = None
    wanted: list[tuple[NodeId, Level]] = []
    while not cluster.scheduler.halted:
        if gone := watch.behind.intersection(watch.core) - stopped:
            stopped |= gone
            go_on_without(gone, cluster, setup, watch)
            if not watch.core:
                return []
            view, deadline_us = None, cluster.now_us + bound_us
        if view is None or watch.common_view() != view:
            # Not together yet, or only as a leftover of earlier days: fresh messages start anew.
            watch.awaited.clear()
            view = watch.common_view()
            wanted = [(node, level) for node in watch.core for level in Level]
            watch.last_us = cluster.now_us
            if view is None and cluster.now_us >= deadline_us:
                return _no_progress(cluster, setup, watch, "no common configuration")
        if view is not None:
            wanted = [fresh for fresh in wanted if not cluster.submit(fresh[0], (b"",), fresh[1])]
            if not wanted and not watch.awaited and watch.even():
                return []
            if cluster.now_us >= watch.last_us + bound_us:
                refused = [f"p{node} {level.name.lower()}" for node, level in wanted]
                text = f"refused {refused}, {watch.undelivered()}"
                if not those_it_waits_for(cluster, setup, watch):
                    return _no_progress(cluster, setup, watch, text)
                if not watch.core:
                    return []
                view = None
        cluster.run_for(pulse_us)
    return []


def go_on_without(gone: set[NodeId], cluster: Cluster, setup: Setup, watch: Watch) -> None:
    """Start again who has stopped; of fixed members, leave them out, or promise nothing."""
    if not setup.sheet.fixed:
        for node in sorted(gone):
            cluster.restart(node)
        return
    rest = tuple(node for node in watch.core if node not in gone)
    watch.core = rest if len(cluster.ids) - len(rest) <= setup.config.faults else ()


def those_it_waits_for(cluster: Cluster, setup: Setup, watch: Watch) -> bool:
    """Of fixed members, one may wait for others that alone keep what it missed: heal those that
    never crashed as well, and see. Nothing is promised if more than the group bears are lost, the
    one that waits in vain included. False: it has no such excuse."""
    nodes = cluster.nodes
    machines = {node: nodes[node].machine for node in watch.core}
    stuck = {node for node, machine in machines.items() if machine and machine.blocked}
    if not stuck or not setup.sheet.fixed:
        return False
    whole = tuple(n for n in cluster.ids if nodes[n].incarnation == 1 and nodes[n].machine)
    if len(whole) > len(watch.core):
        heal_core(cluster, whole, False)
        watch.core = whole
        return True
    if len(cluster.ids) - len(whole) + len(stuck) <= setup.config.faults:
        return False
    watch.core = ()
    return True


def heal_core(cluster: Cluster, core: tuple[NodeId, ...], deaf: bool, rings: Rings = ()) -> None:
    """Make ``core`` whole. The others cannot reach it; unless ``deaf``, they hear it."""
    cluster.calm()
    others = tuple(node for node in cluster.ids if node not in core)
    for domain in range(len(cluster.networks)):
        inside, outsiders = core, others
        if rings:
            inside, outsiders = (in_domain(rings, domain, some) for some in (core, others))
        if outsiders and deaf:
            cluster.partition([inside, outsiders], domain)
        else:
            for src in outsiders:
                for dst in inside:
                    cluster.cut(src, dst, domain)
    for node in core:
        cluster.nodes[node].disarm()
        if cluster.nodes[node].leaving:
            cluster.crash(node)  # it would go when the others let it, and it is to come back
        cluster.restart(node)
        cluster.resume(node)


def _no_progress(cluster: Cluster, setup: Setup, watch: Watch, text: str) -> list[Violation]:
    """The core stands still; nothing was promised if it has changed its view to one that too few of
    it are in."""
    if not goes_on(watch.core, setup, cluster, watch):
        watch.core = ()
        return []
    states = []
    for node in watch.core:
        machine = cluster.nodes[node].machine
        phase = "down" if machine is None else str(machine.phase)
        view, members = watch.views.get(node, ("no view", ""))
        states.append(f"p{node} {phase} {view}{members}")
    explanation = f"core {watch.core} at {cluster.now_us} us: {text}; {', '.join(states)}"
    return [Violation("progress", explanation, watch.core, (), cluster.now_us)]

"""ScenarioCommands: the commands of a scenario, carried out on a simulated group.

``COMMANDS`` lists them; docstrings show how. ``ValueError`` has a sentence for the author."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Union

import msgspec

from ringcast.checks import PROPERTIES, Suite, Violation, suite
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Received
from ringcast.core.trace import Ended
from ringcast.protocols import DEFAULT
from ringcast.sim import workload as load
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import BurstTail, LinkModel
from ringcast.sim.rings import attached
from ringcast.sim.scenario.log import KINDS, ScenarioLog, plain, plain_set, tapped
from ringcast.sim.scenario.syntax import (
    SIZE,
    WORD,
    arrow,
    duration_us,
    is_node,
    members,
    processors,
    settings,
    tampering,
    times,
)
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import Workload

LONGEST_WAIT_US = 120_000_000
"""An ``until`` that is not fulfilled in this simulated time never will be."""


class ScenarioCommands:
    """One scenario's group, from its ``ring`` command on."""

    def __init__(self) -> None:
        self.tap = ScenarioLog()
        self._suite: Suite | None = None
        self._cluster: Cluster | None = None
        self._spec = RunSpec()
        self._config: Any = None
        self._loads: list[load.Load] = []
        self._submitted = 0
        self._chance = Random("0/submit")

    def do(self, line: str) -> None:
        """Carry out one command."""
        name, *words = WORD.findall(line)
        command = COMMANDS.get(name)
        if command is None:
            raise ValueError(f"no command {name!r}; there are {', '.join(sorted(COMMANDS))}")
        if self._cluster is None and name not in ("ring", "log", "frames"):
            raise ValueError("the first command must be 'ring'")
        try:
            command(self, words)
        except IndexError:
            raise ValueError(f"words are missing; it is written {command.__doc__}") from None

    def end(self) -> None:
        """The scenario is over: tell the checks."""
        if self._cluster is not None:
            self._cluster.recorder.emit(Ended(self._cluster.now_us))

    @property
    def violations(self) -> list[Violation]:
        """Everything the checks found so far."""
        if self._cluster is None or self._suite is None:
            return []
        return [*self._suite.violations, *self._cluster.recorder.violations]

    @property
    def cluster(self) -> Cluster:
        """The group."""
        assert self._cluster is not None
        return self._cluster

    # The group.

    def ring(self, words: list[str]) -> None:
        """``ring PROTOCOL n=3 [profile= network= seed= rings= start=1,2|none] [setting=value]``"""
        if self._cluster is not None:
            raise ValueError("a scenario has one ring")
        if not words:
            raise ValueError(f"which protocol? for example: ring {DEFAULT} n=3")
        options = settings(words[1:])
        started = options.pop("start", "all")
        names = {"n": "nodes"} | {name: name for name in ("profile", "network", "seed", "rings")}
        known = {new: options.pop(old) for old, new in names.items() if old in options}
        defaults = {"protocol": words[0], "network": "ideal"}
        spec = msgspec.convert(defaults | known | {"config": options}, RunSpec)
        setup = prepare(spec)
        sheet, self._config, self._spec = setup.sheet, setup.config, spec
        self._chance = Random(f"{spec.seed}/submit")
        bound = sheet.progress_bound_us(setup.config, spec.nodes)
        self._suite = checks = suite(sheet.claims(setup.config) or PROPERTIES, bound)
        shown = msgspec.structs.replace(sheet, make=tapped(sheet.make, self.tap))
        parts = (shown, setup.config, spec.ids, setup.model, spec.seed)
        watching, places = [checks.feed, self.tap.observe], attached(spec.rings) or None
        self._cluster = cluster = Cluster(*parts, watching, places)
        self.tap.watch(lambda: cluster.now_us, sheet.turn)
        if started != "none":
            some = [] if started == "all" else [f"p{node}" for node in str(started).split(",")]
            cluster.start(*self._nodes(some))

    def start(self, words: list[str]) -> None:
        """``start p3``: the first start of processors that ``ring`` left out."""
        for node in self._nodes(words):
            if not self.cluster.nodes[node].start():
                raise ValueError(f"p{node} is up already")

    def leave(self, words: list[str]) -> None:
        """``leave p1 p2``"""
        for node in self._nodes(words):
            self.cluster.leave(node)

    def crash(self, words: list[str]) -> None:
        """``crash p1 p2``"""
        for node in self._nodes(words):
            self.cluster.crash(node)

    def restart(self, words: list[str]) -> None:
        """``restart p1 p2 [blank]``; blank means without stable storage."""
        blank = "blank" in words
        for node in self._nodes([word for word in words if word != "blank"]):
            self.cluster.restart(node, not blank)

    def pause(self, words: list[str]) -> None:
        """``pause p1``"""
        for node in self._nodes(words):
            self.cluster.pause(node)

    def resume(self, words: list[str]) -> None:
        """``resume p1``"""
        for node in self._nodes(words):
            self.cluster.resume(node)

    def expire(self, words: list[str]) -> None:
        """``expire p1 "hold" [x20 within 2s]``: a timer that is set runs out early; when: as for
        ``submit``."""
        nodes, timer = self._nodes(words[:1]), words[1].strip('"')
        mistakes = [(node, timer) for node in nodes for _ in range(times(words))]
        self._spread(words, lambda mistake: self.cluster.expire(*mistake), mistakes)

    def storage(self, words: list[str]) -> None:
        """``storage p1`` shows it; ``storage p1 ring_seq=8`` writes to it."""
        values = settings([word for word in words if "=" in word])
        for node in self._nodes([word for word in words if "=" not in word]):
            stable = self.cluster.nodes[node].storage
            for key, value in values.items():
                stable.persist(key, msgspec.convert(value, int))
            if not values:
                shown = " ".join(f"{key}={value}" for key, value in sorted(stable.read().items()))
                self.tap.lines.append(f"p{node} storage {shown or 'empty'}")

    # Messages.

    def submit(self, words: list[str]) -> None:
        """``submit p1 "a" 300B x40 safe [to={2,3}] [within 200ms]``: bodies by name or by size, all
        of them 40 times; to some processors only; now, or at random moments of that time."""
        level = Level.SAFE if "safe" in words else Level.AGREED
        to = tuple(n for word in words if word.startswith("to=") for n in members(word[3:]))
        nodes = self._nodes([word for word in words if is_node(word)])
        wanted = [word for word in words if word.startswith('"') or SIZE.match(word)]
        bodies = [(node, word) for node in nodes for word in wanted * times(words)]
        messages = [(node, self._body(word), level, to) for node, word in bodies]
        self._spread(words, self._submit_one, messages)

    def _spread(self, words: list[str], act: Callable[[Any], Any], things: list[Any]) -> None:
        """Do it now, or, if the words end with ``within 2s``, at random moments of that time."""
        within_us = self._duration_us(words[-1]) if words[-2:-1] == ["within"] else 0
        for thing in things:
            if within_us:
                at_us = self.cluster.now_us + self._chance.randrange(within_us)
                self.cluster.scheduler.at(at_us, act, thing)
            else:
                act(thing)

    def _submit_one(self, message: tuple[NodeId, bytes, Level, tuple[NodeId, ...]]) -> None:
        node, body, level, to = message
        self.tap.know(body)
        if not self.cluster.submit(node, (body,), level, to):
            self.tap.lines.append(f"p{node} refuses")

    def _body(self, word: str) -> bytes:
        if word.startswith('"'):
            return word.strip('"').encode()
        self._submitted += 1
        size = int(word[:-1])
        return (b"%d|" % self._submitted).ljust(size, b".")[:size]

    def load(self, words: list[str]) -> None:
        """``load poisson rate=100 safe=0.5 senders=[1,2]``: a workload; ``load off`` ends all."""
        if words == ["off"]:
            while self._loads:
                self._loads.pop().stop()
            return
        fields = {"kind": words[0] if words else "", **settings(words[1:])}
        work = msgspec.convert(fields, Workload)
        self._loads += load.start([work], self.cluster, f"{self._spec.seed}/{len(self._loads)}")

    def inject(self, words: list[str]) -> None:
        """``inject 3->1 [boot=7] FRAME``: a frame arrives, given as on the wire but in JSON."""
        src, dst = self._arrow(words[0] if words else "")
        rest = [word for word in words[1:] if not word.startswith("boot=")]
        boots = [int(word[5:]) for word in words[1:] if word.startswith("boot=")]
        frames: Any = Union[self.cluster.sheet.messages]  # noqa: UP007  (as many as there are)
        message = msgspec.json.decode(" ".join(rest), type=frames)
        boot = boots[0] if boots else self.cluster.nodes[src].boot
        unicast = type(message) in self.cluster.sheet.unicast
        self.cluster.inject(dst, Received(src, boot, message), unicast)

    # The network.

    def partition(self, words: list[str]) -> None:
        """``partition [in=DOMAIN] {1,2} {3}``"""
        domain = int(words.pop(0)[3:]) if words and words[0].startswith("in=") else 0
        self.cluster.partition([members(word) for word in words], domain)

    def heal(self, words: list[str]) -> None:
        """``heal``: partitions, cuts and tampering end."""
        self.cluster.heal()

    def cut(self, words: list[str]) -> None:
        """``cut 1->2``: nothing gets from 1 to 2."""
        for word in words:
            self.cluster.cut(*self._arrow(word))

    def mend(self, words: list[str]) -> None:
        """``mend 1->2``"""
        for word in words:
            self.cluster.mend(*self._arrow(word))

    def loss(self, words: list[str]) -> None:
        """``loss 0.05 [0.01]``: of broadcast and of unicast frames."""
        shares = [*map(float, words), 0.0]
        self.cluster.set_loss(shares[0], shares[1])

    def link(self, words: list[str]) -> None:
        """``link 1->2 mtu_bytes=500``: one direction behaves differently."""
        model = self.cluster.network.model.link
        fields = msgspec.to_builtins(model) | settings(words[1:])
        self.cluster.override_link(*self._arrow(words[0]), msgspec.convert(fields, LinkModel))

    def burst_tail(self, words: list[str]) -> None:
        """``burst_tail 2``: the last two frames sent at once are lost; ``burst_tail off``."""
        frames = words[0] if words else "1"
        self.cluster.set_burst_tail(None if frames == "off" else BurstTail(int(frames)))

    def drop(self, words: list[str]) -> None:
        """``drop MESSAGE 1->2 [after 4] [x3|always]``: the next such frames are lost, behind the
        first 4; ``drop MESSAGE 1->2 off`` ends it, and so for ``delay`` and ``copy``."""
        self._tamper(words, "drop")

    def delay(self, words: list[str]) -> None:
        """``delay MESSAGE 3->2 5ms [x3|always]``: the next such frames come later."""
        self._tamper(words, "delay")

    def copy(self, words: list[str]) -> None:
        """``copy MESSAGE *->* 150us [x3|always]``: they come, and once more that much later."""
        self._tamper(words, "copy")

    def _tamper(self, words: list[str], verb: str) -> None:
        kinds = [kind.__name__ for kind in self.cluster.sheet.messages]
        rule = tampering(verb, words, kinds, self._arrow, self._duration_us)
        if words[-1] != "off":
            self.cluster.tamper(rule)
        elif not self.cluster.network.untamper(rule):
            raise ValueError(f"nothing to end: no such {verb} is in force")

    # Time.

    def run(self, words: list[str]) -> None:
        """``run 50ms``, ``run TIMER*2+5ms``: timers by name, ``bound`` for that of progress."""
        if len(words) != 1:
            raise ValueError("how long? for example: run 50ms")
        self.cluster.run_for(self._duration_us(words[0]))

    def until(self, words: list[str]) -> None:
        """``until operational|gather|... [p1 ...]``, ``until ring {1,2}``, ``until token p1``,
        ``until delivered 500 [p1 ...]``, ``until note blame [p1 ...]``"""
        self._wait(self._condition(words), " ".join(words))

    def visit(self, words: list[str]) -> None:
        """``visit p1 2``: until p1 has passed the token on in visit 2, the first one being 0."""
        (node,), visits = self._nodes(words[:1]), int(words[1])
        self._wait(lambda: self.tap.token_visits[node] > visits, " ".join(words))

    def _condition(self, words: list[str]) -> Callable[[], bool]:
        cluster, tap = self.cluster, self.tap
        match words:
            case ["ring", *groups]:
                return lambda: all(self._together(members(group)) for group in groups)
            case ["token", _]:
                node = self._nodes(words[1:])[0]
                return lambda: tap.token_to == node
            case ["delivered", count, *names]:
                nodes = self._nodes(names)
                return lambda: all(len(tap.delivered.get(n, ())) >= int(count) for n in nodes)
            case ["note", what, *names]:
                nodes = self._nodes(names)
                return lambda: any(tap.noted[n, what] for n in nodes)
            case [phase, *names]:
                named = self._nodes(names) if names else None
                phases = {kind.lower() for kind in type(self._any_phase())}
                if phase not in phases:
                    raise ValueError(f"until what? no phase {phase!r}; there are {sorted(phases)}")
                return lambda: all(
                    cluster.machine(n).phase.lower() == phase for n in named or cluster.up()
                )
            case _:
                raise ValueError("until what? for example: until operational")

    def _any_phase(self) -> Any:
        return self.cluster.machine(self.cluster.up()[0]).phase

    def _together(self, group: tuple[NodeId, ...]) -> bool:
        views = [self.tap.views.get(node) for node in group]
        first = views[0]
        return first is not None and all(
            v is not None and v.view == first.view and v.members == group and not v.transitional
            for v in views
        )

    def _wait(self, fulfilled: Callable[[], bool], what: str) -> None:
        cluster = self.cluster
        deadline_us = cluster.now_us + LONGEST_WAIT_US
        while not fulfilled():
            if cluster.scheduler.halted:
                return
            if cluster.now_us > deadline_us or not cluster.step():
                self.tap.lines.append(f"never: {what}")
                return

    def mark(self, words: list[str]) -> None:
        """``mark``: visits, deliveries, notes and times count from here."""
        self.tap.mark()

    # What is shown.

    def log(self, words: list[str]) -> None:
        """``log views deliveries phases ... [p1 ...]``: the lines wanted from here on."""
        kinds = [word for word in words if not is_node(word)]
        if strange := [word for word in kinds if word not in (*KINDS, "off")]:
            raise ValueError(f"no log of {strange[0]!r}; there are {', '.join(KINDS)}, off")
        self.tap.kinds = frozenset(kinds) - {"off"}
        names = [word for word in words if word not in kinds]
        self.tap.nodes = frozenset(self._nodes(names) if names else ())

    def frames(self, words: list[str]) -> None:
        """``frames MESSAGE visit FIELD ...``: also show these frames when sent; ``frames off``."""
        if words == ["off"]:
            self.tap.frames = {}
        elif words:
            self.tap.frames = self.tap.frames | {words[0]: tuple(words[1:])}

    def show(self, words: list[str]) -> None:
        """``show p1 my_aru phase``: from the machine's snapshot."""
        names = [word for word in words if is_node(word)]
        fields = [word for word in words if word not in names]
        for node in self._nodes(names):
            if self.cluster.nodes[node].machine is None:
                self.tap.lines.append(f"p{node} down")
                continue
            state = self.cluster.machine(node).snapshot()
            if strange := [field for field in fields if field not in state]:
                raise ValueError(f"no {strange[0]!r} to show; there are {', '.join(state)}")
            shown = " ".join(f"{field}={plain(state[field])}" for field in fields or state)
            self.tap.lines.append(f"p{node} {shown}")

    def tally(self, words: list[str]) -> None:
        """``tally``: who delivered the same messages in the same order since the mark."""
        groups: dict[tuple[tuple[NodeId, int], ...], list[NodeId]] = {}
        for node in self.cluster.ids:
            groups.setdefault(tuple(self.tap.delivered.get(node, ())), []).append(node)
        for order, nodes in groups.items():
            senders = sorted({sender for sender, _ in order})
            counts = [f"p{s} {sum(1 for sender, _ in order if sender == s)}" for s in senders]
            kept = all(
                ranks == sorted(ranks)
                for s in senders
                for ranks in [[k for sender, k in order if sender == s]]
            )
            whose = f" ({', '.join(counts)}{'' if kept else ', senders out of order'})"
            text = f"{plain_set(nodes)} delivered {len(order)} messages{whose if order else ''}"
            self.tap.lines.append(text)

    def _nodes(self, names: Iterable[str]) -> tuple[NodeId, ...]:
        return processors(names, self.cluster.ids)

    def _arrow(self, word: str) -> tuple[int, int]:
        return arrow(word, self.cluster.ids)

    def _duration_us(self, word: str) -> int:
        bound_us = self.cluster.sheet.progress_bound_us(self._config, len(self.cluster.ids))
        return duration_us(word, self._config, bound_us)


COMMANDS: dict[str, Callable[[ScenarioCommands, list[str]], None]] = {
    action.__name__: action
    for action in (
        ScenarioCommands.ring,
        ScenarioCommands.start,
        ScenarioCommands.crash,
        ScenarioCommands.leave,
        ScenarioCommands.restart,
        ScenarioCommands.pause,
        ScenarioCommands.resume,
        ScenarioCommands.expire,
        ScenarioCommands.storage,
        ScenarioCommands.submit,
        ScenarioCommands.load,
        ScenarioCommands.inject,
        ScenarioCommands.partition,
        ScenarioCommands.heal,
        ScenarioCommands.cut,
        ScenarioCommands.mend,
        ScenarioCommands.loss,
        ScenarioCommands.link,
        ScenarioCommands.burst_tail,
        ScenarioCommands.drop,
        ScenarioCommands.delay,
        ScenarioCommands.copy,
        ScenarioCommands.run,
        ScenarioCommands.until,
        ScenarioCommands.visit,
        ScenarioCommands.mark,
        ScenarioCommands.log,
        ScenarioCommands.frames,
        ScenarioCommands.show,
        ScenarioCommands.tally,
    )
}
"""Every command by name; its docstring shows how it is written."""

"""Looks into members of the counter-based protocol while they run: what no trace tells.

P9, the half about holdings: who counts an entry has all of it. P11: what is lost is asked for
within two cycles. P12: a body is dropped after its cycle was committed, and its sender's after
everybody has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace as changed

from ringcast.core.effects import Broadcast, Effect, Send
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input
from ringcast.core.machine import Machine
from ringcast.core.registry import Sheet
from ringcast.protocols.counter.machine import CounterBased
from ringcast.protocols.counter.messages import Msg, Req, Token
from ringcast.protocols.counter.state import Phase

Message = tuple[NodeId, int, int]
"""Sender, cycle and number."""


class CounterWatch:
    """All members of one run; ``found`` says what was wrong."""

    def __init__(self, prompt: bool) -> None:
        self.prompt = prompt
        """Whether P11 is looked at: nothing crashes, and the list stays as it is."""
        self.found: list[str] = []
        self.accepted = 0
        """Acceptances of the token so far, over the whole group."""
        self.asked = 0
        """Messages that were asked for, so that a test can see that some were."""
        self._open: dict[NodeId, dict[Message, int]] = {}
        """What each has neither got nor asked for, and after which acceptance it must have."""
        self._seen: set[Message] = set()

    def over(self, sheet: Sheet) -> Sheet:
        """The sheet of a protocol whose machines are watched."""

        def make(node: NodeId, config: Any) -> Machine:
            machine = sheet.make(node, config)
            assert isinstance(machine, CounterBased)
            vars(machine)["handle"] = self._watching(machine, machine.handle)
            return machine

        return changed(sheet, make=make)

    def _watching(
        self, p: CounterBased, whole: Callable[[Env, Input], None]
    ) -> Callable[[Env, Input], None]:
        def handle(env: Env, event: Input) -> None:
            before, cycle, life = set(p.holding.data), p.P, p.life
            whole(env, event)
            if p.life == life and p.phase is Phase.MEMBER:
                self._dropped(p, before)
            for effect in env.effects:
                self._sent(p, effect)
            self.accepted += max(0, p.P - cycle)
            if self.prompt:
                self._arrived(p, cycle < p.P)

        return handle

    def _dropped(self, p: CounterBased, before: set[Message]) -> None:
        """P12."""
        listed = {entry.cycle for entry in (p.newest.S if p.newest else ()) if entry.sender == p.me}
        if p.held is not None:  # what everybody has was removed with the token's arrival
            listed = {entry.cycle for entry in p.held.S if entry.sender == p.me}
        for key in sorted(before - p.holding.data.keys()):
            sender, cycle, _ = key
            if cycle > p.committed and p.list.seat(sender) is not None:
                self.found.append(f"P12: {p.me} dropped {key} before it was committed")
            elif sender == p.me and cycle in listed:
                self.found.append(f"P12: {p.me} dropped {key}, which others may lack")

    def _sent(self, p: CounterBased, effect: Effect) -> None:
        match effect:
            case Broadcast(message=Token() as token) if token is p.released:
                for entry in token.S:
                    if entry.key in p.holding.counted and entry.cycle > p.committed:
                        keys = {(entry.sender, entry.cycle, k) for k in entry.numbers()}
                        if lacks := sorted(keys - p.holding.data.keys()):
                            self.found.append(f"P9: {p.me} counted {lacks} and does not hold it")
            case Broadcast(message=Msg() as msg) if msg.key not in self._seen:
                self._seen.add(msg.key)
                due = self.accepted + 2 * len(p.list.seats) - 1
                for node in p.list.members:
                    if node != p.me and (not msg.to or node in msg.to):
                        self._open.setdefault(node, {})[msg.key] = due
            case Send(message=Req() as req) | Broadcast(message=Req() as req):
                triples = iter(req.wanted)
                for cycle, k, _ in zip(triples, triples, triples, strict=True):
                    self.asked += 1
                    self._open.get(p.me, {}).pop((req.sender, cycle, k), None)
            case _:
                pass

    def _arrived(self, p: CounterBased, accepted: bool) -> None:
        """P11."""
        mine = self._open.get(p.me, {})
        for key in [key for key in mine if key in p.holding.data or key[1] <= p.committed]:
            del mine[key]
        for node, awaited in self._open.items() if accepted else ():
            for key in [key for key, due in awaited.items() if due <= self.accepted]:
                self.found.append(f"P11: {node} has neither got nor asked for {key} in two cycles")
                del awaited[key]

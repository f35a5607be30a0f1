"""Two rings of real processes, and a gateway with a port, an id and a key in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from live_process import DEADLINE_S, Process

from ringcast.runtime.loopback import LOOPBACK, free_ports
from ringcast.wire import keys

NORTH, SOUTH = (1, 2), (3, 4)
GATE, GATE_SOUTH = 9, 19


class Rings:
    """Members 1 and 2 in the north, 3 and 4 in the south, and the gateway, called 19 there."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state-gate" / "stable.json"
        ports = free_ports(6)
        where = dict(zip((*NORTH, GATE, *SOUTH, GATE_SOUTH), ports, strict=True))
        sides = {"north": (*NORTH, GATE), "south": (*SOUTH, GATE_SOUTH)}
        tables = {}
        self.members = {}
        for side, ids in sides.items():
            keys.write(folder / f"{side}.key", keys.add({}))
            peers = [f"{id}@{LOOPBACK}:{where[id]}" for id in ids]
            for id in ids:
                port = (
                    f'bind = "{LOOPBACK}:{where[id]}"\npeers = {peers}\nkey_file = "{side}.key"\n'
                )
                settings = f'id = {id}\nprotocol = "toy-gateway"\nstate_dir = "state-{id}"\n{port}'
                if id in (GATE, GATE_SOUTH):
                    tables[id] = f"[[ports]]\nid = {id}\n{port}"
                else:
                    self.members[id] = Process(folder, str(id), settings)
        self.gate = Process(
            folder,
            "gate",
            f'id = {GATE}\nprotocol = "toy-gateway"\nstate_dir = "state-gate"\n'
            f"settings = {{gateway = true}}\n{tables[GATE]}{tables[GATE_SOUTH]}",
        )

    def eventually(self, what: str, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not done():
            said = {id: (m.ring, len(m.delivered), m.errors) for id, m in self.members.items()}
            assert time.monotonic() < deadline_s, f"never: {what}: {said}, gate {self.gate.errors}"
            time.sleep(0.02)

    def together(self, *gates: int) -> None:
        """Wait until each ring has its members, and these gateways."""
        for ids in (NORTH, SOUTH):
            ring = (*ids, *(gate for gate in gates if (gate > 10) == (ids == SOUTH)))
            self.eventually(f"{ring}", partial(self.agree, ids, ring))

    def agree(self, ids: tuple[int, ...], ring: tuple[int, ...]) -> bool:
        return all(self.members[id].ring == ring for id in ids)

    def submit(self, name: str, count: int) -> set[str]:
        """Let every member submit; all that was."""
        bodies = {id: [f"{name}-{id}-{i}" for i in range(count)] for id in self.members}
        for id, member in self.members.items():
            member.submit(bodies[id])
        return {body for each in bodies.values() for body in each}

    def at_all(self, bodies: set[str], ids: tuple[int, ...] = (*NORTH, *SOUTH)) -> None:
        """Wait until these members have delivered all of ``bodies``."""
        members = [self.members[id] for id in ids]
        self.eventually("all delivered", lambda: all(bodies <= {*m.delivered} for m in members))


@pytest.fixture
def rings(tmp_path: Path) -> Iterator[Rings]:
    with ExitStack() as stack:
        found = Rings(tmp_path)
        for process in (*found.members.values(), found.gate):
            stack.callback(process.kill)
            process.start()
        yield found


def test_a_gateway_forwards_is_killed_and_forwards_again(rings: Rings) -> None:
    rings.together(GATE, GATE_SOUTH)
    before = rings.submit("before", 25)
    rings.at_all(before)
    numbers = msgspec.json.decode(rings.state.read_bytes(), type=dict[str, int])

    rings.gate.kill()
    rings.together()
    alone = rings.submit("alone", 5)
    for ids in (NORTH, SOUTH):
        own = {body for body in alone if int(body.split("-")[1]) in ids}
        rings.at_all(own, ids)

    rings.gate.start()
    rings.together(GATE, GATE_SOUTH)
    after = rings.submit("after", 25)
    rings.at_all(after)

    for one, two in (NORTH, SOUTH):
        order = rings.members[one].delivered
        assert order == rings.members[two].delivered
        assert len(order) == len(set(order)), "nothing came twice"
        assert {*order} - alone == before | after
    again = msgspec.json.decode(rings.state.read_bytes(), type=dict[str, int])
    for key in ("ring-0/ring_seq", "ring-1/ring_seq", "boot"):
        assert again[key] > numbers[key]

"""Three rings of real processes under ``totem-multi``, a pair of gateways, one of them killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from live_process import DEADLINE_S, Process

from ringcast.members.process import LOOPBACK, free_ports
from ringcast.wire import keys

RINGS = {"north": (1, 2, 5, 6), "middle": (3, 1005, 1006, 7), "south": (4, 1007)}
"""Members 1 to 4; 5 and 6 join north and middle, 7 joins middle and south."""

PROGRAM = Path(__file__).with_name("rings_member.py")
MEMBERS = (1, 2, 3, 4)
GATEWAYS = {5: ("north", "middle"), 6: ("north", "middle"), 7: ("middle", "south")}


class Network:
    """Processes by id, and what members have printed."""

    def __init__(self, folder: Path) -> None:
        pids = [pid for ring in RINGS.values() for pid in ring]
        where = dict(zip(pids, free_ports(len(pids)), strict=True))
        ports: dict[int, str] = {}
        for name, ids in RINGS.items():
            keys.write(folder / f"{name}.key", keys.add({}))
            peers = [f"{id}@{LOOPBACK}:{where[id]}" for id in ids]
            for id in ids:
                address = f'bind = "{LOOPBACK}:{where[id]}"\npeers = {peers}\n'
                ports[id] = f'{address}key_file = "{name}.key"\n'
        self.processes: dict[int, Process] = {}
        for id in (*MEMBERS, *GATEWAYS):
            head = f'id = {id}\nprotocol = "totem-multi"\nstate_dir = "state-{id}"\n'
            if id in GATEWAYS:
                tables = (f"[[ports]]\nid = {pid}\n{ports[pid]}" for pid in (id, id + 1000))
                text = head + "".join(tables)
            else:
                text = head + ports[id]
            self.processes[id] = Process(folder, str(id), text, PROGRAM)

    def eventually(self, what: str, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not done():
            said = {
                id: (each.ring, len(each.delivered), each.errors)
                for id, each in self.processes.items()
            }
            assert time.monotonic() < deadline_s, f"never: {what}: {said}"
            time.sleep(0.02)

    def together(self, *nodes: int) -> None:
        """Wait until all members are in a topology of exactly these."""
        self.eventually(
            f"topology {nodes}", lambda: all(self.processes[id].ring == nodes for id in MEMBERS)
        )

    def submit(self, name: str, count: int) -> set[str]:
        """Let every member submit; all that was."""
        bodies = {id: [f"{name}-{id}-{i}" for i in range(count)] for id in MEMBERS}
        for id, some in bodies.items():
            self.processes[id].submit(some)
        return {body for some in bodies.values() for body in some}

    def at_all(self, bodies: set[str]) -> None:
        members = [self.processes[id] for id in MEMBERS]
        self.eventually("all delivered", lambda: all(bodies <= {*m.delivered} for m in members))


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        found = Network(tmp_path)
        for process in found.processes.values():
            stack.callback(process.kill)
            process.start()
        yield found


def test_one_of_two_gateways_is_killed_under_load_and_comes_back(network: Network) -> None:
    """S-12, S-38: nothing is lost, nothing comes twice, and the order is one everywhere."""
    network.together(1, 2, 3, 4, 5, 6, 7)
    sent = network.submit("before", 20)
    network.processes[5].kill()
    sent |= network.submit("meanwhile", 20)
    network.together(1, 2, 3, 4, 6, 7)
    sent |= network.submit("without", 10)
    network.at_all(sent)
    network.processes[5].start()
    network.together(1, 2, 3, 4, 5, 6, 7)
    sent |= network.submit("again", 10)
    network.at_all(sent)
    first = network.processes[1].delivered
    assert len(first) == len(sent) and set(first) == sent
    assert all(network.processes[id].delivered == first for id in MEMBERS)

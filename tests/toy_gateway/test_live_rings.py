"""Three rings of real processes under ``totem-multi``, a pair of gateways, each killed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from live_process import DEADLINE_S, Process

from ringcast.runtime.loopback import LOOPBACK, free_ports
from ringcast.wire import keys

RINGS = {"north": (1, 2, 5, 6), "middle": (3, 1005, 1006, 7), "south": (4, 1007)}
"""Members 1 to 4; 5 and 6 join north and middle, 7 joins middle and south."""

PROGRAM = Path(__file__).with_name("rings_member.py")
MEMBERS = (1, 2, 3, 4)
GATEWAYS = {5: ("north", "middle"), 6: ("north", "middle"), 7: ("middle", "south")}
ALL = (*MEMBERS, *GATEWAYS)

PATIENT = "[settings]\ntoken_loss_us = 1_500_000\nconsensus_us = 1_800_000\n"
"""A busy machine lets a process wait; no ring is to take that for a failure."""


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
        for id in ALL:
            head = f'id = {id}\nprotocol = "totem-multi"\nstate_dir = "state-{id}"\n'
            if id in GATEWAYS:
                tables = (f"[[ports]]\nid = {pid}\n{ports[pid]}" for pid in (id, id + 1000))
                text = head + "".join(tables)
            else:
                text = head + ports[id]
            self.processes[id] = Process(folder, str(id), text + PATIENT, PROGRAM)

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

    @property
    def parted(self) -> bool:
        """Whether a member, once all were together, was told that another one is gone: then the
        machine kept a process waiting for longer than a ring does, and those may lose messages."""
        for rings in (self.processes[id].rings for id in MEMBERS):
            since = rings[rings.index(ALL) :] if ALL in rings else []
            if any(not set(MEMBERS) <= set(ring) for ring in since):
                return True
        return False

    def at_all(self, bodies: set[str]) -> None:
        members = [self.processes[id] for id in MEMBERS]
        self.eventually(
            "all delivered", lambda: self.parted or all(bodies <= {*m.delivered} for m in members)
        )


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        found = Network(tmp_path)
        for process in found.processes.values():
            stack.callback(process.kill)
            process.start()
        yield found


def test_either_of_two_gateways_is_killed_under_load(network: Network) -> None:
    """S-12, S-38: nothing is lost, nothing comes twice, and the order is one everywhere."""
    network.together(*ALL)
    sent: set[str] = set()
    for gateway in (5, 6):
        sent |= network.submit(f"before-{gateway}", 20)
        network.processes[gateway].kill()
        sent |= network.submit(f"meanwhile-{gateway}", 20)
        network.together(*(id for id in ALL if id != gateway))
        sent |= network.submit(f"without-{gateway}", 10)
        network.at_all(sent)
        network.processes[gateway].start()
        network.together(*ALL)
        sent |= network.submit(f"again-{gateway}", 10)
        network.at_all(sent)
    delivered = {id: network.processes[id].delivered for id in MEMBERS}
    assert all(len(set(some)) == len(some) for some in delivered.values())
    if not network.parted:
        assert set(delivered[1]) == sent
        assert all(some == delivered[1] for some in delivered.values())

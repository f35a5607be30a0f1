"""A network of one's own: namespaces of this machine, joined by a bridge, or by one for each ring.

Each namespace lives as long as a process in it, and each has one that does nothing but wait for
the end of its input, which is ours. So nothing is left behind, whatever becomes of this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack

from ringcast.core.rings import Rings

NEEDED = ("ip", "nsenter", "unshare")
MOST = 250
"""Hosts of the network 10.77.0.0/24, and of each further one."""

HEADERS = 28
"""Bytes of IPv4 and UDP in front of a datagram's contents."""


def obstacle() -> str:
    """Why namespaces cannot be made here, or nothing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs the command {missing[0]} (packages iproute2 and util-linux)"
    return "" if os.geteuid() == 0 else "needs root"


class Bridge:
    """``hosts`` namespaces with an address each; use it with ``with``.

    With ``rings`` there is a bridge for each of them, and their processors 1, 2, … are the hosts 0,
    1, …: a gateway has an interface at each of its rings, and nothing else leads from one bridge to
    another.
    """

    def __init__(self, hosts: int, mtu: int = 1500, rings: Rings = ()) -> None:
        if not 1 <= hosts <= MOST:
            raise ValueError(f"a bridge joins 1 to {MOST} hosts")
        self._hosts, self._mtu = hosts, mtu
        self._rings = rings or (tuple(range(1, hosts + 1)),)
        self._undo = ExitStack()
        self._holders: list[subprocess.Popen[bytes]] = []

    def address(self, host: int, ring: int = 0) -> str:
        """The address of host 0, 1, … on a ring that it is on."""
        return f"10.77.{ring}.{host + 1}"

    def inside(self, host: int) -> list[str]:
        """What to put in front of a command to run it on that host."""
        return ["nsenter", "--target", str(self._holders[host].pid), "--net", "--"]

    def __enter__(self) -> Bridge:
        with ExitStack() as undo:
            middle = undo.enter_context(holder())
            self._holders = [undo.enter_context(holder()) for _ in range(self._hosts)]
            for process in self._holders:
                configure(process, "link set lo up")
            for ring, processors in enumerate(self._rings):
                # Without snooping a multicast frame goes to every port, as on a simple switch.
                bridge = f"br{ring}"
                configure(
                    middle,
                    f"link add {bridge} type bridge mcast_snooping 0",
                    f"link set {bridge} up",
                )
                for processor in processors:
                    self._connect(middle, bridge, processor - 1, ring)
            self._undo = undo.pop_all()
        return self

    def _connect(self, middle: subprocess.Popen[bytes], bridge: str, host: int, ring: int) -> None:
        """A cable from a host to a ring's bridge."""
        process, plug, device = self._holders[host], f"v{host}-{ring}", f"eth{ring}"
        configure(
            middle,
            f"link add {plug} mtu {self._mtu} type veth peer name {device} "
            f"mtu {self._mtu} netns {process.pid}",
            f"link set {plug} master {bridge} up",
        )
        configure(
            process,
            f"addr add {self.address(host, ring)}/24 dev {device}",
            f"link set {device} up",
            # a gateway has one to each ring, and says with its interface which one it means
            f"route append 224.0.0.0/4 dev {device}",
        )

    def __exit__(self, *exception: object) -> None:
        self._undo.close()


def holder() -> subprocess.Popen[bytes]:
    """A process in a new namespace that ends when its input does; ``with`` waits for that."""
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # the terminal's Ctrl-C is ours alone
    )
    assert process.stdout is not None
    process.stdout.readline()  # from now on it is in there
    return process


def configure(place: subprocess.Popen[bytes], *lines: str) -> None:
    """Run ``ip`` commands in a namespace."""
    command = ["nsenter", "--target", str(place.pid), "--net", "--", "ip", "-batch", "-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"cannot make network namespaces: {done.stderr.strip()}")

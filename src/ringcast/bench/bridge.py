"""A network of one's own: namespaces of this machine, joined by a bridge.

Each namespace lives as long as a process in it, and each has one that does nothing but wait for
the end of its input, which is ours. So nothing is left behind, whatever becomes of this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack

NEEDED = ("ip", "nsenter", "unshare")
MOST = 250
"""Hosts of the network 10.77.0.0/24."""

HEADERS = 28
"""Bytes of IPv4 and UDP in front of a datagram's contents."""


def obstacle() -> str:
    """Why namespaces cannot be made here, or nothing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs the command {missing[0]} (packages iproute2 and util-linux)"
    return "" if os.geteuid() == 0 else "needs root"


class Bridge:
    """``hosts`` namespaces with an address each; use it with ``with``."""

    def __init__(self, hosts: int, mtu: int = 1500) -> None:
        if not 1 <= hosts <= MOST:
            raise ValueError(f"a bridge joins 1 to {MOST} hosts")
        self._hosts, self._mtu = hosts, mtu
        self._undo = ExitStack()
        self._holders: list[subprocess.Popen[bytes]] = []

    def address(self, host: int) -> str:
        """The address of host 0, 1, …"""
        return f"10.77.0.{host + 1}"

    def inside(self, host: int) -> list[str]:
        """What to put in front of a command to run it on that host."""
        return ["nsenter", "--target", str(self._holders[host].pid), "--net", "--"]

    def __enter__(self) -> Bridge:
        with ExitStack() as undo:
            middle = undo.enter_context(holder())
            self._holders = [undo.enter_context(holder()) for _ in range(self._hosts)]
            # Without snooping a multicast frame goes to every port, as on a simple switch.
            configure(middle, "link add br0 type bridge mcast_snooping 0", "link set br0 up")
            for host, process in enumerate(self._holders):
                configure(
                    middle,
                    f"link add v{host} mtu {self._mtu} type veth peer name eth0 "
                    f"mtu {self._mtu} netns {process.pid}",
                    f"link set v{host} master br0 up",
                )
                configure(
                    process,
                    "link set lo up",
                    f"addr add {self.address(host)}/24 dev eth0",
                    "link set eth0 up",
                    "route add 224.0.0.0/4 dev eth0",
                )
            self._undo = undo.pop_all()
        return self

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

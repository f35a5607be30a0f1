"""UDP: one listening socket, another for a multicast group, and connected sockets to send."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Sequence

from ringcast.core.errors import TransportError
from ringcast.core.ids import NodeId
from ringcast.runtime.multicast_filter import ignore_own
from ringcast.runtime.udp_offload import Intake, SendSocket, runs
from ringcast.wire.address import Address, Names, resolve

SEND_BUFFER = 4 * 2**20
SO_RCVBUFFORCE = 33
"""Linux: lets a privileged process have a larger buffer than the system's limit."""


class Udp:
    """The sockets of one port. Addresses may be changed while it runs."""

    def __init__(self, bind: Address, receive_buffer: int) -> None:
        self._names = Names()
        self._peers: dict[NodeId, SendSocket] = {}
        self._fanout: list[SendSocket] = []
        self._multicast: SendSocket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket = self._open(bind, receive_buffer)
        self._intakes = [Intake(self._socket)]
        self.sent = self.received = self.send_failures = 0
        self.blocked = 0
        """Datagrams not sent because the socket's buffer was full: lost, as on a wire."""

    def _open(self, bind: Address, receive_buffer: int) -> socket.socket:
        places = resolve(bind)
        if not places:
            raise TransportError(f"bind: {bind.host} is not an address of this machine")
        family, place = places[0]
        listening = socket.socket(family, socket.SOCK_DGRAM)
        try:
            enlarge(listening, receive_buffer)
            listening.bind(place)
        except OSError as error:
            listening.close()
            raise TransportError(
                f"cannot listen on {bind}: {error.strerror}; is another node running here, or "
                "the address not this machine's?"
            ) from None
        listening.setblocking(False)
        return listening

    @property
    def address(self) -> Address:
        """Where this node listens (the port is chosen by the system if 0 was asked for)."""
        host, port = self._socket.getsockname()[:2]
        return Address(host, port)

    def join_multicast(self, group: Address, interface: str, receive_buffer: int) -> None:
        """Send broadcasts to a multicast group, and receive those of others."""
        try:
            self._join(group, interface, receive_buffer)
        except (OSError, IndexError) as error:
            raise TransportError(
                f"cannot use multicast {group} on interface {interface or 'any'!r}: {error}; the "
                "interface is given by its address for IPv4, by its name for IPv6"
            ) from None

    def _join(self, group: Address, interface: str, receive_buffer: int) -> None:
        family, place = resolve(group)[0]
        receiving = socket.socket(family, socket.SOCK_DGRAM)
        self._intakes.insert(0, Intake(receiving))
        sending = socket.socket(family, socket.SOCK_DGRAM)
        self._multicast = SendSocket(sending)
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        enlarge(receiving, receive_buffer)
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if family == socket.AF_INET:
            own = socket.inet_aton(interface or "0.0.0.0")
            member = socket.inet_aton(place.host) + own
            receiving.bind(place)
            receiving.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            sending.connect(place)
        else:
            index = socket.if_nametoindex(interface) if interface else 0
            member = socket.inet_pton(family, place.host) + struct.pack("@I", index)
            receiving.bind((*place, 0, index))  # a group of link scope exists once a link
            receiving.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
            sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            sending.connect((*place, 0, index))
        ignore_own(receiving, sending)
        for each in (receiving, sending):
            each.setblocking(False)

    def connect(self, peers: dict[NodeId, Address]) -> None:
        """Send to these processors from now on; unchanged ones keep their socket."""
        mine = self._socket.family
        for gone in self._peers.keys() - peers.keys():
            self._peers.pop(gone).socket.close()
        for node, address in peers.items():
            places = self._names.resolve(address)
            known = self._peers.get(node)
            if not places or (known and known.socket.getpeername()[:2] in [at for _, at in places]):
                continue
            family, place = next((each for each in places if each[0] == mine), places[0])
            try:
                fresh = connected(family, place)
            except OSError:  # no route there now, or too many files; the next call tries again
                self.send_failures += 1
                continue
            if known:
                known.socket.close()
            self._peers[node] = SendSocket(fresh, place.host)
        one = self._multicast
        self._fanout = [one] if one else [link for _, link in sorted(self._peers.items())]

    def hosts(self) -> set[str]:
        """Where these are, as numbers and not as names."""
        return {link.host for link in self._peers.values()}

    # --- sending ---------------------------------------------------------------------------

    def broadcast(self, *datagrams: bytes) -> None:
        """To everybody known, or to the multicast group."""
        for run in runs(datagrams) if len(datagrams) > 1 else (datagrams,):
            for link in self._fanout:
                self._send(link, run)

    def unicasts(self, node: NodeId, datagrams: Iterable[bytes]) -> None:
        """Several datagrams in a row to one processor."""
        link = self._peers.get(node)
        for run in runs(datagrams) if link else ():
            self._send(link, run)  # type: ignore[arg-type]

    def unicast(self, node: NodeId, datagram: bytes) -> None:
        """To one processor; one whose address is not known cannot be reached yet."""
        link = self._peers.get(node)
        if link:
            try:
                link.socket.send(datagram)  # a token: each call less is a shorter rotation
                self.sent += 1
            except OSError as error:
                self._failed(error, 1)

    def _send(self, link: SendSocket, run: Sequence[bytes]) -> None:
        try:
            link.send(run)
            self.sent += len(run)
        except OSError as error:
            self._failed(error, len(run))

    def _failed(self, error: OSError, frames: int) -> None:
        """A full buffer; or nobody listens there (yet), or the network is down: a loss."""
        if isinstance(error, BlockingIOError):
            self.blocked += frames
        else:
            self.send_failures += frames

    def send_to(self, address: Address, datagram: bytes) -> None:
        """To an address nobody is known at yet (a seed), whatever family it is of."""
        for family, place in self._names.resolve(address):
            try:
                with connected(family, place) as once:
                    once.send(datagram)
            except OSError:
                self.send_failures += 1

    # --- receiving -------------------------------------------------------------------------

    @property
    def sources(self) -> list[Intake]:
        """The multicast group's socket, if there is one, and the node's own."""
        return self._intakes

    def listen(self, readable: Callable[[], None]) -> None:
        """Have the running event loop call ``readable`` whenever a datagram waits."""
        self._loop = asyncio.get_running_loop()
        for each in self._intakes:
            self._loop.add_reader(each.socket, readable)

    def ignore(self) -> None:
        """Leave what arrives in the sockets' buffers."""
        if self._loop is not None:
            for each in self._intakes:
                self._loop.remove_reader(each.socket)

    def close(self) -> None:
        """Close every socket."""
        self.ignore()
        self._loop = None
        for each in self._intakes:
            each.socket.close()
        for link in self._peers.values():
            link.socket.close()
        if self._multicast is not None:
            self._multicast.socket.close()


def connected(family: int, place: Address) -> socket.socket:
    """A socket to send to one place."""
    fresh = socket.socket(family, socket.SOCK_DGRAM)
    try:
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        fresh.setblocking(False)
        fresh.connect(place)
    except OSError:
        fresh.close()
        raise
    return fresh


def enlarge(receiving: socket.socket, size: int) -> None:
    """Ask for a large receive buffer, with privilege if there is any."""
    try:
        receiving.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except OSError:
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

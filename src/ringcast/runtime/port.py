"""Port: a broadcast domain seen from one processor.

It has the domain's sockets, codec, keys and peer book. A machine names its ports by number; one
with a single port never does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from ringcast.core.errors import KeyFileError, RingcastError
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Message
from ringcast.core.settings import GroupSettings, ListedSettings
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.discovery import Meetings
from ringcast.runtime.fault_injection import FaultInjection
from ringcast.runtime.platform import Platform
from ringcast.runtime.receiver import FrameHandler, Receiver
from ringcast.wire.address import Address
from ringcast.wire.codec import EVERYBODY, Codec
from ringcast.wire.keys import KeyFile
from ringcast.wire.seal import Medium, Realm

LOG = logging.getLogger("ringcast")

PATIENT_LOOKS = 10
"""Looks around, one a second, until it is said who of the listed nodes was never heard."""

SILENT = """node %s has heard nothing of %s since its start, %s s ago: that node is down, has \
another address, cannot be reached, or refuses this one and says why in its own log"""
CLOSED = """node %s could open no frame of %s since its start, %s s ago, though some come in that \
name: give all nodes of a ring one key file (compare them with sha256sum), network, protocol and \
release"""

MOST_HINTS = 16
"""Lines in the log about processors that are not listed, and may be anybody's invention."""

MOST_LINES = 16
"""Lines in the log at once about processors that do not fit; later one at each look around. One
with the key can take ever new names, and say another thing of itself every time."""

WELCOME_S = 0.05
"""How long a node that starts waits for others to answer its first Hello."""


class Port:
    """Port ``number`` of a node, in the incarnation ``boot``."""

    def __init__(self, number: int, node: NodeConfig, boot: int, platform: Platform) -> None:
        self.config = config = node.domains[number]
        self.id: NodeId = config.id
        self.keys = KeyFile(Path(config.key_file)) if config.key_file else None
        if self.keys and self.keys.grant:
            raise KeyFileError(f"{config.key_file} is a guest's: a node needs the group's keys")
        self.network = config.network
        realm = Realm(Medium.RING, config.network, node.protocol)
        terms = compared(node)
        self._listed = config.peer_addresses
        self._codec = Codec(node.sheet.messages, config.id, boot, self.keys, realm, *terms)
        self.unmet = self._codec.unmet
        """Incarnations that were not met, and have sent frames."""
        self._warned: dict[NodeId, str] = {}
        self._suspected: set[NodeId] = set()
        self._unusable = ""
        """Why a file that was changed is not used; empty if it is."""
        self._hints, self._lines = MOST_HINTS, MOST_LINES
        self._shim: FaultInjection | None = None
        if node.fault_file:
            self._shim = FaultInjection(Path(node.fault_file), f"shim/{number}/{config.id}/{boot}")
        self._frames: list[bytes] = []
        self._transport = platform.transport(config, node.receive_buffer)
        self._meetings = Meetings(config, boot, self._transport, self._codec)
        hears = (self._codec, self._shim, self._meetings.on_hello)
        self._receiver = Receiver(number, self._transport, *hears)

    async def welcome(self) -> None:
        """Look for the others, and meet whoever is there before the first frame leaves."""
        self.keep_house()
        await self._receiver.welcome(self._meetings.all_met, WELCOME_S)

    def start(self, loop: asyncio.AbstractEventLoop, handler: FrameHandler) -> None:
        """Hand the others' frames to ``handler`` from now on."""
        self._receiver.start(loop, handler)

    def close(self) -> None:
        """Close every socket."""
        self._receiver.close()
        self._transport.close()

    # --- sending ---------------------------------------------------------------------------

    def send(self, to: NodeId, message: Message) -> None:
        """To one processor; one whose address is not known cannot be reached yet."""
        self._transport.unicast(to, self._codec.encode(message, to))

    def send_run(self, to: NodeId, messages: list[Message]) -> None:
        """Several frames in a row to one processor."""
        encode = self._codec.encode
        self._transport.unicasts(to, [encode(each, to) for each in messages])

    def broadcast(self, message: Message) -> None:
        """To all others; it waits for ``flush``, so that broadcasts in a row leave together."""
        self._frames.append(self._codec.encode(message, EVERYBODY))

    def flush(self) -> None:
        """Let waiting broadcasts leave."""
        if self._frames:
            frames, self._frames = self._frames, []
            self._transport.broadcast(*frames)

    # --- receiving -------------------------------------------------------------------------

    def forget(self) -> None:
        """Throw away what waits to be read: a loss, as on a wire."""
        self._receiver.forget()

    def rest(self, seconds: float) -> None:
        """Leave what arrives in the socket's buffer for a while."""
        self._receiver.rest(seconds)

    # --- who is where ----------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """Where this node listens."""
        return self._transport.address

    def addresses(self) -> dict[NodeId, Address]:
        """Where the others are."""
        return self._meetings.book.addresses()

    def hosts(self) -> set[str]:
        """Their hosts, as numbers."""
        return self._transport.hosts()

    def keep_house(self) -> None:
        """Now and then: keys and faults may have changed on disk, nodes may have appeared."""
        unusable = ""
        try:
            if self.keys and self.keys.reload():
                self._codec.renew_keys()
            if self._shim:
                self._shim.reload()
        except RingcastError as error:
            unusable = str(error)
            self._codec.refuse(unusable)  # go on with what we have
        if unusable and unusable != self._unusable:
            LOG.warning("node %s goes on with what it has read before: %s", self.id, unusable)
        self._unusable = unusable
        self._codec.rest()
        self._meetings.look_around()
        self._warn()

    def _warn(self) -> None:
        """Say once of each processor that it does not fit. And say once who is missing: a node may
        wait for it in silence."""
        if self._meetings.looks == PATIENT_LOOKS:
            for missing, text in zip(self._meetings.unheard(), (SILENT, CLOSED), strict=True):
                if missing:
                    LOG.warning(text, self.id, ", ".join(missing), PATIENT_LOOKS)
        misfits = self._codec.misfits
        self._warned = {node: why for node, why in self._warned.items() if node in misfits}
        news = [node for node, why in misfits.items() if self._warned.get(node) != why]
        news.sort(key=self._warned.__contains__)  # first those of whom nothing was said yet
        self._lines = min(self._lines + 1, MOST_LINES)
        for node in news[: self._lines]:
            self._lines -= 1
            self._warned[node] = misfits[node]
            LOG.warning("node %s: %s", self.id, self._with_address(node, misfits[node]))
        # A stranger could name any number of others, and say another thing of them every time.
        self._suspected = {node for node in self._suspected if not self._codec.hears(node)}
        for node, why in self._codec.unproven.said().items():
            if node not in self._suspected and (node in self._listed or self._hints):
                self._suspected.add(node)
                self._hints -= node not in self._listed
                LOG.warning("node %s: %s", self.id, self._with_address(node, why))

    def _with_address(self, node: NodeId, why: str) -> str:
        at = self._meetings.book.known().get(node)
        name = f"node {node} "
        return why.replace(name, f"{name}({at}) ", 1) if at and why.startswith(name) else why

    @property
    def twin(self) -> str:
        """Who else has this node's id, and started later; empty if nobody does."""
        return self._meetings.twin

    def greet_unmet(self) -> None:
        """Frames have come from incarnations that were not met."""
        unmet = list(self.unmet)
        self.unmet.clear()
        self._meetings.greet(unmet)

    # --- what an operator asks -------------------------------------------------------------

    def metrics(self) -> dict[str, object]:
        """Counters and state of this port."""
        return {
            "frames_sent": self._transport.sent,
            "frames_received": self._receiver.received,
            "frames_blocked": self._transport.blocked,
            "frames_outdated": self._receiver.outdated,
            "send_failures": self._transport.send_failures,
            "frames_refused": dict(self._codec.refused),
            "misfits": {
                str(node): self._with_address(node, why)
                for node, why in sorted((self._codec.unproven.said() | self._codec.misfits).items())
            },
            "frames_before_meeting": self._codec.early,
            "frames_lost_on_purpose": self._shim.lost if self._shim else 0,
            "keys": list(self.keys.keys) if self.keys else [],
            "peers": {str(n): str(a) for n, a in self._meetings.book.addresses().items()},
        }


def compared(node: NodeConfig) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of a node that must, and those that should, be the same at all members."""
    settings, sheet = node.protocol_config, node.sheet
    # Others may follow from who the members are, so these are named first.
    terms: dict[str, str] = {}
    if isinstance(settings, ListedSettings):
        terms["members"] = ids_in_short(settings.members)
    terms |= compared_values(settings, sheet.agreed)
    return terms, compared_values(settings, sheet.alike)


def compared_values(settings: GroupSettings, names: Iterable[str]) -> dict[str, str]:
    """The values to compare, each under the name of the setting that a user can change."""
    parts = (name.partition(":") for name in names)
    return {name: str(getattr(settings, of or name)) for name, _, of in parts}


def ids_in_short(ids: Iterable[NodeId]) -> str:
    """Ascending ids in no more than 64 letters; long lists differ in their checksum."""
    text = " ".join(map(str, ids))
    return text if len(text) <= 64 else f"{text[:50]}… {crc32(text.encode()):08x}"


def check_keys(ports: tuple[Port, ...]) -> None:
    """Refuse a key that two ports have: what one domain seals could be replayed in the other, and
    a node with one id in both would seal two frames with one nonce."""
    holders: dict[bytes, Port] = {}
    for port in ports:
        for key in port.keys.keys.values() if port.keys else ():
            if holders.setdefault(key, port) is not port:
                raise KeyFileError(
                    f"{port.config.key_file} has a key of {holders[key].config.key_file}; each "
                    "broadcast domain has keys of its own: make some with 'ringcast keygen'"
                )

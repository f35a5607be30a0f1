"""The raw limit: what plain Python gets through UDP sockets on the same path, with nothing else.

One sender keeps a window of frames under way to all receivers, who do nothing but count and tell
the sender now and then how far they are. No order, no recovery, no event loop, no encoding, one
system call a frame: blocking sockets and ``recv_into`` are the fastest that Python offers.

As a program: ``raw.py send|receive ...`` is one of the processes; ``limit`` starts them.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ringcast.bench.bridge import Bridge
from ringcast.runtime.loopback import LOOPBACK, free_ports

SO_RCVBUFFORCE = 33
BUFFER = 8 * 2**20
GROUP = "239.77.1.1"
PORT = 5450
ACK = struct.Struct("!IQ")
STALL_S = 0.1
"""No word for so long means that frames were lost: go on as if they had arrived."""

WINDOW_BYTES = 2**21


def window(size: int) -> int:
    """Frames under way: well within the receivers' buffers."""
    return max(32, min(2048, WINDOW_BYTES // (size + 1024)))


def receive(place: str, port: int, multicast: bool, sender: str, sender_port: int, number: int,
            size: int) -> None:  # fmt: skip
    """Count frames until an empty one comes."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    if multicast:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((GROUP, port))
        member = socket.inet_aton(GROUP) + socket.inet_aton(place)
        listening.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    else:
        listening.bind((place, port))
    back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    back.connect((sender, sender_port))
    every = window(size) // 8
    buffer = bytearray(2**16)
    count = 0
    first_s = last_s = 0.0
    print("ready", flush=True)
    while listening.recv_into(buffer):
        count += 1
        if count % every == 0:
            last_s = time.monotonic()
            first_s = first_s or last_s
            back.send(ACK.pack(number, count))
    frames = count // every * every - every
    print(json.dumps({"frames": frames, "seconds": last_s - first_s}))


def send(places: list[tuple[str, int]], multicast: bool, own: str, own_port: int, size: int,
         seconds: float) -> None:  # fmt: skip
    """Send for so long, then empty frames."""
    acks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    acks.bind((own, own_port))
    acks.settimeout(STALL_S)
    targets = [(GROUP, places[0][1])] if multicast else places
    links = []
    for target in targets:
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if multicast:
            own_interface = socket.inet_aton(own)
            link.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own_interface)
        link.connect(target)
        links.append(link.send)
    frame = bytes(size)
    sent = stalls = 0
    heard = [0] * len(places)
    end_s = time.monotonic() + seconds
    room = window(size)
    while time.monotonic() < end_s:
        for _ in range(room - (sent - min(heard))):
            for each in links:
                each(frame)
            sent += 1
        try:
            number, count = ACK.unpack(acks.recv(ACK.size))
            heard[number] = max(heard[number], count)
        except TimeoutError:
            stalls += 1
            heard = [sent] * len(places)
    for _ in range(5):  # any of them may be lost, or come when the receiver has ended
        time.sleep(0.05)
        for each in links:
            with suppress(ConnectionRefusedError):
                each(b"")
    print(json.dumps({"stalls": stalls}))


def limit(receivers: int, size: int, seconds: float, multicast: bool,
          network: Bridge | None) -> dict[str, Any]:  # fmt: skip
    """Frames a second at the slowest of so many receivers, over the bridge or loopback."""
    ports = free_ports(receivers + 1)
    if network is None:
        places = [(LOOPBACK, port) for port in ports]
    else:
        same = PORT if multicast else PORT + 1
        places = [(network.address(host), same) for host in range(receivers + 1)]
    (own, own_port), *others = places
    own_port += 1000

    def start(host: int, *words: object) -> subprocess.Popen[str]:
        inside = network.inside(host) if network else []
        command = [*inside, sys.executable, str(Path(__file__)), *map(json.dumps, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with ExitStack() as undo:
        crew = []
        for number, (place, port) in enumerate(others):
            member = start(
                number + 1, "receive", place, port, multicast, own, own_port, number, size
            )
            undo.callback(member.wait)
            undo.callback(member.kill)
            crew.append(member)
        for member in crew:
            assert member.stdout is not None
            assert member.stdout.readline() == "ready\n"
        sender = start(0, "send", others, multicast, own, own_port, size, seconds)
        undo.callback(sender.wait)
        undo.callback(sender.kill)
        told = json.loads(sender.communicate(timeout=seconds + 30)[0])
        counts = [json.loads(member.communicate(timeout=30)[0]) for member in crew]
    rate = min(count["frames"] / count["seconds"] for count in counts)
    return {
        "frames_per_s": round(rate, 1),
        "mb_per_s": round(rate * size / 1e6, 3),
        "stalls": told["stalls"],
    }


if __name__ == "__main__":
    role, *given = map(json.loads, sys.argv[1:])
    if role == "send":
        given[0] = [tuple(place) for place in given[0]]
        send(*given)
    else:
        receive(*given)

"""A ticket shop of three processes: no seat is sold twice, and no sale is forgotten.

    python examples/tickets.py 1        (and 2, and 3, in other terminals)

A fourth one may join at any time: it sells as the others do, and has no vote. With
RINGCAST_PROTOCOL=total, or another name, the order comes from that protocol.

Each has an HTTP face on port 5411, 5412, 5413 or 5414. A client numbers its orders and repeats
one until it is answered, at any of them:

    curl -X POST 'localhost:5411/buy?seat=7&client=ann&request=1'
    curl localhost:5412/seats

200: the seat is yours. 409: it is somebody else's. 503: no majority answered in time, or this shop
is closing; ask again, here or elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from urllib.parse import parse_qs, urlsplit

from local import PLACE, PORT, lasting, lines, settings, start

from ringcast.api.events import Message
from ringcast.api.node import Node
from ringcast.api.replica import NoQuorum, Replica, StateMachine
from ringcast.core.errors import NodeStopped, RingcastError

SEATS = int(os.environ.get("TICKETS_SEATS", "1000"))
SHOPS = 4
PATIENCE_S = 2.0
FACE = "127.0.0.1"


class Seats(StateMachine[str]):
    """Who has which seat. A command is ``seat buyer``; the result is who has it now."""

    def __init__(self) -> None:
        self.sold: dict[str, str] = {}

    def apply(self, command: Message) -> str:
        seat, _, buyer = command.body.decode().partition(" ")
        return self.sold.setdefault(seat, buyer)

    def snapshot(self) -> bytes:
        return json.dumps(self.sold).encode()

    def restore(self, state: bytes) -> None:
        self.sold = json.loads(state)


class Face:
    """As much of HTTP as the shop needs."""

    def __init__(self, replica: Replica[str]) -> None:
        self._replica = replica

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError, TimeoutError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            status, answer = await self._answer(*head.decode().split(" ", 2)[:2])
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n" % (status.encode(), len(body)))
            writer.write(b"Connection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    async def _answer(self, method: str, target: str) -> tuple[str, object]:
        where = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(where.query).items()}
        try:
            match method, where.path:
                case "POST", "/buy":
                    return await self._buy(**asked)
                case "GET", "/seats":
                    return "200 OK", await self._replica.read(lambda m: m.sold, PATIENCE_S)
            return "404 Not Found", "POST /buy?seat=&client=&request=, GET /seats"
        except (TypeError, ValueError) as error:
            return "400 Bad Request", str(error)
        except (NoQuorum, NodeStopped) as error:
            return "503 Service Unavailable", str(error)
        except RingcastError as error:
            return "500 Internal Server Error", str(error)

    async def _buy(self, seat: str, client: str, request: str) -> tuple[str, object]:
        if not 0 < int(seat) <= SEATS:
            raise ValueError(f"there are seats 1 to {SEATS}")
        order, number = f"{int(seat)} {client}".encode(), int(request)
        who = await self._replica.submit(order, client=client, request=number, timeout=PATIENCE_S)
        return ("200 OK" if who == client else "409 Conflict"), {"seat": int(seat), "buyer": who}


async def main(me: int) -> None:
    """Sell until the input ends, or the replica: a node that cannot go on says why, and a service
    manager starts it again."""
    config = settings(me, SHOPS) | {"fault_file": str(PLACE / f"faults{me}.json")}
    async with (
        Node.open(config) as node,
        Replica(node.join("tickets"), Seats(), {1, 2, 3}, PLACE / f"tickets{me}") as replica,
    ):
        server = await asyncio.start_server(Face(replica).serve, FACE, PORT + 10 + me)
        async with server, lasting(replica.wait()):
            print(f"open at http://{FACE}:{PORT + 10 + me}", flush=True)
            async for _ in lines():
                pass


if __name__ == "__main__":
    start(main, most=SHOPS)

"""Host: a machine of a simulated world, with its program, clock, disk and network address."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakKeyDictionary
from zlib import crc32

from ringcast.core.inputs import Received
from ringcast.testing.calls import Calls, Request
from ringcast.testing.disk import Loss, checked_loss
from ringcast.testing.errors import HostFailed, described
from ringcast.testing.network import Datagram, SimNetwork
from ringcast.testing.nodes import open_node, settings_of
from ringcast.testing.process import PROCESS, Clock, Process
from ringcast.testing.sockets import DYNAMIC, Place, SimSocket, failure

if TYPE_CHECKING:
    from ringcast.api.node import Node
    from ringcast.testing.handles import SimTask
    from ringcast.testing.streams import SimListener, SimServer, Stream
    from ringcast.testing.world import World

Main: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
OnError: TypeAlias = Literal["fail", "restart"]

RESTART_S = 1.0
"""After a program ended with an error and its host restarts it."""

FIRST_DESCRIPTOR = 1_000_000
EADDRINUSE = 98
LOOPBACK = frozenset({"127.0.0.1", "localhost", "0.0.0.0"})
GIVEN = ("host", "node", "world")
"""Parameters of a program that the world fills in."""


class Host:
    """Made by ``world.host()``. Attributes may be added: they are the test's notebook, which
    neither a crash nor a restart touches. ``done`` is set when the program has
    ended, until a crash makes it begin anew."""

    def __init__(
        self, world: World, name: str, main: Main, args: tuple[Any, ...], steady: bool,
        on_error: OnError,
    ) -> None:  # fmt: skip
        self.world, self.loop = world, world.loop
        self.name = name
        self.number = len(world.hosts) + 1
        self.address = f"10.0.{self.number >> 8}.{self.number & 255}"
        self.steady = steady
        self.clock = Clock()
        self.process: Process | None = None
        """Its present life; None while it is down."""
        self.lives = 0
        self.done = False
        self.result: Any = None
        self.servers: dict[int, SimServer | SimListener] = {}
        self.streams: list[Stream] = []
        self.calls = Calls(self)
        if inspect.isfunction(main) and not inspect.iscoroutinefunction(main):
            raise TypeError(f"{name}: write 'async def {main.__name__}'")
        self._main, self._on_error = main, on_error
        parameters = parameters_of(main)
        self._given = [each for each in GIVEN if each in parameters]
        others = [each for each in parameters if each not in GIVEN]
        if len(args) > len(others):
            raise TypeError(
                f"{name}: its program takes {others} besides {', '.join(GIVEN)}, which it is given "
                f"by name, and args are {len(args)}"
            )
        if missing := [each for each in others[len(args) :] if needed(parameters[each])]:
            raise TypeError(
                f"{name}: nobody gives its program {', '.join(missing)}: host, node and world are "
                "filled in, the rest is given as world.host(name, main, *args)"
            )
        self._arguments = dict(zip(others, args, strict=False))
        self._ports: dict[int, SimSocket] = {}
        self._port = DYNAMIC - 1
        self._descriptor = FIRST_DESCRIPTOR * self.number
        self._context = Context()

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    @property
    def network(self) -> SimNetwork:
        """The world's network."""
        return self.world.network

    @property
    def member(self) -> bool:
        """Whether its program is given a node."""
        return "node" in self._given

    @property
    def up(self) -> bool:
        """Whether its program runs, or stands still."""
        return self.process is not None

    @property
    def folder(self) -> Path:
        """Where its files are; a crash takes them back to what was synced."""
        return self.world.disk.folder(self.name)

    # --- for the program -------------------------------------------------------------------

    def node(self, **changes: Any) -> Node:
        """A node on this host, with ``settings(**changes)``: ``async with host.node() as node``."""
        return open_node(self, self.settings(**changes))

    def settings(self, **changes: Any) -> dict[str, Any]:
        """What ``Node.open`` needs on this host to be in a group with the others. ``changes`` are
        settings of ``NodeConfig`` that differ; ``journal=True`` puts a journal on its disk."""
        return settings_of(self, changes)

    def serve(self, handler: Callable[[Request], Awaitable[Any]]) -> None:
        """Answer requests of other hosts: what ``handler`` returns is the answer."""
        self.calls.handler = handler

    async def call(self, target: str | Host, path: str, body: Any = None, *, within: float = 5.0
                   ) -> Any:  # fmt: skip
        """Ask another host, as over HTTP; CallFailed if there is no answer in time, or none that
        is not an error. Whether the request was carried out is not known then."""
        found = self.world.find(target if isinstance(target, str) else target.name)
        if found is None:
            raise LookupError(f"no host is called {target!r}")
        return await self.calls.ask(found, path, body, within)

    def note(self, text: str) -> None:
        """A line in the story of this run."""
        self.world.record(self.name, text)

    # --- life ------------------------------------------------------------------------------

    def start(self) -> bool:
        """Run the program, from its beginning; False if it runs."""
        if self.up:
            return False
        self.lives += 1
        self.done = False
        self.process = process = Process(self, 100 * self.number + self.lives)
        self._context = Context()
        self._context.run(PROCESS.set, process)
        self.note("starts" if self.lives == 1 else f"starts again (life {self.lives})")
        if self.lives > 1:
            self.world.restarts += 1
        task = self.spawn(self._run())
        ended = partial(self._ended, process)
        task.add_done_callback(ended, context=self.world.context)
        return True

    async def _run(self) -> Any:
        given: dict[str, Any] = {"host": self, "world": self.world}
        arguments = self._arguments | {name: given.get(name) for name in self._given}
        if not self.member:
            return await self._main(**arguments)
        async with self.node() as arguments["node"]:
            return await self._main(**arguments)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> SimTask:
        """A task of this host's process."""
        return self.loop.create_task(work, context=self._context.copy())

    def later(self, delay_us: int, act: Callable[..., object], *args: Any) -> None:
        """Something that happens in this host's process, if it still lives, and when it moves."""
        self.loop.later(delay_us, act, *args, context=self._context)

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        if self.process is not process:
            return
        if task.cancelled():
            self.note("its program was cancelled")
            return
        error = task.exception()
        if error is None:
            self.done, self.result = True, task.result()
            self.note("its program has ended")
        elif self._on_error == "fail":
            self.world.fail(HostFailed(f"{self.name}: {described(error)}"), error)
        else:
            self.note(f"its program failed: {described(error)}")
            self.crash("nothing")
            self.world.later(RESTART_S, self.start)

    def crash(self, loss: Loss | None = None) -> bool:
        """Let it go down, with what ``loss`` says of its files; drawn if not given. Its program
        ends where it is: nothing of it runs any more. False if it is down."""
        process = self.process
        if process is None:
            return False
        drawn: Loss = self.world.draw.choice(("unsynced", "torn", "nothing"))
        loss = checked_loss(loss or drawn)
        self.world.bury(process)
        self.process = None
        self.world.crashes += 1
        self.note({
            "unsynced": "crashes, and loses what was not synced",
            "torn": "crashes, and loses some of what was not synced",
            "nothing": "crashes",
        }[loss])  # fmt: skip
        self.calls.break_off()
        for stream in list(self.streams):
            stream.reset()
        self.streams.clear()
        self.servers.clear()
        self._ports.clear()
        self.world.lose_files(self.name, loss)
        return True

    def restart(self) -> bool:
        """Crash, if it is up, and start again at once."""
        self.crash()
        return self.start()

    def pause(self) -> bool:
        """Let it stand still, as after SIGSTOP; False if it does or is down."""
        if self.process is None or self.process.paused:
            return False
        self.process.pause()
        self.note("stands still")
        return True

    def resume(self) -> bool:
        """Let it go on."""
        if self.process is None or not self.process.paused:
            return False
        self.note("goes on")
        self.loop.resume(self.process)
        return True

    def drift(self, ppm: int) -> None:
        """Let its clocks gain ``ppm`` microseconds a second, or lose them, below 0."""
        self.clock.drift(self.loop.now_us, ppm)
        self.note(f"its clock drifts by {ppm} ppm")

    def jump(self, seconds: float) -> None:
        """Let somebody set its wall clock."""
        self.clock.jump(int(seconds * 1e6))
        self.note(f"its wall clock is set by {seconds:+g} s")

    def fail_disk(self) -> None:
        """Let its next sync fail."""
        self.world.disk.failing.add(self.name)
        self.note("its disk will not answer the next sync")

    # --- the network's side ----------------------------------------------------------------

    def find(self, name: str) -> Host | None:
        """Who has this name or address, seen from here."""
        return self if name in LOOPBACK else self.world.find(name)

    def next_descriptor(self) -> int:
        """A number for a socket."""
        self._descriptor += 1
        return self._descriptor

    def next_port(self) -> int:
        """A port for who asks for none."""
        self._port = DYNAMIC + (self._port + 1 - DYNAMIC) % (65_536 - DYNAMIC)
        return self._port

    def open_port(self, opened: SimSocket, port: int) -> int:
        """Datagrams for a port go to a socket."""
        port = port or self.next_port()
        if port in self._ports:
            raise failure(EADDRINUSE)
        self._ports[port] = opened
        return port

    def close_port(self, opened: SimSocket, port: int) -> None:
        """No longer."""
        if self._ports.get(port) is opened:
            del self._ports[port]

    def listen(self, server: SimServer | SimListener, port: int) -> int:
        """Connections to a port go to a server."""
        port = port or self.next_port()
        if port in self.servers:
            raise failure(EADDRINUSE)
        self.servers[port] = server
        return port

    def unlisten(self, server: SimServer | SimListener) -> None:
        """No longer."""
        for port in [port for port, each in self.servers.items() if each is server]:
            del self.servers[port]

    def send_datagram(self, place: Place, source: Place, data: bytes) -> None:
        """From an address of this host to a place. This is the path of every frame."""
        world = self.world
        target = world.found.get(place[0]) or self.find(place[0])
        if target is None:
            self.loses("unknown address")
            return
        me, other = self.number, target.number
        world.events.append((self.loop.scheduler.now_us, me, other, len(data), crc32(data)))
        world.network.datagram(me, other, Datagram(source, place[1], data))

    def hear(self, datagram: Any) -> None:
        """A datagram arrives, by itself: nothing is broadcast here."""
        opened = self._ports.get(datagram.target)
        if opened is None:
            self.loses("no listener")
        else:
            opened.take(datagram)

    def hear_unicast(self, frame: Received) -> None:
        """It arrives in a frame of the simulator's network."""
        self.hear(frame.message)

    def loses(self, why: str) -> None:
        """Count a datagram that goes no further."""
        self.world.lost[why] += 1


_parameters: WeakKeyDictionary[Main, Mapping[str, inspect.Parameter]] = WeakKeyDictionary()


def parameters_of(main: Main) -> Mapping[str, inspect.Parameter]:
    """What a program takes. A function is asked once: a hundred clients may run it."""
    if not inspect.isfunction(main):
        return inspect.signature(main).parameters
    if (known := _parameters.get(main)) is None:
        known = _parameters[main] = inspect.signature(main).parameters
    return known


def needed(parameter: inspect.Parameter) -> bool:
    """Whether a call must give it."""
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not several


def names(hosts: Iterable[Host]) -> str:
    """For people."""
    return ", ".join(host.name for host in hosts)

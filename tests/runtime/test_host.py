"""The shell around a machine: effects in order, persist before send, timers, ways to end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.env import Env
from ringcast.core.errors import (
    KeyFileError,
    NodeStopped,
    StorageError,
    TransportError,
)
from ringcast.core.ids import LIMIT, Level, NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Machine, Table
from ringcast.core.registry import Sheet, register
from ringcast.core.settings import GroupSettings
from ringcast.core.trace import Crashed, Delivered, Installed, Noted, Restarted, Submit
from ringcast.runtime.clock import TICK_US
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.host import BOOT_STEPS, LiveHost
from ringcast.runtime.platform import LivePlatform
from ringcast.runtime.port import MOST_HINTS, MOST_LINES
from ringcast.runtime.port_config import PortConfig
from ringcast.traces.live import read_log
from ringcast.wire import keys
from ringcast.wire.misfits import ANYBODY, PATIENCE

VIEW = ViewId(4, 1)


class Phase(StrEnum):
    UP = "up"


class Bell(StrEnum):
    FIRST = "first"
    SECOND = "second"


class Word(msgspec.Struct, frozen=True, array_like=True, tag=1):
    text: str


class Settings(GroupSettings, frozen=True, kw_only=True):
    patience_us = 10**9
    """After a pause that is longer, a host drops what waits: no test is to depend on that."""
    frame_budget = 1_000


class Puppet(Machine):
    """Does what the body of a submission says, or what a bell was set to do."""

    table: ClassVar[Table]

    def __init__(self, node: NodeId, config: Settings) -> None:
        super().__init__()
        self.phase = Phase.UP
        self.heard: list[tuple[int, str]] = []
        self.ports_heard: list[int] = []
        self.on_bell: dict[str, str] = {}
        self.started: Started | None = None

    def start(self, env: Env, event: Started) -> None:
        self.started = event
        env.persist("starts", event.stable.get("starts", 0) + 1)
        env.install_view(InstallView(VIEW, (env.me,), False, VIEW, 0, None))

    def admit(self, env: Env, event: Received) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return True

    def snapshot(self) -> dict[str, object]:
        return {"heard": len(self.heard)}

    def on_word(self, env: Env, event: Received) -> None:
        assert isinstance(event.message, Word)
        self.heard.append((event.src, event.message.text))
        self.ports_heard.append(event.port)

    def on_submitted(self, env: Env, event: Submitted) -> None:
        for body in event.bodies:
            self.obey(env, body.decode())

    def ring_first(self, env: Env, event: object) -> None:
        self.obey(env, self.on_bell.get("first", ""))

    def ring_second(self, env: Env, event: object) -> None:
        self.obey(env, self.on_bell.get("second", ""))

    def obey(self, env: Env, orders: str) -> None:
        for order in filter(None, orders.split(";")):
            verb, _, rest = order.partition(" ")
            match verb:
                case "send":
                    env.send(2, Word(rest))
                case "broadcast":
                    env.broadcast(Word(rest))
                case "send-1":
                    env.send(2, Word(rest), 1)
                case "broadcast-1":
                    env.broadcast(Word(rest), 1)
                case "persist":
                    env.persist("value", int(rest))
                case "deliver":
                    env.deliver(
                        VIEW, PackedMessages(VIEW, 1, env.me, Level.AGREED, 1, (rest.encode(),))
                    )
                case "set":
                    bell, delay = rest.split()
                    env.set_timer(Bell(bell), int(delay))
                case "cancel":
                    env.cancel_timer(Bell(rest))
                case "stop":
                    env.stop(rest)
                case "raise":
                    raise RuntimeError(rest)
                case "note":
                    env.note("puppet R1", "said", rest)
                case "uncertain":
                    env.uncertain(int(rest), 2)
                case "up":
                    env.up(Word(rest))


Puppet.table = Table(
    Phase,
    (Word,),
    Bell,
    {
        (Phase.UP, Leaving): lambda machine, env, event: env.stop("left"),
        (Phase.UP, Submitted): Puppet.on_submitted,
        (Phase.UP, Word): Puppet.on_word,
        (Phase.UP, Bell.FIRST): Puppet.ring_first,
        (Phase.UP, Bell.SECOND): Puppet.ring_second,
    },
)

register(
    Sheet(
        "puppet",
        "none",
        Settings,
        Puppet,
        lambda config: (),
        {"plain": Settings()},
        (Word,),
        lambda c, n: 1,
        most_ports=2,
    )
)


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.changed = asyncio.Event()

    def on_deliver(self, view: ViewId, batch: PackedMessages) -> None:
        self.log.append(f"deliver {batch.bodies[0].decode()}")

    def on_view(self, change: InstallView) -> None:
        self.log.append(f"view {change.members}")

    def on_uncertain(self, first: int, count: int) -> None:
        self.log.append(f"uncertain {first}..{first + count - 1}")

    def on_quiet(self) -> None:
        self.changed.set()

    def on_stop(self, reason: str) -> None:
        self.log.append(f"stop {reason}")
        self.changed.set()

    async def until(self, met: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not met():
                self.changed.clear()
                await self.changed.wait()


Story = Callable[[], Awaitable[None]]


class OwnTime(LivePlatform):
    """This machine, with its clocks set by a test."""

    def __init__(self) -> None:
        self.ahead_ns = 0
        self.wall_ns: int | None = None

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns

    def time_ns(self) -> int:
        return time.time_ns() if self.wall_ns is None else self.wall_ns


class Stage:
    """Hosts in one directory; two of them know each other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hosts: list[LiveHost] = []
        self.platform = OwnTime()

    def host(self, node: int, **settings: Any) -> tuple[LiveHost, Ear, Puppet]:
        ear = Ear()
        if "ports" not in settings:
            settings = {"bind": "127.0.0.1:0", "peers": ("9@127.0.0.1:9",)} | settings
        config = NodeConfig(
            id=node,
            state_dir=str(self.root / settings.pop("state", f"state{node}")),
            protocol="puppet",
            **settings,
        )
        host = LiveHost(config, ear, self.platform)
        self.hosts.append(host)
        assert isinstance(host.machine, Puppet)
        return host, ear, host.machine

    async def pair(self, **settings: Any) -> tuple[LiveHost, Ear, Puppet]:
        """Host 2 running, and host 1, not yet started, that knows it."""
        two, self.ear2, self.puppet2 = self.host(2, **settings)
        await two.start()
        return self.host(1, peers=(f"2@{two.ports[0].address}",), **settings)

    async def start(self, host: LiveHost) -> None:
        """Start host 1 of a pair, and wait until host 2 hears it."""
        await host.start()
        await self.ear2.until(lambda: self.hosts[0].ports[0]._codec.met(1, host.boot))

    def play(self, story: Callable[[Stage], Awaitable[None]]) -> None:
        async def main() -> None:
            try:
                await story(self)
            finally:
                for host in self.hosts:
                    host.close()

        asyncio.run(main())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def submit(host: LiveHost, orders: str) -> None:
    host.submit((orders.encode(),), Level.AGREED)


def test_a_level_that_is_none_never_reaches_the_machine(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair()
        await stage.start(host)
        with pytest.raises(ValueError, match="not a valid Level"):
            host.submit((b"",), "safe")  # type: ignore[arg-type]

    stage.play(story)


def test_what_is_uncertain_is_told_and_words_to_no_owner_are_borne(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, _ = await stage.pair()
        await stage.start(host)
        submit(host, "up nobody;uncertain 4;deliver after")
        assert ear.log[-2:] == ["uncertain 4..5", "deliver after"]

    stage.play(story)


def test_effects_are_carried_out_in_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair()
        await stage.start(host)
        done: list[str] = []

        def spy(owner: object, name: str, label: str) -> None:
            real = getattr(owner, name)

            def called(*args: object) -> object:
                done.append(label)
                return real(*args)

            monkeypatch.setattr(owner, name, called)

        spy(host._store, "persist", "persist")
        spy(host.ports[0], "flush", "broadcast")
        spy(host.ports[0], "send", "send")
        spy(host._listener, "on_deliver", "deliver")
        submit(host, "send a;persist 1;broadcast b;deliver c;persist 2;send d")
        assert done == ["send", "persist", "broadcast", "deliver", "persist", "send"]
        await stage.ear2.until(lambda: len(stage.puppet2.heard) == 3)
        assert stage.puppet2.heard == [(1, "b"), (1, "a"), (1, "d")]  # unicasts last

    stage.play(story)


def test_broadcasts_of_inputs_that_came_together_leave_together(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair()
        await stage.start(host)
        left: list[int] = []
        udp = host.ports[0]._transport
        monkeypatch.setattr(udp, "broadcast", lambda *frames: left.append(len(frames)))
        monkeypatch.setattr(udp, "unicast", lambda node, frame: left.append(0))
        monkeypatch.setattr(udp, "unicasts", lambda node, frames: left.append(-len(frames)))

        def told(orders: str, more: bool) -> None:
            host.step(Submitted((orders.encode(),)), more)

        told("broadcast a;deliver x", more=True)
        told("broadcast b", more=True)
        assert left == []
        told("broadcast c;send d;broadcast e", more=True)  # nothing overtakes them
        assert left == [3, 0]
        told("deliver y", more=False)
        assert left == [3, 0, 1]
        told(";".join(["send same"] * 9), more=False)
        assert left == [3, 0, 1, -9]  # in a row, as one

    stage.play(story)


def test_what_depends_on_a_failed_write_never_happens(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        host, ear, _ = await stage.pair()
        await stage.start(host)
        submit(host, "send before")

        def fails(key: str, value: int) -> None:
            raise StorageError("cannot write stable.json: disk full")

        monkeypatch.setattr(host._store, "persist", fails)
        submit(host, "broadcast before;persist 1;broadcast after;send after;deliver after")
        assert host.stopped == "cannot write stable.json: disk full"
        assert not host.ready
        with pytest.raises(NodeStopped, match="disk full"):
            submit(host, "send after")
        await ear.until(lambda: ear.log[-1] == "stop cannot write stable.json: disk full")
        await stage.ear2.until(lambda: len(stage.puppet2.heard) >= 2)
        assert [text for _, text in stage.puppet2.heard] == ["before", "before"]
        assert "deliver after" not in ear.log

    stage.play(story)


def test_storage_that_fails_at_the_start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        host, ear, _ = stage.host(1)
        real = host._store.persist

        def fails(key: str, value: int) -> None:
            if key == "starts":
                raise StorageError("disk full")
            real(key, value)

        monkeypatch.setattr(host._store, "persist", fails)
        with pytest.raises(NodeStopped, match="the node could not start: disk full"):
            await host.start()
        host.close()
        assert ear.log == ["stop disk full"]  # and no view, which came after the write

    stage.play(story)


def test_timers(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, puppet = stage.host(1)
        await host.start()
        puppet.on_bell = {
            "first": "deliver first;set second 1000;cancel first",
            "second": "deliver second",
        }
        submit(host, "set second 2000;set first 1000;set second 60000000;cancel second")
        await ear.until(lambda: "deliver second" in ear.log)
        assert ear.log == ["view (1,)", "deliver first", "deliver second"]
        puppet.on_bell = {"first": "deliver again;set second 20000", "second": "deliver end"}
        submit(host, "set first 60000000;set first 5000")  # setting again replaces
        await ear.until(lambda: ear.log[-1] == "deliver end")
        assert ear.log[3:] == ["deliver again", "deliver end"]

    stage.play(story)


def test_timers_due_together_fire_in_the_order_of_their_deadlines(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, puppet = stage.host(1)
        await host.start()
        puppet.on_bell = {"first": "deliver first;cancel second", "second": "deliver second"}
        submit(host, "set second 1001;set first 1000")
        deadline = host.clock.now_us() + 3000
        while host.clock.now_us() < deadline:
            pass  # keep the loop busy until both are due
        await ear.until(lambda: "deliver first" in ear.log)
        await ear.until(lambda: not len(host._timers))
        assert ear.log == ["view (1,)", "deliver first"]

    stage.play(story)


def test_a_slow_disk_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        host, _, _ = stage.host(1)
        await host.start()
        real = host._store.persist

        def slow(key: str, value: int) -> None:
            time.sleep(0.05)
            real(key, value)

        monkeypatch.setattr(host._store, "persist", slow)
        submit(host, "persist 1")
        assert host.metrics()["longest_write_us"] >= 40_000  # type: ignore[operator]
        host.close()

    stage.play(story)


def test_stop_and_close(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, _ = stage.host(1)
        await host.start()
        submit(host, "deliver a;stop broken invariant;deliver b")
        await ear.until(lambda: len(ear.log) > 2)
        host.close("too late")
        assert ear.log == ["view (1,)", "deliver a", "stop broken invariant"]
        assert host.metrics()["stopped"] == "broken invariant"
        other, ear2, _ = stage.host(2)
        await other.start()
        other.close()
        other.close()
        assert ear2.log == ["view (2,)", "stop closed"]

    stage.play(story)


@pytest.mark.parametrize("orders", ["raise it", "set first 1"])
def test_a_defect_stops_the_node_and_is_reported(stage: Stage, orders: str) -> None:
    async def story(stage: Stage) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: reported.append(c))
        host, ear, puppet = stage.host(1)
        await host.start()
        puppet.on_bell = {"first": "raise it"}
        asyncio.get_running_loop().call_soon(submit, host, orders)
        await ear.until(lambda: len(ear.log) > 1)
        assert ear.log[-1] == "stop a defect: RuntimeError('it')"
        assert [type(context["exception"]) for context in reported] == [RuntimeError]

    stage.play(story)


def test_incarnations_are_numbered_and_storage_is_kept(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        boots = []
        for count in (1, 2, 3):
            host, _, puppet = stage.host(1, trace_dir=str(stage.root / "trace"))
            await host.start()
            assert puppet.started is not None
            assert puppet.started.stable.get("starts", 0) == count - 1
            boots.append(puppet.started.boot)
            submit(host, "note hello;deliver x")
            host.close()
        assert boots == sorted(set(boots))
        traces = sorted((stage.root / "trace").iterdir())
        events = [event for path in traces for event in read_log(path)]
        kinds = [Restarted, Installed, Submit, Noted, Delivered, Crashed]
        assert [type(event) for event in events] == kinds * 3
        numbers = [event.n for event in events]  # type: ignore[union-attr]
        assert numbers == sorted(numbers)

    stage.play(story)


@pytest.mark.parametrize("boot", [-1, LIMIT - BOOT_STEPS, LIMIT, 2**64 - 1])
def test_a_state_whose_starts_cannot_be_counted_on_is_refused(stage: Stage, boot: int) -> None:
    """The largest ended in struct.error; with others a node ran, and nobody heard it."""

    async def story(stage: Stage) -> None:
        first, _, _ = stage.host(1)
        first.close()
        file = Path(first.config.state_dir) / "stable.json"
        for written in (boot, LIMIT - BOOT_STEPS - 1):
            file.write_text(json.dumps({"boot": written}))
            if written == boot:
                with pytest.raises(StorageError, match=rf"boot = {boot}.* restore it, or remove"):
                    stage.host(1)
            else:
                assert written < stage.host(1)[0].boot <= LIMIT

    stage.play(story)


def test_a_clock_set_back_does_not_turn_back_boots(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        first, _, _ = stage.host(1)
        await first.start()
        first.close()
        stage.platform.wall_ns = 1_000_000
        again, _, _ = stage.host(1)
        assert first.boot < again.boot <= first.boot + BOOT_STEPS

    stage.play(story)


def test_seeds_lead_to_everybody(stage: Stage) -> None:
    """Two hosts know only a third; they learn of each other through it."""

    async def story(stage: Stage) -> None:
        seed, _, _ = stage.host(3)
        await seed.start()
        where = str(seed.ports[0].address)
        others = [stage.host(n, peers=(), seeds=(where,)) for n in (1, 2)]
        for host, _, _ in others:
            await host.start()
        (one, ear, _), (two, _, puppet) = others
        await ear.until(lambda: "2" in one.metrics()["peers"])  # type: ignore[operator]
        submit(one, "send hello")
        await others[1][1].until(lambda: puppet.heard == [(1, "hello")])
        assert "1" in two.metrics()["peers"]  # type: ignore[operator]

    stage.play(story)


def test_a_node_without_an_address_to_tell_does_not_answer_who_looks_for_it(stage: Stage) -> None:
    """It would hear a newcomer that cannot hear it; its metrics say what is missing."""

    async def story(stage: Stage) -> None:
        seed, ear, _ = stage.host(3, bind="0.0.0.0:0", insecure=True)
        await seed.start()
        where = f"127.0.0.1:{seed.ports[0].address.port}"
        one, _, _ = stage.host(1, peers=(), seeds=(where,))
        await one.start()
        await ear.until(lambda: "set advertise" in str(seed.metrics()["frames_refused"]))
        assert one.metrics()["peers"] == {}
        assert "1" not in seed.metrics()["peers"]  # type: ignore[operator]

    stage.play(story)


def test_multicast_alone_is_enough_to_be_found(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        together = {"peers": (), "multicast": "239.255.77.2:5477", "interface": "127.0.0.1"}
        one, ear, _ = stage.host(1, **together)
        await one.start()
        two, ear2, puppet = stage.host(2, **together)
        await two.start()
        await ear.until(lambda: "2" in one.metrics()["peers"])  # type: ignore[operator]
        submit(one, "send token;broadcast data")
        await ear2.until(lambda: len(puppet.heard) == 2)

    stage.play(story)


def test_one_that_says_ever_new_things_of_itself_does_not_fill_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair()
        await stage.start(host)
        port = host.ports[0]
        for look in range(5):
            for node in range(1000, 1100):
                port._codec.misfit(node, f"node {node} says {look}")
            port._codec.misfit(7, "node 7 says what it always says")
            port.keep_house()
        said = [line for line in caplog.messages if " says " in line]
        assert len(said) == MOST_LINES + 4, "16 at once, then one a look"
        for _ in range(PATIENCE):
            port.keep_house()
        assert port._codec.misfits == port._warned == {}
        port._codec.misfit(7, "node 7 says what it always says")
        port.keep_house()
        assert caplog.messages[-1].endswith("node 7 says what it always says")

    stage.play(story)


def test_a_stranger_that_takes_ever_new_names_does_not_fill_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a key it can name any number of others; of those that are listed all are told."""

    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair()
        await stage.start(host)
        port = host.ports[0]
        for look in range(10):
            for node in range(1000 + 10 * look, 1010 + 10 * look):
                port._codec.unproven.note(node, f"node {node} says anything", ANYBODY)
            port.keep_house()
        port._codec.unproven.note(2, "node 2 says anything", ANYBODY)
        port.keep_house()
        said = [line for line in caplog.messages if " says anything" in line]
        assert len(said) == MOST_HINTS + 1 and "node 2 " in said[-1]

    stage.play(story)


def test_new_keys_are_picked_up_while_running(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    path = stage.root / "group.key"
    keys.write(path, keys.add({}))

    async def story(stage: Stage) -> None:
        host, _, _ = await stage.pair(key_file=str(path))
        await stage.start(host)
        submit(host, "send one")
        await stage.ear2.until(lambda: len(stage.puppet2.heard) == 1)
        keys.write(path, keys.promote(keys.add(keys.parse(path.read_text(), path))))
        for each in stage.hosts:
            each._keep_house()
        submit(host, "send two")
        await stage.ear2.until(lambda: len(stage.puppet2.heard) == 2)
        path.write_text("broken\n")
        host._keep_house()  # goes on with the keys it has, and says so
        refused = host.metrics()["frames_refused"]
        assert isinstance(refused, dict)
        assert any("line 1" in reason for reason in refused)
        host._keep_house()
        said = [text for text in caplog.messages if "goes on with what it has read before" in text]
        assert len(said) == 1 and "line 1" in said[0], "the log has it, once"
        held = list(host.metrics()["keys"])  # type: ignore[call-overload]
        keys.write(path, {7: bytes(32)}, keys.Grant("read", "dash"))
        host._keep_house()  # or the guest could join, under the key that it has
        assert host.metrics()["keys"] == held
        assert "is now that of a guest" in str(host.metrics()["frames_refused"])
        submit(host, "send three")
        await stage.ear2.until(lambda: len(stage.puppet2.heard) == 3)

    stage.play(story)


def test_a_wrong_key_shuts_out(stage: Stage, tmp_path: Path) -> None:
    keys.write(tmp_path / "a.key", keys.add({}))
    keys.write(tmp_path / "b.key", keys.add({}))

    async def story(stage: Stage) -> None:
        inside, ear, puppet = stage.host(2, key_file=str(tmp_path / "a.key"))
        await inside.start()
        peers = (f"2@{inside.ports[0].address}",)
        outside, _, _ = stage.host(1, peers=peers, key_file=str(tmp_path / "b.key"))
        await outside.start()
        submit(outside, "send x")
        await ear.until(lambda: inside.metrics()["frames_refused"])
        assert inside.metrics()["frames_refused"].keys() == {  # type: ignore[attr-defined]
            "of another group: its key or its network is not this node's"
        }
        assert puppet.heard == []

    stage.play(story)


async def two_domains(stage: Stage, *files: str) -> list[tuple[LiveHost, Ear, Puppet]]:
    """A node with two ports, 9 in one domain and 19 in the other; the one member of each, a node
    called 2 in both, can be reached by it."""
    ends = []
    for domain, file in enumerate(files or ("", "")):
        elsewhere = ("8@127.0.0.1:9",)
        ends.append(stage.host(2, state=f"end{domain}", key_file=file, peers=elsewhere))
        await ends[-1][0].start()
    ports = tuple(
        PortConfig(
            id=9 + 10 * domain,
            bind="127.0.0.1:0",
            peers=(f"2@{host.ports[0].address}",),
            key_file=host.config.key_file,
        )
        for domain, (host, _, _) in enumerate(ends)
    )
    middle = stage.host(9, ports=ports)
    await middle[0].start()
    for domain, (end, ear, _) in enumerate(ends):
        await ear.until(lambda: end.ports[0]._codec.met(9 + 10 * domain, middle[0].boot))  # noqa: B023
    return [middle, *ends]


def test_each_port_is_a_domain_with_its_own_ids_keys_and_peers(stage: Stage) -> None:
    files = [str(stage.root / name) for name in ("north.key", "south.key")]
    for file in files:
        keys.write(Path(file), keys.add({}))

    async def story(stage: Stage) -> None:
        (host, _, puppet), (_, north, near), (_, south, far) = await two_domains(stage, *files)
        assert puppet.started is not None and puppet.started.ports == (9, 19)
        assert near.started is not None and near.started.ports == ()
        submit(host, "send a;broadcast b")
        submit(host, "send-1 c;broadcast-1 d;broadcast e")
        await north.until(lambda: len(near.heard) == 3)
        await south.until(lambda: len(far.heard) == 2)
        assert sorted(near.heard) == [(9, "a"), (9, "b"), (9, "e")]
        assert sorted(far.heard) == [(19, "c"), (19, "d")]
        assert set(near.ports_heard) == set(far.ports_heard) == {0}, "as the receiver counts them"
        metrics: dict[str, Any] = host.metrics()
        assert [port["frames_sent"] for port in metrics["ports"]] == [3, 2]
        assert [port["id"] for port in metrics["ports"]] == [9, 19]
        assert metrics["frames_sent"] == 5
        assert metrics["id"] == 9

    stage.play(story)


def test_frames_say_at_which_port_they_arrived(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        (host, ear, puppet), *ends = await two_domains(stage)
        for port, (end, _, _) in enumerate(ends):
            end.ports[0]._transport.connect({9: host.ports[port].address})
            submit(end, f"broadcast {port}")
            await ear.until(lambda: len(puppet.heard) == port + 1)  # noqa: B023 (awaited here)
        assert puppet.heard == [(2, "0"), (2, "1")], "two processors with one id"
        assert puppet.ports_heard == [0, 1]

    stage.play(story)


def test_broadcasts_at_all_ports_leave_before_what_follows_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        (host, _, _), *_ = await two_domains(stage)
        left: list[str] = []
        for number, port in enumerate(host.ports):
            for name in ("broadcast", "unicast"):

                def leave(*frames: object, what: str = f"{name}-{number}") -> None:
                    left.append(what)

                monkeypatch.setattr(port._transport, name, leave)
        submit(host, "broadcast a;broadcast-1 b;broadcast c;send-1 d;broadcast-1 e;send f")
        assert left == ["broadcast-0", "broadcast-1", "unicast-1", "broadcast-1", "unicast-0"]

    stage.play(story)


def test_domains_with_a_key_in_common_are_refused(stage: Stage) -> None:
    """What one seals could be replayed in the other."""
    same, other = (stage.root / name for name in ("same.key", "other.key"))
    keys.write(same, keys.add({}))
    keys.write(other, keys.parse(same.read_text(), same))

    async def story(stage: Stage) -> None:
        with pytest.raises(KeyFileError, match=r"other.key has a key of .*same.key; each broadcas"):
            await two_domains(stage, str(same), str(other))
        keys.write(other, keys.add({}))
        for host in stage.hosts:
            host.close()
        (host, ear, _), *_ = await two_domains(stage, str(same), str(other))
        keys.write(other, keys.parse(same.read_text(), same))
        host._keep_house()
        await ear.until(lambda: ear.log[-1].startswith("stop "))
        assert "has a key of" in str(host.stopped)

    stage.play(story)


def test_nothing_stays_open_when_opening_fails(stage: Stage, tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, _, _ = stage.host(1)
        taken = str(first.ports[0].address)
        ear = Ear()
        base = NodeConfig(
            id=2,
            bind=taken,
            peers=("9@127.0.0.1:9",),
            state_dir=str(tmp_path / "s"),
            protocol="puppet",
        )
        with pytest.raises(TransportError, match="Address already in use"):
            LiveHost(base, ear)
        free = msgspec.structs.replace(base, bind="127.0.0.1:0")
        with pytest.raises(TransportError, match="cannot use multicast"):
            wrong = {"multicast": "127.0.0.1:1", "interface": "127.0.0.1"}
            LiveHost(msgspec.structs.replace(free, **wrong), ear)
        with pytest.raises(KeyFileError):
            LiveHost(msgspec.structs.replace(free, key_file=str(tmp_path / "none")), ear)
        LiveHost(free, ear).close()  # the state directory is free again

    stage.play(story)


def test_ticks_of_the_clock_do_not_call_the_listener(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, _ = stage.host(1)
        await host.start()
        ear.changed.clear()
        await asyncio.sleep(5 * TICK_US / 1e6)
        assert not ear.changed.is_set()

    stage.play(story)


def test_pauses_are_in_the_metrics_and_do_not_ring_bells(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        host, ear, puppet = stage.host(1)
        await host.start()
        puppet.on_bell = {"first": "deliver rang"}
        submit(host, "set first 500000")
        before = host.clock.now_us()
        stage.platform.ahead_ns = 10_000_000_000
        await asyncio.sleep(4 * TICK_US / 1e6)  # a tick finds out, and tells nobody
        assert host.clock.longest_us > 9_000_000
        assert host.metrics()["pauses"] == host.clock.pauses
        assert "deliver rang" not in ear.log
        assert host.clock.now_us() - before < 5_000_000
        await ear.until(lambda: "deliver rang" in ear.log)

    stage.play(story)

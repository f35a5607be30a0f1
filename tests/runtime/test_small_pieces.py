"""Clock, addresses, names, peer book, fault shim and trace log."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path
from threading import Event

import pytest

from ringcast.core.errors import ConfigError
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import Crashed, Installed, Restarted, Submit, TraceEvent
from ringcast.runtime import discovery
from ringcast.runtime.clock import PAUSE_US, ActiveClock
from ringcast.runtime.config import from_settings
from ringcast.runtime.discovery import (
    MOST_ANSWERS,
    MOST_GREETINGS,
    MOST_NEWS,
    MOST_UNANSWERED,
    Meetings,
    PeerBook,
)
from ringcast.runtime.fault_injection import FaultInjection
from ringcast.runtime.tracelog import FLUSH_BYTES, TraceLog
from ringcast.traces import TraceError
from ringcast.traces.live import read_log
from ringcast.wire import address
from ringcast.wire.address import Address, Names, parse, parse_peer, resolve
from ringcast.wire.codec import EVERYBODY, HEADER, MAGIC, Codec
from ringcast.wire.meeting import MOST, Hello, Whereabouts
from ringcast.wire.seal import Medium, Realm

# --- clock ---------------------------------------------------------------------------------


class FakeTime:
    def __init__(self) -> None:
        self.us = 1_000_000

    def monotonic_ns(self) -> int:
        return self.us * 1000


def test_active_time_leaves_out_pauses() -> None:
    world = FakeTime()
    active = ActiveClock(world.monotonic_ns)
    start = active.now_us()
    active.expect(start + 10_000)
    world.us += 10_000 + PAUSE_US  # late, but no more than a busy machine is
    assert active.wake() == start + 10_000 + PAUSE_US
    assert active.pauses == 0
    asked = active.now_us() + 10_000
    active.expect(asked)
    world.us += 10_000 + 5_000_000  # stopped for five seconds
    assert active.wake() == asked
    assert active.now_us() == asked
    assert (active.pauses, active.paused_us, active.longest_us) == (1, 5_000_000, 5_000_000)


def test_a_pause_is_taken_off_once() -> None:
    """A frame and a timer may both notice the same pause."""
    world = FakeTime()
    active = ActiveClock(world.monotonic_ns)
    active.expect(active.now_us() + 1000)
    world.us += 200_000
    now = active.wake()
    assert active.wake() == now
    assert active.pauses == 1
    active.expect(now + 1000)
    world.us += 500
    assert active.wake() == now + 500  # woken by a frame, before the time asked for


# --- addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:5405", "127.0.0.1", 5405),
        ("[::1]:1", "::1", 1),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
        ("node-1.example:5405", "node-1.example", 5405),
    ],
)
def test_addresses_are_read_and_written_alike(text: str, host: str, port: int) -> None:
    assert parse(text, "bind") == (host, port)
    assert str(parse(text, "bind")) == text
    assert parse_peer(f"7@{text}", "peers") == (7, (host, port))


@pytest.mark.parametrize(
    "text", ["", "5405", "host:", ":5405", "host:port", "host:-1", "host:65536", "::1:5405",
             "[]:1", "[::1:1", "host:0"],
)  # fmt: skip
def test_other_texts_are_not_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match=r"seeds = .* write host:port"):
        parse(text, "seeds")


@pytest.mark.parametrize("text", ["127.0.0.1:1", "0@h:1", "x@h:1", "-1@h:1", "4294967296@h:1"])
def test_a_peer_has_an_id(text: str) -> None:
    with pytest.raises(ConfigError, match=r"peers: .* write id@host:port"):
        parse_peer(text, "peers")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert Address(host, 1).loopback is loopback


def test_resolving() -> None:
    assert resolve(Address("127.0.0.1", 7)) == [(socket.AF_INET, ("127.0.0.1", 7))]
    assert resolve(Address("::1", 7)) == [(socket.AF_INET6, ("::1", 7))]
    assert resolve(Address("a" * 64 + ".example", 7)) == []
    assert resolve(Address("nul\0byte", 7)) == []


def test_names_never_wait_for_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, list[tuple[socket.AddressFamily, Address]]] = {}
    slow, asked = Event(), Event()

    def server(name: Address) -> list[tuple[socket.AddressFamily, Address]]:
        asked.set()
        if name.host == "slow":
            assert slow.wait(10)
        return answers.get(name.host, [])

    monkeypatch.setattr(address, "resolve", server)
    names = Names()
    here = [(socket.AF_INET, Address("10.0.0.1", 1))]
    answers["quick"] = answers["slow"] = here
    assert names.resolve(Address("quick", 1)) == here
    assert names.resolve(Address("slow", 1)) == []  # comes back though there is no answer yet
    slow.set()
    deadline = time.monotonic() + 10
    while names.resolve(Address("slow", 1)) != here:
        assert time.monotonic() < deadline
    answers.clear()  # the server forgets, or is down: the last answer stands
    asked.clear()
    names.resolve(Address("quick", 1))
    assert asked.wait(10)
    assert names.resolve(Address("quick", 1)) == here


def test_names_take_few_threads_and_little_time_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Hello with 250 names once held up a node for seven seconds, with as many threads."""
    end, asked = Event(), []

    def server(name: Address) -> list[tuple[socket.AddressFamily, Address]]:
        asked.append(name)
        end.wait(10)
        return []

    monkeypatch.setattr(address, "resolve", server)
    names = Names()
    try:
        assert [names.resolve(Address(f"n{n}", 1)) for n in range(250)] == [[]] * 250
        assert len(asked) == Names.MOST
        assert names._patience_s <= 0
    finally:
        end.set()


def test_names_of_others_are_forgotten_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that named ever new ones had a node remember all of them for ever."""
    monkeypatch.setattr(Names, "MOST_KNOWN", 10)
    answers = {Address(f"n{n}", 1): [(socket.AF_INET, Address("10.0.0.1", n))] for n in range(100)}
    monkeypatch.setattr(address, "resolve", lambda name: answers[name])
    names = Names()
    mine = Address("n0", 1)
    for name in answers:
        names.resolve(name)
        for asking in [*names._asking.values()]:
            asking.join()
        assert names.resolve(mine) == answers[mine]
        assert len(names._known) <= Names.MOST_KNOWN + Names.MOST
    assert len(names._known) == Names.MOST_KNOWN
    assert mine in names._known and Address("n99", 1) in names._known


# --- discovery -----------------------------------------------------------------------------


def place(node: int, boot: int, port: int = 1) -> Whereabouts:
    return Whereabouts(node, boot, "127.0.0.1", port)


def test_what_a_processor_says_of_itself_wins_over_its_past_and_over_others() -> None:
    book = PeerBook(place(1, 5), {})
    book.learn(Hello((place(3, 1), place(2, 9, 20)), False))
    assert book.known() == {2: ("127.0.0.1", 20), 3: ("127.0.0.1", 1)}
    assert list(book.addresses()) == [3], "hearsay gets no frames"
    book.learn(Hello((place(2, 7, 21),), False))
    book.learn(Hello((place(2, 6, 22),), False))
    book.learn(Hello((place(3, 1), place(2, 99, 66)), False))
    assert book.addresses()[2] == ("127.0.0.1", 21)


def test_nobody_says_where_a_configured_peer_is_or_where_i_am() -> None:
    book = PeerBook(place(1, 5, 10), {2: Address("127.0.0.1", 20)})
    assert book.learn(Hello((place(2, 7, 66), place(1, 99, 66)), False)) == []
    assert book.learn(Hello((place(3, 7), place(2, 99, 66)), False)) == []
    assert book.addresses() == {2: ("127.0.0.1", 20), 3: ("127.0.0.1", 1)}
    assert book.places() == (place(1, 5, 10), place(2, 7, 20), place(3, 7)), "but who it is now"


def test_an_address_of_no_machine_is_not_learned() -> None:
    book = PeerBook(place(1, 5), {})
    book.learn(Hello((Whereabouts(2, 1, "0.0.0.0", 5), Whereabouts(3, 1, "::", 5)), False))
    assert book.known() == {}


def test_what_is_known_is_bounded_and_hearsay_makes_room() -> None:
    book = PeerBook(place(1, 5), {3: Address("h", 30)})
    new = book.learn(Hello((place(2, 1), *(place(n, 1) for n in range(1000, 1254))), True))
    assert len(new) == MOST - 1
    book.learn(Hello((place(10_000, 1), place(10_001, 1)), True))
    assert len(book.known()) == MOST + 1  # and the one that was listed
    assert list(book.addresses()) == [2, 3, 10_000]
    for n in range(20_000, 20_000 + MOST):
        book.learn(Hello((place(n, 1),), True))
    assert len(book.known()) == MOST + 1
    assert len(book.places()) == MOST
    assert book.places()[0] == place(1, 5)


class Deaf:
    """A transport that takes note of whom it sends to."""

    address = Address("127.0.0.1", 1)

    def __init__(self) -> None:
        self.peers: dict[NodeId, Address] = {}
        self.told: list[Address] = []
        self.connects = 0

    def connect(self, peers: dict[NodeId, Address]) -> None:
        self.peers = peers
        self.connects += 1

    def send_to(self, address: Address, datagram: bytes) -> None:
        """Nobody hears it."""
        self.told.append(address)


def acquainted() -> tuple[Meetings, Deaf, Codec, Codec]:
    """Node 1, which lists node 3 and has met node 2, and the codecs of 1 and 2."""
    realm = Realm(Medium.RING, "test", "totem")
    given = {"id": 1, "bind": "127.0.0.1:1", "peers": ["3@127.0.0.1:3"], "state_dir": "s"}
    config = from_settings(given)
    mine, its = (Codec((), node, 5, None, realm) for node in (1, 2))
    udp = Deaf()
    meetings = Meetings(config.domains[0], 5, udp, mine)  # type: ignore[arg-type]
    say(meetings, mine, its, Hello((place(2, 5, 2),), False, 1, mine.challenge))
    return meetings, udp, mine, its


def say(meetings: Meetings, to: Codec, by: Codec, hello: Hello) -> None:
    frame = to.decode(by.encode(hello, EVERYBODY))
    assert frame is not None
    meetings.on_hello(frame[0], frame[1], hello)


def test_a_node_that_was_removed_for_good_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is listed; and if it comes back, it is known again."""
    monkeypatch.setattr(discovery, "MOST_QUIET", 3)
    meetings, udp, mine, its = acquainted()
    for _ in range(20):
        say(meetings, mine, its, Hello((place(2, 5, 2),), False))
        meetings.look_around()
    assert list(udp.peers) == [2, 3]
    for _ in range(4):
        meetings.look_around()
    assert list(udp.peers) == [3]
    say(meetings, mine, its, Hello((place(2, 5, 2),), False))
    assert list(udp.peers) == [2, 3]


def test_who_was_met_and_has_not_said_where_it_is_is_asked_again() -> None:
    """Its Hello was opened, and lost behind that, as a ``fault_file`` does. Two parts of a group
    did not find together: one member sent nothing to one that was not listed."""
    meetings, udp, mine, its = acquainted()
    say(meetings, mine, its, Hello((place(2, 5, 2), place(4, 1, 9)), False))
    lost = Codec((), 4, 1, None, Realm(Medium.RING, "test", "totem"))
    assert mine.decode(lost.encode(Hello((place(4, 1, 9),), False, 1, mine.challenge), EVERYBODY))
    assert mine.knows(4)
    for _ in range(3):
        udp.told.clear()
        meetings.look_around()
        assert Address("127.0.0.1", 9) in udp.told
    say(meetings, mine, lost, Hello((place(4, 1, 9),), False))
    udp.told.clear()
    meetings.look_around()
    assert 4 in udp.peers and Address("127.0.0.1", 9) not in udp.told


def test_a_hello_without_news_looks_no_address_up() -> None:
    """Each cost a lookup of every peer: 1,024 of them took four seconds of a node with 255."""
    meetings, udp, mine, its = acquainted()
    third = Codec((), 3, 5, None, Realm(Medium.RING, "test", "totem"))
    say(meetings, mine, third, Hello((place(3, 5, 3),), False, 1, mine.challenge))
    before = udp.connects
    for n in range(100):
        say(meetings, mine, its, Hello((place(2, 5, 2), place(1000 + n, 1)), False))
        say(meetings, mine, third, Hello((place(3, 5, 9),), False))
    assert udp.connects == before
    again = Codec((), 2, 6, None, Realm(Medium.RING, "test", "totem"))
    say(meetings, mine, again, Hello((place(2, 6, 7),), False, 1, mine.challenge))
    assert udp.connects == before + 1 and udp.peers[2].port == 7, "it has moved"


def test_places_that_others_say_are_looked_at_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Hello of 2 KB with 254 of them cost a millisecond, and a thousand such Hellos a second all
    there is."""
    looked: list[Whereabouts] = []

    def look(place: Whereabouts) -> bool:
        looked.append(place)
        return True

    monkeypatch.setattr(discovery, "reachable", look)
    meetings, _, mine, its = acquainted()
    looked.clear()
    for turn in (1, 2):
        for boot in range(20):
            others = (place(node, 100 * turn + boot) for node in range(1000, 1000 + MOST - 1))
            say(meetings, mine, its, Hello((place(2, 5, 2), *others), False))
        assert len(looked) == turn * MOST_NEWS
        looked_before = len(looked)
        say(meetings, mine, its, Hello((place(2, 5, 2), *reversed(looked[-3:])), False))
        assert len(looked) == looked_before, "no news"
        meetings.look_around()


def test_who_is_silent_makes_room_for_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """255 made-up ids took all places for a day, and a newcomer stayed alone. Members that are
    silent because nobody asks them stay."""
    monkeypatch.setattr(discovery, "MOST", 3)
    meetings, udp, mine, its = acquainted()
    realm = Realm(Medium.RING, "test", "totem")
    others = {node: Codec((), node, 5, None, realm) for node in (4, 5, 6)}

    def meets(node: NodeId) -> None:
        hello = Hello((place(node, 5, node),), False, 1, mine.challenge)
        say(meetings, mine, others[node], hello)

    for _ in range(2 * MOST_UNANSWERED):
        meetings.look_around()
    assert list(udp.peers) == [2, 3], "there is room"
    for node in others:
        meets(node)
    assert list(udp.peers) == [2, 3, 4, 5]
    for _ in range(MOST_UNANSWERED):
        meetings.look_around()
        if Address("127.0.0.1", 2) in udp.told:
            udp.told.clear()
            say(meetings, mine, its, Hello((place(2, 5, 2),), False))
        assert list(udp.peers) == [2, 3, 4, 5]
    for _ in range(2):
        meetings.look_around()
    assert list(udp.peers) == [2, 3], "4 and 5 did not answer"
    meets(6)
    assert list(udp.peers) == [2, 3, 6]


def test_who_is_listed_and_was_never_heard() -> None:
    meetings, _, mine, _ = acquainted()
    assert meetings.unheard() == (["node 3 (127.0.0.1:3)"], [])
    mine.decode(HEADER.pack(MAGIC, 7 << 4, 1, 0, 3, 5, EVERYBODY, 5))
    assert list(mine.unproven.said()) == [3]
    assert meetings.unheard() == ([], ["node 3 (127.0.0.1:3)"]), "anybody could say so"
    mine.misfit(3, "max_message is 7 at node 3 and 100 at this node")
    assert meetings.unheard() == ([], []), "of that it is said why"


@pytest.mark.parametrize("claimed", [(4, 5), (2, 6)])
def test_a_hello_in_the_name_of_another_is_refused(claimed: tuple[int, int]) -> None:
    """Frames to that one would go astray."""
    meetings, udp, mine, its = acquainted()
    before = dict(udp.peers)
    say(meetings, mine, its, Hello((place(*claimed, 9), place(7, 1, 7)), True))
    assert mine.refused == {"a Hello in the name of another, from node 2": 1}
    assert udp.peers == before and not udp.told


def test_answers_and_greetings_are_bounded() -> None:
    """Somebody on the path repeats a Hello, perhaps an old one, and each would be answered; or a
    frame of a member that was not met, and each would ask that one for its Hello."""
    meetings, udp, mine, _ = acquainted()
    stranger = Codec((), 4, 1, None, Realm(Medium.RING, "test", "totem"))
    wants = Hello((place(4, 1, 4),), True, 1)
    asker, unmet = Address("127.0.0.1", 4), Address("127.0.0.1", 3)
    for _ in range(2):
        for _ in range(10 * MOST_ANSWERS):
            say(meetings, mine, stranger, wants)
            meetings.greet([3])
        assert udp.told.count(asker) == MOST_ANSWERS
        assert udp.told.count(unmet) == MOST_GREETINGS
        udp.told.clear()
        meetings.look_around()  # which greets who was not met


def node_with_its_id(boot: int) -> Codec:
    return Codec((), 1, boot, None, Realm(Medium.RING, "test", "totem"))


def test_of_one_with_this_nodes_id_only_its_own_word_counts() -> None:
    """One Hello of a member that named a later start of another one ended that."""
    meetings, udp, mine, its = acquainted()
    for boot in (4, 5):  # one's own past is no news
        say(meetings, mine, its, Hello((place(2, 5, 2), place(1, boot, 9)), False))
    assert not udp.told and not meetings.twin
    say(meetings, mine, its, Hello((place(2, 5, 2), place(1, 6, 9)), False))
    assert not meetings.twin and udp.told == [Address("127.0.0.1", 9)], "it is asked"
    later = node_with_its_id(6)
    say(meetings, mine, later, Hello((place(1, 6, 9),), False, 1, 77))
    assert not meetings.twin, "that could be a recorded one"
    say(meetings, mine, later, Hello((place(1, 6, 9),), False, 1, mine.challenge))
    assert meetings.twin.endswith("another processor uses the id 1, at 127.0.0.1:9")


def test_a_node_whose_state_was_lost_is_told_so_when_it_starts() -> None:
    """Later a member could not know it, and must not end a node by saying so."""
    lost = Hello((place(2, 5, 2), place(1, 6, 1)), False)
    meetings, udp, mine, its = acquainted()
    say(meetings, mine, its, lost)
    meetings.look_around()
    assert not meetings.twin and udp.told.count(Address("127.0.0.1", 3)) == 1, "others are asked"
    meetings.look_around()
    assert meetings.twin.startswith("others know a later start of this node: its state_dir was")
    meetings, _, mine, its = acquainted()
    for _ in range(discovery.YOUNG + 1):
        meetings.look_around()
    say(meetings, mine, its, lost)
    for _ in range(3):
        meetings.look_around()
    assert not meetings.twin and mine.misfits[2].startswith("node 2 says: others know a later")


def test_one_member_s_word_ends_no_node_that_another_member_knows() -> None:
    """In the first ten seconds of a node, one Hello of any member ended it."""
    meetings, udp, mine, its = acquainted()
    say(meetings, mine, its, Hello((place(2, 5, 2), place(1, 6, 1)), False))
    meetings.look_around()
    assert Address("127.0.0.1", 3) in udp.told
    third = Codec((), 3, 5, None, Realm(Medium.RING, "test", "totem"))
    knows = (place(3, 5, 3), place(1, 5, 1))
    say(meetings, mine, third, Hello(knows, False, 1, mine.challenge))
    for _ in range(discovery.YOUNG):
        say(meetings, mine, its, Hello((place(2, 5, 2), place(1, 6, 1)), False))
        meetings.look_around()
    assert not meetings.twin and mine.misfits[2].startswith("node 2 says: others know a later")


@pytest.mark.parametrize("knows_first", [False, True])
def test_a_doubt_of_the_first_seconds_ends_no_node_an_hour_later(knows_first: bool) -> None:
    """The member that knew better says otherwise then: the node stopped, and asked nobody."""
    lost, right = (Hello((place(2, 5, 2), place(1, boot, 1)), False) for boot in (6, 5))
    meetings, _, mine, its = acquainted()
    third = Codec((), 3, 5, None, Realm(Medium.RING, "test", "totem"))
    say(meetings, mine, third, Hello((place(3, 5, 3),), False, 1, mine.challenge))
    if knows_first:
        say(meetings, mine, its, right)
        say(meetings, mine, third, Hello((place(3, 5, 3), place(1, 6, 1)), False))
    else:
        say(meetings, mine, its, lost)
        say(meetings, mine, its, right)
    for _ in range(discovery.YOUNG + 1):
        meetings.look_around()
    say(meetings, mine, its, lost)
    for _ in range(3):
        meetings.look_around()
    assert not meetings.twin


def test_who_has_this_nodes_id_elsewhere_says_so_before_it_is_met() -> None:
    """A recorded Hello of a member that was met says nothing new of it; nor does one prove anything
    of a member that was not."""
    meetings, _, mine, _ = acquainted()
    for node, boot in ((3, 5), (2, 4)):
        stranger = Codec((), node, boot, None, Realm(Medium.RING, "test", "totem"))
        say(meetings, mine, stranger, Hello((place(node, boot, 4), place(1, 9, 9)), False))
    assert not meetings.twin and mine.misfits == {}
    assert list(mine.unproven.said()) == [3]
    assert "node 3 has the id of this node, 1, at" in mine.unproven.said()[3]
    assert mine.unproven.said()[3].endswith("(by a Hello that may be an old one)")
    assert meetings.unheard() == ([], []), "of that it is said why"


# --- faults on purpose ---------------------------------------------------------------------


def test_the_shim_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    shim = FaultInjection(path, "seed")
    assert not any(shim.loses(2) for _ in range(100))
    path.write_text('{"deaf_to": [2]}')
    shim.reload()
    assert shim.loses(2)
    assert not shim.loses(3)
    path.write_text('{"loss": 0.5}')
    os.utime(path, ns=(1, 1))
    shim.reload()
    shim.lost = 0
    lost = sum(shim.loses(2) for _ in range(1000))
    assert 400 < lost < 600
    assert shim.lost == lost
    path.unlink()
    shim.reload()
    assert not any(shim.loses(2) for _ in range(100))


@pytest.mark.parametrize(
    "text", [b"{", b'{"los": 1}', b'{"loss": "much"}', b'{"deaf_to": [0]}', b'{"\xff": 1}']
)
def test_a_bad_fault_file_is_explained(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "f").write_bytes(text)
    with pytest.raises(ConfigError, match="fault_file"):
        FaultInjection(tmp_path / "f", "seed")


# --- trace log -----------------------------------------------------------------------------

EVENTS: list[TraceEvent] = [
    Restarted(1, 1, 1, 1),
    *(Submit(1, n, n, 1, n, Level.SAFE, (n, 0)) for n in range(2, 4)),
    Installed(1, 4, 4, ViewId(8, 1), (1, 2), False, ViewId(8, 1), 0, ViewId(6, 1), None),
    Crashed(1, 5, 5, "closed"),
]


def test_a_trace_is_read_back(tmp_path: Path) -> None:
    log = TraceLog(tmp_path / "t", 1, 77)
    for event in EVENTS:
        log(event)
    log.close()
    assert list(read_log(tmp_path / "t" / "1-77.trace")) == EVENTS


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    log = TraceLog(tmp_path, 1, 77)
    for event in EVENTS:
        log(event)
    log.close()
    path = tmp_path / "1-77.trace"
    whole = path.read_bytes()
    for cut in range(len(whole) - 10, len(whole)):
        path.write_bytes(whole[:cut])
        assert list(read_log(path)) == EVENTS[:4]


def test_any_damage_but_a_torn_tail_is_an_error(tmp_path: Path) -> None:
    """A length that is damaged does not make the rest of the log a torn tail."""
    log = TraceLog(tmp_path, 1, 77)
    for event in EVENTS:
        log(event)
    log.close()
    path = tmp_path / "1-77.trace"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(TraceError, match="damaged at byte"):
            list(read_log(path))


def test_much_is_flushed_without_being_asked(tmp_path: Path) -> None:
    log = TraceLog(tmp_path, 1, 77)
    event = Submit(1, 1, 1, 1, 1, Level.AGREED, (0,) * 1000)
    for _ in range(FLUSH_BYTES // 500):
        log(event)
    assert (tmp_path / "1-77.trace").stat().st_size >= FLUSH_BYTES
    log.close()


def test_a_full_disk_ends_the_trace_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TraceLog(tmp_path, 1, 77)
    real, calls = os.write, []

    def full(descriptor: int, data: bytearray) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data[: len(data) - 3]))

    log(EVENTS[0])
    log(EVENTS[1])
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        log.flush()
    assert "No space" in log.failed
    log(EVENTS[2])  # goes nowhere: behind a torn record it could not be read
    log.close()
    assert list(read_log(tmp_path / "1-77.trace")) == EVENTS[:1]

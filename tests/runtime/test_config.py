"""The configuration file: what is wrong is named, with what to write instead."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringcast.core.errors import ConfigError
from ringcast.runtime.config import NodeConfig, from_settings, load
from ringcast.runtime.port_config import PortConfig
from ringcast.sim.spec import RunSpec, SpecError, prepare

FINE: dict[str, Any] = {
    "id": 1,
    "bind": "127.0.0.1:5405",
    "peers": ["1@127.0.0.1:5405", "2@127.0.0.1:5406"],
    "state_dir": "state",
}


def config(**changes: object) -> NodeConfig:
    settings = {k: v for k, v in (FINE | changes).items() if v is not None}
    return msgspec.convert(settings, NodeConfig)


def protocol_config(node: NodeConfig) -> Any:
    """The protocol's settings, whose type only its sheet knows."""
    return node.protocol_config


def test_the_example_is_fine_and_needs_no_more() -> None:
    fine = config().check()
    assert fine.peer_addresses == {2: ("127.0.0.1", 5406)}
    assert protocol_config(fine).token_loss_us == 300_000
    measured = config(profile="measured", settings={"window_size": 7})
    assert protocol_config(measured).window_size == 7


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"bind": "5405"}, "bind = '5405': write host:port"),
        ({"bind": "5405", "key_file": "k"}, "bind = '5405': write host:port"),
        ({"state_dir": ""}, "state_dir: name a directory"),
        ({"peers": ["2"]}, "peers: '2': write id@host:port"),
        ({"peers": ["2@h"]}, "peers = 'h': write host:port"),
        ({"peers": ["2@h:1", "2@g:1"]}, "peers: an id is listed twice"),
        ({"peers": ["2@h:1", "3@h:1"]}, "peers: an address is listed twice"),
        ({"peers": []}, "no way to find the others: list them in peers"),
        ({"peers": [], "seeds": ["seed"]}, "seeds = 'seed': write host:port"),
        ({"multicast": "239.1.1.1"}, "multicast = '239.1.1.1': write host:port"),
        ({"advertise": "me"}, "advertise = 'me': write host:port"),
        ({"bind": "10.0.0.1:1"}, "not loopback and there is no key_file; make one with"),
        ({"bind": "10.0.0.1:1"}, "say insecure = true if you mean it"),
        ({"peers": ["2@10.0.0.2:1"]}, "peers: 10.0.0.2:1 is not loopback and there is no key_file"),
        ({"seeds": ["ring.example:1"]}, "seeds: ring.example:1 is not loopback and there is no"),
        ({"multicast": "239.1.1.1:1"}, "interface: any is not loopback and there is no key_file"),
        ({"multicast": "[ff02::7]:1", "interface": "eth0"}, "interface: eth0 is not loopback"),
        (
            {"bind": "0.0.0.0:1", "insecure": True, "seeds": ["seed:1"], "peers": []},
            "says nothing that others could send to; give the address they should use in advert",
        ),
        ({"protocol": "paxos"}, "protocol: no protocol called 'paxos'; known: "),
        (
            {"profile": "fast"},
            "profile: totem has no profile 'fast'; known: lan, measured, appendix",
        ),
        ({"protocol": "totm"}, "no protocol called 'totm'; did you mean totem? known: "),
        ({"settings": {"windowsize": 1}}, "settings: Object contains unknown field `windowsize`"),
        ({"settings": {"windowsize": 1}}, "`windowsize`; did you mean window_size? known: max_"),
        (
            {"protocol": "total", "settings": {"mode": "uniforn"}},
            "'uniforn' - at `$.mode`; did you mean uniform? known: prefix, agreed, uniform",
        ),
        ({"settings": {"window_size": "1"}}, "settings: Expected `int`"),
        ({"settings": {"join_us": 10**9}}, "settings: join_us = 1000000000 must be below"),
        ({"protocol": "token-fd", "settings": {"f": 1}}, "settings: f = 1 needs 3 members or more"),
        (
            {"protocol": "token-fd", "peers": [], "seeds": ["seed:1"]},
            "peers: token-fd must know all who may take part; list them",
        ),
        (
            {"protocol": "rbp", "settings": {"resiliency": "number", "tolerated": 9}},
            "settings: tolerated = 9 with resiliency = number must be below 2, the number of",
        ),
        (
            {"protocol": "irbp", "settings": {"resiliency": "number", "tolerated": 2}},
            "settings: tolerated = 2 with resiliency = number must be below 2, the number of",
        ),
        (
            {"protocol": "irbp", "settings": {"max_packet": 140}},
            "settings: max_packet = 140 leaves no room for pieces of what a change carries",
        ),
        (
            {"protocol": "total", "settings": {"quorum": 3}},
            "settings: quorum = 3 is never reached: the group has 2 members",
        ),
        (
            {"protocol": "rbp", "settings": {"members": [1, 2]}},
            "settings: members is no setting: list all nodes in peers",
        ),
        ({"settings": {"max_message": 65536}}, "max_message = 65536 leaves no room for a group's"),
        ({"journal": "a\0b"}, r"journal = 'a\x00b': it has a character that cannot be written"),
        ({"trace_dir": "\0"}, r"trace_dir = '\x00': it has a character that cannot be written"),
        ({"state_dir": "\0"}, r"state_dir = '\x00': it has a character that cannot be written"),
        ({"key_file": "\ud800"}, r"key_file = '\ud800': it has a character that cannot be written"),
        ({"network": "\ud800"}, r"network = '\ud800': it has a character that cannot be written"),
        ({"network": "\udcff"}, r"network = '\udcff': it has a character that cannot be written"),
        ({"peers": ["2@\0:1"]}, r"peers = '2@\x00:1': it has a character that cannot be written"),
        ({"settings": {"max_packet": 65500}}, "max_packet = 65500 does not fit a UDP datagram"),
    ],
)
def test_every_mistake_is_explained(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**changes).check()
    assert complaint in str(caught.value)


def test_a_file_may_have_a_name_that_is_no_text() -> None:
    config(journal=os.fsdecode(b"j\xff")).check()


@pytest.mark.parametrize("protocol", ["counter", "rbp", "irbp", "token-fd"])
def test_a_setting_that_no_user_sets_is_not_among_those_that_are_known(protocol: str) -> None:
    with pytest.raises(ConfigError, match=r"known: .*max_packet") as caught:
        config(protocol=protocol, settings={"nonesuch": 1}).check()
    assert "members" not in str(caught.value).partition("known: ")[2].split(", ")
    with pytest.raises(SpecError, match=r"known: .*max_packet") as seen:
        prepare(RunSpec(protocol=protocol, config={"nonesuch": 1}))
    assert "members" not in str(seen.value).partition("known: ")[2].split(", ")


def test_a_quorum_may_be_larger_than_a_list_that_is_not_everybody() -> None:
    wide = {"protocol": "total", "settings": {"quorum": 3}}
    config(**wide, seeds=["127.0.0.1:5407"]).check()
    with pytest.raises(SpecError, match="quorum = 3 is never reached: the group has 2 members"):
        prepare(RunSpec(protocol="total", nodes=2, config={"quorum": 3}))


@pytest.mark.parametrize(
    ("bind", "listed"),
    [
        ("127.0.0.1:5405", "127.0.0.1:5407"),
        ("127.0.0.1:5405", "127.0.0.2:5405"),
        ("[::1]:5405", "127.0.0.1:5405"),
        ("localhost:5405", "127.0.0.1:5407"),
        ("[::1]:5405", "[::1]:5407"),
        ("10.0.0.1:5405", "10.0.0.1:5407"),
        ("node.example:5405", "node.example:5407"),
    ],
)
def test_a_node_in_two_places_is_told_which(bind: str, listed: str) -> None:
    """It was accepted, and the others sent to nobody."""
    places = {"bind": bind, "peers": [f"1@{listed}", "2@127.0.0.1:5406"], "insecure": True}
    with pytest.raises(ConfigError) as caught:
        config(**places).check()
    assert f"peers has id 1 at {listed}, but bind is {bind}" in str(caught.value)
    assert "If that address leads here, say so in advertise" in str(caught.value)
    config(**places, advertise=listed).check()


@pytest.mark.parametrize(
    ("bind", "listed"),
    [
        ("0.0.0.0:5405", "10.0.0.1:5407"),  # a port that is mapped
        ("127.0.0.1:0", "127.0.0.1:5407"),
        ("10.0.0.1:5405", "203.0.113.1:5405"),  # NAT
        ("127.0.0.1:5405", "10.0.0.1:5405"),  # a proxy
        ("localhost:5405", "127.0.0.1:5405"),
        ("node.example:5405", "10.0.0.1:5407"),
    ],
)
def test_places_that_may_be_one_are_left_alone(bind: str, listed: str) -> None:
    config(bind=bind, peers=[f"1@{listed}", "2@127.0.0.1:5406"], insecure=True).check()


def test_an_unknown_protocol_is_answered_with_those_that_nodes_run() -> None:
    with pytest.raises(ConfigError) as caught:
        config(protocol="paxos").check()
    named = str(caught.value).partition("known: ")[2].split(", ")
    assert {"counter", "irbp", "rbp", "totem"} <= set(named)
    assert "centralised" not in named, "it is there to be compared"


NORTH: dict[str, Any] = {"bind": "127.0.0.1:5405", "peers": ["1@127.0.0.1:1"]}
SOUTH: dict[str, Any] = {"bind": "127.0.0.1:5406", "seeds": ["127.0.0.1:2"], "id": 19}


def gateway(*ports: dict[str, Any], **changes: Any) -> NodeConfig:
    """A node that says all of its domains in tables."""
    settings = {"id": 9, "state_dir": "state", "protocol": "totem-multi", "ports": list(ports)}
    return from_settings(settings | changes)


def test_a_node_with_one_port_is_its_port() -> None:
    flat = config()
    assert flat.domains == (flat,)
    table = {name: FINE[name] for name in ("bind", "peers")}
    (port,) = gateway(table, id=1).check().domains
    assert all(getattr(port, name) == getattr(flat, name) for name in PortConfig.__struct_fields__)


def test_each_port_has_an_id_and_ways_to_find_the_others() -> None:
    north, south = gateway(NORTH, SOUTH).check().domains
    assert (north.id, south.id) == (9, 19)
    assert north.peer_addresses == {1: ("127.0.0.1", 1)}
    assert south.seed_addresses == [("127.0.0.1", 2)]


@pytest.mark.parametrize(
    ("ports", "changes", "complaint"),
    [
        ([NORTH, {}], {}, "ports[1]: bind: say where to listen, as host:port"),
        ([NORTH, {"bind": "x"}], {}, "ports[1]: bind = 'x': write host:port"),
        ([NORTH, {"bind": "127.0.0.1:1"}], {}, "ports[1]: no way to find the others"),
        ([NORTH, SOUTH | {"seeds": ["s:1"]}], {}, "ports[1]: seeds: s:1 is not loopback and there"),
        ([NORTH, NORTH], {}, "ports[1]: bind = '127.0.0.1:5405' is that of ports[0]; each port"),
        (
            [
                NORTH | {"multicast": "239.1.1.1:1", "interface": "127.0.0.1"},
                SOUTH | {"multicast": "239.1.1.1:1", "interface": "127.0.0.1"},
            ],
            {},
            "ports[1]: multicast = '239.1.1.1:1' is that of ports[0]; each broadcast domain",
        ),
        ([NORTH, SOUTH], {"bind": "127.0.0.1:7"}, "bind: a node with [[ports]] says this in each"),
        ([NORTH, SOUTH], {"key_file": "k"}, "key_file: a node with [[ports]] says this in each of"),
        ([SOUTH], {}, "ports[0]: id: a node with one port has one id; leave it out here"),
        (
            [NORTH, {k: v for k, v in SOUTH.items() if k != "id"}],
            {},
            "ports[1]: id: give this port an id of its own, which no other port and no node of any "
            "ring has; 9 is in ports[0]",
        ),
        ([NORTH | {"id": 5}, SOUTH], {}, "ports[0]: id: the first port has the node's own id, 9: "),
        ([NORTH, SOUTH | {"id": 1}], {}, "ports[1]: id: give this port an id of its own"),
        (
            [NORTH, SOUTH | {"peers": ["1@127.0.0.1:7"]}],
            {},
            "ports[1]: peers: 1 is in ports[0] as well; an id names one node, or one port of a",
        ),
        ([NORTH, SOUTH | {"peers": ["9@127.0.0.1:7"]}], {}, "ports[1]: peers: 9 is in ports[0]"),
        ([NORTH, {"bnd": ""}], {}, "`bnd` - at `$.ports[1]`; did you mean bind? known: id, bind"),
        ([NORTH, {"id": 0}], {}, "Expected `int` >= 1 - at `$.ports[1].id`"),
        (
            [NORTH, SOUTH],
            {"protocol": "token-fd"},
            "peers: token-fd must know all who may take part; list them",
        ),
        (
            [NORTH, SOUTH],
            {"protocol": "totem"},
            "ports: 2 broadcast domains are more than the 1 that a node of totem can be in; take a "
            "protocol that joins them (",
        ),
        ([NORTH, SOUTH | {"network": "\0"}], {}, r"ports[1]: network = '\x00': it has a character"),
        ([NORTH, SOUTH], {"journal": "\0"}, r"journal = '\x00': it has a character"),
        ([NORTH] * 17, {}, "the 16 that a node of totem-multi can be in; leave tables out, or"),
    ],
)
def test_mistakes_with_ports_are_explained(
    ports: list[dict[str, Any]], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        gateway(*ports, **changes).check()
    assert complaint in str(caught.value)


def test_fixed_members_are_this_node_and_its_peers() -> None:
    peers = ["3@127.0.0.1:3", "1@127.0.0.1:5405", "2@127.0.0.1:2"]
    fixed = protocol_config(config(protocol="token-fd", peers=peers).check())
    assert (fixed.members, fixed.faults) == ((1, 2, 3), 1)


def test_others_find_a_node_where_it_says_or_where_peers_list_it() -> None:
    anywhere = {"bind": "0.0.0.0:5405", "insecure": True}
    assert config(**anywhere).check().public_address == ("127.0.0.1", 5405)
    assert config(**anywhere, advertise="n:1").check().public_address == ("n", 1)
    assert config(**anywhere, peers=["2@h:1"]).check().public_address.unspecified


@pytest.mark.parametrize(
    "changes",
    [{"receive_buffer": 2**31}, {"journal_patience_s": -1.0}, {"journal_patience_s": math.nan}],
)
def test_numbers_that_no_system_takes_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        config(**changes)


def test_without_keys_only_loopback_unless_said_out_loud() -> None:
    config(bind="[::1]:5405", peers=["1@[::1]:5405", "2@127.0.0.1:5406"]).check()
    config(bind="localhost:5405").check()
    config(bind="0.0.0.0:5405", insecure=True).check()
    config(bind="0.0.0.0:5405", key_file="group.key").check()
    config(bind="0.0.0.0:1", key_file="k", seeds=["s:1"], advertise="n1.example:1").check()
    config(multicast="239.1.1.1:1", interface="127.0.0.1").check()
    config(multicast="[ff02::7]:1", interface="lo").check()
    config(peers=["2@10.0.0.2:1"], seeds=["s:1"], multicast="239.1.1.1:1", key_file="k").check()


def test_a_file_and_its_paths(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "node.toml"
    path.parent.mkdir()
    path.write_text(
        """
        id = 3
        bind = "127.0.0.1:0"
        seeds = ["localhost:5405"]
        key_file = "group.key"
        state_dir = "/var/lib/ringcast"
        trace_dir = "../trace"
        [settings]
        token_loss_us = 100_000
        """
    )
    read = load(path)
    assert read.key_file == str(path.parent / "group.key")
    assert read.state_dir == "/var/lib/ringcast"
    assert Path(read.trace_dir).resolve() == tmp_path / "trace"
    assert read.fault_file == ""
    several = path.with_name("gateway.toml")
    several.write_text(
        """
        id = 9
        state_dir = "state"
        protocol = "totem-multi"
        [[ports]]
        bind = "127.0.0.1:0"
        seeds = ["localhost:5405"]
        key_file = "north.key"
        [[ports]]
        id = 19
        bind = "127.0.0.1:0"
        seeds = ["localhost:5406"]
        key_file = "/etc/south.key"
        """
    )
    files = [port.key_file for port in load(several).ports]
    assert files == [str(path.parent / "north.key"), "/etc/south.key"]
    assert protocol_config(read).token_loss_us == 100_000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id = ", "Invalid"),
        ("id = 1\n[ports]", "begin the table of each port with [[ports]], not with [ports]"),
        ("id = 0", "Expected `int` >= 1 - at `$.id`"),
        ("id = 1", "missing required field `state_dir`"),
        ('id = 1\nstate_dir = "s"', "bind: say where to listen, as host:port"),
        ('id = 1\nbind = "h:1"', "missing required field `state_dir`"),
        ('id = 1\nbind = "h:1"\nstate_dir = "s"\nbindd = 1', "unknown field `bindd`"),
        ('id = 1\nbind = "h:1"\nstate_dir = "s"\nbindd = 1', "did you mean bind? known: "),
        ("id = 1\nwindow_size = 1", "window_size is a setting of totem: write it below [settings]"),
        (
            'id = 1\nprotocol = "totem-multi"\nacyclic = true',
            "acyclic is a setting of totem-multi: write it below [settings]",
        ),
        (
            'id = 1\n[settings]\nwindow_size = 1\njournal = "j"',
            "settings: journal is the node's: write it above all tables",
        ),
        (
            'id = 1\n[[ports]]\nbind = "h:1"\n[[ports]]\nfault_file = "f"',
            "ports[1]: fault_file is the node's: write it above all tables",
        ),
        ("[journal_limits]\nkeepbytes = 1", "`; did you mean keep_bytes? known: segment_bytes, "),
        ('id = 1\nbind = "127.0.0.1:1"\nstate_dir = "s"', "no way to find the others"),
        ("a = " + "[" * 3000 + "]" * 3000, "recursion"),
        ("id = " + "9" * 5000, "limit"),
        (f'id = 1\nbind = "127.0.0.1:1"\nstate_dir = "s"\npeers = ["{"9" * 5000}@a:1"]', "id@host"),
        (f'id = 1\nbind = "127.0.0.1:{"9" * 5000}"\nstate_dir = "s"', "host:port"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary: "):
        load(tmp_path / "binary")

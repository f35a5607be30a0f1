"""Scenario S35 for the numbers of messages, which no scenario text can set: 2^32 is nothing
special (totem G28), before, during and after a recovery.
"""

from __future__ import annotations

import ringcast.protocols  # noqa: F401
from ringcast.checks import suite
from ringcast.core.ids import Level
from ringcast.core.registry import protocol
from ringcast.core.trace import Delivered, Installed, TraceEvent
from ringcast.protocols.totem_single import Config, TotemSingle
from ringcast.protocols.totem_single.messages import Token
from ringcast.sim.cluster import Cluster
from ringcast.sim.network import Tamper
from ringcast.sim.presets import preset

BASE = 2**32 - 2


def test_s35_message_numbers_cross_32_bits() -> None:
    """R10-R16, R57, R66, R72, G26, G28."""
    sheet = protocol("totem")
    config = Config(hold_us=0, packing=False)
    checks = suite(sheet.claims(config), sheet.progress_bound_us(config, 3))
    seen: list[TraceEvent] = []
    cluster = Cluster(
        sheet,
        config,
        (1, 2, 3),
        preset("ideal"),
        observers=[checks.feed, seen.append],
    )
    cluster.start()
    cluster.run_for(100_000)
    pretend_to_be_at(cluster, BASE)

    cluster.tamper(Tamper(src=1, dst=3, message="Regular"))
    for node in (1, 2, 3):
        for body in (b"a", b"b", b"c"):
            assert cluster.submit(node, (body,), Level.SAFE)
    cluster.run_for(10_000)
    for node in (1, 2, 3):
        seqs = [e.seq for e in seen if isinstance(e, Delivered) and e.node == node]
        assert seqs == list(range(BASE + 1, BASE + 10))

    cluster.tamper(Tamper(src=1, message="Regular", count=4))  # both lost at both
    assert cluster.submit(1, (b"d",), Level.SAFE)
    assert cluster.submit(1, (b"e",), Level.SAFE)
    cluster.run_for(200)
    cluster.crash(2)
    cluster.run_for(1_000_000)
    for node in (1, 3):
        last = [e for e in seen if isinstance(e, Delivered | Installed) and e.node == node][-4:]
        transitional, d, e, regular = last
        assert isinstance(transitional, Installed)
        assert (transitional.view.seq, transitional.seq) == (10, BASE + 9)
        assert isinstance(d, Delivered) and isinstance(e, Delivered)
        assert (d.seq, e.seq) == (BASE + 10, BASE + 11)
        assert isinstance(regular, Installed) and regular.members == (1, 3)
    assert not checks.violations
    assert not cluster.recorder.violations


def pretend_to_be_at(cluster: Cluster, base: int) -> None:
    """Let a quiet ring go on as if ``base`` messages had been sent and delivered on it."""
    for node in cluster.ids:
        machine = cluster.machine(node)
        assert isinstance(machine, TotemSingle)
        ring = machine.old
        ring.begin(base + 1)
        ring.my_high_delivered = ring.safe_bound = base
        machine.token.last_aru_seen = machine.flow.last_token_seq = base
        machine.token.my_token_seq = 1_000  # the token under way is a stale one now
    assert isinstance(machine, TotemSingle)
    token = Token(machine.my_ring_id, 1_000, base, base, None, (), 0, False)
    cluster.inject(1, cluster.frame(3, token), unicast=True)

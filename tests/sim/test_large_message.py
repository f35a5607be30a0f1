"""A message of 16 MiB through Totem, with loss and a change of the membership in its middle."""

from __future__ import annotations

from random import Random

import pytest

from ringcast.checks import suite
from ringcast.core.ids import Level
from ringcast.core.registry import protocol
from ringcast.core.trace import Delivered, Ended, Installed, TraceEvent, digests
from ringcast.protocols.totem_single import Config, TotemSingle
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Constant, LinkModel, NetworkModel

MIB = 2**20
CONFIG = Config(max_packet=9000)
FRAMES = 16 * MIB // CONFIG.frame_budget + 1
"""What it takes to carry the message."""

LINK = LinkModel(delay=Constant(100), loss=0.01, unicast_loss=0.002)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("change", ["crash", "join"])
def test_16_mib_with_loss_and_a_membership_change(change: str, level: Level) -> None:
    """R97, R98, R99: whoever is in the ring at the end has it whole, once; the half that was sent
    on the ring before counts for nothing, and the sender starts from the beginning."""
    sheet = protocol("totem")
    checks = suite(sheet.claims(CONFIG), sheet.progress_bound_us(CONFIG, 4))
    seen: list[TraceEvent] = []
    cluster = Cluster(
        sheet,
        CONFIG,
        (1, 2, 3, 4),
        NetworkModel(link=LINK),
        observers=[checks.feed, seen.append],
    )
    cluster.start(1, 2, 3, *([4] if change == "crash" else []))
    cluster.run_for(1_000_000)
    sender = cluster.machine(2)
    assert isinstance(sender, TotemSingle)
    first_ring = sender.my_ring_id
    body = Random("16 MiB").randbytes(16 * MIB)
    assert cluster.submit(2, (body,), level)
    assert cluster.submit(3, (b"small",), level)
    while sender.old.my_aru < FRAMES // 2:
        cluster.run_for(1_000)
    if change == "crash":
        cluster.crash(4)
    else:
        cluster.start(4)
    cluster.run_for(20_000_000)

    members = (1, 2, 3) if change == "crash" else (1, 2, 3, 4)
    cluster.recorder.emit(Ended(cluster.now_us, members))
    assert not checks.violations
    assert not cluster.recorder.violations
    assert cluster.counts.lost["loss"] > FRAMES // 100
    for node in members:
        views = [e for e in seen if isinstance(e, Installed) and e.node == node]
        assert views[-1].members == members
        got = [e for e in seen if isinstance(e, Delivered) and e.node == node]
        (whole,) = [e for e in got if digests((body,))[0] in e.digests]
        assert whole.sender == 2
        assert whole.ring == views[-1].ring != first_ring
        assert whole.seq >= FRAMES, "the whole message on the new ring"
    old_half = [e for e in seen if isinstance(e, Delivered) and e.ring == first_ring]
    assert {e.sender for e in old_half} == {3}, "nothing of the first attempt goes up"
    assert checks.verdicts()["D3"] == "valid"

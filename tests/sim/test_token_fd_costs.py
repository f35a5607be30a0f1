"""What token-fd costs, against the arithmetic of its dossier (section 4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from ringcast.core.trace import Noted, TraceEvent
from ringcast.protocols.token_fd.token_path import Sent
from ringcast.sim.faults import Expire
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson, Sizes

HOP_US = 100
NETWORK = NetworkModel(link=LinkModel(delay=Constant(HOP_US)))


def spec(nodes: int, **changes: Any) -> RunSpec:
    """The source's form, where only the token carries messages, and it never rests."""
    usual: dict[str, Any] = {
        "protocol": "token-fd",
        "profile": "paper",
        "config": {"hold_us": 0},
        "nodes": nodes,
        "network": NETWORK,
        "duration_us": 400_000,
        "measure_from_us": 10_000,
        "workload": (Poisson(rate=700 / nodes, sizes=(Sizes(10, 10),)),),
        "settle": False,
    }
    return RunSpec(**usual | changes)


@pytest.mark.parametrize(("nodes", "f"), [(3, 1), (4, 1), (7, 2)])
def test_first_delivery_takes_the_waiting_the_slot_and_the_votes(nodes: int, f: int) -> None:
    """Half a round until the token comes, (f - 1) / 2 for a free proposal, f hops of votes."""
    expected_ms = (nodes / 2 + (f - 1) / 2 + f) * HOP_US / 1e3
    result = run(spec(nodes))
    assert result.measures.agreed.messages > 150
    assert result.measures.agreed.first_ms == pytest.approx(expected_ms, rel=0.1)
    assert result.measures.rotation_ms == pytest.approx(nodes * HOP_US / 1e3, rel=0.01)


def test_a_hop_costs_a_frame_or_with_copies_f_plus_1() -> None:
    """Besides heartbeats: n a period, whatever else happens (TF-36)."""
    for copies, frames in ((False, 1), (True, 3)):
        idle = spec(7, config={"hold_us": 0, "copies": copies}, workload=(), measure_from_us=0)
        result = run(idle)
        hops = result.simulated_us / HOP_US
        beats = 7 * result.simulated_us / 20_000
        assert result.frames == pytest.approx(frames * hops + beats, rel=0.01)


def test_false_suspicions_cost_no_more_hops_than_the_formula_says() -> None:
    """With probability q of a gap at a hop, f hops in a row without one take
    (1 - s^f) / ((1 - s) s^f) on average, s = 1 - q. It takes fewer: members that are passed by
    vote as well, and what they decide is learned from their tokens."""
    f, notes = 2, []

    def see(event: TraceEvent) -> None:
        if isinstance(event, Noted) and event.what in ("token", "decide"):
            notes.append((event.what, event.node, event.data or ()))

    mistakes = Expire(10_000, "ring detector watch", 0, 150)
    run(spec(7, faults=(mistakes,)), [see])
    tokens = {data[0]: Sent.of(node, data) for what, node, data in notes if what == "token"}
    steps = [token.hop - token.after for token in tokens.values()]
    kept = 1 - sum(step > 1 for step in steps) / len(steps)
    taken = []
    for at, (what, node, _) in enumerate(notes):
        if what == "decide":
            sent = next(data for w, n, data in notes[at:] if w == "token" and n == node)
            taken.append(hops_of_votes(tokens, Sent.of(node, sent).after) + 1)
    assert 0.5 < kept < 0.95
    assert len(taken) > 100
    assert f < sum(taken) / len(taken) < (1 - kept**f) / ((1 - kept) * kept**f)


def hops_of_votes(tokens: dict[int, Sent], hop: int) -> int:
    """From the token that made a proposal to ``hop``, which carries it: how often it was taken."""
    count = 0
    here = tokens[hop]
    while (before := tokens.get(here.after)) is not None:
        if (before.length, before.proposal) != (here.length, here.proposal):
            break
        count += 1
        here = before
    return count

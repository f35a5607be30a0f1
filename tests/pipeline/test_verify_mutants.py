"""The checks catch every mutant in the simulator, and in the files of its run, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ringcast.checks import Verdict, suite
from ringcast.pipeline.verify import run_verifier as judging
from ringcast.pipeline.verify.condense import plan
from ringcast.pipeline.verify.condense import runs as pieces
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.sim.run import run
from ringcast.sim.spec import claims_of
from ringcast.traces import Claims, TraceWriter, parquet, read_claims, read_trace

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
from catalogue import MUTANTS, killers

OWN = {"progress", "no-crash"}
"""What only the simulator can see. It stops there, so that the trace has no end."""

KILLERS = killers()


@pytest.mark.parametrize("name", KILLERS)
def test_mutant_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, killer = MUTANTS[name], KILLERS[name]
    spec = killer.spec()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BUFFERED", 200)
        mutant.patch(patch)
        with TraceWriter(tmp_path, claims=claims_of(spec)) as writer:
            result = run(spec, [writer])
    breaks = {breach.property for breach in result.violations}
    assert breaks == set(killer.breaks), "run: python tests/mutants/catalogue.py"
    assert breaks & set(mutant.caught_by)
    monkeypatch.setattr(judging, "SMALL_ROWS", 0)
    monkeypatch.setattr(plan, "LEAST_ROWS", 1)
    monkeypatch.setattr(plan, "WINDOW_ROWS", 400)
    monkeypatch.setattr(pieces, "LEAST_RUN", 4)
    found = verify_run(tmp_path, 0, VerifyRequest((), Claims(())))
    claims = read_claims(tmp_path)
    assert claims is not None
    exact = suite(claims.tags, claims.bound_us)
    for event in read_trace(tmp_path):
        exact.feed(event)
    assert found.verdicts == exact.verdicts()
    assert {(v.property, v.nodes, v.messages) for v in found.violations} == {
        (v.property, v.nodes, v.messages) for v in exact.violations
    }
    broken = {tag for tag, verdict in found.verdicts.items() if verdict is Verdict.INVALID}
    assert broken == set(killer.breaks) - OWN

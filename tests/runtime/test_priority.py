"""Running ahead of ordinary processes: as before afterwards, and a clear word where it may not."""

from __future__ import annotations

import os

import pytest

from ringcast.core.errors import ConfigError
from ringcast.runtime.priority import Priority

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="not on this system")


def test_it_is_taken_and_put_back() -> None:
    before = os.sched_getscheduler(0)
    try:
        priority = Priority()
    except ConfigError:
        pytest.skip("not permitted here")
    assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    priority.restore()
    assert os.sched_getscheduler(0) == before


def test_who_may_not_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(ConfigError, match="CAP_SYS_NICE"):
        Priority()

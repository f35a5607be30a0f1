"""The pytest plugin: options for tests made with ``simtest``."""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Two options."""
    group = parser.getgroup("simtest", "programs under simulated faults")
    group.addoption(
        "--simtest-seed",
        metavar="SEED",
        help="run this seed of every simtest, or a range 0..200, instead of the test's own",
    )
    group.addoption(
        "--simtest-seeds", metavar="N", type=int, help="run the first N seeds of every simtest"
    )


def pytest_configure(config: Any) -> None:
    """Hand them on."""
    seed, count = config.getoption("--simtest-seed"), config.getoption("--simtest-seeds")
    if seed is None and count is None:
        return  # without an option nothing of ours is imported
    import pytest

    from ringcast.sim.scenario.syntax import seed_range
    from ringcast.testing.campaign import OPTIONS

    if count is not None and count < 1:
        raise pytest.UsageError(f"--simtest-seeds {count}: give 1 or more")
    try:
        OPTIONS.seeds = None if seed is None else tuple(seed_range(seed))
    except ValueError as error:
        raise pytest.UsageError(f"--simtest-seed: {error}") from None
    OPTIONS.count = count

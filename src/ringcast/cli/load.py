"""What the members of a simulated group send, as the options say it."""

from __future__ import annotations

from ringcast.console.options import check_within, fail
from ringcast.sim.workload import Poisson, Saturate, Sizes, Workload

FASTEST = 1e6
"""Messages a second and member; more is taken for a slip of the pen."""


def load_of(load: str | None, size: int | None, safe: float | None) -> tuple[Workload, ...]:
    """``--load``, ``--size`` and ``--safe`` as a workload; each has a default."""
    if load == "none":
        if size is not None or safe is not None:
            fail("--load none sends nothing, so leave out --size and --safe")
        return ()
    share = 0.3 if safe is None else safe
    check_within("--safe", share, 0, 1)
    sizes = (Sizes(16, 64) if size is None else Sizes(size, size),)
    if load == "saturate":
        return (Saturate(sizes=sizes, safe=share),)
    kind, _, text = (load or "poisson:200").partition(":")
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if kind != "poisson" or not 0 < rate <= FASTEST:
        fail(f"--load {load!r} is not none, saturate or a rate such as poisson:80")
    return (Poisson(rate=rate, sizes=sizes, safe=share),)

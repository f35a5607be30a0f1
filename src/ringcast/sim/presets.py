"""Networks with a name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ringcast.sim.model import Constant, CpuModel, Exponential, LinkModel, Lognormal, NetworkModel

PRESETS: Mapping[str, NetworkModel] = MappingProxyType(
    {
        "ideal": NetworkModel(link=LinkModel(delay=Constant(100))),
        "lan": NetworkModel(
            link=LinkModel(
                delay=Exponential(base_us=80, tail_us=20, most_us=2_000),
                loss=0.0005,
                unicast_loss=0.0005,
                bandwidth_bps=1_000_000_000,
            ),
            overhead_bytes=66,
        ),
        "wan": NetworkModel(
            link=LinkModel(
                delay=Lognormal(median_us=20_000, sigma=0.2, most_us=200_000),
                loss=0.005,
                unicast_loss=0.005,
                bandwidth_bps=100_000_000,
            ),
            overhead_bytes=66,
        ),
        "lossy": NetworkModel(
            link=LinkModel(
                delay=Exponential(base_us=80, tail_us=100, most_us=5_000),
                loss=0.1,
                unicast_loss=0.1,
                duplicate=0.02,
                reorder=0.05,
                reorder_us=1_000,
            ),
        ),
        # Five Sun IPCs on one Ethernet, calibrated on the published figures (Agarwal 1994,
        # section 5): b = 1.4 ms a token visit, 0.784 ms + 0.342 us a byte to send a message.
        # A frame is 64 bytes longer than its message, so their share of the per-byte cost is
        # taken off the fixed one. Passing on a token costs its sender, which lets the last
        # message be received meanwhile; what is missing to b is the token's time on the wire.
        "sun-ipc-ethernet": NetworkModel(
            link=LinkModel(delay=Constant(10), bandwidth_bps=10_000_000),
            overhead_bytes=66,
            shared=True,
            cpu=CpuModel(
                send_us=784 - 0.342 * 64,
                send_us_per_byte=0.342,
                receive_us=200,
                receive_us_per_byte=0.05,
                unicast_send_us=1_285,
            ),
        ),
    }
)


def preset(name: str) -> NetworkModel:
    """The network called ``name``; the error lists what there is."""
    try:
        return PRESETS[name]
    except KeyError:
        raise LookupError(f"no network called {name!r}; known: {', '.join(PRESETS)}") from None

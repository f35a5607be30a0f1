"""What the live measurements have in common: windows of one length, and sound results."""

from __future__ import annotations

from typing import Any

from promises import Book

from ringcast.bench.run import Figures, Trial


class Windows(Book):
    """Everything measured, and how long each window is."""

    def __init__(self, seconds: float, wanted: set[str]) -> None:
        super().__init__()
        self.seconds = seconds
        self.wanted = wanted

    def trial(self, nodes: int, size: int = 1024, **more: Any) -> Trial:
        """A measurement over the bridge, with multicast."""
        usual: dict[str, Any] = {
            "nodes": nodes,
            "size": size,
            "seconds": self.seconds,
            "warm_s": 0.5,
            "namespaces": True,
            "multicast": True,
        }
        return Trial(**usual | more)


def sound(figures: Figures) -> Figures:
    """A measurement in which the order did not break."""
    if figures.lost or figures.reordered:
        raise RuntimeError(f"lost {figures.lost}, out of order {figures.reordered}")
    return figures

"""Where Spark looks for ``format("ringcast")``: a module of this name with ``DefaultSource``."""

from ringcast.pipeline.stream.source import RingcastSource as DefaultSource

__all__ = ["DefaultSource"]

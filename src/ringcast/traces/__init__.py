"""Traces outside memory: Parquet files for runs, a small text language for stories."""

from ringcast.traces.parquet import TraceError, TraceWriter, read_trace, runs

__all__ = ["TraceError", "TraceWriter", "read_trace", "runs"]

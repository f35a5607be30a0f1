"""Traces outside memory: Parquet files for runs, a small text language for stories."""

from ringcast.traces.parquet import (
    Claims,
    TraceError,
    TraceFile,
    TraceWriter,
    read_claims,
    read_trace,
    runs,
)

__all__ = [
    "Claims",
    "TraceError",
    "TraceFile",
    "TraceWriter",
    "read_claims",
    "read_trace",
    "runs",
]

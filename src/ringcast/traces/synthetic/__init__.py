"""Traces made up for benchmarks and tests, with or without faults."""

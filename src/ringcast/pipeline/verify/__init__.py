"""Verification of traces of any size, as Spark tasks."""

"""Traces outside memory: Parquet files for runs, a small text language for stories."""

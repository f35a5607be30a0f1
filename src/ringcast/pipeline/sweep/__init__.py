"""Sweeps: many simulations of a study, as Spark tasks."""

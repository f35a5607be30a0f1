"""Programs under simulated faults."""

"""Live benchmarks: members that measure, and the network they run on."""

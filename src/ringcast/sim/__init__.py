"""The simulator: the real protocol machines in virtual time, on a network that misbehaves on
purpose.

Everything random comes from streams derived from one seed, so a run is a value: the same
``RunSpec`` gives the same trace, on every machine and in every process.
"""

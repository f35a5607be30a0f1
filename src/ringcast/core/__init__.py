"""The kernel: what a protocol machine is, what it may be told and what it may ask for.

Nothing here reads a clock, a socket, an environment variable or a global random source,
and nothing here imports another package of ringcast.
"""

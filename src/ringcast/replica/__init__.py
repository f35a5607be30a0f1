"""Replicated state that is never contradicted: a log by quorum, on disk, over any total order.

The rules are numbered RS-1 to RS-16 in docs/replication.md, with where they come from. ``words`` is
what replicas say to each other through the group, ``engine`` the state machine without I/O,
``log`` what it remembers, ``store`` that on disk, ``sessions`` makes a repeated request harmless.
"""

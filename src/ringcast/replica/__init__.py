"""Replicated state that is never contradicted: a log by quorum, on disk, over any total order.

The rules are numbered RS-1 to RS-16 in docs/replication.md, with where they come from. ``words`` is
what replicas say to each other through the group, ``engine`` the state machine without I/O, with
``disk_log`` what it writes and ``progress`` how an attempt gets on, ``exchange`` how all decide,
``log`` what is remembered, ``store`` that on disk, ``sessions`` makes a repeated request harmless.
"""

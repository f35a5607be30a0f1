"""Totally ordered group communication for Python, with a deterministic simulator.

Every member of a group sees the same messages and the same membership changes in the same order.
The protocols are machines without I/O (``ringcast.core``, ``ringcast.protocols``); the simulator
(``ringcast.sim``) runs whole groups of them under faults, and ``ringcast.checks`` says whether
what happened is what the protocol promises.
"""

from __future__ import annotations

__version__ = "0.1.0"

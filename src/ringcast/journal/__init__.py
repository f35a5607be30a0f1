"""The journal: the ordered log of a node on disk, for people, for Spark and for other nodes.

A journal is a folder of append-only segments. What a node delivers and the views it installs are
its records, in the order of their places, which is the total order of the group. ``format``
is the bytes on disk, ``writer`` the folder as its node writes it, ``reader`` and ``merged_reader``
one and several as everybody else sees them.
"""

from ringcast.journal.format.layout import JournalError

__all__ = ["JournalError"]

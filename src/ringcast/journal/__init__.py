"""The journal: the ordered log of a node on disk, for people, for Spark and for other nodes.

A journal is a folder of append-only segments. What a node delivers and the views it installs are
its records, in the order of their places, which is the total order of the group. ``layout`` is
what a record is, ``segment`` one file, ``log`` the folder as its node writes it, ``reading`` the
folder as everybody else sees it.
"""

from ringcast.journal.format.layout import JournalError, Place

__all__ = ["JournalError", "Place"]

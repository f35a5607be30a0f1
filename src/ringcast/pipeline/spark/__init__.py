"""Spark itself: sessions, Java, a local cluster, tasks and progress."""

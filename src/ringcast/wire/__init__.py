"""Bytes from outside: addresses, keys and the codec between messages and datagrams."""

"""The published protocols, a package each. Importing this package registers them all."""

from ringcast.protocols import token_fd, total, totem_single

__all__ = ["token_fd", "total", "totem_single"]

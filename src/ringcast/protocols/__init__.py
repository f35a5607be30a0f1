"""The published protocols, a package each. Importing this package registers them all."""

from ringcast.protocols import token_fd, totem_single

__all__ = ["token_fd", "totem_single"]

"""The published protocols, a package each. Importing this package registers them all."""

from ringcast.protocols import totem_single

__all__ = ["totem_single"]

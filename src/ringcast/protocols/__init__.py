"""The protocols, a package each. Importing this package makes them known by name.

Other distributions may bring protocols of their own: each entry point in the group
``ringcast.protocols`` names a module, and importing the module registers its sheets. That happens
when a protocol or a property is asked for that is not among ours.
"""

from ringcast.core.registry import add_source, place

DEFAULT = "totem"
"""The protocol of someone who names none."""

place("ringcast.protocols.totem_single", "totem")
place("ringcast.protocols.totem_multi", "totem-multi")
place("ringcast.protocols.total", "total")
place("ringcast.protocols.token_fd", "token-fd")
place("ringcast.protocols.counter", "counter")
place("ringcast.protocols.rbp", "rbp")
place("ringcast.protocols.irbp", "irbp")
place("ringcast.protocols.compared", "centralised", "two-phase", "optimistic", "fast-message")


def load_installed() -> None:
    """Import what entry points name; LookupError says which one cannot be imported."""
    from importlib.metadata import entry_points  # takes longer to import than all of these

    for found in entry_points(group="ringcast.protocols"):
        try:
            found.load()
        except Exception as error:
            raise LookupError(
                f"the protocol package {found.value!r} (entry point {found.name!r} of the group "
                f"ringcast.protocols) cannot be imported: {error}; repair or uninstall it"
            ) from error


add_source(load_installed)

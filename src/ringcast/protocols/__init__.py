"""The protocols, a package each. Importing this package registers them all.

Other distributions may bring protocols of their own: each entry point in the group
``ringcast.protocols`` names a module, and importing the module registers its sheets. That happens
when a protocol or a property is asked for that is not among ours.
"""

from ringcast.core.registry import add_source
from ringcast.protocols import (
    compared,
    counter,
    irbp,
    rbp,
    token_fd,
    total,
    totem_multi,
    totem_single,
)

DEFAULT = totem_single.SHEET.name
"""The protocol of someone who names none."""


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

__all__ = [
    "DEFAULT",
    "compared",
    "counter",
    "irbp",
    "rbp",
    "token_fd",
    "total",
    "totem_multi",
    "totem_single",
]

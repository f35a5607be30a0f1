"""The protocols, a package each. Importing this package registers them all.

Other distributions may bring protocols of their own: each entry point in the group
``ringcast.protocols`` names a module, and importing the module registers its sheets.
"""

from importlib.metadata import entry_points

from ringcast.protocols import token_fd, total, totem_single

DEFAULT = totem_single.SHEET.name
"""The protocol of someone who names none."""

for _found in entry_points(group="ringcast.protocols"):
    try:
        _found.load()
    except Exception as error:
        raise ImportError(
            f"the protocol package {_found.value!r} (entry point {_found.name!r} of the group "
            f"ringcast.protocols) cannot be imported: {error}; repair or uninstall it"
        ) from error

__all__ = ["DEFAULT", "token_fd", "total", "totem_single"]

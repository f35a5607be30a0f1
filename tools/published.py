"""The protocols that ringcast brings. Tests register more, for machines that are no protocols."""

from __future__ import annotations

import ringcast.protocols  # noqa: F401  (makes them known by name)
from ringcast.core.registry import Sheet, protocols

PUBLISHED: tuple[Sheet, ...] = tuple(
    sheet for sheet in protocols() if sheet.make.__module__.startswith("ringcast.protocols.")
)

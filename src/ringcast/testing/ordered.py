"""What asyncio would order by addresses: coroutines and gathered futures that it puts into sets.

The tasks and futures of the loop have numbers (``handles.py``). These two it makes itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ringcast.testing.replaced import here, put, replaces

if TYPE_CHECKING:
    from ringcast.testing.world import World

_as_completed = asyncio.as_completed
_Gathering: Any = asyncio.tasks._GatheringFuture  # type: ignore[attr-defined]


@replaces(asyncio, "as_completed")
@replaces(asyncio.tasks, "as_completed")
def _in_order(world: World, fs: Any, **kwargs: Any) -> Any:
    """Make tasks of what is awaited in the order in which it is given, before a set does."""
    if isinstance(fs, Iterable) and not (asyncio.isfuture(fs) or asyncio.iscoroutine(fs)):
        fs = map(asyncio.ensure_future, dict.fromkeys(fs))
    return _as_completed(fs, **kwargs)


def _numbered(real: Callable[[Any], int]) -> Callable[[Any], int]:
    def number(self: Any) -> int:
        world = here()
        if world is None:
            return real(self)
        found: int | None = getattr(self, "_number", None)
        if found is None:
            found = self._number = world.loop.next_number()
        return found

    return number


put(_Gathering, "__hash__", _numbered)

"""Messages to some members of a group (``to=``)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from journals import bodies, caught_up, opened, rows, with_journals
from loopback import eventually, joined, messages, ring, run

from ringcast.api.events import Message
from ringcast.api.group import CannotMulticast
from ringcast.api.objects import ReplicatedDict


def seen(found: Iterable[Message]) -> list[tuple[bytes, tuple[int, ...]]]:
    """Bodies, and whom they were for."""
    return [(message.body, message.to) for message in found]


def test_others_do_not_get_it_and_positions_are_of_one_order(tmp_path: Path) -> None:
    """counter CB-43: the sender always gets what it sends. No journal keeps it: those of all
    members hold the same."""

    async def story() -> None:
        async with opened(with_journals(tmp_path, 4, protocol="counter")) as nodes:
            for node in nodes:
                await node.wait_for_ring(4)
            groups = await joined(nodes)
            places = [
                await groups[0].send(b"all"),
                await groups[0].send(b"some", to={2, 3}),
                await groups[1].send_many([b"x", b"y"], to=[4, 2]),
                await groups[2].send(b"end"),
            ]
            groups[3].send_nowait(b"self", to={4})
            assert places == sorted(places)
            all_, some = (b"all", ()), (b"some", (1, 2, 3))
            two, end = [(b"x", (2, 4)), (b"y", (2, 4))], (b"end", ())
            assert seen(await messages(groups[0], 3)) == [all_, some, end]
            second = await messages(groups[1], 5)
            assert seen(second) == [all_, some, *two, end]
            assert [m.position for m in second if m.body != b"x"] == places
            assert seen(await messages(groups[2], 3)) == [all_, some, end]
            assert seen(await messages(groups[3], 5)) == [all_, *two, end, (b"self", (4,))]
            await eventually(lambda: caught_up(nodes))

    run(story)
    kept = [rows(tmp_path, id)[:3] for id in (1, 2, 3, 4)]
    assert bodies(tmp_path, 1) == [b"all", b"end"] and kept.count(kept[0]) == 4


def test_what_cannot_be_sent_to_some_says_why(tmp_path: Path) -> None:
    """The protocols that can are those whose sheets say so."""

    async def story() -> None:
        async with ring(tmp_path / "totem", 1) as nodes:
            (group,) = await joined(nodes)
            with pytest.raises(CannotMulticast, match=r"all; .* need not: 'counter'"):
                await group.send(b"x", to={1})
        async with ring(tmp_path / "counter", 1, protocol="counter") as nodes:
            (group,) = await joined(nodes)
            wrong: Any
            for wrong in (1, "1", {"1"}, [[1]], {1, None}, 1.5):
                with pytest.raises(TypeError, match=r"to = .*: it takes the ids of members"):
                    await group.send(b"x", to=wrong)
            with pytest.raises(ValueError, match="nobody"):
                group.send_nowait(b"x", to=())
            with pytest.raises(ValueError, match=r"\[7\] are not in 'g', whose members are \[1\]"):
                await group.send(b"x", to={1, 7})
            with pytest.raises(ValueError, match="no journal"):
                await group.send(b"x", durable=True, to={1})
            shared = ReplicatedDict(nodes[0].join("d"), members=1, dir=tmp_path / "d")
            async with shared:
                await shared.set("k", 1)
                with pytest.raises(CannotMulticast, match="replica"):
                    await shared.replica.group.send(b"x", to={1})

    run(story)

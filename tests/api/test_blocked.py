"""What ``group.blocked`` and the log say of a node that orders nothing."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest
from loopback import eventually, joined, ring, run

from ringcast.api.node import Node
from ringcast.runtime.host import LiveHost


def host(node: Node) -> LiveHost:
    assert node._host is not None
    return node._host


def test_a_stop_is_logged_once_and_said_from_then_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (group,) = await joined(nodes)
            host(nodes[0]).fail("gap: on purpose")
            await eventually(lambda: not nodes[0].running and caplog.records)
            assert group.blocked == nodes[0].blocked == "the node has stopped: gap: on purpose"
            assert nodes[0].metrics()["blocked"] == group.blocked
        assert group.blocked == "the node has stopped: gap: on purpose"

    run(story)
    (said,) = caplog.records
    assert (said.name, said.levelno) == ("ringcast", logging.ERROR)
    assert said.getMessage() == "node 1 has stopped: gap: on purpose"


def test_a_node_that_its_program_ends_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (group,) = await joined(nodes)
        assert group.blocked == ""

    run(story)
    assert caplog.records == []


@pytest.mark.parametrize("protocol", ["counter", "rbp", "irbp"])
def test_one_of_two_that_leaves_in_order_is_missed(tmp_path: Path, protocol: str) -> None:
    """As docs/protocols.md says; the one that is left names it."""

    async def story() -> None:
        async with ring(tmp_path, 2, protocol=protocol) as nodes:
            group, _ = await joined(nodes)
            await nodes[1].close()
            await eventually(lambda: group.blocked)
            assert re.search(r"(without|some of) 2\b", group.blocked)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await group.send(b"x")

    run(story)


def test_what_an_ordinary_change_takes_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It showed for some milliseconds in every change."""

    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (group,) = await joined(nodes)
            here = host(nodes[0])
            waits = ["members here: 1"]
            told = property(lambda _: waits[0])
            monkeypatch.setattr(type(here.machine), "blocked", told)
            here.quiet()
            assert group.blocked == ""
            assert here._blocked_us is not None
            here._blocked_us -= here.config.protocol_config.patience_us
            assert group.blocked == "members here: 1"
            waits[0] = ""
            here.quiet()
            waits[0] = "members here: 1"
            here.quiet()
            assert group.blocked == "", "another change"

    run(story)

"""docs/operations.md names every setting and every metric there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.ids import ViewId
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.host import LiveHost

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")


class Nobody:
    def on_deliver(self, view: ViewId, batch: PackedMessages) -> None: ...
    def on_view(self, change: InstallView) -> None: ...
    def on_uncertain(self, first: int, count: int) -> None: ...
    def on_quiet(self) -> None: ...
    def on_stop(self, reason: str) -> None: ...


def names(heading: str) -> set[str]:
    """What is in the first column of the table below a heading."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*) \|", part, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_setting_is_explained() -> None:
    assert names("node.toml") == {field.name for field in msgspec.structs.fields(NodeConfig)}


def test_every_metric_is_explained(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "id": 1,
        "bind": "127.0.0.1:0",
        "peers": ["2@127.0.0.1:9"],
        "state_dir": str(tmp_path),
    }
    host = LiveHost(msgspec.convert(config, NodeConfig), Nobody())
    try:
        # A node, which has groups and a journal, has some of its own.
        of_node = {"groups_wait_for", "journal", "left_aside", "messages_unreadable"}
        assert names("Metrics") == host.metrics().keys() | of_node
    finally:
        host.close()

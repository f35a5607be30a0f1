"""Flow control as Figures 5.17 to 5.19 print it: one bit and one number on each ring's token."""

from __future__ import annotations

import msgspec


class PrintedToken(msgspec.Struct):
    """What a token carries of it."""

    block: bool = False
    block_seq: int = 0


class PrintedSite:
    """One processor or gateway, with a send queue and a ring at each port."""

    def __init__(self) -> None:
        self.site_block = self.site_seq = 0
        self._set: dict[int, str] = {}  # set_site_block of each queue; absent: FALSE
        self._blocking: set[int] = set()  # blocking_token of each ring

    def reached(self, port: int) -> None:
        """MR-39: a queue is full."""
        if port not in self._set:
            self.site_block += 1
            self.site_seq += 1
        self._set[port] = "SND"

    def fell(self, port: int) -> None:
        """MR-40: it has room again."""
        if self._set.get(port) == "SND":
            self.site_block -= 1
            del self._set[port]

    def visited(self, port: int, token: PrintedToken) -> None:
        """MR-42 to MR-44: a token arrives, and leaves so."""
        if not token.block:
            if self._set.get(port) == "RCV":
                self.site_block -= 1
                del self._set[port]
            own = self.site_block > 0
            if own and self.site_seq > token.block_seq:
                self._block(port, token)
            elif own and self.site_seq == token.block_seq and self._set.get(port) == "SND":
                self.site_seq += 1
                self._block(port, token)
        elif self.site_block == 0 and port in self._blocking:
            token.block = False
            self._blocking.discard(port)
        elif self.site_block == 0 and token.block_seq > self.site_seq:
            self.site_block += 1
            self._set[port] = "RCV"
        self.site_seq = token.block_seq = max(self.site_seq, token.block_seq)

    def _block(self, port: int, token: PrintedToken) -> None:
        token.block = True
        self._blocking.add(port)

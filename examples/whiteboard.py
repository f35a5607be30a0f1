"""A shared whiteboard: strokes appear in the same order everywhere, so overlaps look the same.

Who comes late gets the picture from the others, in order with the strokes drawn meanwhile. Nobody
ever waits: members that are cut off from each other go on drawing, and their pictures are laid one
over the other afterwards.

    python examples/whiteboard.py 1        (and 2, and 3, in other terminals)

Type ``draw COLUMN ROW LENGTH LETTER`` for a horizontal stroke, ``show``, ``wipe``.
"""

from __future__ import annotations

from collections.abc import Sequence

from local import lasting, lines, settings, start

from ringcast.api.events import Message
from ringcast.api.node import Node
from ringcast.api.replica import Replica, StateMachine

WIDTH, HEIGHT = 24, 6


class Whiteboard(StateMachine[None]):
    """The picture: a grid of characters."""

    def __init__(self) -> None:
        self.wipe()

    def wipe(self) -> None:
        """An empty board."""
        self.rows: list[str] = ["." * WIDTH] * HEIGHT

    def apply(self, command: Message) -> None:
        match command.body.decode().split():
            case ["wipe"]:
                self.wipe()
            case ["draw", x, y, length, letter]:
                column, row = int(x) % WIDTH, int(y) % HEIGHT
                stroke = letter[0] * min(int(length), WIDTH - column)
                old = self.rows[row]
                self.rows[row] = old[:column] + stroke + old[column + len(stroke) :]
            case _:
                raise ValueError("draw COLUMN ROW LENGTH LETTER, show, wipe")

    def snapshot(self) -> bytes:
        return "\n".join(self.rows).encode()

    def restore(self, state: bytes) -> None:
        self.rows = state.decode().split("\n")


def overlay(pictures: Sequence[bytes]) -> bytes:
    """One picture of several; of two letters at one place, the later in the alphabet is seen."""
    return bytes(map(max, zip(*pictures, strict=True)))


async def main(me: int) -> None:
    """Draw what is typed."""
    board = Whiteboard()
    async with (
        Node.open(settings(me)) as node,
        Replica(node.join("board"), board, consistency="available", merge=overlay) as replica,
        lasting(replica.wait()),
    ):
        print("ready", flush=True)
        async for line in lines():
            if line == "show":
                print("\n".join(board.rows), flush=True)
                continue
            try:
                await replica.submit(line.encode())
            except ValueError as error:
                print(f"error: {error}", flush=True)


if __name__ == "__main__":
    start(main)

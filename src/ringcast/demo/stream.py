"""``ringcast demo --stream``: a live group, its journals, and Spark that must come to the same.

Three members sell what a shop has. Spark follows their journals, and keeps the stock and what was
asked for in each second as tables. A member is killed and comes back; Spark is killed and comes
back. At the end all of them must have the same state, and the journals must agree.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from ringcast.console.options import OK, UNKNOWN, VIOLATED, fail
from ringcast.console.output import as_json, console, ids, say
from ringcast.core.ids import NodeId
from ringcast.core.registry import protocol
from ringcast.demo import shop_stream
from ringcast.demo.screen import Late, Screen, Stage
from ringcast.demo.shop import ITEMS, Shelf, Shop
from ringcast.journal.check import compare, examine
from ringcast.members.process import Band, MemberProcess
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.session import require_spark
from ringcast.protocols import DEFAULT
from ringcast.sim.batch import end_with

ALL = (1, 2, 3)
RATE = 40.0
"""Orders a second of each member."""

WORK_S = 3.0
PATIENCE_S = 240.0
"""Longest wait for anything; Spark takes its time on a machine that has other work to do."""

SETTINGS = """journal = "journal-{id}"
journal_patience_s = 3.0
[settings]
{patient}
"""

STAND_STILL_US = 4_000_000
"""Members that have to wait for a processor, because of Spark, are not taken for dead at once: one
that is left out for a moment lacks what was ordered meanwhile, and its state is another."""

MOST_STARTS = 8
"""Spark gives a Python worker of a stream 10 s to start, whatever its settings say, and ends the
query if it takes longer. That happens on a machine that is busy, now and then."""

NICE = 5
"""How far Spark steps back: a group whose members do not get to run is no group."""


class Spark:
    """The stream as a process, over all its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def started(self) -> bool:
        """Whether its queries are there."""
        return (self.folder / shop_stream.STARTED).exists()

    @property
    def errors(self) -> str:
        """The last thing it complained of."""
        lines = (self.folder / "spark.err").read_text("utf-8", "replace").splitlines()
        named = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
        return (named or lines or ["no word"])[-1]

    @property
    def orders(self) -> int:
        """How many it has carried out."""
        return sum(row["orders"] for row in shop_stream.tables(self.folder)[0].rows())

    def progress(self) -> str:
        """What it is doing, for people."""
        if not self.started:
            return "it is starting"
        done = self.orders
        return f"it has carried out {done:,}" if done else "its first batch is under way"

    def start(self) -> None:
        """Begin, or go on where it was."""
        (self.folder / shop_stream.STARTED).unlink(missing_ok=True)
        if self.starts == MOST_STARTS:
            raise Late(f"Spark ended again and again, at last with: {self.errors}")
        self.starts += 1
        with (self.folder / "spark.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ringcast.demo.shop_stream", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # driver and JVM, to be killed together
                preexec_fn=partial(begin, os.getpid()),
            )

    def finish(self) -> None:
        """Let it read what there is, and end with 0; it ends with nothing else so."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL, to the driver and its JVM."""
        if self.process is not None and self.running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def begin(parent: int) -> None:
    """In the new process, before it is Spark."""
    end_with(parent)
    os.nice(NICE)


def table(show: Show) -> Table:
    """Everybody as they are."""
    grid = Table("", "process", "orders/s", "orders", *(f"{item} left" for item in ITEMS))
    for id, member in show.band.members.items():
        status = member.status if member.running else None
        rate = f"{status.messages_per_s:,.0f}" if status else ""
        grid.add_row(f"member {id}", state(member.running), rate, *stock(shop_of(member)))
    found = shop_stream.read(show.spark.folder)
    grid.add_row("Spark", state(show.spark.running), "", *stock(found))
    return grid


def state(running: bool) -> str:
    """For people."""
    return "[green]running[/]" if running else "[red]killed[/]"


def stock(shop: Shop | None) -> list[str]:
    """How many orders were carried out, and what is left of each item."""
    if shop is None:
        return [""] * (1 + len(ITEMS))
    return [f"{orders(shop):,}", *(f"{shop.shelves.get(i, Shelf()).left:,}" for i in ITEMS)]


def orders(shop: Shop) -> int:
    """How many orders were carried out."""
    return sum(shelf.orders for shelf in shop.shelves.values())


def shop_of(member: MemberProcess) -> Shop | None:
    """The state of a member, as it said last."""
    found = member.status and member.status.metrics.get("shop")
    return msgspec.convert(found, Shop) if found else None


class Show(Stage):
    """The group, Spark, and the steps of the story."""

    def __init__(self, band: Band, folder: Path, quiet: bool) -> None:
        super().__init__(band, Screen(lambda: table(self), quiet), PATIENCE_S, WORK_S)
        self.spark = Spark(folder)
        self.acknowledged = 0
        """By members that were killed since."""
        found = protocol(DEFAULT).patient(STAND_STILL_US)
        patient = "\n".join(f"{name} = {value}" for name, value in found.items())
        for id, member in band.members.items():
            member.program = [sys.executable, "-m", "ringcast.demo.shop"]
            with member.config.open("a", encoding="utf-8") as file:
                file.write(SETTINGS.format(id=id, patient=patient))

    def together(self, *members: NodeId) -> None:
        """Wait until these are a group, with complete journals."""
        self.until(f"members {ids(members)} together", lambda: self.band.together(*members))
        self.until("journals complete", lambda: all(self._complete(id) for id in members))
        self.screen.say(f"together, with complete journals: {ids(members)}")

    def _complete(self, id: NodeId) -> bool:
        status = self.band[id].status
        return status is not None and bool(dict[str, Any](status.metrics["journal"])["caught_up"])  # type: ignore[call-overload]

    def follows(self) -> None:
        """Wait until Spark has carried out what was ordered up to now."""
        self.band.listen(0)
        wanted = max(orders(shop) for m in self.band.members.values() if (shop := shop_of(m)))
        while self.spark.orders < wanted:
            self.until(
                f"Spark to carry out {wanted:,} orders",
                lambda: self.spark.orders >= wanted or self._gone(),
                self.spark.progress,
            )
            self._revive()
        self.screen.say(f"Spark has carried out {self.spark.orders:,} orders")

    def finishes(self) -> None:
        """Wait until Spark has read the journals to their end."""
        spark = self.spark
        while True:
            self._revive()
            self.until("Spark to start", lambda: spark.started or self._gone())
            spark.finish()
            self.until("Spark at the end of the journals", self._gone, spark.progress)
            if spark.process is not None and spark.process.returncode == 0:
                return

    def _gone(self) -> bool:
        return not self.spark.running

    def _revive(self) -> None:
        if self._gone():
            self.screen.say(f"Spark ended by itself, and is started again: {self.spark.errors}")
            self.spark.start()

    def act(self) -> None:
        """The whole story."""
        say_, band, spark = self.screen.say, self.band, self.spark
        say_(f"three members start as processes; each gives {RATE:.0f} orders a second")
        for member in band.members.values():
            member.start("--rate", str(RATE))
        self.together(*ALL)
        say_("Spark starts, and follows their journals")
        spark.start()
        self.work()
        self.follows()
        self.work()
        say_("member 3 is killed (SIGKILL)")
        self._kill(3)
        self.together(1, 2)
        self.work()
        say_("member 3 is started again; its state comes back from its journal and the others'")
        band[3].start("--rate", str(RATE))
        self.together(*ALL)
        say_("Spark is killed (SIGKILL of driver and JVM), in the middle of whatever it does")
        spark.kill()
        self.work()
        say_("Spark is started again, and goes on behind its checkpoints")
        spark.start()
        self.follows()
        self.work()
        say_("no more orders; what is under way is carried out")
        band.rest()
        self.until("all orders carried out", band.at_rest)
        self.finishes()

    def _kill(self, id: NodeId) -> None:
        member = self.band[id]
        member.kill()
        self.acknowledged += member.status.sent if member.status else 0


class StreamOutcome(msgspec.Struct):
    """How it came out."""

    orders: int
    acknowledged: int
    """Said to be on disk, at least: of a member that was killed, as far as it had said."""
    pieces: dict[str, Shelf]
    seconds: int
    """Rows of what was asked for, by second and item."""
    records: dict[str, int]
    """In each journal."""
    spark_starts: int
    differences: list[str]
    wall_s: float = 0.0


def differing(states: dict[str, Shop | None], found: Shop) -> list[str]:
    """Which states of members are not what Spark has, and in what."""
    parts = {"shelves": "the stock is", "asked": "what was asked for is"}
    return [
        f"{who}: {text} {getattr(shop, part, None)}, but Spark has {getattr(found, part)}"
        for who, shop in states.items()
        for part, text in parts.items()
        if getattr(shop, part, None) != getattr(found, part)
    ]


def judge(show: Show, folder: Path) -> StreamOutcome:
    """Compare the states of all, and the journals."""
    states = {f"member {id}": shop_of(member) for id, member in show.band.members.items()}
    found = shop_stream.read(folder)
    acknowledged = show.acknowledged + sum(
        member.status.sent for member in show.band.members.values() if member.status
    )
    differences = differing(states, found)
    if orders(found) < acknowledged:
        differences.append(f"{acknowledged} orders were acknowledged, {orders(found)} carried out")
    journals = [folder / f"journal-{id}" for id in ALL]
    reports = {path.name: list(examine(path))[-1] for path in journals}
    for finding in (*(f for each in reports.values() for f in each.findings), *compare(journals)):
        differences.append(f"{finding.file} at {finding.place}: {finding.what}")
    return StreamOutcome(
        orders=orders(found),
        acknowledged=acknowledged,
        pieces=found.shelves,
        seconds=len(found.asked),
        records={name: report.records for name, report in reports.items()},
        spark_starts=show.spark.starts,
        differences=differences,
    )


def demonstrate(json: bool) -> NoReturn:
    """The story and the comparison; leaves with the exit code."""
    try:
        require_spark()
    except PipelineError as error:
        fail(str(error))
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ringcast-demo-") as name:
        folder = Path(name)
        with Band(len(ALL), folder, folder / "traces") as band:
            show = Show(band, folder, quiet=json)
            try:
                show.act()
                outcome = judge(show, folder)
            except Late as error:
                if json:
                    as_json({"ok": False, "error": str(error)})
                    raise typer.Exit(UNKNOWN) from None
                fail(f"nothing could be compared: {error}; with less to do beside it, try again")
            finally:
                show.spark.kill()
                show.screen.close()
    outcome.wall_s = round(time.monotonic() - began_s, 1)
    if json:
        as_json({"ok": not outcome.differences} | msgspec.to_builtins(outcome))
    else:
        summarize(outcome)
    raise typer.Exit(VIOLATED if outcome.differences else OK)


def summarize(outcome: StreamOutcome) -> None:
    """One screen that says it all."""
    say("")
    for difference in outcome.differences:
        say(f"[bold red]different[/] {escape(difference)}")
    say(
        f"[bold]{outcome.orders:,}[/] orders, {outcome.acknowledged:,} of them acknowledged as "
        f"durable before their member ended; {outcome.spark_starts} lives of Spark"
    )
    say(f"records in the journals: {', '.join(f'{n:,}' for n in outcome.records.values())}")
    grid = Table("item", "orders", "left", "refused")
    for item, shelf in sorted(outcome.pieces.items()):
        grid.add_row(item, f"{shelf.orders:,}", f"{shelf.left:,}", f"{shelf.refused:,}")
    console().print(grid)
    if not outcome.differences:
        say(
            "[green]the same[/] in the three members and in Spark: the stock, what was asked for "
            f"in each second ({outcome.seconds:,} rows), and the journals ({outcome.wall_s:.0f} s)"
        )

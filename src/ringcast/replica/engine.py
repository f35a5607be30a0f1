"""The engine: one replica's part in keeping a log that a majority of disks agrees on.

Source    Y. Amir and C. Tutu, *From Total Order to Database Replication*, ICDCS 2002 (colours of
          actions, one exchange of states at each view change, nothing acknowledged before it is on
          disk), and I. Keidar and D. Dolev, *Efficient message ordering in dynamic networks*, PODC
          1996 (COReL: a quorum's acknowledgements, decided by histories on disk). Ours: fixed
          quorums, and epochs that order attempts as ballots do (docs/replication.md).
Model     Members with a disk that keeps what was synced, crash and recovery, partition and
          remerge, over a group with one order in each view.
Colours   red: not in the log; yellow: in the log, on some disks; green: on a quorum's disks.

Inputs are method calls, each run to completion; the host carries the list of effects out in order.
"""

from __future__ import annotations

from collections import Counter

from ringcast.core.ids import LIMIT, NodeId, ViewId
from ringcast.replica.disk_log import DiskLog
from ringcast.replica.effects import (
    Apply,
    BarrierPassed,
    Halt,
    Phase,
    Restore,
    Say,
)
from ringcast.replica.exchange import (
    ENTRY_BYTES,
    MOST_BASE,
    WRONG,
    Decision,
    IncomingBase,
    decide,
    misfit,
    pieces,
    sound,
)
from ringcast.replica.log import Adopt, Image, Promise, ReplicaLog, common
from ringcast.replica.progress import Lifts, TransferProgress
from ringcast.replica.tally import Tally
from ringcast.replica.words import (
    Ack,
    Action,
    Again,
    Barrier,
    Entries,
    Epoch,
    Lift,
    LogEntry,
    Ready,
    Snapshot,
    Status,
    Ticket,
    Word,
    after,
)

PIECE = 2**17  # bytes of a transfer in one word, about

MOST_QUEUED = 64 * 2**20
"""Bytes of commands kept for a log that is still being transferred."""


class Engine(DiskLog):
    """One replica. ``members`` are the voters, by name or by number; a word of a transfer has about
    ``piece`` bytes, and the largest command that fits one ``largest``."""

    def __init__(
        self,
        me: NodeId,
        boot: int,
        members: int | frozenset[NodeId],
        log: ReplicaLog,
        piece: int = PIECE,
        largest: int = MOST_BASE,
    ) -> None:
        super().__init__(me, boot, members, log)
        self.applied = log.trimmed
        self._piece, self._largest = piece, largest
        self.refused: Counter[NodeId] = Counter()
        """Words that no replica says, by sender."""
        self._number = self._reads = 0
        self._pending: dict[int, bytes] = {}
        """Commands of ours that are not green yet, by number."""
        self._ordered: set[int] = set()
        """Numbers of ours that were delivered or appended in this epoch."""
        self.statuses: dict[NodeId, Status] = {}
        self._decision: Decision | None = None
        self._incoming: IncomingBase | None = None
        self.tally = Tally()
        self._active = False
        """Whether a quorum is ready in this epoch: from there on commands count."""
        self._durable = False
        """Whether this disk has the log that goes on in this epoch."""
        self._queue: list[LogEntry] = []
        self._queued_bytes = 0
        self._lifts = Lifts(0)
        self._progress = TransferProgress(piece)
        self._gave_up = False
        """Whether we left this epoch in its view, and wait for another attempt."""

    # --- the application -------------------------------------------------------------------

    def start(self) -> None:
        """RS-3: the state is that of the disk; what was green is applied at once."""
        if self.log.image is not None:
            self._do(Restore(self.log.trimmed, self.log.image.state))
        self._apply()

    def submit(self, command: bytes) -> Ticket:
        """RS-11: a command to append; it is said again in each epoch until it is green."""
        self._number += 1
        ticket = Ticket(self.me, self.boot, self._number)
        self._pending[self._number] = command
        if self._active:
            self._do(Say(Action(ticket, command)))
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for a command any more; it may be appended all the same."""
        self._pending.pop(ticket.number, None)

    def read(self) -> Ticket | None:
        """RS-14: order a read; None while there is no primary component here."""
        if self.phase is not Phase.PRIMARY:
            return None
        self._reads += 1
        ticket = Ticket(self.me, self.boot, self._reads)
        self._do(Say(Barrier(ticket)))
        return ticket

    def compact(self, image: Image) -> None:
        """RS-15: the image is what applying everything up to its place gave.

        Not while members compare and send their logs, nor if a later state came meanwhile.
        """
        if self.phase not in (Phase.APART, Phase.PRIMARY) or image.at <= self.log.trimmed:
            return
        self._write(image)

    def tick(self) -> None:
        """RS-16: an attempt that does not get on is given up; RS-12: a silent voter spoken for."""
        if self.phase is Phase.PRIMARY and self.tally.relied_in_vain(self.me, self._synced):
            self._acknowledge()
        waits = self.phase in (Phase.TRANSFER, Phase.READY) and not self._syncs  # for others
        if waits and self._progress.stalls():
            self._begin_again()

    # --- views -----------------------------------------------------------------------------

    def on_view(self, view: ViewId, transitional: bool, attempt: int = 0) -> None:
        """RS-5: a transitional view ends appending; RS-4: a regular one begins an attempt, whose
        number ascends with the views of one ring and is the same at all members."""
        if transitional:
            self._leave("the view ends")
            return
        self._lifts, self._progress = Lifts(view.seq), TransferProgress(self._piece)
        self._attempt(Epoch(view.seq, view.rep, attempt))

    def _leave(self, why: str) -> None:
        self._write_fresh()  # while the epoch is still theirs
        self._active = False
        self._queue, self._queued_bytes = [], 0
        self.tally.drop_reads()
        self._gave_up = False
        if self.phase is not Phase.APART:
            self._become(Phase.APART, why)

    def _attempt(self, epoch: Epoch) -> None:
        """RS-4: promise, on disk, before saying what is there."""
        self._leave(f"attempt {epoch}")
        self.epoch = epoch
        self.statuses.clear()
        self._decision = self._incoming = None
        self.tally = Tally()
        self._durable = False
        self._progress.begin()
        self._become(Phase.EXCHANGE, f"attempt {epoch}")
        if epoch <= self.log.promised:  # members lost the storage by which their views ascend
            self._do(Say(Lift(self.log.promised)))
            return
        self._write(Promise(epoch))
        self._sync("promise")

    def _on_lift(self, sender: NodeId, promised: Epoch) -> None:
        """RS-4: an attempt is lifted beyond a promise."""
        beyond = self._lifts.beyond(sender, promised)
        if self.epoch <= beyond < Epoch(LIMIT, 0):
            self._attempt(after(beyond))
        else:
            self._refuse(sender)

    def _begin_again(self) -> None:
        """RS-16: give the attempt up."""
        self._do(Say(Again(self.epoch)))

    # --- the disk --------------------------------------------------------------------------

    def synced(self, ticket: int) -> None:
        """What was written before this ticket is durable."""
        what, epoch, length = self._syncs.pop(ticket)
        if epoch != self.epoch:
            return  # of an attempt that is over
        if what == "promise" and self.phase in (Phase.EXCHANGE, Phase.TRANSFER):
            self._do(Say(self.status()))
        elif what == "adopt" and self.phase is Phase.READY:
            self._synced = length
            self._durable = True
            self._do(Say(Ready(epoch)))
            if self._active:  # the quorum was there before
                self._go_on()
        elif what == "append" and self.phase is Phase.PRIMARY:
            self._synced = max(self._synced, length)
            self.tally.acknowledge(self.me, self._synced)
            self._sync_appended()
            self._acknowledge()
            self._commit()

    # --- words -----------------------------------------------------------------------------

    def on_word(self, sender: NodeId, word: Word) -> None:
        """A word of a member, in the order of the view."""
        match word:
            case Action(ticket, command):
                if ticket.node == sender and len(command) <= self._largest:
                    self._on_action(ticket, command)
                else:
                    self._refuse(sender)
            case Ack():
                self._on_ack(sender, word)
            case Barrier(ticket):
                if ticket.node == sender:
                    self._on_barrier(ticket)
                else:
                    self._refuse(sender)
            case Status() if word.epoch == self.epoch and self.phase is not Phase.APART:
                self._on_status(sender, word)
            case Entries() | Snapshot() if word.epoch == self.epoch:
                if self.phase in (Phase.TRANSFER, Phase.READY):
                    self._on_piece(sender, word)
            case Ready(epoch) if epoch == self.epoch and self.phase is not Phase.APART:
                self._on_ready(sender)
            case Again(epoch) if epoch == self.epoch:
                if self.phase is not Phase.APART or self._gave_up:
                    self._attempt(after(epoch))
            case Lift(epoch) if self.phase is not Phase.APART and self.epoch <= epoch:
                self._on_lift(sender, epoch)

    def _refuse(self, sender: NodeId) -> None:
        """A word that no replica says: it changes nothing, at any member."""
        self.refused[sender] += 1

    def _on_status(self, sender: NodeId, status: Status) -> None:
        """RS-6: at the word that completes a quorum, all decide alike. A member says one status in
        an attempt: what it lacks is sent once."""
        forged = sender == self.me and status != self.status()
        if sender in self.statuses or forged or not sound(status):
            self._refuse(sender)
            return
        self.statuses[sender] = status
        if self._decision is None:
            self._decide(status)
        elif self.me == self._decision.holder:  # late: what it lacks is sent for it alone
            self._supply([status])
        if sender == self.me:
            self._receive()

    def _decide(self, last: Status) -> None:
        decision = decide(self.statuses, last, self.named, self.count)
        if decision is None:
            return
        if why := misfit(decision, self.log, self.named, self.count):
            if len(decision.voters) > 1 or decision.holder == self.me:
                self._do(Halt(why))  # the word of one other member ends nobody
            return
        self._decision, self.tally = decision, Tally(decision.voters)
        self._become(Phase.TRANSFER, f"{self.epoch} goes on from {decision.holder}'s log")
        if self.me == decision.holder:
            self._supply([s for node, s in self.statuses.items() if node != self.me])
        self._receive()

    # --- transfer --------------------------------------------------------------------------

    def _supply(self, statuses: list[Status]) -> None:
        """RS-8: say what these lack of our log."""
        assert self._decision is not None
        base = self._decision.base
        keeps = [keep for s in statuses if (keep := common(s, base)) < base.length]
        if not keeps:
            return
        if self.log.trimmed > base.trimmed:  # compacted since: begin anew from what is there now
            self._do(Say(Again(self.epoch)))
            return
        for word in pieces(self.log, base, min(keeps), self.epoch, self._piece):
            self._do(Say(word))

    def _receive(self) -> None:
        """With the decision and our own word known, what we lack is known."""
        if self._decision is not None and self.me in self.statuses:
            self._incoming = IncomingBase(self.statuses[self.me], self._decision.base)
            self._complete()

    def _on_piece(self, sender: NodeId, word: Entries | Snapshot) -> None:
        """Those who have the base already see that others get on."""
        incoming, decision = self._incoming, self._decision
        if decision is None or sender != decision.holder:
            self._refuse(sender)
            return
        in_bounds = self._progress.came(word)
        if incoming is None:
            return
        if not in_bounds:
            self._incoming = None
            self._begin_again()
            return
        if isinstance(word, Entries):
            incoming.on_entries(word)
        else:
            incoming.on_snapshot(word)
        self._complete()

    def _complete(self) -> None:
        """RS-8: with all of the base at hand, it becomes this disk's log in one record."""
        incoming, decision = self._incoming, self._decision
        if incoming is None or decision is None or not incoming.complete:
            return
        keep, image = incoming.keep, incoming.image
        if not incoming.fits(self.log, self._largest):
            self._incoming = None
            self._refuse(decision.holder)
            return
        if keep < self.log.green:
            self._do(Halt(f"what is decided here contradicts what was confirmed before; {WRONG}"))
            return
        green = max(self.log.green, decision.base.green)
        entries = tuple(incoming.entries)
        self._incoming = None
        self._write(
            Adopt(self.epoch, decision.founder, decision.voters, keep, entries, green, image)
        )
        if image is not None:
            self._do(Restore(image.at, image.state))
            self.applied = image.at
        self._become(Phase.READY, f"has the log up to {self.log.length}")
        self._sync("adopt")

    # --- the primary component -------------------------------------------------------------

    def _on_ready(self, sender: NodeId) -> None:
        """RS-9: from the word that completes a quorum on, commands count, at all members."""
        if self._decision is None:
            return
        tally = self.tally
        tally.ready.add(sender)
        tally.acknowledge(sender, self._decision.base.length)
        if self._active or not tally.enough_ready:
            return
        self._active, tally.speaker = True, min(tally.ready)
        self._ordered.clear()
        if self._durable:
            self._go_on()

    def _go_on(self) -> None:
        """RS-9: the base is on a quorum's disks, so it is green; what came since follows."""
        assert self._decision is not None
        self._become(Phase.PRIMARY, f"{self.epoch} with {len(self.tally.ready)} ready")
        self._turn_green(self._decision.base.length)
        queued, self._queue, self._queued_bytes = self._queue, [], 0
        for entry in queued:
            self._append(entry)
        there = {e.ticket.number for e in self.log.since(self.log.green) if self._mine(e.ticket)}
        for number, command in sorted(self._pending.items()):
            if number not in there and number not in self._ordered:
                self._do(Say(Action(Ticket(self.me, self.boot, number), command)))

    def _mine(self, ticket: Ticket) -> bool:
        return ticket.node == self.me and ticket.boot == self.boot

    def _on_action(self, ticket: Ticket, command: bytes) -> None:
        """RS-10: appended at its place in the order; RS-11: before activation, said again later."""
        if not self._active:
            return
        if self._mine(ticket):
            self._ordered.add(ticket.number)
        entry = LogEntry(self.epoch, ticket, command)
        if self.phase is Phase.PRIMARY:
            self._append(entry)
            return
        self._queue.append(entry)
        self._queued_bytes += len(command) + ENTRY_BYTES
        if self._queued_bytes > MOST_QUEUED:
            self._leave("the log came too slowly")
            self._gave_up = True
            self._do(Say(Again(self.epoch)))

    def _append(self, entry: LogEntry) -> None:
        """RS-10: yellow."""
        self.log.entries.append(entry)
        self._fresh.append(entry)
        if entry.ticket.node != self.me:
            self.tally.wanted = self.log.length

    def _acknowledge(self) -> None:
        """RS-12: one word for all since the last, unless the others' are enough, or will be."""
        if self.tally.must_say(self.me, self._synced):
            self._do(Say(Ack(self.epoch, self._synced, self.tally.barriers)))

    def _on_ack(self, sender: NodeId, ack: Ack) -> None:
        """RS-13: an acknowledgement is a fact about a disk, whatever became of the view."""
        if ack.epoch == self.epoch:
            self.tally.acknowledge(sender, ack.length, ack.barriers)
            self._commit()

    def _commit(self) -> None:
        """RS-13: what a quorum has on disk is green; RS-14: and reads may follow it."""
        if self.log.epoch == self.epoch:
            if self.applied < self.log.length:
                self._turn_green(min(self.tally.on_disk, self.log.length))
            for ticket, index in self.tally.passed(self.log.green):
                self._do(BarrierPassed(ticket, index))

    def _on_barrier(self, ticket: Ticket) -> None:
        """RS-14: a read is answered when a quorum has seen its barrier in this epoch, and all that
        was ordered before it is green."""
        if not self._active:
            return
        if self.phase is not Phase.PRIMARY:
            self.tally.miss_barrier()
            return
        self.tally.pass_barrier(self.me, ticket if self._mine(ticket) else None, self.log.length)
        self._acknowledge()
        self._commit()

    def _turn_green(self, upto: int) -> None:
        """A log that was taken over may be green already, and is not applied yet."""
        self.log.green = max(self.log.green, upto)
        self._apply()

    def _apply(self) -> None:
        """RS-13: green entries are applied in order, everywhere the same."""
        while self.applied < self.log.green:
            self.applied += 1
            entry = self.log.entry(self.applied)
            if self._mine(entry.ticket):
                self._pending.pop(entry.ticket.number, None)
                self._ordered.discard(entry.ticket.number)
            self._do(Apply(self.applied, entry))

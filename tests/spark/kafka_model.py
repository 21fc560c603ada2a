"""A model of transactional Kafka, as far as an exactly-once sink meets it: one ledger, one output partition.

Its answers are those of `facts/transactions-on-apache-kafka.md`: an end is answered when it is durable, its markers are
written later; until then the id answers CONCURRENT_TRANSACTIONS. `second_protocol` is KIP-890's: the epoch is raised at
each end.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla.spark.ids import PREFIX
from ottla.spark.ledger import Handle, Ledger, LedgerBatch, LedgerRecord, SlotMarker, encode
from ottla.spark.requests import (
    Append,
    Appended,
    AppendInTransaction,
    CopyStaged,
    Ended,
    EndTransactions,
    Fence,
    FindOpen,
    ForgetStaged,
    GroupOffsets,
    InitProducer,
    LetTasksEnd,
    ListOpen,
    ReadLedger,
    Steps,
)
from tests.spark import former_sink


class Busy(Exception):  # noqa: N818
    """CONCURRENT_TRANSACTIONS: ask again."""


class State(Enum):
    """States of the transaction coordinator that make a difference here."""

    EMPTY = "nothing open"
    ONGOING = "open"
    PREPARED = "ended, markers not yet written"


@dataclass
class Transaction:
    """One transactional id."""

    producer_id: int
    epoch: int = -1
    state: State = State.EMPTY
    commit: bool = False
    #: The epoch that was used to end the last transaction, and how: an end may be repeated.
    ended: tuple[int, bool] | None = None
    rows: list[str] = field(default_factory=list)
    in_ledger: bool = False
    offsets: GroupOffsets = field(default_factory=dict)


class Produce:
    """A task's request: rows, and at the end its marker."""

    def __init__(self, handle: Handle, rows: list[str], *markers: SlotMarker) -> None:
        self.handle, self.rows, self.markers = handle, rows, markers


class ModelKafka:
    """Everything durable. Each method is one request, done at once and in whole."""

    def __init__(self, sink: str, *, second_protocol: bool, compacting: bool = False) -> None:
        self.sink = sink
        self.compacting = compacting
        self._end = 0
        self.second_protocol = second_protocol
        self.transactions: dict[str, Transaction] = {}
        self.ledger: list[LedgerBatch] = []
        self.output: list[str] = []
        self.group: dict[tuple[str, str, int], int] = {}

    def answer(self, request: Any) -> Any:
        """Carry `request` out. Raises Busy when Kafka would have it repeated."""
        match request:
            case InitProducer(transactional_id, None):
                return self.init(transactional_id)
            case InitProducer(transactional_id, Handle() as holder):
                return self.init_again(transactional_id, holder)
            case ReadLedger():
                return self.ledger_now()
            case ListOpen():
                return sorted(name for name, t in self.transactions.items() if t.state is not State.EMPTY)
            case FindOpen():
                return [
                    Handle(name, t.producer_id, t.epoch)
                    for name, t in sorted(self.transactions.items())
                    if t.state is State.ONGOING
                ]
            case Fence(handles):
                return self.fence(handles)
            case LetTasksEnd():
                return None
            case EndTransactions(handles, commit):
                return [self.end(handle, commit) for handle in handles]
            case AppendInTransaction(handle, records, offsets):
                if not self.write(handle, [], *records):
                    return Appended.FENCED
                self.transactions[handle.transactional_id].offsets = offsets
                return Appended.YES
            case CopyStaged(handle, staged):
                rows = [batch.data.decode() for each in staged for batch in each.inline]
                return Appended.YES if self.write(handle, rows) else Appended.FENCED
            case ForgetStaged():
                return None
            case Append(record):
                self._log(-1, -1, encode(self.sink, record))
                self.compact()
                return None
            case Produce():
                return self.write(request.handle, request.rows, *request.markers)
        raise AssertionError(request)

    def ledger_now(self) -> Ledger:
        """The ledger as a new process reads it."""
        ledger = Ledger(self.sink)
        ledger.apply(self.ledger)
        return ledger

    def init(self, transactional_id: str) -> Handle:
        """InitProducerId."""
        t = self.transactions.setdefault(transactional_id, Transaction(1000 + len(self.transactions)))
        if t.state is State.ONGOING:
            self.abort_for_good(transactional_id)
        if t.state is State.PREPARED:
            raise Busy
        t.epoch += 1
        t.ended = None
        return Handle(transactional_id, t.producer_id, t.epoch)

    def init_again(self, transactional_id: str, holder: Handle) -> Handle | None:
        """InitProducerId with an epoch (KIP-360): that of now, or the one that the holder's own end has raised.

        Kafka looks at the epoch when nothing is open. What is open it aborts first, whosever it is.
        """
        t = self.transactions[transactional_id]
        if t.state is State.ONGOING:
            self.abort_for_good(transactional_id)
            raise Busy
        if t.epoch == holder.producer_epoch:
            return self.init(transactional_id)
        if t.ended is None or t.ended[0] != holder.producer_epoch:
            return None
        if t.state is State.PREPARED:
            raise Busy
        return Handle(transactional_id, t.producer_id, t.epoch)

    def fence(self, handles: tuple[Handle, ...]) -> None:
        """EndTxn for each of them, or InitProducerId; those whose transactions are ended first are asked again."""
        busy = False
        for handle in handles:
            try:
                if self.second_protocol:
                    self.end(handle, False)
                else:
                    self.init_again(handle.transactional_id, handle)
            except Busy:
                busy = True
        if busy:
            raise Busy

    def abort_for_good(self, transactional_id: str) -> None:
        """What a second InitProducerId and transaction.timeout.ms do to an open transaction."""
        t = self.transactions[transactional_id]
        t.state, t.commit, t.ended = State.PREPARED, False, None
        t.epoch += 1

    def write(self, handle: Handle, rows: list[str], *records: LedgerRecord) -> bool:
        """Produce; False when fenced."""
        t = self.transactions[handle.transactional_id]
        if t.epoch != handle.producer_epoch:
            return False
        if t.state is State.PREPARED:
            raise Busy
        t.state = State.ONGOING
        t.rows += rows
        if records:
            form = encode if handle.transactional_id.startswith(PREFIX) else former_sink.encode_record
            self._log(t.producer_id, t.epoch, *(form(self.sink, record) for record in records))
            t.in_ledger = True
        return True

    def end(self, handle: Handle, commit: bool) -> Ended:
        """EndTxn."""
        t = self.transactions[handle.transactional_id]
        if t.ended == (handle.producer_epoch, commit):
            if t.state is State.PREPARED:
                raise Busy
            if t.state is State.EMPTY:
                return Ended.YES
        if t.epoch != handle.producer_epoch:
            is_its_own = t.ended is not None and t.ended[0] == handle.producer_epoch and t.state is not State.ONGOING
            return Ended.GONE if is_its_own else Ended.FENCED
        if t.state is State.PREPARED:
            raise Busy
        if t.state is State.EMPTY:
            if commit or not self.second_protocol:
                return Ended.GONE
            t.ended = t.epoch, False
            t.epoch += 1
            return Ended.YES
        t.state, t.commit, t.ended = State.PREPARED, commit, (handle.producer_epoch, commit)
        if self.second_protocol:
            t.epoch += 1
        return Ended.YES

    def write_markers(self, transactional_id: str) -> None:
        """The coordinator finishes a prepared end."""
        t = self.transactions[transactional_id]
        if t.in_ledger:
            self.ledger.append(LedgerBatch(self._end, self._end, t.producer_id, t.epoch, True, t.commit, ()))
            self._end += 1
        if t.commit:
            self.output += t.rows
            for group, topics in t.offsets.items():
                for topic, partitions in topics.items():
                    for partition, offset in partitions.items():
                        self.group[group, topic, partition] = offset
        t.rows, t.in_ledger, t.offsets, t.state = [], False, {}, State.EMPTY
        self.compact()

    def prepared(self) -> list[str]:
        """Ids whose markers are still to be written."""
        return [name for name, t in self.transactions.items() if t.state is State.PREPARED]

    def ongoing(self) -> list[str]:
        """Ids that may time out."""
        return [name for name, t in self.transactions.items() if t.state is State.ONGOING]

    def compact(self) -> None:
        """The log cleaner at its keenest, if there is one: up to the last stable offset only the last record of each
        key stays, and no tombstone. Records of aborted transactions never were there."""
        if not self.compacting:
            return
        committed = self._committed()
        last = {key: at for at, is_in in enumerate(committed) for key, _ in self.ledger[at].records if is_in}
        for at, is_in in enumerate(committed):
            batch = self.ledger[at]
            kept = tuple(
                (key, value) for key, value in batch.records if is_in and value is not None and last[key] == at
            )
            self.ledger[at] = batch._replace(records=kept)
        self.ledger = [
            batch
            for at, batch in enumerate(self.ledger)
            if batch.records or batch.commit is not None or at >= len(committed)
        ]

    def _committed(self) -> list[bool]:
        """For each batch below the last stable offset, whether its records are committed."""
        committed = [True] * len(self.ledger)
        waiting: dict[int, list[int]] = {}
        for at, batch in enumerate(self.ledger):
            if batch.commit is not None:
                for data in waiting.pop(batch.producer_id, []):
                    committed[data] = batch.commit
            elif batch.transactional:
                waiting.setdefault(batch.producer_id, []).append(at)
        return committed[: min((data for batches in waiting.values() for data in batches), default=len(committed))]

    def live_keys(self) -> set[bytes | None]:
        """The keys that compaction keeps, once nothing is open."""
        live: dict[bytes | None, bytes | None] = {}
        for batch, committed in zip(self.ledger, self._committed(), strict=False):
            live |= dict(batch.records) if committed else {}
        return {key for key, value in live.items() if value is not None}

    def _log(self, producer_id: int, epoch: int, *records: tuple[bytes, bytes | None]) -> None:
        at = self._end
        self._end += 1
        self.ledger.append(LedgerBatch(at, at, producer_id, epoch, producer_id >= 0, None, records))


def answered(kafka: ModelKafka, steps: Steps) -> Any:
    """What `steps` return with nobody else about; markers are written when they have to wait for them."""
    answer = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as finished:
            return finished.value
        try:
            answer = kafka.answer(request)
        except Busy:
            for name in kafka.prepared():
                kafka.write_markers(name)
            answer = kafka.answer(request)


def one_request(request: object) -> Steps:
    """Steps that ask this, and return the answer."""
    return (yield request)  # type: ignore[misc]

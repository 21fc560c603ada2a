"""A producer as a log sees one: it sends in order, and sends again, in order, what has got no answer."""

from collections.abc import Generator
from dataclasses import dataclass, field

from ottla.log.partition import PartitionLog
from ottla.log.results import Appended
from tests.log.batches import batch
from tests.log.histories.readers import is_tombstone

#: `max.in.flight.requests.per.connection` of an idempotent producer.
MOST_IN_FLIGHT = 5


@dataclass(eq=False)
class Sent:
    """A batch of equal records, or of tombstones, on its way."""

    sequence: int
    count: int
    key: bytes
    value: bytes
    timestamp_ms: int
    #: The offset behind it; -1 while it is not known to be in the log.
    end_offset: int = -1
    #: How often the log said that it cannot know whether it was written.
    doubts: int = 0


@dataclass(eq=False)
class Sender:
    """An idempotent producer, or a transactional one of this transaction version."""

    producer_id: int
    transaction_version: int | None
    epoch: int = 0
    next_sequence: int = 0
    #: What has got no answer, in order.
    in_flight: list[Sent] = field(default_factory=list)
    #: Nothing is sent before all that has no answer is sent again.
    is_cut_off: bool = False
    #: The values of the transaction that is open; None where none is.
    open: list[bytes] | None = None
    #: A transaction is being ended: whether it is committed.
    ending: bool | None = None
    #: The machine has lost its power, and with it, perhaps, a part of the transaction that was not on the device.
    may_be_torn: bool = False
    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)

    @property
    def is_transactional(self) -> bool:
        """Whether it writes in transactions."""
        return self.transaction_version is not None

    def next_batch(self, count: int, key: bytes, value: bytes, timestamp_ms: int) -> Sent:
        """One more batch. The first one begins a transaction."""
        sent = Sent(self.next_sequence, count, key, value, timestamp_ms)
        self.next_sequence += count
        self.in_flight.append(sent)
        if self.is_transactional:
            self.open = [*(self.open or ()), value]
        return sent

    def begin_end(self, *, commit: bool) -> None:
        """The coordinator has decided. What is on the way has no meaning any more."""
        self.ending = commit
        self.in_flight.clear()

    def ended(self) -> None:
        """The marker is written."""
        values = set(self.open or ())
        if self.ending:
            self.committed |= values
        else:
            self.aborted |= values
        epoch = self.marker_epoch
        if epoch != self.epoch:
            self.epoch, self.next_sequence = epoch, 0
        self.open, self.ending, self.may_be_torn = None, None, False

    @property
    def undecided(self) -> set[bytes]:
        """The values of the open transaction. If it is being committed, its marker may be in the log."""
        return set() if self.ending else set(self.open or ())

    @property
    def marker_epoch(self) -> int:
        """The coordinator raises it before each end (KIP-890), or only before an abort."""
        return self.epoch + (self.transaction_version == 2 or not self.ending)

    def take_new_epoch(self) -> None:
        """The first one is out of order: all that is on the way is numbered anew (KIP-360)."""
        self.epoch, self.next_sequence = self.epoch + 1, 0
        for sent in self.in_flight:
            sent.sequence, self.next_sequence = self.next_sequence, self.next_sequence + sent.count

    def append(self, log: PartitionLog, sent: Sent, leader_epoch: int, now_ms: int) -> Appended:
        """Send it."""
        records, guard = self._prepare(log, sent, now_ms)
        return log.append(records, now_ms=now_ms, leader_epoch=leader_epoch, verification_guard=guard)

    def append_in_parts(
        self, log: PartitionLog, sent: Sent, leader_epoch: int, now_ms: int
    ) -> Generator[None, None, Appended]:
        """Send it, as if it were large."""
        records, guard = self._prepare(log, sent, now_ms)
        return log.append_in_parts(
            records, now_ms=now_ms, leader_epoch=leader_epoch, verification_guard=guard, looked=None, max_named=1
        )

    def _prepare(self, log: PartitionLog, sent: Sent, now_ms: int) -> tuple[bytes, int]:
        records = batch(
            sent.count,
            key=sent.key,
            value=None if is_tombstone(sent.value) else sent.value,
            timestamps_ms=[sent.timestamp_ms] * sent.count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sent.sequence,
            transactional=self.is_transactional,
        )
        guard = 0
        if self.is_transactional:
            verified = log.producers.begin_verification(
                self.producer_id,
                sent.sequence,
                self.epoch,
                supports_epoch_bump=self.transaction_version == 2,
                now_ms=now_ms,
            )
            guard = verified.guard
        return records, guard

    def append_marker(self, log: PartitionLog, leader_epoch: int, now_ms: int) -> Appended:
        """Write the marker that ends its transaction."""
        return log.append_control(
            producer_id=self.producer_id,
            producer_epoch=self.marker_epoch,
            commit=bool(self.ending),
            coordinator_epoch=0,
            now_ms=now_ms,
            leader_epoch=leader_epoch,
            transaction_version=self.transaction_version or 0,
        )

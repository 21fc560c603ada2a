"""What brokers do with a producer's requests, as far as the producer can see: partition leaders and a coordinator.

Written from the protocol (SPEC P3, T2-T5; KIP-98, KIP-360, KIP-890), not from our broker. Whoever leads a partition has
its whole log: moves and lost answers are the business of `world`.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from ottla.client.core.producer.identity import MODULUS, ProducerIdentity
from ottla.wire.errors import ErrorCode

ABORTED, COMMITTED = "aborted", "committed"


@dataclass
class Written:
    """Records in a log. `transaction` is None for plain ones, which are seen at once."""

    values: list[int]
    transaction: int | None


@dataclass
class Known:
    """What a leader knows of a producer id."""

    epoch: int = -1
    next_sequence: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def begin(self, epoch: int) -> None:
        self.epoch, self.next_sequence = epoch, 0
        self.recent.clear()


@dataclass
class Leader:
    """One partition's log, and what it knows of producers: of one, unless its epochs were used up."""

    log: list[Written] = field(default_factory=list)
    producers: defaultdict[int, Known] = field(default_factory=lambda: defaultdict(Known))

    def append(
        self, values: list[int], identity: ProducerIdentity, sequence: int, transaction: int | None
    ) -> ErrorCode:
        known = self.producers[identity.producer_id]
        if identity.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if identity.epoch > known.epoch:
            if sequence != 0 and known.epoch >= 0:  # of a producer it does not know it takes any (KAFKA-14359)
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            known.begin(identity.epoch)
        elif (sequence, len(values)) in known.recent:
            return ErrorCode.NONE
        elif sequence != known.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        known.recent.append((sequence, len(values)))
        known.next_sequence = (sequence + len(values)) % MODULUS
        self.log.append(Written(values, transaction))
        return ErrorCode.NONE

    def fence(self, identity: ProducerIdentity) -> None:
        """A marker of this producer was written."""
        known = self.producers[identity.producer_id]
        if identity.epoch > known.epoch:
            known.begin(identity.epoch)

    @property
    def values(self) -> list[int]:
        return [value for written in self.log for value in written.values]


@dataclass
class Coordinator:
    """The transaction coordinator, for one transactional id."""

    leaders: dict[int, Leader]
    #: Whether it speaks the second protocol (KIP-890): the epoch goes up with every end.
    implicit: bool
    identity: ProducerIdentity = field(default_factory=lambda: ProducerIdentity(7, -1))
    partitions: set[int] = field(default_factory=set)
    #: Number of the transaction that is open, or comes next.
    number: int = 0
    outcomes: dict[int, str] = field(default_factory=dict)
    last_outcome: str = ""
    #: Who asked for the identity that is in force now, for a repetition of that question.
    last_asker: ProducerIdentity | None = None

    def init_producer_id(self, asker: ProducerIdentity) -> tuple[ErrorCode, ProducerIdentity]:
        if asker.valid and asker != self.identity:
            if asker == self.last_asker:
                return ErrorCode.NONE, self.identity
            return ErrorCode.PRODUCER_FENCED, ProducerIdentity()
        fenced = asker.valid and bool(self.partitions) and not self.implicit
        self.last_asker = asker if asker.valid and not fenced else None
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        if self.partitions:
            self._finish(ABORTED)
        if fenced:  # Kafka 3.x: its transaction was open; it hears of it when it asks again
            return ErrorCode.CONCURRENT_TRANSACTIONS, ProducerIdentity()
        return ErrorCode.NONE, self.identity

    def add_partitions(self, identity: ProducerIdentity, partitions: set[int]) -> ErrorCode:
        if identity != self.identity:
            return ErrorCode.PRODUCER_FENCED
        self.partitions |= partitions
        return ErrorCode.NONE

    def produce(self, partition: int, values: list[int], identity: ProducerIdentity, sequence: int) -> ErrorCode:
        """A transactional batch: the leader has it verified, or adds its partition."""
        if identity != self.identity:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if partition not in self.partitions:
            if not self.implicit:
                return ErrorCode.INVALID_TXN_STATE
            self.partitions.add(partition)
        return self.leaders[partition].append(values, identity, sequence, self.number)

    def end(self, identity: ProducerIdentity, *, commit: bool) -> tuple[ErrorCode, ProducerIdentity]:
        wanted = COMMITTED if commit else ABORTED
        nobody = ProducerIdentity()
        bumped = identity._replace(epoch=identity.epoch + 1)
        if not self.partitions:
            if self.implicit and bumped == self.identity and self.last_outcome == wanted:
                return ErrorCode.NONE, self.identity  # a repetition, whose first answer was lost
            if identity != self.identity:
                return ErrorCode.PRODUCER_FENCED, nobody
            if not self.implicit:
                return (ErrorCode.NONE if self.last_outcome == wanted else ErrorCode.INVALID_TXN_STATE), nobody
            if commit:
                return ErrorCode.INVALID_TXN_STATE, nobody
        elif identity != self.identity:
            return ErrorCode.PRODUCER_FENCED, nobody
        if self.implicit:
            self.identity = bumped
        self._finish(wanted)
        return ErrorCode.NONE, self.identity if self.implicit else nobody

    def _finish(self, outcome: str) -> None:
        for partition in self.partitions:
            self.leaders[partition].fence(self.identity)
        self.outcomes[self.number] = self.last_outcome = outcome
        self.number += 1
        self.partitions.clear()

    def seen(self, partition: int) -> list[int]:
        """What a read_committed reader gets."""
        return [
            value
            for written in self.leaders[partition].log
            if written.transaction is None or self.outcomes.get(written.transaction) == COMMITTED
            for value in written.values
        ]

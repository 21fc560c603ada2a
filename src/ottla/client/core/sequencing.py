"""Sequence numbers of the idempotent producer: what makes every batch arrive once and in order (KIP-98, KIP-360).

Each partition counts its own records from 0. A batch gets its sequence when it is first sent and keeps it for every
repetition, so the broker recognises a repetition and refuses a gap. What this module decides, for a partition:

- *May the next batch go?* A batch that is being repeated goes only when it is the oldest that is unanswered; a new one
  goes unless the fate of an earlier one is unknown, or batches of an older epoch are still out. It must be among the
  five that begin with the oldest unanswered one, answered or not: a new leader may answer what comes behind it first,
  and remembers no more than the last five when the oldest is repeated. The first batch of all goes alone: a broker that
  does not know the producer takes any sequence (KAFKA-14359), so were the first one refused (its topic is just being
  made) and the second one written, the first could never be.
- *What does an error mean?* OUT_OF_ORDER_SEQUENCE_NUMBER of a batch that is not the next is the echo of an earlier
  failure: repeat. Of the batch that is the next one it means that the broker lost what was before it.
- *What if a batch is given up on?* If it was never sent, or was refused for good, or nobody knows: the sequence has a
  hole, or may have one. A plain producer then raises its epoch and counts the partition again from 0; a transactional
  one can only abort, and gets a new epoch from the coordinator. The epoch waits while the oldest unanswered batch may
  have been written (its answer is on the way from a former leader, or was lost): counted again it would be there
  twice, so its fate is first asked for under the sequence that it has. What is behind an unwritten batch is not written
  either.
- *What if a batch is split whose earlier attempt may have been written?* (KIP-126) Its halves have its sequences, so a
  broker that has it appends neither: it answers OUT_OF_ORDER_SEQUENCE_NUMBER. They may not be counted again then, a new
  epoch would write them twice: they fail, and nobody knows of them. Once one was written, the whole was not.

Nothing here does I/O; the sender calls it from one thread.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.wire.errors import ErrorCode

NO_SEQUENCE = -1
_MAX_SEQUENCE = 2**31 - 1
_MODULUS = 2**31
_MAX_EPOCH = 2**15 - 1
#: The broker remembers the last five batches of a producer and partition: no more may be sent from the oldest on that
#: is unanswered.
MAX_UNANSWERED = 5
#: Answers that leave open whether the batch is in the log. A leader that is deposed, or whose topic or disk goes, while
#: the followers copy a batch says so of that batch (acks=all).
PERHAPS_WRITTEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch; -1 when there is none."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def valid(self) -> bool:
        """Whether a broker gave it."""
        return self.producer_id >= 0


NO_IDENTITY = ProducerIdentity()


class Sequenced(Protocol):
    """What a batch has to have to be counted."""

    tp: TopicPartition
    identity: ProducerIdentity
    base_sequence: int
    #: Whether it was sent and an answer may come.
    on_wire: bool
    #: Whether an attempt ended without a clear answer.
    perhaps_written: bool
    #: Whether the sequence was changed after the batch had been sent once.
    sequence_reset: bool
    #: Whether it is part of a batch that was split and may have been written before, as a whole.
    whole_perhaps_written: bool

    @property
    def record_count(self) -> int: ...


class Verdict(Enum):
    """What becomes of a batch that was refused."""

    RETRY = "retry"
    FAIL = "fail"


class _Partition:
    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        self.last_acked_offset = -1
        #: Batches with a sequence whose fate is open, oldest first: on the wire, or waiting to be repeated.
        self.unanswered: list[Sequenced] = []
        #: How many batches were settled before an older one.
        self.overtook = 0
        #: A batch was given up on that the broker may have written.
        self.unresolved = False
        #: The producer id whose batches the broker has seen in this partition.
        self.introduced_as = NO_IDENTITY.producer_id

    def is_next(self, sequence: int) -> bool:
        return sequence == _plus(self.last_acked, 1)

    def is_past(self, sequence: int) -> bool:
        """Whether a batch with `sequence` or a later one was acknowledged."""
        return self.last_acked != NO_SEQUENCE and (self.last_acked - sequence) % _MODULUS < _MODULUS // 2

    @property
    def in_doubt(self) -> bool:
        """Whether any unanswered batch may have been written: then the oldest was, the leader takes them in order."""
        oldest = self.unanswered[0] if self.unanswered else None
        return oldest is not None and (oldest.on_wire or oldest.perhaps_written or oldest.whole_perhaps_written)

    def remove(self, batch: Sequenced) -> None:
        """`batch` is settled."""
        at = next((n for n, other in enumerate(self.unanswered) if other is batch), None)
        if at is None:
            return
        del self.unanswered[at]
        if at > 0:
            self.overtook += 1
        elif not self.unanswered or not self.is_past(self.unanswered[0].base_sequence):
            self.overtook = 0

    def restart(self, identity: ProducerIdentity) -> None:
        """Count from 0 again, the unanswered batches first: the oldest is not written, so none is."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        self.unresolved = False
        self.overtook = 0
        for batch in self.unanswered:
            batch.perhaps_written = batch.whole_perhaps_written = False
            batch.identity = identity
            batch.base_sequence = self.next_sequence
            batch.sequence_reset = True
            self.next_sequence = _plus(self.next_sequence, batch.record_count)


def _plus(sequence: int, count: int) -> int:
    """Kafka's arithmetic: after 2^31-1 comes 0; NO_SEQUENCE is just before 0."""
    return (sequence + count) % _MODULUS


def last_sequence(batch: Sequenced) -> int:
    """Sequence of the batch's last record."""
    return _plus(batch.base_sequence, batch.record_count - 1)


class Sequencer:
    """The sequences of all partitions of one producer."""

    def __init__(self, *, transactional: bool) -> None:
        self.identity = NO_IDENTITY
        self._transactional = transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._to_restart: set[TopicPartition] = set()
        #: Where a batch was given up on that the broker may have written: what `resolve` has to look at.
        self._unresolved: set[TopicPartition] = set()

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id has to be asked for before anything can be sent."""
        return not self.identity.valid

    def may_send(self, batch: Sequenced) -> bool:
        """Whether `batch`, the first in its partition's queue, may be sent now."""
        if not self.identity.valid:
            return False
        partition = self._of(batch.tp)
        restarting = batch.tp in self._to_restart
        if batch.base_sequence != NO_SEQUENCE:
            return partition.unanswered[0] is batch and (not restarting or partition.in_doubt)
        if restarting:
            return False
        if partition.unanswered and partition.identity != self.identity:
            return False
        if partition.unanswered and partition.introduced_as != self.identity.producer_id:
            return False
        return not partition.unresolved and len(partition.unanswered) + partition.overtook < MAX_UNANSWERED

    def assign(self, batch: Sequenced) -> None:
        """Give `batch` its sequence, unless it has one."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._of(batch.tp)
        if partition.identity != self.identity:
            require(not partition.unanswered, "a new epoch begins while batches of the old one are unanswered")
            partition.restart(self.identity)
        batch.identity = partition.identity
        batch.base_sequence = partition.next_sequence
        partition.next_sequence = _plus(partition.next_sequence, batch.record_count)
        partition.unanswered.append(batch)

    def acknowledged(self, batch: Sequenced, last_offset: int) -> None:
        """The broker has `batch`; `last_offset` is the offset of its last record, -1 when it did not say."""
        partition = self._of(batch.tp)
        partition.remove(batch)
        partition.introduced_as = batch.identity.producer_id
        if batch.identity != partition.identity:
            return
        last = last_sequence(batch)
        if not partition.is_past(last):
            partition.last_acked = last
        partition.last_acked_offset = max(partition.last_acked_offset, last_offset)
        if batch.whole_perhaps_written and last_offset >= 0:  # so the whole was not, and what is behind it neither
            for behind in partition.unanswered:
                behind.whole_perhaps_written = False

    def refused(self, batch: Sequenced, sent_as: ProducerIdentity, code: ErrorCode, log_start_offset: int) -> Verdict:
        """What to do about `code`, answered for `batch` when it was sent as `sent_as`."""
        partition = self._of(batch.tp)
        if batch.identity != sent_as:  # an echo from before the epoch was raised
            return Verdict.RETRY
        match code:
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                echo = batch.sequence_reset or not partition.is_next(batch.base_sequence)
                part_of_written = batch.whole_perhaps_written and partition.is_past(batch.base_sequence)
                gap = partition.unresolved or batch.tp in self._to_restart
                if echo and not part_of_written and not gap:
                    batch.sequence_reset = False
                    return Verdict.RETRY
                return self._restart_or_fail(batch)
            case ErrorCode.UNKNOWN_PRODUCER_ID:
                # the broker forgot this producer: its records were deleted, or nothing was written for long
                if log_start_offset == -1:
                    return Verdict.RETRY
                if self._transactional and partition.last_acked_offset < log_start_offset:
                    partition.restart(self.identity)
                    return Verdict.RETRY
                return self._restart_or_fail(batch)
            case _:
                return Verdict.RETRY if code.retriable else Verdict.FAIL

    def split(self, batch: Sequenced, halves: Sequence[Sequenced], *, may_be_written: bool) -> None:
        """`batch` was refused for its size: its halves have its sequences (KIP-126).

        They count as sent, so they go one after the other, before what was sent behind `batch` and refused for the gap.
        """
        if batch.base_sequence == NO_SEQUENCE:
            return
        partition = self._of(batch.tp)
        sequence = batch.base_sequence
        for half in halves:
            half.identity = batch.identity
            half.base_sequence = sequence
            half.sequence_reset = batch.sequence_reset
            half.whole_perhaps_written = may_be_written or batch.whole_perhaps_written
            sequence = _plus(sequence, half.record_count)
        at = next(n for n, other in enumerate(partition.unanswered) if other is batch)
        partition.unanswered[at : at + 1] = halves

    def given_up(self, batch: Sequenced, *, may_be_written: bool) -> None:
        """`batch` failed for its sender. If it had a sequence, what follows it cannot go on as it is."""
        if batch.base_sequence == NO_SEQUENCE:
            return
        partition = self._of(batch.tp)
        partition.remove(batch)
        if batch.identity != partition.identity:
            return
        if may_be_written:
            partition.unresolved = True
            self._unresolved.add(batch.tp)
        elif not self._transactional:
            self._to_restart.add(batch.tp)

    def resolve(self) -> bool:
        """Settle partitions whose batches were given up on, once nothing of theirs is unanswered.

        A plain producer raises its epoch. Returns False when a transactional one has to abort.
        """
        settled = True
        for tp in list(self._unresolved):
            partition = self._of(tp)
            if not partition.unresolved:  # it began again
                self._unresolved.discard(tp)
            elif not partition.unanswered:
                if partition.is_next(partition.next_sequence):
                    partition.unresolved = False
                    self._unresolved.discard(tp)
                elif self._transactional:
                    settled = False
                else:
                    self._to_restart.add(tp)
        if self._to_restart and self.identity.valid:
            if any(self._of(tp).identity == self.identity for tp in self._restartable()):
                self._raise_epoch()
            else:  # it was raised for other partitions while these were in doubt
                self._restart()
        return settled

    def identified(self, identity: ProducerIdentity) -> None:
        """A coordinator gave this identity: every partition counts from 0 when it is next used."""
        self.identity = identity
        self._restart()

    def forget_partitions(self) -> None:
        """After a transaction was ended with an error: nothing of it is sent any more, whatever was unanswered."""
        self._partitions.clear()
        self._to_restart.clear()
        self._unresolved.clear()

    def unanswered(self, tp: TopicPartition) -> int:
        """How many batches of the partition have a sequence and an open fate."""
        partition = self._partitions.get(tp)
        return len(partition.unanswered) if partition is not None else 0

    def _restart_or_fail(self, batch: Sequenced) -> Verdict:
        if self._transactional or batch.whole_perhaps_written:
            return Verdict.FAIL
        batch.perhaps_written = False  # the broker would have known it, or has forgotten all of this producer
        self._to_restart.add(batch.tp)
        return Verdict.RETRY

    def _restartable(self) -> list[TopicPartition]:
        return [tp for tp in self._to_restart if not self._of(tp).in_doubt]

    def _restart(self) -> None:
        for tp in self._restartable():
            self._of(tp).restart(self.identity)
            self._to_restart.discard(tp)

    def _raise_epoch(self) -> None:
        """KIP-360: a plain producer raises its own epoch; only when they are used up does it need a new id."""
        if self.identity.epoch >= _MAX_EPOCH:
            self.identity = NO_IDENTITY
            return
        self.identified(self.identity._replace(epoch=self.identity.epoch + 1))

    def _of(self, tp: TopicPartition) -> _Partition:
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = _Partition(self.identity)
        return partition

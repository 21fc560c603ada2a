"""Sequence numbers of the idempotent producer: what makes every batch arrive once and in order (KIP-98, KIP-360).

Each partition counts its own records from 0. A batch gets its sequence when it is first sent and keeps it for every
repetition. So the broker knows a repetition when it sees one, and refuses a batch that is not the next.

*When may a batch go?*
- A batch that is repeated goes only when it is the oldest that has no answer.
- A new batch must be among the five that begin with the oldest unanswered one. The broker remembers the last five. A
  new leader may answer the younger ones first, and must still know the oldest one when that is repeated.
- The first batch of all goes alone. A broker that does not know the producer takes any sequence (KAFKA-14359). If it
  refused the first batch (the topic is just being made) and took the second one, the first could never be written.
- While the fate of a batch that was given up on is not known, nothing new goes.

*What if a batch is given up on?* Its sequence is a hole, or may be one, and the broker refuses whatever comes behind a
hole. A plain producer raises its epoch and counts the partition from 0 again. A transactional producer can only abort;
then it gets a new epoch. The epoch has to wait while the oldest unanswered batch may have been written: counted again,
that batch would be written twice. So its fate is asked for first, under the sequence that it has. If the oldest batch
is not written, then no younger one is, because the leader takes them in order.

*What if a batch is split that may have been written before?* (KIP-126) Its halves take over its sequences. A broker
that has the whole batch writes neither half and answers OUT_OF_ORDER_SEQUENCE_NUMBER. Such halves are never counted
again, because a new epoch would write them twice. They fail, and the user hears that their fate is unknown. As soon as
one half is written it is clear that the whole batch was not.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.client.core.producer.answers import SentAs, Standing
from ottla.client.core.producer.identity import MAX_EPOCH, MODULUS, NO_IDENTITY, NO_SEQUENCE, ProducerIdentity, plus

#: The broker remembers the last five batches of a producer and partition.
MAX_UNANSWERED = 5


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


class _Partition:
    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        #: Batches with a sequence whose fate is open, oldest first: on the wire, or waiting to be repeated.
        self.unanswered: list[Sequenced] = []
        #: How many batches were settled before an older one.
        self.overtook = 0
        #: A batch was given up on that the broker may have written.
        self.unresolved = False
        #: The producer id whose batches the broker has seen in this partition.
        self.introduced_as = NO_IDENTITY.producer_id

    def is_next(self, sequence: int) -> bool:
        """Whether `sequence` follows what was acknowledged."""
        return sequence == plus(self.last_acked, 1)

    def is_past(self, sequence: int) -> bool:
        """Whether a batch with `sequence` or a later one was acknowledged."""
        return self.last_acked != NO_SEQUENCE and (self.last_acked - sequence) % MODULUS < MODULUS // 2

    @property
    def in_doubt(self) -> bool:
        """Whether any unanswered batch may have been written: then the oldest was, the leader takes them in order."""
        oldest = self.unanswered[0] if self.unanswered else None
        return oldest is not None and (oldest.on_wire or oldest.perhaps_written or oldest.whole_perhaps_written)

    def remove(self, batch: Sequenced) -> None:
        """`batch` is settled."""
        if batch not in self.unanswered:
            return
        at = self.unanswered.index(batch)
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
            self.next_sequence = plus(self.next_sequence, batch.record_count)


class Sequencer:
    """The sequences of all partitions of one producer."""

    def __init__(self, *, transactional: bool) -> None:
        self.identity = NO_IDENTITY
        self._transactional = transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._to_restart: set[TopicPartition] = set()
        #: Where a batch was given up on that the broker may have written: what `resolve` has to look at.
        self._unresolved: set[TopicPartition] = set()
        #: Counters of this epoch were dropped: a partition without one may have been counted before.
        self._forgot = False

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id has to be asked for before anything can be sent."""
        return self.identity.producer_id < 0

    # before a batch is sent

    def may_send(self, batch: Sequenced) -> bool:
        """Whether `batch`, the first in its partition's queue, may be sent now."""
        if self.needs_identity:
            return False
        partition = self._partitions.get(batch.tp)
        if partition is None:
            return self._may_begin(batch.tp)
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
        partition.next_sequence = plus(partition.next_sequence, batch.record_count)
        partition.unanswered.append(batch)

    # when an answer comes

    def sent_as(self, batch: Sequenced, identity: ProducerIdentity) -> SentAs:
        """What the answer is about: `identity` is what the batch was sent with."""
        if batch.identity != identity:
            return SentAs.FORMER
        return SentAs.TRANSACTIONAL if self._transactional else SentAs.PLAIN

    def standing(self, batch: Sequenced) -> Standing:
        """Where the batch stands among those of its partition."""
        partition = self._of(batch.tp)
        hole = partition.unresolved or batch.tp in self._to_restart
        echo = not hole and (batch.sequence_reset or not partition.is_next(batch.base_sequence))
        if batch.whole_perhaps_written:
            return Standing.BEHIND if echo and not partition.is_past(batch.base_sequence) else Standing.PART
        if partition.unresolved and batch.perhaps_written:
            return Standing.UNPROVED
        return Standing.BEHIND if echo else Standing.NEXT

    def acknowledged(self, batch: Sequenced, *, offset_known: bool) -> None:
        """The broker has `batch`; `offset_known` when it said where, so that it has just been written."""
        partition = self._of(batch.tp)
        partition.remove(batch)
        partition.introduced_as = batch.identity.producer_id
        if batch.identity != partition.identity:
            return
        last = last_sequence(batch)
        if not partition.is_past(last):
            partition.last_acked = last
        if batch.whole_perhaps_written and offset_known:  # so the whole was not, and what is behind it neither
            for behind in partition.unanswered:
                behind.whole_perhaps_written = False

    def echoed(self, batch: Sequenced) -> None:
        """The refusal of `batch` was the echo of an older one's: it is repeated, and the next refusal is its own."""
        batch.sequence_reset = False

    def begin_again(self, batch: Sequenced) -> None:
        """The leader does not have what was before `batch`, nor `batch`: count the partition again, in a new epoch."""
        batch.perhaps_written = False
        self._to_restart.add(batch.tp)

    def split(self, batch: Sequenced, halves: Sequence[Sequenced]) -> None:
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
            half.whole_perhaps_written = batch.perhaps_written or batch.whole_perhaps_written
            sequence = plus(sequence, half.record_count)
        at = next(n for n, other in enumerate(partition.unanswered) if other is batch)
        partition.unanswered[at : at + 1] = halves

    def given_up(self, batch: Sequenced) -> None:
        """`batch` failed for its users, and no answer will come. What follows it cannot go on as it is."""
        if batch.base_sequence == NO_SEQUENCE:
            return
        partition = self._of(batch.tp)
        partition.remove(batch)
        if batch.identity != partition.identity:
            return
        if batch.perhaps_written or batch.whole_perhaps_written:
            partition.unresolved = True
            self._unresolved.add(batch.tp)
        elif not self._transactional:
            self._to_restart.add(batch.tp)

    # epochs

    def resolve(self) -> bool:
        """Settle partitions whose batches were given up on, once nothing of theirs is unanswered.

        A plain producer raises its epoch. Returns False when a transactional one has to abort.
        """
        settled = True
        for tp in sorted(self._unresolved) if self._unresolved else ():
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
        self._forgot = False
        if self._transactional:
            self.forget_transaction()
        self._restart()

    def forget_transaction(self) -> None:
        """The transaction has ended, and a new epoch follows: whatever was open in the old one is of no account."""
        self._partitions.clear()
        self._to_restart.clear()
        self._unresolved.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the counters of partitions that are not used any more, as far as nothing of theirs is open.

        One that is used again after that begins in a new epoch. A transactional producer cannot raise its epoch by
        itself: its counters stay until the coordinator gives it a new one.
        """
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is None or self._transactional or partition.unanswered:
                continue
            if tp not in self._to_restart and tp not in self._unresolved:
                del self._partitions[tp]
                self._forgot = True

    def unanswered(self, tp: TopicPartition) -> int:
        """How many batches of the partition have a sequence and an open fate."""
        partition = self._partitions.get(tp)
        return len(partition.unanswered) if partition is not None else 0

    # inside

    def _may_begin(self, tp: TopicPartition) -> bool:
        """Whether a partition that has no counter may be counted from 0."""
        if self._forgot:
            self._raise_epoch()
        return self.identity.valid

    def _restartable(self) -> list[TopicPartition]:
        return [tp for tp in sorted(self._to_restart) if not self._of(tp).in_doubt]

    def _restart(self) -> None:
        for tp in self._restartable():
            self._of(tp).restart(self.identity)
            self._to_restart.discard(tp)

    def _raise_epoch(self) -> None:
        """KIP-360: a plain producer raises its own epoch; only when they are used up does it need a new id."""
        if self.identity.epoch >= MAX_EPOCH:
            self.identity = NO_IDENTITY
            return
        self.identified(self.identity._replace(epoch=self.identity.epoch + 1))

    def _of(self, tp: TopicPartition) -> _Partition:
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = _Partition(self.identity)
        return partition


def last_sequence(batch: Sequenced) -> int:
    """Sequence of the batch's last record."""
    return plus(batch.base_sequence, batch.record_count - 1)

"""Sequence numbers of the idempotent producer: with them each batch is written once and in order (KIP-98, KIP-360).

Each partition numbers its own records from 0. A batch gets its sequence (the number of its first record) when it is
first sent, and keeps it for every repetition. So the broker recognizes a repetition, and refuses a batch that is not
the next one.

*When may a batch be sent?*
- A batch that is repeated may go only if it is the oldest unanswered one.
- A new batch must be among the five that begin with the oldest unanswered one. The broker remembers the last five. A
  new leader may answer the younger ones first, and must still know the oldest one when that is repeated.
- The first batch of a producer id in a partition goes alone. A broker that does not know the id accepts any sequence
  (KAFKA-14359). If it refused the first batch (because the topic is just being created) and accepted the second one,
  the first could never be written.
- While the fate of a batch that was given up on is unknown, no new batch may go.

*What if the producer gives up on a batch?* Its sequence is a hole, or may be one: the broker refuses whatever comes
behind a hole. A plain producer raises its epoch and numbers the partition from 0 again. A transactional producer can
only abort; then it gets a new epoch. But the epoch has to wait while the oldest unanswered batch may have been written.
With a new number that batch would be written twice. So the producer first repeats it, with the sequence that it has,
to learn its fate. If the oldest batch is not written, then no younger one is: the leader accepts them in order only.

*What if a batch is split that may have been written before?* (KIP-126) Its halves take over its sequences. A broker
that has the whole batch writes neither half and answers OUT_OF_ORDER_SEQUENCE_NUMBER. Such halves never get new
numbers, because in a new epoch they would be written a second time. They fail, and the user hears that their fate is
unknown. As soon as one half is written, it is clear that the whole batch was not. Of other batches that were split it
says nothing: bytes of theirs may lie unread at the broker, and are written when their turn has come.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.client.core.producer.answers import SentAs, Standing
from ottla.client.core.producer.identity import (
    MAX_EPOCH,
    MODULUS,
    NO_IDENTITY,
    NO_SEQUENCE,
    NOBODY,
    SEVERAL,
    ProducerIdentity,
    plus,
)

#: The broker remembers the last five batches of a producer and partition.
MAX_UNANSWERED = 5


class Sequenced(Protocol):
    """What the sequencer uses of a batch."""

    tp: TopicPartition
    identity: ProducerIdentity
    base_sequence: int
    #: Whether it was sent and an answer may come.
    on_wire: bool
    #: Whether an earlier attempt ended without a clear answer.
    perhaps_written: bool
    #: Whether the batch got a new sequence after it had been sent.
    sequence_reset: bool
    #: Whether it is a part of a batch that may have been written as a whole before it was split.
    whole_perhaps_written: bool
    #: The broker that all its attempts were sent to; SEVERAL if there is more than one.
    sent_to: int

    @property
    def number(self) -> tuple[int, ...]:
        """Its place in the order of the partition's batches. The halves begin with the number of the whole."""

    @property
    def record_count(self) -> int: ...


class _Partition:
    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
        #: The last sequence that was acknowledged.
        self.last_acked = NO_SEQUENCE
        #: The broker that has acknowledged `last_acked`; NOBODY or SEVERAL if that is not known.
        self.acked_by = NOBODY
        #: No batch with this sequence or a later one has been written; None if there is no such sequence.
        self.hole_at: int | None = None
        #: Batches with a sequence and without a final answer, oldest first: on the wire, or waiting to be repeated.
        self.unanswered: list[Sequenced] = []
        #: How many batches were answered before an older one.
        self.overtook = 0
        #: The producer has given up on a batch that the broker may have written.
        self.unresolved = False
        #: The producer id under which the broker has written a batch of this partition.
        self.introduced_as = NO_IDENTITY.producer_id

    def is_next(self, sequence: int) -> bool:
        """Whether `sequence` is the one after `last_acked`."""
        return sequence == plus(self.last_acked, 1)

    def is_past(self, sequence: int) -> bool:
        """Whether `sequence` or a later one was acknowledged."""
        return self.last_acked != NO_SEQUENCE and (self.last_acked - sequence) % MODULUS < MODULUS // 2

    def is_behind_a_hole(self, sequence: int) -> bool:
        """Whether a batch with `sequence` cannot have been written, because what comes before it was not."""
        return self.hole_at is not None and (sequence - self.hole_at) % MODULUS < MODULUS // 2

    def has_hole(self, sequence: int) -> None:
        """A batch with `sequence` was not written and will not be, and so none behind it."""
        if not self.is_behind_a_hole(sequence):
            self.hole_at = sequence

    def is_perhaps_elsewhere(self, batch: Sequenced) -> bool:
        """Whether `batch` may be in the log of another broker than the one that acknowledged the batch before it."""
        return batch.perhaps_written and (batch.sent_to != self.acked_by or batch.sent_to == SEVERAL)

    @property
    def in_doubt(self) -> bool:
        """Whether an unanswered batch may have been written. The oldest tells: the leader writes them in order."""
        oldest = self.unanswered[0] if self.unanswered else None
        return oldest is not None and (oldest.on_wire or oldest.perhaps_written or oldest.whole_perhaps_written)

    def remove(self, batch: Sequenced) -> None:
        """`batch` has its final answer."""
        if batch not in self.unanswered:
            return
        at = self.unanswered.index(batch)
        del self.unanswered[at]
        if at > 0:
            self.overtook += 1
        elif not self.unanswered or not self.is_past(self.unanswered[0].base_sequence):
            self.overtook = 0

    def begin_again(self, identity: ProducerIdentity) -> None:
        """Number from 0 again, beginning with the unanswered batches: the oldest is not written, so none is."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        self.acked_by = NOBODY
        self.hole_at = None
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
        #: Partitions that have to be numbered from 0 again, in a new epoch.
        self._to_begin_again: set[TopicPartition] = set()
        #: Partitions whose `unresolved` was set; `resolve` looks at them.
        self._unresolved: set[TopicPartition] = set()
        #: Partitions were forgotten in this epoch: one that is not in `_partitions` may have been used in it.
        self._forgot = False

    @property
    def needs_identity(self) -> bool:
        """Whether the producer has no id: it has to ask for one before it can send."""
        return self.identity.producer_id < 0

    # before a batch is sent

    def may_send(self, batch: Sequenced) -> bool:
        """Whether `batch`, the first in its partition's queue, may be sent now."""
        if self.needs_identity:
            return False
        partition = self._partitions.get(batch.tp)
        if partition is None:
            return self._may_begin(batch.tp)
        begins_again = batch.tp in self._to_begin_again
        if batch.base_sequence != NO_SEQUENCE:
            return partition.unanswered[0] is batch and (not begins_again or partition.in_doubt)
        if begins_again:
            return False
        if partition.unanswered and partition.identity != self.identity:
            return False
        if partition.unanswered and partition.introduced_as != self.identity.producer_id:
            return False
        return not partition.unresolved and len(partition.unanswered) + partition.overtook < MAX_UNANSWERED

    def assign(self, batch: Sequenced) -> None:
        """Give `batch` its sequence, if it has none."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._of(batch.tp)
        if partition.identity != self.identity:
            require(not partition.unanswered, "a new epoch begins while batches of the old one are unanswered")
            partition.begin_again(self.identity)
        batch.identity = partition.identity
        batch.base_sequence = partition.next_sequence
        partition.next_sequence = plus(partition.next_sequence, batch.record_count)
        partition.unanswered.append(batch)

    # when an answer comes

    def sent_as(self, batch: Sequenced, identity: ProducerIdentity) -> SentAs:
        """What the batch was sent as, with `identity` in its header."""
        if batch.identity != identity:
            return SentAs.FORMER
        return SentAs.TRANSACTIONAL if self._transactional else SentAs.PLAIN

    def standing(self, batch: Sequenced) -> Standing:
        """Where the batch stands among those of its partition."""
        partition = self._of(batch.tp)
        hole = partition.unresolved or partition.is_behind_a_hole(batch.base_sequence)
        echo = not hole and (batch.sequence_reset or not partition.is_next(batch.base_sequence))
        if batch.whole_perhaps_written:
            return Standing.BEHIND if echo and not partition.is_past(batch.base_sequence) else Standing.PART
        if partition.unresolved and batch.perhaps_written:
            return Standing.UNPROVED
        if echo:
            return Standing.BEHIND
        return Standing.ELSEWHERE if not hole and partition.is_perhaps_elsewhere(batch) else Standing.NEXT

    def acknowledged(self, batch: Sequenced, *, offset_known: bool) -> None:
        """The broker has `batch`. `offset_known` if the broker said where: then it has written the batch just now."""
        partition = self._of(batch.tp)
        partition.remove(batch)
        partition.introduced_as = batch.identity.producer_id
        if batch.identity != partition.identity:
            return
        last = last_sequence(batch)
        if not partition.is_past(last):
            partition.last_acked = last
            partition.acked_by = batch.sent_to
        if batch.whole_perhaps_written and offset_known:  # so the whole batch was not written, and will not be
            for behind in partition.unanswered:
                if behind.number[0] == batch.number[0]:
                    behind.whole_perhaps_written = False

    def echoed(self, batch: Sequenced) -> None:
        """`batch` was refused only because an older one was (an echo). It is repeated; the next refusal is its own."""
        batch.sequence_reset = False

    def begin_again(self, batch: Sequenced) -> None:
        """The leader has neither `batch` nor what came before it: number the partition from 0 again, in a new epoch."""
        batch.perhaps_written = False
        self._of(batch.tp).has_hole(batch.base_sequence)
        self._to_begin_again.add(batch.tp)

    def split(self, batch: Sequenced, halves: Sequence[Sequenced]) -> None:
        """`batch` was refused for its size: its halves take over its sequences (KIP-126).

        They count as unanswered. So they are sent one after the other, before the batches behind them, which were
        refused because of the gap.
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
        """The producer gives up on `batch`, and no answer will come. What follows it cannot keep its sequences."""
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
            partition.has_hole(batch.base_sequence)
            self._to_begin_again.add(batch.tp)

    # epochs

    def resolve(self) -> bool:
        """Look at partitions in which the producer has given up on batches, once they have no unanswered batch.

        Raises the epoch of a plain producer where it has to. Returns False if a transactional producer has to abort.
        """
        may_go_on = True
        for tp in sorted(self._unresolved) if self._unresolved else ():
            partition = self._of(tp)
            if not partition.unresolved:  # it was numbered from 0 again meanwhile
                self._unresolved.discard(tp)
            elif not partition.unanswered:
                if partition.is_next(partition.next_sequence):
                    partition.unresolved = False
                    self._unresolved.discard(tp)
                elif self._transactional:
                    may_go_on = False
                else:
                    self._to_begin_again.add(tp)
        if self._to_begin_again and self.identity.valid:
            if any(self._of(tp).identity == self.identity for tp in self._may_begin_again()):
                self._raise_epoch()
            else:  # the epoch was raised for other partitions while these were in doubt
                self._begin_all_again()
        return may_go_on

    def identified(self, identity: ProducerIdentity) -> None:
        """The producer has a new identity: every partition is numbered from 0 when it is next used."""
        self.identity = identity
        self._forgot = False
        if self._transactional:
            self._forget_transaction()
        self._begin_all_again()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are not used any more, except those with something open.

        A forgotten partition that is used again begins in a new epoch. A transactional producer cannot raise its epoch
        by itself: it keeps its partitions until the coordinator gives it a new epoch.
        """
        for tp in partitions:
            partition = self._partitions.get(tp)
            if partition is None or self._transactional or partition.unanswered:
                continue
            if tp not in self._to_begin_again and tp not in self._unresolved:
                del self._partitions[tp]
                self._forgot = True

    # inside

    def _forget_transaction(self) -> None:
        """The transaction has ended: what was open in the old epoch does not count any more."""
        self._partitions.clear()
        self._to_begin_again.clear()
        self._unresolved.clear()

    def _may_begin(self, tp: TopicPartition) -> bool:
        """Whether a partition that is not known here may be numbered from 0. It may need a new epoch for that."""
        if self._forgot:
            self._raise_epoch()
        return self.identity.valid

    def _may_begin_again(self) -> list[TopicPartition]:
        """Partitions of `_to_begin_again` in which no unanswered batch can have been written."""
        return [tp for tp in sorted(self._to_begin_again) if not self._of(tp).in_doubt]

    def _begin_all_again(self) -> None:
        for tp in self._may_begin_again():
            self._of(tp).begin_again(self.identity)
            self._to_begin_again.discard(tp)

    def _raise_epoch(self) -> None:
        """KIP-360: a plain producer raises its own epoch. When the epochs are used up, it needs a new id."""
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

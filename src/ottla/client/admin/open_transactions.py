"""Transactions that are open in partitions, and which of them hang (KIP-664): values, and the rule. Pure.

A partition's leader knows which producers have a transaction open there, by producer id. The transaction's coordinator
knows which partitions it has to write a marker to. A transaction *hangs* in a partition when it is open there and no
coordinator will ever end it. It holds back the last stable offset until somebody writes the marker by hand.

The two are asked one after the other, and producers go on meanwhile. So the rule needs three looks: it is open, then
no coordinator has this partition in a transaction of this producer, and then it is still open, at the same offset. A
partition is added to a transaction before the first record is written there, and leaves it after the marker. So one
that was open all the time, and not known in between, will never be ended.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.admin.types import ProducerDescription, TransactionDescription
from ottla.wire.hashing import coordinator_partition

#: What made-up transactional ids begin with; nobody's id does.
_MADE_UP: Final = "ottla-asks-whether-somebody-is-there-"
_PRINTABLE: Final = "".join(map(chr, range(ord("!"), ord("~") + 1)))


class OpenTransaction(NamedTuple):
    """A transaction that is open in one partition. They sort by partition and offset."""

    partition: TopicPartition
    #: Where it begins in this partition.
    start_offset: int
    producer_id: int
    producer_epoch: int
    #: Of the last marker of this producer in the partition; -1 if there was none.
    coordinator_epoch: int
    #: Of the last record of this producer in the partition, in ms since the epoch.
    last_timestamp_ms: int
    #: Whose producer id this is, and the state of its transaction; None if no coordinator knows the producer id.
    transactional_id: str | None = None
    state: str | None = None
    #: `transaction.timeout.ms`: for so long after `since_ms` the coordinator lets it be open.
    timeout_ms: int | None = None
    #: When it began (ms since the epoch): by its coordinator, or, if it hangs, by the timestamp of its first record.
    since_ms: int | None = None
    is_hanging: bool = False


class WaitingGroup(NamedTuple):
    """A group that has not read past the last stable offset of a partition."""

    group_id: str
    #: What it has committed there; None for nothing.
    committed: int | None
    #: The client id of the member that has the partition; None if nobody has it now.
    client_id: str | None


class PartitionHold(NamedTuple):
    """Where `read_committed` readers of a partition have to stop, and because of whom."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    #: All that are open there, the oldest first.
    transactions: tuple[OpenTransaction, ...]
    #: The one that the last stable offset stands at. None if nothing is held back, or if it has ended just now.
    holder: OpenTransaction | None
    #: Groups that have not come further. Whether a group reads only what is committed, nobody but its members knows.
    groups: tuple[WaitingGroup, ...]

    @property
    def waiting_offsets(self) -> int:
        """How many offsets (of records and markers) such readers do not get yet."""
        return self.high_watermark - self.last_stable_offset


def made_up_ids(partitions: int) -> dict[str, int]:
    """A transactional id that nobody has for each partition of `__transaction_state`, which has so many.

    Whoever answers that there is no such id coordinates that partition, and has read what it knows.
    """
    found: dict[int, str] = {}
    for end in product(_PRINTABLE, repeat=3):  # ids that follow each other belong to partitions that do
        transactional_id = _MADE_UP + "".join(end)
        found.setdefault(coordinator_partition(transactional_id, partitions), transactional_id)
        if len(found) == partitions:
            break
    return {transactional_id: partition for partition, transactional_id in sorted(found.items())}


def open_in(producers: Mapping[TopicPartition, Iterable[ProducerDescription]]) -> list[OpenTransaction]:
    """The first look: what is open, by partition and offset."""
    return sorted(
        OpenTransaction(
            tp,
            each.transaction_start_offset,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_timestamp_ms,
        )
        for tp, described in producers.items()
        for each in described
        if each.transaction_start_offset >= 0
    )


def with_coordinators(
    opened: Iterable[OpenTransaction], owners: Mapping[int, str], described: Mapping[str, TransactionDescription]
) -> list[OpenTransaction]:
    """The second look: what coordinators say. `owners` is producer id → transactional id.

    `is_hanging` of the result means: no coordinator has it, so it hangs if it is still open now.
    """
    found = []
    for each in opened:
        about = described.get(owners.get(each.producer_id, ""))
        if about is None:
            found.append(each._replace(is_hanging=True))
            continue
        # While markers are written, these are the partitions whose marker is still to come.
        known = each.partition in about.partitions
        found.append(
            each._replace(
                transactional_id=about.transactional_id,
                state=about.state,
                timeout_ms=about.timeout_ms if known else None,
                since_ms=about.start_ms if known and about.start_ms >= 0 else None,
                is_hanging=not known,
            )
        )
    return found


def still_open(
    suspects: Iterable[OpenTransaction], producers: Mapping[TopicPartition, Iterable[ProducerDescription]]
) -> list[OpenTransaction]:
    """The third look: those of `suspects` that are open all the same."""
    now = {_identity(each) for each in open_in(producers)}
    return [each for each in suspects if _identity(each) in now]


def _identity(each: OpenTransaction) -> tuple[TopicPartition, int, int, int]:
    return each.partition, each.producer_id, each.producer_epoch, each.start_offset

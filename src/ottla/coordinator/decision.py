"""What a coordinator shard returns for an input: decide, append, apply.

Theory of operation. A shard is the state of one partition of a coordinator's log (`__consumer_offsets`,
`__transaction_state`, the producer ids in the metadata log). A handler reads that state and returns a
`Decision`; it changes nothing durable. The runtime then

1. appends `records` as one batch to the shard's partition (a plain batch, or a transactional one when
   `transactional` names a producer),
2. gives each record to the shard's `apply`, the only thing that changes durable state, live and at recovery alike,
3. sends `replies`, sets and cancels `timers`, and carries out `effects`, whose outcome comes back as an input.

Steps 2 and 3 wait for step 1. When it fails, the shard's `append_failed(decision, error)` says what the waiting
requests are told, and the state stays what it was. A decision without records goes straight to step 3.

What would be too much for one batch, or for one turn of the event loop, is a decision with a `rest`, which is the next
decision. Queries may come in between, but no other input.

Shape after Apache Kafka's `CoordinatorResult` and `CoordinatorShard`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

from ottla.assign.server import GroupSpec, ServerAssignor
from ottla.base.types import TopicPartition
from ottla.coordinator.facts import GroupFacts
from ottla.wire.errors import ErrorCode


class LogRecord(NamedTuple):
    """One record for the shard's partition, key and value in Kafka's own schema; a value of None is a tombstone.

    The metadata log's records have no key: there `key` is empty, and the runtime writes null.
    """

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    """The answer to a waiting request. `token` is the runtime's name for the request; `response` a superset message."""

    token: int
    response: object


class SetTimer(NamedTuple):
    """Call `shard.timer(key, now_ms)` after `delay_ms`; replaces a timer that has the same key.

    It is a delay and not a time of day: a wall clock that somebody sets must expel no member and abort no transaction.
    """

    key: tuple[str, ...]
    delay_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer with this key; one that does not exist, or has fired already, is no error."""

    key: tuple[str, ...]


class TransactionalWrite(NamedTuple):
    """A decision's records are appended as a transactional batch of this producer (TxnOffsetCommit)."""

    producer_id: int
    producer_epoch: int


class WriteMarkers(NamedTuple):
    """Effect: write the end marker of a transaction to every partition's leader.

    The runtime sends one control batch per partition, retries where a leader is not available, and reports with
    the transaction shard's `markers_written`. `partitions` may name `__consumer_offsets` partitions.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    #: In which protocol the transaction ends: 0, or 2 for KIP-890's (`TransactionVersion` of WriteTxnMarkers v2).
    transaction_version: int = 2


class AssignPartitions(NamedTuple):
    """Effect: compute a consumer group's target assignment beside the event loop, within a time limit.

    The runtime reports with the group shard's `assigned`.
    """

    group_id: str
    epoch: int
    assignor: ServerAssignor
    spec: GroupSpec
    #: No other job has it: its result counts as long as the shard waits for this one.
    token: object


class ReportFault(NamedTuple):
    """Effect: the operator is told of a fault of ours, which a request met and was refused for."""

    what: str
    fault: Exception


Timer: TypeAlias = SetTimer | CancelTimer
#: Makes answers of an error.
Refusal: TypeAlias = Callable[[ErrorCode], tuple[Reply, ...]]
Effect: TypeAlias = WriteMarkers | AssignPartitions | ReportFault


class Decision(NamedTuple):
    """What follows from one input. The runtime carries out the parts in the order in which they are declared here."""

    records: tuple[LogRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    timers: tuple[Timer, ...] = ()
    transactional: TransactionalWrite | None = None
    effects: tuple[Effect, ...] = ()
    #: Later records build on these. Then they hold as soon as they are in the log, and all else with them, also when
    #: the device has not taken them. But nobody may hear of them then: these answers go out in place of `replies`.
    unsynced: Refusal | None = None
    #: What it means for the history of groups, told when all else is done. It can fail nothing.
    facts: tuple[GroupFacts, ...] = ()
    #: More of the same input: taken when this is carried out, in another turn of the loop, and before any other input.
    rest: Callable[[], Decision] | None = None
    #: Nothing is decided yet, and nothing has changed: the rest goes on to look. If it fails, it is as if it had never
    #: begun.
    is_undecided: bool = False


NOTHING = Decision()


def in_steps(steps: Generator[None, None, Decision], *, is_undecided: bool = True) -> Decision:
    """The decision with which the steps end. If they do not end with the first one, the others are its rest.

    Nothing is written or answered before the last step. `is_undecided`: and nothing changes.
    """
    try:
        next(steps)
    except StopIteration as end:
        decision: Decision = end.value
        return decision
    return Decision(rest=lambda: in_steps(steps, is_undecided=is_undecided), is_undecided=is_undecided)

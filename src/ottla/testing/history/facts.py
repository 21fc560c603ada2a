"""The vocabulary of a history: what a client was asked for, what it was told, and what was read back in the end.

A fact belongs to an `Event`, which says when it happened, and to whom. A record is known by its `uid`, a text of which
no two records of a test have the same: mostly its value. A transaction is known by `txn`, a text of the same kind.
Each class is one line of a history's file; the name of the class is the line's `fact`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ottla.base.types import TopicPartition

#: How a transaction ended, or a commit of offsets; "unknown": the answer was lost, so it may be either.
TransactionOutcome = Literal["committed", "aborted", "unknown"]
CommitOutcome = Literal["committed", "failed", "unknown"]


class Read(NamedTuple):
    """A record that a poll returned: where it was, and which one it was."""

    tp: TopicPartition
    offset: int
    uid: str


class LogRecord(NamedTuple):
    """A record in a partition's log. `visible`: a read_committed consumer may return it; it is not aborted, or open."""

    offset: int
    uid: str
    visible: bool = True


# of producers


@dataclass(frozen=True, slots=True)
class Sent:
    """A user gave a record to a producer; it may be written from now on."""

    uid: str
    #: The transaction that it belongs to.
    txn: str | None = None
    #: Which producer, if `who` has had more than one: only records of one producer have an order.
    producer: str = ""
    #: The record that it was made from, by a pipeline that consumes, transforms and produces.
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The producer said that the record is written. The offset is -1 if the broker has not told it."""

    uid: str
    tp: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record is certainly not written, and never will be: `send` raised, or it never left the client."""

    uid: str
    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The producer gave up on a record that it may have written: a timeout, a lost connection."""

    uid: str
    error: str


# of transactions


@dataclass(frozen=True, slots=True)
class Began:
    """The user began a transaction."""

    txn: str
    transactional_id: str
    #: `transaction.timeout.ms`, in seconds: so long it may be open without a fault.
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class OffsetsSent:
    """Offsets were added to a transaction, with the member's id and generation (KIP-447), or without them.

    A generation of -1 is none; or one that the test does not know, in a group where `Assigned` has none either.
    """

    txn: str
    group: str
    offsets: Mapping[TopicPartition, int]
    member_id: str = ""
    generation: int = -1


@dataclass(frozen=True, slots=True)
class Ending:
    """The user asked for the end of a transaction: a commit, or else an abort. Noted before the call."""

    txn: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """What the user was told of the end of a transaction."""

    txn: str
    outcome: TransactionOutcome


# of consumers


@dataclass(frozen=True, slots=True)
class Polled:
    """A poll returned records, in this order."""

    group: str | None
    records: tuple[Read, ...]
    read_committed: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member was given partitions. `generation` is the member epoch under KIP-848; -1 if it is not known."""

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    #: A static member's `group.instance.id`: it may come back as another client, with what it had.
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions were taken from a member; `lost`: it heard of it when somebody else may have had them already."""

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Sought:
    """A consumer's positions were changed by the user (a seek), or by `auto.offset.reset`.

    An offset is -1 if the test does not know it: a seek to the end, or a reset, which the user hears of with a later
    poll.
    """

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's offsets were committed, or not. Noted when the answer is there.

    `member_id` is empty and `generation` -1 if no member committed them. A commit takes effect between `call` and its
    answer; without `call`, at this very moment (a test that looks into the broker).
    """

    group: str
    offsets: Mapping[TopicPartition, int]
    member_id: str = ""
    generation: int = -1
    outcome: CommitOutcome = "committed"
    #: The `Called` that began it.
    call: str | None = None


@dataclass(frozen=True, slots=True)
class GroupBegan:
    """A group's generations go back.

    It was deleted, or an empty one got another protocol. Or its coordinator was loaded, and the last generation is not
    in its log, because nobody had synced in it. With `keeps_offsets`, what it had committed has to be there all the
    same: it was not deleted.
    """

    group: str
    keeps_offsets: bool = False


# of who deletes records


@dataclass(frozen=True, slots=True)
class Deleting:
    """The records below this offset may be gone from now on: DeleteRecords is asked for, or retention may retire them.

    Noted before the call. Where one is noted for a partition, no other record of it may be gone, whatever
    `Log.start_offset` says.
    """

    tp: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """DeleteRecords was answered: nobody who begins to read from now on is given a record below this offset."""

    tp: TopicPartition
    offset: int


# of any client


@dataclass(frozen=True, slots=True)
class Called:
    """A call began that has to settle. `call` is a name that no other call has."""

    call: str
    what: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """A call returned, or raised."""

    call: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Killed:
    """The process of a client was killed: nothing that it had begun has to settle."""


# the final state, after all faults are over and all clients have finished


@dataclass(frozen=True, slots=True)
class Log:
    """What a partition holds in the end, data records only, by offset.

    `committed_only`: it was read with `isolation.level=read_committed`, so that aborted records are not in it.
    `compacted`: records may be missing because a later one has their key.
    Offsets that are not known are None; records below `start_offset` were deleted (retention, DeleteRecords), and may
    be told all the same by a test that knows them.
    """

    tp: TopicPartition
    records: tuple[LogRecord, ...]
    start_offset: int = 0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    committed_only: bool = False
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Positions:
    """A group's committed offsets in the end; a partition that is not named has none."""

    group: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Drained:
    """A group has read these partitions from their beginning to their end: some member has been given each record.

    With `transforms`, the group is a pipeline: each record that it read became one (`Sent.source`), exactly once.
    """

    group: str
    partitions: tuple[TopicPartition, ...]
    read_committed: bool = True
    transforms: bool = False


Fact = (
    Sent
    | Acknowledged
    | Failed
    | Unknown
    | Began
    | OffsetsSent
    | Ending
    | Ended
    | Polled
    | Assigned
    | Revoked
    | Sought
    | Committed
    | GroupBegan
    | Deleting
    | Deleted
    | Called
    | Returned
    | Killed
    | Log
    | Positions
    | Drained
)


@dataclass(frozen=True, slots=True)
class Event:
    """A fact, when it was noted (seconds on one clock of the test's choice), and whose it is: the client's name."""

    at_s: float
    who: str
    fact: Fact

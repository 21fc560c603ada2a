"""What the exactly-once protocol asks of Kafka, and what it is answered. Pure.

`ottla.spark.protocol` yields these requests; `ottla.spark.ledger_io` carries them out.
"""

from collections.abc import Generator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.spark.ledger import Handle, LedgerRecord
from ottla.spark.staged import Staged

#: Offsets of the source to commit: group id → topic → partition → the offset of the next record to read.
GroupOffsets = Mapping[str, Mapping[str, Mapping[int, int]]]


class InitProducer(NamedTuple):
    """Take over `transactional_id`: its open transaction is ended, and earlier holders are fenced. Answer: Handle.

    With `holder` only from that handle, if nobody has taken over since (KIP-360); else the answer is None.
    """

    transactional_id: str
    holder: Handle | None = None


class ReadLedger(NamedTuple):
    """Read the ledger: all that was in it when this was asked, whoever leads its partition. Answer: Ledger."""


class ListOpen(NamedTuple):
    """Find the transactional ids that match `pattern` and are in a transaction. Answer: list of ids."""

    pattern: str


class FindOpen(NamedTuple):
    """The same, with what it takes to end these transactions and none that comes after them. Answer: list of Handle."""

    pattern: str


class Fence(NamedTuple):
    """Abort each handle's transaction, unless somebody has taken over its id: its producer writes no more.

    With the second protocol (KIP-890) that is what an end does. With the first one an end leaves the producer its
    epoch, and a record that comes after the marker belongs to no transaction, on brokers before 3.6 for good. So there
    the id is taken over; and a takeover aborts what is open whosever it is, for Kafka looks at the epoch of who asks
    (KIP-360) only when nothing is open. Answer: None, when that is done for all of them.
    """

    handles: tuple[Handle, ...]


class LetTasksEnd(NamedTuple):
    """Wait as long as Spark takes to end the tasks of a job that has failed or was cancelled. Answer: None."""


class EndTransactions(NamedTuple):
    """End each handle's transaction; repeat with the same epoch until the answer is final. Answer: Ended of each."""

    handles: tuple[Handle, ...]
    commit: bool


class AppendInTransaction(NamedTuple):
    """In `handle`'s transaction write the records to the ledger, the offsets to their groups. Answer: Appended.

    It is the first write to the ledger under this handle. The transaction begins here, or with CopyStaged before.
    """

    handle: Handle
    records: tuple[LedgerRecord, ...]
    offsets: GroupOffsets


class CopyStaged(NamedTuple):
    """Begin `handle`'s transaction: write what tasks have staged to where it belongs. Answer: Appended."""

    handle: Handle
    staged: tuple[Staged, ...]


class ForgetStaged(NamedTuple):
    """What was staged is committed: it can be deleted. What prevents that is no error. Answer: None."""

    staged: tuple[Staged, ...]


class Append(NamedTuple):
    """Write the record to the ledger, in no transaction. Answer: None."""

    record: LedgerRecord


class Ended(Enum):
    """The final answer to EndTxn."""

    YES = "the transaction is ended as asked, now or before"
    GONE = "this handle has no such transaction: none was begun, or it was ended the other way"
    FENCED = "the id is not this handle's any more: taken over, timed out, or expired"


class Appended(Enum):
    """The final answer to a transactional write."""

    YES = "written and flushed"
    FENCED = "a newer producer holds the transactional id"


Request = (
    InitProducer
    | ReadLedger
    | ListOpen
    | FindOpen
    | Fence
    | LetTasksEnd
    | EndTransactions
    | AppendInTransaction
    | CopyStaged
    | ForgetStaged
    | Append
)
#: Answers are untyped here: each request's docstring names its own.
Steps = Generator[Request, Any, Any]

"""Keys and values of `__transaction_state`, byte for byte Apache Kafka's.

A key or value is an int16 version and then the struct. Field tables after Kafka's `TransactionLogKey.json` and
`TransactionLogValue.json` (4.3): value version 1 is flexible (KIP-915) and carries what KIP-890 added in tagged fields.
"""

from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.wire.codec import Buffer
from ottla.wire.schema import LATEST, Field, declare, decode, encode

#: The key version is the record's type: 0 is a transaction's state, others are from a later Kafka.
TRANSACTION_LOG_KEY_VERSION: Final = 0
MAX_VALUE_VERSION: Final = 1


class TransactionLogKey(NamedTuple):
    """Whose state a record holds."""

    transactional_id: str = ""


class PartitionsSchema(NamedTuple):
    """Partitions of one topic that take part in the transaction."""

    topic: str = ""
    partition_ids: tuple[int, ...] = ()


class TransactionLogValue(NamedTuple):
    """The state of one transactional id; `transaction_partitions` is null when the state is Empty."""

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: tuple[PartitionsSchema, ...] | None = ()
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0


declare(TransactionLogKey, (Field("transactional_id", "string"),))
declare(
    PartitionsSchema,
    (Field("topic", "string"), Field("partition_ids", ["int32"])),
    flexible_from=1,
)
declare(
    TransactionLogValue,
    (
        Field("producer_id", "int64"),
        Field("previous_producer_id", "int64", 1, tag=0),
        Field("next_producer_id", "int64", 1, tag=1),
        Field("producer_epoch", "int16"),
        Field("next_producer_epoch", "int16", 1, tag=3),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_status", "int8"),
        Field("transaction_partitions", [PartitionsSchema], null_first=0, null_last=LATEST),
        Field("transaction_last_update_timestamp_ms", "int64"),
        Field("transaction_start_timestamp_ms", "int64"),
        Field("client_transaction_version", "int16", 1, tag=2),
    ),
    flexible_from=1,
)


_KEY_PREFIX: Final = TRANSACTION_LOG_KEY_VERSION.to_bytes(2, "big", signed=True)


def encode_key(transactional_id: str) -> bytes:
    """The record key of a transactional id."""
    return _KEY_PREFIX + encode(TransactionLogKey(transactional_id), 0)


def decode_key(key: Buffer) -> str | None:
    """The transactional id a record is about, or None for a record type this version does not know.

    Kafka skips unknown types, so that an older coordinator can read a newer log (KIP-915).
    Raises CorruptDataError when the bytes are not a key.
    """
    if _version(key) != TRANSACTION_LOG_KEY_VERSION:
        return None
    return decode(TransactionLogKey, 0, key, 2).transactional_id


def encode_value(value: TransactionLogValue, version: int = MAX_VALUE_VERSION) -> bytes:
    """The record value, in the value version the cluster's `transaction.version` asks for."""
    return version.to_bytes(2, "big", signed=True) + encode(value, version)


def decode_value(data: Buffer) -> TransactionLogValue:
    """Read a record value. Raises CorruptDataError when it is not one, or from a version this code cannot read."""
    version = _version(data)
    if not 0 <= version <= MAX_VALUE_VERSION:
        raise CorruptDataError(f"TransactionLogValue v{version}: this version reads 0 to {MAX_VALUE_VERSION}")
    return decode(TransactionLogValue, version, data, 2)


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise CorruptDataError(f"a coordinator record of {len(data)} bytes has no version")
    return int.from_bytes(data[:2], "big", signed=True)

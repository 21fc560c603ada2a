"""The metadata log's record of producer ids that were given out, as KRaft writes it.

Field table after Kafka's `ProducerIdsRecord.json` (api key 15, version 0); the frame is that of
`AbstractApiMessageSerde`: frame version, api key and message version as unsigned varints, then the struct.
"""

from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.wire.codec import Buffer
from ottla.wire.schema import Field, declare, decode, encode

PRODUCER_IDS_RECORD_API_KEY: Final = 15
_PREFIX: Final = bytes((1, PRODUCER_IDS_RECORD_API_KEY, 0))


class ProducerIdsRecord(NamedTuple):
    """Every producer id below `next_producer_id` has been given to some broker."""

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0


declare(
    ProducerIdsRecord,
    (Field("broker_id", "int32"), Field("broker_epoch", "int64"), Field("next_producer_id", "int64")),
    flexible_from=0,
)


def encode_producer_ids(record: ProducerIdsRecord) -> bytes:
    """The record's value in the metadata log."""
    return _PREFIX + encode(record, 0)


def decode_producer_ids(value: Buffer) -> ProducerIdsRecord:
    """Read a value; raises CorruptDataError when it is not one."""
    if bytes(value[: len(_PREFIX)]) != _PREFIX:
        raise CorruptDataError(f"not a ProducerIdsRecord: {bytes(value[:4])!r}")
    return decode(ProducerIdsRecord, 0, value, len(_PREFIX))
